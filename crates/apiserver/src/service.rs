//! The API as one tower service: what hyper serves over TLS, and what in-process clients call.
//!
//! In-process callers put an [`auth::UserInfo`] into the request's extensions; the server never copies extensions
//! from the wire, so nobody outside can.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use auth::UserInfo;
use base::connections::{Slot, Standing};
use bytes::{Buf, Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request as HttpRequest, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use resources::{Resource, Text};
use tower::Service;
use tracing::error;

use crate::answer::Answer;
use crate::api::Api;
use crate::audit::Trail;
use crate::body::finish::Finish;
use crate::catalogue::{Asked, Delegate, Route, Snapshot, Told};
use crate::catalogue::{discovery, openapi};
use crate::deadline;
use crate::flow_control::Admission;
use crate::handlers;
use crate::health;
use crate::kinds::Kind;
use crate::metrics::{Label, RequestLabels, VerbLabels};
use crate::negotiate::{Accept, Format};
use crate::notes::Notes;
use crate::request::{self, Authorized, CAUSE_HEADER, Request};
use crate::request_info::{RequestInfo, Verb};
use crate::request_scope::RequestScope;
use crate::respond::{self, Body, BoxError};
use crate::security::{Peer, Proof};
use crate::status::{Error, Result};
use crate::tunnel_requests;

/// The longest body that is read, in bytes.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// How much of a body that is too long is read before the client is told.
const DRAIN_BYTES_MAX: usize = 32 * 1024 * 1024;
/// A request's body, whatever it came from.
type RequestBody = Body;

/// The service. Cloning shares the server.
#[derive(Clone)]
pub struct ApiService {
    api: Arc<Api>,
}

impl ApiService {
    /// The service of a server.
    pub fn new(api: Arc<Api>) -> Self {
        Self { api }
    }
}

impl<B> Service<HttpRequest<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, std::result::Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<B>) -> Self::Future {
        let api = Arc::clone(&self.api);
        let request = request.map(|body| {
            body.map_err(Into::into)
                .map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
                .boxed_unsync()
        });
        answer_or_recover(api, request)
    }
}

/// Answers, also when a handler panics.
fn answer_or_recover(
    api: Arc<Api>,
    request: HttpRequest<RequestBody>,
) -> BoxFuture<'static, std::result::Result<Response<Body>, Infallible>> {
    Box::pin(async move {
        let answered = AssertUnwindSafe(answer(&api, request)).catch_unwind().await;
        Ok(answered.unwrap_or_else(|_| {
            error!("a request panicked");
            respond::error(&Error::internal("the request could not be handled"), None)
        }))
    })
}

/// Everything that happens to a request, with its metrics.
async fn answer(api: &Api, http: HttpRequest<RequestBody>) -> Response<Body> {
    let start = Instant::now();
    let info = RequestInfo::parse(http.method(), http.uri().path(), http.uri().query());
    let accept = Accept::of(http.headers());
    api.catalogue.caught_up(api.cache.registrations_revision()).await;
    let catalogue = api.catalogue.current();
    let route = info.resource.as_ref().and_then(|resource| catalogue.route(resource));
    let found = info.resource.as_ref().zip(route.as_ref()).and_then(|(r, route)| route.kind(&r.resource));
    let verb = info.resource.as_ref().map(|r| r.verb);
    let finish = Finish::of(&info, http.headers());
    let accept = accept.ok();
    let mut passage = Passage { accept, ..Passage::default() };
    let response = match handle(api, Routed { http, info, catalogue, route }, &mut passage).await {
        Ok(response) => response,
        Err(failure) => respond::error(&failure, accept),
    };
    let response = passage.finish(api, response).await;
    let response = finish.apply(response);
    let label =
        |of: fn(&Resource) -> &Text| found.as_ref().map_or(Label::NONE, |kind| Label(of(kind.row()).clone()));
    let labels = RequestLabels {
        verb: verb.map_or("OTHER", metric_verb),
        group: label(|row| &row.group),
        version: label(|row| &row.version),
        resource: label(|row| &row.plural),
        code: response.status().as_u16(),
    };
    let verb_labels = VerbLabels { verb: labels.verb, resource: labels.resource.clone() };
    api.metrics.requests.get_or_create(&labels).inc();
    api.metrics.durations.get_or_create(&verb_labels).observe(start.elapsed().as_secs_f64());
    response
}

