//! The Node object's content. Pure.

use std::collections::BTreeMap;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec,
    NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::Machine;
use crate::config::Config;

/// Images that the status names at most. Source: `nodeStatusMaxImages`.
const IMAGES_MAX: usize = 50;
/// Names of one image that the status has at most.
const IMAGE_NAMES_MAX: usize = 5;
/// Memory that is kept back for the eviction threshold, as upstream's default of 100 MiB.
const MEMORY_RESERVED: u64 = 100 << 20;

/// The Node that a kubelet registers.
pub(super) fn node(config: &Config, machine: &Machine) -> Node {
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname".to_owned(), config.node_name.clone()),
        ("kubernetes.io/os".into(), "linux".into()),
        ("kubernetes.io/arch".into(), machine.architecture.into()),
        ("beta.kubernetes.io/os".into(), "linux".into()),
        ("beta.kubernetes.io/arch".into(), machine.architecture.into()),
    ]);
    labels.extend(config.node_labels.clone());
    let taints: Vec<_> = config.register_with_taints.iter().filter_map(|text| taint(text)).collect();
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: (!taints.is_empty()).then(|| NodeSpec { taints: Some(taints), ..NodeSpec::default() }),
        status: Some(status(config, machine)),
    }
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
    let port = config.server.as_ref().map_or(10250, |s| s.listen.port());
    let mut addresses: Vec<_> = config.node_ips.iter().map(|ip| address("InternalIP", ip)).collect();
    addresses.push(address("Hostname", &config.node_name));
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(resources(config, machine, 0)),
        allocatable: Some(resources(config, machine, MEMORY_RESERVED)),
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
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.into(), address: address.into() }
}

/// CPU in thousandths and memory in bytes that Pods can have.
pub(crate) fn allocatable(machine: &Machine) -> (i64, i64) {
    let memory = machine.memory.saturating_sub(MEMORY_RESERVED);
    (i64::try_from(machine.cpus * 1000).unwrap_or(i64::MAX), i64::try_from(memory).unwrap_or(i64::MAX))
}

fn resources(config: &Config, machine: &Machine, reserved: u64) -> BTreeMap<String, Quantity> {
    let kib = machine.memory.saturating_sub(reserved) / 1024;
    // Upstream keeps a tenth of the storage back for its eviction threshold.
    let storage = if reserved == 0 { machine.storage } else { machine.storage / 10 * 9 };
    BTreeMap::from([
        ("cpu".to_owned(), Quantity(machine.cpus.to_string())),
        ("memory".into(), Quantity(format!("{kib}Ki"))),
        ("ephemeral-storage".into(), Quantity(format!("{}Ki", storage / 1024))),
        ("hugepages-1Gi".into(), Quantity("0".into())),
        ("hugepages-2Mi".into(), Quantity("0".into())),
        ("pods".into(), Quantity(config.max_pods.to_string())),
    ])
}

/// The node's conditions in upstream's words; transition times move only with a status.
pub(super) fn conditions(
    problem: Option<&str>,
    before: &[NodeCondition],
    now: Timestamp,
) -> Vec<NodeCondition> {
    let fine = [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ];
    let mut conditions: Vec<_> = fine
        .iter()
        .map(|(type_, reason, message)| condition(type_, "False", reason, message, before, now))
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
    let now = Time(crate::status::whole_second(now));
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
pub(super) fn images(mut images: Vec<v1::Image>) -> Vec<ContainerImage> {
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    images.truncate(IMAGES_MAX);
    let list = images.into_iter().map(|image| {
        let names = image.repo_digests.into_iter().chain(image.repo_tags).take(IMAGE_NAMES_MAX).collect();
        ContainerImage { names: Some(names), size_bytes: i64::try_from(image.size).ok() }
    });
    list.collect()
}
