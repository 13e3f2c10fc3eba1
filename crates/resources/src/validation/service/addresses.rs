//! Addresses of a Service, and the address families that they belong to.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::net::legacy_ip;

use super::{is_headless, kind};
use crate::validation::At;
use crate::validation::address::is_dual_stack;

const FAMILIES: &[&str] = &["IPv4", "IPv6"];
const POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];

/// `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`.
pub(super) fn cluster(spec: &At<'_>, errors: &mut FieldErrors) {
    if kind(spec) == "ExternalName" {
        return;
    }
    let (ip, ips) = (spec.get("clusterIP"), spec.get("clusterIPs"));
    let first = ips.texts().next();
    match (ip.text(), first) {
        ("", Some(_)) => errors.push(ips.invalid("must be empty when `clusterIP` is not specified")),
        ("", None) => {}
        (_, None) => errors.push(ips.required("")),
        (text, Some(first)) if text != first => {
            errors.push(ips.invalid("first value must match `clusterIP`"));
        }
        _ => {}
    }
    families(spec, errors);
    spec.get("ipFamilyPolicy").if_one_of(POLICIES, errors);
    if !each_ip(&ips, errors) {
        return;
    }
    if ips.len() > 1 && !is_dual_stack(ips.texts()) {
        errors.push(ips.invalid("may specify no more than one IP for each IP family"));
    }
    if is_headless(spec) {
        return;
    }
    for (index, (ip, family)) in ips.items().zip(spec.get("ipFamilies").texts()).enumerate() {
        let is_v6 = legacy_ip(ip.text()).is_some_and(|ip| ip.is_ipv6());
        if is_v6 != (family == "IPv6") && FAMILIES.contains(&family) {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.push(ip.invalid(&detail));
        }
    }
}

fn families(spec: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for family in spec.get("ipFamilies").items() {
        family.if_one_of(FAMILIES, errors);
        if !seen.insert(family.text()) {
            errors.push(family.duplicate());
        }
    }
}

/// Whether every address can be read, so that it is worth while to compare them.
fn each_ip(ips: &At<'_>, errors: &mut FieldErrors) -> bool {
    let mut is_good = true;
    for (index, ip) in ips.items().enumerate() {
        if index == 0 && ip.text() == "None" {
            if ips.len() > 1 {
                is_good = false;
                errors.push(ips.invalid("'None' must be the first and only value"));
            }
            continue;
        }
        is_good &= legacy_ip(ip.text()).is_some();
        ip.ip(errors);
    }
    if ips.len() > 2 {
        errors.push(ips.invalid("may only hold up to 2 values"));
    }
    is_good
}

/// `externalIPs`.
pub(super) fn external(spec: &At<'_>, errors: &mut FieldErrors) {
    for ip in spec.get("externalIPs").items() {
        if legacy_ip(ip.text()).is_none() {
            ip.ip(errors);
        } else {
            ip.not_special(errors);
        }
    }
}

/// A second address or family may come or go; the first stays, unless the Service had none or has none any more.
pub(super) fn update(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    if kind(new) == "ExternalName" || kind(old) == "ExternalName" {
        return;
    }
    let (is_headless, was_headless) = (super::is_headless(new), super::is_headless(old));
    if !(is_headless && was_headless) {
        cluster_ips(new, old, errors);
    }
    if !is_headless && !was_headless {
        ip_families(new, old, errors);
    }
}

fn cluster_ips(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let (ips, had) = (new.get("clusterIPs"), old.get("clusterIPs"));
    let changed =
        |index: usize| FieldError::invalid(&ips.path.index(index), ips.value, "may not change once set");
    if ips.len() == had.len() {
        let pairs = ips.texts().zip(had.texts()).enumerate();
        errors.extend(pairs.filter(|(_, (ip, had))| ip != had).map(|(index, _)| changed(index)));
        return;
    }
    if ips.is_empty() {
        let detail = "primary clusterIP can not be unset";
        errors.push(FieldError::invalid(&ips.path.index(0), ips.value, detail));
    } else if !had.is_empty() && ips.texts().next() != had.texts().next() {
        errors.push(changed(0));
    }
    if had.len() > ips.len() && ips.len() == 1 {
        must_be_single(new, "clusterIP", errors);
    }
}

fn must_be_single(new: &At<'_>, noun: &str, errors: &mut FieldErrors) {
    let policy = new.get("ipFamilyPolicy");
    if policy.text() != "SingleStack" {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {noun}");
        errors.push(policy.invalid(&detail));
    }
}

fn ip_families(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let (families, had) = (new.get("ipFamilies"), old.get("ipFamilies"));
    let path = families.path.index(0);
    if families.len() == had.len() {
        let is_changed = |(family, had): &(&str, &str)| family != had;
        for _ in families.texts().zip(had.texts()).filter(is_changed) {
            errors.push(FieldError::invalid(&path, families.value, "may not change once set"));
        }
        return;
    }
    let ips = new.get("clusterIPs");
    if had.len() > families.len() && ips.is_empty() {
        let detail = "primary ipFamily can not be unset";
        errors.push(FieldError::invalid(&path, families.value, detail));
    }
    if !families.is_empty() && !had.is_empty() && families.texts().next() != had.texts().next() {
        errors.push(FieldError::invalid(&path, ips.value, "may not change once set"));
    }
    if had.len() > families.len() && families.len() == 1 {
        must_be_single(new, "ipFamily", errors);
    }
}
