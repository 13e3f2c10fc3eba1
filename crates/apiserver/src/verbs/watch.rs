//! WATCH: a cursor into the cache's events, as a body that never ends by itself.
//!
//! Every event after the cursor is delivered in order, or the stream ends with an ERROR event that says 410.
//! An object that starts or stops to match the selectors appears as ADDED or DELETED.
//! Source: KEP-956 (bookmarks), KEP-3157 (sendInitialEvents).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, Stream};
use http::StatusCode;
use tokio::time::{Instant, Sleep, sleep_until};

use super::list_options::{Purpose, validate};
use crate::answer::Answer;
use crate::api::Api;
use crate::cache::{Cache, CacheEvent, CachedObject, EventType, Watcher};
use crate::filter::Filter;
use crate::kinds::Kind;
use crate::metrics::{Label, UnderWay};
use crate::request::Authorized;
use crate::respond::watch::Encoder;
use crate::respond::{BoxError, watch_response};
use crate::status::{Error, Result};

/// How often an idle watch is told how far it is, if it asked for bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// How much of the initial state is encoded at a time.
const INITIAL_BYTES: usize = 64 * 1024;
/// How long a watch lasts when the client does not say: upstream's minimum is half an hour, doubled by chance.
const DURATION_DEFAULT: Duration = Duration::from_secs(30 * 60);

/// Follows a collection.
///
/// # Errors
/// 400 for contradictory options. A revision that is gone is told inside the stream.
pub async fn watch(api: &Api, request: &Authorized) -> Result<Answer> {
    let query = &request.info.query;
    let filter = Filter::of(&request.kind, &request.resource, query)?;
    let bookmarks = query.flag("allowWatchBookmarks");
    validate(query, Purpose::Watch)?;
    let send_initial = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
    let version = query.get("resourceVersion").unwrap_or_default();
    let cache = request.kind.cache();
    cache.check_readable(&filter.prefix)?;
    let encoder = Encoder::new(request, api.clock.clone());

    let mut initial = Initial::default();
    let watcher = match (send_initial, version) {
        (None, "" | "0") | (Some(true), _) => {
            let complete = match version {
                "0" => api.cache.revision(),
                "" => api.cache.fresh().await?,
                text => api.cache.reached(super::list::parse_revision(text)?).await?,
            };
            let mut listing = cache.read_list(&filter.prefix, complete)?;
            if let Some(key) = filter.exact_key() {
                listing.objects.retain(|object| *object.key == *key);
            }
            listing.objects = request.kind.all_served(listing.objects).await?;
            listing.objects.retain(|object| filter.matches(object));
            initial = Initial {
                objects: listing.objects.into(),
                revision: listing.revision,
                is_marked: send_initial == Some(true) && bookmarks,
            };
            cache.watch(listing.revision, filter.index_key())
        }
        (Some(false), "" | "0") => cache.watch(api.cache.fresh().await?, filter.index_key()),
        (_, text) => cache.watch(super::list::parse_revision(text)?, filter.index_key()),
    };
    let seconds = query.number("timeoutSeconds")?.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
    let chance = Duration::from_secs(api.random.below(DURATION_DEFAULT.as_secs()));
    let duration = seconds.map_or(DURATION_DEFAULT + chance, Duration::from_secs);
    let serving = api.serving.clone();
    let end = Instant::now() + duration;
    let first = if bookmarks { end.min(Instant::now() + BOOKMARK_INTERVAL) } else { end };
    let watching = Watching {
        kind: request.kind.clone(),
        watcher,
        filter,
        encoder,
        initial,
        pending: VecDeque::new(),
        cache: Arc::clone(&api.cache),
        bookmarked: 0,
        end,
        timer: Box::pin(sleep_until(first)),
        stopping: async move { serving.stopping().await }.boxed(),
        ended: false,
        _counted: api.metrics.watch(Label(request.kind.row().plural.clone())),
    };
    Ok(Answer::Response(watch_response(request, StatusCode::OK, frames(watching))))
}

/// What was there when the watch began, encoded bit by bit as the client reads.
#[derive(Default)]
struct Initial {
    objects: VecDeque<Arc<CachedObject>>,
    revision: u64,
    /// Whether a bookmark says that this was all.
    is_marked: bool,
}

struct Watching {
    kind: Kind,
    watcher: Watcher,
    initial: Initial,
    filter: Filter,
    encoder: Encoder,
    pending: VecDeque<Bytes>,
    cache: Arc<Cache>,
    bookmarked: u64,
    end: Instant,
    /// The next bookmark, or the end. It stays where it is while events come, as does what follows.
    timer: Pin<Box<Sleep>>,
    stopping: BoxFuture<'static, ()>,
    ended: bool,
    _counted: UnderWay,
}

/// The body's frames. Each holds all events that were there when it was made.
fn frames(watching: Watching) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static {
    stream::unfold(watching, |mut watching| async move {
        let frame = watching.next_frame().await?;
        Some((Ok(frame), watching))
    })
}

impl Watching {
    async fn next_frame(&mut self) -> Option<Bytes> {
        self.begin();
        while self.pending.is_empty() {
            if self.ended {
                return None;
            }
            self.step().await?;
        }
        if self.pending.len() == 1 {
            return self.pending.pop_front();
        }
        let mut frame = bytes::BytesMut::with_capacity(self.pending.iter().map(Bytes::len).sum());
        for event in self.pending.drain(..) {
            frame.extend_from_slice(&event);
        }
        Some(frame.freeze())
    }

