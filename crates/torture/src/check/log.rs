//! The log of all changes, put together from every acknowledgement, event and read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use store::Revision;

use super::{Breaches, Rule};
use crate::history::{Call, Event, History, Keep, Line, Operation, Outcome, State};

/// A change of a key.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) key: String,
    /// `None`: the key was removed.
    pub(super) value: Option<String>,
    /// The line of the restart that it did not survive.
    pub(super) lost_at: Option<usize>,
}

/// All changes that anybody was told of.
#[derive(Debug, Default)]
pub(super) struct Log {
    changes: BTreeMap<Revision, Change>,
    by_key: BTreeMap<String, Vec<Revision>>,
    by_value: HashMap<String, Revision>,
    /// (line, after, up to) of what restarts made unknowable.
    pub(super) gaps: Vec<(usize, Revision, Revision)>,
    /// Key and revision of what may have been removed without anybody having seen when.
    unseen_removals: HashSet<(String, Revision)>,
    ends: Vec<End>,
}

/// A kind went, with all its objects.
#[derive(Debug)]
struct End {
    keys: (String, String),
    /// What went was removed after this.
    after: Revision,
    /// And before this, if it was seen to be so.
    gone: Option<Revision>,
}

impl End {
    fn of(operation: &Operation) -> Option<Self> {
        let Call::End { start, end, after } = &operation.call else { return None };
        let gone = if let Outcome::Newest(gone) = operation.outcome { Some(gone) } else { None };
        Some(Self { keys: (start.clone(), end.clone()), after: *after, gone })
    }

    fn is_of(&self, key: &str) -> bool {
        key >= self.keys.0.as_str() && key < self.keys.1.as_str()
    }

    /// Whether it may have removed something at a revision.
    fn may_remove_at(&self, revision: Revision) -> bool {
        self.after < revision && self.gone.is_none_or(|gone| revision <= gone)
    }
}

impl Log {
    pub(super) fn of(history: &History, operations: &[Operation], breaches: &mut Breaches) -> Self {
        let mut log = Self { ends: operations.iter().filter_map(End::of).collect(), ..Self::default() };
        for operation in operations {
            log.take_operation(operation, breaches);
        }
        for line in &history.lines {
            if let Line::Event(_, event) = line {
                log.take_event(event, breaches);
            }
        }
        for (revision, change) in &log.changes {
            log.by_key.entry(change.key.clone()).or_default().push(*revision);
        }
        log.unseen_removals =
            operations.iter().filter_map(|operation| log.unseen_removal(operation)).collect();
        log.lose(history, operations, breaches);
        log.look_for_authors(operations, breaches);
        log
    }

    fn take_operation(&mut self, operation: &Operation, breaches: &mut Breaches) {
        match (&operation.call, &operation.outcome) {
            (call, Outcome::Wrote(revision)) => {
                let key = call.key().unwrap_or_default();
                self.add(*revision, key, call.value(), breaches);
            }
            (call, Outcome::Refused(Some(state)) | Outcome::Got(Some(state))) => {
                self.take_state(call.key().unwrap_or_default(), state, breaches);
            }
            (_, Outcome::Listed { states, .. }) => {
                states.iter().for_each(|(key, state)| self.take_state(key, state, breaches));
            }
            _ => {}
        }
    }

    fn take_event(&mut self, event: &Event, breaches: &mut Breaches) {
        let value = event.state.as_ref().map(|state| state.value.as_str());
        self.add(event.revision, &event.key, value, breaches);
        if let Some(Some(previous)) = &event.previous {
            self.take_state(&event.key, previous, breaches);
        }
    }

    fn take_state(&mut self, key: &str, state: &State, breaches: &mut Breaches) {
        self.add(state.revision, key, Some(&state.value), breaches);
    }

