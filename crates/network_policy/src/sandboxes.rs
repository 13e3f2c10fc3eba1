//! The seam to the Node's network: which sandboxes there are, and from when on the rules that they need are in force.
//!
//! The network tells of a sandbox when it has its addresses, and no process is started in it before
//! [`Sandboxes::in_force`] has come.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::endpoints::Sandbox;

/// How long a Pod waits for its rules before it is tried again: no API server tells which there are, or the kernel refuses.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The rules for a sandbox are not there in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network policies are not in force yet after {} s", WAIT_MAX.as_secs())]
pub struct NotInForce;

/// The sandboxes of the Node. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Sandboxes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    known: Mutex<BTreeMap<String, Sandbox>>,
    /// Counts changes.
    changes: watch::Sender<u64>,
    /// How many of them the kernel's rules regard.
    in_force: watch::Sender<u64>,
}

impl Default for Sandboxes {
    fn default() -> Self {
        let (changes, in_force) = (watch::Sender::new(1), watch::Sender::new(0));
        Self(Arc::new(Inner { known: Mutex::default(), changes, in_force }))
    }
}

impl Sandboxes {
    /// A sandbox is there, perhaps again.
    pub fn put(&self, id: &str, sandbox: Sandbox) {
        self.change(|known| known.insert(id.to_owned(), sandbox.clone()).as_ref() != Some(&sandbox));
    }

    /// A sandbox is to lose its addresses.
    pub fn remove(&self, id: &str) {
        self.change(|known| known.remove(id).is_some());
    }

    /// Only these are left.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.change(|known| {
            let before = known.len();
            known.retain(|id, _| is_there(id));
            known.len() != before
        });
    }

    /// Waits until the kernel's rules regard all that was told before.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn in_force(&self) -> Result<(), NotInForce> {
        let wanted = *self.0.changes.borrow();
        let mut in_force = self.0.in_force.subscribe();
        let standing = tokio::time::timeout(WAIT_MAX, in_force.wait_for(|known| *known >= wanted)).await;
        standing.is_ok_and(|known| known.is_ok()).then_some(()).ok_or(NotInForce)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Sandbox>) -> bool) {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut known) {
            self.0.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Tells of changes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// All of them, and how many changes have led to that.
    pub(crate) fn now(&self) -> (u64, BTreeMap<String, Sandbox>) {
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        (*self.0.changes.borrow(), known.clone())
    }

    /// The kernel's rules regard so many changes.
    pub(crate) fn stand(&self, changes: u64) {
        self.0.in_force.send_replace(changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_waits_for_the_rules_that_regard_it() {
        let sandboxes = Sandboxes::default();
        assert_eq!(sandboxes.in_force().await, Err(NotInForce), "nothing was committed");
        let (first, none) = sandboxes.now();
        assert!(none.is_empty());
        sandboxes.stand(first);
        assert_eq!(sandboxes.in_force().await, Ok(()));

        let sandbox = Sandbox { name: "a".into(), ..Sandbox::default() };
        sandboxes.put("1", sandbox.clone());
        assert_eq!(sandboxes.in_force().await, Err(NotInForce), "a new one");
        let (second, known) = sandboxes.now();
        assert_eq!(known, BTreeMap::from([("1".to_owned(), sandbox.clone())]));
        sandboxes.stand(second);
        sandboxes.put("1", sandbox);
        assert_eq!(sandboxes.in_force().await, Ok(()), "told twice");
        sandboxes.retain(|id| id == "1");
        assert_eq!(sandboxes.now().0, second, "nothing has changed");
        sandboxes.remove("1");
        assert_eq!(sandboxes.in_force().await, Err(NotInForce), "its address is somebody else's now");
    }
}
