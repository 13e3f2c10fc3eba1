//! EndpointSlices.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::{At, PROTOCOLS};

const ENDPOINTS_MAX: usize = 1000;
const PORTS_MAX: usize = 20_000;
const ADDRESSES_MAX: usize = 100;

/// An EndpointSlice.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
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
        endpoint.get("hostname").optional(names::dns1123_label, &mut errors);
        endpoint.get("nodeName").optional(names::dns1123_subdomain, &mut errors);
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
            "FQDN" => errors.extend(address.all(names::dns1123_subdomain(address.text()))),
            _ => {}
        }
    }
}

/// An update of an EndpointSlice: the address type stays.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = check(new);
    At::root(new).get("addressType").immutable(&At::root(old).get("addressType"), &mut errors);
    errors
}
