//! Compaction: what is older than a revision goes from the log, a part with each group.
//!
//! It is asked for (the API server does so every few minutes), and comes by itself when the values that were replaced
//! since the last one take more than they may: however fast objects change, the disk holds a bounded part of their
//! past. Little work waits for a group that is written anyway.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Reply, Writer, answer};
use crate::embedded::stage::Stage;
use crate::embedded::tables::{Counter, Gap, Tables};
use crate::{Revision, StoreError};

/// Log records that compaction goes through in one group.
pub(super) const SWEEP_RECORDS: usize = 500;
/// Log records that compaction leaves for the next write, whatever it is.
const WAITING_RECORDS: usize = 64;

/// Compaction under way.
pub(super) struct Sweep {
    target: Revision,
    swept: Revision,
    replies: Vec<Reply<()>>,
    /// It is little: it goes with whatever is written next.
    can_wait: bool,
}

/// How much of the past there is.
pub(super) struct History {
    bytes_max: u64,
    /// Of values that were replaced or removed after `mark`.
    bytes: u64,
    mark: Revision,
}

impl History {
    pub(super) fn new(bytes_max: u64, from: Revision) -> Self {
        Self { bytes_max, bytes: 0, mark: from }
    }

    /// Counts what a group replaces. If half of what may be kept has come together twice, the revision up to which the
    /// first half can go.
    pub(super) fn add(&mut self, stage: &Stage) -> Option<Revision> {
        let replaced = stage.items.iter().filter_map(|item| item.previous.as_ref());
        self.bytes += replaced.map(|entry| (entry.key.len() + entry.value.len()) as u64).sum::<u64>();
        if self.bytes < self.bytes_max / 2 {
            return None;
        }
        self.bytes = 0;
        Some(std::mem::replace(&mut self.mark, stage.next - 1))
    }
}

impl Sweep {
    /// What a process before this one has left undone.
    pub(super) fn unfinished(swept: Revision, target: Revision) -> Option<Self> {
        (swept < target).then(|| Self { target, swept, replies: Vec::new(), can_wait: true })
    }

    pub(super) fn target(&self) -> Revision {
        self.target
    }

    /// Whether a group has to be written for its sake.
    pub(super) fn is_urgent(&self) -> bool {
        !self.can_wait
    }

    /// Clears a part of the log below the target: what a record replaced, and removals themselves.
    pub(super) fn step(&self, tables: &Tables, txn: &mut heed::RwTxn<'_>) -> Result<Revision, StoreError> {
        let mut rows = Vec::new();
        for row in tables.log(txn, self.swept, self.target)?.take(SWEEP_RECORDS) {
            let (revision, head) = row?;
            rows.push((revision, head.before, head.is_tombstone.then(|| head.key.to_owned())));
        }
        let swept = match rows.last() {
            Some((revision, ..)) if rows.len() == SWEEP_RECORDS => *revision,
            _ => self.target,
        };
        for (revision, before, removed) in rows {
            if before > 0 {
                tables.forget(txn, before)?;
            }
            if let Some(key) = removed {
                tables.forget(txn, revision)?;
                tables.forget_key(txn, &key, revision)?;
            }
        }
        let passed = |gap: &Gap| gap.to <= self.target;
        for gap in tables.gaps(txn)?.into_iter().filter(passed) {
            tables.drop_gap(txn, gap)?;
        }
        tables.set(txn, Counter::Swept, swept)?;
        Ok(swept)
    }

    /// Whether there is so little to do that it need not cause a write.
    fn is_little(&self, tables: &Tables) -> bool {
        let rows = tables.read().and_then(|txn| {
            let rows = tables.log(&txn, self.swept, self.target)?.take(WAITING_RECORDS + 1);
            rows.map(|row| row.map(drop)).collect::<Result<Vec<()>, _>>()
        });
        rows.is_ok_and(|rows| rows.len() <= WAITING_RECORDS)
    }
}

impl Writer {
    /// Somebody asks for compaction, or (without a reply) the amount of history does.
    pub(super) fn begin_sweep(&mut self, target: Revision, reply: Option<Reply<()>>, now_us: i64) {
        let done = |reply: Option<Reply<()>>, result: Result<(), StoreError>| {
            reply.into_iter().for_each(|reply| answer(reply, result.clone()));
        };
        if target > self.state.last {
            return done(reply, Err(StoreError::Future { requested: target, newest: self.state.last }));
        }
        if target <= self.state.compacted && self.state.sweep.is_none() {
            return done(reply, Ok(()));
        }
        if let Err(error) = self.core.tables.forget_dead_readers() {
            tracing::warn!(%error, "pages may stay in use for readers that are gone");
        }
        self.core.compacted.fetch_max(target, Ordering::AcqRel);
        Arc::make_mut(&mut self.state.coalesced).compact(target);
        let swept = self.state.compacted;
        let fresh = || Sweep { target, swept, replies: Vec::new(), can_wait: true };
        let mut sweep = self.state.sweep.take().unwrap_or_else(fresh);
        sweep.target = sweep.target.max(target);
        sweep.can_wait = !self.state.is_over_bound && sweep.is_little(&self.core.tables);
        if sweep.can_wait {
            let at = now_us.saturating_add(self.heartbeat_flush_us);
            self.state.flush_at.get_or_insert(at);
            done(reply, Ok(()));
        } else {
            sweep.replies.extend(reply);
        }
        self.state.sweep = Some(sweep);
    }

    /// So far it is on disk.
    pub(super) fn end_sweep(&mut self, swept: Option<Revision>) {
        let (Some(swept), Some(sweep)) = (swept, &mut self.state.sweep) else { return };
        (sweep.swept, sweep.can_wait) = (swept, false);
        if swept >= sweep.target
            && let Some(sweep) = self.state.sweep.take()
        {
            self.state.compacted = sweep.target;
            self.state.may_give_back = true;
            sweep.replies.into_iter().for_each(|reply| answer(reply, Ok(())));
        }
    }

    /// The disk took nothing: it is tried again with what is written next.
    pub(super) fn put_sweep_off(&mut self, error: &StoreError) {
        if let Some(sweep) = &mut self.state.sweep {
            sweep.can_wait = true;
            sweep.replies.drain(..).for_each(|reply| answer(reply, Err(error.clone())));
        }
    }

    /// It will not go on.
    pub(super) fn drop_sweep(&mut self, error: &StoreError) {
        for reply in self.state.sweep.take().into_iter().flat_map(|sweep| sweep.replies) {
            answer(reply, Err(error.clone()));
        }
    }
}
