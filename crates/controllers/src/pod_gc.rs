//! The Pod garbage collector: removes Pods that no kubelet will ever remove, because their node is gone or because
//! they never had one.

use std::sync::Arc;
use std::time::Duration;

use controller::{Action, Change, Controller, Informers, Patch, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use serde_json::json;

use crate::object::{created, is_deleting, name, namespace, time, uid};
use crate::pod::{condition, is_finished, keys_on_node, node_name, since_until};

/// How long a node may be missing after a Pod was bound to it: a node may come back, and its informer may lag.
/// Source: upstream's `quarantineTime`.
const QUARANTINE: Duration = Duration::from_secs(40);

/// The controller's row. Keys are Pods.
pub const CONTROLLER: Controller = Controller {
    name: "pod-garbage-collector-controller",
    queue: "orphaned_pods_nodes",
    sources: |_| vec![Source::of::<Pod>(lost_pod), Source::of::<Node>(pods_of_gone_node)],
    reconcile: |informers, key, now| {
        let Some(pod) = informers.informer::<Pod>().get(key) else { return Plan::nothing() };
        let has_node = informers.informer::<Node>().get(node_name(&pod)).is_some();
        plan(&Snapshot { pod, has_node }, now)
    },
};

/// What a decision about one Pod is made from.
pub struct Snapshot {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// Whether the node that it names is there.
    pub has_node: bool,
}

fn lost_pod(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let Some(pod) = &change.new else { return Vec::new() };
    let is_lost = match node_name(pod) {
        "" => is_deleting(&pod.metadata),
        node => informers.informer::<Node>().get(node).is_none(),
    };
    if is_lost { vec![change.key.clone()] } else { Vec::new() }
}

fn pods_of_gone_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    if change.new.is_some() {
        return Vec::new();
    }
    keys_on_node(informers, &change.key)
}

/// Decides whether the Pod is to be removed.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let pod = &*snapshot.pod;
    let mut plan = Plan::nothing();
    let (namespace, name, uid) = (namespace(&pod.metadata), name(&pod.metadata), uid(&pod.metadata));
    if node_name(pod).is_empty() {
        if is_deleting(&pod.metadata) {
            plan.push(Action::delete::<Pod>(namespace, name, Some(uid), Propagation::Background, Some(0)));
        }
        return plan;
    }
    if snapshot.has_node {
        return plan;
    }
    let bound = condition(pod, "PodScheduled").and_then(|scheduled| scheduled.last_transition_time.as_ref());
    let since = since_until(bound.map_or_else(|| created(&pod.metadata), |time| time.0), now);
    if since < QUARANTINE {
        plan.requeue(QUARANTINE.saturating_sub(since));
        return plan;
    }
    if !is_finished(pod) {
        let told = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some("DeletionByPodGC".to_owned()),
            message: Some("PodGC: node no longer exists".to_owned()),
            last_transition_time: Some(time(now)),
            ..PodCondition::default()
        };
        let patch = json!({"metadata": {"uid": uid}, "status": {"phase": "Failed", "conditions": [told]}});
        plan.push(Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch)));
    }
    plan.push(Action::delete::<Pod>(namespace, name, Some(uid), Propagation::Background, Some(0)));
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{noon, parse, render};

    fn check(pod: &str, has_node: bool, expect: &Expect) {
        expect.assert_eq(&render(&plan(&Snapshot { pod: Arc::new(parse(pod)), has_node }, noon())));
    }

    #[test]
    fn pods_without_a_node_are_removed() {
        let bound = "{metadata: {name: a, uid: p1, creationTimestamp: '2026-01-01T11:00:00Z'}, \
                     spec: {containers: [], nodeName: one}}";
        check(bound, true, &expect![[""]]);
        check(
            bound,
            false,
            &expect![[r#"
            step
              patch pods/status a {"metadata":{"uid":"p1"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T12:00:00Z","message":"PodGC: node no longer exists","reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"phase":"Failed"}}
            step
              delete pods a
        "#]],
        );
        check(
            &bound.replace("11:00:00", "11:59:50"),
            false,
            &expect![[r#"
            again after 30s
        "#]],
        );
        let unbound = "{metadata: {name: a, uid: p1, deletionTimestamp: '2026-01-01T11:00:00Z'}, spec: {containers: []}}";
        check(
            unbound,
            false,
            &expect![[r#"
            step
              delete pods a
        "#]],
        );
    }
}
