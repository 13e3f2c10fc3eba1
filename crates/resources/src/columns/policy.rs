//! Policy, scheduling and runtime classes.

use serde_json::Value;

use super::{AGE, Column, NAME, column, flag, number, text, text_or};

/// PodDisruptionBudgets.
pub const POD_DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    column("Min Available", |o, _| amount(o, "/spec/minAvailable").into())
        .says("The minimum number of pods that must be available."),
    column("Max Unavailable", |o, _| amount(o, "/spec/maxUnavailable").into())
        .says("The maximum number of pods that may be unavailable."),
    super::integer("Allowed Disruptions", |o, _| number(o, "/status/disruptionsAllowed").into())
        .says("Calculated number of pods that may be disrupted at this time."),
    AGE,
];

fn amount(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "N/A".to_owned(),
    }
}

/// PriorityClasses.
pub const PRIORITY_CLASS: &[Column] = &[
    NAME,
    super::integer("Value", |o, _| number(o, "/value").into())
        .of("io.k8s.api.scheduling.v1.PriorityClass", "value"),
    column("Global-Default", |o, _| flag(o, "/globalDefault").into())
        .of("io.k8s.api.scheduling.v1.PriorityClass", "globalDefault"),
    AGE,
    column("PreemptionPolicy", |o, _| text_or(o, "/preemptionPolicy", "<unset>").into())
        .of("io.k8s.api.scheduling.v1.PriorityClass", "preemptionPolicy"),
];

/// RuntimeClasses.
pub const RUNTIME_CLASS: &[Column] = &[NAME, column("Handler", |o, _| text(o, "/handler").into()), AGE];
