//! The writes of one group, decided in order, each against what those before it left.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::record::Record;
use super::reply::{Reply, answer};
use super::tables::KEY_BYTES_MAX;
use super::view::{View, of_key};
use crate::{Change, Durability, Entry, Expect, Revision, StoreError, Write};

/// Expiry is rounded up to whole seconds, so that what was written together expires together.
const EXPIRY_STEP_US: i64 = 1_000_000;

/// A write that will happen.
pub(super) struct Staged {
    pub(super) record: Arc<Record>,
    pub(super) previous: Option<Entry>,
    /// Nobody waits for an expiry.
    pub(super) reply: Option<Reply<Revision>>,
}

/// A write that lost to another one of its group: it may not be told what is there before that is so.
pub(super) struct Refused {
    pub(super) current: Option<Entry>,
    pub(super) reply: Reply<Revision>,
}

/// The group so far.
pub(super) struct Stage {
    pub(super) items: Vec<Staged>,
    pub(super) refused: Vec<Refused>,
    /// Whether one of them must be on disk before it is acknowledged.
    pub(super) is_synced: bool,
    /// The revision that the next write gets.
    pub(super) next: Revision,
    /// How far expiry has come, if it has.
    pub(super) expired: Option<(i64, Revision)>,
    newest: HashMap<String, usize>,
    is_full: bool,
    now_us: i64,
    /// Nothing new expires before this.
    expiry_floor_us: i64,
}

/// A key's state before a write.
struct Before {
    /// Of its newest record, removals included; 0 if there is none.
    revision: Revision,
    entry: Option<Entry>,
}

/// A record that has no revision yet.
struct NewRecord {
    key: String,
    /// `None` removes the key.
    value: Option<Bytes>,
    /// 0 for never.
    expires_us: i64,
    cause: Bytes,
}

/// About what a write adds to a group.
pub(super) fn write_bytes(write: &Write) -> usize {
    match &write.change {
        Change::Put { value, .. } => value.len() + write.key.len() + write.cause.len(),
        Change::Delete => write.key.len() + write.cause.len(),
    }
}

impl Stage {
    pub(super) fn new(last: Revision, is_full: bool, now_us: i64, expiry_floor_us: i64) -> Self {
        Self {
            items: Vec::new(),
            refused: Vec::new(),
            is_synced: false,
            next: last + 1,
            expired: None,
            newest: HashMap::new(),
            is_full,
            now_us,
            expiry_floor_us,
        }
    }

    /// Stages `write`, or answers why not.
    pub(super) fn write(
        &mut self,
        view: &View<'_>,
        write: Write,
        reply: Reply<Revision>,
    ) -> Result<(), StoreError> {
        if write.key.is_empty() || write.key.len() > KEY_BYTES_MAX {
            let why = format!("a key must have 1 to {KEY_BYTES_MAX} bytes, this one has {}", write.key.len());
            answer(reply, Err(StoreError::Failed(why)));
            return Ok(());
        }
        let before = match self.before(view, &write.key) {
            Err(damaged @ StoreError::Damaged(_)) => {
                answer(reply, Err(damaged));
                return Ok(());
            }
            before => before?,
        };
        let is_met = match (write.expect, &before.entry) {
            (Expect::Absent, None) => matches!(write.change, Change::Put { .. }),
            (Expect::Revision(revision), Some(entry)) => entry.revision == revision,
            _ => false,
        };
        if !is_met {
            self.refuse(&write.key, before.entry, reply);
            return Ok(());
        }
        if let Some(other) = &write.only_while
            && self.revision_of(view, &other.key)? != Some(other.revision)
        {
            answer(reply, Err(StoreError::Overtaken));
            return Ok(());
        }
        let (value, expires_us) = match write.change {
            Change::Delete => (None, 0),
            Change::Put { .. } if self.is_full => {
                answer(reply, Err(StoreError::NoSpace));
                return Ok(());
            }
            Change::Put { value, ttl_seconds } => {
                (Some(value), ttl_seconds.map_or(0, |s| self.expires_us(s)))
            }
        };
        self.is_synced |= write.durability == Durability::Synced;
        let new = NewRecord { key: write.key, value, expires_us, cause: write.cause };
        self.push(before, new, Some(reply));
        Ok(())
    }

    /// Stages the removal of what `row` of the expiry table is about, if it is still the newest.
    pub(super) fn expire(
        &mut self,
        view: &View<'_>,
        row: (i64, Revision),
        key: &str,
    ) -> Result<(), StoreError> {
        self.expired = Some(row);
        let before = match self.before(view, key) {
            Err(error @ StoreError::Damaged(_)) => {
                tracing::error!(%error, "it does not expire");
                return Ok(());
            }
            before => before?,
        };
        if before.revision == row.1 && before.entry.is_some() {
            let new = NewRecord { key: key.to_owned(), value: None, expires_us: 0, cause: Bytes::new() };
            self.push(before, new, None);
        }
        Ok(())
    }

    /// Answers a write whose condition does not hold: at once, if what is there instead is committed.
    fn refuse(&mut self, key: &str, current: Option<Entry>, reply: Reply<Revision>) {
        if self.newest.contains_key(key) {
            self.refused.push(Refused { current, reply });
        } else {
            answer(reply, Err(StoreError::Conflict { current }));
        }
    }

    /// Whoever waits for an answer, when nothing of the group has happened.
    pub(super) fn into_replies(self) -> impl Iterator<Item = Reply<Revision>> {
        let refused = self.refused.into_iter().map(|refused| refused.reply);
        self.items.into_iter().filter_map(|item| item.reply).chain(refused)
    }

    fn expires_us(&self, ttl_seconds: u32) -> i64 {
        let at = self.now_us.saturating_add(i64::from(ttl_seconds) * 1_000_000);
        let at = at.saturating_add(EXPIRY_STEP_US - 1) / EXPIRY_STEP_US * EXPIRY_STEP_US;
        at.max(self.expiry_floor_us.saturating_add(1))
    }

    fn before(&self, view: &View<'_>, key: &str) -> Result<Before, StoreError> {
        if let Some(item) = self.newest.get(key).and_then(|index| self.items.get(*index)) {
            return Ok(Before { revision: item.record.revision, entry: item.record.entry() });
        }
        let Some(pointer) = view.pointer(key)? else { return Ok(Before { revision: 0, entry: None }) };
        let entry = match pointer.is_tombstone {
            true => None,
            false => view.newest_record(pointer).map_err(|error| of_key(error, key))?.entry(),
        };
        Ok(Before { revision: pointer.revision, entry })
    }

    /// The last change of a key that is there.
    fn revision_of(&self, view: &View<'_>, key: &str) -> Result<Option<Revision>, StoreError> {
        if let Some(item) = self.newest.get(key).and_then(|index| self.items.get(*index)) {
            return Ok((!item.record.is_tombstone()).then_some(item.record.revision));
        }
        let pointer = view.pointer(key)?.filter(|pointer| !pointer.is_tombstone);
        Ok(pointer.map(|pointer| pointer.revision))
    }

    fn push(&mut self, before: Before, new: NewRecord, reply: Option<Reply<Revision>>) {
        let NewRecord { key, value, expires_us, cause } = new;
        let revision = self.next;
        self.next += 1;
        let create_revision = before.entry.as_ref().map_or(revision, |entry| entry.create_revision);
        self.newest.insert(key.clone(), self.items.len());
        let record =
            Record { revision, key, value, create_revision, before: before.revision, expires_us, cause };
        self.items.push(Staged { record: Arc::new(record), previous: before.entry, reply });
    }
}

#[cfg(test)]
mod tests;
