//! The node as the API sees it: registration, status, lease.
//!
//! The lease is renewed every ten seconds and the status written every five minutes; a change of the conditions is
//! written at once.

mod lease;
mod object;
pub(crate) mod shutdown;
mod startup;

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use controller::EventType;
use controller::request::{self, ApiRequest, Patch};
use cri::v1;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use serde_json::{Value, json};

use crate::machine::{Machine, boot_time};
use crate::metrics::Level;
use crate::node_resources::NodeResources;
pub use object::taints;
pub(crate) use object::{allocatable, kept_memory, node as initial};
use startup::Startup;

/// How the message of a Node's condition `Ready` begins when its Pods have no network. Source: upstream's kubelet.
pub const NETWORK_NOT_READY: &str = "container runtime network not ready";
/// How soon the runtime is asked again while it is not ready.
const UNREADY_PERIOD: Duration = Duration::from_millis(100);

/// Registers the node and keeps its status and lease, until the group of tasks stops.
pub(crate) async fn run(resources: Arc<NodeResources>, machine: Arc<Machine>) {
    // Source: `BirthCry`.
    resources.node_event(EventType::Normal, "Starting", "Starting kubelet.".to_owned());
    resources.tasks.spawn("node lease", lease::keep(resources.context.clone()));
    resources.tasks.spawn("cordons", tell_of_cordons(resources.clone()));
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(7), 0.2);
    let mut startup = Startup::new(boot_time(), resources.started_at);
    let registered = loop {
        startup.attempted(resources.clock.now());
        match register(&resources, &machine, &mut startup).await {
            Ok(registered) => break registered,
            Err(error) => {
                tracing::warn!(%error, node = resources.config.node_name, "the node was not registered");
            }
        }
        tokio::time::sleep(backoff.next(&resources.random)).await;
    };
    keep_status(&resources, &machine, registered, startup).await;
}

/// What the API server has of the Node that was registered.
struct Registered {
    conditions: Vec<NodeCondition>,
    has_addresses: bool,
}

impl Registered {
    fn of(node: Node) -> Self {
        let has_addresses = object::has_addresses(&node);
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        Self { conditions, has_addresses }
    }
}

/// Creates the Node with its status, or brings an existing one's labels up to date.
async fn register(
    resources: &NodeResources,
    machine: &Machine,
    startup: &mut Startup,
) -> Result<Registered, kube::Error> {
    let client = &resources.client;
    let mut node = object::node(&resources.config, machine);
    let problem = problem(resources).await;
    node.status = Some(status(resources, machine, problem.as_deref(), &[]).await);
    match request::send(client, &ApiRequest::create(&node)).await {
        Ok(node) => {
            tracing::info!(node = resources.config.node_name, "registered the node");
            set_levels(resources, startup.registered(resources.clock.now()));
            Ok(Registered::of(node))
        }
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let name = &resources.config.node_name;
            // Its name in the cloud can be said once.
            let known = match resources.config.provider_id.is_empty() {
                true => None,
                false => Some(request::get(client, "", name).await?),
            };
            let patch = object::anew(known.as_ref(), &node);
            let patch = ApiRequest::patch_object::<Node>("", name, Patch::Merge(patch));
            let before: Node = request::send(client, &patch).await?;
            if let Some(patch) = object::without_unknown_pages(&before, &node) {
                let patch = ApiRequest::patch_status::<Node>("", name, Patch::Merge(patch));
                request::carry_out(client, &patch).await?;
            }
            if known_boot(&before).is_none() {
                // Somebody has made the object for the kubelet, and nobody else has been this node yet.
                set_levels(resources, startup.registered(resources.clock.now()));
            }
            if has_rebooted(&before, &machine.boot_id) {
                let message = format!("Node {name} has been rebooted, boot id: {}", machine.boot_id);
                resources.node_event(EventType::Warning, "Rebooted", message);
            }
            Ok(Registered::of(before))
        }
        Err(error) => Err(error),
    }
}

