//! Backends: one that tells what it was asked, and some that lie.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A listener whose connections are counted.
pub(super) struct Backend {
    pub(super) address: SocketAddr,
    pub(super) connections: Arc<AtomicUsize>,
}

/// For each connection, `serve`.
pub(super) async fn backend<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> Backend {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(stream));
        }
    });
    Backend { address, connections }
}

/// Tells what it was asked: the request line, headers in order, the body; and `name` in a trailer.
pub(super) async fn telling(name: &'static str) -> Backend {
    backend(move |stream| async move {
        let service = service_fn(move |request| tell(name, request));
        // Whoever hangs up in the middle is none of its concern.
        drop(
            Builder::new(TokioExecutor::new())
                .serve_connection_with_upgrades(TokioIo::new(stream), service)
                .await,
        );
    })
    .await
}

type Told = Response<StreamBody<futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>>;

pub(super) async fn tell(name: &'static str, request: Request<Incoming>) -> Result<Told, hyper::Error> {
    let (parts, body) = request.into_parts();
    let collected = body.collect().await?;
    let sent_trailers = collected.trailers().cloned().unwrap_or_default();
    let authority = parts.uri.authority().map(ToString::to_string).unwrap_or_default();
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{name}: {} {path} {:?} {authority}\n", parts.method, parts.version);
    let mut lines: Vec<String> = parts
        .headers
        .iter()
        .chain(&sent_trailers)
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort_unstable();
    text.extend(lines);
    text.push_str(&String::from_utf8_lossy(&collected.to_bytes()));
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let frames = vec![Ok(Frame::data(Bytes::from(text))), Ok(Frame::trailers(trailers))];
    let mut answer = Response::new(StreamBody::new(futures::stream::iter(frames)));
    answer.headers_mut().insert("trailer", HeaderValue::from_static("grpc-status"));
    answer.headers_mut().insert("keep-alive", HeaderValue::from_static("timeout=5"));
    Ok(answer)
}

/// Reads a request's head, then writes this and ends.
pub(super) async fn writing(answer: &'static [u8]) -> Backend {
    backend(move |mut stream| async move {
        let mut seen = Vec::new();
        while !seen.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut piece = [0; 1024];
            match stream.read(&mut piece).await {
                Ok(count) if count > 0 => seen.extend_from_slice(&piece[..count]),
                _ => return,
            }
        }
        drop(stream.write_all(answer).await);
    })
    .await
}

/// Takes connections and says nothing.
pub(super) async fn silent() -> Backend {
    backend(|mut stream| async move {
        let mut nothing = [0; 1024];
        while stream.read(&mut nothing).await.is_ok_and(|count| count > 0) {}
    })
    .await
}

/// An address where nobody listens.
pub(super) async fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}
