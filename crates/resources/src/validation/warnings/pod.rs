//! Pods and templates of Pods.

use std::collections::{BTreeMap, BTreeSet};

use machinery::names;

use super::super::At;
use super::super::ip::ip_warning;
use super::super::pod_annotations::{APP_ARMOR, SECCOMP_CONTAINER, SECCOMP_POD, app_armor_profile};
use super::super::pod_view::containers;
use super::{fractional, old_node_label, overlap};

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";
const USE_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const USE_APP_ARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";

const OLD_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Types of volumes that do nothing any more, or soon.
const OLD_VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// The warnings of a Pod or of a template, in upstream's order.
pub(super) fn check(pod: &At<'_>, is_pod: bool, warnings: &mut Vec<String>) {
    let spec = pod.get("spec");
    let annotations = pod.get("metadata").get("annotations");
    node_labels(&spec, warnings);
    for (key, advice) in OLD_ANNOTATIONS {
        if annotations.get(key).is_set() {
            warnings.push(format!("{}: {advice}", annotations.path.key(key)));
        }
    }
    volumes(&spec, warnings);
    repeated(&spec.get("hostAliases"), "ip", warnings);
    repeated(&spec.get("imagePullSecrets"), "name", warnings);
    for name in spec.get("imagePullSecrets").items().map(|secret| secret.get("name")) {
        if name.text().is_empty() {
            warnings.push(name.warning("invalid empty name \"\""));
        }
    }
    bytes(&spec.get("overhead"), warnings);
    let security = spec.get("securityContext");
    if !security.get("seccompProfile").is_set() && annotations.get(SECCOMP_POD).is_set() {
        warnings.push(format!("{}: {USE_SECCOMP}", annotations.path.key(SECCOMP_POD)));
    }
    let app_armor = security.get("appArmorProfile");
    for container in containers(&spec) {
        seccomp_annotation(&container, &annotations, warnings);
        if !is_pod {
            app_armor_annotation(&container, &annotations, &app_armor, warnings);
        }
        for list in ["limits", "requests"] {
            fractional(&byte_amount(&container.get("resources").get(list), "memory"), warnings);
        }
        for list in ["limits", "requests"] {
            fractional(&byte_amount(&container.get("resources").get(list), "ephemeral-storage"), warnings);
        }
        variables(&container.get("env"), warnings);
    }
    ports(&spec, warnings);
    port_names(&spec, warnings);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.number().is_some_and(|seconds| seconds < 0) {
        warnings.push(grace.warning("must be >= 0; negative values are invalid and will be treated as 1"));
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let affinity = spec.get("affinity").get(field);
        let required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution").items();
        let preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution").items();
        for term in required.chain(preferred.map(|preferred| preferred.get("podAffinityTerm"))) {
            no_selector(&term, warnings);
        }
    }
    let servers = spec.get("dnsConfig").get("nameservers");
    servers.items().for_each(|server| warnings.extend(ip_warning(&server)));
    let aliases = spec.get("hostAliases");
    aliases.items().for_each(|alias| warnings.extend(ip_warning(&alias.get("ip"))));
}

/// Old labels of Nodes, wherever a Pod says where it wants to run.
fn node_labels(spec: &At<'_>, warnings: &mut Vec<String>) {
    for (key, value) in spec.get("nodeSelector").entries() {
        warnings.extend(old_node_label(key).map(|advice| value.warning(advice)));
    }
    let affinity = spec.get("affinity").get("nodeAffinity");
    let required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution").get("nodeSelectorTerms");
    required.items().for_each(|term| node_term(&term, false, warnings));
    for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution").items() {
        node_term(&preferred.get("preference"), true, warnings);
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        old_key(&constraint.get("topologyKey"), warnings);
        no_selector(&constraint, warnings);
    }
}

fn node_term(term: &At<'_>, checks_values: bool, warnings: &mut Vec<String>) {
    for expression in term.get("matchExpressions").items() {
        old_key(&expression.get("key"), warnings);
        for value in expression.get("values").items().filter(|_| checks_values) {
            let rules = names::label_value(value.text());
            warnings
                .extend(rules.iter().map(|r| value.warning(&format!("{} is invalid, {r}", value.text()))));
        }
    }
}

fn old_key(key: &At<'_>, warnings: &mut Vec<String>) {
    warnings
        .extend(old_node_label(key.text()).map(|advice| key.warning(&format!("{} is {advice}", key.text()))));
}

fn no_selector(term: &At<'_>, warnings: &mut Vec<String>) {
    let selector = term.get("labelSelector");
    if !selector.is_set() {
        warnings.push(selector.warning(NO_SELECTOR));
    }
}

