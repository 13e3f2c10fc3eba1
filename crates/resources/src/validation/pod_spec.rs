//! `PodSpec`, containers and volumes apart.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use machinery::quantity::Quantity;

use super::pod_view::{PodView, containers};
use super::quantities::{self, Names};
use super::{At, container, internal, labels, scheduling, security_context, volume};

const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LIST_BYTES_MAX: usize = 2048;
const HOSTNAME_BYTES_MAX: usize = 64;

/// Every rule of a `PodSpec`.
pub(super) fn check(pod: &PodView<'_>, errors: &mut FieldErrors) {
    let spec = &pod.spec;
    if !spec.get("terminationGracePeriodSeconds").is_set() {
        errors.push(spec.get("terminationGracePeriodSeconds").required(""));
    }
    let volumes = volume::check_all(pod, errors);
    resource_claims(pod, errors);
    container::check_all(pod, &volumes, errors);
    pod_resources(pod, errors);
    host_network_ports(pod, errors);
    spec.get("restartPolicy").one_of(&["Always", "OnFailure", "Never"], errors);
    spec.get("dnsPolicy").one_of(DNS_POLICIES, errors);
    labels(&spec.get("nodeSelector"), errors);
    security_context::pod(spec, errors);
    scheduling::affinity(&spec.get("affinity"), pod.node_values, errors);
    dns_config(spec, errors);
    for gate in spec.get("readinessGates").items() {
        let kind = gate.get("conditionType");
        errors.extend(kind.all(names::qualified_name(kind.text())));
    }
    gates(&spec.get("schedulingGates"), errors);
    scheduling::topology_spread(&spec.get("topologySpreadConstraints"), errors);
    security_context::host_process(spec, errors);
    security_context::host_users(spec, errors);
    for (field, rule) in [
        ("serviceAccountName", names::dns1123_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::dns1123_subdomain),
    ] {
        spec.get(field).optional(rule, errors);
    }
    spec.get("activeDeadlineSeconds").between(1, i64::from(i32::MAX), errors);
    spec.get("hostname").optional(names::dns1123_label, errors);
    spec.get("subdomain").optional(names::dns1123_label, errors);
    hostname_override(spec, errors);
    scheduling::tolerations(&spec.get("tolerations"), errors);
    host_aliases(&spec.get("hostAliases"), errors);
    spec.get("priorityClassName").optional(names::dns1123_subdomain, errors);
    if let Some(class) = spec.some("runtimeClassName") {
        errors.extend(class.all(names::dns1123_subdomain(class.text())));
    }
    if let Some(policy) = spec.some("preemptionPolicy") {
        policy.one_of(&["PreemptLowerPriority", "Never"], errors);
    }
    overhead(&spec.get("overhead"), errors);
    security_context::operating_system(spec, errors);
    workload(&spec.get("workloadRef"), errors);
    files_of_variables(spec, errors);
}

/// What the Pod belongs to. Source: `validateWorkloadReference`, KEP-4671.
fn workload(reference: &At<'_>, errors: &mut FieldErrors) {
    if !reference.is_set() {
        return;
    }
    type Rule = fn(&str) -> Vec<String>;
    let must_be: [(&str, Rule); 2] = [("name", names::dns1123_subdomain), ("podGroup", names::dns1123_label)];
    for (field, rule) in must_be {
        let at = reference.get(field);
        // What is missing is shown as Go has it: empty.
        errors.extend(rule(at.text()).iter().map(|why| FieldError::invalid(&at.path, at.text(), why)));
    }
    reference.get("podGroupReplicaKey").optional(names::dns1123_label, errors);
}

/// Files that variables are read from lie in an `emptyDir`. Source: `validateFileKeyRefVolumes`, KEP-3721.
fn files_of_variables(spec: &At<'_>, errors: &mut FieldErrors) {
    for variable in containers(spec).flat_map(|container| container.get("env").items()) {
        let Some(file) = variable.get("valueFrom").some("fileKeyRef") else { continue };
        let name = file.get("volumeName");
        let mut volumes = spec.get("volumes").items();
        match volumes.find(|volume| volume.get("name").text() == name.text()) {
            None => errors.push(FieldError::not_found(&name.path, name.text())),
            Some(volume) if volume.get("emptyDir").is_set() => {}
            Some(_) => errors.push(name.invalid("referenced volume must be of type emptyDir")),
        }
    }
}

