//! Endpoints.

use machinery::field::FieldErrors;
use machinery::names;
use serde_json::Value;

use super::{At, PROTOCOLS};

/// Endpoints.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for subset in At::root(object).get("subsets").items() {
        let (ready, unready) = (subset.get("addresses"), subset.get("notReadyAddresses"));
        if ready.is_empty() && unready.is_empty() {
            errors.push(subset.required("must specify `addresses` or `notReadyAddresses`"));
        }
        ready.items().chain(unready.items()).for_each(|a| address(&a, &mut errors));
        let ports = subset.get("ports");
        ports.items().for_each(|p| port(&p, ports.len() > 1, &mut errors));
    }
    errors
}

/// An update of Endpoints.
pub(crate) fn update(new: &Value, _: &Value) -> FieldErrors {
    check(new)
}

fn address(address: &At<'_>, errors: &mut FieldErrors) {
    address.get("ip").ip(errors);
    address.get("hostname").optional(names::dns1123_label, errors);
    if let Some(node) = address.some("nodeName") {
        errors.extend(node.all(names::dns1123_subdomain(node.text())));
    }
    address.get("ip").not_special(errors);
}

fn port(port: &At<'_>, needs_name: bool, errors: &mut FieldErrors) {
    let name = port.get("name");
    if needs_name && name.text().is_empty() {
        errors.push(name.required(""));
    } else {
        name.optional(names::dns1123_label, errors);
    }
    port.get("port").port_number(errors);
    port.get("protocol").one_of(PROTOCOLS, errors);
    if let Some(protocol) = port.some("appProtocol") {
        errors.extend(protocol.all(names::qualified_name(protocol.text())));
    }
}
