//! Services.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::{At, PROTOCOLS, labels};

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// A Service.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    let kind = spec.get("type").text();
    let is_headless = spec.get("clusterIP").text() == "None";
    if spec.get("ports").is_empty() && !is_headless && kind != "ExternalName" {
        errors.push(spec.get("ports").required(""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless => {
            errors.push(
                spec.get("clusterIPs")
                    .items()
                    .next()
                    .unwrap_or_else(|| spec.get("clusterIP"))
                    .invalid(&format!("may not be set to 'None' for {kind} services")),
            );
        }
        "ExternalName" => {
            let (name, ip) = (spec.get("externalName"), spec.get("clusterIP"));
            if !ip.text().is_empty() {
                errors.push(spec.get("clusterIPs").forbidden("may not be set when `type` is 'ExternalName'"));
            }
            name.named(|text| names::dns1123_subdomain(text.strip_suffix('.').unwrap_or(text)), &mut errors);
        }
        _ => {}
    }
    ports(&spec, kind, &mut errors);
    labels(&spec.get("selector"), &mut errors);
    spec.get("sessionAffinity").one_of(&["ClientIP", "None"], &mut errors);
    session_affinity(&spec, &mut errors);
    addresses(&spec, &mut errors);
    spec.get("type").one_of(TYPES, &mut errors);
    spec.get("internalTrafficPolicy").if_one_of(&["Cluster", "Local"], &mut errors);
    spec.get("externalTrafficPolicy").if_one_of(&["Cluster", "Local"], &mut errors);
    spec.get("ipFamilyPolicy")
        .if_one_of(&["PreferDualStack", "RequireDualStack", "SingleStack"], &mut errors);
    for family in spec.get("ipFamilies").items() {
        family.if_one_of(&["IPv4", "IPv6"], &mut errors);
    }
    errors
}

/// An update of a Service.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = check(new);
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    let (was, is) = (old.get("clusterIP"), new.get("clusterIP"));
    let types = [old.get("type").text(), new.get("type").text()];
    if !types.contains(&"ExternalName") && !was.text().is_empty() && was.text() != is.text() {
        let at = new.get("clusterIPs").path.index(0);
        errors.push(FieldError::invalid(&at, new.get("clusterIPs").value, "may not change once set"));
    }
    errors
}

fn ports(spec: &At<'_>, kind: &str, errors: &mut FieldErrors) {
    let ports = spec.get("ports");
    let (mut names_seen, mut seen, mut node_ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for port in ports.items() {
        let (name, number) = (port.get("name"), port.get("port"));
        if ports.len() > 1 && name.text().is_empty() {
            errors.push(name.required(""));
        } else if !name.text().is_empty() {
            errors.extend(name.all(names::dns1123_label(name.text())));
            if !names_seen.insert(name.text()) {
                errors.push(name.duplicate());
            }
        }
        errors.extend(number.all(names::port_number(number.number().unwrap_or_default())));
        port.get("protocol").one_of(PROTOCOLS, errors);
        port.get("targetPort").port(errors);
        let node_port = port.get("nodePort");
        let node_number = node_port.number().unwrap_or_default();
        if kind == "ClusterIP" && node_number != 0 {
            errors.push(node_port.forbidden("may not be used when `type` is 'ClusterIP'"));
        }
        let protocol = port.get("protocol").text();
        if node_number != 0 && !node_ports.insert((protocol, node_number)) {
            errors.push(node_port.duplicate());
        }
        if !seen.insert((protocol, number.number())) {
            errors.push(port.duplicate());
        }
    }
}

fn session_affinity(spec: &At<'_>, errors: &mut FieldErrors) {
    let config = spec.get("sessionAffinityConfig");
    if spec.get("sessionAffinity").text() != "ClientIP" {
        if config.is_set() {
            errors.push(config.forbidden("must not be set when session affinity is None"));
        }
        return;
    }
    let timeout = config.get("clientIP").get("timeoutSeconds");
    if !(1..=86_400).contains(&timeout.number().unwrap_or_default()) {
        errors.push(timeout.invalid("must be greater than 0 and less than 86400"));
    }
}

fn addresses(spec: &At<'_>, errors: &mut FieldErrors) {
    for ip in spec.get("clusterIPs").items() {
        if ip.text() != "None" {
            ip.ip(errors);
        }
    }
    if spec.get("clusterIPs").is_empty() {
        let ip = spec.get("clusterIP");
        if !ip.text().is_empty() && ip.text() != "None" {
            ip.ip(errors);
        }
    }
    for ip in spec.get("externalIPs").items() {
        ip.ip(errors);
        let is_special = ip
            .text()
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_unspecified() || ip.is_loopback() || ip.is_multicast());
        if is_special {
            errors.push(ip.invalid(
                "may not be unspecified, in the loopback range (127.0.0.0/8, ::1/128) or multicast",
            ));
        }
    }
}
