//! Up to which revision something is done that others wait for.

use std::time::Duration;

use store::Revision;
use tokio::sync::watch;
use tracing::warn;

/// How long somebody waits. Whoever would wait longer goes on without.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Up to which revision everything is done.
#[derive(Debug)]
pub struct Progress(watch::Sender<Revision>);

impl Default for Progress {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Progress {
    /// All up to this revision is done.
    pub fn advance(&self, revision: Revision) {
        self.0.send_if_modified(|now| {
            let rises = revision > *now;
            *now = revision.max(*now);
            rises
        });
    }

    /// Waits until all up to this revision is done, but not for ever.
    pub async fn reached(&self, revision: Revision) {
        let mut receiver = self.0.subscribe();
        let reached = receiver.wait_for(|now| *now >= revision);
        if !matches!(tokio::time::timeout(WAIT_MAX, reached).await, Ok(Ok(_))) {
            warn!(revision, "what was written is not done yet");
        }
    }

    /// Waits until more is done than `revision`, and then nothing more for as long as `rest`: up to which revision.
    pub async fn rested(&self, revision: Revision, rest: Duration) -> Revision {
        let mut receiver = self.0.subscribe();
        let mut more = receiver.wait_for(|now| *now > revision).await.is_ok();
        while more {
            more = matches!(tokio::time::timeout(rest, receiver.changed()).await, Ok(Ok(())));
        }
        *receiver.borrow()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rest_begins_with_what_is_done_last() {
        let progress = Arc::new(Progress::default());
        let rested = tokio::spawn({
            let progress = Arc::clone(&progress);
            async move { progress.rested(0, Duration::from_secs(2)).await }
        });
        for revision in 1..=5 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!rested.is_finished(), "{revision}");
            progress.advance(revision);
        }
        assert_eq!(rested.await.unwrap(), 5);
    }
}
