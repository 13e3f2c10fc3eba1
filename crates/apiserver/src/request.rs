//! A request for a resource, and the same once it may be made.
//!
//! Only a [`Permit`] of `security` turns a [`Request`] into an [`Authorized`], and verbs and writes take nothing else.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use auth::UserInfo;
use bytes::Bytes;
use http::HeaderMap;
use machinery::metadata::Metadata;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::catalogue::{Asked, Route, Snapshot};
use crate::cluster::Cluster;
use crate::conversion::AtHand;
use crate::kinds::{GroupVersionResource, Kind};
use crate::negotiate::{Accept, Format, View};
use crate::notes::Notes;
use crate::request_info::{Query, RequestInfo, ResourceInfo, Scope, Verb, cut};
use crate::request_scope::RequestScope;
use crate::security::Permit;
use crate::status::{Error, Result, Subject};

/// Names the revision that made a client act.
pub const CAUSE_HEADER: &str = "knarr-cause";
/// A component's name is kept up to here, a user's up to there: both are what a client says, and both are remembered with
/// every write.
const COMPONENT_BYTES_MAX: usize = 64;
const USER_BYTES_MAX: usize = 256;
/// A request for a resource, whoever may have sent it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method, path and query.
    pub info: RequestInfo,
    /// The resource part.
    pub resource: RequestScope,
    /// The kinds as they are for this request, whatever changes meanwhile.
    pub catalogue: Arc<Snapshot>,
    /// The one that it is about.
    pub kind: Kind,
    /// The client's address; absent inside this process, behind a front proxy, and for those whom somebody acts as.
    pub origin: Option<IpAddr>,
    /// The headers.
    pub headers: HeaderMap,
    /// The forms that the client accepts.
    pub accept: Accept,
    /// The body; empty for reads.
    pub body: Bytes,
    /// Unix time of arrival in microseconds.
    pub received_us: i64,
    /// The revision that made the client act; 0 if unknown.
    pub cause: u64,
    /// Warnings and audit annotations; shared by copies.
    pub notes: Arc<Notes>,
    /// The objects that a webhook has converted for it; shared by copies.
    pub at_hand: Arc<AtHand>,
    /// The time from which nobody waits for the answer any more; none, for what the server does on its own account.
    pub deadline: Option<Instant>,
}

impl Request {
    /// The request of somebody who may make it.
    pub fn authorized(self, permit: Permit) -> Authorized {
        Authorized { permit, request: self }
    }

    /// The resource, as errors name it.
    pub fn subject(&self) -> Subject<'_> {
        self.kind.subject()
    }

    /// The store's key of the object that the request names.
    pub fn key(&self) -> String {
        self.kind.key(&self.resource.namespace, &self.resource.name)
    }

    /// `true` if nothing may be stored.
    pub fn is_dry_run(&self) -> bool {
        self.info.query.get("dryRun") == Some("All")
    }

    /// The component that sends it: the ServiceAccount that a controller's `User-Agent` ends with, else its first word.
    pub fn component(&self) -> &str {
        let agent = self.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
        let agent = agent.unwrap_or_default();
        let component = match agent.split_once("/system:serviceaccount:kube-system:") {
            Some((_, controller)) => controller,
            None => agent.split([' ', '/']).next().unwrap_or_default(),
        };
        cut(component, COMPONENT_BYTES_MAX)
    }
}

/// An authenticated and authorised request for a resource. It stays as it is.
#[derive(Clone, Debug)]
pub struct Authorized {
    permit: Permit,
    request: Request,
}

impl Deref for Authorized {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl Authorized {
    /// The user that asks.
    pub fn user(&self) -> &UserInfo {
        self.permit.user()
    }

    /// `true` if the server does this on its own account.
    pub fn is_servers(&self) -> bool {
        self.permit.is_servers()
    }

    /// The same, on the server's own account: for what a client may ask for and has no right to itself.
    #[must_use]
    pub fn as_server(self) -> Self {
        Self { permit: Permit::server(), ..self }
    }

    /// The same object's subresource.
    #[must_use]
    pub fn below(mut self, subresource: &str) -> Self {
        self.request.resource.below(subresource);
        self
    }

