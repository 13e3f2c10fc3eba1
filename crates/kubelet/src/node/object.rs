//! The Node object's content. Pure.

use std::collections::{BTreeMap, BTreeSet};

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec,
    NodeStatus, NodeSwapStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use machinery::quantity::{Format, Quantity as Amount};
use serde_json::{Value, json};

use crate::config::Config;
use crate::config::eviction::Signal;
use crate::machine::Machine;
use crate::machine::pages::huge_page_name;

/// Names of one image that the status has at most.
const IMAGE_NAMES_MAX: usize = 5;

/// On a Node that its cloud has not looked at: nothing is scheduled there. Source: `TaintExternalCloudProvider`.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The addresses that an operator has given a Node of a cloud. Source: `AnnotationAlphaProvidedIPAddr`.
const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// The Node that a kubelet registers.
pub(crate) fn node(config: &Config, machine: &Machine) -> Node {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), config.node_name.clone()),
        ("kubernetes.io/os".into(), "linux".into()),
        ("kubernetes.io/arch".into(), machine.architecture.into()),
        ("beta.kubernetes.io/os".into(), "linux".into()),
        ("beta.kubernetes.io/arch".into(), machine.architecture.into()),
    ]);
    labels.extend(config.node_labels.clone());
    let taints = taints(config);
    let provider_id = Some(config.provider_id.clone()).filter(|id| !id.is_empty());
    let has_spec = !taints.is_empty() || provider_id.is_some();
    let spec =
        NodeSpec { taints: (!taints.is_empty()).then_some(taints), provider_id, ..NodeSpec::default() };
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels),
            annotations: provided(config).map(|ips| BTreeMap::from([(PROVIDED_NODE_IP.to_owned(), ips)])),
            ..ObjectMeta::default()
        },
        spec: has_spec.then_some(spec),
        status: Some(status(config, machine)),
    }
}

/// The taints that a Node has from its first moment on: only then may its kubelet say so.
pub fn taints(config: &Config) -> Vec<Taint> {
    let said = config.register_with_taints.iter().filter_map(|text| taint(text));
    let of_cloud = config.has_cloud.then(|| Taint {
        key: UNINITIALIZED.into(),
        value: Some("true".into()),
        effect: "NoSchedule".into(),
        time_added: None,
    });
    said.chain(of_cloud).collect()
}

/// What a cloud is told of the Node's addresses: those that an operator has given, the main one first.
fn provided(config: &Config) -> Option<String> {
    (config.has_cloud && !config.provided_node_ips.is_empty()).then(|| config.provided_node_ips.join(","))
}

/// What the object of a Node that is there is told anew: labels, what a cloud is told, and its name there if it has none.
/// What a kubelet has once said of its addresses does not outlive its saying so. Source: `NodeAddress` of `nodestatus`.
pub(super) fn anew(before: Option<&Node>, now: &Node) -> Value {
    let told = now.metadata.annotations.as_ref().and_then(|all| all.get(PROVIDED_NODE_IP));
    let mut patch = json!({"metadata": {
        "labels": now.metadata.labels,
        "annotations": {PROVIDED_NODE_IP: told},
    }});
    let id = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
    if before.is_some_and(|before| id(before).is_empty()) && !id(now).is_empty() {
        patch["spec"] = json!({"providerID": id(now)});
    }
    patch
}

/// Whether somebody has said where the Node is. Of a cloud's Node its kubelet says so only if nobody has.
pub(super) fn has_addresses(node: &Node) -> bool {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    addresses.is_some_and(|addresses| !addresses.is_empty())
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Option<Taint> {
    let (rest, effect) = text.rsplit_once(':')?;
    let (key, value) =
        rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value.to_owned())));
    Some(Taint { key: key.into(), value, effect: effect.into(), time_added: None })
}

