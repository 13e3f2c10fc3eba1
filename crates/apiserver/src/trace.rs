//! What caused what: a bounded ring of commits with their causes, and of the spans that components report.
//!
//! `GET /debug/knarr/trace?resource=deployments&namespace=default&name=web` answers everything that follows from
//! the commits of one object; `POST /debug/knarr/spans` takes spans. Both are authorised as non-resource URLs.

use std::collections::{BTreeSet, VecDeque};

use base::Clock;
use machinery::trace::{Chain, Commit, Span};
use parking_lot::Mutex;
use serde::Deserialize;
use store::Event;

use crate::request_info::Query;
use crate::status::{Error, Result};

/// How many commits are remembered.
pub const COMMITS_MAX: usize = 16_384;
/// How many spans are remembered.
pub const SPANS_MAX: usize = 16_384;
/// How many spans one report may hold.
pub const REPORT_SPANS_MAX: usize = 1_024;

/// The two rings.
#[derive(Debug)]
pub struct Trace {
    clock: Clock,
    commits: Mutex<VecDeque<Commit>>,
    spans: Mutex<VecDeque<Span>>,
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
        Self { clock, commits: Mutex::default(), spans: Mutex::default() }
    }

    /// Takes note of a commit.
    pub fn committed(&self, event: &Event) {
        let cause: Cause = serde_json::from_slice(&event.cause).unwrap_or_default();
        let commit = Commit {
            revision: event.revision,
            parent: cause.parent,
            key: event.key.strip_prefix("/registry/").unwrap_or(&event.key).to_owned(),
            verb: cause.verb,
            subresource: cause.subresource,
            component: cause.component,
            user: cause.user,
            at_us: cause.at_us,
            committed_us: self.clock.now().as_microsecond(),
            is_deletion: event.entry.is_none(),
        };
        push(&mut self.commits.lock(), commit, COMMITS_MAX);
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
            push(&mut spans, span, SPANS_MAX);
        }
        Ok(())
    }

    /// The chain of events that the query asks for.
    ///
    /// # Errors
    /// 400 when `since` is no number.
    pub fn chain(&self, query: &Query, prefix: Option<&str>) -> Result<Chain> {
        let since = query.number("since")?.unwrap_or(0);
        let commits = self.commits.lock();
        let spans = self.spans.lock();
        let namespace = query.get("namespace").unwrap_or_default();
        let name = query.get("name").unwrap_or_default();
        let key = prefix.map(|prefix| {
            let prefix = prefix.strip_prefix("/registry/").unwrap_or(prefix);
            if namespace.is_empty() {
                format!("{prefix}{name}")
            } else {
                format!("{prefix}{namespace}/{name}")
            }
        });
        let (commits, spans) = chain(commits.iter(), spans.iter(), key.as_deref(), since);
        Ok(Chain { commits, spans })
    }
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
    fn a_chain_holds_what_follows_from_its_root() {
        let commits =
            [commit(1, 0, "a"), commit(2, 0, "b"), commit(3, 1, "c"), commit(4, 3, "d"), commit(5, 2, "e")];
        let (chosen, _) = chain(commits.iter(), [].iter(), Some("a"), 0);
        assert_eq!(chosen.iter().map(|c| c.revision).collect::<Vec<_>>(), [1, 3, 4]);
    }
}
