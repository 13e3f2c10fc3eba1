//! The Pod garbage collector: removes Pods that no kubelet will ever remove, because their node is gone or out of service
//! or because they never had one; and the oldest of those that are over, if there are very many.
//!
//! Source: `pkg/controller/podgc`.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{created, is_deleting, name, namespace, uid};
use controller::pod::Pod;
use controller::{Action, Change, Controller, Informers, Patch, Plan, Propagation, ResourceRef, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PodCondition};
use serde_json::json;

use crate::options::Options;
use crate::pod::{condition, disruption_target, is_finished, keys_on_node, node_name, phase, since_until};

/// How long a node may be missing after a Pod was bound to it: a node may come back, and its informer may lag.
/// Source: upstream's `quarantineTime`.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Who says that a node does not run, and that its Pods need not be waited for.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The key of all Pods that are over; no Pod's.
const FINISHED: &str = "finished";

/// The controller's row. Keys are Pods, and all that are over.
pub const CONTROLLER: Controller = Controller {
    name: "pod-garbage-collector-controller",
    queue: "orphaned_pods_nodes",
    sources: |_| vec![Source::of::<Pod>(of_pod), Source::of::<Node>(pods_of_lost_node)],
    reconcile: |informers, key, now| {
        let pods = informers.informer::<Pod>();
        if key == FINISHED {
            let finished_max = Options::of(informers).terminated_pod_gc_threshold;
            return if finished_max > 0 && pods.len() > finished_max {
                surplus(&pods.list(), finished_max)
            } else {
                Plan::nothing()
            };
        }
        let Some(pod) = pods.get(key) else { return Plan::nothing() };
        let node = informers.informer::<Node>().get(node_name(&pod));
        plan(&Snapshot { pod, node }, now)
    },
};

/// The input of a decision about one Pod.
pub struct Snapshot {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// The node that it names.
    pub node: Option<Arc<Node>>,
}

fn of_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let Some(pod) = &change.new else { return Vec::new() };
    let node = || informers.informer::<Node>().get(node_name(pod));
    let is_lost = match node_name(pod) {
        "" => is_deleting(&pod.metadata),
        _ => node().is_none_or(|node| is_deleting(&pod.metadata) && is_out_of_service(&node)),
    };
    let is_over = is_finished(pod) && !change.old.as_deref().is_some_and(is_finished);
    let keys = [(is_lost, &*change.key), (is_over, FINISHED)];
    keys.into_iter().filter(|(is, _)| *is).map(|(_, key)| key.to_owned()).collect()
}

fn pods_of_lost_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let is_lost = |node: &Option<Arc<Node>>| node.as_deref().is_none_or(is_out_of_service);
    if !is_lost(&change.new) || (change.old.is_some() && is_lost(&change.old)) {
        return Vec::new();
    }
    keys_on_node(informers, &change.key)
}

/// Whether somebody has said so, and the node does not say otherwise.
fn is_out_of_service(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !is_ready && taints.any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Decides whether the Pod is to be removed.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let pod = &*snapshot.pod;
    let mut plan = Plan::nothing();
    let is_going = is_deleting(&pod.metadata);
    match (node_name(pod), &snapshot.node) {
        ("", _) if is_going => remove(&mut plan, pod, None),
        ("", _) => {}
        (_, Some(node)) if is_going && is_out_of_service(node) => remove(&mut plan, pod, None),
        (_, Some(_)) => {}
        (node, None) => {
            let bound = condition(pod, "PodScheduled").and_then(|one| one.last_transition_time.as_ref());
            let since = since_until(bound.map_or_else(|| created(&pod.metadata), |time| time.0), now);
            if since < QUARANTINE {
                plan.requeue(QUARANTINE.saturating_sub(since));
                return plan;
            }
            plan.push(Action::require_absent(ResourceRef::of::<Node>(), "", node, ""));
            let told = disruption_target(pod, "DeletionByPodGC", "PodGC: node no longer exists", now);
            remove(&mut plan, pod, Some(told));
        }
    }
    plan
}

/// Decides which of the Pods that are over are too many: those that were evicted first, then the oldest.
fn surplus(pods: &[Arc<Pod>], finished_max: usize) -> Plan {
    let mut plan = Plan::nothing();
    let mut finished: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_finished(pod)).collect();
    let count = finished.len().saturating_sub(finished_max);
    finished.sort_by_key(|pod| (Reverse(is_evicted(pod)), created(&pod.metadata), name(&pod.metadata)));
    let going = finished.iter().take(count).filter(|pod| !is_deleting(&pod.metadata));
    plan.push_step(going.map(|pod| delete(pod)).collect());
    plan
}

fn is_evicted(pod: &Pod) -> bool {
    let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
    phase(pod) == "Failed" && reason == Some("Evicted")
}

