//! The cloud node controller: a Node that comes up with the cloud's taint is told what it is, and then may have Pods; and from
//! time to time where it is reached.
//!
//! Addresses are written before the taint goes, which goes last: nobody schedules onto a Node that nobody can reach.
//! Source: `cloud-provider/controllers/node`.

mod address;
mod metadata;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{name, uid};
use controller::{Action, Change, Controller, EventType, Informers, Outcome, Patch, Plan, Source};
use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Taint};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cloud::{Cloud, ask};
use crate::message::{self, provider_id};
use crate::provider::Refusal;
use crate::v1;
use metadata::Metadata;

/// On a Node that its cloud has not looked at. Source: `TaintExternalCloudProvider`.
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Labels that say the same, the one that counts first. Source: `labelReconcileInfo`.
const SAME: [(&str, &str); 3] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// When the cloud was asked for each Node's addresses. It is asked anew by a process that has just begun.
#[derive(Default)]
struct Asked(Mutex<HashMap<String, Timestamp>>);

impl Asked {
    fn of(informers: &Informers) -> Arc<Self> {
        informers.setting_or(Self::default)
    }
}

/// The controller's row. Keys are Nodes.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "cloud-node-controller",
    queue: "Nodes",
    sources: |_| vec![Source::of::<Node>(of_node)],
    reconcile: |informers, key, now| {
        let asked = Asked::of(informers);
        let Some(node) = informers.informer::<Node>().get(key) else {
            asked.0.lock().remove(key);
            return Plan::nothing();
        };
        let every = Cloud::options(informers).node_status_update_frequency;
        let last = asked.0.lock().get(key).copied();
        plan(&node, last, every, now)
    },
};

fn of_node(change: &Change<Node>, _: &Informers) -> Vec<String> {
    if is_news(change) { vec![change.key.to_string()] } else { Vec::new() }
}

/// What is looked at of a Node: heartbeats wake nobody.
fn is_news(change: &Change<Node>) -> bool {
    let facts = |node: &Arc<Node>| {
        let told = node.metadata.annotations.as_ref().and_then(|all| all.get(address::PROVIDED).cloned());
        let spec = node.spec.clone().unwrap_or_default();
        (node.metadata.uid.clone(), node.metadata.labels.clone(), told, spec.taints, spec.provider_id)
    };
    change.old.as_ref().map(facts) != change.new.as_ref().map(facts)
}

/// Decides for one Node; `asked` is when the cloud was last asked for its addresses.
fn plan(node: &Arc<Node>, asked: Option<Timestamp>, every: Duration, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if taints(node).any(|(_, taint)| taint.key == UNINITIALIZED) {
        plan.push(describe(node, initialized));
        return plan;
    }
    plan.push_step(same_labels(node).into_iter().collect());
    let every_signed = SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX);
    let since = asked.map(|asked| now.duration_since(asked)).filter(|since| !since.is_negative());
    let left = since.map_or(SignedDuration::ZERO, |since| every_signed.saturating_sub(since));
    if left <= SignedDuration::ZERO {
        plan.push(describe(node, moved));
        plan.requeue(every);
    } else {
        plan.requeue(left.unsigned_abs());
    }
    plan
}

/// Asks what a Node's machine is.
fn describe(node: &Arc<Node>, then: fn(&Node, Result<Metadata, Refusal>) -> Outcome) -> Action {
    let (of, about) = (node.clone(), node.clone());
    let call = move |provider: Arc<dyn crate::Provider>| {
        let request = v1::InstanceRequest { node: Some(message::node(&of)) };
        async move { provider.instance_metadata(request).await }.boxed()
    };
    let what = format!("InstanceMetadata {}", name(&node.metadata));
    ask(what, call, move |informers, answer| {
        let asked = (name(&about.metadata).to_owned(), informers.clock().now());
        Asked::of(informers).0.lock().insert(asked.0, asked.1);
        then(&about, answer.and_then(Metadata::read))
    })
}

