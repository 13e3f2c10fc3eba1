//! The taint eviction controller: Pods leave a node with a NoExecute taint that they do not tolerate, at once or
//! when the time for which they tolerate it is over.
//!
//! That time begins when the taint was added or the Pod came, whatever is later; of a taint that does not say so, when it was
//! seen first. Source: `pkg/controller/tainteviction` of upstream, which only knows when it saw them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{created, is_deleting, name, namespace, uid};
use controller::placement::tolerates;
use controller::pod::Pod;
use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use parking_lot::Mutex;
use serde_json::json;

use crate::pod::{condition, disruption_target, is_finished, keys_on_node, node_name, since_until};

/// The controller's row. Keys are Pods.
pub const CONTROLLER: Controller = Controller {
    name: "taint-eviction-controller",
    queue: "noexec_taint_pod",
    sources: |_| vec![Source::of::<Pod>(pod_on_tainted_node), Source::of::<Node>(pods_of_node)],
    reconcile: |informers, key, now| {
        let leaving = informers.setting_or(Leaving::default);
        let pod = informers.informer::<Pod>().get(key);
        let node = pod.as_ref().and_then(|pod| informers.informer::<Node>().get(node_name(pod)));
        let (Some(pod), Some(node)) = (pod, node) else {
            leaving.0.lock().remove(key);
            return Plan::nothing();
        };
        let seen = leaving.since(key, uid(&pod.metadata));
        let snapshot = Snapshot { pod, node, seen };
        match fate(&snapshot, now) {
            Fate::LeavesLater(_) if seen.is_none() => leaving.add(key, uid(&snapshot.pod.metadata), now),
            Fate::LeavesLater(_) => {}
            Fate::Stays | Fate::Leaves => drop(leaving.0.lock().remove(key)),
        }
        plan(&snapshot, now)
    },
};

/// The Pods that leave later, with their uid and since when that is known. Each looks again when its time is over.
#[derive(Default)]
struct Leaving(Mutex<BTreeMap<String, (String, Timestamp)>>);

impl Leaving {
    fn since(&self, key: &str, uid: &str) -> Option<Timestamp> {
        self.0.lock().get(key).filter(|(of, _)| of == uid).map(|(_, since)| *since)
    }

    fn add(&self, key: &str, uid: &str, now: Timestamp) {
        self.0.lock().insert(key.to_owned(), (uid.to_owned(), now));
    }
}

/// The input of a decision about one Pod.
pub struct Snapshot {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// The node that it is on.
    pub node: Arc<Node>,
    /// Since when it is known that the Pod leaves later; `None` if it was to stay so far.
    pub seen: Option<Timestamp>,
}

/// What becomes of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    LeavesLater(Duration),
    Leaves,
}

fn evicting(node: &Node) -> Vec<&Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").collect()
}

fn pod_on_tainted_node(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let node = informers.informer::<Node>().get(node_of(change));
    let is_tainted = node.is_some_and(|node| !evicting(&node).is_empty());
    if is_tainted { vec![change.key.to_string()] } else { Vec::new() }
}

/// The name of the Node that the Pod is on; that it was on, if it is gone: nobody waits for it any more.
fn node_of(change: &Change<Pod>) -> &str {
    change.new.as_ref().or(change.old.as_ref()).map(|pod| node_name(pod)).unwrap_or_default()
}

fn pods_of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let Some(new) = &change.new else { return Vec::new() };
    let before = change.old.as_deref().map(evicting).unwrap_or_default();
    if before == evicting(new) {
        return Vec::new();
    }
    keys_on_node(informers, &change.key)
}

/// Decides whether the Pod has to leave.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let pod = &*snapshot.pod;
    let mut plan = Plan::nothing();
    match fate(snapshot, now) {
        Fate::Leaves => {}
        Fate::LeavesLater(left) => {
            plan.requeue(left);
            return plan;
        }
        Fate::Stays => {
            let is_over = is_deleting(&pod.metadata) || is_finished(pod);
            if snapshot.seen.is_some() && !is_over {
                let message = format!(
                    "Cancelling deletion of Pod {}/{}",
                    namespace(&pod.metadata),
                    name(&pod.metadata)
                );
                plan.push(Action::event(pod, EventType::Normal, "TaintManagerEviction", message));
            }
            return plan;
        }
    }
    let (reason, message) = ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
    let condition = disruption_target(pod, reason, message, now);
    let (namespace, name, uid) = (namespace(&pod.metadata), name(&pod.metadata), uid(&pod.metadata));
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    plan.push(Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch)));
    plan.push(Action::delete::<Pod>(namespace, name, Some(uid), Propagation::Background, None));
    let message = format!("Marking for deletion Pod {namespace}/{name}");
    plan.push(Action::event(pod, EventType::Normal, "TaintManagerEviction", message));
    plan
}

/// How long the Pod may stay yet: under each taint for what the first toleration says that fits.
fn fate(snapshot: &Snapshot, now: Timestamp) -> Fate {
    let pod = &snapshot.pod;
    if is_deleting(&pod.metadata) || is_finished(pod) {
        return Fate::Stays;
    }
    let spec = pod.spec.as_ref();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let each = evicting(&snapshot.node).into_iter().filter_map(|taint| {
        let Some(own) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Some(Duration::ZERO);
        };
        let allowed = Duration::from_secs(u64::try_from(own.toleration_seconds?).unwrap_or(0));
        Some(allowed.saturating_sub(since_until(start(snapshot, taint, now), now)))
    });
    match each.min() {
        None => Fate::Stays,
        Some(left) if left.is_zero() => Fate::Leaves,
        Some(left) => Fate::LeavesLater(left),
    }
}

