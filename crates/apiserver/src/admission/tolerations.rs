//! Pods tolerate a node that is not ready or cannot be reached for five minutes, unless they say otherwise.
//!
//! Source: `plugin/pkg/admission/defaulttolerationseconds`.

use serde_json::{Value, json};

use super::{Context, child};
use crate::status::Result;

const SECONDS: i64 = 300;
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Adds the two tolerations where nothing covers them, to new Pods and to changed ones: who writes a list of his own
/// does not take them away.
pub(super) fn mutate(context: &Context<'_>, pod: &mut Value) -> Result<()> {
    if !context.is_core("pods") {
        return Ok(());
    }
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return Ok(()) };
    for taint in TAINTS {
        if !tolerations.iter().any(|toleration| covers(toleration, taint)) {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
            }));
        }
    }
    Ok(())
}

fn covers(toleration: &Value, taint: &str) -> bool {
    let text = |name: &str| toleration.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("key") == taint || text("key").is_empty())
        && (text("effect") == "NoExecute" || text("effect").is_empty())
}
