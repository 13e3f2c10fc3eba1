//! The address families of a Service: what it asks for, what its addresses say, what the cluster has.
//!
//! Source: `initIPFamilyFields` of `pkg/registry/core/service/storage/alloc.go`, KEP-563.

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::net::Family;
use serde_json::{Map, Value, json};

pub(super) type Spec = Map<String, Value>;

pub(super) fn text<'a>(spec: &'a Spec, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn texts<'a>(spec: &'a Spec, field: &str) -> Vec<&'a str> {
    spec.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Without a selector and without an address, endpoints of both families may be written by hand.
fn is_free(spec: &Spec) -> bool {
    let selector = spec.get("selector").and_then(Value::as_object);
    text(spec, "clusterIP") == "None" && selector.is_none_or(Map::is_empty)
}

/// Whether the Service may stay as it is, whatever the cluster has become since.
pub(super) fn is_unchanged(spec: &Spec, old: Option<&Spec>) -> bool {
    const SAME: [&str; 3] = ["type", "clusterIPs", "ipFamilies"];
    let is_preferred = |spec: &Spec| text(spec, "ipFamilyPolicy") == "PreferDualStack";
    old.is_some_and(|old| {
        is_preferred(spec)
            && is_preferred(old)
            && SAME.iter().all(|field| spec.get(*field) == old.get(*field))
    })
}

/// Fills in `ipFamilyPolicy` and `ipFamilies` of a Service that is no ExternalName, for a cluster that has addresses
/// of the families of `cluster`, the usual one first.
pub(super) fn settle(spec: &mut Spec, old: Option<&Spec>, cluster: &[Family]) -> Result<(), FieldErrors> {
    if text(spec, "type") == "ExternalName" || is_unchanged(spec, old) {
        return Ok(());
    }
    default_policy(spec, old);
    let mut errors = resources::validation::service_cluster_addresses(&Value::Object(spec.clone()));
    if !errors.is_empty() {
        return Err(errors);
    }
    release_second(spec, old, &mut errors);
    check_single(spec, &mut errors);
    infer(spec, cluster, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    let usual = cluster.first().copied().unwrap_or(Family::V4);
    if is_free(spec) {
        complete(spec, usual, true);
        return Ok(());
    }
    check_cluster(spec, cluster, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    complete(spec, usual, cluster.len() == 2);
    Ok(())
}

fn default_policy(spec: &mut Spec, old: Option<&Spec>) {
    // One that is empty is one that is not known.
    if spec.get("ipFamilyPolicy").is_some_and(|policy| !policy.is_null()) {
        return;
    }
    let before = old.map(|old| text(old, "ipFamilyPolicy")).unwrap_or_default();
    let policy = match before {
        "" if is_free(spec) => "RequireDualStack",
        "" => "SingleStack",
        before => before,
    };
    spec.insert("ipFamilyPolicy".to_owned(), policy.into());
}

fn policy_error(spec: &Spec, why: &str) -> FieldError {
    FieldError::invalid(&Path::new("spec").child("ipFamilyPolicy"), text(spec, "ipFamilyPolicy"), why)
}

/// Who asks for one family only need not take away the second address; who keeps two policies must not.
fn release_second(spec: &mut Spec, old: Option<&Spec>, errors: &mut FieldErrors) {
    let Some(old) = old else { return };
    let is_single = text(spec, "ipFamilyPolicy") == "SingleStack";
    for (field, noun) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (before, after) = (texts(old, field), texts(spec, field));
        if is_single && before == after && after.len() > 1 {
            if let Some(list) = spec.get_mut(field).and_then(Value::as_array_mut) {
                list.truncate(1);
            }
        } else if !is_single && !after.is_empty() && after.len() < before.len() && before.starts_with(&after)
        {
            let why = format!("must be 'SingleStack' to release the secondary {noun}");
            errors.push(policy_error(spec, &why));
        }
    }
}

fn check_single(spec: &Spec, errors: &mut FieldErrors) {
    if text(spec, "ipFamilyPolicy") != "SingleStack" {
        return;
    }
    for (field, noun) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if texts(spec, field).len() == 2 {
            let why =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {noun} are specified");
            errors.push(policy_error(spec, &why));
        }
    }
}

/// Addresses that were asked for have families.
fn infer(spec: &mut Spec, cluster: &[Family], errors: &mut FieldErrors) {
    let addresses = texts(spec, "clusterIPs");
    let shown = spec.get("clusterIPs").cloned().unwrap_or_default();
    let mut more = Vec::new();
    let known = texts(spec, "ipFamilies").len();
    for (index, address) in addresses.iter().enumerate().skip(known) {
        let Ok(address) = address.parse() else { break };
        let family = Family::of(address);
        if cluster.contains(&family) {
            more.push(family);
        } else {
            let why = format!("{} is not configured on this cluster", family.as_str());
            errors.push(FieldError::invalid(
                &Path::new("spec").child("clusterIPs").index(index),
                &shown,
                &why,
            ));
        }
    }
    more.into_iter().for_each(|family| push_family(spec, family));
}