/// Tells when somebody keeps Pods from the node, or does not any more. Source: `recordNodeSchedulableEvent`.
async fn tell_of_cordons(resources: Arc<NodeResources>) {
    let mut changes = resources.node.subscribe();
    let mut was_unschedulable = false;
    loop {
        for node in changes.next().await.into_iter().filter_map(|change| change.new) {
            let is_unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
            if std::mem::replace(&mut was_unschedulable, is_unschedulable) != is_unschedulable {
                let reason = if is_unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
                tell_one(&resources, reason);
            }
        }
    }
}

/// Records what is new.
fn tell(resources: &NodeResources, before: &[NodeCondition], now: &[NodeCondition]) {
    object::news(before, now).iter().for_each(|reason| tell_one(resources, reason));
}

fn tell_one(resources: &NodeResources, reason: &str) {
    let message = format!("Node {} status is now: {reason}", resources.config.node_name);
    resources.node_event(EventType::Normal, reason, message);
}

fn set_levels(resources: &NodeResources, told: impl Iterator<Item = (Level, f64)>) {
    told.for_each(|(what, seconds)| resources.metrics.set(what, &[], seconds));
}

/// The boot that a kubelet has told the API server of.
fn known_boot(before: &Node) -> Option<&str> {
    let known = before.status.as_ref()?.node_info.as_ref()?;
    Some(known.boot_id.as_str()).filter(|boot_id| !boot_id.is_empty())
}

/// Whether the API server knows the node of another boot. Source: `MachineInfo` of upstream's `nodestatus`.
fn has_rebooted(before: &Node, boot_id: &str) -> bool {
    known_boot(before).is_some_and(|known| known != boot_id)
}

async fn keep_status(
    resources: &NodeResources,
    machine: &Machine,
    Registered { conditions: mut recorded, mut has_addresses }: Registered,
    mut startup: Startup,
) {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10), 0.2);
    let mut changes = resources.runtime.status_changes();
    // Each start tells of pressure anew.
    let mut told = recorded.clone();
    told.retain(|condition| condition.type_ == "Ready");
    loop {
        let problem = problem(resources).await;
        let status = status(resources, machine, problem.as_deref(), &recorded).await;
        let mut patch = json!({"status": patch_of(&status)});
        if resources.config.has_cloud && has_addresses {
            // A cloud's word counts more than ours. Source: `NodeAddress` of upstream's `nodestatus`.
            remove(&mut patch, "/status", "addresses");
        }
        let others = resources.node.get(&resources.config.node_name);
        if let Some(Value::Object(others)) = others.and_then(|node| object::of_others(&node, &status))
            && let Some(allocatable) = patch.pointer_mut("/status/allocatable").and_then(Value::as_object_mut)
        {
            allocatable.extend(others);
        }
        let name = &resources.config.node_name;
        let patch = ApiRequest::patch_status::<Node>("", name, Patch::Strategic(patch));
        if let Err(error) = request::carry_out(&resources.client, &patch).await {
            tracing::warn!(%error, "the node's status was not written");
            tokio::time::sleep(backoff.next(&resources.random)).await;
            continue;
        }
        backoff.reset();
        has_addresses = true;
        let (conditions, plain) = (status.conditions.clone(), status);
        recorded = conditions.unwrap_or_default();
        if recorded.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
            set_levels(resources, startup.ready(resources.clock.now()));
        }
        tell(resources, &told, &recorded);
        told.clone_from(&recorded);
        wait_for_news(resources, problem.as_deref(), &plain, &mut changes).await;
    }
}

