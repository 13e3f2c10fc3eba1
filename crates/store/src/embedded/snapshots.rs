//! Read transactions of this process, handed on from reader to reader as long as nothing is committed.
//!
//! To begin one writes to the engine's table of readers, `lock.mdb`: a mapped file, whose page the kernel then writes
//! back every few seconds. So a transaction that its reader has done with waits here for the next one, and goes when the
//! writer has committed: readers of a store at rest write nothing, and none sees less than the last commit.
//!
//! Whoever asks for the oldest hears of every reader of this process, because they begin under the same lock. What waits
//! shows the last commit, whose pages the engine does not use anew anyway.

use std::collections::BTreeMap;
use std::ops::Deref;

use heed::{Env, RoTxn, WithoutTls};
use parking_lot::Mutex;

use super::sealed::Rows;

/// A transaction that holds its environment.
type Txn = RoTxn<'static, WithoutTls>;

/// All of an environment.
pub(super) struct Snapshots {
    env: Env<WithoutTls>,
    /// Any table: of a transaction that has failed the engine tells nothing more.
    table: Rows,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often the writer has committed.
    commits: u64,
    /// Begun since then, and done with.
    waiting: Vec<Txn>,
    /// How many there are, by the commit that they show.
    open: BTreeMap<usize, usize>,
}

/// One of them, in use.
pub(super) struct Snapshot<'s> {
    all: &'s Snapshots,
    /// Taken when it is dropped.
    txn: Option<Txn>,
    commits: u64,
}

impl Snapshots {
    pub(super) fn new(env: Env<WithoutTls>, table: Rows) -> Self {
        Self { env, table, state: Mutex::default() }
    }

    /// What was committed last.
    pub(super) fn newest(&self) -> Result<Snapshot<'_>, heed::Error> {
        let mut state = self.state.lock();
        let txn = match state.waiting.pop() {
            Some(txn) => txn,
            None => {
                let txn = self.env.clone().static_read_txn()?;
                *state.open.entry(txn.id()).or_default() += 1;
                txn
            }
        };
        Ok(Snapshot { all: self, txn: Some(txn), commits: state.commits })
    }

    /// To be called after each commit, before anybody is told of it.
    pub(super) fn committed(&self) {
        let mut state = self.state.lock();
        state.commits += 1;
        let passed = std::mem::take(&mut state.waiting);
        passed.iter().for_each(|txn| state.closed(txn));
        drop(state);
        drop(passed);
    }

    /// The oldest commit that somebody reads.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.state.lock().open.keys().next().map(|id| *id as u64)
    }
}

impl State {
    fn closed(&mut self, txn: &Txn) {
        if let Some(count) = self.open.get_mut(&txn.id()) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&txn.id());
            }
        }
    }
}

impl Deref for Snapshot<'_> {
    type Target = RoTxn<'static, WithoutTls>;

    #[expect(clippy::expect_used, reason = "only `drop` takes it")]
    fn deref(&self) -> &Self::Target {
        self.txn.as_ref().expect("a snapshot in use has its transaction")
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let Some(txn) = self.txn.take() else { return };
        let has_failed = self.all.table.stat(&txn).is_err();
        let mut state = self.all.state.lock();
        if state.commits == self.commits && !has_failed {
            state.waiting.push(txn);
            return;
        }
        state.closed(&txn);
        drop(state);
        drop(txn);
    }
}
