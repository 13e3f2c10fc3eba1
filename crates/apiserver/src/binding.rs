//! `pods/binding`: the scheduler gives a Pod to a node.
//!
//! Source: `BindingREST` of `pkg/registry/core/pod/storage`.

use http::StatusCode;
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};

use crate::admission::unstored;
use crate::answer::Answer;
use crate::api::Api;
use crate::kinds::Part;
use crate::request::Authorized;
use crate::request_info::ResourceInfo;
use crate::status::{self, Error, Result};
use crate::tree::text;
use crate::write::change::change;
use crate::write::options::precondition_failed;
use crate::write::{Decoded, decoding};

/// POST of a Binding to the collection: the same as `pods/binding`.
///
/// # Errors
/// As [`bind`].
pub(crate) async fn bind_named(api: &Api, request: &Authorized) -> Result<Answer> {
    let object = unstored::post(api, request, decoding::unstored(request)?).await?;
    let Some(kind) = api.kind("", "v1", "pods") else { return Err(Error::unknown_path()) };
    let resource = ResourceInfo {
        resource: "pods".to_owned(),
        subresource: "binding".to_owned(),
        name: text(&object, "/metadata/name").to_owned(),
        ..ResourceInfo::clone(&request.resource)
    };
    bind_to(api, &request.with_resource(kind, resource)?, &object).await
}

/// Gives a Pod to a node.
///
/// # Errors
/// 404 without the Pod, 409 if it has a node, is going, or is to wait; 422 for what is no binding.
pub(crate) async fn bind(api: &Api, request: &Authorized) -> Result<Answer> {
    let binding = decoding::body_of(request, "v1", "Binding")?;
    let binding = unstored::post(api, request, binding).await?;
    bind_to(api, request, &binding).await
}

async fn bind_to(api: &Api, request: &Authorized, binding: &Value) -> Result<Answer> {
    let name = &request.resource.name;
    if Metadata::of(binding).name() != *name {
        return Err(Error::bad_request("name in URL does not match name in Binding object"));
    }
    let strategy = api.kind("", "v1", "bindings").map(|kind| kind.strategy());
    let errors = strategy.map(|strategy| (strategy.validate_create)(binding)).unwrap_or_default();
    if !errors.is_empty() {
        let subject = status::Subject { group: "", resource: "Binding" };
        return Err(Error::invalid(subject, name, &errors));
    }
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
    let uid = Metadata::of(binding).uid().to_owned();
    change(api, request, Part::Raw, |old| {
        bound(request, old, binding, node, &uid, api.clock.now()).map(Decoded::of_server)
    })
    .await?;
    Ok(Answer::Value {
        code: StatusCode::CREATED,
        value: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    })
}

fn bound(
    request: &Authorized,
    pod: &Value,
    binding: &Value,
    node: &str,
    uid: &str,
    now: jiff::Timestamp,
) -> Result<Value> {
    let name = &request.resource.name;
    let meta = Metadata::of(pod);
    if !uid.is_empty() && uid != meta.uid() {
        return Err(precondition_failed(request, name, "UID", uid, meta.uid()));
    }
    let conflict =
        |why: &str| Error::conflict(status::Subject { group: "", resource: "pods/binding" }, name, why);
    if meta.is_terminating() {
        return Err(conflict(&format!("pod {name} is being deleted, cannot be assigned to a host")));
    }
    let bound = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if !bound.is_empty() {
        return Err(conflict(&format!("pod {name} is already assigned to node {bound:?}")));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(conflict(&format!("pod {name} has non-empty .spec.schedulingGates")));
    }
    let mut new = pod.clone();
    metadata::remove(&mut new, "resourceVersion");
    // What the Binding says of itself becomes the Pod's.
    for field in ["annotations", "labels"] {
        let said = binding.get("metadata").and_then(|metadata| metadata.get(field)?.as_object());
        if let (Some(said), Some(map)) = (said, metadata::metadata_mut(&mut new))
            && let Some(own) = map.entry(field).or_insert_with(|| json!({})).as_object_mut()
        {
            own.extend(said.clone());
        }
    }
    if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".to_owned(), node.into());
    }
    set_condition(&mut new, "PodScheduled", now);
    Ok(new)
}

/// Sets a condition to True; a transition only if it was something else.
fn set_condition(object: &mut Value, condition_type: &str, now: jiff::Timestamp) {
    let Some(map) = object.as_object_mut() else { return };
    let status = map.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let condition = json!({
        "type": condition_type,
        "status": "True",
        "lastProbeTime": Value::Null,
        "lastTransitionTime": metadata::time(now),
    });
    match conditions.iter_mut().find(|c| c.get("type").is_some_and(|t| t == condition_type)) {
        Some(existing) if existing.get("status").is_some_and(|s| s == "True") => {}
        Some(existing) => *existing = condition,
        None => conditions.push(condition),
    }
}
