//! The DaemonSet controller: a Pod on every Node that should have one.
//!
//! A Pod is bound to its Node by affinity, and the scheduler places it as any other. What a Pod is made from is a
//! revision; older ones are replaced Node by Node, deleted first or, with a surge, after their successor is available.

mod nodes;
mod pod;
mod rollout;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::metadata::{controller_of, is_deleting, key, label, name, namespace, uid};
use controller::pod::Pod;
use controller::{Change, Controller, Informers, Plan, Source, selector};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::Node;

use crate::claim::claim;
use crate::history::{self, CONTROLLER_REVISION_HASH};
use rollout::Rollout;

/// Source: the default of `DaemonSetSpec.revisionHistoryLimit`, apps/v1.
const HISTORY_LIMIT: i32 = 10;

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "daemon-set-controller",
    queue: "daemonset",
    sources: |_| {
        vec![
            Source::itself::<DaemonSet>(),
            Source::of::<Pod>(sets_of_pod),
            Source::of::<Node>(sets_of_node),
            Source::owned_by::<ControllerRevision, DaemonSet>(),
        ]
    },
    reconcile: |informers, key, now| {
        gather(informers, key).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// The input of a decision about one DaemonSet.
pub struct Snapshot {
    /// The DaemonSet.
    pub set: Arc<DaemonSet>,
    /// Every Node.
    pub nodes: Vec<Arc<Node>>,
    /// The Pods that it controls, and those of its namespace that nobody controls.
    pub pods: Vec<Arc<Pod>>,
    /// The namespace's revisions that it controls, that nobody controls, or that have a name it could give.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The newest revision of any Pod seen: new names follow from it.
    pub revision: u64,
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let set = informers.informer::<DaemonSet>().get(key)?;
    let informer = informers.informer::<Pod>();
    let revision = informer.revision();
    let mut pods = informer.owned_by(uid(&set.metadata));
    pods.extend(informer.orphans(namespace(&set.metadata)));
    let revisions = history::of_owner(informers, &set.metadata);
    let nodes = informers.informer::<Node>().list();
    Some(Snapshot { set, nodes, pods, revisions, revision })
}

/// Decides what to do about one DaemonSet.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let set = &*snapshot.set;
    let Some(spec) = &set.spec else { return Plan::nothing() };
    if selector::is_empty(&spec.selector) || is_deleting(&set.metadata) {
        return Plan::nothing();
    }
    let mut plan = Plan::nothing();
    let pods = claim(set, &spec.selector, snapshot.pods.iter().cloned());
    plan.push_step(pods.actions);
    let revisions = claim(set, &spec.selector, snapshot.revisions.iter().cloned());
    plan.push_step(revisions.actions);
    let mut revisions = revisions.owned;
    history::sort(&mut revisions);
    let taken =
        |wanted: &str| snapshot.revisions.iter().find(|revision| name(&revision.metadata) == wanted).cloned();
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let newest = history::newest(set, &spec.template, &revisions, collisions.unwrap_or(0), taken);
    plan.push_step(newest.action.clone().into_iter().collect());

    let hash = history::hash_of(&newest.revision).to_owned();
    let on_nodes = by_node(&pods.owned);
    let rollout = Rollout { set, spec, nodes: &snapshot.nodes, pods: &on_nodes, hash: &hash, now };
    let work = rollout.decide();
    let (status, look_again) = status::status(&rollout, newest.collision_count);
    if work.is_empty() {
        plan.push_step(status::write(set, &status).into_iter().collect());
        let limit = spec.revision_history_limit.unwrap_or(HISTORY_LIMIT);
        plan.push_step(history::truncate(&revisions, limit, |revision| {
            revision == name(&newest.revision.metadata) || is_used(&revisions, revision, &pods.owned)
        }));
    }
    plan.requeue_after = [look_again, work.look_again].into_iter().flatten().min();
    work.append_to(&mut plan, snapshot, spec, &hash);
    // When Pods come or go, they wake this key again, and the status is written once, then.
    plan
}

/// Whether one of `pods` was made from the revision of this name.
fn is_used(revisions: &[Arc<ControllerRevision>], revision: &str, pods: &[Arc<Pod>]) -> bool {
    let hash = revisions.iter().find(|known| name(&known.metadata) == revision).map(|r| history::hash_of(r));
    pods.iter().any(|pod| label(&pod.metadata, CONTROLLER_REVISION_HASH) == hash)
}

/// The Pods by the Node that they are on or meant for, the oldest first.
fn by_node(pods: &[Arc<Pod>]) -> BTreeMap<String, Vec<Arc<Pod>>> {
    let mut nodes: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        if let Some(node) = pod::target(pod) {
            nodes.entry(node.to_owned()).or_default().push(Arc::clone(pod));
        }
    }
    for pods in nodes.values_mut() {
        pods.sort_by(|a, b| pod::older_first(a, b));
    }
    nodes
}

/// A Pod wakes the set that controls it; one without a controller wakes all that may adopt it.
fn sets_of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let owner = |pod: &Arc<Pod>| controller::engine::owner_key::<DaemonSet>(&pod.metadata);
    let mut keys: Vec<String> = [&change.old, &change.new].into_iter().flatten().filter_map(owner).collect();
    if let Some(pod) = &change.new
        && controller_of(&pod.metadata).is_none()
    {
        let labels = pod.metadata.labels.as_ref();
        let selects = |set: &DaemonSetSpec| {
            !selector::is_empty(&set.selector) && selector::selects(&set.selector, labels)
        };
        let all = informers.informer::<DaemonSet>().in_namespace(namespace(&pod.metadata));
        keys.extend(
            all.iter().filter(|set| set.spec.as_ref().is_some_and(selects)).map(|set| key(&set.metadata)),
        );
    }
    keys.dedup();
    keys
}

/// A Node wakes every set that begins or ends to want it; what else changes in it, such as its conditions, none.
fn sets_of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let judged =
        |node: &Option<Arc<Node>>, spec: &DaemonSetSpec| node.as_ref().map(|node| nodes::judge(spec, node));
    let concerns = |set: &Arc<DaemonSet>| {
        set.spec.as_ref().is_some_and(|spec| judged(&change.old, spec) != judged(&change.new, spec))
    };
    let all = informers.informer::<DaemonSet>().list();
    all.iter().filter(|set| concerns(set)).map(|set| key(&set.metadata)).collect()
}
