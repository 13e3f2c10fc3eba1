//! The device taint eviction controller: Pods that have a device with a NoExecute taint which their claim does not tolerate are
//! deleted, at once or when the time for which it is tolerated is over. Runs if the feature DRADeviceTaints is on.
//!
//! Taints come from ResourceSlices and, if the feature DRADeviceTaintRules is on, from DeviceTaintRules, whose status says how
//! many Pods have to leave. Pods that have ended stay. Source: `pkg/controller/devicetainteviction`, KEP-5055.

mod memory;
mod rule_status;
mod taints;
mod wakes;

use std::sync::Arc;
use std::time::Duration;

use controller::counter::{Buckets, SecondsRow};
use controller::metadata::{is_deleting, name, namespace, uid};
use controller::pod::Pod;
use controller::{Action, Controller, EventType, Informers, Patch, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use k8s_openapi::api::resource::v1alpha3::DeviceTaintRule;
use machinery::features::Feature;
use serde_json::json;

use self::memory::{Leaving, Memory, State};
use self::rule_status::{Counts, Effect};
use self::taints::{Eviction, Pending, Selected};
use self::wakes::Key;
use crate::pod::{DISRUPTION_TARGET, condition, disruption_target, is_finished, since_until};

/// The condition of a Pod that leaves. Source: `addConditionAndDeletePod`.
const CONDITION: (&str, &str) =
    ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint");
const EVENT: &str = "DeviceTaintManagerEviction";

/// Source: `pkg/controller/devicetainteviction/metrics`.
static DELETION_SECONDS: SecondsRow = SecondsRow {
    name: "device_taint_eviction_controller_pod_deletion_duration_seconds",
    help: "Latency, in seconds, between the time when a device taint effect has been activated and a Pod's deletion via \
           DeviceTaintEvictionController.",
    buckets: Buckets::Listed(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0]),
};

/// The controller's row. Keys are Pods and rules, told apart by what they begin with.
pub const CONTROLLER: Controller = Controller {
    name: "device-taint-eviction-controller",
    queue: "device-taint-eviction-controller",
    sources: |_| {
        let mut sources = vec![
            Source::of::<Pod>(wakes::pod_changed),
            Source::of::<ResourceClaim>(wakes::claim_changed),
            Source::of::<ResourceSlice>(wakes::slice_changed),
        ];
        if Feature::DraDeviceTaintRules.is_on() {
            sources.push(Source::of::<DeviceTaintRule>(wakes::rule_changed));
        }
        sources
    },
    reconcile: |informers, key, now| match Key::read(key) {
        Key::Pod(key) => reconcile_pod(informers, key, now),
        Key::Rule(name) => reconcile_rule(informers, name, now),
        Key::RuleLater(name) => reconcile_rule_later(informers, name, now),
    },
};

fn reconcile_pod(informers: &Informers, key: &str, now: Timestamp) -> Plan {
    let memory = Memory::of(informers);
    let pod = informers.informer::<Pod>().get(key).filter(|pod| !is_deleting(&pod.metadata));
    let staying = pod.as_ref().map(|pod| uid(&pod.metadata));
    if let Some(eviction) = memory.take_gone(key, staying) {
        let late = since_until(eviction.when, now);
        informers.metrics().observe(&DELETION_SECONDS, &Vec::new(), late);
    }
    let Some(pod) = pod else { return Plan::nothing() };
    let claims = taints::claims_of(&pod, |key| informers.informer::<ResourceClaim>().get(key));
    let eviction = match claims.as_slice() {
        [] => None,
        claims => taints::eviction(claims, &memory.tainted(informers), &wakes::rules(informers)),
    };
    let snapshot = Snapshot { pod, eviction, was_leaving: memory.is_leaving(key) };
    let state = match fate(&snapshot, now) {
        Fate::Stays => None,
        Fate::LeavesLater(_) => Some(State::Waits),
        Fate::Leaves => Some(State::Goes),
    };
    match (state, &snapshot.eviction) {
        (Some(state), Some(eviction)) => {
            let uid = uid(&snapshot.pod.metadata).to_owned();
            memory.keep(key, Leaving { uid, eviction: eviction.clone(), state });
        }
        _ => memory.forget(key),
    }
    plan(&snapshot, now)
}

