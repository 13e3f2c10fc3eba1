//! Group-versions that somebody else serves: they are looked up before the catalogue's kinds.
//!
//! Who may ask is decided before: a delegate gets what was authenticated and authorised, and answers it.
//! Source: APIService of `k8s.io/kube-aggregator`.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::Response;

use super::Snapshot;
use super::remote_discovery::RemoteDiscovery;
use crate::body::Body;
use crate::kinds::Kind;
use crate::negotiate::Accept;
use crate::notes::Notes;
use crate::request_info::{RequestInfo, ResourceInfo};
use crate::security::Permit;
use crate::status::{Error, Result};

/// A server of a group-version.
pub trait Delegate: Send + Sync {
    /// Which one.
    fn group_version(&self) -> (&str, &str);

    /// What clients discover in it.
    fn kinds(&self) -> &[Kind];

    /// Its OpenAPI document, version 3, in JSON.
    fn openapi(&self) -> Vec<u8>;

    /// What is known of whoever serves it elsewhere, for one that passes requests on: then the two above are empty.
    fn discovery(&self) -> Option<&RemoteDiscovery> {
        None
    }

    /// Answers a request for discovery of it, or for its OpenAPI document of version 3, for one that passes requests on.
    fn tell(&self, _told: Told) -> BoxFuture<'_, Result<Response<Body>>> {
        Box::pin(async { Err(Error::unknown_path()) })
    }

    /// Answers a request for a resource in it.
    fn serve(&self, asked: Asked) -> BoxFuture<'_, Result<Response<Body>>>;
}

/// A request for what a server elsewhere tells of itself.
pub struct Told {
    /// As it came.
    pub http: http::Request<Body>,
    /// Method, path and query.
    pub info: RequestInfo,
    /// The sender, and the proof that they may.
    pub permit: Permit,
}

/// A request that may be made, before its body was read.
pub struct Asked {
    /// As it came.
    pub http: http::Request<Body>,
    /// Method, path and query.
    pub info: RequestInfo,
    /// The resource part.
    pub resource: ResourceInfo,
    /// The sender, and the proof that they may.
    pub permit: Permit,
    /// The client's address.
    pub origin: Option<IpAddr>,
    /// The forms that they take; none that there is, if absent.
    pub accept: Option<Accept>,
    /// Warnings and audit annotations.
    pub notes: Arc<Notes>,
    /// The catalogue when it came.
    pub catalogue: Arc<Snapshot>,
}
