//! The causes of commits: a bounded ring of commits with their causes, and of the spans that components report.
//!
//! `GET /debug/knarr/trace?resource=deployments&namespace=default&name=web` answers everything that follows from
//! the commits of one object; `POST /debug/knarr/spans` takes spans. Both are authorised as non-resource URLs.
//!
//! What was remembered when the server stopped is in a file, and a few seconds after spans were reported. What a server
//! that was killed has written since is read from the store, which keeps the cause of each revision as long as the revision
//! itself; spans of its last seconds are lost.

mod history;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::Clock;
use machinery::trace::{Chain, Commit, Span};
use parking_lot::Mutex;
use serde::Deserialize;
use store::{Event, Revision};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cache::Cache;
use crate::kinds::Kind;
use crate::request_info::Query;
use crate::request_info::cut;
use crate::status::{Error, Result};

/// The number of commits that are remembered.
pub const COMMITS_MAX: usize = 16_384;
/// The number of spans that are remembered.
pub const SPANS_MAX: usize = 16_384;
/// The bytes that are remembered of each text that somebody has sent; names of objects with their namespaces are
/// shorter.
pub const TEXT_BYTES_MAX: usize = 512;
/// How soon spans are in the file that outlives a crash.
const SAVED_AFTER: Duration = Duration::from_secs(3);
/// Saving takes one part in so many of the time.
const SAVE_SHARE: u32 = 100;
/// The number of spans that one report may hold.
pub const REPORT_SPANS_MAX: usize = 1_024;

/// The two rings.
#[derive(Debug)]
pub struct Trace {
    clock: Clock,
    commits: Mutex<VecDeque<Commit>>,
    spans: Mutex<VecDeque<Span>>,
    /// There are spans that the file does not have.
    unsaved: Notify,
    /// Two writers of one file would spoil it.
    saving: Mutex<()>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    parent: u64,
    component: String,
    user: String,
    verb: String,
    subresource: String,
    at_us: i64,
}

impl Trace {
    /// Two empty rings.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            commits: Mutex::default(),
            spans: Mutex::default(),
            unsaved: Notify::new(),
            saving: Mutex::default(),
        }
    }

    /// Takes note of a commit.
    pub fn committed(&self, cache: &Cache, event: &Event) {
        let commit = Commit { committed_us: self.clock.now().as_microsecond(), ..commit(cache, event) };
        push(&mut self.commits.lock(), commit, COMMITS_MAX);
    }

    /// Recalls what came before: from `file`, and up to this revision from the store. Then keeps what comes in the file, for
    /// ever.
    pub async fn remember(
        self: Arc<Self>,
        file: Option<std::path::PathBuf>,
        cache: Arc<Cache>,
        upto: Revision,
    ) {
        self.recall(file.as_deref(), &cache, upto).await;
        if let Some(file) = file {
            self.keep(file).await;
        }
    }

    async fn recall(&self, file: Option<&Path>, cache: &Cache, upto: Revision) {
        let chain = file.map(history::load).unwrap_or_default();
        let last =
            chain.commits.iter().map(|commit| commit.revision).filter(|revision| *revision <= upto).max();
        // Revisions leap after a crash: how many there are says nothing of how many commits there were.
        let events = history::read(cache.store(), last.unwrap_or(0), upto).await;
        let since = events.iter().filter(|event| !event.cause.is_empty()).map(|event| commit(cache, event));
        let earlier = chain.commits.into_iter().filter(|commit| commit.revision <= upto).chain(since);
        prepend(&mut self.commits.lock(), earlier, COMMITS_MAX);
        prepend(&mut self.spans.lock(), chain.spans.into_iter(), SPANS_MAX);
    }

    /// Keeps all that is remembered in `file`, for [`Trace::remember`].
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, file: &Path) -> std::io::Result<()> {
        let _one_at_a_time = self.saving.lock();
        let chain = Chain {
            commits: self.commits.lock().iter().cloned().collect(),
            spans: self.spans.lock().iter().cloned().collect(),
        };
        history::save(file, &chain)
    }

    /// Saves whenever spans have come. A burst of them is one write, and writing takes a small share of
    /// the time however much is remembered.
    async fn keep(self: Arc<Self>, file: std::path::PathBuf) {
        let mut pause = SAVED_AFTER;
        loop {
            self.unsaved.notified().await;
            tokio::time::sleep(pause).await;
            let (trace, file, begun) = (Arc::clone(&self), file.clone(), Instant::now());
            match tokio::task::spawn_blocking(move || trace.save(&file)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "the trace is not kept for after a crash"),
                Err(error) => tracing::error!(%error, "the trace is not kept for after a crash"),
            }
            pause = SAVED_AFTER.max(begun.elapsed() * SAVE_SHARE);
        }
    }

    /// Takes a report of spans: `{"spans": [...]}` or a bare list.
    ///
    /// # Errors
    /// 400 when it cannot be read or is too long.
    pub fn report(&self, body: &[u8]) -> Result<()> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Report {
            List(Vec<Span>),
            Object { spans: Vec<Span> },
        }
        let report: Report =
            serde_json::from_slice(body).map_err(|failure| Error::bad_request(failure.to_string()))?;
        let (Report::List(list) | Report::Object { spans: list }) = report;
        if list.len() > REPORT_SPANS_MAX {
            return Err(Error::bad_request(format!("at most {REPORT_SPANS_MAX} spans fit into one report")));
        }
        let mut spans = self.spans.lock();
        for span in list {
            push(&mut spans, bounded(span), SPANS_MAX);
        }
        self.unsaved.notify_one();
        Ok(())
    }

    /// The chain of events that the query asks for: of an object of this resource, or of all if there is none.
    ///
    /// # Errors
    /// 400 when `since` is no number.
    pub fn chain(&self, query: &Query, resource: Option<&Kind>) -> Result<Chain> {
        let since = query.number("since")?.unwrap_or(0);
        let commits = self.commits.lock();
        let spans = self.spans.lock();
        let is_namespaced = resource.is_none_or(|kind| kind.row().is_namespaced());
        let namespace = query.get("namespace").filter(|_| is_namespaced).unwrap_or_default();
        let name = query.get("name").unwrap_or_default();
        let key = resource.map(|kind| {
            let resource = kind.resource();
            if namespace.is_empty() {
                format!("{resource}/{name}")
            } else {
                format!("{resource}/{namespace}/{name}")
            }
        });
        let (commits, spans) = chain(commits.iter(), spans.iter(), key.as_deref(), since);
        Ok(Chain { commits, spans })
    }
}

