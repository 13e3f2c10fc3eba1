//! CSI 1.11: the seam between a cluster and its storage drivers, and a driver of our own.
//!
//! The message types are upstream's, generated ([`v1`], [`registration`]). [`client`] calls a driver, [`server`] is one
//! behind a unix socket; both are made of the rows in `calls`. [`driver`] keeps volumes in a folder of its node.
//!
//! The types come from `csi.proto` of CSI 1.11 and from the kubelet's plugin registration API: `protox` compiles them (no
//! `protoc` needed), `prost-build` writes the messages with comments disabled and no services, and the result is
//! committed under `generated/`.
//!
//! This crate knows nothing of the Kubernetes API: whoever calls it has made requests out of objects.

pub mod client;
pub mod driver;
pub mod server;

mod calls;

pub use tonic::{Code, Status};

/// Generated from `csi.proto` of the CSI specification, version 1.11.
#[allow(missing_docs, clippy::all, clippy::pedantic, clippy::doc_markdown)]
#[path = "generated/v1.rs"]
pub mod v1;

/// Generated from `k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[path = "generated/registration.rs"]
pub mod registration;

/// The result of a CSI call.
pub type Result<T> = std::result::Result<T, Status>;

/// The `PluginInfo.type` of a CSI driver. Source: `registerapi.CSIPlugin`.
pub const CSI_PLUGIN: &str = "CSIPlugin";