/// What becomes of a Node that its cloud has described.
fn initialized(node: &Node, answer: Result<Metadata, Refusal>) -> Outcome {
    let read = answer.and_then(|metadata| introduce(node, &metadata));
    match read {
        Ok(plan) => Outcome::done(plan),
        Err(why) => {
            let mut plan = Plan::nothing();
            let message = format!("Error syncing node with its cloud: {why}");
            plan.push(Action::event(node, EventType::Warning, "SyncNodeFailed", message));
            Outcome::failed(plan, (&why).into())
        }
    }
}

fn introduce(node: &Node, metadata: &Metadata) -> Result<Plan, Refusal> {
    let meta = &node.metadata;
    let id = match (provider_id(node), metadata.provider_id.as_str()) {
        ("", "") => {
            let why = format!("cloud provider does not set node provider ID for node {}", name(meta));
            return Err(Refusal::nonsense(why));
        }
        ("", id) => Some(id),
        // It never changes.
        _ => None,
    };
    let mut plan = Plan::nothing();
    plan.push_step(address::patch(node, &metadata.addresses)?.into_iter().collect());
    let mut patch = json!({"metadata": {"uid": uid(meta), "labels": metadata.labels_for(node)}});
    if let Some(id) = id {
        patch["spec"] = json!({"providerID": id});
    }
    plan.push(Action::patch::<Node>("", name(meta), Patch::Strategic(patch)));
    plan.push(without_taint(node, UNINITIALIZED));
    plan.push(Action::event(node, EventType::Normal, "Synced", "Node synced successfully"));
    Ok(plan)
}

/// What becomes of a Node that is known to its cloud: its addresses, if these are others. What is wrong is for the log only, as
/// it was right once.
fn moved(node: &Node, answer: Result<Metadata, Refusal>) -> Outcome {
    let node_name = name(&node.metadata);
    let mut plan = Plan::nothing();
    match answer.and_then(|metadata| address::patch(node, &metadata.addresses)) {
        Ok(patch) => plan.push_step(patch.into_iter().collect()),
        Err(refusal) => {
            tracing::warn!(node = node_name, why = refusal.message, "a node's addresses stay as they are");
        }
    }
    Outcome::done(plan)
}

/// A Node's labels of old and new that do not say the same.
fn same_labels(node: &Node) -> Option<Action> {
    let labels = node.metadata.labels.as_ref()?;
    let differs =
        |(old, new): &(&str, &str)| labels.contains_key(*old) && labels.get(*old) != labels.get(*new);
    let set: BTreeMap<&str, &String> = SAME
        .iter()
        .filter(|pair| differs(pair))
        .filter_map(|(old, new)| Some((*new, labels.get(*old)?)))
        .collect();
    let meta = &node.metadata;
    let patch = || Patch::Strategic(json!({"metadata": {"uid": uid(meta), "labels": set}}));
    (!set.is_empty()).then(|| Action::patch::<Node>("", name(meta), patch()))
}

/// A Node's taints and where they are.
pub(crate) fn taints(node: &Node) -> impl Iterator<Item = (usize, &Taint)> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).enumerate()
}

/// Takes the taints of this key away, and nothing else: others write taints at the same time. If they have moved, it is decided
/// anew.
pub(crate) fn without_taint(node: &Node, key: &str) -> Action {
    let meta = &node.metadata;
    let places: Vec<usize> =
        taints(node).filter(|(_, taint)| taint.key == key).map(|(place, _)| place).collect();
    let mut patch = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid(meta)})];
    for place in places.into_iter().rev() {
        patch.push(json!({"op": "test", "path": format!("/spec/taints/{place}/key"), "value": key}));
        patch.push(json!({"op": "remove", "path": format!("/spec/taints/{place}")}));
    }
    Action::patch::<Node>("", name(meta), Patch::Json(Value::Array(patch)))
}
