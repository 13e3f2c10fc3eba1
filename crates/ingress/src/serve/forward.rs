//! One request, from its head to the head of its answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, LOCATION};
use http::uri::InvalidUri;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::asked::{Asked, Refused, Switch, has_token};
use super::body::{Download, Progress, Upload, UploadError};
use super::connect::ConnectError;
use super::endpoint::SendError;
use super::entry::Entry;
use super::headers::{self, Client};
use super::limits::{ATTEMPTS_MAX, UPLOAD_OF_STREAM};
use super::live::{Live, Pool};
use super::mirror;
use super::plane::{Plane, Way};
use super::tunnel;
use crate::filters::{Came, Redirect};
use crate::matching::Facts;
use crate::router::Question;
use crate::scheme::Scheme;
use crate::table::{Action, Entrance, Forward, Plain, Timeouts, Weighted};

/// Where a request came in.
#[derive(Clone, Debug)]
pub(super) struct From {
    /// The client's own.
    pub(super) address: SocketAddr,
    pub(super) scheme: Scheme,
    pub(super) port: u16,
    pub(super) entrance: Entrance,
    /// The name that the connection was made for, in lowercase.
    pub(super) server_name: Option<Arc<str>>,
}

impl From {
    fn client(&self) -> IpAddr {
        self.address.ip().to_canonical()
    }
}

/// Whether a request led to somebody: only those who ask for something that is there count as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Led {
    Somewhere,
    Nowhere,
}

type Answer = Response<Download>;

/// Answers a request.
pub(super) async fn answer(plane: &Arc<Plane>, from: &From, request: Request<Incoming>) -> (Answer, Led) {
    let permit = Arc::clone(&plane.requests).try_acquire_owned().ok();
    let is_full = permit.is_none();
    let (log, metrics, scheme) = (plane.access_log, plane.metrics.clone(), from.scheme.as_str());
    let mut entry = Entry::begin(log, metrics, from.client(), scheme, &request, permit);
    let (answer, led) = if is_full {
        (text(StatusCode::SERVICE_UNAVAILABLE, "too many requests are under way"), Led::Nowhere)
    } else {
        route(plane, from, request, &mut entry).await
    };
    entry.is_answered(answer.status());
    (answer.map(|body| body.with(entry)), led)
}

async fn route(
    plane: &Arc<Plane>,
    from: &From,
    request: Request<Incoming>,
    entry: &mut Entry,
) -> (Answer, Led) {
    let asked = match Asked::of(&request) {
        Ok(asked) => asked,
        Err(Refused(status, why)) => {
            let mut answer = text(status, why);
            if request.version() < Version::HTTP_2 {
                // What comes after it on the connection is not believed either.
                answer.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            }
            return (answer, Led::Nowhere);
        }
    };
    entry.is_for(&asked.host);
    let query = request.uri().query();
    let live = match plane.route(&Question {
        entrance: from.entrance,
        server_name: from.server_name.as_deref(),
        host: &asked.host,
        path: &asked.path,
        facts: Facts::of(request.method(), request.headers(), query),
    }) {
        Way::To(live) => live,
        Way::Nowhere => return (nowhere(from.entrance), Led::Nowhere),
        Way::Misdirected => {
            let why = "the connection was made for another host";
            return (text(StatusCode::MISDIRECTED_REQUEST, why), Led::Nowhere);
        }
    };
    entry.is_routed(&live.route);
    if from.scheme == Scheme::Http && live.route.plain == Plain::Redirected && !asked.host.is_empty() {
        return (redirect(plane, &asked.host, &request), Led::Somewhere);
    }
    let answer = match &live.route.action {
        Action::Refuse(status) => text(*status, "the route leads nowhere"),
        Action::Redirect(redirect) => redirected(redirect, from, &asked, &request),
        Action::Forward(forward) => match live.choose(&forward.backends) {
            None => text(StatusCode::INTERNAL_SERVER_ERROR, "the route leads nowhere"),
            Some((backend, pool)) => {
                entry.is_for_service(&backend.backend.service);
                let chosen = Chosen { live: &live, forward, backend, pool };
                self::forward(plane, from, &asked, &chosen, request, entry).await
            }
        },
    };
    (answer, Led::Somewhere)
}

fn nowhere(entrance: Entrance) -> Answer {
    let why = match entrance {
        Entrance::Http | Entrance::Https => "no Ingress has this host and path",
        Entrance::Port(_) => "no route has this host and path",
    };
    text(StatusCode::NOT_FOUND, why)
}

/// Where a rule sends clients.
fn redirected(redirect: &Redirect, from: &From, asked: &Asked, request: &Request<Incoming>) -> Answer {
    let uri = request.uri();
    let came = Came {
        scheme: from.scheme,
        host: &asked.host,
        port: from.port,
        path: &asked.path,
        written: uri.path(),
        query: uri.query(),
    };
    let location = redirect.location(&came).and_then(|location| HeaderValue::from_str(&location).ok());
    match location.filter(|_| !asked.host.is_empty() || redirect.host.is_some()) {
        Some(location) => {
            let mut answer = text(redirect.status, "this is found elsewhere");
            answer.headers_mut().insert(LOCATION, location);
            answer
        }
        None => text(StatusCode::INTERNAL_SERVER_ERROR, "the redirect leads to itself"),
    }
}

/// Who is to answer a request.
struct Chosen<'a> {
    live: &'a Live,
    forward: &'a Forward,
    backend: &'a Weighted,
    pool: &'a Pool,
}

