//! RBAC, discovery, networking, storage, admission, flow control and extensions.

use serde_json::{Map, Value, json};

use super::{Row, absent, object, text, unset};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.rbac.v1.RoleRef", |m| unset(m, "apiGroup", RBAC)),
    ("io.k8s.api.rbac.v1.Subject", subject),
    ("io.k8s.api.discovery.v1.EndpointPort", endpoint_port),
    ("io.k8s.api.networking.v1.NetworkPolicySpec", network_policy),
    ("io.k8s.api.networking.v1.NetworkPolicyPort", |m| absent(m, "protocol", "TCP")),
    ("io.k8s.api.networking.v1.IngressClassParametersReference", |m| absent(m, "scope", "Cluster")),
    ("io.k8s.api.storage.v1.StorageClass", storage_class),
    ("io.k8s.api.storage.v1.CSIDriverSpec", csi_driver),
    ("io.k8s.api.scheduling.v1.PriorityClass", |m| absent(m, "preemptionPolicy", "PreemptLowerPriority")),
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
    ("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", |m| unset(m, "matchingPrecedence", 1000)),
    ("io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration", limited_priority_level),
    ("io.k8s.api.flowcontrol.v1.ExemptPriorityLevelConfiguration", exempt_priority_level),
    ("io.k8s.api.flowcontrol.v1.QueuingConfiguration", queuing),
    ("io.k8s.api.resource.v1.ExactDeviceRequest", device_request),
    ("io.k8s.api.resource.v1.DeviceSubRequest", device_request),
    ("io.k8s.api.resource.v1.DeviceToleration", |m| unset(m, "operator", "Equal")),
    ("io.k8s.api.certificates.v1.CertificateSigningRequestCondition", |m| unset(m, "status", "True")),
    ("io.k8s.api.certificates.v1beta1.PodCertificateRequestSpec", |m| {
        absent(m, "maxExpirationSeconds", 86_400)
    }),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
        custom_resource_definition,
    ),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference", |m| absent(m, "port", 443)),
    ("io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference", |m| absent(m, "port", 443)),
];

fn subject(subject: &mut Map<String, Value>) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        unset(subject, "apiGroup", RBAC);
    }
}

fn endpoint_port(port: &mut Map<String, Value>) {
    absent(port, "name", "");
    absent(port, "protocol", "TCP");
}

fn network_policy(spec: &mut Map<String, Value>) {
    let has_egress = spec.get("egress").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    if spec.get("policyTypes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn storage_class(class: &mut Map<String, Value>) {
    absent(class, "reclaimPolicy", "Delete");
    absent(class, "volumeBindingMode", "Immediate");
}

fn csi_driver(spec: &mut Map<String, Value>) {
    absent(spec, "attachRequired", true);
    absent(spec, "podInfoOnMount", false);
    absent(spec, "storageCapacity", false);
    absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    absent(spec, "volumeLifecycleModes", json!(["Persistent"]));
    absent(spec, "requiresRepublish", false);
    absent(spec, "seLinuxMount", false);
}

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

fn device_request(request: &mut Map<String, Value>) {
    unset(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        unset(request, "count", 1);
    }
}

fn limited_priority_level(level: &mut Map<String, Value>) {
    absent(level, "nominalConcurrencyShares", 30);
    absent(level, "lendablePercent", 0);
    if let Some(response) = object(level, "limitResponse") {
        unset(response, "type", "Reject");
    }
}

fn exempt_priority_level(level: &mut Map<String, Value>) {
    absent(level, "nominalConcurrencyShares", 0);
    absent(level, "lendablePercent", 0);
}

fn queuing(queuing: &mut Map<String, Value>) {
    unset(queuing, "queues", 64);
    unset(queuing, "handSize", 8);
    unset(queuing, "queueLengthLimit", 50);
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
