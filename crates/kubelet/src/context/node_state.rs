//! What the node says of itself beside its machine: pressure, shutdown, devices. Whoever learns of it says so here; the status
//! is written at once.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// See the module.
#[derive(Default)]
pub(crate) struct NodeState {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    pressure: Vec<&'static str>,
    is_shutting_down: bool,
}

impl NodeState {
    /// The conditions that are true now.
    pub(crate) fn set_pressure(&self, conditions: &[&'static str]) {
        let mut inner = self.inner.lock();
        if inner.pressure != conditions {
            inner.pressure = conditions.to_vec();
            self.changed.notify_one();
        }
    }

    pub(crate) fn pressure(&self) -> Vec<&'static str> {
        self.inner.lock().pressure.clone()
    }

    /// The machine goes down, or does not after all.
    pub(crate) fn set_shutting_down(&self, is_shutting_down: bool) {
        self.inner.lock().is_shutting_down = is_shutting_down;
        self.changed.notify_one();
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.inner.lock().is_shutting_down
    }

    /// Something that the status shows is different.
    pub(crate) fn touch(&self) {
        self.changed.notify_one();
    }

    /// Waits until the status must be written.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
