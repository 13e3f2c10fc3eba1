//! Admission, custom resources and aggregation.

use serde_json::{Map, Value, json};

use super::{Row, absent, text, unset};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.admissionregistration.v1.MutatingWebhook", mutating_webhook),
    ("io.k8s.api.admissionregistration.v1.ValidatingWebhook", webhook),
    ("io.k8s.api.admissionregistration.v1.RuleWithOperations", |m| absent(m, "scope", "*")),
    ("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations", |m| absent(m, "scope", "*")),
    ("io.k8s.api.admissionregistration.v1.ServiceReference", |m| absent(m, "port", 443)),
    ("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec", |m| {
        absent(m, "failurePolicy", "Fail")
    }),
    ("io.k8s.api.admissionregistration.v1.MatchResources", match_resources),
    ("io.k8s.api.admissionregistration.v1beta1.MutatingAdmissionPolicySpec", |m| {
        absent(m, "failurePolicy", "Fail")
    }),
    ("io.k8s.api.admissionregistration.v1beta1.MatchResources", match_resources),
    ("io.k8s.api.admissionregistration.v1beta1.NamedRuleWithOperations", |m| absent(m, "scope", "*")),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
        custom_resource_definition,
    ),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference", |m| absent(m, "port", 443)),
    ("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference", |m| absent(m, "port", 443)),
];

fn webhook(webhook: &mut Map<String, Value>) {
    absent(webhook, "failurePolicy", "Fail");
    absent(webhook, "timeoutSeconds", 10);
    match_resources(webhook);
}

fn mutating_webhook(hook: &mut Map<String, Value>) {
    webhook(hook);
    absent(hook, "reinvocationPolicy", "Never");
}

fn match_resources(rules: &mut Map<String, Value>) {
    absent(rules, "matchPolicy", "Equivalent");
    absent(rules, "namespaceSelector", Map::new());
    absent(rules, "objectSelector", Map::new());
}

fn custom_resource_definition(spec: &mut Map<String, Value>) {
    absent(spec, "conversion", json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() {
        unset(names, "singular", kind.to_lowercase());
        unset(names, "listKind", format!("{kind}List"));
    }
}