fn volumes(spec: &At<'_>, warnings: &mut Vec<String>) {
    for volume in spec.get("volumes").items() {
        for (field, fate) in OLD_VOLUMES {
            warnings.extend(volume.some(field).map(|at| at.warning(fate)));
        }
        let claim = volume.get("ephemeral").get("volumeClaimTemplate").get("spec");
        fractional(&byte_amount(&claim.get("resources").get("requests"), "storage"), warnings);
    }
    overlap::check(&spec.get("volumes"), warnings);
}

fn repeated(list: &At<'_>, field: &str, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for value in list.items().map(|item| item.get(field)) {
        if !seen.insert(value.text()) {
            warnings.push(value.warning(&format!("duplicate {field} {:?}", value.text())));
        }
    }
}

/// The amount of a resource; its path is that of a map's entry.
fn byte_amount<'a>(list: &At<'a>, resource: &str) -> At<'a> {
    At { path: list.path.key(resource), ..list.get(resource) }
}

fn bytes(list: &At<'_>, warnings: &mut Vec<String>) {
    for resource in ["memory", "ephemeral-storage"] {
        fractional(&byte_amount(list, resource), warnings);
    }
}

/// A seccomp profile in an annotation that no field repeats.
fn seccomp_annotation(container: &At<'_>, annotations: &At<'_>, warnings: &mut Vec<String>) {
    let key = format!("{SECCOMP_CONTAINER}{}", container.get("name").text());
    if !container.get("securityContext").get("seccompProfile").is_set() && annotations.get(&key).is_set() {
        warnings.push(format!("{}: {USE_SECCOMP}", annotations.path.key(&key)));
    }
}

/// An AppArmor profile in a template's annotation that neither the container's nor the Pod's field repeats.
fn app_armor_annotation(
    container: &At<'_>,
    annotations: &At<'_>,
    of_pod: &At<'_>,
    warnings: &mut Vec<String>,
) {
    let key = format!("{APP_ARMOR}{}", container.get("name").text());
    let has_own = container.get("securityContext").get("appArmorProfile").is_set();
    let Some(annotation) = annotations.some(&key).filter(|_| !has_own) else { return };
    if !of_pod.is_set() || app_armor_profile(annotation.text()).as_ref() != Some(of_pod.value) {
        warnings.push(format!("{}: {USE_APP_ARMOR}", annotations.path.key(&key)));
    }
}

/// A variable that is set twice is lost when applied, unless the second one builds on the first.
fn variables(env: &At<'_>, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for variable in env.items() {
        let name = variable.get("name").text();
        if seen.insert(name) {
            continue;
        }
        let (value, reference) = (variable.get("value").text(), format!("$({name})"));
        let builds_on_first =
            !variable.get("valueFrom").is_set() && value != reference && value.contains(&reference);
        if !builds_on_first {
            let text =
                format!("hides previous definition of {name:?}, which may be dropped when using apply");
            warnings.push(variable.warning(&text));
        }
    }
}

/// Ports that are the same, or may be, in all containers together.
fn ports(spec: &At<'_>, warnings: &mut Vec<String>) {
    let mut seen: Vec<At<'_>> = Vec::new();
    for port in containers(spec).flat_map(|container| container.get("ports").items()) {
        let number = |port: &At<'_>, field: &str| port.get(field).number().unwrap_or(0);
        let (host_ip, host_port) = (port.get("hostIP").text(), number(&port, "hostPort"));
        if !host_ip.is_empty() && host_port == 0 {
            warnings.push(port.warning(&format!(
                "hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{host_ip}}}",
                port.get("name").text(),
                number(&port, "containerPort"),
                port.get("protocol").text(),
            )));
        }
        let is_same = |other: &&At<'_>| {
            number(other, "containerPort") == number(&port, "containerPort")
                && other.get("protocol").text() == port.get("protocol").text()
        };
        for other in seen.iter().filter(is_same) {
            let (other_ip, other_port) = (other.get("hostIP").text(), number(other, "hostPort"));
            let how = if host_ip == other_ip && host_port == other_port {
                "duplicate"
            } else if host_port == 0 || other_port == 0 {
                "overlapping"
            } else if host_port == other_port && (host_ip.is_empty() != other_ip.is_empty()) {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(port.warning(&format!("{how} port definition with {}", other.path)));
        }
        seen.push(port);
    }
}

/// Names of ports that several of the containers that go on running give.
fn port_names(spec: &At<'_>, warnings: &mut Vec<String>) {
    let (first, others) = (spec.get("initContainers"), spec.get("containers"));
    let sidecars = first.items().filter(|container| container.get("restartPolicy").text() == "Always");
    let mut seen = BTreeMap::new();
    for port in sidecars.chain(others.items()).flat_map(|container| container.get("ports").items()) {
        let name = port.get("name").text();
        if name.is_empty() {
            continue;
        }
        if let Some(other) = seen.get(name) {
            warnings.push(port.warning(&format!(
                "duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
            )));
            continue;
        }
        seen.insert(name, port.path);
    }
}
