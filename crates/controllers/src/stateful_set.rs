//! The StatefulSet controller: keeps Pods that have a name, a place in an order and claims of their own.
//!
//! Ordered, one Pod at a time is made, removed or replaced, and only while all before it are available; in parallel,
//! all at once. What a Pod is made from is a revision: the current one below the partition, the newest above.

mod claims;
mod identity;
mod rollout;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use controller::metadata::{controller_of, is_deleting, key, name, namespace, uid};
use controller::pod::Pod;
use controller::{Change, Controller, Informers, Plan, Source, selector};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::claim::claim;
use crate::history::{self, template_of};
use crate::names::generate_name;
use claims::PodClaims;
use identity::{ordinal, revision};
use rollout::{Rollout, Template};
use status::Revisions;

/// Source: the default of `StatefulSetSpec.revisionHistoryLimit`, apps/v1.
const HISTORY_LIMIT: i32 = 10;

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "statefulset-controller",
    queue: "statefulset",
    sources: |_| {
        vec![
            Source::itself::<StatefulSet>(),
            Source::of::<Pod>(sets_of_pod),
            Source::of::<ControllerRevision>(set_of_revision),
            Source::of::<PersistentVolumeClaim>(sets_of_gone_claim),
        ]
    },
    reconcile: |informers, key, now| {
        gather(informers, key).map_or_else(Plan::nothing, |seen| plan(&seen, now))
    },
};

/// The input of a decision about one StatefulSet.
pub struct Snapshot {
    /// The StatefulSet.
    pub set: Arc<StatefulSet>,
    /// The Pods that it controls, and those of its namespace that nobody controls.
    pub pods: Vec<Arc<Pod>>,
    /// The namespace's revisions that it controls, that nobody controls, or that have a name it could give.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// The namespace's claims whose names end as its own do.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
}

fn gather(informers: &Informers, key: &str) -> Option<Snapshot> {
    let set = informers.informer::<StatefulSet>().get(key)?;
    let space = namespace(&set.metadata);
    let pods = informers.informer::<Pod>();
    let mut members = pods.owned_by(uid(&set.metadata));
    members.extend(pods.orphans(space));
    let revisions = history::of_owner(informers, &set.metadata);
    let mut claims = Vec::new();
    if set.spec.as_ref().is_some_and(|spec| spec.volume_claim_templates.is_some()) {
        claims = informers.informer::<PersistentVolumeClaim>().in_namespace(space);
        let infix = format!("-{}", generate_name(&set.metadata));
        claims.retain(|claim| name(&claim.metadata).contains(&infix));
    }
    Some(Snapshot { set, pods: members, revisions, claims })
}

/// Decides what to do about one StatefulSet.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let set = &*snapshot.set;
    let Some(spec) = &set.spec else { return Plan::nothing() };
    if selector::is_empty(&spec.selector) {
        return Plan::nothing();
    }
    let mut plan = Plan::nothing();
    let pods = members(snapshot, spec, &mut plan);
    let revisions = own_revisions(snapshot, spec, &mut plan);
    let recorded = set.status.clone().unwrap_or_default();
    let taken =
        |wanted: &str| snapshot.revisions.iter().find(|revision| name(&revision.metadata) == wanted).cloned();
    let collisions = recorded.collision_count.unwrap_or(0);
    let newest = history::newest(set, &spec.template, &revisions, collisions, taken);
    let is_current = |known: &&Arc<ControllerRevision>| {
        Some(name(&known.metadata)) == recorded.current_revision.as_deref()
    };
    let current = revisions.iter().find(is_current).unwrap_or(&newest.revision);
    plan.push_step(newest.action.clone().into_iter().collect());

    let names = Revisions {
        current: name(&current.metadata),
        update: name(&newest.revision.metadata),
        collision_count: newest.collision_count,
    };
    let (status, look_again) = status::status(set, spec, &pods, &names, now);
    let is_told = status.current_revision == recorded.current_revision
        && status.update_revision == recorded.update_revision;
    let current_template = template_of(current).unwrap_or_else(|| spec.template.clone());
    let rollout = Rollout {
        set,
        spec,
        claims: PodClaims { set, spec, known: &snapshot.claims },
        current: Template { revision: names.current, template: &current_template },
        update: Template { revision: names.update, template: &spec.template },
        pods: &pods,
        now,
    };
    let work = if is_deleting(&set.metadata) { rollout::Work::default() } else { rollout.decide() };
    if !is_told || work.is_empty() {
        plan.push_step(status::write(set, &status).into_iter().collect());
    }
    if work.is_empty() {
        let is_live = |name: &str| {
            [names.current, names.update].contains(&name) || pods.iter().any(|pod| revision(pod) == name)
        };
        let limit = spec.revision_history_limit.unwrap_or(HISTORY_LIMIT);
        plan.push_step(history::truncate(&revisions, limit, is_live));
    }
    plan.requeue_after = look_again;
    // When Pods come or go, they wake this key again, and the counters are written once, then.
    work.append_to(&mut plan, set);
    plan
}

