//! Says of Pods that were to be disrupted, and are there still, that they are not to be any more.
//!
//! Who writes the condition deletes the Pod next; the kubelet may take longer. Source: `stalePodDisruptionWorker`.

use std::time::Duration;

use controller::metadata::{is_deleting, name, namespace, time};
use controller::pod::Pod;
use controller::{Action, Change, Controller, Informers, Patch, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;
use serde_json::json;

use crate::pod::{DISRUPTION_TARGET, condition, is_finished, since_until};

/// How long the deletion may follow the condition.
const STALE_AFTER: Duration = Duration::from_mins(2);

/// The controller's row. Keys are Pods.
pub const CONTROLLER: Controller = Controller {
    name: "disruption-controller",
    queue: "stale_pod_disruption",
    sources: |_| vec![Source::of::<Pod>(targets)],
    reconcile: |informers, key, now| {
        informers.informer::<Pod>().get(key).map_or_else(Plan::nothing, |pod| plan(&pod, now))
    },
};

fn targets(change: &Change<Pod>, _: &Informers) -> Vec<String> {
    let is_target = change.new.as_deref().and_then(target).is_some();
    is_target.then(|| change.key.to_string()).into_iter().collect()
}

/// The condition of a Pod that somebody else than its kubelet says is about to go, and that nobody has deleted.
fn target(pod: &Pod) -> Option<&PodCondition> {
    let is_there = !is_deleting(&pod.metadata) && !is_finished(pod);
    let is_stale =
        |one: &&PodCondition| one.status == "True" && one.reason.as_deref() != Some("TerminationByKubelet");
    condition(pod, DISRUPTION_TARGET).filter(|_| is_there).filter(is_stale)
}

/// Decides whether the condition is true no longer, or when to look again.
pub fn plan(pod: &Pod, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    let Some(since) = target(pod).map(|told| told.last_transition_time.as_ref()) else { return plan };
    let left = since.map_or(Duration::ZERO, |since| STALE_AFTER.saturating_sub(since_until(since.0, now)));
    if !left.is_zero() {
        plan.requeue(left);
        return plan;
    }
    let meta = &pod.metadata;
    let condition = json!({
        "type": DISRUPTION_TARGET,
        "status": "False",
        "lastTransitionTime": time(now),
        "observedGeneration": meta.generation,
        "reason": null,
        "message": null,
    });
    let guard = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version });
    let patch = Patch::Strategic(json!({ "metadata": guard, "status": { "conditions": [condition] } }));
    plan.push(Action::patch_status::<Pod>(namespace(meta), name(meta), patch));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    fn check(what: &str, told: &str, (metadata, phase): (&str, &str), expect: &str) {
        let pod = format!(
            "{{metadata: {{name: a, uid: u, resourceVersion: '7', generation: 3{metadata}}}, status: {{phase: {phase}, conditions: [{{type: Ready, status: \
             'True'}}, {{type: DisruptionTarget, status: 'True'{told}}}]}}}}"
        );
        assert_eq!(render(&plan(&parse(&pod), noon())), expect, "{what}");
    }

    #[test]
    fn a_pod_that_is_not_deleted_in_time_is_no_target() {
        let taken_back = "step\n  patch pods/status a {\"metadata\":{\"resourceVersion\":\"7\",\"uid\":\"u\"},\"status\":{\"conditions\":[\
                          {\"lastTransitionTime\":\"2026-01-01T12:00:00Z\",\"message\":null,\"observedGeneration\":3,\"reason\":null,\
                          \"status\":\"False\",\"type\":\"DisruptionTarget\"}]}}\n";
        let since =
            |time: &str| format!(", reason: PreemptionByScheduler, lastTransitionTime: '2026-01-01T{time}Z'");
        let running = ("", "Running");
        check("in time", &since("11:59:00"), running, "again after 60s\n");
        check("late", &since("11:58:00"), running, taken_back);
        check("ahead of our clock", &since("13:00:00"), running, "again after 120s\n");
        check("nobody knows since when", "", running, taken_back);
        let going = (", deletionTimestamp: '2026-01-01T11:59:00Z'", "Running");
        check("going", &since("11:00:00"), going, "");
        check("the kubelet's", ", reason: TerminationByKubelet", running, "");
        check("over", &since("11:00:00"), ("", "Failed"), "");
    }
}
