//! Admission, aggregation, policy, scheduling, flow control and runtime classes.

use serde_json::Value;

use super::{AGE, Column, NAME, column, condition, flag, len, list, number, text, text_or};

/// Webhook configurations of both kinds.
pub const WEBHOOK_CONFIGURATION: &[Column] =
    &[NAME, column("Webhooks", |o, _| len(o, "/webhooks").into()), AGE];

/// ValidatingAdmissionPolicies.
pub const VALIDATING_ADMISSION_POLICY: &[Column] =
    &[NAME, column("Validations", |o, _| len(o, "/spec/validations").into()), PARAM_KIND, AGE];

/// MutatingAdmissionPolicies.
pub const ADMISSION_POLICY: &[Column] =
    &[NAME, column("Mutations", |o, _| len(o, "/spec/mutations").into()), PARAM_KIND, AGE];

const PARAM_KIND: Column = column("ParamKind", |o, _| match text(o, "/spec/paramKind/kind") {
    "" => "<unset>".into(),
    kind => format!("{}/{kind}", text(o, "/spec/paramKind/apiVersion")).into(),
});

/// Bindings of admission policies.
pub const ADMISSION_POLICY_BINDING: &[Column] = &[
    NAME,
    column("PolicyName", |o, _| text(o, "/spec/policyName").into()),
    column("ParamRef", |o, _| match (text(o, "/spec/paramRef/namespace"), text(o, "/spec/paramRef/name")) {
        (_, "") => "<unset>".into(),
        ("", name) => name.into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    }),
    AGE,
];

/// APIServices.
pub const API_SERVICE: &[Column] = &[
    NAME,
    column("Service", |o, _| match text(o, "/spec/service/name") {
        "" => "Local".into(),
        name => format!("{}/{name}", text(o, "/spec/service/namespace")).into(),
    }),
    column("Available", |o, _| {
        let found = list(o, "/status/conditions").iter().find(|c| text(c, "/type") == "Available");
        match (condition(o, "Available"), found.map_or("", |c| text(c, "/reason"))) {
            ("", _) => "Unknown".into(),
            ("True", _) | (_, "") => condition(o, "Available").into(),
            (status, reason) => format!("{status} ({reason})").into(),
        }
    }),
    AGE,
];

/// PodDisruptionBudgets.
pub const POD_DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    column("Min Available", |o, _| amount(o, "/spec/minAvailable").into()),
    column("Max Unavailable", |o, _| amount(o, "/spec/maxUnavailable").into()),
    super::integer("Allowed Disruptions", |o, _| number(o, "/status/disruptionsAllowed").into()),
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
    super::integer("Value", |o, _| number(o, "/value").into()),
    column("Global-Default", |o, _| flag(o, "/globalDefault").into()),
    AGE,
    column("PreemptionPolicy", |o, _| text_or(o, "/preemptionPolicy", "<unset>").into()),
];

/// FlowSchemas.
pub const FLOW_SCHEMA: &[Column] = &[
    NAME,
    column("PriorityLevel", |o, _| text(o, "/spec/priorityLevelConfiguration/name").into()),
    super::integer("MatchingPrecedence", |o, _| number(o, "/spec/matchingPrecedence").into()),
    column("DistinguisherMethod", |o, _| text_or(o, "/spec/distinguisherMethod/type", "<none>").into()),
    AGE,
    column("MissingPL", |o, _| match condition(o, "Dangling") {
        "" => "?".into(),
        status => status.into(),
    }),
];

/// PriorityLevelConfigurations.
pub const PRIORITY_LEVEL_CONFIGURATION: &[Column] = &[
    NAME,
    column("Type", |o, _| text(o, "/spec/type").into()),
    column("NominalConcurrencyShares", |o, _| {
        let kind = text(o, "/spec/type").to_lowercase();
        or_none(o.pointer(&format!("/spec/{kind}/nominalConcurrencyShares")))
    }),
    column("Queues", |o, _| or_none(o.pointer("/spec/limited/limitResponse/queuing/queues"))),
    column("HandSize", |o, _| or_none(o.pointer("/spec/limited/limitResponse/queuing/handSize"))),
    column("QueueLengthLimit", |o, _| {
        or_none(o.pointer("/spec/limited/limitResponse/queuing/queueLengthLimit"))
    }),
    AGE,
];

fn or_none(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or_else(|| "<none>".into())
}

/// RuntimeClasses.
pub const RUNTIME_CLASS: &[Column] = &[NAME, column("Handler", |o, _| text(o, "/handler").into()), AGE];