/// All of the status that does not change while the kubelet runs.
pub(super) fn status(config: &Config, machine: &Machine) -> NodeStatus {
    let port = config.server.as_ref().map_or(10250, |s| s.port);
    let ips = if config.has_cloud { &config.provided_node_ips } else { &config.node_ips };
    let mut addresses: Vec<_> = ips.iter().map(|ip| address("InternalIP", ip)).collect();
    addresses.push(address("Hostname", &config.node_name));
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(quantities(&capacity(config, machine))),
        allocatable: Some(quantities(&allocatable(config, machine))),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(port) }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: machine.architecture.into(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: machine.runtime.clone(),
            kernel_version: machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: config.version.clone(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".into(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            swap: (machine.swap > 0).then(|| NodeSwapStatus { capacity: i64::try_from(machine.swap).ok() }),
        }),
        ..NodeStatus::default()
    }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.into(), address: address.into() }
}

/// What the machine has: CPU in thousandths, everything else in whole units.
pub(crate) fn capacity(config: &Config, machine: &Machine) -> BTreeMap<String, i64> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut all = BTreeMap::from([
        ("cpu".to_owned(), number(machine.cpus * 1000)),
        ("memory".into(), number(machine.memory)),
        ("ephemeral-storage".into(), number(machine.storage / 1024 * 1024)),
        ("pods".into(), i64::from(config.max_pods)),
    ]);
    for (size, count) in &machine.huge_pages {
        all.insert(huge_page_name(*size), number(size * count));
    }
    all
}

type Quantities = Option<BTreeMap<String, Quantity>>;

/// Capacity and allocatable with what device plugins have: all of it, and what is well.
pub(super) fn with_devices(
    status: &NodeStatus,
    devices: &BTreeMap<String, (i64, i64)>,
) -> (Quantities, Quantities) {
    let (mut capacity, mut allocatable) = (status.capacity.clone(), status.allocatable.clone());
    for (name, (all, healthy)) in devices {
        capacity.get_or_insert_default().insert(name.clone(), Quantity(all.to_string()));
        allocatable.get_or_insert_default().insert(name.clone(), Quantity(healthy.to_string()));
    }
    (capacity, allocatable)
}

/// Takes back huge pages of sizes that the machine has not, or no longer. Source: `reconcileHugePageResource`.
pub(super) fn without_unknown_pages(before: &Node, now: &Node) -> Option<Value> {
    let names = |node: &Node| {
        let status = node.status.clone().unwrap_or_default();
        let all = [status.capacity, status.allocatable].into_iter().flatten().flatten();
        all.map(|(name, _)| name).filter(|name| name.starts_with("hugepages-")).collect::<BTreeSet<_>>()
    };
    let gone: BTreeMap<_, _> = names(before).difference(&names(now)).map(|name| (name.clone(), ())).collect();
    (!gone.is_empty()).then(|| json!({"status": {"capacity": gone, "allocatable": gone}}))
}

/// Resources that others have put into the Node's capacity: all of each is for Pods, too, and what is in capacity no more
/// is for none. Nothing if the Node says so already. Source: `MachineInfo` of upstream's `nodestatus`.
pub(super) fn of_others(before: &Node, now: &NodeStatus) -> Option<Value> {
    let before = before.status.as_ref()?;
    let resources = |list: &Quantities| list.clone().unwrap_or_default();
    let (capacity, allocatable) = (resources(&before.capacity), resources(&before.allocatable));
    let own = resources(&now.capacity);
    let is_foreign = |name: &String| !own.contains_key(name) && !name.starts_with("hugepages-");
    let mut told = serde_json::Map::new();
    for (name, amount) in capacity.iter().filter(|(name, _)| is_foreign(name)) {
        if allocatable.get(name) != Some(amount) {
            told.insert(name.clone(), json!(amount));
        }
    }
    for name in allocatable.keys().filter(|name| is_foreign(name) && name.contains('/')) {
        if !capacity.contains_key(name) {
            told.insert(name.clone(), Value::Null);
        }
    }
    (!told.is_empty()).then_some(Value::Object(told))
}

/// What of that Pods can have: less what is reserved, what hard eviction thresholds keep, and huge pages.
///
/// Source: `GetNodeAllocatableReservation` of upstream's `pkg/kubelet/cm`.
pub(crate) fn allocatable(config: &Config, machine: &Machine) -> BTreeMap<String, i64> {
    let mut all = capacity(config, machine);
    let huge: i64 =
        all.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|(_, bytes)| *bytes).sum();
    for (name, amount) in &mut all {
        let (reserved, signal) = match name.as_str() {
            "cpu" => (config.reserved.milli(name), None),
            "memory" => (config.reserved.whole(name) + huge, Some(Signal::MemoryAvailable)),
            "ephemeral-storage" => (config.reserved.whole(name), Some(Signal::NodeFsAvailable)),
            _ => (0, None),
        };
        let kept = signal.map_or(0, |signal| config.eviction.reserved(signal, *amount));
        *amount = amount.saturating_sub(reserved).saturating_sub(kept).max(0);
    }
    all
}

