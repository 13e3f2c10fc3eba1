//! Bodies on their way: what comes from a client, and what goes to it. Neither is ever gathered.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base::connections::Underway;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::entry::Entry;
use super::limits::COPY_PIECES_MAX;

/// When something was last seen to go on.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    pub(super) fn begin() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn goes_on(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Ends when nothing went on for so long.
    pub(super) async fn stalls(&self, timeout: Duration) {
        loop {
            let last = *self.0.lock();
            tokio::time::sleep_until(last + timeout).await;
            if *self.0.lock() == last {
                return;
            }
        }
    }
}

/// Why a request's body does not come.
#[derive(Debug, thiserror::Error)]
pub(super) enum UploadError {
    #[error("the client's body is broken")]
    Broken(#[source] hyper::Error),
    #[error("the client's body does not come")]
    Slow,
}

/// A request's body.
pub(super) struct Upload {
    from: Origin,
    progress: Progress,
    timeout: Duration,
    /// Waits for the next piece; `None` while one is there.
    waiting: Option<Pin<Box<Sleep>>>,
    copies: Vec<mpsc::Sender<Piece>>,
}

/// A piece of a body that is copied; `None` is its end.
type Piece = Option<Frame<Bytes>>;

enum Origin {
    Client(Incoming),
    /// What a client's body is copied to. Whoever is too slow for it sees it break.
    Copy {
        pieces: mpsc::Receiver<Piece>,
        size: SizeHint,
        is_over: bool,
    },
}

impl Upload {
    pub(super) fn new(from: Incoming, progress: Progress, timeout: Duration) -> Self {
        Self { from: Origin::Client(from), progress, timeout, waiting: None, copies: Vec::new() }
    }

    /// The same body once more, as it comes.
    pub(super) fn copy(&mut self) -> Self {
        let (sender, pieces) = mpsc::channel(COPY_PIECES_MAX);
        let (size, is_over) = (self.size_hint(), self.is_end_stream());
        self.copies.push(sender);
        let (progress, timeout) = (Progress::begin(), self.timeout);
        let from = Origin::Copy { pieces, size, is_over };
        Self { from, progress, timeout, waiting: None, copies: Vec::new() }
    }

    /// Whether nobody knows how long it is.
    pub(super) fn is_open_ended(&self) -> bool {
        !self.is_end_stream() && self.size_hint().exact().is_none()
    }

    fn poll_origin(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        match &mut self.from {
            Origin::Client(body) => {
                let polled = Pin::new(body).poll_frame(context);
                polled.map(|frame| frame.map(|frame| frame.map_err(UploadError::Broken)))
            }
            Origin::Copy { is_over: true, .. } => Poll::Ready(None),
            Origin::Copy { pieces, is_over, .. } => match ready!(pieces.poll_recv(context)) {
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                Some(None) => {
                    *is_over = true;
                    Poll::Ready(None)
                }
                None => Poll::Ready(Some(Err(UploadError::Slow))),
            },
        }
    }

    /// Hands a piece to whoever copies; those who are too slow get no more.
    fn hand_on(&mut self, frame: Option<&Frame<Bytes>>) {
        if self.copies.is_empty() {
            return;
        }
        let copied = |frame: &Frame<Bytes>| match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => Some(Frame::data(data.clone())),
            (None, Some(trailers)) => Some(Frame::trailers(trailers.clone())),
            (None, None) => None,
        };
        let is_last = frame.is_none() || matches!(&self.from, Origin::Client(body) if body.is_end_stream());
        self.copies.retain(|copy| {
            let piece = frame.and_then(copied).is_none_or(|piece| copy.try_send(Some(piece)).is_ok());
            piece && (!is_last || copy.try_send(None).is_ok())
        });
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = this.poll_origin(context) {
            this.waiting = None;
            this.progress.goes_on();
            match &frame {
                Some(Err(_)) => this.copies.clear(),
                Some(Ok(frame)) => this.hand_on(Some(frame)),
                None => this.hand_on(None),
            }
            return Poll::Ready(frame);
        }
        let timeout = this.timeout;
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        // While the client is waited for, the backend is not.
        this.progress.goes_on();
        waiting.as_mut().poll(context).map(|()| Some(Err(UploadError::Slow)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.from {
            Origin::Client(body) => body.is_end_stream(),
            Origin::Copy { is_over, .. } => *is_over,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.from {
            Origin::Client(body) => body.size_hint(),
            Origin::Copy { size, .. } => *size,
        }
    }
}

/// An answer's body, with what is written down when it has gone.
pub(super) struct Download {
    from: Source,
    entry: Option<Entry>,
    _underway: Option<Underway>,
}

enum Source {
    Text(Full<Bytes>),
    Backend(Incoming),
}

impl Download {
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self { from: Source::Text(Full::new(text.into())), entry: None, _underway: None }
    }

    pub(super) fn of(from: Incoming) -> Self {
        Self { from: Source::Backend(from), entry: None, _underway: None }
    }

    pub(super) fn with(self, entry: Entry) -> Self {
        Self { entry: Some(entry), ..self }
    }

    /// Its connection is not idle while it is there.
    pub(super) fn while_under_way(self, underway: Underway) -> Self {
        Self { _underway: Some(underway), ..self }
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download").finish_non_exhaustive()
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = match &mut self.from {
            Source::Text(text) => Pin::new(text).poll_frame(context).map_err(|never| match never {}),
            Source::Backend(body) => Pin::new(body).poll_frame(context),
        };
        if let (Poll::Ready(Some(frame)), Some(entry)) = (&polled, &mut self.entry) {
            match frame {
                Ok(frame) => entry.sent(frame.data_ref().map_or(0, Bytes::len)),
                Err(error) => entry.broke(error),
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.from {
            Source::Text(text) => text.is_end_stream(),
            Source::Backend(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.from {
            Source::Text(text) => text.size_hint(),
            Source::Backend(body) => body.size_hint(),
        }
    }
}
