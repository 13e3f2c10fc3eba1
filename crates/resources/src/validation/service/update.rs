//! The fields that may change in a Service that exists, and the content of its status.

use machinery::field::FieldErrors;
use machinery::names;
use machinery::net::legacy_ip;
use serde_json::Value;

use super::{addresses, check, kind, needs_health_check};
use crate::validation::At;

/// An update of a Service.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    {
        let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
        addresses::update(&new, &old, &mut errors);
        let class = new.get("loadBalancerClass");
        let is_balanced = kind(&new) == "LoadBalancer" && kind(&old) == "LoadBalancer";
        if is_balanced && class.value != old.get("loadBalancerClass").value {
            errors.push(class.invalid("may not change once set"));
        }
        let port = new.get("healthCheckNodePort");
        let is_checked = needs_health_check(&new) && needs_health_check(&old);
        if is_checked && port.number() != old.get("healthCheckNodePort").number() {
            errors.push(port.forbidden("field is immutable"));
        }
    }
    errors.extend(check(new));
    errors
}

/// A write to `/status`: where the load balancer is.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let service = At::root(new);
    let ingress = service.get("status").get("loadBalancer").get("ingress");
    if kind(&service.get("spec")) != "LoadBalancer" && !ingress.is_empty() {
        return ingress.forbidden("may only be used when `spec.type` is 'LoadBalancer'").into();
    }
    for point in ingress.items() {
        let (ip, mode, host) = (point.get("ip"), point.get("ipMode"), point.get("hostname"));
        if !ip.text().is_empty() {
            ip.ip(&mut errors);
        }
        match (mode.is_set(), ip.text()) {
            (false, "") => {}
            (false, _) => errors.push(mode.required("must be specified when `ip` is set")),
            (true, "") => errors.push(mode.forbidden("may not be specified when `ip` is not set")),
            (true, _) => mode.if_one_of(&["Proxy", "VIP"], &mut errors),
        }
        if !host.text().is_empty() {
            errors.extend(host.all(names::dns1123_subdomain(host.text())));
            if legacy_ip(host.text()).is_some() {
                errors.push(host.invalid("must be a DNS name, not an IP address"));
            }
        }
    }
    errors
}
