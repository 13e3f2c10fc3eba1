//! Watchers of the whole store, who note every event, and go on where they were when they are cut.

use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use store::{Revision, Store, StoreError};
use tokio::sync::watch as cell;

use super::client::state;
use crate::history::{Event, Id, Line, Recorder};

/// The manner in which a watcher watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It reads at once, from the beginning to the end.
    Steady,
    /// It lets others go first, many times.
    Slow,
    /// It begins again and again, at revisions of the past.
    Restless,
}

/// How often a slow watcher lets others go first.
const PATIENT_YIELDS: u32 = 300;
/// After so many batches a restless watcher begins again.
const RESTLESS_BATCHES: usize = 8;
/// So many revisions back; every third time at the very beginning.
const RESTLESS_REVISIONS: u64 = 15;
/// Before a store that could not be watched is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A watcher at work.
pub(super) struct Watching {
    at: cell::Receiver<(Id, Revision)>,
}

pub(super) fn spawn(
    store: &Arc<dyn Store>,
    recorder: &Recorder,
    tasks: &Tasks,
    after: Revision,
    manner: Manner,
) -> Watching {
    let (progress, at) = cell::channel((0, after));
    tasks.spawn("watcher", follow(Arc::clone(store), recorder.clone(), after, manner, progress));
    Watching { at }
}

impl Watching {
    /// Waits until it has seen everything up to `newest`; says so if it does not come.
    pub(super) async fn finish(mut self, newest: Revision, timeout: Duration, recorder: &Recorder) {
        let seen = self.at.wait_for(|(_, upto)| *upto >= newest);
        if tokio::time::timeout(timeout, seen).await.is_err() {
            let watch = self.at.borrow().0;
            recorder.note(Line::Due(watch, newest));
        }
    }
}

/// Why a watcher begins again.
enum Ended {
    Forgotten,
    Unavailable,
    Restless,
    Closed,
}

/// Watches for ever. When what comes next is forgotten it asks for the newest, as a client would list, and begins
/// there.
pub async fn follow(
    store: Arc<dyn Store>,
    recorder: Recorder,
    first: Revision,
    manner: Manner,
    progress: cell::Sender<(Id, Revision)>,
) {
    let mut after = first;
    for round in 1_u64.. {
        let watching = store.watch(after).await;
        let id = recorder.id();
        note_start(&recorder, id, after);
        progress.send_modify(|at| at.0 = id);
        let ended = match watching {
            Ok(watch) => read(watch, (id, &recorder), manner, &progress).await,
            Err(error) => ended(&error),
        };
        match ended {
            Ended::Forgotten => {
                recorder.note(Line::Cut(id));
                after = super::settled(&store).await;
                progress.send_modify(|at| at.1 = at.1.max(after));
            }
            Ended::Unavailable => {
                tokio::time::sleep(AGAIN_AFTER).await;
                after = progress.borrow().1.max(after);
            }
            Ended::Restless if round.is_multiple_of(3) => after = first,
            Ended::Restless => after = progress.borrow().1.saturating_sub(RESTLESS_REVISIONS).max(first),
            Ended::Closed => return,
        }
    }
}

async fn read(
    mut watch: store::Watch,
    (id, recorder): (Id, &Recorder),
    manner: Manner,
    progress: &cell::Sender<(Id, Revision)>,
) -> Ended {
    for batches in 0.. {
        if manner == Manner::Restless && batches >= RESTLESS_BATCHES {
            return Ended::Restless;
        }
        for _ in 0..if manner == Manner::Slow { PATIENT_YIELDS } else { 0 } {
            tokio::task::yield_now().await;
        }
        match watch.batches.recv().await {
            Some(Ok(batch)) => {
                batch.events.iter().for_each(|it| recorder.note(Line::Event(id, event(it))));
                recorder.note(Line::Upto(id, batch.upto));
                progress.send_modify(|at| at.1 = at.1.max(batch.upto));
            }
            Some(Err(error)) => return ended(&error),
            None => return Ended::Closed,
        }
    }
    Ended::Closed
}

fn ended(error: &StoreError) -> Ended {
    match error {
        StoreError::Compacted { .. } => Ended::Forgotten,
        _ => Ended::Unavailable,
    }
}

fn note_start(recorder: &Recorder, watch: Id, after: Revision) {
    let (start, end) = super::KEYS.ranges.first().copied().unwrap_or_default();
    recorder.note(Line::Watch { watch, start: start.to_owned(), end: end.to_owned(), after });
}

/// Notes a watch that has been read to `upto`.
pub(super) fn note_all(recorder: &Recorder, after: Revision, events: &[store::Event], upto: Revision) {
    let id = recorder.id();
    note_start(recorder, id, after);
    events.iter().for_each(|it| recorder.note(Line::Event(id, event(it))));
    recorder.note(Line::Upto(id, upto));
}

fn event(event: &store::Event) -> Event {
    Event {
        revision: event.revision,
        key: event.key.clone(),
        state: event.entry.as_ref().map(state),
        previous: Some(event.previous.as_ref().map(state)),
    }
}
