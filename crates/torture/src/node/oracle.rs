//! What must hold of Pods while processes are killed: pure, one function per promise. Each gives a line per breach.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use super::shapes::Goal;

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The statuses of init and main containers.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| {
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
    })
}

/// A condition's status and when it changed last.
fn condition<'p>(pod: &'p Pod, type_: &str) -> Option<(&'p str, String)> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    let since = found.last_transition_time.as_ref().map(|time| time.0.to_string());
    Some((&found.status, since.unwrap_or_default()))
}

/// `true` if the Pod says that it is Ready.
#[must_use]
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|(status, _)| status == "True")
}

/// `true` if a Pod has got to what it is for.
#[must_use]
pub fn is_reached(pod: &Pod, goal: Goal, may_have_failed: bool) -> bool {
    match goal {
        Goal::Ready => is_ready(pod),
        Goal::Done => phase(pod) == "Succeeded" || may_have_failed && phase(pod) == "Failed",
        Goal::Restarted => containers(pod).any(|container| container.restart_count > 0),
    }
}

/// A Pod that nobody touches is the same all the time: the same containers, addresses and times.
#[must_use]
pub fn unsteady(before: &Pod, now: Option<&Pod>) -> Vec<String> {
    let Some(now) = now else { return vec![format!("{} is gone", name(before))] };
    let mut breaches = Vec::new();
    let mut same = |what: &str, before_is: String, now_is: String| {
        if before_is != now_is {
            breaches.push(format!("{}: {what} was {before_is} and is {now_is}", name(before)));
        }
    };
    same("uid", format!("{:?}", before.metadata.uid), format!("{:?}", now.metadata.uid));
    same("phase", phase(before).to_owned(), phase(now).to_owned());
    for type_ in ["Ready", "ContainersReady", "Initialized", "PodReadyToStartContainers"] {
        same(type_, format!("{:?}", condition(before, type_)), format!("{:?}", condition(now, type_)));
    }
    let address = |pod: &Pod| format!("{:?}", pod.status.as_ref().and_then(|status| status.pod_ip.clone()));
    same("address", address(before), address(now));
    let container = |pod: &Pod| -> BTreeMap<String, String> {
        containers(pod)
            .map(|it| {
                (
                    it.name.clone(),
                    format!("{:?} after {} restarts, {:?}", it.container_id, it.restart_count, it.state),
                )
            })
            .collect()
    };
    let now_are = container(now);
    for (name, before_is) in container(before) {
        same(&name, before_is, now_are.get(&name).cloned().unwrap_or_default());
    }
    breaches
}

/// Pods that run have addresses of their own.
#[must_use]
pub fn shared_addresses<'p>(pods: impl Iterator<Item = &'p Pod>) -> Vec<String> {
    let mut owners = BTreeMap::<&str, &str>::new();
    let mut breaches = Vec::new();
    for pod in pods.filter(|pod| is_connected(pod)) {
        let Some(ip) = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()) else { continue };
        if let Some(other) = owners.insert(ip, name(pod)) {
            breaches.push(format!("{other} and {} have the address {ip}", name(pod)));
        }
    }
    breaches
}

/// Runs, with a network of its own, and has not been told to go.
fn is_connected(pod: &Pod) -> bool {
    let is_on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let is_up = condition(pod, "PodReadyToStartContainers").is_some_and(|(status, _)| status == "True");
    phase(pod) == "Running" && is_up && !is_on_host && pod.metadata.deletion_timestamp.is_none()
}

/// A kill of what looks after a container is no restart of it.
#[must_use]
pub fn restarts(pod: &Pod) -> Vec<String> {
    let restarted = containers(pod).filter(|container| container.restart_count > 0);
    let line = |it: &ContainerStatus| {
        format!("{}: {} was restarted {} times, {:?}", name(pod), it.name, it.restart_count, it.last_state)
    };
    restarted.map(line).collect()
}

