//! The right to create objects of a kind that can go.
//!
//! Before a kind goes its objects are deleted. One that is created meanwhile would stay behind, where nobody sees it. So a
//! create is made only while the definition is as this server serves it, which the store decides together with the write: what
//! comes after the definition's end was written is not made, whichever server it came to, and however late.

use std::time::Duration;

use store::{Revision, Unchanged};
use tokio::sync::watch;

/// How long a create waits for this server to follow its definition.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The definition of a kind, as far as this server has followed it.
#[derive(Debug)]
pub struct Gate {
    definition: String,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kind is served as the definition says at this revision.
    Open(Revision),
    /// The definition ends. It stays so.
    Closed,
}

impl Gate {
    /// The gate of a definition, by its key, nobody passes yet.
    pub fn new(definition: &str) -> Self {
        Self { definition: definition.to_owned(), state: watch::Sender::new(State::Open(0)) }
    }

    /// The condition for a create; `None` when the gate is closed.
    pub fn pass(&self) -> Option<Unchanged> {
        match *self.state.borrow() {
            State::Open(revision) => Some(Unchanged { key: self.definition.clone(), revision }),
            State::Closed => None,
        }
    }

    /// Waits, after `before` proved not to hold, until something else does; not for ever.
    pub async fn passed_on(&self, before: &Unchanged) -> bool {
        let mut state = self.state.subscribe();
        let changes = state.wait_for(|now| *now != State::Open(before.revision));
        matches!(tokio::time::timeout(WAIT_MAX, changes).await, Ok(Ok(_)))
    }

    /// The kind is served as the definition says at `revision`.
    pub fn follow(&self, revision: Revision) {
        self.state.send_if_modified(|state| match *state {
            State::Open(before) if before < revision => {
                *state = State::Open(revision);
                true
            }
            _ => false,
        });
    }

    /// Lets nobody through any more.
    pub fn close(&self) {
        self.state.send_replace(State::Closed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_create_holds_the_definition_to_what_is_served() {
        let gate = Gate::new("/registry/definition");
        gate.follow(7);
        let first = gate.pass().unwrap();
        assert_eq!((first.key.as_str(), first.revision), ("/registry/definition", 7));
        let mut waits = Box::pin(gate.passed_on(&first));
        assert!((&mut waits).now_or_never().is_none(), "nothing else is known yet");
        gate.follow(9);
        gate.follow(8);
        assert!(waits.await);
        assert_eq!(gate.pass().map(|pass| pass.revision), Some(9));
        gate.close();
        gate.follow(10);
        assert_eq!(gate.pass(), None);
    }
}
