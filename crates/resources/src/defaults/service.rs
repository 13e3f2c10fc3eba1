//! Services. Addresses and node ports are given out by the API server, not here.

use serde_json::{Map, Value, json};

use super::{Row, absent, object, objects, text, unset};

const CLIENT_IP_TIMEOUT_SECONDS: i64 = 10_800;

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[("io.k8s.api.core.v1.Service", service)];

fn service(service: &mut Map<String, Value>) {
    let Some(spec) = object(service, "spec") else { return };
    unset(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout =
                spec.get("sessionAffinityConfig").and_then(|c| c.pointer("/clientIP/timeoutSeconds"));
            if timeout.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": CLIENT_IP_TIMEOUT_SECONDS}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    unset(spec, "type", "ClusterIP");
    for port in objects(spec, "ports") {
        unset(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            unset(port, "targetPort", number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let has_external_ips = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    let is_reachable_from_outside =
        matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && has_external_ips);
    if is_reachable_from_outside {
        unset(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        absent(spec, "allocateLoadBalancerNodePorts", true);
    }
}