fn metric_verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "GET",
        Verb::List => "LIST",
        Verb::Watch => "WATCH",
        Verb::Create => "POST",
        Verb::Update => "PUT",
        Verb::Patch => "PATCH",
        Verb::Delete => "DELETE",
        Verb::DeleteCollection => "DELETECOLLECTION",
    }
}

/// A request, and where it goes by the catalogue of the moment when it came.
struct Routed {
    /// As it came.
    http: HttpRequest<RequestBody>,
    /// Method, path and query.
    info: RequestInfo,
    catalogue: Arc<Snapshot>,
    /// Who serves it; nobody, if absent.
    route: Option<Route>,
}

/// What a request leaves behind on its way through the filters.
#[derive(Default)]
struct Passage {
    /// What the client takes; nothing that there is, if absent.
    accept: Option<Accept>,
    notes: Arc<Notes>,
    admission: Option<Admission>,
    trail: Option<Trail>,
    /// Where whoever is meant asks from.
    origin: Option<IpAddr>,
    /// When nobody waits any more.
    deadline: Option<tokio::time::Instant>,
}

impl Passage {
    /// Adds what the filters have to say to a response.
    async fn finish(self, api: &Api, mut response: Response<Body>) -> Response<Body> {
        self.notes.write(response.headers_mut());
        if let Some(admission) = &self.admission {
            admission.write(response.headers_mut());
        }
        let Some(trail) = self.trail else { return response };
        if let Ok(id) = http::HeaderValue::from_str(trail.id()) {
            response.headers_mut().insert("audit-id", id);
        }
        trail.finish(response, &self.notes, api.clock.now()).await
    }
}

/// The filters: who is it, is there room, may they. Then what they want, for as long as they have.
async fn handle(api: &Api, mut routed: Routed, passage: &mut Passage) -> Result<Response<Body>> {
    let Routed { http, info, route, .. } = &mut routed;
    let is_long = is_long_running(info, route.as_ref());
    let limit = deadline::of(info, api.config.options.request_timeout)?;
    passage.deadline = (!is_long).then(|| tokio::time::Instant::now() + limit);
    let address = http.extensions().get::<Arc<Peer>>().and_then(|peer| peer.address);
    let (own, proof) = match authenticate(api, http, info).await {
        Ok(known) => known,
        Err(failure) => {
            let is_certified =
                http.extensions().get::<Arc<Peer>>().is_some_and(|peer| peer.has_certificate());
            let audit = api.audit.as_ref();
            passage.trail =
                audit.and_then(|audit| audit.begin_unknown(info, http.headers(), address, is_certified));
            return Err(failure);
        }
    };
    if let Some(slot) = http.extensions().get::<Arc<Slot>>()
        && let Some(standing) = standing(&own)
    {
        slot.prove(standing);
    }
    let acting_as = deadline::within(limit, api.security.impersonate(&own, http.headers())).await;
    if let Some(audit) = &api.audit {
        let target = acting_as.as_ref().ok().and_then(Option::as_ref);
        passage.trail = audit.begin(&own, target, info, http.headers(), address).await?;
        proof.annotate(&own, &passage.notes);
    }
    let acting_as = acting_as?;
    // Of whoever stands behind somebody else nothing was seen.
    let peer = http.extensions().get::<Arc<Peer>>().filter(|_| acting_as.is_none());
    passage.origin = peer.and_then(|peer| peer.origin());
    let user = acting_as.unwrap_or(own);
    // From here on nobody sees what was sent to prove it.
    api.security.clear(http.headers_mut());
    let _seat = match seat(api, &user, info, is_long, passage).await? {
        Ok(seat) => seat,
        Err(full) => return Ok(full),
    };
    let is_write = info.resource.as_ref().is_some_and(|resource| resource.verb.is_write());
    let _counted = (!is_long).then(|| api.metrics.in_flight(is_write));
    // Of its own size only where it lies: it is handed on twice.
    let work = Box::pin(serve(api, routed, user, passage));
    if is_long { work.await } else { deadline::within(limit, work).await }
}

/// What somebody who is known may count on among the connections; nobody, if not known.
fn standing(user: &UserInfo) -> Option<Standing> {
    match user {
        user if user.name == UserInfo::anonymous().name => None,
        user if user.is_in(auth::MASTERS) || user.is_in(auth::NODES) => Some(Standing::Own),
        _ => Some(Standing::Known),
    }
}

