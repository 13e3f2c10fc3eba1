//! The Deployment controller: keeps a Deployment's ReplicaSets at the sizes that its strategy asks for.
//!
//! It decides from the Deployment and its ReplicaSets alone and writes only those; it never touches Pods. A
//! ReplicaSet is found by its template, so that `rollout undo` (which puts an old template back) wakes the old
//! ReplicaSet up again.

mod bounds;
mod finish;
mod hash;
mod progress;
mod revision;
mod rollout;
mod scale;
mod sets;
mod status;
mod strategy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use controller::metadata::{controller_of, is_deleting, key, namespace, uid};
use controller::pod::Pod;
use controller::{Action, Change, Controller, EventType, Informers, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::claim::claim;
use crate::deployment::rollout::Rollout;
use controller::selector;

/// The annotation with the number of a template in the history of its Deployment.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "deployment-controller",
    queue: "deployment",
    sources: |_| {
        vec![
            Source::of::<Deployment>(|change, _| vec![change.key.to_string()]),
            Source::of::<ReplicaSet>(deployments_of_replica_set),
            Source::of::<Pod>(deployment_of_gone_pod),
        ]
    },
    reconcile: |informers, key, now| {
        gather(informers, key).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// The input of a decision about one Deployment.
pub struct Snapshot {
    /// The Deployment.
    pub deployment: Arc<Deployment>,
    /// The ReplicaSets that it controls, and those of its namespace that nobody controls.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    /// The ReplicaSet, whoever's it is, that has the name which the next one would get.
    pub namesake: Option<Arc<ReplicaSet>>,
    /// The Pods of its ReplicaSets; only needed, and only filled in, for the Recreate strategy.
    pub pods: Vec<Arc<Pod>>,
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let deployment = informers.informer::<Deployment>().get(key)?;
    let sets = informers.informer::<ReplicaSet>();
    let namespace = namespace(&deployment.metadata);
    let mut replica_sets = sets.owned_by(uid(&deployment.metadata));
    replica_sets.extend(sets.orphans(namespace));
    let namesake =
        hash::replica_set_name(&deployment).and_then(|name| sets.get(&format!("{namespace}/{name}")));
    let pods = if is_recreate(&deployment) {
        let pods = informers.informer::<Pod>();
        replica_sets.iter().flat_map(|set| pods.owned_by(uid(&set.metadata))).collect()
    } else {
        Vec::new()
    };
    Some(Snapshot { deployment, replica_sets, namesake, pods })
}

/// Decides what to do about one Deployment.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let deployment = &*snapshot.deployment;
    let Some(spec) = &deployment.spec else { return Plan::nothing() };
    if selector::is_empty(&spec.selector) {
        return refuse_to_select_everything(deployment);
    }
    let claims = claim(deployment, &spec.selector, snapshot.replica_sets.iter().cloned());
    let mut rollout = Rollout::new(snapshot, spec, claims.owned, now);
    if is_deleting(&deployment.metadata) {
        return rollout.finish(claims.actions);
    }
    rollout.note_pause();
    if spec.paused == Some(true) {
        rollout.adopt_revision();
        rollout.scale();
        rollout.clean_up_history();
    } else if rollout.is_scaling_event() {
        rollout.adopt_revision();
        rollout.scale();
    } else if rollout.bounds.is_rolling {
        rollout.roll();
        rollout.note_progress();
    } else {
        rollout.recreate(&snapshot.pods);
        rollout.note_progress();
    }
    rollout.finish(claims.actions)
}

fn refuse_to_select_everything(deployment: &Deployment) -> Plan {
    let mut plan = Plan::nothing();
    let observed = deployment.status.as_ref().and_then(|status| status.observed_generation);
    if observed.unwrap_or(0) < deployment.metadata.generation.unwrap_or(0) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        plan.push(Action::event(deployment, EventType::Warning, "SelectingAll", message));
        let mut status = deployment.status.clone().unwrap_or_default();
        status.observed_generation = deployment.metadata.generation;
        plan.push_step(status::write(deployment, &status).into_iter().collect());
    }
    plan
}

fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// The key of the Deployment that controls the object with `meta`.
fn controlling_deployment(meta: &ObjectMeta) -> Option<String> {
    let owner = controller_of(meta).filter(|owner| owner.kind == "Deployment")?;
    Some(format!("{}/{}", namespace(meta), owner.name))
}

/// A ReplicaSet wakes the Deployment that controls it; one without a controller wakes all that may adopt it.
fn deployments_of_replica_set(change: &Change<ReplicaSet>, informers: &Informers) -> Vec<String> {
    let mut keys: Vec<String> = [&change.old, &change.new]
        .into_iter()
        .flatten()
        .filter_map(|set| controlling_deployment(&set.metadata))
        .collect();
    if let Some(set) = &change.new
        && controller_of(&set.metadata).is_none()
    {
        let all = informers.informer::<Deployment>().in_namespace(namespace(&set.metadata));
        let adopters = all.iter().filter(|deployment| {
            deployment.spec.as_ref().is_some_and(|spec| {
                !selector::is_empty(&spec.selector)
                    && selector::selects(&spec.selector, set.metadata.labels.as_ref())
            })
        });
        keys.extend(adopters.map(|deployment| key(&deployment.metadata)));
    }
    keys.dedup();
    keys
}

/// A Deployment that recreates waits for its old Pods to be gone.
fn deployment_of_gone_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let is_gone = change.new.as_ref().is_none_or(|pod| crate::pod::is_finished(pod));
    let Some(pod) = change.old.as_ref().filter(|_| is_gone) else { return Vec::new() };
    let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else {
        return Vec::new();
    };
    let key = format!("{}/{}", namespace(&pod.metadata), owner.name);
    let set = informers.informer::<ReplicaSet>().get(&key);
    let deployment = set.and_then(|set| controlling_deployment(&set.metadata));
    let recreates = |key: &String| {
        informers.informer::<Deployment>().get(key).is_some_and(|deployment| is_recreate(&deployment))
    };
    deployment.filter(recreates).into_iter().collect()
}
