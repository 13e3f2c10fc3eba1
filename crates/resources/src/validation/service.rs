//! Services.

mod addresses;
mod update;

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use serde_json::{Value, json};

use super::{At, PROTOCOLS, internal, labels};

pub(crate) use update::{status_update, update};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const BALANCERS_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

/// A Service.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let service = At::root(object);
    let spec = service.get("spec");
    topology(&service, &mut errors);
    if spec.get("ports").is_empty() && !is_headless(&spec) && kind(&spec) != "ExternalName" {
        errors.push(spec.get("ports").required(""));
    }
    by_type(&spec, &mut errors);
    ports(&spec, &mut errors);
    labels(&spec.get("selector"), &mut errors);
    spec.get("sessionAffinity").one_of(&["ClientIP", "None"], &mut errors);
    session_affinity(&spec, &mut errors);
    addresses::cluster(&spec, &mut errors);
    addresses::external(&spec, &mut errors);
    spec.get("type").one_of(TYPES, &mut errors);
    port_conflicts(&spec, &mut errors);
    source_ranges(&service, &mut errors);
    load_balancer(&spec, &mut errors);
    external_traffic(&spec, &mut errors);
    let policy = spec.get("internalTrafficPolicy");
    if !policy.is_set() && matches!(kind(&spec), "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.push(policy.required(""));
    }
    policy.if_one_of(&["Cluster", "Local"], &mut errors);
    spec.get("trafficDistribution")
        .if_one_of(&["PreferClose", "PreferSameNode", "PreferSameZone"], &mut errors);
    errors
}

/// The rules for the addresses and address families of a Service's `spec`: what must hold before any are given out.
pub fn service_cluster_addresses(spec: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    addresses::cluster(&At { value: spec, path: Path::new("spec") }, &mut errors);
    errors
}

fn kind<'a>(spec: &At<'a>) -> &'a str {
    spec.get("type").text()
}

/// Whether the Service has no address of its own.
fn is_headless(spec: &At<'_>) -> bool {
    let ips = spec.get("clusterIPs");
    match ips.len() {
        0 => spec.get("clusterIP").text() == "None",
        1 => ips.texts().next() == Some("None"),
        _ => false,
    }
}

/// Whether traffic from outside the cluster can reach it.
fn is_reachable_from_outside(spec: &At<'_>) -> bool {
    match kind(spec) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !spec.get("externalIPs").is_empty(),
        _ => false,
    }
}

/// Whether load balancers must be told which nodes have Pods of it.
fn needs_health_check(spec: &At<'_>) -> bool {
    kind(spec) == "LoadBalancer" && spec.get("externalTrafficPolicy").text() == "Local"
}

fn topology(service: &At<'_>, errors: &mut FieldErrors) {
    let annotations = service.annotations();
    let (hints, mode) = (annotations.get(TOPOLOGY_HINTS), annotations.get(TOPOLOGY_MODE));
    if hints.is_set() && mode.is_set() && hints.value != mode.value {
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.push(FieldError::invalid(&annotations.path.key(TOPOLOGY_MODE), mode.text(), &detail));
    }
}

fn by_type(spec: &At<'_>, errors: &mut FieldErrors) {
    const DETAIL: &str = "may not be set for ExternalName services";
    match kind(spec) {
        kind @ ("LoadBalancer" | "NodePort") if is_headless(spec) => {
            let path = spec.get("clusterIPs").path.index(0);
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(&path, "None", &detail));
        }
        "ExternalName" => {
            let (name, ips) = (spec.get("externalName"), spec.get("clusterIPs"));
            if !ips.is_empty() || !spec.get("clusterIP").text().is_empty() {
                errors.push(ips.forbidden(DETAIL));
            }
            if !spec.get("ipFamilies").is_empty() {
                errors.push(spec.get("ipFamilies").forbidden(DETAIL));
            }
            if spec.get("ipFamilyPolicy").is_set() {
                errors.push(spec.get("ipFamilyPolicy").forbidden(DETAIL));
            }
            // A trailing dot says that the name is complete.
            match name.text().strip_suffix('.').unwrap_or(name.text()) {
                "" => errors.push(name.required("")),
                text => {
                    let rules = names::dns1123_subdomain(text);
                    errors.extend(rules.iter().map(|rule| FieldError::invalid(&name.path, text, rule)));
                }
            }
        }
        _ => {}
    }
}

fn ports(spec: &At<'_>, errors: &mut FieldErrors) {
    let ports = spec.get("ports");
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        if ports.len() > 1 && name.text().is_empty() {
            errors.push(name.required(""));
        } else if !name.text().is_empty() {
            errors.extend(name.all(names::dns1123_label(name.text())));
            if !seen.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        port.get("port").port_number(errors);
        port.get("protocol").one_of(PROTOCOLS, errors);
        port.get("targetPort").port(errors);
        if let Some(protocol) = port.some("appProtocol") {
            errors.extend(protocol.all(names::qualified_name(protocol.text())));
        }
    }
}

