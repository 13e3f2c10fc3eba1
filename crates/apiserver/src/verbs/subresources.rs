//! What is served below an object: a row per subresource.

use http::StatusCode;
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};

use super::update::change;
use super::{Request, decode, get, patch, scale, update};
use crate::answer::Answer;
use crate::api::Api;
use crate::kinds::Part;
use crate::request_info::Verb;
use crate::status::{self, Error, Result};

/// Runs a verb on a subresource.
///
/// # Errors
/// What the client is told.
pub async fn run(api: &Api, request: &Request) -> Result<Answer> {
    let row = request.kind.row();
    let Some(subresource) = row.subresource(&request.resource.subresource) else {
        return Err(Error::unknown_path());
    };
    if !subresource.verbs.contains(&request.resource.verb.as_str()) {
        return Err(Error::method_not_allowed());
    }
    match subresource.name {
        "status" => part(api, request, Part::Status).await,
        "scale" => scale::run(api, request).await,
        "approval" => part(api, request, Part::Approval).await,
        "binding" => binding(api, request).await,
        "eviction" => crate::eviction::evict(api, request).await,
        "token" => crate::tokens::request_token(api, request).await,
        "log" | "exec" | "attach" | "portforward" | "proxy" => {
            crate::kubelet_client::proxy(api, request).await.map(Answer::Response)
        }
        name if resources::partial(row, name).is_some() => part(api, request, Part::Partial(name)).await,
        _ => Err(Error::unknown_path()),
    }
}

async fn part(api: &Api, request: &Request, part: Part) -> Result<Answer> {
    match request.resource.verb {
        Verb::Get => get::get(api, request).await,
        Verb::Update => update::replace(api, request, part).await,
        Verb::Patch => patch::patch_part(api, request, part).await,
        _ => Err(Error::method_not_allowed()),
    }
}

/// `pods/binding`: the scheduler gives the Pod to a node.
async fn binding(api: &Api, request: &Request) -> Result<Answer> {
    let binding = decode::body_of(request, "v1", "Binding")?;
    let name = &request.resource.name;
    if Metadata::of(&binding).name() != *name {
        return Err(Error::bad_request("name in URL does not match name in Binding object"));
    }
    let strategy = api.kind("", "v1", "bindings").map(|kind| kind.strategy());
    let errors = strategy.map(|strategy| (strategy.validate_create)(&binding)).unwrap_or_default();
    if !errors.is_empty() {
        let subject = status::Subject { group: "", resource: "Binding" };
        return Err(Error::invalid(subject, name, &errors));
    }
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default();
    let uid = Metadata::of(&binding).uid().to_owned();
    change(api, request, Part::Raw, |old| bind(request, old, &binding, node, &uid, api.clock.now())).await?;
    Ok(Answer::Value {
        code: StatusCode::CREATED,
        value: json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    })
}

fn bind(
    request: &Request,
    pod: &Value,
    binding: &Value,
    node: &str,
    uid: &str,
    now: jiff::Timestamp,
) -> Result<Value> {
    let name = &request.resource.name;
    let meta = Metadata::of(pod);
    if !uid.is_empty() && uid != meta.uid() {
        return Err(super::options::precondition_failed(request, name, "UID", uid, meta.uid()));
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