/// Since when the taint and the Pod are together.
fn start(snapshot: &Snapshot, taint: &Taint, now: Timestamp) -> Timestamp {
    let bound =
        condition(&snapshot.pod, "PodScheduled").and_then(|bound| bound.last_transition_time.as_ref());
    let came = bound.map_or_else(|| created(&snapshot.pod.metadata), |bound| bound.0);
    let added = taint.time_added.as_ref().map(|added| added.0);
    added.or(snapshot.seen).unwrap_or(now).max(came)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    /// Seen so long ago, in seconds; the Pod came at the time of `came`.
    fn check_seen(tolerations: &str, taints: &str, (came, seen): (&str, Option<i64>), expect: &str) {
        let came =
            format!("{{type: PodScheduled, status: 'True', lastTransitionTime: '2026-01-01T{came}Z'}}");
        let pod = format!(
            "{{metadata: {{name: a, namespace: default, uid: p1}}, \
             spec: {{containers: [], nodeName: one, tolerations: [{tolerations}]}}, status: {{conditions: [{came}]}}}}"
        );
        let node = format!("{{metadata: {{name: one}}, spec: {{taints: [{taints}]}}}}");
        let seen = seen.map(|seconds| noon() - jiff::SignedDuration::from_secs(seconds));
        let snapshot = Snapshot { pod: Arc::new(parse(&pod)), node: Arc::new(parse(&node)), seen };
        let text = render(&plan(&snapshot, noon()));
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(last.trim(), expect, "{tolerations} under {taints}, {came}, {seen:?}");
    }

    fn check(tolerations: &str, taints: &str, expect: &str) {
        check_seen(tolerations, taints, ("00:00:00", None), expect);
    }

    const EVICTED: &str = "Normal TaintManagerEviction: Marking for deletion Pod default/a";

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_the_taint() {
        let taint = "{key: k, effect: NoExecute, timeAdded: '2026-01-01T11:58:00Z'}";
        let of = |seconds: i64| {
            format!("{{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: {seconds}}}")
        };
        let (short, long, none) = (of(60), of(300), of(-1));
        check("", "{key: k, effect: NoSchedule}", "");
        check("", taint, EVICTED);
        check("{operator: Exists}", taint, "");
        check(&long, taint, "again after 180s");
        check(&short, taint, EVICTED);
        check(&none, taint, EVICTED);
        check("{key: k, value: x}", "{key: k, value: x, effect: NoExecute}", "");
        check("{key: k, value: other}", "{key: k, value: x, effect: NoExecute}", EVICTED);
    }

    /// Source: `getMinTolerationTime` and `GetMatchingTolerations` of upstream.
    #[test]
    fn the_first_toleration_that_fits_counts_and_of_several_taints_the_shortest() {
        let two = "{key: k, effect: NoExecute}, {key: l, effect: NoExecute}";
        let of = |key: &str, seconds: i64| {
            format!("{{key: {key}, operator: Exists, effect: NoExecute, tolerationSeconds: {seconds}}}")
        };
        let all = "{operator: Exists}";
        for (tolerations, expect) in [
            (format!("{}, {}", of("k", 60), of("l", 300)), "again after 60s"),
            (format!("{}, {}", of("k", 300), of("l", 60)), "again after 60s"),
            (of("k", 60), EVICTED),
            (format!("{}, {all}", of("k", 60)), "again after 60s"),
            (format!("{all}, {}", of("k", 60)), ""),
            (format!("{}, {}, {all}", of("k", 300), of("k", 60)), "again after 300s"),
        ] {
            check(&tolerations, two, expect);
        }
    }

    #[test]
    fn the_time_begins_when_both_are_there() {
        let (untold, told) =
            ("{key: k, effect: NoExecute}", "{key: k, effect: NoExecute, timeAdded: '2026-01-01T11:00:00Z'}");
        let patient = "{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 60}";
        for (taint, came, seen, expect) in [
            (untold, "09:00:00", None, "again after 60s"),
            (untold, "09:00:00", Some(20), "again after 40s"),
            (untold, "09:00:00", Some(60), EVICTED),
            (told, "09:00:00", None, EVICTED),
            (told, "11:59:50", None, "again after 50s"),
            (told, "11:59:50", Some(5), "again after 50s"),
        ] {
            check_seen(patient, taint, (came, seen), expect);
        }
    }

    #[test]
    fn a_pod_that_is_gone_is_looked_at_once_more_and_forgotten() {
        let pod = |node: &str| -> Arc<Pod> {
            Arc::new(parse(&format!(
                "{{metadata: {{name: a, namespace: default}}, spec: {{containers: [], nodeName: '{node}'}}}}"
            )))
        };
        for (old, new, expect) in [
            (None, Some(pod("")), ""),
            (Some(pod("")), Some(pod("one")), "one"),
            (Some(pod("one")), None, "one"),
            (None, None, ""),
        ] {
            let change = Change { key: "default/a".into(), revision: 1, old, new };
            assert_eq!(node_of(&change), expect);
        }
    }

    #[test]
    fn who_need_not_leave_any_more_is_told() {
        let cancelled = "Normal TaintManagerEviction: Cancelling deletion of Pod default/a";
        check_seen("", "", ("00:00:00", Some(5)), cancelled);
        check_seen("{operator: Exists}", "{key: k, effect: NoExecute}", ("00:00:00", Some(5)), cancelled);
        check_seen("", "", ("00:00:00", None), "");
    }
}