/// A seat among the requests under way, or the answer that there is none.
async fn seat(
    api: &Api,
    user: &UserInfo,
    info: &RequestInfo,
    is_long: bool,
    passage: &mut Passage,
) -> Result<std::result::Result<Option<tokio::sync::OwnedSemaphorePermit>, Response<Body>>> {
    let is_watch = info.resource.as_ref().is_some_and(|resource| resource.verb == Verb::Watch);
    if is_long && !is_watch {
        return Ok(Ok(None));
    }
    if !api.config.options.is_fair {
        return if is_long { Ok(Ok(None)) } else { Ok(Ok(Some(api.place().await?))) };
    }
    match api.flow.admit(api, user, info).await {
        Ok(admission) => {
            passage.admission = Some(admission);
            Ok(Ok(None))
        }
        Err(rejected) => {
            tracing::debug!(reason = rejected.reason, user = user.name, path = info.path, "there is no room");
            let plain = "text/plain; charset=utf-8";
            let text = "Too many requests, please try again later.\n";
            let mut response = respond::text(StatusCode::TOO_MANY_REQUESTS, plain, text);
            response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
            rejected.write(response.headers_mut());
            Ok(Err(response))
        }
    }
}

/// Whether they may, and what they get.
async fn serve(api: &Api, routed: Routed, user: UserInfo, passage: &mut Passage) -> Result<Response<Body>> {
    let Routed { mut http, info, catalogue, route } = routed;
    // Policy that was acknowledged holds for every request after it.
    api.cache.reached(api.cache.policy_revision()).await?;
    let decided = api.security.permit(user, &info).await;
    if passage.trail.is_some() {
        let reason = decided.as_ref().map_or_else(|error| &*error.message, |permit| permit.reason());
        let decision = if decided.is_ok() { "allow" } else { "forbid" };
        passage.notes.annotate("authorization.k8s.io/decision", decision);
        passage.notes.annotate("authorization.k8s.io/reason", reason);
    }
    let permit = decided?;
    let Some(resource) = info.resource.clone() else {
        if let Some(delegate) = told_elsewhere(&catalogue, &info) {
            return delegate.tell(Told { http, info, permit }).await;
        }
        return other(api, &catalogue, http, &info, permit.user()).await;
    };
    let kind = match route {
        Some(Route::Kind(kind)) => kind,
        Some(Route::Delegate(delegate)) => {
            let (origin, accept, notes) = (passage.origin, passage.accept, Arc::clone(&passage.notes));
            let asked = Asked { http, info, resource, permit, origin, accept, notes, catalogue };
            return pass_on(delegate.as_ref(), asked, passage.trail.as_ref()).await;
        }
        None => return nowhere(&catalogue, &info.path),
    };
    let resource = RequestScope::new(&kind, resource)?;
    let accept = request::accepted(&kind, &resource, passage.accept, http.headers())?;
    let cause = header(http.headers(), CAUSE_HEADER).and_then(|text| text.parse().ok()).unwrap_or(0);
    let is_stream = crate::streams::is_stream(&resource);
    let is_socket = resource.verb == Verb::Watch && respond::websocket::is_wanted(http.headers());
    let upgrade = (is_stream || is_socket).then(|| hyper::upgrade::on(&mut http));
    let (parts, body) = http.into_parts();
    let (body, streamed) = match is_stream {
        true => (Bytes::new(), Some(body)),
        false if resource.verb.is_write() => (read(body).await?, None),
        false => (Bytes::new(), None),
    };
    if let Some(trail) = &mut passage.trail {
        trail.request(&parts.headers, &body);
    }
    let request = Request {
        info,
        resource,
        catalogue,
        kind,
        origin: passage.origin,
        headers: parts.headers,
        accept,
        body,
        received_us: api.clock.now().as_microsecond(),
        cause,
        notes: Arc::clone(&passage.notes),
        at_hand: Arc::default(),
        deadline: passage.deadline,
    }
    .authorized(permit);
    let upgrade = match (upgrade, streamed) {
        (Some(upgrade), Some(body)) => {
            return crate::streams::stream(api, &request, upgrade, body).await;
        }
        (upgrade, _) => upgrade,
    };
    let (request, answer) = run(api, request).await?;
    let response = respond::answer(&request, answer, api.clock.now());
    Ok(match upgrade {
        Some(client) => respond::websocket::switched(&api.serving, &request.headers, response, client),
        None => response,
    })
}

