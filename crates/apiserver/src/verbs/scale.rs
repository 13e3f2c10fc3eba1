//! The `scale` subresource: an `autoscaling/v1` Scale over the fields that the kind's row names.

use machinery::field::{FieldError, Path};
use machinery::metadata::Metadata;
use resources::ScalePaths;
use serde_json::{Value, json};

use super::patch::check_config;
use crate::answer::Answer;
use crate::api::Api;
use crate::codec::{self, APPLY_PATCH, FieldValidation, Patch};
use crate::kinds::Part;
use crate::negotiate::media_type;
use crate::request::Authorized;
use crate::request_info::Verb;
use crate::scale::{of as scale_of, set as set_field};
use crate::status::{Error, Result, Subject};
use crate::write::change::{change, change_owned, current};
use crate::write::identity::check_name;
use crate::write::{Decoded, Ownership, decoding, ownership};

/// Replicas that no client can mean, in place of those that an object does not have.
const UNSET: i64 = i32::MIN as i64;

/// Reads or writes the scale of an object.
///
/// # Errors
/// What the client is told.
pub async fn run(api: &Api, request: &Authorized) -> Result<Answer> {
    match request.resource.verb {
        Verb::Get => {
            let object = current(api, request, &request.key()).await?;
            let object = request.kind.value(&*request.kind.served(object).await?);
            if request.kind.is_custom() && object.pointer(&paths(request).spec_replicas).is_none() {
                let path = dotted(&paths(request).spec_replicas);
                return Err(Error::internal(format!("the spec replicas field {path:?} does not exist")));
            }
            Ok(Answer::value(scale_of(paths(request), &object)))
        }
        Verb::Update => {
            let wanted = decoding::body_of(request, "autoscaling/v1", "Scale")?;
            check_claim(&wanted)?;
            set(api, request, |_| Ok(wanted.clone())).await
        }
        Verb::Patch if media_type(&request.headers) == APPLY_PATCH => apply(api, request).await,
        Verb::Patch => {
            let (patch, _) = Patch::of(&request.kind, &request.headers, &request.info.query, &request.body)?;
            set(api, request, |scale| patched(&patch, scale)).await
        }
        _ => Err(Error::method_not_allowed()),
    }
}

/// The patched Scale.
///
/// # Errors
/// As [`codec::patch_scale`], and 400 when the result is no Scale.
fn patched(patch: &Patch, scale: &Value) -> Result<Value> {
    let patched = codec::patch_scale(patch, scale)?;
    check_claim(&patched)?;
    codec::check_types("autoscaling/v1", "Scale", patched)
}

async fn set(
    api: &Api,
    request: &Authorized,
    wanted: impl Fn(&Value) -> Result<Value> + Sync,
) -> Result<Answer> {
    let committed = change(api, request, Part::Object, |old| {
        let mut before = scale_of(paths(request), old);
        let is_unset = request.kind.is_custom() && old.pointer(&paths(request).spec_replicas).is_none();
        if is_unset && let Some(spec) = before.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("replicas".to_owned(), UNSET.into());
        }
        let scale = wanted(&before)?;
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        if is_unset && replicas == UNSET {
            let path = dotted(&paths(request).spec_replicas);
            return Err(Error::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
        }
        check_replicas(request, replicas)?;
        let mut new = old.clone();
        let version = Metadata::of(&scale).resource_version();
        if version == Metadata::of(&before).resource_version() {
            machinery::metadata::remove(&mut new, "resourceVersion");
        } else {
            machinery::metadata::set(&mut new, "resourceVersion", version);
        }
        set_field(&mut new, &paths(request).spec_replicas, replicas.into());
        Ok(Decoded::of_server(new))
    })
    .await?;
    let value = scale_of(paths(request), &request.kind.value(&committed.object));
    Ok(Answer::value(value))
}

/// Applies a Scale: the replicas of the object change hands under the subresource's name.
async fn apply(api: &Api, request: &Authorized) -> Result<Answer> {
    let (scale, warnings) = codec::apply_scale(&request.body, FieldValidation::of(&request.info.query))?;
    check_config(&scale, "autoscaling/v1", "Scale")?;
    request.notes.warn_all(warnings);
    let meta = Metadata::of(&scale);
    check_name(request, meta.name())?;
    let mut config = json!({
        "apiVersion": request.kind.api_version(),
        "kind": request.kind.kind(),
        "metadata": {"name": meta.name()},
    });
    if !request.kind.is_custom() {
        config["spec"] = json!({});
    }
    if let Some(replicas) = scale.pointer("/spec/replicas") {
        set_field(&mut config, &paths(request).spec_replicas, replicas.clone());
    }
    for name in ["uid", "resourceVersion"] {
        if let Some(value) = meta.get(name) {
            machinery::metadata::set(&mut config, name, value.clone());
        }
    }
    let committed = change_owned(api, request, Part::Object, Ownership::Applied, |old| {
        let applied = ownership::apply_config(api, request, Part::Object, Some(old), &config);
        let mut new = applied.map_err(|failure| in_scale(request, failure))?;
        let replicas = new.pointer(&paths(request).spec_replicas).and_then(Value::as_i64);
        check_replicas(request, replicas.unwrap_or(0))?;
        if meta.resource_version().is_empty() {
            machinery::metadata::remove(&mut new, "resourceVersion");
        }
        Ok(Decoded::of_server(new))
    })
    .await?;
    let value = scale_of(paths(request), &request.kind.value(&committed.object));
    Ok(Answer::value(value))
}

fn paths(request: &Authorized) -> &ScalePaths {
    &request.kind.row().scale
}

/// A pointer as people write it: `.spec.replicas`.
fn dotted(pointer: &str) -> String {
    pointer.replace('/', ".").replace("~1", "/").replace("~0", "~")
}

/// Conflicts about a Scale name its version, not the object's.
fn in_scale(request: &Authorized, mut failure: Error) -> Error {
    let (ours, scales) = (format!(" using {}", request.kind.api_version()), " using autoscaling/v1");
    failure.message = failure.message.replace(&ours, scales);
    for cause in failure.details.get_mut("causes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(message) = cause.get("message").and_then(Value::as_str) {
            cause["message"] = message.replace(&ours, scales).into();
        }
    }
    failure
}

/// The check that a body sent for a Scale does not claim to be anything else.
///
/// # Errors
/// 400 if it does.
pub fn check_claim(scale: &Value) -> Result<()> {
    let text = |name: &str| scale.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if matches!(kind, "" | "Scale") && matches!(version, "" | "autoscaling/v1") {
        return Ok(());
    }
    let version_of_kind = version.rsplit('/').next().unwrap_or_default();
    Err(Error::bad_request(format!(
        "{kind} in version {version_of_kind:?} cannot be handled as a Scale: it is of {version:?}"
    )))
}

fn check_replicas(request: &Authorized, replicas: i64) -> Result<()> {
    if replicas >= 0 {
        return Ok(());
    }
    let path = Path::new("spec").child("replicas");
    let error = FieldError::invalid(&path, replicas, "must be greater than or equal to 0");
    let subject = Subject { group: "autoscaling", resource: "Scale" };
    Err(Error::invalid(subject, &request.resource.name, &error.into()))
}