/// Removes the Pod, which is over by that: nobody else will say so.
fn remove(plan: &mut Plan, pod: &Pod, condition: Option<PodCondition>) {
    if !is_finished(pod) {
        let mut patch = json!({"metadata": {"uid": uid(&pod.metadata)}, "status": {"phase": "Failed"}});
        if let Some(condition) = condition {
            patch["status"]["conditions"] = json!([condition]);
        }
        let (namespace, name) = (namespace(&pod.metadata), name(&pod.metadata));
        plan.push(Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch)));
    }
    plan.push(delete(pod));
}

fn delete(pod: &Pod) -> Action {
    let meta = &pod.metadata;
    Action::delete::<Pod>(namespace(meta), name(meta), Some(uid(meta)), Propagation::Background, Some(0))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{list, noon, parse, render};

    const READY: &str = "{metadata: {name: one}, status: {conditions: [{type: Ready, status: 'True'}]}}";
    const OUT: &str = "{metadata: {name: one}, spec: {taints: [{key: node.kubernetes.io/out-of-service, effect: NoExecute}]}}";
    const BOUND: &str = "{metadata: {name: a, uid: p1, creationTimestamp: '2026-01-01T11:00:00Z'}, \
                         spec: {containers: [], nodeName: one}}";
    const GOING: &str = "{metadata: {name: a, uid: p1, deletionTimestamp: '2026-01-01T11:00:00Z'}, spec: {containers: [], \
                         nodeName: one}}";

    fn check(pod: &str, node: &str, expect: &Expect) {
        let node = (!node.is_empty()).then(|| Arc::new(parse(node)));
        expect.assert_eq(&render(&plan(&Snapshot { pod: Arc::new(parse(pod)), node }, noon())));
    }

    #[test]
    fn pods_without_a_node_are_removed() {
        check(BOUND, READY, &expect![[""]]);
        check(
            BOUND,
            "",
            &expect![[r#"
            step
              require no nodes one
            step
              patch pods/status a {"metadata":{"uid":"p1"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"PodGC: node no longer exists","reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"phase":"Failed"}}
            step
              delete pods a
        "#]],
        );
        check(
            &BOUND.replace("11:00:00", "11:59:50"),
            "",
            &expect![[r#"
            again after 30s
        "#]],
        );
        check(
            &GOING.replace(", nodeName: one", ""),
            "",
            &expect![[r#"
            step
              patch pods/status a {"metadata":{"uid":"p1"},"status":{"phase":"Failed"}}
            step
              delete pods a
        "#]],
        );
    }

    #[test]
    fn pods_that_end_on_a_node_out_of_service_are_not_waited_for() {
        let removed = expect![[r#"
            step
              patch pods/status a {"metadata":{"uid":"p1"},"status":{"phase":"Failed"}}
            step
              delete pods a
        "#]];
        check(GOING, OUT, &removed);
        check(GOING, READY, &expect![[""]]);
        check(BOUND, OUT, &expect![[""]]);
        let ready = OUT.replace("}]}}", "}]}, status: {conditions: [{type: Ready, status: 'True'}]}}");
        check(GOING, &ready, &expect![[""]]);
        let finished = GOING.replace("nodeName: one}", "nodeName: one}, status: {phase: Succeeded}");
        check(
            &finished,
            OUT,
            &expect![[r#"
            step
              delete pods a
        "#]],
        );
    }

    #[test]
    fn of_pods_that_are_over_the_evicted_and_the_oldest_are_too_many() {
        let pod = |name: &str, hour: u8, status: &str| {
            format!(
                "{{metadata: {{name: {name}, uid: {name}, creationTimestamp: '2026-01-01T{hour:02}:00:00Z'}}, status: {status}}}"
            )
        };
        let (over, evicted) = ("{phase: Succeeded}", "{phase: Failed, reason: Evicted}");
        let all = [
            pod("young", 9, over),
            pod("old", 1, over),
            pod("same", 1, over),
            pod("running", 0, "{phase: Running}"),
            pod("evicted", 10, evicted),
            pod("new", 0, "{}"),
        ];
        let pods = list(&format!("[{}]", all.join(", ")));
        for (finished_max, expect) in [
            (4, ""),
            (3, "evicted"),
            (2, "evicted old"),
            (1, "evicted old same"),
            (0, "evicted old same young"),
        ] {
            let plan = surplus(&pods, finished_max);
            let gone = plan.actions().filter_map(|action| match action {
                Action::Request(request) => Some(request.name.clone()),
                Action::Event(_) | Action::Count(_) | Action::Operation(_) => None,
            });
            assert_eq!(gone.collect::<Vec<_>>().join(" "), expect, "{finished_max}");
        }
    }
}
