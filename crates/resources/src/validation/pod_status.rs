//! The fields that a write to a Pod's `/status` must keep.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::address::is_dual_stack;
use super::{At, pod_annotations};

const ID_MAX: i64 = i32::MAX as i64;
const SYSTEM_CONDITIONS: &[&str] = &["Initialized", "PodScheduled", "Ready"];

/// A write to `/status`.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let (new, old) = (At::root(new), At::root(old));
    let (status, was) = (new.get("status"), old.get("status"));
    pod_annotations::update(&new.annotations(), &old.annotations(), &mut errors);
    pod_annotations::check(&new.annotations(), &new.get("spec"), &mut errors);
    for (index, condition) in status.get("conditions").items().enumerate() {
        let kind = condition.get("type").text();
        if !SYSTEM_CONDITIONS.contains(&kind) {
            // Upstream names the field like this.
            let path = new.get("metadata").path.child("conditions").index(index).child("Type");
            let rules = names::qualified_name(kind);
            errors.extend(rules.iter().map(|rule| FieldError::invalid(&path, kind, rule)));
        }
    }
    let node = status.get("nominatedNodeName");
    if node.value != was.get("nominatedNodeName").value {
        node.optional(names::dns1123_subdomain, &mut errors);
        let is_bound = !old.get("spec").get("nodeName").text().is_empty();
        if is_bound && !node.text().is_empty() {
            errors.push(node.forbidden("may not be set on pods that are already bound to a node"));
        }
    }
    status.get("qosClass").immutable(&was.get("qosClass"), &mut errors);
    transitions(&new, &old, &mut errors);
    claims(&status.get("resourceClaimStatuses"), &new.get("spec"), &mut errors);
    observed_generation(&new, &mut errors);
    pod_ips(&status, &mut errors);
    host_ips(&status, &mut errors);
    users(&new, &mut errors);
    devices(&new, &mut errors);
    errors
}

/// Generations count up from 0.
fn observed_generation(pod: &At<'_>, errors: &mut FieldErrors) {
    let status = pod.get("status");
    let of_conditions = status.get("conditions").items().map(|c| c.get("observedGeneration"));
    for at in std::iter::once(status.get("observedGeneration")).chain(of_conditions) {
        if at.number().is_some_and(|n| n < 0) {
            errors.push(at.invalid("must be a non-negative integer"));
        }
    }
}

/// A container that ended stays so, unless its Pod's policy, its own or one of its rules has it started again.
///
/// Source: `ValidateContainerStateTransition`, KEP-5307.
fn transitions(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let spec = old.get("spec");
    for (list, containers) in [
        ("containerStatuses", spec.get("containers")),
        ("initContainerStatuses", spec.get("initContainers")),
        // The kubelet never restarts these.
        ("ephemeralContainerStatuses", At { value: &Value::Null, path: spec.path.clone() }),
    ] {
        let statuses = new.get("status").get(list);
        for (index, was) in old.get("status").get(list).items().enumerate() {
            let name = was.get("name").text();
            let ended = was.get("state").get("terminated");
            let Some(now) = statuses.items().find(|status| status.get("name").text() == name) else {
                continue;
            };
            if !ended.is_set() || now.get("state").get("terminated").is_set() {
                continue;
            }
            let code = ended.get("exitCode").number().unwrap_or_default();
            let container = containers.items().find(|container| container.get("name").text() == name);
            if !container.is_some_and(|container| is_restarted(&container, &spec, code)) {
                let path = statuses.path.index(index).child("state");
                let detail = "may not be transitioned to non-terminated state";
                errors.push(FieldError::forbidden(&path, detail));
            }
        }
    }
}

/// Whether a container that ended with `code` is started again. Source: `ContainerShouldRestart`.
fn is_restarted(container: &At<'_>, spec: &At<'_>, code: i64) -> bool {
    let by_policy = |policy: &str| policy == "Always" || (policy == "OnFailure" && code != 0);
    let own = container.get("restartPolicy");
    if !own.is_set() {
        return by_policy(spec.get("restartPolicy").text());
    }
    let by_rule = container.get("restartPolicyRules").items().any(|rule| {
        let codes = rule.get("exitCodes");
        let is_listed = codes.get("values").items().any(|value| value.number() == Some(code));
        rule.get("action").text() == "Restart" && is_listed == (codes.get("operator").text() == "In")
    });
    by_rule || by_policy(own.text())
}

