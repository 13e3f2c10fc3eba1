//! A namespace's LimitRange gives containers the requests and limits that they do not name.
//!
//! Minimum, maximum and ratio are not checked yet.

use serde_json::{Map, Value};

use super::{Context, Operation, child, served};
use crate::kinds::Kind;
use crate::status::Result;

/// Fills in the defaults of type `Container`.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if context.operation != Operation::Create || !context.is_core("pods") {
        return Ok(());
    }
    let Some(kind) = Kind::find("", "v1", "limitranges") else { return Ok(()) };
    let prefix = kind.collection(&context.request.resource.namespace);
    let listing = kind.cache(context.api).list(&prefix, 0);
    for range in listing.objects.iter().map(|object| served(kind, object)) {
        let limits = range.pointer("/spec/limits").and_then(Value::as_array).into_iter().flatten();
        for limit in limits.filter(|limit| limit.get("type").is_some_and(|t| t == "Container")) {
            let Some(spec) = child(pod, "spec") else { continue };
            for list in ["initContainers", "containers"] {
                for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    fill(container, "limits", limit.get("default"));
                    fill(container, "requests", limit.get("defaultRequest"));
                }
            }
        }
    }
    Ok(())
}

fn fill(container: &mut Value, part: &str, defaults: Option<&Value>) {
    let Some(defaults) = defaults.and_then(Value::as_object) else { return };
    let Some(resources) = child(container, "resources") else { return };
    let part = resources.entry(part.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    let Some(part) = part.as_object_mut() else { return };
    for (name, quantity) in defaults {
        part.entry(name.clone()).or_insert_with(|| quantity.clone());
    }
}
