//! `networking` and `discovery`.

use serde_json::{Map, Value, json};

use super::{Row, absent};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.discovery.v1.EndpointPort", endpoint_port),
    ("io.k8s.api.networking.v1.NetworkPolicySpec", network_policy),
    ("io.k8s.api.networking.v1.NetworkPolicyPort", |m| absent(m, "protocol", "TCP")),
    ("io.k8s.api.networking.v1.IngressClassParametersReference", |m| absent(m, "scope", "Cluster")),
];

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
