//! Group-versions that somebody else serves: they are looked up before the catalogue's kinds.
//!
//! Who may ask is decided before: a delegate gets what was authenticated and authorised, and answers it.
//! Source: APIService of `k8s.io/kube-aggregator`.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Response;

use super::Snapshot;
use crate::body::Body;
use crate::kinds::Kind;
use crate::negotiate::Accept;
use crate::notes::Notes;
use crate::request_info::{RequestInfo, ResourceInfo};
use crate::security::Permit;
use crate::status::Result;

/// Serves a group-version.
pub trait Delegate: Send + Sync {
    /// Which one.
    fn group_version(&self) -> (&str, &str);

    /// What clients discover in it.
    fn kinds(&self) -> &[Kind];

    /// Its OpenAPI document, version 3, in JSON.
    fn openapi(&self) -> Vec<u8>;

    /// Answers a request for a resource in it.
    fn serve(&self, asked: Asked) -> BoxFuture<'_, Result<Response<Body>>>;
}

/// A request that may be made, before its body was read.
pub struct Asked {
    /// As it came.
    pub http: http::Request<Body>,
    /// Method, path and query.
    pub info: RequestInfo,
    /// The resource part.
    pub resource: ResourceInfo,
    /// Who asks, and that they may.
    pub permit: Permit,
    /// Where they are.
    pub origin: Option<IpAddr>,
    /// What they take; nothing that there is, if absent.
    pub accept: Option<Accept>,
    /// Warnings and audit annotations.
    pub notes: Arc<Notes>,
    /// What was served when it came.
    pub catalogue: Arc<Snapshot>,
}
