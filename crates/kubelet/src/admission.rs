//! Whether the node takes a Pod that the API, or a file, has given to it. Pure.
//!
//! Source: `pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/sysctl/allowlist.go`, the `Admit` of the managers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration};

use crate::qos::{QosClass, class_of};
use crate::{quantity, resize};

/// Why not: for the status and the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}

fn reject(reason: impl Into<String>, message: impl Into<String>) -> Result<(), Rejection> {
    Err(Rejection { reason: reason.into(), message: message.into() })
}

/// The least priority of a critical Pod. Source: `scheduling.SystemCriticalPriority`.
const CRITICAL_PRIORITY: i64 = 2_000_000_000;

/// What the node can give and has given away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room {
    /// By resource, in the unit of upstream's message: CPU in thousandths, everything else whole.
    pub(crate) allocatable: BTreeMap<String, i64>,
    /// What the Pods that run have asked for.
    pub(crate) used: BTreeMap<String, i64>,
    /// Host ports that are taken: protocol, address, port.
    pub(crate) ports: Vec<(String, String, i32)>,
}

/// What is looked at.
pub(crate) struct Question<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) node: &'a Node,
    pub(crate) room: &'a Room,
    /// Conditions of the node that speak against more Pods.
    pub(crate) pressure: &'a [&'static str],
    /// See [`crate::Config::allowed_unsafe_sysctls`].
    pub(crate) unsafe_sysctls: &'a [String],
}

/// Whether the Pod matters more than the node's comfort: static ones and those of a system's priority.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    crate::static_pods::is_static(pod) || priority(pod) >= CRITICAL_PRIORITY
}

pub(crate) fn priority(pod: &Pod) -> i64 {
    pod.spec.as_ref().and_then(|spec| spec.priority).map_or(0, i64::from)
}

/// Takes the Pod or says why not, in upstream's words.
pub(crate) fn admit(question: &Question<'_>) -> Result<(), Rejection> {
    let empty = PodSpec::default();
    let spec = question.pod.spec.as_ref().unwrap_or(&empty);
    pressure(question, spec)?;
    sysctls(question, spec)?;
    os(spec)?;
    resources(question, spec)?;
    if !matches_node(spec, question.node) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return reject("NodeAffinity", format!("Predicate NodeAffinity failed: {why}"));
    }
    let taken = host_ports(spec).any(|port| question.room.ports.iter().any(|other| collide(&port, other)));
    if taken {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return reject("NodePorts", format!("Predicate NodePorts failed: {why}"));
    }
    let taints = question.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let is_driven_out = |taint: &&Taint| taint.effect == "NoExecute" && !tolerates(spec, taint);
    if !crate::static_pods::is_static(question.pod) && taints.iter().any(|taint| is_driven_out(&taint)) {
        let why = "node(s) had taints that the pod didn't tolerate";
        return reject("TaintToleration", format!("Predicate TaintToleration failed: {why}"));
    }
    Ok(())
}

fn pressure(question: &Question<'_>, spec: &PodSpec) -> Result<(), Rejection> {
    if question.pressure.is_empty() || is_critical(question.pod) {
        return Ok(());
    }
    if question.pressure == ["MemoryPressure"] {
        let taint = Taint {
            key: "node.kubernetes.io/memory-pressure".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        if class_of(spec) != QosClass::BestEffort || tolerates(spec, &taint) {
            return Ok(());
        }
    }
    reject("Evicted", format!("The node had condition: [{}]. ", question.pressure.join(" ")))
}

fn tolerates(spec: &PodSpec, taint: &Taint) -> bool {
    let does = |toleration: &Toleration| {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let effect = text(&toleration.effect);
        let key = text(&toleration.key);
        let is_about = (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key);
        is_about
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                _ => !key.is_empty() && text(&toleration.value) == text(&taint.value),
            }
    };
    spec.tolerations.iter().flatten().any(does)
}

/// Sysctls that concern nobody but the Pod. Source: `pkg/kubelet/sysctl/safe_sysctls.go`.
const SAFE_SYSCTLS: [&str; 11] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
];
/// The last of the safe ones.
const SAFE_TOO: &str = "net.ipv4.tcp_wmem";

fn sysctls(question: &Question<'_>, spec: &PodSpec) -> Result<(), Rejection> {
    let sysctls = spec.security_context.iter().flat_map(|c| c.sysctls.iter().flatten());
    for name in sysctls.map(|sysctl| sysctl.name.replace('/', ".")) {
        let is_listed = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => *pattern == name,
        };
        let is_safe = SAFE_SYSCTLS.contains(&name.as_str()) || name == SAFE_TOO;
        if !is_safe && !question.unsafe_sysctls.iter().any(is_listed) {
            return reject("SysctlForbidden", format!("forbidden sysctl: \"{name}\" not allowlisted"));
        }
        let is_hosts = |flag: Option<bool>, what: &str| match flag {
            Some(true) => reject(
                "SysctlForbidden",
                format!("forbidden sysctl: \"{name}\" not allowed with host {what} enabled"),
            ),
            _ => Ok(()),
        };
        match name.split('.').next() {
            Some("net") => is_hosts(spec.host_network, "net")?,
            Some("kernel") => is_hosts(spec.host_ipc, "ipc")?,
            _ => {}
        }
    }
    Ok(())
}

