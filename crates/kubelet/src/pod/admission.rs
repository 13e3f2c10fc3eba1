//! Whether the node takes a Pod that the API, or a file, has given to it. Pure.
//!
//! Source: `pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/sysctl/allowlist.go`, the `Admit` of the managers.

use std::collections::BTreeMap;

use controller::placement;
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec, Taint};
use resources::sysctls::{Namespace, dotted};

use crate::pod::identity::is_critical;
use crate::pod::qos::{QosClass, class_of};
use crate::pod::requests::at_once;
use crate::pod::{quantity, resize};

/// Why not: for the status and the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Rejection {
    pub(crate) fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    /// What was asked for could not be given, in upstream's words. Source: `pkg/kubelet/cm/admission`.
    pub(crate) fn unexpected(error: impl std::fmt::Display) -> Self {
        Self::new("UnexpectedAdmissionError", format!("Allocate failed due to {error}, which is unexpected"))
    }
}

fn reject(reason: impl Into<String>, message: impl Into<String>) -> Result<(), Rejection> {
    Err(Rejection::new(reason, message))
}

/// Why a Pod does not fit in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It must not run here.
    Never(Rejection),
    /// The node is not labelled as it wants it; the labels that are known may be old.
    Labels(Rejection),
    /// It would, if there were more of these: by resource, in the units of [`Room`].
    Room(Rejection, Vec<(String, i64)>),
}

impl Misfit {
    /// What the Pod is told if nothing can be done about it.
    pub(crate) fn into_rejection(self) -> Rejection {
        match self {
            Self::Never(rejection) | Self::Labels(rejection) | Self::Room(rejection, _) => rejection,
        }
    }
}

/// The node is going down. Source: `pkg/kubelet/nodeshutdown`.
pub(crate) fn shutting_down() -> Rejection {
    Rejection::new("NodeShutdown", "Pod was rejected as the node is shutting down.")
}

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

/// What comes before anything is given to the Pod.
///
/// # Errors
/// In upstream's words.
pub(crate) fn welcome(question: &Question<'_>) -> Result<(), Rejection> {
    let empty = PodSpec::default();
    let spec = question.pod.spec.as_ref().unwrap_or(&empty);
    pressure(question, spec)?;
    sysctls(question, spec)?;
    os(question.pod, spec)?;
    groups_policy(question.node, spec)
}

/// Whether the node is the right one for the Pod, and has room.
///
/// # Errors
/// In upstream's words.
pub(crate) fn fits(question: &Question<'_>) -> Result<(), Misfit> {
    let empty = PodSpec::default();
    let spec = question.pod.spec.as_ref().unwrap_or(&empty);
    let lacks = lacks(question, spec);
    let mismatch = mismatch(question, spec);
    // A critical Pod may make room for itself, but not change the node.
    if let (Some(first), true) = (lacks.first(), mismatch.is_none() || !is_critical(question.pod)) {
        let missing = |lack: &Lack| (lack.name.clone(), lack.requested - (lack.capacity - lack.used));
        return Err(Misfit::Room(first.rejection(), lacks.iter().map(missing).collect()));
    }
    mismatch.map_or(Ok(()), Err)
}

/// Why the node is the wrong one whatever it has.
fn mismatch(question: &Question<'_>, spec: &PodSpec) -> Option<Misfit> {
    if !placement::allows(spec.node_selector.as_ref(), spec.affinity.as_ref(), &question.node.metadata) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        let rejection = Rejection::new("NodeAffinity", format!("Predicate NodeAffinity failed: {why}"));
        return Some(Misfit::Labels(rejection));
    }
    let taken = host_ports(spec).any(|port| question.room.ports.iter().any(|other| collide(&port, other)));
    if taken {
        let why = "node(s) didn't have free ports for the requested pod ports";
        let rejection = Rejection::new("NodePorts", format!("Predicate NodePorts failed: {why}"));
        return Some(Misfit::Never(rejection));
    }
    let taints = question.node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let is_driven_out = |taint: &&Taint| taint.effect == "NoExecute" && !tolerates(spec, taint);
    if !crate::pod::identity::is_static(question.pod) && taints.iter().any(|taint| is_driven_out(&taint)) {
        let why = "node(s) had taints that the pod didn't tolerate";
        let rejection = Rejection::new("TaintToleration", format!("Predicate TaintToleration failed: {why}"));
        return Some(Misfit::Never(rejection));
    }
    None
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
    spec.tolerations.iter().flatten().any(|toleration| placement::tolerates(toleration, taint))
}

