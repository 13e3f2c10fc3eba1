//! PATCH: JSON patch, merge patch, strategic merge patch, and server-side apply.

use bytes::Bytes;
use http::StatusCode;
use machinery::metadata::{self, Metadata};
use serde_json::Value;

use super::create::create_owned;
use super::managed::{self, Ownership};
use super::options::FieldValidation;
use super::update::{self, Part, change, change_owned};
use super::{Answer, CONFLICT_RETRIES_MAX, Request, answer, decode};
use crate::api::Api;
use crate::codec;
use crate::negotiate::media_type;
use crate::status::{Error, Result};

/// RFC 6902.
const JSON_PATCH: &str = "application/json-patch+json";
/// RFC 7386.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Kubernetes' own.
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// Server-side apply.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A patch, parsed once.
#[derive(Clone, Debug)]
pub enum Patch {
    /// A list of operations.
    Json(Bytes),
    /// A partial object; null removes.
    Merge(Value),
    /// A partial object with directives, merged by the schema.
    Strategic(Value),
}

impl Patch {
    /// Reads the patch of a request; answers it with what is to be warned about, or under strict validation refused.
    ///
    /// # Errors
    /// 415 for types that are not known, 400 for bodies that cannot be read.
    pub fn of(request: &Request) -> Result<(Self, Vec<String>)> {
        let validation = FieldValidation::of(request);
        let read = |what| codec::merge_patch(&request.kind, &request.body, validation, what);
        match media_type(&request.headers) {
            JSON_PATCH => Ok((Self::Json(request.body.clone()), Vec::new())),
            MERGE_PATCH => read("error decoding patch: ").map(|(patch, strict)| (Self::Merge(patch), strict)),
            STRATEGIC_PATCH if !request.kind.is_custom() => {
                read("").map(|(patch, strict)| (Self::Strategic(patch), strict))
            }
            _ => {
                let known: &[&str] = match request.kind.is_custom() {
                    true => &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH],
                    false => &[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH],
                };
                Err(Error::unsupported_media_type(&known.join(", ")))
            }
        }
    }

    /// The patched object.
    ///
    /// # Errors
    /// 400 or 422 when the patch does not fit the object.
    pub fn apply(&self, request: &Request, object: &Value) -> Result<Value> {
        codec::patch(&request.kind, self, object)
    }

    /// The patched Scale.
    ///
    /// # Errors
    /// As [`Patch::apply`], and 400 when the result is no Scale.
    pub fn apply_to_scale(&self, scale: &Value) -> Result<Value> {
        let patched = codec::patch_scale(self, scale)?;
        super::scale::check_claim(&patched)?;
        codec::check_types("autoscaling/v1", "Scale", patched)
    }

    /// What the client is told that it sent: the patch if it is strategic, else what it makes of the object.
    fn shown(&self, request: &Request, object: &Value) -> String {
        match self {
            Self::Strategic(patch) => codec::go_text(patch),
            _ => self.apply(request, object).unwrap_or_default().to_string(),
        }
    }
}

/// Changes part of an object.
///
/// # Errors
/// What the client is told.
pub async fn patch(api: &Api, request: &Request) -> Result<Answer> {
    patch_part(api, request, Part::Object).await
}

/// Changes part of `part` of an object.
///
/// # Errors
/// What the client is told.
pub async fn patch_part(api: &Api, request: &Request, part: Part) -> Result<Answer> {
    if media_type(&request.headers) == APPLY_PATCH {
        return apply(api, request, part).await;
    }
    let (patch, strict) = Patch::of(request)?;
    let validation = FieldValidation::of(request);
    let committed = change(api, request, part, |old| {
        let mut patched = patch.apply(request, old)?;
        if validation == FieldValidation::Strict && !strict.is_empty() {
            let why = format!("strict decoding error: {}", strict.join(", "));
            return Err(codec::invalid_patch(&patch.shown(request, old), &why));
        }
        managed::keep_reset(&mut patched);
        request.notes.warn_all(strict.iter().cloned());
        finish(request, old, patched, validation, || patch.shown(request, old))
    })
    .await?;
    Ok(answer(StatusCode::OK, committed))
}

/// Applies a configuration; what is not there is created.
async fn apply(api: &Api, request: &Request, part: Part) -> Result<Answer> {
    let validation = FieldValidation::of(request);
    let (config, warnings) = codec::apply_config(&request.kind, &request.body, validation)?;
    check_config(&config, request.kind.api_version(), request.kind.kind())?;
    request.notes.warn_all(warnings);
    let apply_to = |live: Option<&Value>| {
        let merged = managed::apply_config(api, request, part, live, &config)?;
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
        update::authorize_create(api, request)?;
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
    request: &Request,
    old: &Value,
    mut patched: Value,
    validation: FieldValidation,
    shown: impl FnOnce() -> String,
) -> Result<Value> {
    if Metadata::of(old).resource_version() == Metadata::of(&patched).resource_version() {
        metadata::remove(&mut patched, "resourceVersion");
    }
    let mut object = decode::patched(request, patched, validation, shown)?;
    super::create::take_namespace(request, &mut object)?;
    update::check_name(request, Metadata::of(&object).name())?;
    Ok(object)
}
