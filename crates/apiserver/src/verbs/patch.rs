//! PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply.

use http::StatusCode;
use machinery::metadata::{self, Metadata};
use serde_json::Value;

use super::answer;
use super::update::authorize_create;
use crate::answer::Answer;
use crate::api::Api;
use crate::codec::{self, APPLY_PATCH, FieldValidation, Patch};
use crate::kinds::Part;
use crate::negotiate::media_type;
use crate::request::Authorized;
use crate::status::{Error, Result};
use crate::write::change::{change, change_owned};
use crate::write::create::create_owned;
use crate::write::{CONFLICT_RETRIES_MAX, Decoded, Ownership, decoding, identity, ownership};

/// Changes part of an object.
///
/// # Errors
/// What the client is told.
pub async fn patch(api: &Api, request: &Authorized) -> Result<Answer> {
    patch_part(api, request, Part::Object).await
}

/// Changes part of `part` of an object.
///
/// # Errors
/// What the client is told.
pub async fn patch_part(api: &Api, request: &Authorized, part: Part) -> Result<Answer> {
    if media_type(&request.headers) == APPLY_PATCH {
        return apply(api, request, part).await;
    }
    let (patch, strict) = Patch::of(&request.kind, &request.headers, &request.info.query, &request.body)?;
    let validation = FieldValidation::of(&request.info.query);
    let committed = change(api, request, part, |old| {
        let mut patched = codec::patch(&request.kind, &patch, old)?;
        if validation == FieldValidation::Strict && !strict.is_empty() {
            let why = format!("strict decoding error: {}", strict.join(", "));
            return Err(codec::invalid_patch(&patch.shown(&request.kind, old), &why));
        }
        ownership::keep_reset(&mut patched);
        request.notes.warn_all(strict.iter().cloned());
        finish(request, old, patched, validation, || patch.shown(&request.kind, old))
    })
    .await?;
    Ok(answer(StatusCode::OK, committed))
}

/// Applies a configuration; what is not there is created.
async fn apply(api: &Api, request: &Authorized, part: Part) -> Result<Answer> {
    let validation = FieldValidation::of(&request.info.query);
    let (config, warnings) = codec::apply_config(&request.kind, &request.body, validation)?;
    check_config(&config, request.kind.api_version(), request.kind.kind())?;
    request.notes.warn_all(warnings);
    let apply_to = |live: Option<&Value>| {
        let merged = ownership::apply_config(api, request, part, live, &config)?;
        finish(request, live.unwrap_or(&Value::Null), merged, FieldValidation::Ignore, || config.to_string())
    };
    // Somebody else may create or delete the object at any time.
    for _ in 0..CONFLICT_RETRIES_MAX {
        let changed = change_owned(api, request, part, Ownership::Applied, |old| apply_to(Some(old)));
        match changed.await {
            Ok(committed) => return Ok(answer(StatusCode::OK, committed)),
            Err(error) if error.reason == "NotFound" && part == Part::Object => {}
            Err(error) => return Err(error),
        }
        let uid = Metadata::of(&config).uid();
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Error::conflict(request.subject(), &request.resource.name, &why));
        }
        authorize_create(api, request).await?;
        let object = apply_to(None)?;
        match create_owned(api, request, object, Ownership::Applied).await {
            Ok(committed) => return Ok(answer(StatusCode::CREATED, committed)),
            Err(error) if error.reason == "AlreadyExists" => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::modified(request.subject(), &request.resource.name))
}

/// A configuration says what it is, and nothing about managed fields.
///
/// # Errors
/// 400 if it is of another kind or version, or names managed fields.
pub fn check_config(config: &Value, api_version: &str, kind: &str) -> Result<()> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") != api_version || text("kind") != kind {
        let sent = text("apiVersion");
        let slash = if sent.contains('/') { "" } else { "/" };
        return Err(Error::bad_request(format!("invalid object type: {slash}{sent}, Kind={}", text("kind"))));
    }
    if Metadata::of(config).get("managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Error::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// The patched object, checked against its schema and its URL. Only a revision that the patch itself names is a
/// precondition.
fn finish(
    request: &Authorized,
    old: &Value,
    mut patched: Value,
    validation: FieldValidation,
    shown: impl FnOnce() -> String,
) -> Result<Decoded> {
    if Metadata::of(old).resource_version() == Metadata::of(&patched).resource_version() {
        metadata::remove(&mut patched, "resourceVersion");
    }
    let mut object = decoding::patched(request, patched, validation, shown)?;
    identity::take_namespace(request, object.object_mut())?;
    identity::check_name(request, Metadata::of(object.object()).name())?;
    Ok(object)
}
