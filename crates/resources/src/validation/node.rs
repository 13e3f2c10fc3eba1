//! Nodes.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use serde_json::Value;

use super::At;

/// A Node.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let spec = At::root(object).get("spec");
    let mut seen = BTreeSet::new();
    for taint in spec.get("taints").items() {
        let (key, effect) = (taint.get("key"), taint.get("effect"));
        key.named(names::qualified_name, &mut errors);
        let value = taint.get("value");
        errors.extend(value.all(names::label_value(value.text())));
        effect.one_of(&["NoExecute", "NoSchedule", "PreferNoSchedule"], &mut errors);
        if !seen.insert((key.text(), effect.text())) {
            errors.push(taint.duplicate());
        }
    }
    for cidr in spec.get("podCIDRs").items() {
        let (address, bits) = cidr.text().split_once('/').unwrap_or_default();
        let max = if address.contains(':') { 128 } else { 32 };
        let is_good =
            address.parse::<std::net::IpAddr>().is_ok() && bits.parse::<u8>().is_ok_and(|b| b <= max);
        if !is_good {
            errors.push(cidr.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
        }
    }
    errors
}

/// An update of a Node: an assigned Pod CIDR or provider id stays.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = check(new);
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    let assigned = |at: &At<'_>| at.is_set() && !at.is_empty();
    if assigned(&old.get("podCIDRs")) && new.get("podCIDRs").value != old.get("podCIDRs").value {
        errors.push(
            new.get("podCIDRs").forbidden("node updates may not change podCIDR except from \"\" to valid"),
        );
    }
    let id = new.get("providerID");
    if assigned(&old.get("providerID")) && id.value != old.get("providerID").value {
        errors.push(id.forbidden("node updates may not change providerID except from \"\" to valid"));
    }
    let fixed = |spec: &At<'_>| ["externalID", "configSource"].map(|field| spec.get(field).value.clone());
    if fixed(&new) != fixed(&old) {
        let text = "node updates may only change labels, taints, or capacity (or configSource, if the DynamicKubeletConfig feature gate is enabled)";
        errors.push(FieldError::forbidden(&Path::default().key(""), text));
    }
    errors
}