/// To the same place with TLS; the method stays what it is.
fn redirect(plane: &Plane, host: &str, request: &Request<Incoming>) -> Answer {
    let port = match plane.https_port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut answer = text(StatusCode::PERMANENT_REDIRECT, "this host is served with TLS");
    match HeaderValue::from_str(&format!("https://{host}{port}{path}")) {
        Ok(location) => {
            answer.headers_mut().insert(LOCATION, location);
            answer
        }
        Err(_) => text(StatusCode::BAD_REQUEST, "the path is not valid"),
    }
}

async fn forward(
    plane: &Arc<Plane>,
    from: &From,
    asked: &Asked,
    chosen: &Chosen<'_>,
    mut request: Request<Incoming>,
    entry: &mut Entry,
) -> Answer {
    if chosen.pool.endpoints.is_empty() {
        return text(chosen.backend.backend.absent, "the service has no ready endpoints");
    }
    let (began, timeouts) = (Instant::now(), &chosen.live.route.timeouts);
    let switching = (asked.switch == Switch::WebSocket).then(|| hyper::upgrade::on(&mut request));
    if change(chosen, from, asked, &mut request).is_err() {
        return text(StatusCode::BAD_REQUEST, "the path is not valid");
    }
    if switching.is_some() {
        headers::switch_to_web_socket(request.headers_mut());
    }
    let progress = Progress::begin();
    let upload = if timeouts.is_stream { UPLOAD_OF_STREAM } else { plane.limits.upload };
    let mut request = request.map(|body| Upload::new(body, progress.clone(), upload));
    if switching.is_none() {
        mirror::copy(plane, &chosen.forward.mirrors, chosen.live.mirrors(), &mut request);
    }
    let sent = tokio::select! {
        sent = send(plane, chosen.pool, request, entry) => sent,
        () = ends(&progress, timeouts, began) => {
            return text(StatusCode::GATEWAY_TIMEOUT, "the service did not answer in time");
        }
    };
    let mut answer = match sent {
        Ok(answer) => answer,
        Err(failed) => return failed,
    };
    let is_switched = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    let speaks = is_switched && has_token(answer.headers(), &http::header::UPGRADE, "websocket");
    headers::strip(answer.headers_mut());
    chosen.live.route.edits.response.apply(answer.headers_mut());
    chosen.backend.edits.response.apply(answer.headers_mut());
    *answer.version_mut() = Version::HTTP_11;
    match (switching, is_switched) {
        (Some(client), true) if speaks => {
            headers::switch_to_web_socket(answer.headers_mut());
            tunnel::start(plane, client, hyper::upgrade::on(&mut answer));
        }
        (_, true) => return text(StatusCode::BAD_GATEWAY, "the service switched to what nobody asked for"),
        _ => {}
    }
    answer.map(Download::of)
}

/// Makes the request one for the backend.
fn change(
    chosen: &Chosen<'_>,
    from: &From,
    asked: &Asked,
    request: &mut Request<Incoming>,
) -> Result<(), InvalidUri> {
    let client = Client {
        address: from.client(),
        scheme: from.scheme.as_str(),
        port: from.port,
        authority: &asked.authority,
    };
    headers::to_backend(request.headers_mut(), &client);
    let rewrite = &chosen.forward.rewrite;
    if let Some(host) = &rewrite.host {
        request.headers_mut().insert(http::header::HOST, host.clone());
    }
    match rewrite.target(&asked.path, request.uri().query()) {
        None => {}
        Some(Ok(target)) => *request.uri_mut() = target,
        Some(Err(error)) => return Err(error),
    }
    chosen.live.route.edits.request.apply(request.headers_mut());
    chosen.backend.edits.request.apply(request.headers_mut());
    Ok(())
}

/// Ends when an answer is not waited for any more.
async fn ends(progress: &Progress, timeouts: &Timeouts, began: Instant) {
    let stalls = async {
        match timeouts.response {
            Some(timeout) => progress.stalls(timeout).await,
            None => std::future::pending().await,
        }
    };
    let is_late = async {
        match timeouts.request {
            Some(timeout) => tokio::time::sleep_until(began + timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stalls => {}
        () = is_late => {}
    }
}

/// Sends a request to one endpoint after the other, as long as nothing of it was sent.
async fn send(
    plane: &Plane,
    pool: &Pool,
    mut request: Request<Upload>,
    entry: &mut Entry,
) -> Result<Response<Incoming>, Answer> {
    let mut was_slow = false;
    for endpoint in pool.in_turn().into_iter().take(ATTEMPTS_MAX) {
        entry.is_sent_to(endpoint.target().address.to_string());
        match endpoint.send(request).await {
            Ok(answer) => return Ok(answer),
            Err(SendError::Failed(error)) => {
                entry.broke(&error);
                return Err(failed(&error));
            }
            Err(SendError::NotSent(back, why)) => {
                plane.metrics.connect_failed();
                entry.broke(&why);
                was_slow = matches!(why, ConnectError::Slow);
                request = *back;
            }
        }
    }
    Err(if was_slow {
        text(StatusCode::GATEWAY_TIMEOUT, "the service does not take connections in time")
    } else {
        text(StatusCode::BAD_GATEWAY, "the service takes no connections")
    })
}

fn failed(error: &hyper::Error) -> Answer {
    let mut cause = std::error::Error::source(error);
    while let Some(found) = cause {
        match found.downcast_ref::<UploadError>() {
            Some(UploadError::Slow) => {
                return text(StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time");
            }
            Some(UploadError::Broken(_)) => {
                return text(StatusCode::BAD_REQUEST, "the request's body is not valid");
            }
            None => cause = found.source(),
        }
    }
    text(StatusCode::BAD_GATEWAY, "the service did not answer")
}

fn text(status: StatusCode, why: &'static str) -> Answer {
    let mut answer = Response::new(Download::text(format!("{status}: {why}\n")));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let soon = Duration::from_secs(1).as_secs();
        answer.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(soon));
    }
    answer
}
