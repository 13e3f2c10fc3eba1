//! The taint eviction controller: Pods leave a node with a NoExecute taint that they do not tolerate, at once or
//! when the time for which they tolerate it is over.

use std::sync::Arc;
use std::time::Duration;

use controller::metadata::{is_deleting, name, namespace, time, uid};
use controller::placement::tolerates;
use controller::pod::Pod;
use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Propagation, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PodCondition, Taint, Toleration};
use serde_json::json;

use crate::pod::{is_finished, keys_on_node, node_name, since_until};

/// The controller's row. Keys are Pods.
pub const CONTROLLER: Controller = Controller {
    name: "taint-eviction-controller",
    queue: "noexec_taint_pod",
    sources: |_| vec![Source::of::<Pod>(pod_on_tainted_node), Source::of::<Node>(pods_of_node)],
    reconcile: |informers, key, now| {
        let Some(pod) = informers.informer::<Pod>().get(key) else { return Plan::nothing() };
        let Some(node) = informers.informer::<Node>().get(node_name(&pod)) else { return Plan::nothing() };
        plan(&Snapshot { pod, node }, now)
    },
};

/// The input of a decision about one Pod.
pub struct Snapshot {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// The node that it is on.
    pub node: Arc<Node>,
}

fn evicting(node: &Node) -> Vec<&Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").collect()
}

fn pod_on_tainted_node(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    let node = change.new.as_ref().map(|pod| node_name(pod)).filter(|node| !node.is_empty());
    let node = node.and_then(|node| informers.informer::<Node>().get(node));
    let is_tainted = node.is_some_and(|node| !evicting(&node).is_empty());
    if is_tainted { vec![change.key.clone()] } else { Vec::new() }
}

fn pods_of_node(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let Some(new) = &change.new else { return Vec::new() };
    let before = change.old.as_deref().map(evicting).unwrap_or_default();
    if evicting(new).is_empty() || before == evicting(new) {
        return Vec::new();
    }
    keys_on_node(informers, &change.key)
}

/// Decides whether the Pod has to leave.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let pod = &*snapshot.pod;
    let mut plan = Plan::nothing();
    if is_deleting(&pod.metadata) || is_finished(pod) {
        return plan;
    }
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let Some(left) = stay(&evicting(&snapshot.node), tolerations, now) else { return plan };
    if !left.is_zero() {
        plan.requeue(left);
        return plan;
    }
    let condition = PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByTaintManager".to_owned()),
        message: Some("Taint manager: deleting due to NoExecute taint".to_owned()),
        last_transition_time: Some(time(now)),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    };
    let (namespace, name, uid) = (namespace(&pod.metadata), name(&pod.metadata), uid(&pod.metadata));
    let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    plan.push(Action::patch_status::<Pod>(namespace, name, Patch::Strategic(patch)));
    plan.push(Action::delete::<Pod>(namespace, name, Some(uid), Propagation::Background, None));
    let message = format!("Marking for deletion Pod {namespace}/{name}");
    plan.push(Action::event(pod, EventType::Normal, "TaintManagerEviction", message));
    plan
}

/// How much longer a Pod may stay under `taints`; none if for ever.
fn stay(taints: &[&Taint], tolerations: &[Toleration], now: Timestamp) -> Option<Duration> {
    let each = taints.iter().filter_map(|taint| {
        let mut own = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if own.peek().is_none() {
            return Some(Duration::ZERO);
        }
        let seconds = own.filter_map(|toleration| toleration.toleration_seconds).min()?;
        let allowed = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let since = taint.time_added.as_ref().map_or(Duration::ZERO, |added| since_until(added.0, now));
        Some(allowed.saturating_sub(since))
    });
    each.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    fn check(tolerations: &str, taints: &str, expect: &str) {
        let pod = format!(
            "{{metadata: {{name: a, namespace: default, uid: p1}}, \
             spec: {{containers: [], nodeName: one, tolerations: [{tolerations}]}}}}"
        );
        let node = format!("{{metadata: {{name: one}}, spec: {{taints: [{taints}]}}}}");
        let snapshot = Snapshot { pod: Arc::new(parse(&pod)), node: Arc::new(parse(&node)) };
        let text = render(&plan(&snapshot, noon()));
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(last.trim(), expect, "{tolerations} under {taints}");
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_the_taint() {
        let taint = "{key: k, effect: NoExecute, timeAdded: '2026-01-01T11:58:00Z'}";
        let evicted = "Normal TaintManagerEviction: Marking for deletion Pod default/a";
        check("", "{key: k, effect: NoSchedule}", "");
        check("", taint, evicted);
        check("{operator: Exists}", taint, "");
        check(
            "{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 300}",
            taint,
            "again after 180s",
        );
        check("{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 60}", taint, evicted);
        check("{key: k, value: x}", "{key: k, value: x, effect: NoExecute}", "");
        check("{key: k, value: other}", "{key: k, value: x, effect: NoExecute}", evicted);
    }
}