fn sysctls(question: &Question<'_>, spec: &PodSpec) -> Result<(), Rejection> {
    let sysctls = spec.security_context.iter().flat_map(|c| c.sysctls.iter().flatten());
    for name in sysctls.map(|sysctl| dotted(&sysctl.name)) {
        let Some(whose) = allowed(&name, question.unsafe_sysctls) else {
            return reject("SysctlForbidden", format!("forbidden sysctl: \"{name}\" not allowlisted"));
        };
        let is_hosts = match whose {
            Namespace::Net => spec.host_network,
            Namespace::Ipc => spec.host_ipc,
        };
        if is_hosts == Some(true) {
            let what = whose.as_str();
            let message = format!("forbidden sysctl: \"{name}\" not allowed with host {what} enabled");
            return reject("SysctlForbidden", message);
        }
    }
    Ok(())
}

/// Whose the control is, if Pods may set it. What no namespace has is never theirs. Source: `patternAllowlist`.
fn allowed(name: &str, unsafe_sysctls: &[String]) -> Option<Namespace> {
    if resources::sysctls::SAFE.contains(&name) {
        return Namespace::of(name);
    }
    unsafe_sysctls.iter().map(|pattern| dotted(pattern)).find_map(|pattern| match pattern.split_once('*') {
        Some((start, _)) if name.starts_with(start) => Namespace::of(start),
        None if pattern == name => Namespace::of(name),
        _ => None,
    })
}

/// A Pod that is labelled for another system is none for this one, whatever its selector says of nodes.
///
/// Source: `rejectPodAdmissionBasedOnOSSelector` of upstream, which looks at the Pod's labels.
fn os(pod: &Pod, spec: &PodSpec) -> Result<(), Rejection> {
    const LABEL: &str = "kubernetes.io/os";
    let wanted = pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL));
    if wanted.is_some_and(|os| os != "linux") {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return reject("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return reject("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
    }
    Ok(())
}

/// `Strict` needs a runtime that knows it. Source: `rejectPodAdmissionBasedOnSupplementalGroupsPolicy` of upstream.
fn groups_policy(node: &Node, spec: &PodSpec) -> Result<(), Rejection> {
    let wanted =
        spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy.as_deref());
    let features = node.status.as_ref().and_then(|status| status.features.as_ref());
    let is_known = features.and_then(|features| features.supplemental_groups_policy) == Some(true);
    if wanted == Some("Strict") && !is_known {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return reject("SupplementalGroupsPolicyNotSupported", message);
    }
    Ok(())
}

/// What a Pod asks for, in the units of [`Room`]: CPU, memory, storage, huge pages, devices.
pub(crate) fn requests(spec: &PodSpec) -> BTreeMap<String, i64> {
    let amount = resize::requests(spec);
    let mut all = BTreeMap::from([("cpu".to_owned(), amount.cpu), ("memory".to_owned(), amount.memory)]);
    let asked = |container: &Container, name: &str| {
        let of =
            |list: Option<&BTreeMap<String, _>>| list.and_then(|list| list.get(name)).map(quantity::whole);
        let resources = container.resources.as_ref();
        let request = of(resources.and_then(|resources| resources.requests.as_ref()));
        request.or_else(|| of(resources.and_then(|resources| resources.limits.as_ref()))).unwrap_or(0)
    };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let lists = containers.filter_map(|container| container.resources.as_ref());
    let names = lists
        .flat_map(|resources| resources.requests.iter().chain(&resources.limits))
        .flat_map(BTreeMap::keys);
    for name in names.filter(|name| !matches!(name.as_str(), "cpu" | "memory")) {
        all.entry(name.clone()).or_insert_with(|| at_once(spec, |container| asked(container, name)));
    }
    all
}

/// There is not enough of something.
struct Lack {
    name: String,
    requested: i64,
    used: i64,
    capacity: i64,
}

impl Lack {
    fn rejection(&self) -> Rejection {
        let Self { name, requested, used, capacity } = self;
        Rejection::new(
            format!("OutOf{name}"),
            format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        )
    }
}

/// In upstream's order: Pods, CPU, memory, storage, everything else.
fn lacks(question: &Question<'_>, spec: &PodSpec) -> Vec<Lack> {
    let room = question.room;
    let of = |map: &BTreeMap<String, i64>, name: &str| map.get(name).copied().unwrap_or(0);
    let lack = |name: &str, requested: i64| {
        let (used, capacity) = (of(&room.used, name), of(&room.allocatable, name));
        let is_lacking = requested > capacity.saturating_sub(used);
        is_lacking.then(|| Lack { name: name.to_owned(), requested, used, capacity })
    };
    let asked = requests(spec);
    let first = ["cpu", "memory", "ephemeral-storage"];
    let others = asked.keys().map(String::as_str).filter(|name| !first.contains(name));
    // What the node has never heard of is no reason: a device plugin may be on its way. The kernel's pages are.
    let is_known = |name: &&str| room.allocatable.contains_key(*name) || name.starts_with("hugepages-");
    let known = first.into_iter().chain(others).filter(is_known);
    let amounts = known.map(|name| (name, of(&asked, name))).filter(|(_, amount)| *amount > 0);
    lack("pods", 1).into_iter().chain(amounts.filter_map(|(name, amount)| lack(name, amount))).collect()
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

#[cfg(test)]
mod tests;