fn push_family(spec: &mut Spec, family: Family) {
    let families = spec.entry("ipFamilies").or_insert_with(|| json!([]));
    if families.is_null() {
        *families = json!([]);
    }
    if let Some(families) = families.as_array_mut() {
        families.push(family.as_str().into());
    }
}

fn check_cluster(spec: &Spec, cluster: &[Family], errors: &mut FieldErrors) {
    if text(spec, "ipFamilyPolicy") == "RequireDualStack" && cluster.len() < 2 {
        errors.push(policy_error(spec, "this cluster is not configured for dual-stack services"));
    }
    for (index, name) in texts(spec, "ipFamilies").into_iter().enumerate() {
        if !Family::parse(name).is_some_and(|family| cluster.contains(&family)) {
            let path = Path::new("spec").child("ipFamilies").index(index);
            errors.push(FieldError::invalid(&path, name, "not configured on this cluster"));
        }
    }
}

/// The usual family if none was asked for, and the other one where two are wanted and can be had.
fn complete(spec: &mut Spec, usual: Family, has_both: bool) {
    if texts(spec, "ipFamilies").is_empty() {
        push_family(spec, usual);
    }
    let is_dual = has_both && text(spec, "ipFamilyPolicy") != "SingleStack";
    if let ([one], true) = (texts(spec, "ipFamilies").as_slice(), is_dual)
        && let Some(family) = Family::parse(one)
    {
        push_family(spec, family.other());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[Family] = &[Family::V4];
    const BOTH: &[Family] = &[Family::V4, Family::V6];

    fn parse(yaml: &str) -> Spec {
        let Value::Object(mut spec) = serde_saphyr::from_str(yaml).unwrap() else { panic!("no map") };
        spec.entry("type").or_insert_with(|| "ClusterIP".into());
        spec
    }

    /// `policy families`, or what is wrong.
    fn check(spec: &str, old: Option<&str>, cluster: &[Family], expect: &str) {
        let (mut new, old) = (parse(spec), old.map(parse));
        let got = match settle(&mut new, old.as_ref(), cluster) {
            Ok(()) => format!("{} {}", text(&new, "ipFamilyPolicy"), texts(&new, "ipFamilies").join(",")),
            Err(errors) => errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        assert_eq!(got.trim(), expect, "{spec}");
    }

    #[test]
    fn who_says_nothing_gets_the_usual_family() {
        check("{}", None, ONE, "SingleStack IPv4");
        check("{}", None, BOTH, "SingleStack IPv4");
        check("{}", None, &[Family::V6, Family::V4], "SingleStack IPv6");
        check("{type: ExternalName}", None, BOTH, "");
    }

    #[test]
    fn who_prefers_both_gets_what_there_is() {
        check("{ipFamilyPolicy: PreferDualStack}", None, ONE, "PreferDualStack IPv4");
        check("{ipFamilyPolicy: PreferDualStack}", None, BOTH, "PreferDualStack IPv4,IPv6");
        check(
            "{ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv6]}",
            None,
            BOTH,
            "RequireDualStack IPv6,IPv4",
        );
    }

    #[test]
    fn what_the_cluster_has_not_is_refused() {
        check(
            "{ipFamilyPolicy: RequireDualStack}",
            None,
            ONE,
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
        );
        check(
            "{ipFamilies: [IPv6]}",
            None,
            ONE,
            r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#,
        );
        check(
            "{clusterIP: 'fd00::7', clusterIPs: ['fd00::7']}",
            None,
            ONE,
            r#"spec.clusterIPs[0]: Invalid value: ["fd00::7"]: IPv6 is not configured on this cluster"#,
        );
    }

    #[test]
    fn two_of_something_need_a_policy() {
        check(
            "{ipFamilies: [IPv4, IPv6]}",
            None,
            BOTH,
            r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"#,
        );
        check(
            "{clusterIP: 10.43.0.7, clusterIPs: [10.43.0.7, 'fd00::7']}",
            None,
            BOTH,
            r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"#,
        );
    }

    #[test]
    fn a_headless_service_without_selector_is_of_both_families() {
        check("{clusterIP: None, clusterIPs: [None]}", None, ONE, "RequireDualStack IPv4,IPv6");
        check("{clusterIP: None, clusterIPs: [None], selector: {a: b}}", None, ONE, "SingleStack IPv4");
    }

    #[test]
    fn the_second_family_comes_and_goes_by_policy() {
        const DUAL: &str = "{clusterIP: 10.43.0.7, clusterIPs: [10.43.0.7, 'fd00::7'], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack}";
        check(&DUAL.replace("RequireDualStack", "SingleStack"), Some(DUAL), BOTH, "SingleStack IPv4");
        check(
            "{clusterIP: 10.43.0.7, clusterIPs: [10.43.0.7], ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack}",
            Some(DUAL),
            BOTH,
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be 'SingleStack' to release the secondary cluster IP"#,
        );
        let single = "{clusterIP: 10.43.0.7, clusterIPs: [10.43.0.7], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}";
        check(
            &single.replace("SingleStack", "PreferDualStack"),
            Some(single),
            BOTH,
            "PreferDualStack IPv4,IPv6",
        );
        let preferred = single.replace("SingleStack", "PreferDualStack");
        check(&preferred, Some(&preferred), BOTH, "PreferDualStack IPv4");
    }
}
