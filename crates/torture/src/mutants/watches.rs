//! Lies about watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::Clock;
use jiff::Timestamp;
use store::{Batch, Event, Revision, StoreError, Watch};
use tokio::sync::mpsc;

use super::{Liar, Lie};

/// One event in so many is lied about.
const EVERY: u64 = 20;
/// After so many batches a watch goes to sleep.
const BATCHES_MAX: usize = 5;
/// Nothing came for so long: the process must have stood still.
const STILL: Duration = Duration::from_millis(150);

pub(super) async fn watch(liar: &Liar, after: Revision) -> Result<Watch, StoreError> {
    let from = match liar.lie() {
        Lie::WatchStartsLate => after.saturating_add(1).min(liar.inner.revision()),
        Lie::WatchStartsEarly => after.saturating_sub(1),
        _ => after,
    };
    let watch = match liar.inner.watch(from).await {
        Err(StoreError::Compacted { oldest, .. }) if liar.lie() == Lie::SkipsCompacted => {
            liar.inner.watch(oldest).await?
        }
        other => other?,
    };
    let is_honest = Arc::clone(&liar.is_honest);
    let (clock, last_at) = (liar.clock.clone(), (liar.clock.now(), Instant::now()));
    let teller = Teller { lie: liar.lie, is_honest, chances: 0, last: None, clock, last_at };
    let (sender, batches) = mpsc::channel(1);
    liar.tasks.spawn("lies", forward(teller, watch, sender));
    Ok(Watch { batches })
}

async fn forward(mut teller: Teller, mut watch: Watch, sender: mpsc::Sender<Result<Batch, StoreError>>) {
    let mut count = 0;
    while let Some(batch) = watch.batches.recv().await {
        count += 1;
        if teller.lie == Lie::StuckWatch && count > BATCHES_MAX {
            std::future::pending::<()>().await;
        }
        let batches = match batch {
            Ok(batch) => teller.tell(batch).into_iter().map(Ok).collect(),
            Err(StoreError::Compacted { .. }) if teller.lie == Lie::SkipsCompacted => Vec::new(),
            Err(error) => vec![Err(error)],
        };
        for batch in batches {
            if sender.send(batch).await.is_err() {
                return;
            }
        }
    }
}

/// What one watch needs to lie.
struct Teller {
    lie: Lie,
    is_honest: Arc<AtomicBool>,
    chances: u64,
    last: Option<Event>,
    clock: Clock,
    /// When something came last, by the clock and by the machine.
    last_at: (Timestamp, Instant),
}

impl Teller {
    /// Whether what comes now is thought to be out of date.
    fn is_dropped(&mut self) -> bool {
        let now = (self.clock.now(), Instant::now());
        let last = std::mem::replace(&mut self.last_at, now);
        match self.lie {
            Lie::BelievesTheClock => now.0 < last.0,
            Lie::SleepsThroughEvents => now.1 > last.1 + STILL,
            _ => false,
        }
    }

    fn is_lying(&mut self) -> bool {
        self.chances += 1;
        self.chances.is_multiple_of(EVERY)
    }

    fn tell(&mut self, batch: Batch) -> Vec<Batch> {
        if self.is_honest.load(Ordering::Relaxed) {
            return vec![batch];
        }
        let Batch { events, upto } = batch;
        if self.is_dropped() {
            return vec![Batch { events: Vec::new(), upto }];
        }
        if self.lie == Lie::ProgressAhead && !events.is_empty() {
            return vec![Batch { events: Vec::new(), upto }, Batch { events, upto }];
        }
        let mut told: Vec<Event> = Vec::with_capacity(events.len());
        for event in events {
            let before = self.last.replace(event.clone());
            let lie = self.lie;
            match lie {
                Lie::DroppedEvent if self.is_lying() => {}
                Lie::DoubledEvent if self.is_lying() => told.extend([event.clone(), event]),
                Lie::ReorderedEvents if told.last().is_some() => {
                    let at = told.len() - 1;
                    told.insert(at, event);
                }
                _ => told.push(self.changed(event, before)),
            }
        }
        vec![Batch { events: told, upto }]
    }

    fn changed(&mut self, mut event: Event, before: Option<Event>) -> Event {
        let lie = self.lie;
        match lie {
            Lie::PreviousMissing => event.previous = None,
            Lie::PreviousWrong if event.previous.is_some() && self.is_lying() => {
                event.previous.clone_from(&event.entry);
            }
            Lie::DeletionAsUpdate if event.entry.is_none() => {
                event.entry = event.previous.clone();
            }
            Lie::WrongValue if self.is_lying() => {
                if let (Some(entry), Some(other)) = (&mut event.entry, before.and_then(|it| it.entry)) {
                    entry.value = other.value;
                }
            }
            _ => {}
        }
        event
    }
}