fn resource_claims(pod: &PodView<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for claim in pod.spec.get("resourceClaims").items() {
        if pod.is_mirror {
            let text = "static pods do not support resource claims";
            // Upstream's path of one nameless field.
            errors.push(FieldError::forbidden(&Path::new("[]"), text));
            continue;
        }
        let name = claim.get("name");
        if name.text().is_empty() {
            errors.push(name.required(""));
        } else if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        } else {
            errors.extend(name.all(names::dns1123_label(name.text())));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let set: Vec<_> = sources.into_iter().filter_map(|field| claim.some(field)).collect();
        match set.len() {
            0 => errors.push(internal::invalid(
                &claim,
                "PodResourceClaim",
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            )),
            1 => {}
            _ => errors.push(internal::invalid(
                &claim,
                "PodResourceClaim",
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            )),
        }
        for source in set {
            errors.extend(source.all(names::dns1123_subdomain(source.text())));
        }
    }
}

/// Requests and limits of the whole Pod, and that its containers keep within them.
fn pod_resources(pod: &PodView<'_>, errors: &mut FieldErrors) {
    let Some(resources) = pod.spec.some("resources") else { return };
    if pod.spec.get("os").get("name").text() == "windows" {
        errors.push(resources.forbidden("may not be set for a windows pod"));
        return;
    }
    if resources.get("claims").is_set() {
        errors.push(resources.get("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    quantities::requirements(&resources, Names::Pod, &pod.claim_names(), errors);
    let requests = resources.get("requests");
    for (name, sum) in container_requests(&pod.spec) {
        // What the Pod does not ask for as a whole is the containers' own.
        let Some(own) = quantities::amount(&requests.get(name)) else { continue };
        if sum > own {
            errors.push(FieldError::invalid(
                &requests.path.key(name),
                own.to_string(),
                &format!("must be greater than or equal to aggregate container requests of {sum}"),
            ));
        }
    }
    for (index, container) in pod.spec.get("containers").items().enumerate() {
        for (name, limit) in container.get("resources").get("limits").entries() {
            let most = quantities::amount(&resources.get("limits").get(name));
            let (Some(limit), Some(most)) = (quantities::amount(&limit), most) else { continue };
            if limit > most {
                let path = resources.path.child("containers").index(index).key(name).child("limits");
                let detail = format!("must be less than or equal to pod limits of {most}");
                errors.push(FieldError::invalid(&path, limit.to_string(), &detail));
            }
        }
    }
}

/// What the containers of a Pod ask for together: those that run at the same time are added up, and an init
/// container counts if it asks for more than all that run after it.
fn container_requests<'a>(spec: &At<'a>) -> std::collections::BTreeMap<&'a str, Quantity> {
    let mut sums = std::collections::BTreeMap::<&str, Quantity>::new();
    let requests = |container: &At<'a>| {
        let list = container.get("resources").get("requests");
        list.entries().filter_map(|(name, at)| Some((name, quantities::amount(&at)?))).collect::<Vec<_>>()
    };
    for (name, amount) in spec.get("containers").items().flat_map(|c| requests(&c)) {
        let sum = sums.entry(name).or_default();
        *sum = sum.plus(amount);
    }
    let mut peaks = std::collections::BTreeMap::<&str, Quantity>::new();
    let mut sidecars = std::collections::BTreeMap::<&str, Quantity>::new();
    for container in spec.get("initContainers").items() {
        let is_sidecar = container.get("restartPolicy").text() == "Always";
        for (name, amount) in requests(&container) {
            let running = sidecars.entry(name).or_default();
            let total = running.plus(amount);
            if is_sidecar {
                *running = total;
                let sum = sums.entry(name).or_default();
                *sum = sum.plus(amount);
            }
            let peak = peaks.entry(name).or_default();
            *peak = total.max(*peak);
        }
    }
    for (name, peak) in peaks {
        let sum = sums.entry(name).or_default();
        *sum = peak.max(*sum);
    }
    sums
}