    fn add(&mut self, revision: Revision, key: &str, value: Option<&str>, breaches: &mut Breaches) {
        let known = self.changes.entry(revision).or_insert_with(|| Change {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            lost_at: None,
        });
        if known.key != key || known.value.as_deref() != value {
            let what = format!("revision {revision} is {key}={value:?} and {}={:?}", known.key, known.value);
            breaches.add(Rule::OneChangePerRevision, what);
        }
        let Some(value) = value else { return };
        match self.by_value.get(value) {
            Some(other) if *other != revision => {
                let what = format!("{value} was written once, and has revisions {other} and {revision}");
                breaches.add(Rule::OneChangePerRevision, what);
            }
            _ => drop(self.by_value.insert(value.to_owned(), revision)),
        }
    }

    /// Marks what restarts did away with, which must have been made loosely: also what was not acknowledged yet when
    /// somebody saw it.
    fn lose(&mut self, history: &History, operations: &[Operation], breaches: &mut Breaches) {
        let mut durable: HashMap<&str, &Operation> = HashMap::new();
        let mut acknowledged: BTreeMap<Revision, &Operation> = BTreeMap::new();
        for operation in operations.iter().filter(|operation| operation.call.keep() == Some(Keep::Durably)) {
            durable.extend(operation.call.value().map(|value| (value, operation)));
            if let Outcome::Wrote(revision) = &operation.outcome {
                acknowledged.insert(*revision, operation);
            }
        }
        for (at, line) in history.lines.iter().enumerate() {
            let Line::Restart { newest, kept } = line else { continue };
            self.gaps.push((at, *kept, *newest));
            let cut = (Bound::Excluded(*kept), Bound::Included((*newest).max(*kept)));
            for (revision, change) in self.changes.range_mut(cut).filter(|(_, it)| it.lost_at.is_none()) {
                change.lost_at = Some(at);
                let author = change.value.as_deref().and_then(|value| durable.get(value));
                if let Some(operation) = author.or_else(|| acknowledged.get(revision)) {
                    let what = format!("{:?} was seen as {revision} and is gone", operation.call);
                    breaches.add(Rule::NothingLost, what);
                }
            }
        }
    }

    /// A removal whose revision nobody was told: not even its author, over the API.
    fn unseen_removal(&self, operation: &Operation) -> Option<(String, Revision)> {
        let Call::Delete { key, expect, .. } = &operation.call else { return None };
        if !matches!(operation.outcome, Outcome::Done | Outcome::Unknown(_)) {
            return None;
        }
        let next = self.by_key.get(key)?.iter().find(|revision| **revision > *expect);
        let is_seen = next.and_then(|next| self.changes.get(next)).is_some_and(|next| next.value.is_none());
        (!is_seen).then(|| (key.clone(), *expect))
    }

    /// Whether what a key holds since a revision may have been removed unseen `by` another.
    pub(super) fn may_be_removed(&self, key: &str, revision: Revision, by: Revision) -> bool {
        let is_ended =
            |end: &End| end.is_of(key) && end.after < by && end.gone.is_none_or(|gone| revision <= gone);
        self.unseen_removals.contains(&(key.to_owned(), revision)) || self.ends.iter().any(is_ended)
    }

