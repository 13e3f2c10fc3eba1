//! Admission, aggregation, flow control, and the API server's own records.

use serde_json::Value;

use super::{
    AGE, Column, NAME, column, condition, first_three, integer, len, list, number, selector, text, text_or,
};

/// Webhook configurations of both kinds.
pub const WEBHOOK_CONFIGURATION: &[Column] = &[
    NAME,
    integer("Webhooks", |o, _| len(o, "/webhooks").into())
        .says("Webhooks indicates the number of webhooks registered in this configuration"),
    AGE,
];

/// ValidatingAdmissionPolicies.
pub const VALIDATING_ADMISSION_POLICY: &[Column] = &[
    NAME,
    integer("Validations", |o, _| len(o, "/spec/validations").into())
        .says("Validations indicates the number of validation rules defined in this configuration"),
    PARAM_KIND,
    AGE,
];

/// MutatingAdmissionPolicies.
pub const ADMISSION_POLICY: &[Column] = &[
    NAME,
    integer("Mutations", |o, _| len(o, "/spec/mutations").into())
        .says("Mutation indicates the number of mutations rules defined in this configuration"),
    PARAM_KIND,
    AGE,
];

const PARAM_KIND: Column = column("ParamKind", |o, _| match text(o, "/spec/paramKind/kind") {
    "" => "<unset>".into(),
    kind => format!("{}/{kind}", text(o, "/spec/paramKind/apiVersion")).into(),
})
.says("ParamKind specifies the kind of resources used to parameterize this policy");

/// Bindings of admission policies.
pub const ADMISSION_POLICY_BINDING: &[Column] = &[
    NAME,
    column("PolicyName", |o, _| text(o, "/spec/policyName").into())
        .says("PolicyName indicates the policy definition which the policy binding binded to"),
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
    })
    .says("ParamRef indicates the param resource which sets the configuration param"),
    AGE,
];

/// APIServices.
pub const API_SERVICE: &[Column] = &[
    NAME,
    column("Service", |o, _| match text(o, "/spec/service/name") {
        "" => "Local".into(),
        name => format!("{}/{name}", text(o, "/spec/service/namespace")).into(),
    })
    .says("The reference to the service that hosts this API endpoint."),
    column("Available", |o, _| {
        let found = list(o, "/status/conditions").iter().find(|c| text(c, "/type") == "Available");
        match (condition(o, "Available"), found.map_or("", |c| text(c, "/reason"))) {
            ("", _) => "Unknown".into(),
            ("True", _) | (_, "") => condition(o, "Available").into(),
            (status, reason) => format!("{status} ({reason})").into(),
        }
    })
    .says("Whether this service is available."),
    AGE,
];

/// FlowSchemas.
pub const FLOW_SCHEMA: &[Column] = &[
    NAME,
    column("PriorityLevel", |o, _| text(o, "/spec/priorityLevelConfiguration/name").into())
        .of("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationReference", "name"),
    column("MatchingPrecedence", |o, _| number(o, "/spec/matchingPrecedence").into())
        .of("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", "matchingPrecedence"),
    column("DistinguisherMethod", |o, _| text_or(o, "/spec/distinguisherMethod/type", "<none>").into())
        .of("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", "distinguisherMethod"),
    AGE,
    column("MissingPL", |o, _| match condition(o, "Dangling") {
        "" => "?".into(),
        status => status.into(),
    })
    .says("references a broken or non-existent PriorityLevelConfiguration"),
];

/// PriorityLevelConfigurations.
pub const PRIORITY_LEVEL_CONFIGURATION: &[Column] = &[
    NAME,
    column("Type", |o, _| text(o, "/spec/type").into())
        .of("io.k8s.api.flowcontrol.v1.PriorityLevelConfigurationSpec", "type"),
    column("NominalConcurrencyShares", |o, _| or_none(o.pointer("/spec/limited/nominalConcurrencyShares")))
        .of("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", "nominalConcurrencyShares"),
    column("Queues", |o, _| or_none(o.pointer("/spec/limited/limitResponse/queuing/queues")))
        .of("io.k8s.api.flowcontrol.v1.QueuingConfiguration", "queues"),
    column("HandSize", |o, _| or_none(o.pointer("/spec/limited/limitResponse/queuing/handSize")))
        .of("io.k8s.api.flowcontrol.v1.QueuingConfiguration", "handSize"),
    column("QueueLengthLimit", |o, _| {
        or_none(o.pointer("/spec/limited/limitResponse/queuing/queueLengthLimit"))
    })
    .of("io.k8s.api.flowcontrol.v1.QueuingConfiguration", "queueLengthLimit"),
    AGE,
];

fn or_none(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or_else(|| "<none>".into())
}

/// StorageVersions.
pub const STORAGE_VERSION: &[Column] = &[
    NAME,
    column("CommonEncodingVersion", |o, _| text_or(o, "/status/commonEncodingVersion", "<unset>").into())
        .of("io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus", "commonEncodingVersion"),
    column("StorageVersions", |o, _| {
        let server = |s: &Value| format!("{}={}", text(s, "/apiServerID"), text(s, "/encodingVersion"));
        let servers: Vec<_> = list(o, "/status/storageVersions").iter().map(server).collect();
        first_three(&servers, "<unset>").into()
    })
    .of("io.k8s.api.apiserverinternal.v1alpha1.StorageVersionStatus", "storageVersions"),
    AGE,
];

/// StorageVersionMigrations.
pub const STORAGE_VERSION_MIGRATION: &[Column] = &[
    NAME.typed("string", ""),
    column("Resource", |o, _| {
        let part = |field: &str| text(o, &format!("/spec/resource/{field}"));
        machinery::group::group_resource(part("group"), part("resource")).into()
    })
    .says("GroupResource to migrate"),
];
