//! The loop behind an informer: LIST once, then WATCH from there, again from where it broke off, and a new LIST
//! only when the server says that the place is gone.

use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Random};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::client::Body;
use tokio::time::Instant;

use super::Scope;
use crate::follower::Follower;
use crate::resource_ref::ResourceRef;
use crate::sender::Sender;

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// The server ends a watch after this long; asking for it spreads reconnects.
const WATCH_SECONDS_MIN: u64 = 300;
/// A watch that ends sooner with nothing on it has failed. Source: client-go's `watchHandler`.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// A server that takes a request answers this soon, and goes on with a list as soon. Source: a fifth of the requests' own
/// bound of 60 s may pass in a queue.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A server sends a bookmark every minute if there is nothing else: two are missing. Source: `bookmarkFrequency` of
/// upstream's watch cache.
const SILENCE_MAX: Duration = Duration::from_secs(150);
/// One watch event: an object of 3 MiB at most, and its frame.
const LINE_BYTES_MAX: usize = 8 << 20;

/// How much of each object the informer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    MetadataOnly,
}

impl Form {
    fn accept(self, collection: bool) -> &'static str {
        match (self, collection) {
            (Self::Whole, _) => "application/json",
            (Self::MetadataOnly, true) => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
            }
            (Self::MetadataOnly, false) => {
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
            }
        }
    }
}

/// Where decoded objects go.
pub(super) trait Sink: Send + Sync {
    /// Takes the body of a LIST; returns its revision.
    fn take_list(&self, body: &[u8]) -> Result<u64, SinkError>;
    /// Takes one event of a WATCH.
    fn take_event(&self, line: &[u8]) -> Result<WatchStep, SinkError>;
}

/// What one watch event meant.
#[derive(Debug)]
pub(super) enum WatchStep {
    /// Everything up to this revision is known now.
    Seen(u64),
    /// The server ends the watch for this reason.
    Refused(Box<Status>),
}

/// Why a body could not be taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum SinkError {
    #[error("decode what the server sent: {0}")]
    Decode(#[from] serde_json::Error),
    #[error("the list has no resourceVersion")]
    NoRevision,
    #[error("an object has no name")]
    NoName,
}

#[derive(Debug, thiserror::Error)]
enum ReflectError {
    #[error("send the request")]
    Send(#[from] kube::Error),
    #[error("build the request")]
    Build(#[from] http::Error),
    #[error("the server answered {0}")]
    Refused(StatusCode),
    #[error("the watch ended with {0}")]
    Ended(String),
    #[error("an event is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error("the watch ended as soon as it had begun")]
    TooShort,
    #[error("the server did not answer for {} s", ANSWER_MAX.as_secs())]
    NoAnswer,
    #[error("nothing came on the watch for {} s, not even a bookmark", SILENCE_MAX.as_secs())]
    Silent(Instant),
    #[error("the place to watch from is gone")]
    Gone,
}

impl ReflectError {
    /// Whether a watch from the same place would end in the same way: a list leads past what cannot be taken in.
    fn needs_a_list(&self) -> bool {
        matches!(self, Self::Gone | Self::Ended(_) | Self::TooLong | Self::Sink(_))
    }
}

pub(super) struct Reflector {
    sender: Sender,
    path: String,
    query: String,
    form: Form,
    sink: Arc<dyn Sink>,
    follower: Arc<Follower>,
}

impl Reflector {
    pub(super) fn new(
        sender: Sender,
        resource: &ResourceRef,
        scope: &Scope,
        form: Form,
        sink: Arc<dyn Sink>,
        follower: Arc<Follower>,
    ) -> Self {
        let path = resource.collection_path(scope.namespace.as_deref().unwrap_or_default());
        let mut query = String::new();
        for (name, value) in
            [("fieldSelector", &scope.field_selector), ("labelSelector", &scope.label_selector)]
        {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", encode(value)));
            }
        }
        Self { sender, path, query, form, sink, follower }
    }

    /// Runs until its task is dropped.
    pub(super) async fn run(self, random: Random) {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.2);
        let mut from = None;
        loop {
            let start = match from {
                Some(revision) => Ok(revision),
                None => self.list().await,
            };
            let end = match start {
                Ok(revision) => self.watch(revision, &mut from, &mut backoff, &random).await,
                Err(error) => Err(error),
            };
            let Err(error) = end else {
                self.follower.followed();
                continue;
            };
            if matches!(error, ReflectError::Refused(StatusCode::NOT_FOUND)) {
                // The server does not have this kind: there is nothing to follow.
                self.follower.followed();
            } else if let ReflectError::Silent(since) = error {
                self.follower.heard_nothing(since, &error);
            } else {
                self.follower.failed(&error);
            }
            if error.needs_a_list() {
                from = None;
            }
            let delay = backoff.next(&random);
            tracing::debug!(path = %self.path, ?error, ?delay, "watch again later");
            tokio::time::sleep(delay).await;
        }
    }

