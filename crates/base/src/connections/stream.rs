//! A connection's stream, which keeps its slot, whoever has it: a session that goes on after its request does, too.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Slot;

/// A stream with a slot, which breaks when it has to give way to another.
#[derive(Debug)]
pub struct Kept<S> {
    stream: S,
    gives_way: Pin<Box<WaitForCancellationFutureOwned>>,
    _slot: Arc<Slot>,
}

impl<S> Kept<S> {
    /// The stream of the connection whose slot this is.
    pub fn new(stream: S, slot: Arc<Slot>) -> Self {
        Self { stream, gives_way: Box::pin(slot.cut.clone().cancelled_owned()), _slot: slot }
    }

    fn poll_slot(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.gives_way.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Kept<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_slot(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Kept<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_slot(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_slot(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::super::{Connections, Limits, Share};
    use super::*;

    #[tokio::test]
    async fn a_stream_breaks_when_it_gives_way_and_gives_its_slot_back_when_it_ends() {
        let one = Share { all: 1, of_source: 1 };
        let all = Connections::new(Limits { strangers: one, known: one, own: one, is_loopback_own: false });
        let source = "192.0.2.1".parse().unwrap();
        let ((near, mut far), (other, _far)) = (duplex(64), duplex(64));
        let mut first = Kept::new(near, all.take(source));
        far.write_all(b"x").await.unwrap();
        assert_eq!(first.read_u8().await.unwrap(), b'x');
        let reads = tokio::spawn(async move { (first.read_u8().await, first.write_u8(1).await) });
        tokio::task::yield_now().await;
        let second = Kept::new(other, all.take(source));
        let (read, written) = reads.await.unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(all.held().strangers, 1);
        drop(second);
        assert!(all.held().sources.is_empty());
    }
}
