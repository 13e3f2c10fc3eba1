//! Connections of the client: opened by [`Dial`], secured, and counted as one of HTTP/1.1 or HTTP/2.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::Tasks;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Dial;
use super::address::Address;
use super::failure::ConnectError;

/// Connects to one webhook, whatever it is asked for.
#[derive(Clone)]
pub(super) struct Connector(Arc<Inner>);

struct Inner {
    address: Address,
    dial: Arc<dyn Dial>,
    tls: TlsConnector,
}

impl Connector {
    pub(super) fn new(address: Address, dial: Arc<dyn Dial>, tls: TlsConnector) -> Self {
        Self(Arc::new(Inner { address, dial, tls }))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connector").field(&self.0.address).finish()
    }
}

impl Inner {
    async fn connect(&self) -> Result<Secured, ConnectError> {
        let (host, port) = self.address.host();
        let stream = match &self.address {
            Address::Service { service, .. } => self.dial.service(service).await,
            Address::Url { .. } => self.dial.host(host, port).await,
        };
        let stream = stream?;
        let name = ServerName::try_from(self.address.server_name())?;
        let secured = self.tls.connect(name, stream).await;
        secured.map(|stream| Secured(TokioIo::new(stream))).map_err(ConnectError::Tls)
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Secured;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Secured, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.connect().await })
    }
}

/// A connection under TLS.
#[derive(Debug)]
pub(super) struct Secured(TokioIo<TlsStream<tunnel::Connection>>);

impl Connection for Secured {
    fn connected(&self) -> Connected {
        let (_, session) = self.0.inner().get_ref();
        match session.alpn_protocol() {
            Some(b"h2") => Connected::new().negotiated_h2(),
            _ => Connected::new(),
        }
    }
}

impl Read for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Runs connections among the server's tasks.
#[derive(Clone, Debug)]
pub(super) struct Spawner(pub(super) Tasks);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, connection: F) {
        self.0.spawn("webhook connection", async move {
            connection.await;
        });
    }
}