fn port_conflicts(spec: &At<'_>, errors: &mut FieldErrors) {
    let ports = spec.get("ports");
    if kind(spec) == "ClusterIP" {
        for port in ports.items().filter(|port| port.get("nodePort").number().unwrap_or_default() != 0) {
            errors.push(port.get("nodePort").forbidden("may not be used when `type` is 'ClusterIP'"));
        }
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let number = port.get("nodePort").number().unwrap_or_default();
        if number != 0 && !seen.insert((port.get("protocol").text(), number)) {
            errors.push(port.get("nodePort").duplicate());
        }
    }
    seen.clear();
    for port in ports.items() {
        let (protocol, number) = (port.get("protocol").text(), port.get("port").number().unwrap_or_default());
        if !seen.insert((protocol, number)) {
            let key = json!({"port": number, "protocol": protocol});
            errors.push(internal::duplicate(&At { value: &key, path: port.path.clone() }, "ServicePort"));
        }
    }
}

fn session_affinity(spec: &At<'_>, errors: &mut FieldErrors) {
    const REQUIRED: &str = "when session affinity type is ClientIP";
    let config = spec.get("sessionAffinityConfig");
    let (client, timeout) = (config.get("clientIP"), config.get("clientIP").get("timeoutSeconds"));
    match spec.get("sessionAffinity").text() {
        "None" if config.is_set() => {
            errors.push(config.forbidden("must not be set when session affinity is None"));
        }
        "ClientIP" => match [&config, &client, &timeout].into_iter().find(|at| !at.is_set()) {
            Some(missing) => errors.push(missing.required(REQUIRED)),
            None if !(1..=AFFINITY_SECONDS_MAX).contains(&timeout.number().unwrap_or_default()) => {
                let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                errors.push(timeout.invalid(&detail));
            }
            None => {}
        },
        _ => {}
    }
}

/// From where a load balancer lets clients in; a field, and an annotation from before it.
fn source_ranges(service: &At<'_>, errors: &mut FieldErrors) {
    let spec = service.get("spec");
    let is_balanced = kind(&spec) == "LoadBalancer";
    // Upstream names the field like this.
    let path = spec.path.child("LoadBalancerSourceRanges");
    let ranges = At { path: path.clone(), ..spec.get("loadBalancerSourceRanges") };
    if !ranges.is_empty() {
        if !is_balanced {
            errors.push(ranges.forbidden(BALANCERS_ONLY));
        }
        for range in ranges.items() {
            // Spaces around a range are part of the API, for historic reasons.
            At { value: &range.text().trim().into(), path: range.path }.cidr(errors);
        }
        return;
    }
    let annotations = service.annotations();
    let Some(annotation) = annotations.some(SOURCE_RANGES) else { return };
    let path = annotations.path.key(SOURCE_RANGES);
    if !is_balanced {
        errors.push(FieldError::forbidden(&path, BALANCERS_ONLY));
    }
    let text = annotation.text().trim();
    for range in text.split(',').map(str::trim).filter(|_| !text.is_empty()) {
        At { value: &range.into(), path: path.clone() }.cidr(errors);
    }
}

fn load_balancer(spec: &At<'_>, errors: &mut FieldErrors) {
    let (ports, is_balanced) = (spec.get("allocateLoadBalancerNodePorts"), kind(spec) == "LoadBalancer");
    if ports.is_set() && !is_balanced {
        errors.push(ports.forbidden(BALANCERS_ONLY));
    }
    if !ports.is_set() && is_balanced {
        // Upstream names the field without `spec`.
        let path = Path::new("allocateLoadBalancerNodePorts");
        errors.push(FieldError::required(&path, ""));
    }
    load_balancer_class(spec, errors);
}

fn load_balancer_class(spec: &At<'_>, errors: &mut FieldErrors) {
    let Some(class) = spec.some("loadBalancerClass") else { return };
    if kind(spec) == "LoadBalancer" {
        errors.extend(class.all(names::qualified_name(class.text())));
    } else {
        errors.push(class.forbidden(BALANCERS_ONLY));
    }
}

fn external_traffic(spec: &At<'_>, errors: &mut FieldErrors) {
    let (policy, port) = (spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort"));
    if is_reachable_from_outside(spec) {
        policy.one_of(&["Cluster", "Local"], errors);
    } else if !policy.text().is_empty() {
        errors.push(policy.invalid("may only be set for externally-accessible services"));
    }
    let number = port.number().unwrap_or_default();
    if !needs_health_check(spec) {
        if number != 0 {
            errors.push(port.invalid(
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            ));
        }
    } else if number != 0 {
        // Without a number the API server gives one out.
        port.port_number(errors);
    }
}
