//! A change of an object that exists: its transformation and all stages, again when somebody else wrote in between.

use std::sync::Arc;

use machinery::metadata::Metadata;
use serde_json::Value;

use super::admit::admit;
use super::commit::{Step, commit};
use super::door::{Committed, Refusal};
use super::options::precondition_failed;
use super::validation::Fate;
use super::{CONFLICT_RETRIES_MAX, Decoded, Ownership, Writer, ownership, preparation};
use crate::admission::{self, Context, Operation};
use crate::cache::CachedObject;
use crate::cluster::Cluster;
use crate::kinds::Part;
use crate::request::Authorized;
use crate::request_info::Verb;
use crate::status::{Error, Result};

/// Changes an existing object: `transform` makes the new object out of the current one (served form), and is called
/// again when somebody else wrote in between, or when it wants more to be converted. A resourceVersion in its result is a precondition.
///
/// # Errors
/// What `transform` or admission refuse; 404; 409.
pub async fn change(
    writer: &Writer,
    request: &Authorized,
    part: Part,
    transform: impl FnMut(&Value) -> Result<Decoded> + Send,
) -> Result<Committed> {
    change_owned(writer, request, part, Ownership::Track, transform).await
}

/// As [`change`], for a `transform` that may set the managed fields itself.
///
/// # Errors
/// As [`change`].
pub async fn change_owned(
    writer: &Writer,
    request: &Authorized,
    part: Part,
    ownership: Ownership,
    mut transform: impl FnMut(&Value) -> Result<Decoded> + Send,
) -> Result<Committed> {
    change_by(writer, request, part, ownership, &mut transform).await
}

/// [`change_owned`], compiled once for all that are changed.
async fn change_by(
    writer: &Writer,
    request: &Authorized,
    part: Part,
    ownership: Ownership,
    transform: &mut (dyn FnMut(&Value) -> Result<Decoded> + Send),
) -> Result<Committed> {
    let mut old = current(writer, request, &request.key()).await?;
    for _ in 0..CONFLICT_RETRIES_MAX {
        let old_value = request.kind.value(&*request.kind.served(Arc::clone(&old)).await?);
        request.at_hand.clear();
        let mut new = loop {
            let made = transform(&old_value);
            if !ownership::fetch(request).await? {
                break made?.into_object();
            }
        };
        let is_conditional = check_preconditions(request, &new, &old_value)?;
        preparation::default(writer, &request.kind, &mut new)?;
        if let Some(strategy) = preparation::partial_of(&request.kind, part) {
            strategy.begin_update(&mut new, &old_value);
        }
        if ownership == Ownership::Track {
            ownership::track(writer, request, part, Some(&old_value), &mut new).await;
        }
        match change_once(writer, request, part, &old, &old_value, new).await {
            Ok(committed) => return Ok(committed),
            Err(Refusal::Failed(error)) => return Err(error),
            Err(Refusal::Conflict(None)) => {
                return Err(Error::not_found(request.subject(), &request.resource.name));
            }
            Err(Refusal::Conflict(Some(_))) if is_conditional => {
                return Err(Error::modified(request.subject(), &request.resource.name));
            }
            Err(Refusal::Conflict(Some(newer))) => old = newer,
        }
    }
    Err(Error::modified(request.subject(), &request.resource.name))
}

/// The object under `key`, as of now, as it is in the cache.
///
/// # Errors
/// 404, or 504 when the cache lags.
pub async fn current(cluster: &Cluster, request: &Authorized, key: &str) -> Result<Arc<CachedObject>> {
    cluster.cache.fresh().await?;
    request.kind.cache().read(key)?.ok_or_else(|| Error::not_found(request.subject(), &request.resource.name))
}

/// Compares uid and resourceVersion of the new object with the old one's; says whether a revision was asked for.
fn check_preconditions(request: &Authorized, new: &Value, old: &Value) -> Result<bool> {
    let (new, old) = (Metadata::of(new), Metadata::of(old));
    // What a patch makes of the uid is for validation to refuse.
    let is_whole = request.resource.verb != Verb::Patch;
    if is_whole && !new.uid().is_empty() && new.uid() != old.uid() {
        return Err(precondition_failed(request, old.name(), "UID", new.uid(), old.uid()));
    }
    let wanted = new.resource_version();
    if !wanted.is_empty() && wanted != "0" && wanted != old.resource_version() {
        return Err(Error::modified(request.subject(), old.name()));
    }
    Ok(!wanted.is_empty() && wanted != "0")
}

async fn change_once(
    writer: &Writer,
    request: &Authorized,
    part: Part,
    old: &Arc<CachedObject>,
    old_value: &Value,
    mut new: Value,
) -> Result<Committed, Refusal> {
    let context = Context::new(writer, request, Operation::Update(part), Some(old_value));
    admission::mutate(&context, &mut new).await.map_err(Refusal::Failed)?;
    let warnings = preparation::for_update(writer, &request.kind, part, &mut new, old_value);
    let (step, fate) = match is_ready_to_go(request, &new) {
        true => (Step::Remove(old), Fate::Goes),
        false => (Step::Replace(old), Fate::Stays),
    };
    let ready = admit(writer, &context, new, fate).await.map_err(Refusal::Failed)?;
    request.notes.warn_all(warnings);
    commit(writer, request, ready, step).await
}

/// Whether a deletion that was asked for is complete with this change: no finalizer holds it any more.
fn is_ready_to_go(request: &Authorized, object: &Value) -> bool {
    let metadata = Metadata::of(object);
    if !metadata.is_terminating() || !metadata.finalizers().is_empty() {
        return false;
    }
    if request.kind.strategy().deletion == resources::Deletion::Namespace {
        return object.pointer("/spec/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty);
    }
    metadata.deletion_grace_period_seconds().unwrap_or(0) == 0
}
