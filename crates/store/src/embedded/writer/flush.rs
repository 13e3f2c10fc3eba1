//! A group on its way to disk, and what it means when the disk refuses.
//!
//! The engine writes to unused pages and says which are used last, by one sector: a group that fails has not happened.
//! See `docs/adr/0007-a-failed-flush.md`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Writer;
use super::sweep::SWEEP_RECORDS;
use crate::embedded::disk_probe::Refusal;
use crate::embedded::sealed::of_disk;
use crate::embedded::stage::Stage;
use crate::embedded::tables::Counter;
use crate::embedded::thinning::{self, Thinned};
use crate::{Revision, StoreError};

/// Revisions that may be visible before they are on disk.
const RESERVE: u64 = 10_000;
/// The engine writes whole ones.
const PAGE_BYTES: usize = 4096;

impl Writer {
    /// [`Self::commit`], if the disk can be trusted, and what its failure means.
    pub(super) fn try_commit(&mut self, stage: &Stage, is_over: bool) -> Result<(), StoreError> {
        if self.state.is_disk_doubtful {
            self.disk_probe.run().map_err(|refusal| match of_disk(refusal.error()) {
                StoreError::Failed(why) => StoreError::Refused(why),
                other => other,
            })?;
        }
        if self.core.tables.is_read_only {
            return Err(StoreError::Failed(
                "the disk takes writes again, the data is opened anew".to_owned(),
            ));
        }
        match self.commit(stage, is_over) {
            Ok(()) => {
                self.state.is_disk_doubtful = false;
                if self.core.faults.lock().disk.take().is_some() {
                    tracing::info!("the store takes writes again");
                }
                Ok(())
            }
            Err(error) => Err(self.judge(error, bytes_needed(stage))),
        }
    }

    /// What a failed commit means, which would have taken about `bytes`.
    fn judge(&mut self, error: StoreError, bytes: u64) -> StoreError {
        // The engine takes nothing more when it could not say which pages are used.
        if let Err(StoreError::Failed(panicked)) = self.core.tables.write().map(drop) {
            return StoreError::Failed(format!("{error} ({panicked})"));
        }
        self.state.is_disk_doubtful = true;
        match error {
            StoreError::Failed(why) => match self.disk_probe.run_with_free_space(bytes) {
                Err(Refusal::Write(error)) => match of_disk(&error) {
                    StoreError::NoSpace => StoreError::NoSpace,
                    _ => StoreError::Refused(why),
                },
                Err(Refusal::Flush(_)) | Ok(()) => StoreError::Failed(why),
            },
            other => other,
        }
    }

    /// Writes the overlay and the stage to disk, with a step of compaction if one is under way.
    fn commit(&mut self, stage: &Stage, is_over: bool) -> Result<(), StoreError> {
        let tables = &self.core.tables;
        let overlay = Arc::clone(&self.core.shared.lock().overlay);
        let expired = stage.expired.unwrap_or(self.state.expired);
        let last = stage.next - 1;
        let reserved = reserved(last, self.state.reserved, is_over);
        // Who stops in order leaves a whole history.
        let thin = if is_over { thinning::whole } else { thinning::thinned };
        let Thinned { records, coalesced, whole } = thin(&overlay, &self.state.coalesced);
        let mut txn = tables.write()?;
        if let Some(lost) = self.state.lost {
            tables.add_gap(&mut txn, lost)?;
        }
        for record in records.iter().chain(stage.items.iter().map(|item| &item.record)) {
            tables.put(&mut txn, record)?;
        }
        if expired > self.state.expired_on_disk {
            tables.expired(&mut txn, expired)?;
        }
        tables.set(&mut txn, Counter::Last, last)?;
        tables.set(&mut txn, Counter::Reserved, reserved)?;
        let target = self.state.sweep.as_ref().map_or(0, |sweep| sweep.target());
        let begin = self.state.begin_on_disk.max(target).max(whole.unwrap_or(0));
        if begin > self.state.begin_on_disk {
            tables.set(&mut txn, Counter::Compacted, begin)?;
        }
        let swept = match self.state.sweep.as_ref().map(|sweep| sweep.step(tables, &mut txn)) {
            Some(Err(damaged @ StoreError::Damaged(_))) => {
                drop(txn);
                tracing::error!(error = %damaged, "compaction is given up: what it would have to read is damaged");
                self.core.faults.lock().damage = Some(damaged.to_string());
                self.drop_sweep(&damaged);
                return self.commit(stage, is_over);
            }
            swept => swept.transpose()?,
        };
        tables.commit(txn)?;
        (self.state.coalesced, self.state.begin_on_disk) = (coalesced, begin);
        if whole.is_some() {
            Arc::make_mut(&mut self.state.coalesced).compact(self.core.compacted.load(Ordering::Acquire));
        }
        (self.state.reserved, self.state.expired_on_disk, self.state.lost) = (reserved, expired, None);
        self.state.is_over_bound = tables.high_water_bytes() > self.used_bytes_max
            && tables.used_bytes().is_ok_and(|used| used > self.used_bytes_max);
        self.end_sweep(swept);
        Ok(())
    }
}

/// Up to where revisions may be given out before they are on disk.
fn reserved(last: Revision, before: Revision, is_over: bool) -> Revision {
    match is_over {
        true => last,
        false if before < last + RESERVE / 2 => last + RESERVE,
        false => before,
    }
}

/// What a group takes on disk, generously: its bytes, and the pages that lead to them and to a step of compaction.
fn bytes_needed(stage: &Stage) -> u64 {
    let bytes: usize = stage.items.iter().map(|item| item.record.bytes()).sum();
    (2 * bytes + (stage.items.len() + SWEEP_RECORDS) * 2 * PAGE_BYTES) as u64
}