/// The Pods that belong to the set by owner, labels and name, in order; the plan adopts and releases.
fn members(snapshot: &Snapshot, spec: &StatefulSetSpec, plan: &mut Plan) -> Vec<Arc<Pod>> {
    let set = &*snapshot.set;
    let named = snapshot.pods.iter().filter(|pod| ordinal(set, pod).is_some()).cloned();
    let claims = claim(set, &spec.selector, named);
    plan.push_step(claims.actions);
    let mut pods = claims.owned;
    pods.sort_by_key(|pod| ordinal(set, pod));
    pods
}

/// The set's revisions, oldest first; the plan adopts those that nobody owns.
fn own_revisions(
    snapshot: &Snapshot,
    spec: &StatefulSetSpec,
    plan: &mut Plan,
) -> Vec<Arc<ControllerRevision>> {
    let claims = claim(&*snapshot.set, &spec.selector, snapshot.revisions.iter().cloned());
    plan.push_step(claims.actions);
    let mut revisions = claims.owned;
    history::sort(&mut revisions);
    revisions
}

/// A Pod wakes the set that controls it; one without a controller wakes the set of its name.
fn sets_of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let owner = |pod: &Arc<Pod>| controller::engine::owner_key::<StatefulSet>(&pod.metadata);
    let mut keys: Vec<String> = [&change.old, &change.new].into_iter().flatten().filter_map(owner).collect();
    if let Some(pod) = &change.new
        && controller_of(&pod.metadata).is_none()
    {
        let all = informers.informer::<StatefulSet>().in_namespace(namespace(&pod.metadata));
        keys.extend(all.iter().filter(|set| ordinal(set, pod).is_some()).map(|set| key(&set.metadata)));
    }
    keys.dedup();
    keys
}

/// The set of a revision that is there. One that is gone wakes nobody: whoever has not heard yet that the set is gone would
/// make it again as often as the garbage collector removes it. Source: upstream's controller hears of no revision at all.
fn set_of_revision(change: &Change<ControllerRevision>, _: &Informers) -> Vec<String> {
    let there = change.new.iter();
    there.filter_map(|revision| controller::engine::owner_key::<StatefulSet>(&revision.metadata)).collect()
}

/// A claim that is gone may be what a Pod waited for.
fn sets_of_gone_claim(change: &Change<PersistentVolumeClaim>, informers: &Informers) -> Vec<String> {
    let (None, Some(claim)) = (&change.new, &change.old) else { return Vec::new() };
    let all = informers.informer::<StatefulSet>().in_namespace(namespace(&claim.metadata));
    let is_its = |set: &&Arc<StatefulSet>| {
        let infix = format!("-{}", generate_name(&set.metadata));
        name(&claim.metadata).contains(&infix)
    };
    all.iter().filter(is_its).map(|set| key(&set.metadata)).collect()
}
