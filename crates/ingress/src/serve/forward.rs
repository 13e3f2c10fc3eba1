//! One request, from its head to the head of its answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::asked::{Asked, Refused, Switch, has_token};
use super::body::{Download, Progress, Upload, UploadError};
use super::connect::ConnectError;
use super::endpoint::{Endpoint, SendError};
use super::entry::Entry;
use super::headers::{self, Client};
use super::limits::ATTEMPTS_MAX;
use super::plane::{Live, Plane};
use super::tunnel;
use crate::table::Plain;

/// Where a request came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct From {
    pub(super) client: IpAddr,
    pub(super) scheme: Scheme,
    pub(super) port: u16,
}

/// How clients speak on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// As URLs have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
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
pub(super) async fn answer(plane: &Arc<Plane>, from: From, request: Request<Incoming>) -> (Answer, Led) {
    let permit = Arc::clone(&plane.requests).try_acquire_owned().ok();
    let is_full = permit.is_none();
    let (client, scheme) = (from.client, from.scheme.as_str());
    let mut entry = Entry::begin((plane.access_log, &plane.metrics), (client, scheme), &request, permit);
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
    from: From,
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
    let Some(live) = plane.route(&asked.host, &asked.path) else {
        return (text(StatusCode::NOT_FOUND, "no Ingress has this host and path"), Led::Nowhere);
    };
    entry.is_routed(&live.route);
    if from.scheme == Scheme::Http && live.route.plain == Plain::Redirected && !asked.host.is_empty() {
        return (redirect(plane, &asked.host, &request), Led::Somewhere);
    }
    if live.endpoints.is_empty() {
        return (text(StatusCode::SERVICE_UNAVAILABLE, "the service has no ready endpoints"), Led::Somewhere);
    }
    (forward(plane, (from, &asked), &live, request, entry).await, Led::Somewhere)
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
    (from, asked): (From, &Asked),
    live: &Live,
    mut request: Request<Incoming>,
    entry: &mut Entry,
) -> Answer {
    let switching = (asked.switch == Switch::WebSocket).then(|| hyper::upgrade::on(&mut request));
    let client = Client {
        address: from.client,
        scheme: from.scheme.as_str(),
        port: from.port,
        authority: &asked.authority,
    };
    headers::to_backend(request.headers_mut(), &client);
    if switching.is_some() {
        headers::switch_to_web_socket(request.headers_mut());
    }
    let progress = Progress::begin();
    let request = request.map(|body| Upload::new(body, progress.clone(), plane.limits.upload));
    let sent = tokio::select! {
        sent = send(plane, live, request, entry) => sent,
        () = progress.stalls(live.route.response_timeout) => {
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

/// Sends a request to one endpoint after the other, as long as nothing of it was sent.
async fn send(
    plane: &Plane,
    live: &Live,
    mut request: Request<Upload>,
    entry: &mut Entry,
) -> Result<Response<Incoming>, Answer> {
    let mut was_slow = false;
    for endpoint in in_turn(live).into_iter().take(ATTEMPTS_MAX) {
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

/// One after the other; those that could not be connected to a moment ago come last.
fn in_turn(live: &Live) -> Vec<Arc<Endpoint>> {
    let (count, first) = (live.endpoints.len(), live.next());
    let turn = (0..count).filter_map(|offset| live.endpoints.get((first + offset) % count));
    let (shunned, well): (Vec<_>, Vec<_>) = turn.cloned().partition(|endpoint| endpoint.is_shunned());
    well.into_iter().chain(shunned).collect()
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