    /// The same by the kind that is served now, if the one that it began with was replaced; `None` if there is none.
    pub fn replaced(&self, catalogue: Arc<Snapshot>) -> Option<Self> {
        let Some(Route::Kind(kind)) = catalogue.route(&self.resource) else { return None };
        let (permit, at_hand) = (self.permit.clone(), Arc::default());
        let request = Request { kind, catalogue, at_hand, ..self.request.clone() };
        (self.kind.cache().is_gone() && !Arc::ptr_eq(self.kind.cache(), request.kind.cache()))
            .then_some(Self { permit, request })
    }

    /// The cause that is stored beside the revision that this request makes.
    pub fn cause_bytes(&self) -> Bytes {
        let cause = json!({
            "parent": self.cause,
            "component": self.component(),
            "user": cut(&self.permit.user().name, USER_BYTES_MAX),
            "verb": self.resource.verb.as_str(),
            "subresource": self.resource.subresource,
            "at_us": self.received_us,
        });
        Bytes::from(cause.to_string())
    }

    /// The same client asking for something else, for what one request does on behalf of another.
    ///
    /// # Errors
    /// As [`RequestScope::new`].
    pub fn with_resource(&self, kind: &Kind, resource: ResourceInfo) -> Result<Self> {
        let resource = RequestScope::new(kind, resource)?;
        Ok(Self {
            permit: self.permit.clone(),
            request: Request { kind: kind.clone(), resource, ..self.request.clone() },
        })
    }
}

/// The request to a delegate, for a kind that this server knows, without its body.
///
/// # Errors
/// 404 and 405 as [`RequestScope::new`], 406 for what the client does not take.
pub fn of_delegate(asked: Asked, kind: &Kind, now: jiff::Timestamp) -> Result<Authorized> {
    let resource = RequestScope::new(kind, asked.resource)?;
    let (parts, _) = asked.http.into_parts();
    let accept = accepted(kind, &resource, asked.accept, &parts.headers)?;
    let request = Request {
        info: asked.info,
        resource,
        catalogue: asked.catalogue,
        kind: kind.clone(),
        origin: asked.origin,
        headers: parts.headers,
        accept,
        body: Bytes::new(),
        received_us: now.as_microsecond(),
        cause: 0,
        notes: asked.notes,
        at_hand: Arc::default(),
        deadline: None,
    };
    Ok(request.authorized(asked.permit))
}

/// A request of the API server to itself.
pub(crate) fn of_server(
    cluster: &Cluster,
    resource: GroupVersionResource<'_>,
    namespace: &str,
    object: Value,
    verb: Verb,
) -> Option<(Authorized, Value)> {
    let kind = cluster.kind(resource.group, resource.version, resource.resource)?;
    of_server_for(cluster, kind, namespace, object, verb)
}

/// As [`of_server`], for a kind that is at hand.
pub(crate) fn of_server_for(
    cluster: &Cluster,
    kind: &Kind,
    namespace: &str,
    mut object: Value,
    verb: Verb,
) -> Option<(Authorized, Value)> {
    let map = object.as_object_mut()?;
    map.insert("apiVersion".to_owned(), kind.api_version().into());
    map.insert("kind".to_owned(), kind.kind().into());
    let name = if verb == Verb::Create { String::new() } else { Metadata::of(&object).name().to_owned() };
    let resource = ResourceInfo {
        verb,
        group: kind.group().to_owned(),
        version: kind.version().to_owned(),
        scope: if namespace.is_empty() { Scope::Cluster } else { Scope::Namespace },
        namespace: namespace.to_owned(),
        resource: kind.resource().to_owned(),
        subresource: String::new(),
        name,
        rest: String::new(),
    };
    let info = RequestInfo {
        method: http::Method::POST,
        path: String::new(),
        raw_query: String::new(),
        query: Query::default(),
        resource: Some(resource.clone()),
    };
    let mut headers = HeaderMap::new();
    headers.insert(http::header::USER_AGENT, http::HeaderValue::from_static("kube-apiserver"));
    let request = Request {
        info,
        resource: RequestScope::new(kind, resource).ok()?,
        catalogue: cluster.catalogue.current(),
        kind: kind.clone(),
        origin: None,
        headers,
        accept: Accept::JSON,
        body: Bytes::new(),
        received_us: cluster.clock.now().as_microsecond(),
        cause: 0,
        notes: Arc::default(),
        at_hand: Arc::default(),
        deadline: None,
    };
    Some((request.authorized(Permit::server()), object))
}

/// The forms of a kind that a client takes.
///
/// # Errors
/// 406 if that is nothing.
pub fn accepted(
    kind: &Kind,
    resource: &RequestScope,
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
