//! The cloud node lifecycle controller: of a Node that is not ready the cloud is asked whether its machine is stopped, which
//! keeps Pods away, or gone, and the Node with it.
//!
//! A Node is deleted only where its cloud says so: no answer is never taken for an absence.
//! Source: `cloud-provider/controllers/nodelifecycle`.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use controller::load_balancer::is_ready;
use controller::metadata::{name, uid};
use controller::plan::FAILURE;
use controller::{
    Action, Change, Controller, EventType, Informers, Outcome, Patch, Plan, Propagation, Source,
};
use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::cloud::{Cloud, ask};
use crate::message;
use crate::node::{taints, without_taint};
use crate::provider::Refusal;
use crate::v1;

/// On a Node whose machine is stopped. Source: `TaintNodeShutdown`.
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The controller's row. Keys are Nodes.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "cloud-node-lifecycle-controller",
    queue: "cloud_node_lifecycle",
    sources: |_| vec![Source::of::<Node>(of_node)],
    reconcile: |informers, key, _| match informers.informer::<Node>().get(key) {
        Some(node) => plan(&node, Cloud::options(informers).node_monitor_period),
        None => Plan::nothing(),
    },
};

fn of_node(change: &Change<Node>, _: &Informers) -> Vec<String> {
    if is_news(change) { vec![change.key.to_string()] } else { Vec::new() }
}

/// What is looked at of a Node: heartbeats wake nobody.
fn is_news(change: &Change<Node>) -> bool {
    let facts = |node: &Arc<Node>| (node.metadata.uid.clone(), is_ready(node), is_shut_down(node));
    change.old.as_ref().map(facts) != change.new.as_ref().map(facts)
}

fn is_shut_down(node: &Node) -> bool {
    taints(node).any(|(_, taint)| taint.key == SHUTDOWN && taint.effect == "NoSchedule")
}

/// Decides for one Node, of which the cloud is asked every so often while it is not ready.
fn plan(node: &Arc<Node>, every: Duration) -> Plan {
    let mut plan = Plan::nothing();
    if node.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    if is_ready(node) {
        plan.push_step(is_shut_down(node).then(|| without_taint(node, SHUTDOWN)).into_iter().collect());
        return plan;
    }
    let (of, about) = (node.clone(), node.clone());
    let call = move |provider: Arc<dyn crate::Provider>| {
        let request = v1::InstanceRequest { node: Some(message::node(&of)) };
        async move { provider.instance_exists(request).await }.boxed()
    };
    let what = format!("InstanceExists {}", name(&node.metadata));
    plan.push(ask(what, call, move |_, answer| exists(&about, answer.map(|answer| answer.exists))));
    plan.requeue(every);
    plan
}

fn exists(node: &Arc<Node>, answer: Result<bool, Refusal>) -> Outcome {
    match answer {
        Ok(true) => {
            let mut plan = Plan::nothing();
            plan.push(ask_whether_shut_down(node));
            Outcome::done(plan)
        }
        Ok(false) => Outcome::done(gone(node)),
        Err(refusal) => Outcome::failed(Plan::nothing(), (&refusal).into()),
    }
}

fn gone(node: &Node) -> Plan {
    let meta = &node.metadata;
    let node_name = name(meta);
    let mut plan = Plan::nothing();
    let message = format!("Deleting node {node_name} because it does not exist in the cloud provider");
    plan.push(Action::event(node, EventType::Normal, "DeletingNode", message));
    plan.push(Action::delete::<Node>("", node_name, Some(uid(meta)), Propagation::Background, None));
    let message = format!("Failed deleting node {node_name}: {FAILURE}");
    plan.on_failure = vec![Action::event(node, EventType::Warning, "DeletingNodeFailed", message)];
    plan
}

fn ask_whether_shut_down(node: &Arc<Node>) -> Action {
    let (of, about) = (node.clone(), node.clone());
    let call = move |provider: Arc<dyn crate::Provider>| {
        let request = v1::InstanceRequest { node: Some(message::node(&of)) };
        async move { provider.instance_shutdown(request).await }.boxed()
    };
    let what = format!("InstanceShutdown {}", name(&node.metadata));
    ask(what, call, move |_, answer| shut_down(&about, answer.map(|answer| answer.shutdown)))
}

fn shut_down(node: &Node, answer: Result<bool, Refusal>) -> Outcome {
    let mut plan = Plan::nothing();
    match answer {
        Ok(true) if !is_shut_down(node) => {
            let meta = &node.metadata;
            let mut all: Vec<_> = taints(node).map(|(_, taint)| json!(taint)).collect();
            all.push(json!({"key": SHUTDOWN, "effect": "NoSchedule"}));
            // A list that others write at the same time: theirs first.
            let version = meta.resource_version.as_deref();
            let metadata = json!({"uid": uid(meta), "resourceVersion": version});
            let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"taints": all}}));
            plan.push(Action::patch::<Node>("", name(meta), patch));
            Outcome::done(plan)
        }
        Ok(_) => Outcome::done(plan),
        // Not every cloud can tell.
        Err(refusal) if refusal.kind == crate::RefusalKind::Elsewhere => Outcome::done(plan),
        Err(refusal) => Outcome::failed(plan, (&refusal).into()),
    }
}
