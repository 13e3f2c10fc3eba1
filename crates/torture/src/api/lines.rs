//! A watch's body, line by line.

use bytes::BytesMut;
use http_body_util::BodyExt;
use serde_json::Value;

use super::{Body, Failure};

/// The rest of a body.
pub(super) struct Lines {
    body: Body,
    rest: BytesMut,
}

impl Lines {
    pub(super) fn new(body: Body) -> Self {
        Self { body, rest: BytesMut::new() }
    }

    /// The next line; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(end + 1);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.body.frame().await {
                Some(frame) => self.rest.extend_from_slice(&frame?.into_data().unwrap_or_default()),
                None => return Ok(None),
            }
        }
    }
}