fn os(spec: &PodSpec) -> Result<(), Rejection> {
    const LABEL: &str = "kubernetes.io/os";
    let wanted = spec.node_selector.as_ref().and_then(|selector| selector.get(LABEL));
    if wanted.is_some_and(|os| os != "linux") {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return reject("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    Ok(())
}

/// What a Pod asks for, in the units of [`Room`]: CPU, memory, storage, huge pages, devices.
pub(crate) fn requests(spec: &PodSpec) -> BTreeMap<String, i64> {
    let amount = resize::requests(spec);
    let mut all = BTreeMap::from([("cpu".to_owned(), amount.cpu), ("memory".to_owned(), amount.memory)]);
    let is_sidecar =
        |c: &&k8s_openapi::api::core::v1::Container| c.restart_policy.as_deref() == Some("Always");
    let others = |container: &k8s_openapi::api::core::v1::Container| -> BTreeMap<String, i64> {
        let resources = container.resources.clone().unwrap_or_default();
        let mut asked = resources.limits.unwrap_or_default();
        asked.extend(resources.requests.unwrap_or_default());
        let is_other = |name: &str| !matches!(name, "cpu" | "memory");
        asked
            .into_iter()
            .filter(|(name, _)| is_other(name))
            .map(|(name, q)| (name, quantity::whole(&q)))
            .collect()
    };
    let init = || spec.init_containers.iter().flatten();
    let mut sum = BTreeMap::<String, i64>::new();
    for container in spec.containers.iter().chain(init().filter(is_sidecar)) {
        for (name, amount) in others(container) {
            *sum.entry(name).or_default() += amount;
        }
    }
    for container in init().filter(|c| !is_sidecar(c)) {
        for (name, amount) in others(container) {
            let most = sum.entry(name).or_default();
            *most = (*most).max(amount);
        }
    }
    all.extend(sum);
    all
}

fn resources(question: &Question<'_>, spec: &PodSpec) -> Result<(), Rejection> {
    let room = question.room;
    let of = |map: &BTreeMap<String, i64>, name: &str| map.get(name).copied().unwrap_or(0);
    let lacks = |name: &str, requested: i64| {
        let (used, capacity) = (of(&room.used, name), of(&room.allocatable, name));
        (requested > capacity.saturating_sub(used)).then(|| Rejection {
            reason: format!("OutOf{name}"),
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        })
    };
    let asked = requests(spec);
    let rejected = lacks("pods", 1).or_else(|| {
        let first = ["cpu", "memory", "ephemeral-storage"];
        let others = asked.keys().map(String::as_str).filter(|name| !first.contains(name));
        first.into_iter().chain(others).find_map(|name| {
            // What the node has never heard of is no reason: a device plugin may be on its way.
            let is_known = room.allocatable.contains_key(name);
            lacks(name, of(&asked, name)).filter(|_| of(&asked, name) > 0 && is_known)
        })
    });
    rejected.map_or(Ok(()), Err)
}

/// The host's ports that a Pod takes.
pub(crate) fn host_ports(spec: &PodSpec) -> impl Iterator<Item = (String, String, i32)> {
    let sidecars =
        spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    ports.filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let text = |value: &Option<String>, default: &str| match value.as_deref() {
            None | Some("") => default.to_owned(),
            Some(text) => text.to_owned(),
        };
        Some((text(&port.protocol, "TCP"), text(&port.host_ip, "0.0.0.0"), number))
    })
}

fn collide(a: &(String, String, i32), b: &(String, String, i32)) -> bool {
    a.0 == b.0 && a.2 == b.2 && (a.1 == b.1 || a.1 == "0.0.0.0" || b.1 == "0.0.0.0")
}

/// Whether the node is one of those that the Pod wants. Source: `nodeaffinity.GetRequiredNodeAffinity`.
fn matches_node(spec: &PodSpec, node: &Node) -> bool {
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selected
        && required
            .is_none_or(|required| required.node_selector_terms.iter().any(|term| fits(term, node, labels)))
}

