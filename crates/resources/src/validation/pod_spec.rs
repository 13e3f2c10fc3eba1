//! `PodSpec`, containers and volumes apart.

use std::collections::BTreeSet;

use machinery::field::FieldErrors;
use machinery::names;

use super::{At, container, labels, scheduling, volume};

const DNS_POLICIES: &[&str] = &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
const NAMESERVERS_MAX: usize = 3;

/// Every rule of a `PodSpec`.
pub(super) fn check(spec: &At<'_>, errors: &mut FieldErrors) {
    let volumes = volume::check_all(&spec.get("volumes"), errors);
    container::check_all(spec, &volumes, errors);
    spec.get("restartPolicy").one_of(&["Always", "Never", "OnFailure"], errors);
    spec.get("dnsPolicy").if_one_of(DNS_POLICIES, errors);
    dns_config(spec, errors);
    labels(&spec.get("nodeSelector"), errors);
    for (field, rule) in [
        ("serviceAccountName", names::dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::dns1123_subdomain),
        ("priorityClassName", names::dns1123_subdomain),
        ("runtimeClassName", names::dns1123_subdomain),
        ("schedulerName", names::dns1123_subdomain),
        ("hostname", names::dns1123_label),
        ("subdomain", names::dns1123_label),
    ] {
        spec.get(field).optional(rule, errors);
    }
    if let Some(seconds) = spec.get("activeDeadlineSeconds").number()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.push(spec.get("activeDeadlineSeconds").invalid("must be between 1 and 2147483647, inclusive"));
    }
    spec.get("terminationGracePeriodSeconds").not_negative(errors);
    security_context(spec, errors);
    for secret in spec.get("imagePullSecrets").items() {
        if secret.get("name").text().is_empty() {
            errors.push(secret.get("name").required(""));
        }
    }
    host_aliases(&spec.get("hostAliases"), errors);
    scheduling::tolerations(&spec.get("tolerations"), errors);
    scheduling::affinity(&spec.get("affinity"), errors);
    scheduling::topology_spread(&spec.get("topologySpreadConstraints"), errors);
    gates(&spec.get("schedulingGates"), errors);
    for gate in spec.get("readinessGates").items() {
        let kind = gate.get("conditionType");
        errors.extend(kind.all(names::qualified_name(kind.text())));
    }
    if let Some(os) = spec.some("os") {
        os.get("name").one_of(&["linux", "windows"], errors);
    }
    spec.get("preemptionPolicy").if_one_of(&["Never", "PreemptLowerPriority"], errors);
}

fn dns_config(spec: &At<'_>, errors: &mut FieldErrors) {
    let config = spec.get("dnsConfig");
    let nameservers = config.get("nameservers");
    if spec.get("dnsPolicy").text() == "None" {
        if !config.is_set() {
            errors.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
        } else if nameservers.is_empty() {
            errors.push(
                nameservers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"),
            );
        }
    }
    if nameservers.len() > NAMESERVERS_MAX {
        errors.push(nameservers.invalid("must not have more than 3 nameservers"));
    }
    nameservers.items().for_each(|ip| ip.ip(errors));
    for option in config.get("options").items() {
        if option.get("name").text().is_empty() {
            errors.push(option.required("must not be empty"));
        }
    }
}

fn security_context(spec: &At<'_>, errors: &mut FieldErrors) {
    let context = spec.get("securityContext");
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        user_id(&context.get(field), errors);
    }
    context.get("supplementalGroups").items().for_each(|group| user_id(&group, errors));
    context.get("fsGroupChangePolicy").if_one_of(&["Always", "OnRootMismatch"], errors);
    seccomp(&context.get("seccompProfile"), errors);
    for sysctl in context.get("sysctls").items() {
        if sysctl.get("name").text().is_empty() {
            errors.push(sysctl.get("name").required(""));
        }
    }
    if spec.get("hostPID").flag() && spec.get("shareProcessNamespace").flag() {
        errors.push(
            spec.get("shareProcessNamespace")
                .invalid("ShareProcessNamespace and HostPID cannot both be enabled"),
        );
    }
}

/// A user or group number.
pub(super) fn user_id(at: &At<'_>, errors: &mut FieldErrors) {
    if at.number().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
        errors.push(at.invalid("must be between 0 and 2147483647, inclusive"));
    }
}

/// A seccomp profile.
pub(super) fn seccomp(profile: &At<'_>, errors: &mut FieldErrors) {
    if !profile.is_set() {
        return;
    }
    profile.get("type").one_of(&["Localhost", "RuntimeDefault", "Unconfined"], errors);
    let localhost = profile.get("localhostProfile");
    match profile.get("type").text() {
        "Localhost" if localhost.text().is_empty() => {
            errors.push(localhost.required("must be set when seccomp type is Localhost"));
        }
        "Localhost" => {}
        _ if localhost.is_set() => {
            errors.push(localhost.invalid("can only be set when seccomp type is Localhost"));
        }
        _ => {}
    }
}

fn host_aliases(aliases: &At<'_>, errors: &mut FieldErrors) {
    for alias in aliases.items() {
        alias.get("ip").ip(errors);
        for name in alias.get("hostnames").items() {
            errors.extend(name.all(names::dns1123_subdomain(name.text())));
        }
    }
}

fn gates(gates: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for gate in gates.items() {
        let name = gate.get("name");
        errors.extend(name.all(names::qualified_name(name.text())));
        if !seen.insert(gate.get("name").text()) {
            errors.push(gate.get("name").duplicate());
        }
    }
}
