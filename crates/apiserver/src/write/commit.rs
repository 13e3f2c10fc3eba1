//! The last stage: the door takes what was admitted, and what was allocated for it stays or is given back.
//!
//! A dry run ends here: it is answered as if it had been stored, and leaves nothing.

use std::sync::Arc;

use super::door::{Committed, Refusal};
use super::{Admitted, Writer, allocation};
use crate::admission::Effect;
use crate::cache::CachedObject;
use crate::request::Authorized;

/// The step in the store.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// An object is made that must not exist.
    Create,
    /// It takes the place of this one.
    Replace(&'a Arc<CachedObject>),
    /// This one is removed; what was admitted is its last state.
    Remove(&'a Arc<CachedObject>),
}

/// Stores what was admitted.
///
/// # Errors
/// As [`Refusal`]. Then everything is as before.
pub async fn commit(
    writer: &Writer,
    request: &Authorized,
    admitted: Admitted,
    step: Step<'_>,
) -> Result<Committed, Refusal> {
    if admitted.effect() == Effect::DryRun {
        return as_if_committed(&admitted, step);
    }
    let (door, cause) = (&writer.door, request.cause_bytes());
    let outcome = match step {
        Step::Create => door.create(&admitted, cause).await,
        Step::Replace(old) => door.replace(&admitted, old, cause).await,
        Step::Remove(old) => door.remove(&admitted, old.revision, cause).await,
    };
    match (&outcome, step) {
        (Ok(_), Step::Create | Step::Replace(_)) => admitted.allocated().commit(writer).await,
        (Ok(committed), Step::Remove(_)) => {
            admitted.allocated().commit(writer).await;
            allocation::deleted(writer, &request.kind, &committed.object).await;
        }
        (Err(_), _) => admitted.allocated().undo(writer).await,
    }
    outcome.and_then(|committed| admitted.as_served(committed).map_err(Refusal::Failed))
}

fn as_if_committed(admitted: &Admitted, step: Step<'_>) -> Result<Committed, Refusal> {
    let revision = match step {
        Step::Create if admitted.kind().cache().get(admitted.key()).is_some() => {
            return Err(Refusal::Conflict(None));
        }
        Step::Create => 0,
        Step::Replace(old) | Step::Remove(old) => old.revision,
    };
    admitted.as_if_committed(revision).map_err(Refusal::Failed)
}
