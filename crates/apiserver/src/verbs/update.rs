//! PUT: replaces an object. Also the loop that every change of an existing object runs through.

use std::sync::Arc;

use http::StatusCode;
use machinery::field::{FieldError, FieldErrors, Path, Reason};
use machinery::metadata::{self, Metadata};
use serde_json::Value;

use super::managed::{self, Ownership};
use super::options::precondition_failed;
use super::{CONFLICT_RETRIES_MAX, Request, answer, current, decode};
use crate::admission::{self, Operation};
use crate::answer::Answer;
use crate::api::Api;
use crate::cache::CachedObject;
use crate::door::{Committed, Refusal};
use crate::kinds::Part;
use crate::request_info::Verb;
use crate::status::{Error, Result};

/// Replaces the object with the body.
///
/// # Errors
/// What the client is told.
pub async fn update(api: &Api, request: &Request) -> Result<Answer> {
    replace(api, request, Part::Object).await
}

/// Replaces `part` of the object with that of the body.
///
/// # Errors
/// What the client is told.
pub async fn replace(api: &Api, request: &Request, part: Part) -> Result<Answer> {
    let mut object = decode::body(request)?;
    super::create::take_namespace(request, &mut object)?;
    let name = Metadata::of(&object).name().to_owned();
    check_name(request, &name)?;
    let strategy = request.kind.strategy();
    if Metadata::of(&object).resource_version().is_empty() && !strategy.allow_unconditional_update {
        let path = Path::new("metadata").child("resourceVersion");
        // Go prints the number that stands for none in hexadecimal.
        let message = "Invalid value: 0x0: must be specified for an update".to_owned();
        let errors = FieldErrors::from(FieldError { path, reason: Reason::Invalid, message });
        return Err(Error::invalid(request.kind.kind_subject(), &name, &errors));
    }
    let outcome = change(api, request, part, |_| Ok(object.clone())).await;
    match outcome {
        Err(error)
            if error.reason == "NotFound" && strategy.allow_create_on_update && part == Part::Object =>
        {
            authorize_create(api, request).await?;
            let mut object = object;
            let uid = Metadata::of(&object).uid();
            if !uid.is_empty() {
                return Err(precondition_failed(request, &name, "UID", uid, ""));
            }
            metadata::remove(&mut object, "resourceVersion");
            let committed = super::create::create_object(api, request, object).await?;
            Ok(answer(StatusCode::CREATED, committed))
        }
        other => Ok(answer(StatusCode::OK, other?)),
    }
}