fn claims(statuses: &At<'_>, spec: &At<'_>, errors: &mut FieldErrors) {
    let known: BTreeSet<_> = spec.get("resourceClaims").items().map(|c| c.get("name").text()).collect();
    let mut seen = BTreeSet::new();
    for status in statuses.items() {
        let name = status.get("name");
        if !known.contains(name.text()) {
            errors.push(name.invalid("must match the name of an entry in `spec.resourceClaims`"));
        }
        if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
        let claim = status.get("resourceClaimName");
        if claim.is_set() {
            let rules = names::dns1123_subdomain(claim.text());
            errors.extend(rules.iter().map(|rule| FieldError::invalid(&name.path, claim.text(), rule)));
        }
    }
}

fn pod_ips(status: &At<'_>, errors: &mut FieldErrors) {
    let ips = status.get("podIPs");
    valid_ips(&ips, errors);
    one_of_each_family(&ips, errors);
}

fn host_ips(status: &At<'_>, errors: &mut FieldErrors) {
    let ips = status.get("hostIPs");
    let Some(first) = ips.items().next() else { return };
    if first.get("ip").text() != status.get("hostIP").text() {
        errors.push(first.get("ip").invalid("must be equal to `hostIP`"));
    }
    valid_ips(&ips, errors);
    one_of_each_family(&ips, errors);
}

fn valid_ips(ips: &At<'_>, errors: &mut FieldErrors) {
    for ip in ips.items() {
        At { path: ip.path.clone(), ..ip.get("ip") }.ip(errors);
    }
}

fn one_of_each_family(ips: &At<'_>, errors: &mut FieldErrors) {
    if ips.len() < 2 {
        return;
    }
    if !is_dual_stack(ips.items().map(|ip| ip.get("ip").text())) || ips.len() > 2 {
        errors.push(ips.invalid("may specify no more than one IP for each IP family"));
    }
    let mut seen = BTreeSet::new();
    for ip in ips.items() {
        if !seen.insert(ip.get("ip").text()) {
            errors.push(ip.duplicate());
        }
    }
}

fn users(pod: &At<'_>, errors: &mut FieldErrors) {
    let is_windows = pod.get("spec").get("os").get("name").text() == "windows";
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for status in pod.get("status").get(list).items() {
            let user = status.get("user").get("linux");
            if !user.is_set() {
                continue;
            }
            if is_windows {
                errors.push(user.forbidden("cannot be set for a windows pod"));
                continue;
            }
            user.get("uid").between(0, ID_MAX, errors);
            user.get("gid").between(0, ID_MAX, errors);
            user.get("supplementalGroups").items().for_each(|group| group.between(0, ID_MAX, errors));
        }
    }
}

/// The health of devices that a container was given.
fn devices(pod: &At<'_>, errors: &mut FieldErrors) {
    for (list, specs) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        for status in pod.get("status").get(list).items() {
            let name = status.get("name").text();
            let mut containers = pod.get("spec").get(specs).items();
            let container = containers.find(|c| c.get("name").text() == name);
            for device in status.get("allocatedResourcesStatus").items() {
                if let Some(container) = &container {
                    asked_for(&device.get("name"), &container.get("resources"), errors);
                }
                health(&device.get("resources"), errors);
            }
        }
    }
    for status in pod.get("status").get("ephemeralContainerStatuses").items() {
        let devices = status.get("allocatedResourcesStatus");
        if !devices.is_empty() {
            errors.push(devices.forbidden("must not be specified in container status"));
        }
    }
}

fn asked_for(name: &At<'_>, resources: &At<'_>, errors: &mut FieldErrors) {
    let claim = |claim: At<'_>| match claim.get("request").text() {
        "" => claim.get("name").text().to_owned(),
        request => format!("{}/{request}", claim.get("name").text()),
    };
    let (is_known, detail) = match name.text().strip_prefix("claim:") {
        Some(wanted) => (
            resources.get("claims").items().any(|c| claim(c) == wanted),
            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
        ),
        None => (
            resources.get("requests").value.get(name.text()).is_some(),
            "must match one of the container's resource requests",
        ),
    };
    if !is_known {
        errors.push(name.invalid(detail));
    }
}

fn health(resources: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for resource in resources.items() {
        resource.get("health").if_one_of(&["Healthy", "Unhealthy", "Unknown"], errors);
        if !seen.insert(resource.get("resourceID").text()) {
            errors.push(resource.get("resourceID").duplicate());
        }
    }
}
