//! The one place where tasks are spawned: each has a name, all stop together.

use std::future::Future;
use std::pin::Pin;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// A group of named tasks with one shutdown signal. Cloning shares the group.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Tasks {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `task` until it ends or the group stops, whichever is first.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(name, Box::pin(task));
    }

    // What is around a task would be built into the program for each type of task.
    fn spawn_boxed(&self, name: &'static str, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let stop = self.stop.clone();
        let span = tracing::debug_span!("task", name);
        self.tracker.spawn(
            async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = task => tracing::debug!("task ended"),
                }
            }
            .instrument(span),
        );
    }

    /// Runs `task` to its end even while the group stops: for work that must be finished, such as a drain.
    /// The task is expected to watch [`Tasks::stopping`] itself.
    pub fn spawn_to_end(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
        self.tracker.spawn(task.instrument(tracing::debug_span!("task", name)));
    }

    /// A group that stops with this one, and can be stopped before it.
    pub fn child(&self) -> Self {
        Self { stop: self.stop.child_token(), tracker: self.tracker.clone() }
    }

    /// A group that goes on when this one is told to stop, until it is told so itself. Who waits for this group waits
    /// for its tasks too.
    pub fn outlasting(&self) -> Self {
        Self { stop: CancellationToken::new(), tracker: self.tracker.clone() }
    }

    /// Ends when the group is told to stop.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// `true` if the group was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Tells every task to stop, without waiting.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Tells every task to stop and waits for all of them. For the root group.
    pub async fn stop_and_wait(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stopping_ends_every_task() {
        let tasks = Tasks::new();
        tasks.spawn("forever", std::future::pending());
        tasks.child().spawn("child", std::future::pending());
        tasks.stop_and_wait().await;
        assert!(tasks.is_stopping());
    }

    #[test]
    fn a_child_stops_with_its_group_or_before_it_and_what_outlasts_it_does_not() {
        let tasks = Tasks::new();
        let (child, outlasting) = (tasks.child(), tasks.outlasting());
        child.stop();
        assert_eq!([child.is_stopping(), tasks.is_stopping()], [true, false]);
        let other = tasks.child();
        tasks.stop();
        assert!(other.is_stopping() && tasks.child().is_stopping(), "one that comes too late, too");
        assert!(!outlasting.is_stopping() && !outlasting.child().is_stopping());
    }

    #[tokio::test(start_paused = true)]
    async fn what_must_be_finished_is_waited_for_wherever_it_runs() {
        let (tasks, begun) = (Tasks::new(), tokio::time::Instant::now());
        for group in [tasks.clone(), tasks.child(), tasks.outlasting()] {
            let stopping = tasks.clone();
            group.spawn_to_end("drain", async move {
                stopping.stopping().await;
                tokio::time::sleep(std::time::Duration::from_secs(30)).await;
            });
        }
        tasks.stop_and_wait().await;
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
}
