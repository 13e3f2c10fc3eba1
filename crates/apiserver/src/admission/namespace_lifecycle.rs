//! Objects live in namespaces that exist and are not going; the first namespaces stay.

use machinery::metadata::Metadata;
use serde_json::{Value, json};

use super::{Context, Operation, Step, child};
use crate::kinds::GroupVersionResource;
use crate::status::{Error, Result, Subject};

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Waits until the cache has what was committed before, if it does not know a new object's namespace yet; then gives new
/// namespaces what they need.
pub(super) fn mutate<'a>(context: &'a Context<'a>, object: &'a mut Value) -> Step<'a> {
    if context.operation == Operation::Create && is_unknown(context) {
        return Step::Later(Box::pin(async { context.cluster.cache.fresh().await.map(drop) }));
    }
    complete(context, object);
    Step::Done(Ok(()))
}

fn is_unknown(context: &Context<'_>) -> bool {
    let request = context.request;
    request.kind.is_namespaced()
        && context
            .cluster
            .kind("", "v1", "namespaces")
            .is_some_and(|kind| kind.cache().get(&kind.key("", &request.resource.namespace)).is_none())
}

/// Gives new namespaces the finalizer and the label that upstream's registry gives them.
fn complete(context: &Context<'_>, object: &mut Value) {
    if !context.is_core("namespaces") {
        return;
    }
    let name = Metadata::of(object).name().to_owned();
    if context.operation == Operation::Create
        && let Some(spec) = child(object, "spec")
    {
        spec.entry("finalizers").or_insert_with(|| json!(["kubernetes"]));
    }
    if !name.is_empty()
        && let Some(metadata) = machinery::metadata::metadata_mut(object)
    {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
        }
    }
}

/// Refuses creates in namespaces that are absent or going, and deletes of the first namespaces.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let name = Metadata::of(object).name();
    if context.operation == Operation::Delete && context.is_core("namespaces") && IMMORTAL.contains(&name) {
        return Err(context.forbidden(name, "this namespace may not be deleted"));
    }
    if context.operation != Operation::Create || !context.request.kind.is_namespaced() {
        return Ok(());
    }
    let namespace = Metadata::of(object).namespace();
    let wanted = ["/metadata/deletionTimestamp"];
    let Some(found) = context.lookup_part(GroupVersionResource::core("namespaces"), "", namespace, &wanted)
    else {
        return Err(missing(namespace));
    };
    if !Metadata::of(&found).is_terminating() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut error = context.forbidden(name, &why);
    error.details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    Err(error)
}

fn missing(namespace: &str) -> Error {
    Error::not_found(Subject { group: "", resource: "namespaces" }, namespace)
}