/// What a change says of itself, but when the watch cache had it.
fn commit(cache: &Cache, event: &Event) -> Commit {
    let cause: Cause = serde_json::from_slice(&event.cause).unwrap_or_default();
    Commit {
        revision: event.revision,
        parent: cause.parent,
        key: cache.named(&event.key),
        verb: cause.verb,
        subresource: cause.subresource,
        component: bounded_text(&cause.component),
        user: bounded_text(&cause.user),
        at_us: cause.at_us,
        committed_us: cause.at_us,
        is_deletion: event.entry.is_none(),
    }
}

/// Puts what is older in front of what is there, as far as there is room.
fn prepend<T>(ring: &mut VecDeque<T>, earlier: impl DoubleEndedIterator<Item = T>, max: usize) {
    for item in earlier.rev() {
        if ring.len() >= max {
            return;
        }
        ring.push_front(item);
    }
}

/// A span whose texts are no longer than is remembered; the ring has at most as many times that.
fn bounded(span: Span) -> Span {
    Span {
        component: bounded_text(&span.component),
        name: bounded_text(&span.name),
        object: bounded_text(&span.object),
        detail: bounded_text(&span.detail),
        ..span
    }
}

/// The beginning of a text, with no more room than it needs.
fn bounded_text(text: &str) -> String {
    cut(text, TEXT_BYTES_MAX).to_owned()
}

fn push<T>(ring: &mut VecDeque<T>, item: T, max: usize) {
    if ring.len() >= max {
        ring.pop_front();
    }
    ring.push_back(item);
}

/// The commits of `key` (all, if `None`) after `since`, everything that follows from them, and their spans.
fn chain<'a>(
    commits: impl Iterator<Item = &'a Commit>,
    spans: impl Iterator<Item = &'a Span>,
    key: Option<&str>,
    since: i64,
) -> (Vec<Commit>, Vec<Span>) {
    let mut revisions: BTreeSet<u64> = BTreeSet::new();
    let mut chosen = Vec::new();
    for commit in commits.filter(|commit| commit.at_us >= since) {
        let is_root = key.is_none_or(|key| commit.key == key);
        let follows = commit.parent > 0 && revisions.contains(&commit.parent);
        if is_root || follows {
            revisions.insert(commit.revision);
            chosen.push(commit.clone());
        }
    }
    let spans = spans.filter(|span| revisions.contains(&span.cause)).cloned().collect();
    (chosen, spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(revision: u64, parent: u64, key: &str) -> Commit {
        Commit {
            revision,
            parent,
            key: key.into(),
            verb: "create".into(),
            subresource: String::new(),
            component: String::new(),
            user: String::new(),
            at_us: 1,
            committed_us: 1,
            is_deletion: false,
        }
    }

    #[test]
    fn what_is_remembered_of_a_span_has_a_length() {
        let trace = Trace::new(Clock::system());
        let long = "é".repeat(100_000);
        let span = |text: &str| {
            serde_json::json!({
                "cause": 1, "component": text, "name": text, "object": text, "start_us": 1, "end_us": 2, "detail": text,
            })
        };
        trace.report(serde_json::json!([span(&long), span("short")]).to_string().as_bytes()).unwrap();
        let spans = trace.spans.lock();
        for text in [&spans[0].component, &spans[0].name, &spans[0].object, &spans[0].detail] {
            assert!(text.capacity() <= TEXT_BYTES_MAX && long.starts_with(text.as_str()), "{}", text.len());
        }
        assert_eq!(spans[1].detail, "short");
    }

    #[test]
    fn a_chain_holds_what_follows_from_its_root() {
        let commits =
            [commit(1, 0, "a"), commit(2, 0, "b"), commit(3, 1, "c"), commit(4, 3, "d"), commit(5, 2, "e")];
        let (chosen, _) = chain(commits.iter(), [].iter(), Some("a"), 0);
        assert_eq!(chosen.iter().map(|c| c.revision).collect::<Vec<_>>(), [1, 3, 4]);
    }
}
