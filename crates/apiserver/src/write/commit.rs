//! The last stage: the door takes what was admitted, and what was allocated for it stays or is given back.
//!
//! A dry run ends here: it is answered as if it had been stored, and leaves nothing.

use std::sync::Arc;

use super::admit::Ready;
use super::door::{Committed, Refusal};
use super::{Admitted, Writer, allocation};
use crate::admission::Effect;
use crate::cache::CachedObject;
use crate::object::encode_stored;
use crate::request::Authorized;
use crate::status::{Error, Result};

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

/// Stores what is ready.
///
/// # Errors
/// As [`Refusal`]. Then everything is as before.
pub async fn commit(
    writer: &Writer,
    request: &Authorized,
    ready: Ready,
    step: Step<'_>,
) -> Result<Committed, Refusal> {
    let Ready { admitted, allocated, effect } = ready;
    if effect == Effect::DryRun {
        return as_if_committed(&admitted, step);
    }
    let (door, cause) = (&writer.door, request.cause_bytes());
    let outcome = match step {
        Step::Create => door.create(&admitted, cause).await,
        Step::Replace(old) => door.replace(&admitted, old, cause).await,
        Step::Remove(old) => door.remove(&admitted, old.revision, cause).await,
    };
    match (&outcome, step) {
        (Ok(_), Step::Create | Step::Replace(_)) => allocated.commit(writer).await,
        (Ok(committed), Step::Remove(_)) => {
            allocated.commit(writer).await;
            allocation::deleted(writer, &request.kind, &committed.object).await;
        }
        (Err(_), _) => allocated.undo(writer).await,
    }
    outcome.and_then(|committed| as_served(&admitted, committed).map_err(Refusal::Failed))
}

fn as_if_committed(admitted: &Admitted, step: Step<'_>) -> Result<Committed, Refusal> {
    let revision = match step {
        Step::Create if admitted.kind().cache().get(admitted.key()).is_some() => {
            return Err(Refusal::Conflict(None));
        }
        Step::Create => 0,
        Step::Replace(old) | Step::Remove(old) => old.revision,
    };
    let json = encode_stored(admitted.served().unwrap_or(admitted.object()))
        .map_err(|failure| Refusal::Failed(Error::internal(failure)))?;
    let mut object = read(admitted, &json, revision).map_err(Refusal::Failed)?;
    if revision == 0 {
        // A dry run's object has no revision.
        object.json = json;
    }
    Ok(Committed { revision, object: Arc::new(object) })
}

/// What was committed as clients see it, where a webhook has converted it.
fn as_served(admitted: &Admitted, committed: Committed) -> Result<Committed> {
    let (Some(served), Some(conversion)) = (admitted.served(), admitted.kind().conversion()) else {
        return Ok(committed);
    };
    let encoded = encode_stored(served).map_err(Error::internal)?;
    let object = Arc::new(read(admitted, &encoded, committed.revision)?);
    conversion.keep(&object);
    Ok(Committed { object, ..committed })
}

fn read(admitted: &Admitted, json: &[u8], revision: u64) -> Result<CachedObject> {
    CachedObject::from_stored(admitted.key().into(), json, revision)
        .ok_or_else(|| Error::internal("the object could not be encoded"))
}