/// Waits until the status must be written: when the runtime has another problem than this, when others have put resources
/// into the Node's capacity, or when it is time.
async fn wait_for_news(
    resources: &NodeResources,
    problem: Option<&str>,
    status: &NodeStatus,
    changes: &mut BoxStream<'static, ()>,
) {
    let mut nodes = resources.node.subscribe();
    let mut backoff = Backoff::new(UNREADY_PERIOD, Duration::from_secs(5), 0.1);
    let pause = match problem {
        Some(_) => backoff.next(&resources.random),
        None => resources.config.node_status_report_frequency,
    };
    let mut due = Box::pin(tokio::time::sleep(pause));
    loop {
        tokio::select! {
            () = resources.node_state.changed() => return,
            changed = nodes.next() => {
                let mut changed = changed.into_iter().filter_map(|change| change.new);
                if changed.any(|node| object::of_others(&node, status).is_some()) {
                    return;
                }
                continue;
            }
            () = &mut due => {
                if problem.is_none() {
                    return;
                }
                due.set(tokio::time::sleep(backoff.next(&resources.random)));
            }
            Some(()) = changes.next() => {}
        }
        if self::problem(resources).await.as_deref() != problem {
            return;
        }
    }
}

/// Why the node is not ready, in upstream's words.
async fn problem(resources: &NodeResources) -> Option<String> {
    let shutdown = resources.node_state.is_shutting_down().then(|| "node is shutting down".to_owned());
    match (runtime_problem(resources).await, shutdown) {
        (Some(runtime), Some(shutdown)) => Some(format!("[{runtime}, {shutdown}]")),
        (one, other) => one.or(other),
    }
}

fn remove(value: &mut Value, pointer: &str, field: &str) {
    if let Some(object) = value.pointer_mut(pointer).and_then(Value::as_object_mut) {
        object.remove(field);
    }
}

/// Addresses and images are lists that are replaced as a whole.
fn patch_of(status: &NodeStatus) -> Value {
    let mut value = serde_json::to_value(status).unwrap_or_default();
    if let Some(addresses) = value.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.insert(0, json!({"$patch": "replace"}));
    }
    value
}

/// Why no Pod can run, in upstream's words; `None` if they can.
async fn runtime_problem(resources: &NodeResources) -> Option<String> {
    let answer = match resources.runtime.status(v1::StatusRequest { verbose: false }).await {
        Ok(answer) => {
            resources.features.learn(&answer);
            answer.status.unwrap_or_default()
        }
        Err(error) => return Some(format!("container runtime is down: {error}")),
    };
    let failed = |type_: &str| answer.conditions.iter().find(|c| c.r#type == type_ && !c.status).cloned();
    if let Some(condition) = failed("RuntimeReady") {
        return Some(format!(
            "container runtime not ready: RuntimeReady=false reason:{} message:{}",
            condition.reason, condition.message
        ));
    }
    let network = failed("NetworkReady")?;
    Some(format!(
        "{NETWORK_NOT_READY}: NetworkReady=false reason:{} message:{}",
        network.reason, network.message
    ))
}

async fn status(
    resources: &NodeResources,
    machine: &Machine,
    problem: Option<&str>,
    before: &[NodeCondition],
) -> NodeStatus {
    let images = match resources.images.list_images(v1::ListImagesRequest { filter: None }).await {
        Ok(answer) => answer.images,
        Err(error) => {
            tracing::debug!(%error, "the runtime did not list its images");
            Vec::new()
        }
    };
    let now = resources.clock.now();
    let mut plain = object::status(&resources.config, machine);
    resources.features.known().show(&mut plain);
    let (capacity, allocatable) = object::with_devices(&plain, &resources.devices.counts());
    NodeStatus {
        capacity,
        allocatable,
        conditions: Some(object::conditions(problem, &resources.node_state.pressure(), before, now)),
        images: Some(object::images(images, resources.config.node_status_max_images)),
        ..plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_another_boot_has_rebooted() {
        let node = |boot_id: &str| -> Node {
            serde_json::from_value(json!({"status": {"nodeInfo": {
                "architecture": "", "bootID": boot_id, "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                "osImage": "", "systemUUID": "",
            }}}))
            .unwrap()
        };
        assert!(has_rebooted(&node("a"), "b"));
        assert!(!has_rebooted(&node("a"), "a"));
        assert!(!has_rebooted(&node(""), "a") && !has_rebooted(&Node::default(), "a"), "it was not known");
    }
}
