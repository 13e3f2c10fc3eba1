//! Connections on which nobody has said anything for too long.
//!
//! Source: `streamingConnectionIdleTimeout` of `KubeletConfiguration`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A connection that notes when bytes pass.
pub(in crate::server) struct Watched<S> {
    inner: S,
    activity: Activity,
}

/// When bytes passed last: milliseconds after the beginning.
#[derive(Clone)]
struct Activity {
    began: Instant,
    last_milliseconds: Arc<AtomicU64>,
}

impl Activity {
    fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_milliseconds.store(now, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.began + Duration::from_millis(self.last_milliseconds.load(Ordering::Relaxed))
    }
}

/// The connection, and what ends when it has been silent for `timeout`; never, if that is zero.
pub(in crate::server) fn watched<S>(inner: S, timeout: Duration) -> (Watched<S>, impl Future<Output = ()>) {
    let activity = Activity { began: Instant::now(), last_milliseconds: Arc::default() };
    let watching = activity.clone();
    let silence = async move {
        if timeout.is_zero() {
            std::future::pending::<()>().await;
        }
        loop {
            let due = watching.last() + timeout;
            if due <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    };
    (Watched { inner, activity }, silence)
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if read.is_ready() {
            self.activity.note();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if written.is_ready() {
            self.activity.note();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(4 * 3600);

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_nobody_has_spoken_for_so_long() {
        let began = Instant::now();
        let (client, mut server) = tokio::io::duplex(64);
        let (mut client, silence) = watched(client, TIMEOUT);
        let talk = async {
            tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
            client.write_all(b"x").await.unwrap();
            tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
            server.write_all(b"y").await.unwrap();
            client.read_u8().await.unwrap();
        };
        tokio::join!(silence, talk);
        assert_eq!(began.elapsed(), TIMEOUT * 3 - Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_timeout_silence_is_endless() {
        let (client, _server) = tokio::io::duplex(64);
        let (_client, silence) = watched(client, Duration::ZERO);
        assert!(tokio::time::timeout(TIMEOUT * 1000, silence).await.is_err());
    }
}
