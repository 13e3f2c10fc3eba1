//! Resizing a Pod that runs: what the API asks for, what the node has agreed to, what the kernel has. Pure.
//!
//! The snapshot's Pod always has the resources that the node has agreed to ([`split`]), so that everything else need
//! not know of resizes; what is asked for beyond that waits in [`Resize::wanted`].
//! Source: KEP-1287, `pkg/kubelet/allocation/allocation_manager.go` of upstream.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as ContainerSpec, Pod, PodSpec, ResourceRequirements};
use serde_json::json;

use crate::pod::quantity;
use crate::pod::requests::pod_request;
use crate::pod::roles::{Role, init_role};

/// The condition of a Pod whose resize waits for the node. Source: core/v1 `PodConditionType`.
pub const PENDING: &str = "PodResizePending";
/// The condition of a Pod whose resize is being carried out.
pub const IN_PROGRESS: &str = "PodResizeInProgress";

/// The resources of a Pod's containers, by name.
pub type Resources = BTreeMap<String, ResourceRequirements>;

/// How far a Pod's resize is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resize {
    /// What the API asks for and the node has not agreed to.
    pub wanted: Resources,
    /// Why not.
    pub refused: Option<Refused>,
    /// The node has agreed, and not everything is carried out.
    pub is_started: bool,
    /// Why the last try to carry it out failed.
    pub error: Option<String>,
    /// It waits for room, and would get it for this if it got it now. Source: `TriggerReason`.
    pub deferred_until: Option<&'static str>,
}

/// Why the node does not agree to a resize.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Whether it may be agreed to later.
    pub reason: RefusalReason,
    /// For people.
    pub message: String,
    /// For metrics; empty for `Deferred`. Source: `kubelet_pod_infeasible_resizes_total` in KEP-1287.
    pub detail: &'static str,
}

/// What becomes of a resize that the node does not agree to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// It is asked about again when there is room.
    Deferred,
    /// It is never asked about again.
    Infeasible,
}

impl RefusalReason {
    /// Upstream's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deferred => "Deferred",
            Self::Infeasible => "Infeasible",
        }
    }
}

/// CPU in thousandths and memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
}

/// A resize that an earlier kubelet had agreed to and not carried out, by what it last wrote.
pub fn under_way(pod: &Pod) -> Resize {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut found = conditions.into_iter().filter(|c| c.type_ == IN_PROGRESS && c.status == "True");
    let Some(condition) = found.next() else { return Resize::default() };
    Resize { is_started: true, error: condition.message.clone(), ..Resize::default() }
}

/// Since when a resize waits for the node, by what was last written.
pub fn waiting_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let pending = conditions.iter().find(|c| c.type_ == PENDING && c.status == "True")?;
    pending.last_transition_time.as_ref().map(|time| time.0)
}

/// Main containers, and init containers that keep running.
pub(crate) fn resizable(spec: &PodSpec) -> impl Iterator<Item = &ContainerSpec> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| init_role(c) == Role::Sidecar);
    sidecars.chain(&spec.containers)
}

/// The resources of all containers that can be resized.
pub fn resources(pod: &Pod) -> Resources {
    let spec = pod.spec.iter();
    let all = spec.flat_map(resizable);
    all.map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default())).collect()
}

/// What the node had agreed to before the kubelet was started again, by what it last wrote.
pub fn recorded(pod: &Pod) -> Resources {
    let mut all = resources(pod);
    let status = pod.status.iter();
    let statuses = status.flat_map(|s| {
        s.container_statuses.iter().flatten().chain(s.init_container_statuses.iter().flatten())
    });
    for status in statuses {
        let Some(resources) = all.get_mut(&status.name) else { continue };
        if let Some(actual) = &status.resources {
            resources.limits.clone_from(&actual.limits);
        }
        if let Some(requests) = &status.allocated_resources {
            resources.requests = Some(requests.clone());
        }
    }
    all
}

