//! An endpoint with its connections. A request goes out once: it is sent again only while it is certain that nothing of
//! it was.

use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use http::header::{HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::body::Upload;
use super::connect::{ConnectError, Dialer, Sender};
use super::limits::{IDLE_OF_ENDPOINT, IDLE_OF_ENDPOINT_MAX, SHUNNED};
use crate::table::{Protocol, Target};

/// Connections that are found closed before a new one is made.
const CLOSED_MAX: usize = 4;

/// Why there is no answer.
pub(super) enum SendError {
    /// Nothing was sent: the request may go to another endpoint.
    NotSent(Box<Request<Upload>>, ConnectError),
    /// Nobody knows what became of it.
    Failed(hyper::Error),
}

/// An endpoint, and the connections to it that are kept.
pub(super) struct Endpoint {
    target: Target,
    dialer: Result<Dialer, ConnectError>,
    tasks: Tasks,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The one used last is at the end.
    idle: Vec<(Instant, http1::SendRequest<Upload>)>,
    shared: Option<http2::SendRequest<Upload>>,
    failed: Option<Instant>,
    is_swept: bool,
}

/// What became of a request on one connection.
enum Tried {
    Done(Result<Response<Incoming>, hyper::Error>),
    NotSent(Request<Upload>),
}

impl Endpoint {
    pub(super) fn new(target: Target, timeout: Duration, tasks: &Tasks) -> Self {
        let dialer = Dialer::new(target.clone(), timeout, tasks.clone());
        Self { target, dialer, tasks: tasks.clone(), kept: Mutex::default() }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Whether it could not be connected to a moment ago.
    pub(super) fn is_shunned(&self) -> bool {
        self.kept.lock().failed.is_some_and(|failed| failed.elapsed() < SHUNNED)
    }

    /// Sends a request, on a connection that is there or on a new one.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<Upload>,
    ) -> Result<Response<Incoming>, SendError> {
        for _ in 0..CLOSED_MAX {
            let Some(sender) = self.reused() else { break };
            match self.send_on(sender, request).await {
                Tried::Done(done) => return done.map_err(SendError::Failed),
                Tried::NotSent(back) => request = back,
            }
        }
        let dialled = match &self.dialer {
            Ok(dialer) => dialer.dial().await,
            // The authority of the Service is none; whoever reads the table again makes another endpoint.
            Err(_) => {
                let why = rustls::Error::General("no certificate in it".to_owned());
                Err(ConnectError::Authority(why.into()))
            }
        };
        self.kept.lock().failed = dialled.is_err().then(Instant::now);
        let sender = match dialled {
            Ok(sender) => sender,
            Err(why) => return Err(SendError::NotSent(Box::new(request), why)),
        };
        if let Sender::Http2(sender) = &sender {
            self.kept.lock().shared = Some(sender.clone());
        }
        match self.send_on(sender, request).await {
            Tried::Done(done) => done.map_err(SendError::Failed),
            Tried::NotSent(back) => {
                let closed = std::io::ErrorKind::ConnectionReset.into();
                Err(SendError::NotSent(Box::new(back), ConnectError::Refused(closed)))
            }
        }
    }

    fn reused(&self) -> Option<Sender> {
        let mut kept = self.kept.lock();
        if let Some(shared) = kept.shared.as_ref().filter(|shared| !shared.is_closed()) {
            return Some(Sender::Http2(shared.clone()));
        }
        kept.shared = None;
        let is_usable = |(since, sender): &(Instant, http1::SendRequest<Upload>)| {
            sender.is_ready() && since.elapsed() < IDLE_OF_ENDPOINT
        };
        while let Some(last) = kept.idle.pop() {
            if is_usable(&last) {
                return Some(Sender::Http1(last.1));
            }
        }
        None
    }

    async fn send_on(self: &Arc<Self>, sender: Sender, request: Request<Upload>) -> Tried {
        let tried = match sender {
            Sender::Http1(mut sender) => {
                let tried = sender.try_send_request(for_http1(request)).await;
                if tried.is_ok() {
                    self.keep_when_over(sender);
                }
                tried
            }
            Sender::Http2(mut sender) => {
                // One that goes away takes no more requests.
                if sender.ready().await.is_err() {
                    return Tried::NotSent(request);
                }
                sender.try_send_request(for_http2(request, &self.target.protocol)).await
            }
        };
        match tried {
            Ok(answer) => Tried::Done(Ok(answer)),
            Err(mut failed) => match failed.take_message() {
                Some(request) => Tried::NotSent(request),
                None => Tried::Done(Err(failed.into_error())),
            },
        }
    }

    /// A connection is good for the next request when this one's answer has come to its end.
    fn keep_when_over(self: &Arc<Self>, mut sender: http1::SendRequest<Upload>) {
        let endpoint = Arc::downgrade(self);
        self.tasks.spawn("ingress backend", async move {
            if sender.ready().await.is_err() {
                return;
            }
            // Whoever is not in the table any more keeps nothing.
            let Some(endpoint) = endpoint.upgrade() else { return };
            let mut kept = endpoint.kept.lock();
            kept.idle.retain(|(_, other)| !other.is_closed());
            if kept.idle.len() < IDLE_OF_ENDPOINT_MAX {
                kept.idle.push((Instant::now(), sender));
            }
            if !std::mem::replace(&mut kept.is_swept, true) {
                endpoint.sweep();
            }
        });
    }

    /// Closes connections on which nothing is asked, until there is none.
    fn sweep(self: &Arc<Self>) {
        let endpoint = Arc::downgrade(self);
        self.tasks.spawn("ingress backend", async move {
            loop {
                tokio::time::sleep(IDLE_OF_ENDPOINT).await;
                let Some(endpoint) = endpoint.upgrade() else { return };
                let mut kept = endpoint.kept.lock();
                kept.idle.retain(|(since, sender)| !sender.is_closed() && since.elapsed() < IDLE_OF_ENDPOINT);
                if kept.idle.is_empty() {
                    kept.is_swept = false;
                    return;
                }
            }
        });
    }
}

/// The path is the target, and the host a header.
fn for_http1(mut request: Request<Upload>) -> Request<Upload> {
    if let Some(authority) = request.uri().authority()
        && !request.headers().contains_key(HOST)
        && let Ok(value) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, value);
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map(Uri::from).unwrap_or_default();
    *request.version_mut() = Version::HTTP_11;
    if request.body().is_open_ended() {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    request
}

/// The host is a part of the target.
fn for_http2(mut request: Request<Upload>, protocol: &Protocol) -> Request<Upload> {
    let host = request.headers_mut().remove(HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let known = host.as_ref().and_then(|host| host.to_str().ok()?.parse().ok());
    parts.authority = known.or(parts.authority);
    parts.scheme = parts.authority.as_ref().map(|_| match protocol {
        Protocol::Tls { .. } => http::uri::Scheme::HTTPS,
        _ => http::uri::Scheme::HTTP,
    });
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(TRANSFER_ENCODING);
    request
}
