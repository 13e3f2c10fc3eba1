//! Addresses and ranges of addresses, the strict way; IPAddresses and ServiceCIDRs.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation/ip.go`, `pkg/apis/networking/validation`.

use std::net::IpAddr;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use machinery::net::{Cidr, legacy_ip};
use serde_json::Value;

use super::At;

const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const NO_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// What is wrong with an address; `None` if nothing is.
pub(super) fn broken_ip(text: &str) -> Option<&'static str> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped IPv6 address")
        }
        Ok(_) => None,
        Err(_) if legacy_ip(text).is_some() => Some("must not have leading 0s"),
        Err(_) => Some(NO_IP),
    }
}

/// A range in a field that is older than the strict rules, and takes what they refuse; answers it if it can be read.
pub(super) fn legacy_cidr(at: &At<'_>, errors: &mut FieldErrors) -> Option<Cidr> {
    let cidr = Cidr::legacy(at.text());
    if cidr.is_none() {
        errors.push(at.invalid(NO_CIDR));
    }
    cidr
}

/// What a client should hear about an address that an older field takes but that is not written as it should be.
pub(super) fn ip_warning(at: &At<'_>) -> Option<String> {
    let text = at.text();
    let read = legacy_ip(text)?;
    let canonical = match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_none() => {
            let canonical = ip.to_string();
            let rule =
                format!("IPv6 address {text:?} should be in RFC 5952 canonical format ({canonical:?})");
            return (canonical != text).then(|| format!("{}: {rule}", at.path));
        }
        Ok(IpAddr::V4(_)) => return None,
        Ok(IpAddr::V6(_)) | Err(_) => read.to_string(),
    };
    Some(format!(
        "{}: non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use {canonical:?}",
        at.path
    ))
}

/// What a client should hear about a range that [`legacy_cidr`] takes but that is not written as it should be.
pub(super) fn cidr_warnings(at: &At<'_>) -> Vec<String> {
    let Some(cidr) = Cidr::legacy(at.text()) else { return Vec::new() };
    let canonical = cidr.network().to_string();
    let (path, text) = (&at.path, at.text());
    let mut warnings = Vec::new();
    if cidr != cidr.network() {
        let address = cidr.address();
        let single = if address.is_ipv4() { 32 } else { 128 };
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be {canonical:?} or {:?}?)",
            format!("{address}/{single}"),
        ));
    }
    if is_non_standard(text) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {text:?} will be considered invalid in a future Kubernetes release: use {canonical:?}",
        ));
    }
    if warnings.is_empty() && cidr.address().is_ipv6() && canonical != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})",
        ));
    }
    warnings
}

/// Whether the address has leading zeros, or wraps one of IPv4.
fn is_non_standard(text: &str) -> bool {
    let (written, bits) = text.split_once('/').unwrap_or((text, ""));
    broken_ip(written).is_some() || (bits.len() > 1 && bits.starts_with('0'))
}

fn cidr(at: &At<'_>, errors: &mut FieldErrors) {
    let is_wrapped = |cidr: Cidr| cidr.address().to_canonical().is_ipv4() && at.text().contains(':');
    let rule = match Cidr::legacy(at.text()) {
        None => NO_CIDR.to_owned(),
        Some(cidr) if is_wrapped(cidr) => "must not have an IPv4-mapped IPv6 address".to_owned(),
        Some(_) if is_non_standard(at.text()) => "must not have leading 0s in IP or prefix length".to_owned(),
        Some(cidr) if cidr != cidr.network() => "must not have bits set beyond the prefix length".to_owned(),
        Some(cidr) if cidr.to_string() != at.text() => {
            format!("must be in canonical form ({:?})", cidr.to_string())
        }
        Some(_) => return,
    };
    errors.push(at.invalid(&rule));
}

/// An IPAddress: its name is the address.
pub(crate) fn address(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = At::root(object).get("metadata").get("name");
    match (broken_ip(name.text()), name.text().parse::<IpAddr>()) {
        _ if name.text().is_empty() => {}
        (Some(rule), _) => errors.push(name.invalid(rule)),
        (None, Ok(ip)) if ip.to_string() != name.text() => {
            errors.push(name.invalid(&format!("must be in canonical form ({:?})", ip.to_string())));
        }
        _ => {}
    }
    let parent = At::root(object).get("spec").get("parentRef");
    if !parent.is_set() {
        errors.push(parent.required(""));
        return errors;
    }
    parent.get("group").optional(names::dns1123_subdomain, &mut errors);
    parent.get("resource").named(names::path_segment, &mut errors);
    parent.get("name").named(names::path_segment, &mut errors);
    parent.get("namespace").optional(names::path_segment, &mut errors);
    errors
}

/// An update of an IPAddress: who has it stays.
pub(crate) fn address_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let parent = |object| At::root(object).get("spec").get("parentRef");
    parent(new).immutable(&parent(old), &mut errors);
    errors
}

/// A ServiceCIDR.
pub(crate) fn service_cidr(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let spec = At::root(object).get("spec");
    let ranges = spec.get("cidrs");
    if ranges.is_empty() {
        errors.push(ranges.required("at least one CIDR required"));
        return errors;
    }
    if ranges.len() > 2 {
        errors.push(FieldError::invalid(&ranges.path, spec.value, "may only hold up to 2 values"));
        return errors;
    }
    let families: Vec<_> = ranges.items().map(|range| Cidr::legacy(range.text()).map(Cidr::family)).collect();
    let is_dual = matches!(families.as_slice(), [Some(first), Some(second)] if first != second);
    if families.len() == 2 && !is_dual {
        errors.push(FieldError::invalid(
            &ranges.path,
            spec.value,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        ));
        return errors;
    }
    ranges.items().for_each(|range| cidr(&range, &mut errors));
    errors
}

/// An update of a ServiceCIDR: its ranges stay, and one of the other family may come.
pub(crate) fn service_cidr_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let ranges = |object| At::root(object).get("spec").get("cidrs");
    let (now, before) = (ranges(new), ranges(old));
    let is_widened = before.len() == 1 && now.len() == 2;
    if !is_widened && now.len() != before.len() {
        now.immutable(&before, &mut errors);
        return errors;
    }
    for (range, was) in now.items().zip(before.items()) {
        range.immutable(&was, &mut errors);
    }
    if is_widened {
        errors.extend(service_cidr(new));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_are_told_from_nonsense() {
        assert_eq!(broken_ip("10.0.0.1"), None);
        assert_eq!(broken_ip("010.0.0.1"), Some("must not have leading 0s"));
        assert_eq!(broken_ip("::ffff:1.2.3.4"), Some("must not be an IPv4-mapped IPv6 address"));
        assert!(broken_ip("x").unwrap().starts_with("must be a valid IP address"));
    }
}
