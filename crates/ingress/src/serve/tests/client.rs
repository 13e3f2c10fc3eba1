//! Clients: one that writes bytes as they are given, and hyper's for HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Longer than anything that is waited for.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// Writes bytes, and reads to the end of the connection.
pub(super) async fn raw(address: SocketAddr, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_ref()).await.unwrap();
    rest(&mut stream).await
}

/// What comes until the connection ends.
pub(super) async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // One that is cut has ended, too.
    drop(tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.expect("an end"));
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request of one that ends its connection.
pub(super) async fn get(address: SocketAddr, host: &str, path: &str) -> String {
    raw(address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
}

/// The status of an answer; empty if there is none.
pub(super) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

/// A TLS connection that asks for a name, and speaks these protocols.
pub(super) async fn tls(address: SocketAddr, name: &str, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ::tls::connector(::tls::Trust::Anybody, None, protocols).unwrap().connect(name, stream).await.unwrap()
}

/// HTTP/2 without TLS.
pub(super) async fn h2c(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    over(TcpStream::connect(address).await.unwrap()).await
}

/// HTTP/2 over a stream.
pub(super) async fn over<S>(stream: S) -> http2::SendRequest<Full<Bytes>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}
