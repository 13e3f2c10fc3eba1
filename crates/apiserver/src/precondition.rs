//! The precondition for creating objects of a kind that can go.
//!
//! Before a kind goes its objects are deleted. One that is created meanwhile would stay behind, where nobody sees it. So a
//! create is made only while the definition is as this server serves it, which the store decides together with the write: what
//! comes after the definition's end was written is not made, whichever server it came to, and however late.

use std::time::Duration;

use store::{Revision, Unchanged};
use tokio::sync::watch;

/// How long a create waits for this server to follow its definition.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The revision of a definition, as far as this server has followed it.
#[derive(Debug)]
pub struct CreatePrecondition {
    definition: String,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kind is served as the definition says at this revision.
    Served(Revision),
    /// The definition ends. It stays so.
    Ending,
}

impl CreatePrecondition {
    /// The precondition of a definition, by its key; it holds for nobody yet.
    pub fn new(definition: &str) -> Self {
        Self { definition: definition.to_owned(), state: watch::Sender::new(State::Served(0)) }
    }

    /// The condition for a create; `None` when the definition ends.
    pub fn current(&self) -> Option<Unchanged> {
        match *self.state.borrow() {
            State::Served(revision) => Some(Unchanged { key: self.definition.clone(), revision }),
            State::Ending => None,
        }
    }

    /// Waits, after `before` proved not to hold, until something else does; not for ever.
    pub async fn changed(&self, before: &Unchanged) -> bool {
        let mut state = self.state.subscribe();
        let changes = state.wait_for(|now| *now != State::Served(before.revision));
        matches!(tokio::time::timeout(WAIT_MAX, changes).await, Ok(Ok(_)))
    }

    /// The kind is served as the definition says at `revision`.
    pub fn follow(&self, revision: Revision) {
        self.state.send_if_modified(|state| match *state {
            State::Served(before) if before < revision => {
                *state = State::Served(revision);
                true
            }
            _ => false,
        });
    }

    /// The definition ends: nothing is created any more.
    pub fn end(&self) {
        self.state.send_replace(State::Ending);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_create_holds_the_definition_to_what_is_served() {
        let precondition = CreatePrecondition::new("/registry/definition");
        precondition.follow(7);
        let first = precondition.current().unwrap();
        assert_eq!((first.key.as_str(), first.revision), ("/registry/definition", 7));
        let mut waits = Box::pin(precondition.changed(&first));
        assert!((&mut waits).now_or_never().is_none(), "nothing else is known yet");
        precondition.follow(9);
        precondition.follow(8);
        assert!(waits.await);
        assert_eq!(precondition.current().map(|current| current.revision), Some(9));
        precondition.end();
        precondition.follow(10);
        assert_eq!(precondition.current(), None);
    }
}