/// Bytes of memory that are reserved or that the hard eviction threshold keeps.
pub(crate) fn kept_memory(config: &Config, machine: &Machine) -> i64 {
    let total = i64::try_from(machine.memory).unwrap_or(i64::MAX);
    config.reserved.whole("memory").saturating_add(config.eviction.reserved(Signal::MemoryAvailable, total))
}

fn quantities(amounts: &BTreeMap<String, i64>) -> BTreeMap<String, Quantity> {
    let text = |name: &str, amount: i64| match name {
        "cpu" => Amount::from_milli(amount).to_string(),
        // In Ki as upstream has it, whatever larger unit would fit.
        "memory" | "ephemeral-storage" if amount % 1024 == 0 => format!("{}Ki", amount / 1024),
        _ => Amount::new(amount, Format::BinarySi).to_string(),
    };
    amounts.iter().map(|(name, amount)| (name.clone(), Quantity(text(name, *amount)))).collect()
}

type Words = (&'static str, &'static str);

/// Conditions, with reason and message while all is well and while it is not. An event's reason is the condition's with
/// `Node` in place of `Kubelet`.
const PRESSURES: [(&str, Words, Words); 3] = [
    (
        "MemoryPressure",
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ),
    (
        "DiskPressure",
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ),
    (
        "PIDPressure",
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ),
];

/// What is told of conditions that have another status than before. A node that has just come is not yet told to be ready
/// or not: it has never been anything else. Source: the setters of upstream's `pkg/kubelet/nodestatus`.
pub(super) fn news(before: &[NodeCondition], now: &[NodeCondition]) -> Vec<String> {
    let told = |condition: &NodeCondition| {
        let old = before.iter().find(|old| old.type_ == condition.type_);
        let is_new = old.is_none_or(|old| old.status != condition.status);
        let reason = condition.reason.as_deref()?;
        match condition.type_.as_str() {
            "Ready" if old.is_some() && is_new => {
                Some(if condition.status == "True" { "NodeReady" } else { "NodeNotReady" }.to_owned())
            }
            "Ready" => None,
            _ => is_new.then(|| reason.replacen("Kubelet", "Node", 1)),
        }
    };
    now.iter().filter_map(told).collect()
}

/// The node's conditions in upstream's words; transition times move only with a status.
pub(super) fn conditions(
    problem: Option<&str>,
    pressure: &[&str],
    before: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let mut conditions: Vec<_> = PRESSURES
        .iter()
        .map(|(type_, fine, pressed)| match pressure.contains(type_) {
            false => condition(type_, "False", fine.0, fine.1, before, now),
            true => condition(type_, "True", pressed.0, pressed.1, before, now),
        })
        .collect();
    conditions.push(match problem {
        None => condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", before, now),
        Some(problem) => condition("Ready", "False", "KubeletNotReady", problem, before, now),
    });
    conditions
}

fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: &str,
    before: &[NodeCondition],
    now: Timestamp,
) -> NodeCondition {
    let now = Time(crate::pod::time::whole_second(now));
    let kept = before.iter().find(|c| c.type_ == type_ && c.status == status);
    NodeCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: kept.and_then(|c| c.last_transition_time.clone()).or(Some(now)),
    }
}

/// The largest images first.
pub(super) fn images(mut images: Vec<v1::Image>, most: Option<u32>) -> Vec<ContainerImage> {
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    images.truncate(most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX));
    let list = images.into_iter().map(|image| {
        let names = image.repo_digests.into_iter().chain(image.repo_tags).take(IMAGE_NAMES_MAX).collect();
        ContainerImage { names: Some(names), size_bytes: i64::try_from(image.size).ok() }
    });
    list.collect()
}

#[cfg(test)]
mod tests;
