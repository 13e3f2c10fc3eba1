//! Group-versions that somebody else serves: they are looked up before the catalogue's kinds.
//!
//! Who may ask is decided before: a delegate gets what was authenticated and authorised, and answers it.
//! Source: APIService of `k8s.io/kube-aggregator`.

use std::net::IpAddr;
use std::sync::Arc;

use auth::UserInfo;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;

use crate::api::Api;
use crate::catalogue::Snapshot;
use crate::kinds::Kind;
use crate::negotiate::{Accept, Format, View};
use crate::notes::Notes;
use crate::place::Placed;
use crate::request_info::{RequestInfo, ResourceInfo};
use crate::respond::Body;
use crate::status::{Error, Result};
use crate::verbs::Request;

/// Serves a group-version.
pub trait Delegate: Send + Sync {
    /// Which one.
    fn group_version(&self) -> (&str, &str);

    /// What clients discover in it.
    fn kinds(&self) -> &[Kind];

    /// Its OpenAPI document, version 3, in JSON.
    fn openapi(&self) -> Vec<u8>;

    /// Answers a request for a resource in it.
    fn serve<'a>(&'a self, api: &'a Api, asked: Asked) -> BoxFuture<'a, Result<Response<Body>>>;
}

/// A request that may be made, before its body was read.
pub struct Asked {
    /// As it came.
    pub http: http::Request<Body>,
    /// Method, path and query.
    pub info: RequestInfo,
    /// The resource part.
    pub resource: ResourceInfo,
    /// Who.
    pub user: UserInfo,
    /// Where they are.
    pub origin: Option<IpAddr>,
    /// What they take; nothing that there is, if absent.
    pub accept: Option<Accept>,
    /// Warnings and audit annotations.
    pub notes: Arc<Notes>,
    /// What was served when it came.
    pub catalogue: Arc<Snapshot>,
}

impl Asked {
    /// The request for a kind that this server knows, without its body.
    ///
    /// # Errors
    /// 404 and 405 as [`Placed::new`], 406 for what the client does not take.
    pub fn of_kind(self, api: &Api, kind: &Kind) -> Result<Request> {
        let resource = Placed::new(kind, self.resource)?;
        let (parts, _) = self.http.into_parts();
        let accept = accepted(kind, &resource, self.accept, &parts.headers)?;
        Ok(Request {
            info: self.info,
            resource,
            catalogue: self.catalogue,
            kind: kind.clone(),
            user: self.user,
            origin: self.origin,
            headers: parts.headers,
            accept,
            body: Bytes::new(),
            received_us: api.clock.now().as_microsecond(),
            cause: 0,
            notes: self.notes,
        })
    }
}

/// What a client takes of a kind.
///
/// # Errors
/// 406 if that is nothing.
pub fn accepted(
    kind: &Kind,
    resource: &Placed,
    accept: Option<Accept>,
    headers: &http::HeaderMap,
) -> Result<Accept> {
    let accept = accept.ok_or_else(Error::not_acceptable)?;
    let (has_table, has_protobuf) =
        (kind.has_table(&resource.subresource), kind.has_protobuf(&resource.subresource));
    let is_possible = |accept: &Accept| match accept.view {
        View::Table => has_table,
        View::Object => has_protobuf || accept.format != Format::Protobuf,
        View::Metadata | View::MetadataList => true,
    };
    if is_possible(&accept) { Ok(accept) } else { Accept::choose(headers, is_possible) }
}
