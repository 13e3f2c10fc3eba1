//! The Node lifecycle controller: a node that is not heard of is Unknown, and taints say what is wrong with nodes.
//!
//! Silence is measured by this process's own clock, from when a lease or status last was another (`heard`): the clocks of nodes
//! may be wrong, and any may leap. When no node at all is ready, nothing is evicted: then the fault is more likely here than
//! there; and where some are, `zones` says how fast. Source: `pkg/controller/nodelifecycle`.

mod heartbeats;
mod seen_nodes;
mod taints;
#[cfg(test)]
mod tests;
pub mod zones;

use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{name, namespace, time, uid};
use controller::pod::Pod;
use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Scope, Source};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, PodCondition};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::heartbeats::Heartbeats;
use self::seen_nodes::SeenNodes;
use self::taints::Eviction;
use self::zones::{EvictionRate, Turns, Zones};
use crate::options::Options;
use crate::pod::{condition as pod_condition, is_finished, is_ready, node_name};

/// Where nodes renew their leases.
const LEASES: &str = "kube-node-lease";
/// The conditions that a kubelet reports.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The controller's row. Keys are nodes.
pub const CONTROLLER: Controller = Controller {
    name: "node-lifecycle-controller",
    queue: "node_lifecycle_controller",
    sources: |_| {
        vec![
            Source::of::<Node>(nodes_of_node),
            // A renewed lease is noted, and wakes nobody.
            Source::scoped::<Lease>(leases(), |change, informers| {
                informers.setting_or(Heartbeats::default).lease(change, Instant::now());
                Vec::new()
            }),
            Source::of::<Pod>(|_, _| Vec::new()),
        ]
    },
    reconcile: |informers, key, now| {
        let turns = informers.setting_or(Turns::default);
        let seen = gather(informers, key, Instant::now());
        let told = informers.setting_or(SeenNodes::default).tell(key, seen.as_ref().map(|seen| &*seen.node));
        let mut plan = seen.map_or_else(Plan::nothing, |seen| {
            plan(&seen, now, |period| turns.take(&seen.node, period, now))
        });
        if !told.is_empty() {
            plan.steps.insert(0, told);
        }
        plan
    },
};

fn leases() -> Scope {
    Scope { namespace: Some(LEASES.to_owned()), ..Scope::default() }
}

/// The input of a decision about one node.
pub struct Snapshot {
    /// The node.
    pub node: Arc<Node>,
    /// The time for which nothing was heard of it.
    pub silence: Duration,
    /// The rate at which Pods may be evicted from the nodes of its zone; only known when it is not ready.
    pub eviction_rate: EvictionRate,
    /// The Pods on the node; only filled in when it is not ready.
    pub pods: Vec<Arc<Pod>>,
    /// The operators' options.
    pub options: Arc<Options>,
}

fn gather(informers: &Informers, key: &str, now: Instant) -> Option<Snapshot> {
    let nodes = informers.informer::<Node>();
    let node = nodes.get(key)?;
    let options = Options::of(informers);
    let silence = informers.setting_or(Heartbeats::default).silence(key, now);
    let is_quiet = ready_status(&node) != Some("True") || silence >= grace(&node, &options);
    if !is_quiet {
        return Some(Snapshot {
            node,
            silence,
            eviction_rate: EvictionRate::Paused,
            pods: Vec::new(),
            options,
        });
    }
    let eviction_rate = zones(informers).eviction_rate(&node, &options);
    let mut pods = informers.informer::<Pod>().list();
    pods.retain(|pod| node_name(pod) == key);
    Some(Snapshot { node, silence, eviction_rate, pods, options })
}

fn zones(informers: &Informers) -> Arc<Zones> {
    informers.setting_or(|| Zones::of(&informers.informer::<Node>().list()))
}

/// A node wakes itself; when it becomes ready or stops being it, all others too.
fn nodes_of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    informers.setting_or(Heartbeats::default).node(change, Instant::now());
    zones(informers).note(&change.key, change.new.as_deref());
    let status = |node: &Option<Arc<Node>>| {
        node.as_ref().and_then(|node| ready_status(node).map(|status| status == "True"))
    };
    if change.old.is_some() && status(&change.old) != status(&change.new) {
        let all = informers.informer::<Node>().list();
        let others = all.iter().map(|node| name(&node.metadata)).filter(|name| *name != &*change.key);
        return others.chain([&*change.key]).map(str::to_owned).collect();
    }
    vec![change.key.to_string()]
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

fn ready_status(node: &Node) -> Option<&str> {
    condition(node, "Ready").map(|ready| ready.status.as_str())
}

