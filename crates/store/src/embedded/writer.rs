//! The one writer: takes all that is queued, decides each write against the newest state, commits the group.
//!
//! A group with a synced write in it goes to disk in one transaction, with one flush, together with the overlay
//! before it; a group of relaxed writes goes into the overlay. Revisions are given out here only. A revision that
//! is visible before it is on disk stays below `Reserved`, which is on disk: after a crash counting goes on above
//! it, so no revision is ever given out twice.
//!
//! How a group goes to disk and what it means when that fails is in [`flush`], compaction in [`sweep`]. After a failed
//! flush nothing is acknowledged any more: [`Core::end`] asks for the process to start over.

mod flush;
mod sweep;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Clock;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};

use self::sweep::{History, Sweep};
use super::coalesced::Coalesced;
use super::disk_probe::DiskProbe;
use super::give_back::{GiveBack, Left};
use super::overlay::Overlay;
use super::record::Record;
use super::reply::{Reply, answer};
use super::stage::{Refused, Stage, Staged, write_bytes};
use super::tables::Gap;
use super::{Core, DATA};
use crate::{Entry, Event, Revision, StoreError, Write};

/// Writes in one group.
const GROUP_MAX: usize = 256;
/// Bytes of values in one group.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// Keys that expire in one group.
const EXPIRE_MAX: usize = 500;

/// What the writer is asked to do.
pub(super) enum Op {
    Write(Write, Reply<Revision>),
    Compact(Revision, Reply<()>),
    /// The time that the writer asked to be woken at has come.
    Tick,
    Close(Reply<()>),
}

/// The writer's own state; its thread is the only owner.
pub(super) struct Writer {
    pub(super) core: Arc<Core>,
    pub(super) queue: mpsc::Receiver<Op>,
    /// When to be woken, in microseconds since the epoch.
    pub(super) due: watch::Sender<Option<i64>>,
    pub(super) clock: Clock,
    pub(super) relaxed_flush_us: i64,
    pub(super) heartbeat_flush_us: i64,
    /// A `put` is refused when more than this is used.
    pub(super) used_bytes_max: u64,
    disk_probe: DiskProbe,
    give_back: GiveBack,
    state: State,
}

struct State {
    last: Revision,
    reserved: Revision,
    /// What compaction has done.
    compacted: Revision,
    /// History on disk begins here: after a restart nothing older is answered.
    begin_on_disk: Revision,
    /// What the disk was spared.
    coalesced: Arc<Coalesced>,
    /// Expiry up to here is done.
    expired: (i64, Revision),
    /// The expiry table begins after this.
    expired_on_disk: (i64, Revision),
    next_expiry: Option<i64>,
    flush_at: Option<i64>,
    sweep: Option<Sweep>,
    history: History,
    /// Compaction has freed something since it was last looked.
    may_give_back: bool,
    /// More is used than may be.
    is_over_bound: bool,
    /// The disk is tried before the data is touched: at first, and after it has refused.
    is_disk_doubtful: bool,
    /// The tail that a crash has cut off, as long as the disk does not say so.
    lost: Option<Gap>,
}

/// The counters that a writer starts from.
pub(super) struct Start {
    pub(super) last: Revision,
    pub(super) reserved: Revision,
    pub(super) compacted: Revision,
    pub(super) swept: Revision,
    pub(super) lost: Option<Gap>,
}

/// What one round took from the queue, beside the writes.
#[derive(Default)]
struct Round {
    writes: Vec<(Write, Reply<Revision>)>,
    compactions: Vec<(Revision, Reply<()>)>,
    is_tick: bool,
    closing: Vec<Reply<()>>,
    is_over: bool,
}

/// Whether there will be another round.
#[derive(PartialEq, Eq)]
enum Going {
    On,
    Over,
}

impl Going {
    fn is_over(&self) -> bool {
        *self == Self::Over
    }
}

impl Round {
    fn add(&mut self, op: Op) {
        match op {
            Op::Write(write, reply) => self.writes.push((write, reply)),
            Op::Compact(revision, reply) => self.compactions.push((revision, reply)),
            Op::Tick => self.is_tick = true,
            Op::Close(reply) => {
                self.closing.push(reply);
                self.is_over = true;
            }
        }
    }
}

impl Writer {
    pub(super) fn new(
        core: Arc<Core>,
        queue: mpsc::Receiver<Op>,
        options: &super::Options,
        start: &Start,
        dir: &Path,
    ) -> Self {
        let state = State {
            last: start.last,
            reserved: start.reserved,
            compacted: start.swept.min(start.compacted),
            begin_on_disk: start.compacted,
            coalesced: Arc::default(),
            expired: (0, 0),
            expired_on_disk: (0, 0),
            next_expiry: Some(0),
            flush_at: None,
            sweep: Sweep::unfinished(start.swept, start.compacted),
            history: History::new(options.history_bytes_max, start.last),
            may_give_back: true,
            is_over_bound: false,
            is_disk_doubtful: true,
            lost: start.lost,
        };
        Self {
            core,
            queue,
            due: watch::Sender::new(Some(0)),
            clock: options.clock.clone(),
            relaxed_flush_us: microseconds(options.relaxed_flush),
            heartbeat_flush_us: microseconds(options.heartbeat_flush),
            used_bytes_max: options.bytes_max,
            disk_probe: DiskProbe::new(dir),
            give_back: GiveBack::new(dir.join(DATA), options.slack_bytes_min),
            state,
        }
    }

