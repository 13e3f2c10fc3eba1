//! New nodes are tainted until they are found ready.
//!
//! Source: `plugin/pkg/admission/nodetaint`.

use serde_json::{Value, json};

use super::{Context, Operation, child};
use crate::status::Result;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints a new node.
pub(super) fn mutate(context: &Context<'_>, node: &mut Value) -> Result<()> {
    if context.operation != Operation::Create || !context.is_core("nodes") {
        return Ok(());
    }
    let Some(spec) = child(node, "spec") else { return Ok(()) };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    let Some(taints) = taints.as_array_mut() else { return Ok(()) };
    let is_there = taints.iter().any(|taint| {
        taint.get("key").is_some_and(|k| k == NOT_READY)
            && taint.get("effect").is_some_and(|e| e == "NoSchedule")
    });
    if !is_there {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
    Ok(())
}