/// Within what each part acts on a change, the processes being killed and started anew.
pub const FOLLOWS_WITHIN: Duration = Duration::from_secs(200);

/// Each part follows the store, whatever lies in it.
#[must_use]
pub fn late(part: &str, waited: Duration) -> Option<String> {
    let is_late = waited > FOLLOWS_WITHIN;
    is_late.then(|| format!("{part} has not followed the store for {} s", waited.as_secs()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, status: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": name, "uid": name }, "status": status }))
            .unwrap()
    }

    fn ready(name: &str, ip: &str, since: &str, restarts: i32) -> Pod {
        let condition = |type_: &str| json!({ "type": type_, "status": "True", "lastTransitionTime": since });
        let container = json!({
            "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": restarts,
            "containerID": format!("knarr://{restarts}"),
        });
        pod(
            name,
            json!({
                "phase": "Running", "podIP": ip, "containerStatuses": [container],
                "conditions": [condition("Ready"), condition("PodReadyToStartContainers")],
            }),
        )
    }

    #[test]
    fn a_part_that_does_not_follow_is_named() {
        for (waited, expect) in
            [(0, None), (200, None), (201, Some("the scheduler has not followed the store for 201 s"))]
        {
            assert_eq!(late("the scheduler", Duration::from_secs(waited)).as_deref(), expect);
        }
    }

    const THEN: &str = "2026-01-01T00:00:00Z";
    const LATER: &str = "2026-01-01T00:00:09Z";

    #[test]
    fn a_pod_that_stays_is_the_same() {
        let before = ready("a", "10.0.0.1", THEN, 0);
        let cases = [
            ("the same", Some(ready("a", "10.0.0.1", THEN, 0)), 0),
            ("it was not Ready in between", Some(ready("a", "10.0.0.1", LATER, 0)), 2),
            ("another container", Some(ready("a", "10.0.0.1", THEN, 1)), 1),
            ("another address", Some(ready("a", "10.0.0.2", THEN, 0)), 1),
            ("it is gone", None, 1),
        ];
        for (name, now, expect) in cases {
            let breaches = unsteady(&before, now.as_ref());
            assert_eq!(breaches.len(), expect, "{name}: {breaches:?}");
        }
    }

    #[test]
    fn two_pods_with_one_address_are_a_breach() {
        let mut going = ready("c", "10.0.0.1", THEN, 0);
        going.metadata.deletion_timestamp = serde_json::from_value(json!(THEN)).unwrap();
        let done = pod("d", json!({ "phase": "Succeeded", "podIP": "10.0.0.1" }));
        let (a, b) = (ready("a", "10.0.0.1", THEN, 0), ready("b", "10.0.0.1", THEN, 0));
        assert!(shared_addresses([&a, &going, &done].into_iter()).is_empty(), "what is over has none");
        let breaches = shared_addresses([&a, &b].into_iter());
        assert_eq!(breaches, ["a and b have the address 10.0.0.1"]);
    }

    #[test]
    fn a_restart_is_a_breach() {
        assert!(restarts(&ready("a", "10.0.0.1", THEN, 0)).is_empty());
        assert_eq!(restarts(&ready("a", "10.0.0.1", THEN, 2)).len(), 1);
    }

    #[test]
    fn a_goal_is_reached() {
        let (succeeded, failed) =
            (pod("a", json!({ "phase": "Succeeded" })), pod("a", json!({ "phase": "Failed" })));
        assert!(is_reached(&succeeded, Goal::Done, false) && !is_reached(&failed, Goal::Done, false));
        assert!(is_reached(&failed, Goal::Done, true), "who kept its exit code was killed");
        assert!(is_reached(&ready("a", "", THEN, 0), Goal::Ready, false));
        assert!(!is_reached(&ready("a", "", THEN, 0), Goal::Restarted, false));
        assert!(is_reached(&ready("a", "", THEN, 1), Goal::Restarted, false));
    }
}