/// Silence after which a node is Unknown. Source: `--node-monitor-grace-period`, `--node-startup-grace-period`.
fn grace(node: &Node, options: &Options) -> Duration {
    match ready_status(node) {
        Some(_) => options.node_monitor_grace_period.0,
        None => options.node_startup_grace_period.0,
    }
}

/// Decides what to do about one node. `take` takes the next turn of its zone, of one in so much time, or says how long
/// that has to wait.
pub fn plan(snapshot: &Snapshot, now: Timestamp, take: impl FnOnce(Duration) -> Option<Duration>) -> Plan {
    let node = &*snapshot.node;
    let silence = snapshot.silence;
    let mut plan = Plan::nothing();
    let mut conditions: Vec<NodeCondition> =
        node.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let grace = grace(node, &snapshot.options);
    if silence >= grace {
        let was_ready = ready_status(node) == Some("True");
        let changed = doubt(&mut conditions, now);
        if !changed.is_empty() {
            let patch = Patch::Strategic(json!({"status": {"conditions": changed}}));
            plan.push(Action::patch_status::<Node>("", name(&node.metadata), patch));
        }
        if was_ready {
            let message = format!("Node {} status is now: NodeNotReady", name(&node.metadata));
            plan.push(Action::event(node, EventType::Normal, "NodeNotReady", message));
        }
    } else {
        plan.requeue(grace.saturating_sub(silence));
    }
    // A status patch moves the resourceVersion, and wakes this key again: then it is the taints' turn.
    let is_settled = plan.is_empty();
    let status =
        conditions.iter().find(|condition| condition.type_ == "Ready").map(|ready| ready.status.as_str());
    if status == Some("Unknown") {
        mark_pods(&mut plan, snapshot, now);
    }
    if !is_settled {
        return plan;
    }
    let evicts = match snapshot.eviction_rate {
        EvictionRate::Stopped => Eviction::Withheld,
        EvictionRate::Paused => Eviction::NotBegun,
        EvictionRate::OneIn(period) if taints::begins_eviction(node, &conditions) => match take(period) {
            None => Eviction::Allowed,
            Some(wait) => {
                plan.requeue(wait);
                Eviction::NotBegun
            }
        },
        EvictionRate::OneIn(_) => Eviction::Allowed,
    };
    if let Some(taints) = taints::changed(node, &conditions, evicts, now) {
        let meta = &node.metadata;
        let metadata = json!({"uid": uid(meta), "resourceVersion": meta.resource_version});
        let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"taints": taints}}));
        plan.push(Action::patch::<Node>("", name(meta), patch));
    }
    plan
}

/// Makes every reported condition Unknown; returns those that were not.
fn doubt(conditions: &mut Vec<NodeCondition>, now: Timestamp) -> Vec<Value> {
    let mut changed = Vec::new();
    for type_ in REPORTED {
        let known = conditions.iter_mut().find(|condition| condition.type_ == type_);
        let (reason, message, heartbeat) = match &known {
            Some(condition) if condition.status == "Unknown" => continue,
            Some(condition) => (
                "NodeStatusUnknown",
                "Kubelet stopped posting node status.",
                condition.last_heartbeat_time.clone(),
            ),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status.", None),
        };
        let doubtful = NodeCondition {
            type_: type_.to_owned(),
            status: "Unknown".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: heartbeat,
            last_transition_time: Some(time(now)),
        };
        changed.push(json!(doubtful));
        match known {
            Some(condition) => *condition = doubtful,
            None => conditions.push(doubtful),
        }
    }
    changed
}

/// Pods on a node that is not heard of are not ready either, whatever their kubelet said last.
fn mark_pods(plan: &mut Plan, snapshot: &Snapshot, now: Timestamp) {
    let (mut patches, mut events) = (Vec::new(), Vec::new());
    for pod in snapshot.pods.iter().filter(|pod| is_ready(pod) && !is_finished(pod)) {
        let known = pod_condition(pod, "Ready").cloned().unwrap_or_default();
        let unready =
            PodCondition { status: "False".to_owned(), last_transition_time: Some(time(now)), ..known };
        let patch = json!({"metadata": {"uid": uid(&pod.metadata)}, "status": {"conditions": [unready]}});
        let (namespace, name) = (namespace(&pod.metadata), name(&pod.metadata));
        patches.push(Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch)));
        events.push(Action::event(&**pod, EventType::Warning, "NodeNotReady", "Node is not ready"));
    }
    plan.push_step(patches);
    plan.push_step(events);
}