/// The input of a decision about one Pod.
struct Snapshot {
    pod: Arc<Pod>,
    /// When it has to leave, if ever.
    eviction: Option<Eviction>,
    /// Whether it had to when it was looked at last.
    was_leaving: bool,
}

/// What becomes of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    LeavesLater(Duration),
    Leaves,
}

fn fate(snapshot: &Snapshot, now: Timestamp) -> Fate {
    let eviction = snapshot.eviction.as_ref().filter(|_| !is_finished(&snapshot.pod));
    let Some(eviction) = eviction else { return Fate::Stays };
    match since_until(now, eviction.when) {
        Duration::ZERO => Fate::Leaves,
        left => Fate::LeavesLater(left),
    }
}

/// Decides whether the Pod has to leave.
fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let pod = &*snapshot.pod;
    let event = |message: &str| Action::event(pod, EventType::Normal, EVENT, message);
    let mut plan = Plan::nothing();
    match fate(snapshot, now) {
        Fate::Leaves => {}
        Fate::LeavesLater(left) => {
            plan.requeue(left);
            return plan;
        }
        Fate::Stays => {
            if snapshot.was_leaving && !is_finished(pod) {
                plan.push(event("Cancelling deletion"));
            }
            return plan;
        }
    }
    plan.push(event("Marking for deletion"));
    let (namespace, name, uid) = (namespace(&pod.metadata), name(&pod.metadata), uid(&pod.metadata));
    let (reason, message) = CONDITION;
    let has_it = condition(pod, DISRUPTION_TARGET).is_some_and(|one| {
        one.status == "True"
            && one.reason.as_deref() == Some(reason)
            && one.message.as_deref() == Some(message)
    });
    if !has_it {
        let condition = disruption_target(pod, reason, message, now);
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        plan.push(Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch)));
    }
    plan.push(Action::delete::<Pod>(namespace, name, Some(uid), Propagation::Background, None));
    plan
}

/// Looks at a rule's status when its Pods have been given some time to change.
fn reconcile_rule_later(informers: &Informers, name: &str, now: Timestamp) -> Plan {
    let memory = Memory::of(informers);
    if let Some(left) = memory.waits(name, now) {
        let mut plan = Plan::nothing();
        plan.requeue(left);
        return plan;
    }
    let plan = reconcile_rule(informers, name, now);
    if let Some(left) = plan.requeue_after {
        memory.postpone(name, now + left);
    }
    plan
}

fn reconcile_rule(informers: &Informers, name: &str, now: Timestamp) -> Plan {
    let Some(rule) = informers.informer::<DeviceTaintRule>().get(name) else { return Plan::nothing() };
    if let Some(left) = rule_status::rests(&rule, now) {
        let mut plan = Plan::nothing();
        plan.requeue(left);
        return plan;
    }
    let claims = informers.informer::<ResourceClaim>();
    let pending = || Pending::of(&rule, &informers.informer::<Pod>().list(), |key| claims.get(key));
    let evicted = Memory::of(informers).evicted(uid(&rule.metadata));
    let counts = match Effect::of(&rule) {
        Effect::NoExecute => Counts { pending: pending(), evicted, ..Counts::default() },
        Effect::None => {
            let slices = informers.informer::<ResourceSlice>().list();
            Counts { pending: pending(), selected: Selected::by(&rule, &slices, &claims.list()), evicted }
        }
        Effect::Other => Counts { evicted, ..Counts::default() },
    };
    rule_status::plan(&rule, &counts, now)
}

#[cfg(test)]
mod tests;