/// The name in the body must be that in the URL.
///
/// # Errors
/// 400 if it is another one, or none.
pub fn check_name(request: &Request, name: &str) -> Result<()> {
    let url = &request.resource.name;
    if name.is_empty() {
        return Err(Error::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != url {
        return Err(super::create::name_mismatch(name, url));
    }
    Ok(())
}

/// A write that creates what it does not find needs both permissions.
///
/// # Errors
/// 403.
pub async fn authorize_create(api: &Api, request: &Request) -> Result<()> {
    let mut info = request.info.clone();
    if let Some(resource) = &mut info.resource {
        resource.verb = Verb::Create;
    }
    api.security.authorize(&request.user, &info).await.map(drop)
}

/// Changes an existing object: `transform` makes the new object out of the current one (served form), and is called
/// again when somebody else wrote in between. A resourceVersion in its result is a precondition.
///
/// # Errors
/// What `transform` or admission refuse; 404; 409.
pub async fn change(
    api: &Api,
    request: &Request,
    part: Part,
    transform: impl FnMut(&Value) -> Result<Value>,
) -> Result<Committed> {
    change_owned(api, request, part, Ownership::Track, transform).await
}

/// As [`change`], for a `transform` that may set the managed fields itself.
///
/// # Errors
/// As [`change`].
pub async fn change_owned(
    api: &Api,
    request: &Request,
    part: Part,
    ownership: Ownership,
    mut transform: impl FnMut(&Value) -> Result<Value>,
) -> Result<Committed> {
    let key = request.key();
    let mut old = current(api, request, &key).await?;
    for _ in 0..CONFLICT_RETRIES_MAX {
        let old_value = request.kind.value(&old);
        let mut new = transform(&old_value)?;
        let is_conditional = check_preconditions(request, &new, &old_value)?;
        crate::codec::default(&request.kind, &mut new);
        if let Some(strategy) = partial_of(request, part) {
            strategy.begin_update(&mut new, &old_value);
        }
        if ownership == Ownership::Track {
            managed::track(api, request, part, Some(&old_value), &mut new);
        }
        match change_once(api, request, part, (&old, &old_value), new).await {
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

/// The strategy of a write to a part that has one of its own.
pub fn partial_of(request: &Request, part: Part) -> Option<&'static resources::PartialStrategy> {
    match part {
        Part::Partial(subresource) => resources::partial(request.kind.row(), subresource),
        _ => None,
    }
}

/// Compares uid and resourceVersion of the new object with the old one's; says whether a revision was asked for.
fn check_preconditions(request: &Request, new: &Value, old: &Value) -> Result<bool> {
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
    api: &Api,
    request: &Request,
    part: Part,
    (old, old_value): (&Arc<CachedObject>, &Value),
    new: Value,
) -> Result<Committed, Refusal> {
    let strategy = request.kind.strategy();
    let mut new = admission::mutate(api, request, Operation::Update(part), new, Some(old_value))
        .map_err(Refusal::Failed)?;
    match part {
        Part::Object => strategy.begin_update(&mut new, old_value),
        Part::Status => strategy.begin_status_update(&mut new, old_value, api.clock.now()),
        Part::Approval => resources::strategies::approve(&mut new, old_value, api.clock.now()),
        // Prepared before the managed fields were set; no plugin changes what it must not.
        Part::Partial(_) | Part::Raw => {}
    }
    metadata::set(&mut new, "resourceVersion", Metadata::of(old_value).resource_version());
    machinery::apply::restore_times(old_value, &mut new);
    drop_empty_metadata(&mut new);
    let is_gone = is_ready_to_go(request, &new);
    let warnings = match part {
        Part::Object => (strategy.warnings_on_update)(&new, old_value),
        Part::Status => (strategy.warnings_on_status_update)(&new, old_value),
        Part::Approval | Part::Partial(_) | Part::Raw => Vec::new(),
    };
    let admitted = admission::admit(api, request, Operation::Update(part), new, Some(old_value))
        .await
        .map_err(Refusal::Failed)?;
    request.notes.warn_all(warnings);
    if request.is_dry_run() {
        return admitted.as_if_committed(old.revision).map_err(Refusal::Failed);
    }
    let outcome = if is_gone {
        api.door.remove(&admitted, old.revision, request.cause_bytes()).await
    } else {
        api.door.replace(&admitted, old, request.cause_bytes()).await
    };
    match outcome {
        Ok(committed) => {
            admission::stored(api, &admitted).await;
            if is_gone {
                admission::deleted(api, &request.kind, &committed.object).await;
            }
            Ok(committed)
        }
        Err(refusal) => {
            admission::undo(api, &admitted).await;
            Err(refusal)
        }
    }
}

/// Whether a deletion that was asked for is complete with this change: no finalizer holds it any more.
fn is_ready_to_go(request: &Request, object: &Value) -> bool {
    let metadata = Metadata::of(object);
    if !metadata.is_terminating() || !metadata.finalizers().is_empty() {
        return false;
    }
    if request.kind.strategy().deletion == resources::Deletion::Namespace {
        return object.pointer("/spec/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty);
    }
    metadata.deletion_grace_period_seconds().unwrap_or(0) == 0
}

/// Empty maps and lists in metadata are the same as none: upstream omits them.
pub fn drop_empty_metadata(object: &mut Value) {
    let Some(metadata) = metadata::metadata_mut(object) else { return };
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let is_empty = match metadata.get(name) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if is_empty {
            metadata.remove(name);
        }
    }
}
