//! EndpointSlices.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::{At, PROTOCOLS, labels};

const ENDPOINTS_MAX: usize = 1000;
const PORTS_MAX: usize = 20_000;
const ADDRESSES_MAX: usize = 100;
const TOPOLOGY_MAX: usize = 16;
const HINTS_MAX: usize = 8;

/// An EndpointSlice.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let slice = At::root(object);
    let kind = slice.get("addressType");
    kind.one_of(&["FQDN", "IPv4", "IPv6"], &mut errors);
    let (endpoints, ports) = (slice.get("endpoints"), slice.get("ports"));
    if endpoints.len() > ENDPOINTS_MAX {
        errors.push(FieldError::too_many(&endpoints.path, endpoints.len(), ENDPOINTS_MAX));
        return errors;
    }
    for endpoint in endpoints.items() {
        addresses(&endpoint.get("addresses"), kind.text(), &mut errors);
        let (node, topology) = (endpoint.get("nodeName"), endpoint.get("deprecatedTopology"));
        if node.is_set() {
            errors.extend(node.all(names::dns1123_subdomain(node.text())));
        }
        if topology.len() > TOPOLOGY_MAX {
            errors.push(FieldError::too_many(&topology.path, topology.len(), TOPOLOGY_MAX));
        }
        labels(&topology, &mut errors);
        let hostname = endpoint.get("hostname");
        if hostname.is_set() {
            errors.extend(hostname.all(names::dns1123_label(hostname.text())));
        }
        hints(&endpoint.get("hints").get("forZones"), names::label_value, &mut errors);
        hints(&endpoint.get("hints").get("forNodes"), names::dns1123_subdomain, &mut errors);
    }
    if ports.len() > PORTS_MAX {
        errors.push(FieldError::too_many(&ports.path, ports.len(), PORTS_MAX));
        return errors;
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let name = port.get("name");
        name.optional(names::dns1123_label, &mut errors);
        if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        port.get("protocol").one_of(PROTOCOLS, &mut errors);
        if let Some(number) = port.get("port").number() {
            errors.extend(port.get("port").all(names::port_number(number)));
        }
        let protocol = port.get("appProtocol");
        if protocol.is_set() {
            errors.extend(protocol.all(names::qualified_name(protocol.text())));
        }
    }
    errors
}

fn addresses(addresses: &At<'_>, kind: &str, errors: &mut FieldErrors) {
    if addresses.is_empty() {
        errors.push(addresses.required("must contain at least 1 address"));
    } else if addresses.len() > ADDRESSES_MAX {
        errors.push(FieldError::too_many(&addresses.path, addresses.len(), ADDRESSES_MAX));
    }
    for address in addresses.items() {
        match kind {
            "IPv4" if address.text().parse::<std::net::Ipv4Addr>().is_err() => {
                errors.push(address.invalid("must be an IPv4 address"));
            }
            "IPv6" if address.text().parse::<std::net::Ipv6Addr>().is_err() => {
                errors.push(address.invalid("must be an IPv6 address"));
            }
            "IPv4" | "IPv6" => address.not_special(errors),
            "FQDN" => domain(&address, errors),
            _ => {}
        }
    }
}

/// A name of at least two segments; a dot may end it.
fn domain(name: &At<'_>, errors: &mut FieldErrors) {
    let text = name.text().strip_suffix('.').unwrap_or(name.text());
    if text.is_empty() {
        errors.push(name.required(""));
        return;
    }
    let rules = names::dns1123_subdomain(text);
    if !rules.is_empty() {
        errors.push(FieldError::invalid(&name.path, text, &rules.join(",")));
    } else if !text.contains('.') {
        errors.push(FieldError::invalid(
            &name.path,
            text,
            "should be a domain with at least two segments separated by dots",
        ));
    }
}

fn hints(hints: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut FieldErrors) {
    if hints.len() > HINTS_MAX {
        errors.push(FieldError::too_many(&hints.path, hints.len(), HINTS_MAX));
        return;
    }
    let mut seen = BTreeSet::new();
    for name in hints.items().map(|hint| hint.get("name")) {
        if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        errors.extend(name.all(rule(name.text())));
    }
}

/// An update of an EndpointSlice: the address type stays.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = check(new);
    At::root(new).get("addressType").immutable(&At::root(old).get("addressType"), &mut errors);
    errors
}
