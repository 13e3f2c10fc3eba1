//! Two connections that are joined: what comes on one goes out on the other.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tracing::debug;

/// How much is passed on at a time.
const COPY_BYTES: usize = 32 * 1024;
/// How long one side may be silent after the other has said its last.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Passes everything on in both directions until both have ended.
///
/// They are independent of each other: what one side has said before it left must still arrive, also when it left without a
/// farewell. When one has ended, the other does so when nothing has passed for five minutes: whoever is gone for good does
/// not always say so.
pub async fn relay(one: impl AsyncRead + AsyncWrite, other: impl AsyncRead + AsyncWrite) {
    let (from_one, to_one) = tokio::io::split(one);
    let (from_other, to_other) = tokio::io::split(other);
    let ended = watch::Sender::new(false);
    let there = async {
        copy(from_one, to_other, ended.subscribe()).await;
        ended.send_replace(true);
    };
    let back = async {
        copy(from_other, to_one, ended.subscribe()).await;
        ended.send_replace(true);
    };
    tokio::join!(there, back);
}

/// Copies until the end, whatever it is, and passes it on. (`tokio::io::copy` reads ahead while it writes, and gives up what
/// it holds when reading fails.)
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut is_other_over: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let passed = tokio::select! {
            biased;
            passed = pass(&mut buffer, &mut from, &mut to) => passed,
            () = silence(&mut is_other_over) => Err(io::ErrorKind::TimedOut.into()),
        };
        match passed {
            Ok(0) => break,
            Ok(_) => {}
            Err(failure) => {
                debug!(%failure, "one direction of a stream broke");
                break;
            }
        }
    }
    if let Err(failure) = to.shutdown().await {
        debug!(%failure, "the end of a stream was not wanted");
    }
}

/// Passes on what comes next; how much that was.
async fn pass(
    buffer: &mut [u8],
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<usize> {
    let count = from.read(buffer).await?;
    to.write_all(buffer.get(..count).unwrap_or_default()).await?;
    to.flush().await?;
    Ok(count)
}

/// Ends when the other direction has ended and the time after that is over.
async fn silence(is_other_over: &mut watch::Receiver<bool>) {
    if is_other_over.wait_for(|is_over| *is_over).await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(SILENCE_MAX).await;
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;

    /// Says `hello`, and then breaks.
    struct Broken(&'static [u8]);

    impl AsyncRead for Broken {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.0.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            buffer.put_slice(std::mem::take(&mut self.0));
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_was_said_before_a_break_arrives_however_slowly() {
        // Room for one byte: the break comes while the rest waits.
        let (near, mut far) = tokio::io::duplex(1);
        let mut text = String::new();
        let ended = watch::Sender::new(false);
        let copied = copy(Broken(b"hello"), near, ended.subscribe());
        let (_, read) = tokio::join!(copied, far.read_to_string(&mut text));
        read.unwrap();
        assert_eq!(text, "hello");
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_has_said_its_last_still_hears_the_other_but_not_its_silence() {
        let (near, mut client) = tokio::io::duplex(64);
        let (far, mut backend) = tokio::io::duplex(64);
        let relayed = tokio::spawn(relay(near, far));
        client.write_all(b"ask").await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = String::new();
        backend.read_to_string(&mut asked).await.unwrap();
        tokio::time::sleep(SILENCE_MAX / 2).await;
        backend.write_all(b"answer").await.unwrap();
        tokio::time::sleep(SILENCE_MAX * 3 / 4).await;
        backend.write_all(b"!").await.unwrap();
        let (begun, mut answer) = (tokio::time::Instant::now(), String::new());
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!((asked.as_str(), answer.as_str()), ("ask", "answer!"));
        assert!(begun.elapsed() >= SILENCE_MAX, "it ends after silence: {:?}", begun.elapsed());
        relayed.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn two_sides_that_are_there_may_be_silent() {
        let (near, mut client) = tokio::io::duplex(64);
        let (far, mut backend) = tokio::io::duplex(64);
        let relayed = tokio::spawn(relay(near, far));
        tokio::time::sleep(SILENCE_MAX * 10).await;
        client.write_all(b"x").await.unwrap();
        let mut byte = [0];
        backend.read_exact(&mut byte).await.unwrap();
        drop((client, backend));
        relayed.await.unwrap();
    }
}