/// On the host's network a port is the host's. A template may leave it out: it is filled in when the Pod is made.
fn host_network_ports(pod: &PodView<'_>, errors: &mut FieldErrors) {
    if !pod.spec.get("hostNetwork").flag() {
        return;
    }
    let ports = pod.spec.get("containers").items().flat_map(|container| container.get("ports").items());
    for port in ports {
        let host = port.get("hostPort");
        let (number, wanted) = (host.number().unwrap_or_default(), port.get("containerPort").number());
        if (pod.is_pod() || number != 0) && number != wanted.unwrap_or_default() {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            errors.push(FieldError::invalid(&host.path, number, detail));
        }
    }
}

fn hostname_override(spec: &At<'_>, errors: &mut FieldErrors) {
    let Some(name) = spec.some("hostnameOverride") else { return };
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.get(field).flag() {
            errors.push(name.forbidden(&format!("may not be specified when {field} is true")));
        }
    }
    if name.len() > HOSTNAME_BYTES_MAX {
        errors.push(FieldError::too_long(&name.path, HOSTNAME_BYTES_MAX));
    }
    errors.extend(name.all(names::dns1123_subdomain(name.text())));
}

fn dns_config(spec: &At<'_>, errors: &mut FieldErrors) {
    let config = spec.get("dnsConfig");
    let (nameservers, searches) = (config.get("nameservers"), config.get("searches"));
    if spec.get("dnsPolicy").text() == "None" {
        if !config.is_set() {
            errors.push(config.required("must provide `dnsConfig` when `dnsPolicy` is None"));
            return;
        }
        if nameservers.is_empty() {
            errors.push(
                nameservers.required("must provide at least one DNS nameserver when `dnsPolicy` is None"),
            );
            return;
        }
    }
    if nameservers.len() > NAMESERVERS_MAX {
        errors.push(nameservers.invalid(&format!("must not have more than {NAMESERVERS_MAX} nameservers")));
    }
    nameservers.items().for_each(|ip| ip.ip(errors));
    if searches.len() > SEARCHES_MAX {
        errors.push(searches.invalid(&format!("must not have more than {SEARCHES_MAX} search paths")));
    }
    let spaces = searches.len().saturating_sub(1);
    if searches.texts().map(str::len).sum::<usize>() + spaces > SEARCH_LIST_BYTES_MAX {
        errors.push(searches.invalid(&format!(
            "must not have more than {SEARCH_LIST_BYTES_MAX} characters (including spaces) in the search list"
        )));
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let text = search.text().strip_suffix('.').unwrap_or(search.text());
        let rules = subdomain_with_underscores(text);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&search.path, text, rule)));
    }
    for option in config.get("options").items() {
        if option.get("name").text().is_empty() {
            errors.push(option.required("must not be empty"));
        }
    }
}

/// A search domain: a subdomain that may hold underscores.
fn subdomain_with_underscores(text: &str) -> Vec<String> {
    const TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9_]([-_a-z0-9]*[a-z0-9])?(\\.[a-z0-9_]([-_a-z0-9]*[a-z0-9])?)*')";
    let is_label = |label: &str| {
        let is_edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|&b| is_edge(b) || b == b'_')
            && bytes.iter().all(|&b| is_edge(b) || matches!(b, b'-' | b'_'))
            && (bytes.len() == 1 || bytes.last().is_some_and(|&b| is_edge(b)))
    };
    let mut rules = Vec::new();
    if text.len() > names::SUBDOMAIN_BYTES_MAX {
        rules.push(format!("must be no more than {} characters", names::SUBDOMAIN_BYTES_MAX));
    }
    if !text.split('.').all(is_label) {
        rules.push(TEXT.to_owned());
    }
    rules
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
        let name = gate.get("name").text();
        let rules = names::qualified_name(name);
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&gate.path, name, rule)));
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(&gate.path, name));
        }
    }
}

/// What a runtime needs besides the containers; it is checked like limits.
pub(super) fn overhead(overhead: &At<'_>, errors: &mut FieldErrors) {
    let limits = serde_json::json!({"limits": overhead.value});
    let at = At { value: &limits, path: overhead.path.clone() };
    if overhead.is_set() {
        quantities::requirements(&at, Names::Container, &BTreeSet::new(), errors);
    }
}