    /// Encodes the next of what was there at the beginning.
    fn begin(&mut self) {
        let mut bytes = 0;
        while bytes < INITIAL_BYTES
            && let Some(object) = self.initial.objects.pop_front()
        {
            let event = self.encoder.event(EventType::Added, &object, self.initial.revision);
            bytes += event.len();
            self.pending.push_back(event);
        }
        if self.initial.objects.is_empty() && std::mem::take(&mut self.initial.is_marked) {
            self.pending.push_back(self.encoder.initial_events_end(self.initial.revision));
        }
    }

    /// Waits for what comes first: events, the time of a bookmark, the end.
    async fn step(&mut self) -> Option<()> {
        tokio::select! {
            biased;
            events = self.watcher.next() => self.take(events).await,
            () = &mut self.timer => {
                if Instant::now() >= self.end {
                    return None;
                }
                self.bookmark().await
            }
            () = &mut self.stopping => None,
        }
    }

    /// Encodes events. Nobody waits for a webhook when the server stops.
    async fn take(&mut self, events: Result<Vec<CacheEvent>>) -> Option<()> {
        let (events, failure) = match events {
            Ok(events) => tokio::select! {
                biased;
                served = served(&self.kind, &self.filter, events) => served,
                () = &mut self.stopping => return None,
            },
            Err(error) => (Vec::new(), Some(error)),
        };
        for event in &events {
            if let Some((event_type, object)) = seen(&self.filter, event) {
                self.pending.push_back(self.encoder.event(event_type, object, event.revision));
            }
        }
        let Some(error) = failure else { return Some(()) };
        self.ended = true;
        // Whoever looks again is told that there is no such kind.
        if !self.watcher.is_over() {
            self.pending.push_back(self.encoder.error(&error));
        }
        Some(())
    }

    async fn bookmark(&mut self) -> Option<()> {
        let next = Instant::now() + BOOKMARK_INTERVAL;
        self.timer.as_mut().reset(next.min(self.end));
        let complete = self.cache.revision();
        let events = self.watcher.take();
        let up_to_date = events.as_ref().is_ok_and(Vec::is_empty);
        self.take(events).await?;
        if up_to_date {
            self.watcher.skip_to(complete);
        }
        if !self.ended && self.watcher.cursor() > self.bookmarked {
            self.bookmarked = self.watcher.cursor();
            self.pending.push_back(self.encoder.bookmark(self.bookmarked));
        }
        Some(())
    }
}

/// Events whose objects are as they are served, up to the first that cannot be had, and why that is.
async fn served(kind: &Kind, filter: &Filter, events: Vec<CacheEvent>) -> (Vec<CacheEvent>, Option<Error>) {
    if kind.conversion().is_none() {
        return (events, None);
    }
    let is_told = |event: &CacheEvent| {
        let key = &*event.object.key;
        key.starts_with(&*filter.prefix) && filter.exact_key().is_none_or(|exact| exact == key)
    };
    let events: Vec<CacheEvent> = events.into_iter().filter(is_told).collect();
    let mut wanted = Vec::new();
    for event in &events {
        // Of what is deleted the last state is known already, in most cases.
        match (event.event_type, &event.previous) {
            (EventType::Deleted, Some(previous)) => wanted.push(Arc::clone(previous)),
            (_, Some(previous)) if filter.is_selective() => {
                wanted.extend([Arc::clone(previous), Arc::clone(&event.object)]);
            }
            _ => wanted.push(Arc::clone(&event.object)),
        }
    }
    let (served, failure) = kind.served_until(wanted).await;
    let mut served = served.into_iter();
    let mut told = Vec::with_capacity(events.len());
    for mut event in events {
        let (previous, object) = match (event.event_type, &event.previous) {
            (EventType::Deleted, Some(_)) => {
                let last = served.next();
                (last.clone(), last)
            }
            (_, Some(_)) if filter.is_selective() => (served.next(), served.next()),
            (_, previous) => (previous.clone(), served.next()),
        };
        let Some(object) = object else { return (told, failure) };
        (event.previous, event.object) = (previous, object);
        told.push(event);
    }
    (told, failure)
}

/// What a filter makes of an event: objects that enter or leave it are added or deleted.
fn seen<'a>(filter: &Filter, event: &'a CacheEvent) -> Option<(EventType, &'a Arc<CachedObject>)> {
    if !event.object.key.starts_with(&filter.prefix) {
        return None;
    }
    let before = event.previous.as_ref().is_some_and(|previous| filter.matches(previous));
    match event.event_type {
        EventType::Deleted => before.then_some((EventType::Deleted, &event.object)),
        EventType::Added | EventType::Modified => match (before, filter.matches(&event.object)) {
            (true, true) => Some((EventType::Modified, &event.object)),
            (false, true) => Some((EventType::Added, &event.object)),
            // The object's new state does not match; upstream sends the old one under the new revision.
            (true, false) => event.previous.as_ref().map(|previous| (EventType::Deleted, previous)),
            (false, false) => None,
        },
    }
}
