//! Admission, aggregation, flow control, and the API server's own records.

use serde_json::Value;

use super::{
    AGE, Column, NAME, column, condition, first_three, integer, len, list, number, selector, text, text_or,
};

/// Webhook configurations of both kinds.
pub const WEBHOOK_CONFIGURATION: &[Column] =
    &[NAME, integer("Webhooks", |o, _| len(o, "/webhooks").into()), AGE];

/// ValidatingAdmissionPolicies.
pub const VALIDATING_ADMISSION_POLICY: &[Column] =
    &[NAME, integer("Validations", |o, _| len(o, "/spec/validations").into()), PARAM_KIND, AGE];

/// MutatingAdmissionPolicies.
pub const ADMISSION_POLICY: &[Column] =
    &[NAME, integer("Mutations", |o, _| len(o, "/spec/mutations").into()), PARAM_KIND, AGE];

const PARAM_KIND: Column = column("ParamKind", |o, _| match text(o, "/spec/paramKind/kind") {
    "" => "<unset>".into(),
    kind => format!("{}/{kind}", text(o, "/spec/paramKind/apiVersion")).into(),
});

/// Bindings of admission policies.
pub const ADMISSION_POLICY_BINDING: &[Column] = &[
    NAME,
    column("PolicyName", |o, _| text(o, "/spec/policyName").into()),
    column("ParamRef", |o, _| {
        let reference = |field: &str| text(o, &format!("/spec/paramRef/{field}"));
        match (reference("namespace"), reference("name")) {
            (_, "") if o.pointer("/spec/paramRef/selector").is_some() => {
                selector(o, "/spec/paramRef/selector").into()
            }
            (_, "") => "<unset>".into(),
            // From here it cannot be seen whether parameters live in a namespace.
            ("", name) => format!("*/{name}").into(),
            (namespace, name) => format!("{namespace}/{name}").into(),
        }
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

/// FlowSchemas.
pub const FLOW_SCHEMA: &[Column] = &[
    NAME,
    column("PriorityLevel", |o, _| text(o, "/spec/priorityLevelConfiguration/name").into()),
    column("MatchingPrecedence", |o, _| number(o, "/spec/matchingPrecedence").into()),
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
    column("NominalConcurrencyShares", |o, _| or_none(o.pointer("/spec/limited/nominalConcurrencyShares"))),
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

/// StorageVersions.
pub const STORAGE_VERSION: &[Column] = &[
    NAME,
    column("CommonEncodingVersion", |o, _| text_or(o, "/status/commonEncodingVersion", "<unset>").into()),
    column("StorageVersions", |o, _| {
        let server = |s: &Value| format!("{}={}", text(s, "/apiServerID"), text(s, "/encodingVersion"));
        let servers: Vec<_> = list(o, "/status/storageVersions").iter().map(server).collect();
        first_three(&servers, "<unset>").into()
    }),
    AGE,
];

/// StorageVersionMigrations.
pub const STORAGE_VERSION_MIGRATION: &[Column] = &[
    NAME.of("string", ""),
    column("Resource", |o, _| {
        let part = |field: &str| text(o, &format!("/spec/resource/{field}"));
        machinery::group::group_resource(part("group"), part("resource")).into()
    }),
];
