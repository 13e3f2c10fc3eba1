//! The end of an attachment that its stdin decides.
//!
//! A container that does not see the end of its stdin (no `stdinOnce`, or a terminal) goes on without the client: when
//! the client's input ends, outputs end for it after what was printed so far. Source: containerd's `ContainerIO.Attach`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// Most bytes that an output still gives after the end: what a pipe holds.
const LEFT_BYTES_MAX: usize = 64 << 10;

/// Makes what ends an attachment, and what hears of it.
pub(super) fn detachable() -> (Detach, Detached) {
    let (sender, receiver) = watch::channel(false);
    (Detach(sender), Detached(receiver))
}

/// The right to end an attachment; dropped unused, it ends nothing.
pub(super) struct Detach(watch::Sender<bool>);

/// Hears of the end of an attachment.
#[derive(Clone)]
pub(super) struct Detached(watch::Receiver<bool>);

impl Detached {
    /// Comes at the end, or never.
    pub(super) async fn wait(mut self) {
        if self.0.wait_for(|is_detached| *is_detached).await.is_err() {
            std::future::pending().await
        }
    }
}

/// A stdin whose end is that of the attachment.
pub(super) struct DetachingInput<W> {
    input: W,
    detach: Option<Detach>,
}

impl<W> DetachingInput<W> {
    pub(super) fn new(input: W, detach: Detach) -> Self {
        Self { input, detach: Some(detach) }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for DetachingInput<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = ready!(Pin::new(&mut self.input).poll_shutdown(cx));
        if let Some(Detach(sender)) = self.detach.take() {
            sender.send_replace(true);
        }
        Poll::Ready(ended)
    }
}

/// How far an output has come.
enum State {
    /// The client is there until this comes.
    Attached(BoxFuture<'static, ()>),
    /// So many bytes may still be passed on.
    Detached(usize),
}

/// An output of a container that also ends with the attachment.
pub(super) struct DetachingOutput {
    output: pipe::Receiver,
    state: State,
}

impl DetachingOutput {
    pub(super) fn new(output: pipe::Receiver, detached: Detached) -> Self {
        Self { output, state: State::Attached(Box::pin(detached.wait())) }
    }
}

impl AsyncRead for DetachingOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { output, state } = &mut *self;
        if let State::Attached(detached) = state {
            if detached.as_mut().poll(cx).is_pending() {
                return Pin::new(output).poll_read(cx, buffer);
            }
            *state = State::Detached(LEFT_BYTES_MAX);
        }
        let State::Detached(left) = state else { return Poll::Ready(Ok(())) };
        let room = buffer.initialize_unfilled();
        let len = room.len().min(*left);
        // Read from the pipe itself: whether tokio has heard yet that there is something says nothing.
        match nix::unistd::read(&*output, room.get_mut(..len).unwrap_or_default()) {
            Ok(len) => {
                *left -= len;
                buffer.advance(len);
                Poll::Ready(Ok(()))
            }
            Err(nix::errno::Errno::EAGAIN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// What a client reads of an output into which `written` was written, if its stdin then ends or is just let go.
    async fn check(written: usize, ends: bool) -> Option<usize> {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = super::super::nonblocking(reader.into()).unwrap();
        let (detach, detached) = detachable();
        let reader = pipe::Receiver::from_owned_fd_unchecked(reader).unwrap();
        let mut output = DetachingOutput::new(reader, detached);
        let mut input = DetachingInput::new(tokio::io::sink(), detach);
        writer.write_all(&vec![b'x'; written]).unwrap();
        if ends {
            input.shutdown().await.unwrap();
        }
        drop(input);
        let mut all = Vec::new();
        // What was printed is read at once; who is still attached then waits for more.
        let read = async { output.read_to_end(&mut all).await.unwrap() };
        tokio::time::timeout(std::time::Duration::from_millis(if ends { 60_000 } else { 200 }), read)
            .await
            .ok()
    }

    #[tokio::test]
    async fn outputs_end_with_stdin_after_what_was_printed() {
        assert_eq!(check(0, true).await, Some(0));
        assert_eq!(check(5, true).await, Some(5));
        assert_eq!(check(LEFT_BYTES_MAX, true).await, Some(LEFT_BYTES_MAX));
        assert_eq!(check(5, false).await, None, "stdin did not end");
    }

    #[tokio::test]
    async fn what_is_printed_for_ever_ends_all_the_same() {
        let (reader, mut writer) = io::pipe().unwrap();
        let reader = super::super::nonblocking(reader.into()).unwrap();
        let (detach, detached) = detachable();
        let reader = pipe::Receiver::from_owned_fd_unchecked(reader).unwrap();
        let mut output = DetachingOutput::new(reader, detached);
        let endless = std::thread::spawn(move || while writer.write_all(&[b'x'; 1000]).is_ok() {});
        DetachingInput::new(tokio::io::sink(), detach).shutdown().await.unwrap();
        let mut all = Vec::new();
        output.read_to_end(&mut all).await.unwrap();
        assert!(all.len() <= LEFT_BYTES_MAX, "{}", all.len());
        drop(output);
        endless.join().unwrap();
    }
}
