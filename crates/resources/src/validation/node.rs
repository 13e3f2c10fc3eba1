//! Nodes.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use machinery::net::{Cidr, Family};
use serde_json::Value;

use super::{At, internal, quantities, scheduling};

const ONE_REFERENCE: &str = "exactly one reference subfield must be non-nil";

/// A Node.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let node = At::root(object);
    taints(&node, &mut errors);
    amounts(&node, &mut errors);
    // Upstream names it below the metadata.
    let swap = node.get("status").get("nodeInfo").get("swap").get("capacity");
    let path = Path::new("metadata").child("nodeSwapStatus").child("capacity");
    At { path, ..swap }.positive(&mut errors);
    pod_cidrs(&node.get("spec").get("podCIDRs"), &mut errors);
    errors
}

/// Upstream names the taints as if they were metadata.
fn taints(node: &At<'_>, errors: &mut FieldErrors) {
    let taints = At { path: Path::new("metadata").child("taints"), ..node.get("spec").get("taints") };
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        let rules = names::qualified_name(key.text());
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&key.path, key.text(), rule)));
        let rules = names::label_value(value.text());
        if !rules.is_empty() {
            errors.push(value.invalid(&rules.join(";")));
        }
        scheduling::taint_effect(&effect, errors);
        if !seen.insert((key.text(), effect.text())) {
            let mut error = internal::duplicate(&taint, "Taint");
            error.message.push_str(": taints must be unique by key and effect pair");
            errors.push(error);
        }
    }
}

fn amounts(node: &At<'_>, errors: &mut FieldErrors) {
    for list in ["capacity", "allocatable"] {
        quantities::node_amounts(&node.get("status").get(list), errors);
    }
}

fn pod_cidrs(cidrs: &At<'_>, errors: &mut FieldErrors) {
    cidrs.items().for_each(|cidr| cidr.cidr(errors));
    if cidrs.len() < 2 {
        return;
    }
    let families: Vec<_> = cidrs.texts().filter_map(Cidr::legacy).map(Cidr::family).collect();
    let is_dual = families.contains(&Family::V4) && families.contains(&Family::V6);
    if !is_dual || cidrs.len() > 2 {
        errors.push(cidrs.invalid("may specify no more than one CIDR for each IP family"));
    }
    let mut seen = BTreeSet::new();
    for cidr in cidrs.items() {
        if !seen.insert(cidr.text()) {
            errors.push(cidr.duplicate());
        }
    }
}

/// An update of a Node, or of its status: an assigned Pod CIDR or provider id stays.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (node, old) = (At::root(new), At::root(old).get("spec"));
    let spec = node.get("spec");
    amounts(&node, &mut errors);
    addresses(&node.get("status").get("addresses"), &mut errors);
    let (cidrs, had) = (spec.get("podCIDRs"), old.get("podCIDRs"));
    if !had.is_empty() && cidrs.value != had.value {
        errors.push(cidrs.forbidden("node updates may not change podCIDR except from \"\" to valid"));
    }
    let (id, had) = (spec.get("providerID"), old.get("providerID"));
    if !had.text().is_empty() && id.text() != had.text() {
        errors.push(id.forbidden("node updates may not change providerID except from \"\" to valid"));
    }
    config_spec(&spec.get("configSource"), &mut errors);
    for field in ["assigned", "active", "lastKnownGood"] {
        config_status(&node.get("status").get("config").get(field), &mut errors);
    }
    taints(&node, &mut errors);
    if spec.get("externalID").text() != old.get("externalID").text() {
        errors.push(spec.get("externalID").forbidden("may not be updated"));
    }
    errors
}

fn addresses(addresses: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for address in addresses.items() {
        if !seen.insert((address.get("type").text(), address.get("address").text())) {
            errors.push(internal::duplicate(&address, "NodeAddress"));
        }
    }
}

/// Where a kubelet's configuration once came from; nothing reads it any more.
fn config_spec(source: &At<'_>, errors: &mut FieldErrors) {
    let map = source.get("configMap");
    for field in ["uid", "resourceVersion"] {
        if !map.get(field).text().is_empty() {
            errors.push(map.get(field).forbidden(&format!("{field} must not be set in spec")));
        }
    }
    config_source(source, errors);
}

fn config_status(source: &At<'_>, errors: &mut FieldErrors) {
    let map = source.get("configMap");
    if map.is_set() {
        for field in ["uid", "resourceVersion"] {
            if map.get(field).text().is_empty() {
                errors.push(map.get(field).required(&format!("{field} must be set in status")));
            }
        }
    }
    config_source(source, errors);
}

fn config_source(source: &At<'_>, errors: &mut FieldErrors) {
    let map = source.get("configMap");
    if map.is_set() {
        for (field, rule) in [
            ("name", names::dns1123_subdomain as fn(&str) -> Vec<String>),
            ("namespace", names::dns1123_label),
            ("kubeletConfigKey", names::config_map_key),
        ] {
            map.get(field).named(rule, errors);
        }
    } else if source.is_set() {
        errors.push(source.invalid(ONE_REFERENCE));
    }
}
