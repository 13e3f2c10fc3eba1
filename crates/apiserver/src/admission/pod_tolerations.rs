//! PodTolerationRestriction: a namespace's annotations give its Pods tolerations, and say which ones they may have.
//! Off by default.
//!
//! Source: `plugin/pkg/admission/podtolerationrestriction`.

use machinery::metadata::Metadata;
use serde_json::{Value, json};

use super::{Context, Operation, child};
use crate::status::Result;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

fn annotated(context: &Context<'_>, annotation: &str) -> Option<Vec<Value>> {
    let namespace = context.cached("", "v1", "namespaces", "", &context.request.resource.namespace)?;
    let namespace = namespace.value();
    serde_json::from_str(Metadata::of(&namespace).annotation(annotation)?).ok()
}

/// Adds the namespace's tolerations to a new Pod.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if context.operation != Operation::Create || !context.is_core("pods") {
        return Ok(());
    }
    let more = annotated(context, DEFAULTS).unwrap_or_default();
    if let Some(spec) = child(pod, "spec").filter(|_| !more.is_empty())
        && let Some(tolerations) = spec.entry("tolerations").or_insert_with(|| json!([])).as_array_mut()
    {
        for toleration in more {
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
    }
    Ok(())
}

/// Refuses tolerations that the namespace does not allow.
pub(super) fn validate(context: &Context<'_>, pod: &Value) -> Result<()> {
    if context.operation == Operation::Delete || !context.is_core("pods") {
        return Ok(());
    }
    let Some(allowed) = annotated(context, ALLOWED).filter(|allowed| !allowed.is_empty()) else {
        return Ok(());
    };
    let own = pod.pointer("/spec/tolerations").and_then(Value::as_array).into_iter().flatten();
    if own.clone().all(|toleration| allowed.iter().any(|one| covers(one, toleration))) {
        return Ok(());
    }
    let why = "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist";
    Err(context.forbidden(Metadata::of(pod).name(), why))
}

/// Whether `allowed` is at least as wide as `toleration`.
fn covers(allowed: &Value, toleration: &Value) -> bool {
    let text = |of: &Value, field: &str| of.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let agrees =
        |field: &str| text(allowed, field).is_empty() || text(allowed, field) == text(toleration, field);
    let is_any_value = text(allowed, "operator") == "Exists";
    agrees("key") && agrees("effect") && (is_any_value || text(allowed, "value") == text(toleration, "value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wider_toleration_covers_a_narrower_one() {
        let rows = [
            (
                json!({"key": "a", "operator": "Exists"}),
                json!({"key": "a", "value": "x", "effect": "NoExecute"}),
                true,
            ),
            (json!({"key": "a", "value": "x"}), json!({"key": "a", "value": "y"}), false),
            (
                json!({"operator": "Exists", "effect": "NoSchedule"}),
                json!({"key": "b", "effect": "NoExecute"}),
                false,
            ),
        ];
        for (allowed, toleration, expect) in rows {
            assert_eq!(covers(&allowed, &toleration), expect, "{allowed} {toleration}");
        }
    }
}
