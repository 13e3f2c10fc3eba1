//! Who may still create objects of a kind that can go.
//!
//! Before a kind goes its objects are deleted. One that is created meanwhile would stay behind, where nobody sees it, so the
//! gate is closed first: that waits for the creates that are under way, and lets no other through.

use tokio::sync::{RwLock, RwLockReadGuard};

/// Open or closed; once closed it stays so.
#[derive(Debug, Default)]
pub struct Gate {
    is_closed: RwLock<bool>,
}

/// That a create is under way.
#[derive(Debug)]
pub struct Pass<'g> {
    _held: RwLockReadGuard<'g, bool>,
}

impl Gate {
    /// Lets a create through; `None` when the gate is closed.
    pub async fn pass(&self) -> Option<Pass<'_>> {
        let held = self.is_closed.read().await;
        (!*held).then_some(Pass { _held: held })
    }

    /// Closes the gate, once nobody is in it any more.
    pub async fn close(&self) {
        *self.is_closed.write().await = true;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_closes_waits_for_those_within_and_nobody_follows() {
        let gate = Gate::default();
        let pass = gate.pass().await;
        assert!(pass.is_some());
        let mut closing = Box::pin(gate.close());
        assert!((&mut closing).now_or_never().is_none(), "somebody is within");
        drop(pass);
        closing.await;
        assert!(gate.pass().await.is_none());
    }
}