fn fits(term: &NodeSelectorTerm, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let (by_label, by_field) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
    if by_label.is_none_or(<[_]>::is_empty) && by_field.is_none_or(<[_]>::is_empty) {
        return false;
    }
    let holds = |operator: &str, value: Option<&str>, wanted: &[String]| {
        let number = |text: &str| text.parse::<i64>().ok();
        let compared = || Some((number(value?)?, number(wanted.first()?)?));
        match operator {
            "In" => value.is_some_and(|value| wanted.iter().any(|w| w == value)),
            "NotIn" => value.is_none_or(|value| wanted.iter().all(|w| w != value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared().is_some_and(|(have, want)| have > want),
            "Lt" => compared().is_some_and(|(have, want)| have < want),
            _ => false,
        }
    };
    let labels_fit = by_label.unwrap_or_default().iter().all(|requirement| {
        let value = labels.get(&requirement.key).map(String::as_str);
        holds(&requirement.operator, value, requirement.values.as_deref().unwrap_or_default())
    });
    let fields_fit = by_field.unwrap_or_default().iter().all(|requirement| {
        let value = (requirement.key == "metadata.name").then_some(name);
        holds(&requirement.operator, value, requirement.values.as_deref().unwrap_or_default())
    });
    labels_fit && fields_fit
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str =
        "{metadata: {name: n1, labels: {disk: ssd}}, spec: {taints: [{key: gone, effect: NoExecute}]}}";

    fn check(pod: &str, pressure: &[&'static str], expect: Option<(&str, &str)>) {
        let pod: Pod = serde_saphyr::from_str(pod).unwrap();
        let node: Node = serde_saphyr::from_str(NODE).unwrap();
        let map = |pairs: &[(&str, i64)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect();
        let room = Room {
            allocatable: map(&[("cpu", 2000), ("memory", 1 << 30), ("pods", 2)]),
            used: map(&[("cpu", 1500), ("memory", 1 << 29), ("pods", 1)]),
            ports: vec![("TCP".into(), "0.0.0.0".into(), 80)],
        };
        let unsafe_sysctls = ["net.core.*".to_owned()];
        let question =
            Question { pod: &pod, node: &node, room: &room, pressure, unsafe_sysctls: &unsafe_sysctls };
        let expect =
            expect.map(|(reason, message)| Rejection { reason: reason.into(), message: message.into() });
        assert_eq!(admit(&question).err(), expect, "{pod:?}");
    }

    fn spec(text: &str) -> String {
        format!("{{spec: {{tolerations: [{{operator: Exists}}], containers: [{{name: a}}], {text}}}}}")
    }

    #[test]
    fn a_pod_that_fits_is_taken() {
        check(&spec("nodeSelector: {disk: ssd}"), &[], None);
        check(
            &spec("securityContext: {sysctls: [{name: net.core.somaxconn}, {name: net.ipv4.tcp_wmem}]}"),
            &[],
            None,
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_in_upstreams_words() {
        let asks = |resources: &str| {
            format!(
                "{{spec: {{tolerations: [{{operator: Exists}}], containers: [{{name: a, resources: {{requests: {resources}}}}}]}}}}"
            )
        };
        check(
            &asks("{cpu: '1'}"),
            &[],
            Some((
                "OutOfcpu",
                "Node didn't have enough resource: cpu, requested: 1000, used: 1500, capacity: 2000",
            )),
        );
        check(
            &asks("{memory: 1Gi}"),
            &[],
            Some((
                "OutOfmemory",
                "Node didn't have enough resource: memory, requested: 1073741824, used: 536870912, capacity: 1073741824",
            )),
        );
        let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        check(&spec("nodeSelector: {disk: hdd}"), &[], Some(("NodeAffinity", affinity)));
        check(
            &spec(
                "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [other]}]}]}}}",
            ),
            &[],
            Some(("NodeAffinity", affinity)),
        );
        check(
            "{spec: {containers: [{name: a}]}}",
            &[],
            Some((
                "TaintToleration",
                "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
            )),
        );
        check(
            "{spec: {tolerations: [{operator: Exists}], containers: [{name: a, ports: [{containerPort: 1, hostPort: 80, hostIP: 127.0.0.1}]}]}}",
            &[],
            Some((
                "NodePorts",
                "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
            )),
        );
        check(
            &spec("securityContext: {sysctls: [{name: kernel/msgmax}]}"),
            &[],
            Some(("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted")),
        );
        check(
            &spec("hostNetwork: true, securityContext: {sysctls: [{name: net.core.somaxconn}]}"),
            &[],
            Some((
                "SysctlForbidden",
                "forbidden sysctl: \"net.core.somaxconn\" not allowed with host net enabled",
            )),
        );
        check(
            &spec("os: {name: windows}"),
            &[],
            Some(("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")),
        );
    }

    #[test]
    fn under_pressure_only_some_are_taken() {
        let refused =
            |conditions: &str| ("Evicted".to_owned(), format!("The node had condition: [{conditions}]. "));
        let burstable = "{spec: {tolerations: [{key: gone, operator: Exists}], containers: [{name: a, resources: {requests: {cpu: 1m}}}]}}";
        let best_effort = "{spec: {tolerations: [{key: gone, operator: Exists}], containers: [{name: a}]}}";
        let (reason, message) = refused("MemoryPressure");
        check(best_effort, &["MemoryPressure"], Some((&reason, &message)));
        check(burstable, &["MemoryPressure"], None);
        check(&spec("priority: 0"), &["MemoryPressure"], None);
        let (reason, message) = refused("DiskPressure MemoryPressure");
        check(burstable, &["DiskPressure", "MemoryPressure"], Some((&reason, &message)));
        check(&spec("priority: 2000000000"), &["DiskPressure"], None);
    }
}
