//! The ReplicaSet controller: keeps as many Pods as `spec.replicas` says.
//!
//! It counts the active Pods that it controls, creates what is missing in growing batches and deletes what is too
//! many in order of what is lost least. New Pods get their names here, from what was seen, and not from the API
//! server: so a request that is repeated because its answer was lost finds its Pod there and makes no second one.

mod rank;
mod status;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use controller::metadata::Object;
use controller::metadata::{controller_of, controller_reference, is_deleting, key, name, namespace, uid};
use controller::pod::Pod;
use controller::{Change, Controller, Informers, Kind, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod as WholePod;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::claim::claim;
use crate::names::{generate_name, names};
use crate::pod::{is_active, is_terminating};
use crate::pod_control;
use controller::selector;

/// Pods created or deleted by one plan. Source: `BurstReplicas`.
const BURST_PODS_MAX: usize = 500;

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "replicaset-controller",
    queue: "replicaset",
    sources: |_| vec![Source::itself::<ReplicaSet>(), Source::of::<Pod>(sets_of_pod::<ReplicaSet>)],
    reconcile: reconcile::<ReplicaSet>,
};

/// A keeper of a number of Pods: a ReplicaSet, or its elder, a ReplicationController.
pub trait Set: Kind + Object + Clone + Serialize {
    /// The spec, as a ReplicaSet has it.
    fn spec(&self) -> Option<Cow<'_, ReplicaSetSpec>>;

    /// The status, as a ReplicaSet has it.
    fn status(&self) -> Option<ReplicaSetStatus>;

    /// The same with this status, as far as the kind has the fields.
    #[must_use]
    fn with_status(&self, status: &ReplicaSetStatus) -> Self;
}

impl Set for ReplicaSet {
    fn spec(&self) -> Option<Cow<'_, ReplicaSetSpec>> {
        self.spec.as_ref().map(Cow::Borrowed)
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        self.status.clone()
    }

    fn with_status(&self, status: &ReplicaSetStatus) -> Self {
        Self { status: Some(status.clone()), ..self.clone() }
    }
}

/// The input of a decision about one ReplicaSet.
pub struct Snapshot<S> {
    /// The ReplicaSet.
    pub replica_set: Arc<S>,
    /// The Pods that it controls, and those of its namespace that nobody controls.
    pub pods: Vec<Arc<Pod>>,
    /// The Pods of all ReplicaSets of the same Deployment; only needed when some are to be deleted.
    pub related: Vec<Arc<Pod>>,
    /// The newest revision of any Pod seen: new names follow from it.
    pub revision: u64,
}

/// Decides for the `S` under `key`.
pub(crate) fn reconcile<S: Set>(informers: &Informers, key: &str, now: Timestamp) -> Plan {
    gather::<S>(informers, key).map_or_else(Plan::nothing, |seen| plan(&seen, now))
}

fn gather<S: Set>(informers: &Informers, key: &str) -> Option<Snapshot<S>> {
    let replica_set = informers.informer::<S>().get(key)?;
    let informer = informers.informer::<Pod>();
    let revision = informer.revision();
    let mut pods = informer.owned_by(uid(replica_set.metadata()));
    pods.extend(informer.orphans(namespace(replica_set.metadata())));
    let wanted = replica_set.spec().and_then(|spec| spec.replicas).unwrap_or(1);
    let is_shrinking = pods.len() > usize::try_from(wanted).unwrap_or(0);
    let related = if is_shrinking { related(informers, &*replica_set) } else { Vec::new() };
    Some(Snapshot { replica_set, pods, related, revision })
}

/// The Pods of every ReplicaSet that has the same controller.
fn related<S: Set>(informers: &Informers, replica_set: &S) -> Vec<Arc<Pod>> {
    let pods = informers.informer::<Pod>();
    match controller_of(replica_set.metadata()) {
        Some(owner) => {
            let siblings = informers.informer::<S>().owned_by(&owner.uid);
            siblings.iter().flat_map(|sibling| pods.owned_by(uid(sibling.metadata()))).collect()
        }
        None => pods.owned_by(uid(replica_set.metadata())),
    }
}

/// Decides what to do about one ReplicaSet.
pub fn plan<S: Set>(snapshot: &Snapshot<S>, now: Timestamp) -> Plan {
    let replica_set = &*snapshot.replica_set;
    let Some(spec) = replica_set.spec() else { return Plan::nothing() };
    let spec = &*spec;
    if selector::is_empty(&spec.selector) {
        return Plan::nothing();
    }
    let own = uid(replica_set.metadata());
    let is_own = |pod: &Pod| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == own);
    let terminating = snapshot.pods.iter().filter(|pod| is_terminating(pod) && is_own(pod)).count();
    let active = snapshot.pods.iter().filter(|pod| is_active(pod)).cloned();
    let claims = claim(replica_set, &spec.selector, active);

    let mut plan = Plan::nothing();
    plan.push_step(claims.actions);
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let existing = claims.owned.len();
    let (status, look_again) = status::status(replica_set, spec, &claims.owned, terminating, now);
    if is_deleting(replica_set.metadata()) || existing == wanted {
        plan.push_step(status::write(replica_set, &status).into_iter().collect());
        plan.requeue_after = look_again;
    } else if existing < wanted {
        create(&mut plan, snapshot, spec, (wanted - existing).min(BURST_PODS_MAX));
        plan.on_failure = status::failed(replica_set, status, "FailedCreate", "Error creating", now);
    } else {
        let surplus = (existing - wanted).min(BURST_PODS_MAX);
        let chosen = rank::choose(claims.owned, &snapshot.related, surplus, now);
        plan.steps.extend(pod_control::delete(replica_set, &chosen));
        plan.on_failure = status::failed(replica_set, status, "FailedDelete", "Error deleting", now);
    }
    // When Pods come or go, they wake this key again, and the status is written once, then.
    plan
}

fn create<S: Set>(plan: &mut Plan, snapshot: &Snapshot<S>, spec: &ReplicaSetSpec, count: usize) {
    let replica_set = &*snapshot.replica_set;
    let template = spec.template.clone().unwrap_or_default();
    let taken = snapshot.pods.iter().map(|pod| name(&pod.metadata).to_owned()).collect();
    let names = names(replica_set.metadata(), taken, snapshot.revision).take(count);
    let pods = names.map(|name| pod(replica_set, &template, name));
    plan.steps.extend(pod_control::create(replica_set, pods));
}

fn pod<S: Set>(replica_set: &S, template: &PodTemplateSpec, name: String) -> WholePod {
    let meta = template.metadata.clone().unwrap_or_default();
    WholePod {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(replica_set.metadata())),
            name: Some(name),
            namespace: replica_set.metadata().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(replica_set)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// A Pod wakes what controls it; one without a controller wakes all that may adopt it.
pub(crate) fn sets_of_pod<S: Set>(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let owner = |pod: &Arc<Pod>| controller::engine::owner_key::<S>(&pod.metadata);
    let mut keys: Vec<String> = [&change.old, &change.new].into_iter().flatten().filter_map(owner).collect();
    if let Some(pod) = &change.new
        && controller_of(&pod.metadata).is_none()
    {
        let labels = pod.metadata.labels.as_ref();
        let selects = |set: &Arc<S>| {
            set.spec().is_some_and(|spec| {
                !selector::is_empty(&spec.selector) && selector::selects(&spec.selector, labels)
            })
        };
        let all = informers.informer::<S>().in_namespace(namespace(&pod.metadata));
        keys.extend(all.iter().filter(|set| selects(set)).map(|set| key(set.metadata())));
    }
    keys.dedup();
    keys
}
