//! A connection that a server has begun, whichever way it took.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

/// A connection.
#[derive(Debug)]
pub struct Connection(Way);

#[derive(Debug)]
enum Way {
    Direct(TcpStream),
    /// With its place among the tunnel's streams.
    Tunnel(
        TokioIo<Upgraded>,
        #[expect(dead_code, reason = "it is given back when dropped")] OwnedSemaphorePermit,
    ),
}

impl Connection {
    /// One over the network, on which small writes do not wait for each other.
    ///
    /// # Errors
    /// If it is broken already.
    pub fn direct(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self(Way::Direct(stream)))
    }

    pub(crate) fn tunnelled(stream: Upgraded, place: OwnedSemaphorePermit) -> Self {
        Self(Way::Tunnel(TokioIo::new(stream), place))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Way::Direct(stream) => Pin::new(stream).poll_read(context, buffer),
            Way::Tunnel(stream, _) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Way::Direct(stream) => Pin::new(stream).poll_write(context, bytes),
            // Each write is kept whole by the stream below until there is room for it.
            Way::Tunnel(stream, _) => {
                let size = bytes.len().min(crate::SEND_BYTES_MAX);
                Pin::new(stream).poll_write(context, &bytes[..size])
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Way::Direct(stream) => Pin::new(stream).poll_flush(context),
            Way::Tunnel(stream, _) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Way::Direct(stream) => Pin::new(stream).poll_shutdown(context),
            Way::Tunnel(stream, _) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