    /// Every value has somebody who wrote it, every removal somebody who may have.
    fn look_for_authors(&self, operations: &[Operation], breaches: &mut Breaches) {
        let mut puts: HashMap<&str, &Operation> = HashMap::new();
        let mut deletes: HashMap<(&str, Revision), Vec<&Operation>> = HashMap::new();
        for operation in operations {
            match &operation.call {
                Call::Create { value, .. } | Call::Update { value, .. } => {
                    puts.insert(value, operation);
                }
                Call::Delete { key, expect, .. } => {
                    deletes.entry((key, *expect)).or_default().push(operation)
                }
                _ => {}
            }
        }
        let may_have = |operation: &&Operation| {
            matches!(operation.outcome, Outcome::Wrote(_) | Outcome::Done | Outcome::Unknown(_))
        };
        for (revision, change) in &self.changes {
            let what = format!("revision {revision}: {}={:?}", change.key, change.value);
            if let Some(value) = &change.value {
                let author = puts.get(value.as_str());
                if author.is_none_or(|author| author.call.key() != Some(&change.key)) {
                    breaches.add(Rule::NothingInvented, format!("{what} was written by nobody"));
                } else if !author.is_some_and(may_have) {
                    breaches.add(Rule::NothingInvented, format!("{what} was written after all: {author:?}"));
                }
                continue;
            }
            // What it removed may have gone with it.
            let then = change.lost_at.map_or(usize::MAX, |lost| lost.saturating_sub(1));
            let Some(before) = self.state(&change.key, revision - 1, then) else { continue };
            let expires =
                puts.get(before.value.as_str()).is_some_and(|it| it.call.keep() == Some(Keep::ForAWhile));
            let key = (change.key.as_str(), before.revision);
            let deleted = deletes.get(&key).is_some_and(|all| all.iter().any(may_have));
            let ended = self.ends.iter().any(|end| end.is_of(&change.key) && end.may_remove_at(*revision));
            if !expires && !deleted && !ended {
                breaches.add(Rule::NothingInvented, format!("{what} was removed by nobody"));
            }
        }
    }

    /// The revision of a value that somebody has seen.
    pub(super) fn revision_of(&self, value: &str) -> Option<Revision> {
        self.by_value.get(value).copied()
    }

    /// What `key` held at `revision`, as it was known at line `now`.
    pub(super) fn state(&self, key: &str, revision: Revision, now: usize) -> Option<State> {
        let revisions = self.by_key.get(key)?;
        let end = revisions.partition_point(|it| *it <= revision);
        let ended = self.ends.iter().filter(|end| end.is_of(key)).filter_map(|end| end.gone);
        let ended = ended.filter(|gone| *gone <= revision).max().unwrap_or(0);
        let begin = revisions.partition_point(|it| *it <= ended);
        let mut state: Option<State> = None;
        // Back to where the key came to be.
        for at in revisions.get(begin..end)?.iter().rev() {
            let change = self.changes.get(at).filter(|change| change.lost_at.is_none_or(|lost| now < lost));
            let Some(change) = change else { continue };
            match (&change.value, &mut state) {
                (None, _) => break,
                (Some(_), Some(state)) => state.created = Some(*at),
                (Some(value), none) => {
                    *none = Some(State { value: value.clone(), revision: *at, created: Some(*at) });
                }
            }
        }
        state
    }

    /// Keys in `[start, end)`.
    pub(super) fn keys(&self, start: &str, end: &str) -> impl Iterator<Item = &str> {
        let (start, end) = (start.to_owned(), end.to_owned());
        let keys = self.by_key.keys().map(String::as_str);
        keys.filter(move |key| *key >= start.as_str() && *key < end.as_str())
    }

    /// Changes after `after` up to `upto` of keys in `[start, end)` that are known at line `now`.
    pub(super) fn changes(
        &self,
        after: Revision,
        upto: Revision,
        (start, end): (&str, &str),
        now: usize,
    ) -> impl Iterator<Item = (Revision, &Change)> {
        let (start, end) = (start.to_owned(), end.to_owned());
        let bounds = (Bound::Excluded(after), Bound::Included(upto.max(after)));
        self.changes.range(bounds).map(|(revision, change)| (*revision, change)).filter(move |(_, change)| {
            change.key.as_str() >= start.as_str()
                && change.key.as_str() < end.as_str()
                && change.lost_at.is_none_or(|lost| now < lost)
        })
    }

    /// Whether a restart before line `now` made `revision` unknowable.
    pub(super) fn is_in_gap(&self, revision: Revision, now: usize) -> bool {
        self.gaps.iter().any(|(at, kept, newest)| *at < now && *kept < revision && revision < *newest)
    }
}
