//! HTTP in, `Status` out: the API server.
//!
//! A request moves through `service` (who, may they, is there room), `verbs` (what), `admission` (may this object
//! be), `door` (commit), `cache` (everyone is told) and `respond` (in which form). Each stage takes the type that
//! the one before it makes. Verbs name no kind: where kinds differ, their rows say so. What is served is in the
//! `catalogue`, can change, and is pinned by each request. Reads come from the watch cache; only `door` writes to the
//! store, and only what `admission` let through.

pub mod api;
pub mod options;
pub mod server;
pub mod service;

pub mod negotiate;
pub mod notes;
pub mod request_info;
pub mod security;

pub mod audit;
pub mod deadline;
pub mod flow_control;
pub mod status;

pub mod admission;
pub mod answer;
pub mod at_rest;
pub mod body;
pub mod cache;
pub mod catalogue;
pub mod codec;
mod compaction;
pub mod door;
pub mod filter;
pub mod formats;
pub mod gate;
pub mod kinds;
pub mod object;
pub mod place;
pub mod resource_metrics;
pub mod respond;
pub mod tree;
pub mod verbs;

pub mod backend;
pub mod component_statuses;
pub mod custom;
pub mod dial;
pub mod eviction;
pub mod kubelet_client;
pub mod proxy;
pub mod reviews;
pub mod service_reference;
pub mod tokens;

pub mod bootstrap;
pub mod health;
pub mod metrics;
mod peers;
pub mod trace;

pub use api::{Config, PortRange};
pub use options::Options;
pub use server::{ApiServer, StartError, start};
pub use service::ApiService;