/// The Pod with the resources of `allocated`, and what it asks for beyond them.
pub fn split(pod: &Pod, allocated: &Resources) -> (Option<Pod>, Resources) {
    let wanted: Resources = resources(pod)
        .into_iter()
        .filter(|(name, asked)| allocated.get(name).is_some_and(|agreed| !is_same(agreed, asked)))
        .collect();
    if wanted.is_empty() {
        return (None, wanted);
    }
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        put(spec, allocated);
    }
    (Some(pod), wanted)
}

/// Gives the containers of a spec these resources.
pub fn put(spec: &mut PodSpec, resources: &Resources) {
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = resources.get(&container.name) {
            container.resources = Some(resources.clone());
        }
    }
}

fn is_same(a: &ResourceRequirements, b: &ResourceRequirements) -> bool {
    let compute = |resources: &ResourceRequirements| {
        let of = |list: &Option<BTreeMap<String, _>>, name: &str| {
            list.as_ref().and_then(|amounts| amounts.get(name)).map(quantity::milli)
        };
        ["cpu", "memory"].map(|name| (of(&resources.requests, name), of(&resources.limits, name)))
    };
    compute(a) == compute(b)
}

/// What is changed of a container, from what was asked for to what is: resource, requirement, operation.
///
/// Source: `recordContainerResizeOperations` of upstream's kubelet.
pub fn operations(before: &Resources, after: &Resources) -> Vec<[&'static str; 3]> {
    let mut all = Vec::new();
    for (name, after) in after {
        let Some(before) = before.get(name) else { continue };
        for resource in ["memory", "cpu"] {
            let of = |list: &Option<BTreeMap<String, _>>| {
                list.as_ref().and_then(|amounts| amounts.get(resource)).map_or(0, quantity::milli)
            };
            for (requirement, before, after) in [
                ("requests", of(&before.requests), of(&after.requests)),
                ("limits", of(&before.limits), of(&after.limits)),
            ] {
                let operation = match (before, after) {
                    (before, after) if before == after => continue,
                    (0, _) => "add",
                    (_, 0) => "remove",
                    (before, after) if after < before => "decrease",
                    _ => "increase",
                };
                all.push([resource, requirement, operation]);
            }
        }
    }
    all
}

/// What a Pod asks of its node.
pub fn requests(spec: &PodSpec) -> Amount {
    Amount {
        cpu: pod_request(spec, "cpu", quantity::milli),
        memory: pod_request(spec, "memory", quantity::whole),
    }
}

/// Whether a Pod can have `asked`, when all others have `used` of what the node has.
///
/// # Errors
/// Why not.
pub fn decide(asked: Amount, used: Amount, capacity: Amount) -> Result<(), Refused> {
    let whole = if asked.memory > capacity.memory {
        Some(("memory", asked.memory, capacity.memory))
    } else if asked.cpu > capacity.cpu {
        Some(("cpu", asked.cpu, capacity.cpu))
    } else {
        None
    };
    if let Some((name, asked, capacity)) = whole {
        let message =
            format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {capacity}");
        return Err(Refused {
            reason: RefusalReason::Infeasible,
            message,
            detail: "insufficient_node_allocatable",
        });
    }
    let now = if asked.cpu.saturating_add(used.cpu) > capacity.cpu {
        Some(("cpu", asked.cpu, used.cpu, capacity.cpu))
    } else if asked.memory.saturating_add(used.memory) > capacity.memory {
        Some(("memory", asked.memory, used.memory, capacity.memory))
    } else {
        None
    };
    let Some((name, asked, used, capacity)) = now else { return Ok(()) };
    let message = format!(
        "Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}"
    );
    Err(Refused { reason: RefusalReason::Deferred, message, detail: "" })
}