    /// Works on the calling thread until the queue closes or a failure.
    pub(super) fn run(mut self) {
        loop {
            let first = if self.is_idle() { Some(self.queue.blocking_recv()) } else { None };
            if self.round(first).is_over() {
                return;
            }
        }
    }

    /// The same as a task of the runtime.
    pub(super) async fn run_as_task(mut self) {
        loop {
            let first = if self.is_idle() { Some(self.queue.recv().await) } else { None };
            if self.round(first).is_over() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether there is nothing to do before something is asked.
    fn is_idle(&self) -> bool {
        let has_work = self.may_give_back() || self.state.sweep.as_ref().is_some_and(Sweep::is_urgent);
        !has_work || self.core.failed.get().is_some()
    }

    /// One round, with what was waited for; `None` in it is the end of the queue.
    fn round(&mut self, first: Option<Option<Op>>) -> Going {
        let mut round = Round::default();
        match first {
            Some(Some(op)) => round.add(op),
            Some(None) => round.is_over = true,
            None => {}
        }
        self.fill(&mut round);
        let going = if round.is_over { Going::Over } else { Going::On };
        self.step(round);
        going
    }

    /// Adds what else is queued.
    fn fill(&mut self, round: &mut Round) {
        let mut bytes = 0;
        while !round.is_over && round.writes.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
            match self.queue.try_recv() {
                Ok(op) => {
                    round.add(op);
                    bytes += round.writes.last().map_or(0, |(write, _)| write_bytes(write));
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => round.is_over = true,
            }
        }
    }

    /// One round: decide, commit, publish, answer.
    fn step(&mut self, mut round: Round) {
        if let Some(why) = self.core.failed.get() {
            let failed = || StoreError::Failed(why.clone());
            round.writes.into_iter().for_each(|(_, reply)| answer(reply, Err(failed())));
            round.compactions.into_iter().for_each(|(_, reply)| answer(reply, Err(failed())));
            round.closing.into_iter().for_each(|reply| answer(reply, Err(failed())));
            return;
        }
        let now_us = self.clock.now().as_microsecond();
        for (target, reply) in std::mem::take(&mut round.compactions) {
            self.begin_sweep(target, Some(reply), now_us);
        }
        let stage = match self.stage(&mut round, now_us) {
            Ok(stage) => stage,
            Err(error) => return self.fail(error, round),
        };
        let must_sync = stage.is_synced
            || round.is_over
            || self.state.sweep.as_ref().is_some_and(Sweep::is_urgent)
            || (!stage.items.is_empty() && stage.next - 1 > self.state.reserved)
            || self.state.flush_at.is_some_and(|at| at <= now_us)
            || self.core.shared.lock().overlay.is_full(stage.items.len());
        let done = if must_sync { self.try_commit(&stage, round.is_over) } else { Ok(()) };
        let closing = std::mem::take(&mut round.closing);
        match done {
            Ok(()) => {
                let enough = self.state.history.add(&stage);
                self.publish(stage, must_sync, now_us);
                if let Some(target) = enough {
                    self.begin_sweep(target, None, now_us);
                }
                self.give_some_back();
                closing.into_iter().for_each(|reply| answer(reply, Ok(())));
                self.plan_wake(round.is_tick, now_us);
            }
            Err(error @ (StoreError::NoSpace | StoreError::Refused(_) | StoreError::Damaged(_))) => {
                closing.into_iter().for_each(|reply| answer(reply, Err(error.clone())));
                self.refuse(stage, &error, now_us);
                self.plan_wake(round.is_tick, now_us);
            }
            Err(error) => {
                let why = self.note_failure(error);
                stage.into_replies().for_each(|reply| answer(reply, Err(StoreError::Failed(why.clone()))));
                closing.into_iter().for_each(|reply| answer(reply, Err(StoreError::Failed(why.clone()))));
            }
        }
    }

    /// Only when the last commit is on disk.
    fn may_give_back(&self) -> bool {
        self.state.may_give_back && !self.state.is_disk_doubtful
    }

    /// A part of what is free goes back to the file system.
    fn give_some_back(&mut self) {
        if self.may_give_back() {
            self.state.may_give_back = self.give_back.step(&self.core.tables) == Left::More;
        }
    }

    /// Decides all writes of the round against the newest state; conflicts are answered at once.
    fn stage(&mut self, round: &mut Round, now_us: i64) -> Result<Stage, StoreError> {
        let view = self.core.view()?;
        let mut stage = Stage::new(self.state.last, self.state.is_over_bound, now_us, self.state.expired.0);
        for (write, reply) in std::mem::take(&mut round.writes) {
            stage.write(&view, write, reply)?;
        }
        if round.is_tick {
            for (at, revision, key) in view.expiring(self.state.expired, EXPIRE_MAX)? {
                if at > now_us {
                    break;
                }
                stage.expire(&view, (at, revision), &key)?;
            }
        }
        Ok(stage)
    }

    /// Makes the stage visible, tells the watchers, then the callers.
    fn publish(&mut self, stage: Stage, is_on_disk: bool, now_us: i64) {
        self.state.last = stage.next - 1;
        self.state.expired = stage.expired.unwrap_or(self.state.expired);
        let mut replies = Vec::with_capacity(stage.items.len());
        let mut events = Vec::with_capacity(stage.items.len());
        let mut shared = self.core.shared.lock();
        match is_on_disk {
            true => {
                self.state.flush_at = None;
                if !shared.overlay.is_empty() {
                    shared.overlay = Arc::new(Overlay::after(Arc::clone(&self.state.coalesced)));
                }
            }
            false if stage.items.is_empty() => {}
            false => {
                let at = now_us.saturating_add(self.flush_after_us(&stage));
                self.state.flush_at = Some(self.state.flush_at.map_or(at, |sooner| sooner.min(at)));
            }
        }
        if !Arc::ptr_eq(&shared.overlay.coalesced, &self.state.coalesced) {
            Arc::make_mut(&mut shared.overlay).coalesced = Arc::clone(&self.state.coalesced);
        }
        for Staged { record, previous, reply } in stage.items {
            events.push(event(&record, previous));
            replies.extend(reply.map(|reply| (reply, record.revision)));
            if record.expires_us > 0 {
                let soonest =
                    self.state.next_expiry.map_or(record.expires_us, |at| at.min(record.expires_us));
                self.state.next_expiry = Some(soonest);
            }
            if !is_on_disk {
                Arc::make_mut(&mut shared.overlay).push(record);
            }
        }
        shared.published = self.state.last;
        self.core.newest.store(self.state.last, Ordering::Release);
        shared.subscribers.send(&events);
        drop(shared);
        replies.into_iter().for_each(|(reply, revision)| answer(reply, Ok(revision)));
        for Refused { current, reply } in stage.refused {
            answer(reply, Err(StoreError::Conflict { current }));
        }
    }

    /// How long a relaxed group may stay in memory.
    fn flush_after_us(&self, stage: &Stage) -> i64 {
        let is_heartbeat = |item: &Staged| item.previous.is_some() && !item.record.is_tombstone();
        match stage.items.iter().all(is_heartbeat) {
            true => self.heartbeat_flush_us.max(self.relaxed_flush_us),
            false => self.relaxed_flush_us,
        }
    }

    /// Nothing of the group happened.
    fn refuse(&mut self, stage: Stage, error: &StoreError, now_us: i64) {
        if self.core.faults.lock().disk.replace(error.to_string()).is_none() {
            tracing::error!(%error, "writes are refused, reads go on");
        }
        if self.state.flush_at.is_some() {
            self.state.flush_at = Some(now_us.saturating_add(self.relaxed_flush_us));
        }
        stage.into_replies().for_each(|reply| answer(reply, Err(error.clone())));
        self.put_sweep_off(error);
    }

    fn fail(&mut self, error: StoreError, round: Round) {
        let why = self.note_failure(error);
        round.closing.into_iter().for_each(|reply| answer(reply, Err(StoreError::Failed(why.clone()))));
    }

    fn note_failure(&mut self, error: StoreError) -> String {
        let why = match error {
            StoreError::Failed(why) => why,
            other => other.to_string(),
        };
        tracing::error!(error = why, "the store failed: nothing is acknowledged any more");
        let why = self.core.failed.get_or_init(|| why).clone();
        self.core.end.send_replace(true);
        self.drop_sweep(&StoreError::Failed(why.clone()));
        why
    }

    /// Asks to be woken for what comes next; `is_tick` says that the last wish was used up.
    fn plan_wake(&mut self, is_tick: bool, now_us: i64) {
        if is_tick {
            let next = self.core.view().and_then(|view| view.expiring(self.state.expired, 1));
            self.state.next_expiry = match next {
                Ok(rows) => rows.first().map(|row| row.0),
                Err(_) => Some(now_us.saturating_add(self.relaxed_flush_us)),
            };
        }
        let soonest = [self.state.next_expiry, self.state.flush_at].into_iter().flatten().min();
        self.due.send_if_modified(|due| {
            let is_sooner = soonest.is_some_and(|at| due.is_none_or(|due| at < due));
            if is_tick || is_sooner {
                *due = soonest;
            }
            is_tick || is_sooner
        });
    }
}

fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

fn event(record: &Record, previous: Option<Entry>) -> Event {
    Event {
        revision: record.revision,
        key: record.key.clone(),
        entry: record.entry(),
        previous,
        cause: record.cause.clone(),
    }
}
