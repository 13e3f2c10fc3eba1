//! NetworkPolicies.

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::{At, ip, selector};

const DIRECTIONS: &[&str] = &["Ingress", "Egress"];

/// A NetworkPolicy.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    selector::check(&spec.get("podSelector"), &mut errors);
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(rules).items() {
            rule.get("ports").items().for_each(|item| port(&item, &mut errors));
            rule.get(peers).items().for_each(|item| peer(&item, &mut errors));
        }
    }
    let types = spec.get("policyTypes");
    if types.len() > DIRECTIONS.len() {
        errors.push(types.invalid("may not specify more than two policyTypes"));
        return errors;
    }
    types.items().for_each(|item| item.if_one_of(DIRECTIONS, &mut errors));
    errors
}

/// An update of a NetworkPolicy.
pub(crate) fn update(new: &Value, _: &Value) -> FieldErrors {
    check(new)
}

fn port(item: &At<'_>, errors: &mut FieldErrors) {
    item.get("protocol").if_one_of(&["TCP", "UDP", "SCTP"], errors);
    let (port, end) = (item.get("port"), item.get("endPort"));
    if !port.is_set() {
        if end.is_set() {
            errors.push(end.invalid("may not be specified when `port` is not specified"));
        }
        return;
    }
    match port.number() {
        Some(number) => {
            errors.extend(port.all(names::port_number(number)));
            let Some(last) = end.number() else { return };
            if last < number {
                // Upstream shows the port here.
                let rule = "must be greater than or equal to `port`";
                errors.push(FieldError::invalid(&end.path, number, rule));
            }
            errors.extend(end.all(names::port_number(last)));
        }
        None => {
            if end.is_set() {
                errors.push(end.invalid("may not be specified when `port` is non-numeric"));
            }
            errors.extend(port.all(names::port_name(port.text())));
        }
    }
}

fn peer(peer: &At<'_>, errors: &mut FieldErrors) {
    let selectors: Vec<_> =
        ["podSelector", "namespaceSelector"].iter().filter_map(|name| peer.some(name)).collect();
    selectors.iter().for_each(|item| selector::check(item, errors));
    let block = peer.some("ipBlock");
    if let Some(block) = &block {
        ip_block(block, errors);
    }
    match (selectors.is_empty(), block.is_some()) {
        (true, false) => errors.push(peer.required("must specify a peer")),
        (false, true) => errors.push(peer.forbidden("may not specify both ipBlock and another peer")),
        _ => {}
    }
}

fn ip_block(block: &At<'_>, errors: &mut FieldErrors) {
    let cidr = block.get("cidr");
    if cidr.text().is_empty() {
        errors.push(cidr.required(""));
        return;
    }
    let Some(range) = ip::legacy_cidr(&cidr, errors) else { return };
    for except in block.get("except").items() {
        let Some(inner) = ip::legacy_cidr(&except, errors) else { continue };
        if inner.bits() <= range.bits() || !range.covers(inner) {
            errors.push(except.invalid("must be a strict subset of `cidr`"));
        }
    }
}

/// Warnings about a new NetworkPolicy: ranges that are not written as they should be.
pub(crate) fn warnings(policy: &Value) -> Vec<String> {
    let spec = At::root(policy).get("spec");
    let mut warnings = Vec::new();
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.get(rules).items() {
            for block in rule.get(peers).items().map(|peer| peer.get("ipBlock")) {
                warnings.extend(ip::cidr_warnings(&block.get("cidr")));
                block.get("except").items().for_each(|range| warnings.extend(ip::cidr_warnings(&range)));
            }
        }
    }
    warnings
}
