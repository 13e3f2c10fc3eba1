//! The watchers: live readers are told by the writer, slow ones read the log until they have caught up.
//!
//! A reader is in exactly one of two states. *Live*: it stands in [`Subscribers`] and has been sent everything
//! published. *Behind*: its own task reads the log for it. It becomes live under the lock that publishing takes,
//! and only when nothing was published since it read; so no revision is skipped and none is sent twice.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::Core;
use crate::{Batch, Event, Revision, StoreError};

/// Batches that a reader may be late before it falls behind.
pub(super) const BATCHES_MAX: usize = 64;

type Delivery = Result<Batch, StoreError>;

struct Subscriber {
    id: u64,
    batches: mpsc::Sender<Delivery>,
    /// Told the last revision that was sent, when the channel is full.
    behind: oneshot::Sender<Revision>,
}

/// The live readers.
#[derive(Default)]
pub(super) struct Subscribers {
    live: Vec<Subscriber>,
    next_id: u64,
    is_closed: bool,
}

impl Subscribers {
    /// Hands `events` to every live reader; drops those that cannot take them.
    pub(super) fn send(&mut self, events: &[Event]) {
        let (Some(first), Some(upto)) = (events.first(), events.last().map(|last| last.revision)) else {
            return;
        };
        let before = first.revision - 1;
        let mut kept = Vec::with_capacity(self.live.len());
        for subscriber in self.live.drain(..) {
            match subscriber.batches.try_send(Ok(Batch { events: events.to_vec(), upto })) {
                Ok(()) => kept.push(subscriber),
                Err(mpsc::error::TrySendError::Full(_)) => {
                    let reader_is_gone = subscriber.behind.send(before).is_err();
                    tracing::debug!(reader_is_gone, "a watch fell behind");
                }
                Err(mpsc::error::TrySendError::Closed(_)) => {}
            }
        }
        self.live = kept;
    }

    fn add(&mut self, batches: &mpsc::Sender<Delivery>) -> (u64, oneshot::Receiver<Revision>) {
        let (behind, fell_behind) = oneshot::channel();
        self.next_id += 1;
        if !self.is_closed {
            self.live.push(Subscriber { id: self.next_id, batches: batches.clone(), behind });
        }
        (self.next_id, fell_behind)
    }

    fn remove(&mut self, id: u64) {
        self.live.retain(|subscriber| subscriber.id != id);
    }

    /// Ends all watches, those to come included.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.live.clear();
    }
}

/// Serves one watch from `after` on, until its reader or the store goes away.
pub(super) async fn follow(core: Arc<Core>, after: Revision, batches: mpsc::Sender<Delivery>) {
    let mut cursor = after;
    while let Some((id, fell_behind)) = catch_up(&core, &mut cursor, &batches).await {
        tokio::select! {
            biased;
            last = fell_behind => match last {
                Ok(last) => cursor = last,
                Err(_) => return,
            },
            () = batches.closed() => {
                core.shared.lock().subscribers.remove(id);
                return;
            }
        }
    }
}

/// Sends from the log until nothing newer is there, then becomes live.
async fn catch_up(
    core: &Arc<Core>,
    cursor: &mut Revision,
    batches: &mpsc::Sender<Delivery>,
) -> Option<(u64, oneshot::Receiver<Revision>)> {
    loop {
        {
            let mut shared = core.shared.lock();
            if shared.published <= *cursor {
                return Some(shared.subscribers.add(batches));
            }
        }
        let after = *cursor;
        let read = core.read(move |core| {
            let view = core.view()?;
            if after < view.compacted {
                return Err(StoreError::Compacted { requested: after, oldest: view.compacted });
            }
            view.events(after)
        });
        let batch = match read.await {
            Ok(chunk) => {
                *cursor = chunk.upto;
                Ok(Batch { events: chunk.events, upto: chunk.upto })
            }
            Err(error) => Err(error),
        };
        let is_last = batch.is_err();
        if batches.send(batch).await.is_err() || is_last {
            return None;
        }
    }
}

#[cfg(test)]
mod tests;