    async fn list(&self) -> Result<u64, ReflectError> {
        let uri = format!("{}?resourceVersion=0{}", self.path, self.query);
        let mut body = Box::pin(self.get(uri, true)).await?.into_body();
        let mut list = bytes::BytesMut::new();
        while let Some(frame) = in_time(body.frame()).await? {
            if let Ok(data) = frame?.into_data() {
                list.extend_from_slice(&data);
            }
        }
        Ok(self.sink.take_list(&list)?)
    }

    async fn watch(
        &self,
        revision: u64,
        from: &mut Option<u64>,
        backoff: &mut Backoff,
        random: &Random,
    ) -> Result<(), ReflectError> {
        *from = Some(revision);
        let seconds = WATCH_SECONDS_MIN + random.below(WATCH_SECONDS_MIN);
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={revision}{}",
            self.path, self.query
        );
        // Apart from the task, which lasts as long as the watch: there may be hundreds of them.
        let mut body = Box::pin(self.get(uri, false)).await?.into_body();
        self.follower.opened();
        let opened = Instant::now();
        let mut seen = false;
        let mut lines = Lines::default();
        let mut heard = opened;
        loop {
            let next = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
            let Some(frame) = next.map_err(|_| ReflectError::Silent(heard))? else { break };
            heard = Instant::now();
            let Ok(data) = frame?.into_data() else { continue };
            lines.push(&data)?;
            while let Some(line) = lines.next() {
                match self.sink.take_event(&line)? {
                    WatchStep::Seen(revision) => *from = Some(revision),
                    WatchStep::Refused(status) if status.code == Some(410) => return Err(ReflectError::Gone),
                    WatchStep::Refused(status) => {
                        return Err(ReflectError::Ended(status.message.unwrap_or_default()));
                    }
                }
                self.follower.followed();
                backoff.reset();
                seen = true;
            }
        }
        if !seen && opened.elapsed() < WATCH_MIN {
            return Err(ReflectError::TooShort);
        }
        Ok(())
    }

    async fn get(&self, uri: String, collection: bool) -> Result<Response<Body>, ReflectError> {
        let request = Request::get(uri).header("accept", self.form.accept(collection)).body(Body::empty())?;
        let response = in_time(self.sender.send(request)).await??;
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::GONE => Err(ReflectError::Gone),
            status => Err(ReflectError::Refused(status)),
        }
    }
}

/// What a server does at once if it does it at all.
async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, ReflectError> {
    tokio::time::timeout(ANSWER_MAX, answer).await.map_err(|_| ReflectError::NoAnswer)
}

/// Cuts a stream of chunks into lines.
#[derive(Default)]
struct Lines {
    buffer: bytes::BytesMut,
    searched: usize,
}

impl Lines {
    fn push(&mut self, data: &[u8]) -> Result<(), ReflectError> {
        if self.buffer.len() + data.len() > LINE_BYTES_MAX && !self.buffer[self.searched..].contains(&b'\n') {
            return Err(ReflectError::TooLong);
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    fn next(&mut self) -> Option<bytes::Bytes> {
        let found = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
        let Some(offset) = found else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + offset + 1).freeze();
        self.searched = 0;
        Some(line)
    }
}

/// Percent-encodes a query value.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests;
