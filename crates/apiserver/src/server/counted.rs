//! A response's body, whose request is under way for as long as it lasts.

use std::pin::Pin;
use std::task::{Context, Poll};

use base::connections::Underway;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::respond::{Body, BoxError};

/// A body whose request is under way until it is through.
pub(super) struct Counted {
    pub(super) body: Body,
    pub(super) _underway: Underway,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