/// What an event says about a resize.
pub fn event_text(pod: &Pod, what: &str, resources: &Resources, error: Option<&str>) -> String {
    let containers: Vec<_> =
        resources.iter().map(|(name, resources)| json!({"name": name, "resources": resources})).collect();
    let mut text = json!({"containers": containers, "generation": pod.metadata.generation});
    if let (Some(error), Some(map)) = (error, text.as_object_mut()) {
        map.insert("error".into(), error.into());
    }
    format!("Pod resize {what}: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one container that asks for this and is restarted for memory.
    fn pod(cpu: &str, memory: &str) -> Pod {
        let yaml = format!(
            "{{metadata: {{name: p, uid: u}}, spec: {{containers: [{{name: a, resizePolicy: [{{resourceName: memory, \
             restartPolicy: RestartContainer}}], resources: {{requests: {{cpu: {cpu}}}, limits: {{memory: {memory}}}}}}}]}}}}"
        );
        serde_saphyr::from_str(&yaml).unwrap()
    }

    #[test]
    fn what_is_asked_for_waits_beside_what_is_agreed() {
        let (old, new) = (pod("100m", "1Gi"), pod("200m", "1Gi"));
        assert_eq!(split(&old, &resources(&old)), (None, Resources::new()));
        let (kept, wanted) = split(&new, &resources(&old));
        assert_eq!(kept.unwrap().spec, old.spec);
        assert_eq!(wanted, resources(&new));
    }

    #[test]
    fn what_is_changed_of_containers_is_told_apart() {
        let resources = |text: &str| -> Resources { serde_saphyr::from_str(text).unwrap() };
        let before = resources(
            "{a: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi}}, b: {requests: {cpu: '1'}}}",
        );
        let after = resources(
            "{a: {requests: {cpu: 200m}, limits: {memory: 1Gi, cpu: '1'}}, b: {requests: {cpu: 1000m}}, c: {}}",
        );
        assert_eq!(
            operations(&before, &after),
            [
                ["memory", "requests", "remove"],
                ["memory", "limits", "decrease"],
                ["cpu", "requests", "increase"],
                ["cpu", "limits", "add"],
            ]
        );
        assert!(operations(&after, &after).is_empty());
    }

    #[test]
    fn the_same_amount_in_other_words_is_no_resize() {
        assert_eq!(split(&pod("'0.1'", "1024Mi"), &resources(&pod("100m", "1Gi"))).1, Resources::new());
    }

    #[test]
    fn what_was_agreed_is_read_back_from_the_status() {
        let mut new = pod("200m", "2Gi");
        new.status = serde_saphyr::from_str(
            "{containerStatuses: [{name: a, image: i, imageID: i, ready: true, restartCount: 0, \
             allocatedResources: {cpu: 100m}, resources: {requests: {cpu: 100m}, limits: {memory: 1Gi}}}]}",
        )
        .unwrap();
        assert_eq!(recorded(&new), resources(&pod("100m", "1Gi")));
    }

    #[test]
    fn a_resize_goes_on_after_a_restart_of_the_kubelet() {
        let check = |conditions: &str, expect: (bool, Option<&str>, Option<i64>)| {
            let status = format!("{{status: {{conditions: [{conditions}]}}}}");
            let pod: Pod = serde_saphyr::from_str(&status).unwrap();
            let Resize { is_started, error, .. } = under_way(&pod);
            let since = waiting_since(&pod).map(Timestamp::as_second);
            assert_eq!((is_started, error.as_deref(), since), expect, "{conditions}");
        };
        check("", (false, None, None));
        check("{type: PodResizeInProgress, status: 'True'}", (true, None, None));
        let failed = "{type: PodResizeInProgress, status: 'True', reason: Error, message: no}";
        check(failed, (true, Some("no"), None));
        let waits = "{type: PodResizePending, status: 'True', lastTransitionTime: '1970-01-01T00:00:07Z'}";
        check(waits, (false, None, Some(7)));
    }

    #[test]
    fn a_node_agrees_to_what_it_has() {
        let amount = |cpu, memory| Amount { cpu, memory };
        let check = |asked, used, expect: &str| {
            let got = decide(asked, used, amount(2000, 1000));
            let got = got.err().map(|refused| format!("{}: {}", refused.reason.as_str(), refused.message));
            assert_eq!(got.unwrap_or_default(), expect);
        };
        check(amount(1000, 500), amount(1000, 500), "");
        check(
            amount(3000, 1),
            amount(0, 0),
            "Infeasible: Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000",
        );
        check(
            amount(1500, 1),
            amount(1000, 0),
            "Deferred: Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000",
        );
        check(
            amount(1, 600),
            amount(0, 500),
            "Deferred: Node didn't have enough resource: memory, requested: 600, used: 500, capacity: 1000",
        );
    }
}