/// Does what is asked. The kind that a request began with may be replaced before anything is looked up or written: then it
/// begins again, because the objects are still there. Source: upstream serves what is under way from the storage that was
/// replaced (`customresource_handler.go`, `tearDown`).
async fn run(api: &Api, mut request: Authorized) -> Result<(Authorized, Answer)> {
    loop {
        match handlers::run(api, &request).await {
            Ok(answer) => return Ok((request, answer)),
            Err(error) if error.is_unknown_path() => {
                request = request.replaced(api.catalogue.current()).ok_or(error)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Hands a request to whoever serves its group-version.
async fn pass_on(delegate: &dyn Delegate, mut asked: Asked, trail: Option<&Trail>) -> Result<Response<Body>> {
    // What is logged there can be found by what is logged here.
    if let Some(id) = trail.and_then(|trail| http::HeaderValue::from_str(trail.id()).ok()) {
        asked.http.headers_mut().insert("audit-id", id);
    }
    delegate.serve(asked).await
}

/// Who asks: an in-process identity, a client certificate, a token, or nobody, whom RBAC lets see little.
async fn authenticate(
    api: &Api,
    http: &mut HttpRequest<RequestBody>,
    info: &RequestInfo,
) -> Result<(UserInfo, Proof)> {
    let peer = http.extensions().get::<Arc<Peer>>().cloned();
    let user = match http.extensions_mut().remove::<UserInfo>() {
        // Connections from outside carry a `Peer`; what they bring in extensions counts for nothing.
        Some(user) if peer.is_none() => Some((user, Proof::InProcess)),
        _ => api.security.authenticate(http.headers(), peer.as_deref()).await?,
    };
    match user {
        Some(known) => Ok(known),
        None if api.config.options.anonymous.allows(info) => Ok((UserInfo::anonymous(), Proof::Nothing)),
        None => Err(Error::unauthorized()),
    }
}

/// Source: `BasicLongRunningRequestCheck` as upstream's server sets it up, for what is passed on.
fn is_long_running(info: &RequestInfo, route: Option<&Route>) -> bool {
    let Some(resource) = &info.resource else { return false };
    let is_passed_on = matches!(route, Some(Route::Delegate(_)));
    let is_stream =
        || ["attach", "exec", "proxy", "log", "portforward"].contains(&resource.subresource.as_str());
    resource.verb == Verb::Watch || crate::streams::is_stream(resource) || (is_passed_on && is_stream())
}

/// Who answers a request for discovery of a group-version, or for its OpenAPI document of version 3, if that is not this
/// server. Whoever names a hash that is not the document's is sent to the right one by this server.
fn told_elsewhere(catalogue: &Snapshot, info: &RequestInfo) -> Option<Arc<dyn Delegate>> {
    if !matches!(info.method, Method::GET | Method::HEAD) {
        return None;
    }
    let parts: Vec<&str> = info.path.split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, is_document) = match parts.as_slice() {
        ["api", version] => ("", *version, false),
        ["apis", group, version] => (*group, *version, false),
        ["openapi", "v3", "api", version] => ("", *version, true),
        ["openapi", "v3", "apis", group, version] => (*group, *version, true),
        _ => return None,
    };
    let delegate = catalogue.delegate(group, version)?;
    let discovery = delegate.discovery()?;
    let is_meant = || {
        let wanted = info.query.get("hash");
        discovery.third.as_deref().is_some_and(|hash| wanted.is_none_or(|wanted| wanted == hash))
    };
    (!is_document || is_meant()).then(|| Arc::clone(delegate))
}

/// What is no resource: health, discovery, schemas, metrics, traces, tunnels.
async fn other(
    api: &Api,
    catalogue: &Snapshot,
    http: HttpRequest<RequestBody>,
    info: &RequestInfo,
    user: &UserInfo,
) -> Result<Response<Body>> {
    let path = info.path.trim_end_matches('/');
    let mut parts = path.split('/').skip(1);
    let (first, second, third) = (parts.next(), parts.next(), parts.next());
    match (first.unwrap_or_default(), second, third) {
        (endpoint @ ("healthz" | "livez" | "readyz"), _, _) => {
            let rest = path.splitn(3, '/').nth(2).unwrap_or_default();
            Ok(health::health(api, info, endpoint, rest).await)
        }
        ("version", None, _) if info.method != Method::GET => Err(Error::method_not_allowed()),
        ("version", None, _) => match Accept::plain(http.headers())?.format {
            Format::Json => Ok(health::version()),
            Format::Yaml | Format::Protobuf => Err(Error::not_acceptable()),
        },
        // Whom to trust, for those who know what it must be. Source: k3s.
        ("cacerts", None, _) => {
            let authority = String::from_utf8_lossy(&api.config.root_ca_pem).into_owned();
            Ok(respond::text(StatusCode::OK, "text/plain", authority))
        }
        ("metrics", None, _) => {
            let text = api.metrics.registry().render();
            Ok(respond::text(StatusCode::OK, base::metrics::CONTENT_TYPE, text))
        }
        ("metrics", Some("slis"), None) => {
            let text = api.metrics.slis().render();
            Ok(respond::text(StatusCode::OK, base::metrics::CONTENT_TYPE, text))
        }
        ("openapi", Some(version), _) => {
            openapi::document(catalogue.openapi(), version, path, info, http.headers(), api.clock.now())
        }
        (".well-known", Some("openid-configuration"), None) => {
            let found = api.security.openid_configuration().ok_or_else(Error::unknown_path)?;
            Ok(respond::json(StatusCode::OK, &found))
        }
        ("openid", Some("v1"), Some("jwks")) => {
            api.security.openid_configuration().ok_or_else(Error::unknown_path)?;
            let keys = api.security.tokens().jwks().to_string();
            Ok(respond::text(StatusCode::OK, "application/jwk-set+json", keys))
        }
        ("debug", Some("knarr"), Some("trace")) => {
            api.cache.fresh().await?;
            let asked = info.query.get("resource").filter(|resource| !resource.is_empty());
            let kind = asked.map(|resource| {
                let unknown = || Error::bad_request(format!("there is no resource {resource:?}"));
                kind_of_resource(catalogue, resource).ok_or_else(unknown)
            });
            let kind = kind.transpose()?;
            let chain = api.trace.chain(&info.query, kind)?;
            Ok(respond::json(StatusCode::OK, &serde_json::json!(chain)))
        }
        ("debug", Some("knarr"), Some("spans")) if info.method == Method::POST => {
            api.trace.report(&read(http.into_body()).await?)?;
            Ok(respond::json(StatusCode::OK, &crate::status::success(serde_json::Value::Null)))
        }
        ("knarr", Some("tunnel"), None) => tunnel_requests::open(api, http, user).await,
        ("knarr", Some("tunnels"), None) if info.method == Method::GET => Ok(tunnel_requests::list(api)),
        ("", None, _) => Ok(respond::json(StatusCode::OK, &root_paths(catalogue))),
        _ => match discovery::discover(catalogue, &info.path, http.headers(), api.config.advertise_address) {
            Err(failure) if failure.code == StatusCode::NOT_FOUND => nowhere(catalogue, &info.path),
            _ if info.method != Method::GET => Err(Error::method_not_allowed()),
            found => found,
        },
    }
}

/// 404: a Status where the API could be, and plain text where nothing is.
///
/// Source: `director` and `notfoundhandler` of `k8s.io/apiserver/pkg/server`.
fn nowhere(catalogue: &Snapshot, path: &str) -> Result<Response<Body>> {
    let mut parts = path.split('/').skip(1);
    let is_claimed = match (parts.next().unwrap_or_default(), parts.next()) {
        ("api" | "version", _) => true,
        ("apis", Some(group)) => {
            !group.is_empty() && catalogue.group_versions().iter().any(|(served, _)| *served == group)
        }
        _ => false,
    };
    if is_claimed {
        return Err(Error::unknown_path());
    }
    let plain = "text/plain; charset=utf-8";
    Ok(respond::text(StatusCode::NOT_FOUND, plain, "404 page not found\n"))
}

/// A kind by plural, singular, short name or `plural.group`.
fn kind_of_resource<'a>(catalogue: &'a Snapshot, text: &str) -> Option<&'a Kind> {
    catalogue.iter().find(|kind| {
        let row = kind.row();
        row.plural == text
            || row.singular == text
            || row.short_names.contains(text)
            || row.group_resource() == text
    })
}

fn root_paths(catalogue: &Snapshot) -> serde_json::Value {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for (group, versions) in catalogue.group_versions().into_iter().filter(|(group, _)| !group.is_empty()) {
        paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.sort();
    serde_json::json!({ "paths": paths })
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Reads a body up to [`BODY_BYTES_MAX`].
async fn read(mut body: RequestBody) -> Result<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Error::bad_request("the body of the request broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > BODY_BYTES_MAX {
            drain(body).await;
            return Err(Error::too_large_body(BODY_BYTES_MAX));
        }
        if whole.is_empty() && body.is_end_stream() {
            return Ok(data);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Throws away what still comes of a body, within reason: a client that is cut off while it sends does not look at the
/// answer.
async fn drain(mut body: RequestBody) {
    let mut left = DRAIN_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let size = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(size) else { return };
        left = rest;
    }
}
