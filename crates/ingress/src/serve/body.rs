//! Bodies on their way: what comes from a client, and what goes to it. Neither is ever gathered.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base::connections::Underway;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use super::entry::Entry;

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
    pub(super) async fn stalls(&self, patience: Duration) {
        loop {
            let last = *self.0.lock();
            tokio::time::sleep_until(last + patience).await;
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
    from: Incoming,
    progress: Progress,
    patience: Duration,
    /// Waits for the next piece; `None` while one is there.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    pub(super) fn new(from: Incoming, progress: Progress, patience: Duration) -> Self {
        Self { from, progress, patience, waiting: None }
    }

    /// Whether nobody knows how long it is.
    pub(super) fn is_open_ended(&self) -> bool {
        !self.from.is_end_stream() && self.from.size_hint().exact().is_none()
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
        if let Poll::Ready(frame) = Pin::new(&mut this.from).poll_frame(context) {
            this.waiting = None;
            this.progress.goes_on();
            return Poll::Ready(frame.map(|frame| frame.map_err(UploadError::Broken)));
        }
        let patience = this.patience;
        let waiting = this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        // While the client is waited for, the backend is not.
        this.progress.goes_on();
        waiting.as_mut().poll(context).map(|()| Some(Err(UploadError::Slow)))
    }

    fn is_end_stream(&self) -> bool {
        self.from.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.from.size_hint()
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
