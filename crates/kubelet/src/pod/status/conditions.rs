//! A Pod's conditions; transition times move only when a status does.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::incomplete;
use crate::pod::in_place::differences;
use crate::pod::resize;
use crate::pod::roles::{Role, init_role};
use crate::pod::snapshot::PodSnapshot;
use crate::pod::time::whole_second;

const DISRUPTION: &str = "DisruptionTarget";
/// Conditions that are there only while a resize is under way.
pub(super) const RESIZE: [&str; 2] = [resize::PENDING, resize::IN_PROGRESS];

/// What one condition says.
struct Verdict {
    type_: &'static str,
    is_true: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn yes(type_: &'static str) -> Self {
        Self { type_, is_true: true, reason: None, message: None }
    }

    fn no(type_: &'static str, reason: &'static str, message: Option<String>) -> Self {
        Self { type_, is_true: false, reason: Some(reason), message }
    }
}

/// The kubelet's conditions in upstream's order, then those that others own.
pub(super) fn conditions(snapshot: &PodSnapshot, status: &PodStatus, now: Timestamp) -> Vec<PodCondition> {
    let old = snapshot.pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
    let containers_ready = containers_ready(snapshot, status);
    let ready = ready(snapshot, &containers_ready, &old);
    let verdicts = [
        sandbox_ready(snapshot, status),
        initialized(snapshot, status),
        ready,
        containers_ready,
        Verdict::yes("PodScheduled"),
    ];
    let generation = snapshot.pod.metadata.generation;
    let mut conditions: Vec<_> =
        verdicts.iter().map(|verdict| carry_over(verdict, &old, generation, now)).collect();
    let disruption = disruption(snapshot).filter(|_| !super::is_held_back(snapshot));
    conditions.extend(disruption.iter().map(|verdict| carry_over(verdict, &old, generation, now)));
    let resize = resize(snapshot);
    conditions.extend(resize.iter().map(|verdict| carry_over(verdict, &old, generation, now)));
    let is_foreign = |type_: &str| {
        let is_disruption = disruption.is_some() && type_ == DISRUPTION;
        !RESIZE.contains(&type_) && !is_disruption && verdicts.iter().all(|v| v.type_ != type_)
    };
    let foreign = old.iter().filter(|condition| is_foreign(&condition.type_));
    conditions.extend(foreign.cloned());
    conditions
}

/// The node has driven the Pod out. Source: KEP-3329.
fn disruption(snapshot: &PodSnapshot) -> Option<Verdict> {
    let ending = snapshot.ending.as_ref().filter(|ending| ending.is_disruption)?;
    let message = Some(ending.message.clone());
    Some(Verdict { reason: Some("TerminationByKubelet"), message, ..Verdict::yes(DISRUPTION) })
}

/// A resize that waits for the node, and one that is being carried out.
fn resize(snapshot: &PodSnapshot) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let resize = &snapshot.resize;
    if let Some(refused) = &resize.refused {
        let (reason, message) = (Some(refused.reason.as_str()), Some(refused.message.clone()));
        verdicts.push(Verdict { reason, message, ..Verdict::yes(resize::PENDING) });
    }
    if resize.is_started && !differences(snapshot).is_empty() {
        let reason = resize.error.is_some().then_some("Error");
        verdicts.push(Verdict { reason, message: resize.error.clone(), ..Verdict::yes(resize::IN_PROGRESS) });
    }
    verdicts
}

fn carry_over(
    verdict: &Verdict,
    old: &[PodCondition],
    generation: Option<i64>,
    now: Timestamp,
) -> PodCondition {
    let status = if verdict.is_true { "True" } else { "False" };
    let before = old.iter().find(|c| c.type_ == verdict.type_);
    let kept = before.filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
    PodCondition {
        type_: verdict.type_.into(),
        status: status.into(),
        reason: verdict.reason.map(Into::into),
        message: verdict.message.clone(),
        last_probe_time: before.and_then(|c| c.last_probe_time.clone()),
        last_transition_time: kept.or(Some(Time(whole_second(now)))),
        observed_generation: generation,
    }
}

fn sandbox_ready(snapshot: &PodSnapshot, status: &PodStatus) -> Verdict {
    const TYPE: &str = "PodReadyToStartContainers";
    let has_network = snapshot.spec().host_network == Some(true) || status.pod_ip.is_some();
    let is_true = snapshot.ready_sandbox().is_some() && has_network && snapshot.volumes.is_ready();
    Verdict { type_: TYPE, is_true, reason: None, message: None }
}

fn initialized(snapshot: &PodSnapshot, status: &PodStatus) -> Verdict {
    const TYPE: &str = "Initialized";
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    if status.phase.as_deref() == Some("Succeeded") {
        return Verdict { reason: Some("PodCompleted"), ..Verdict::yes(TYPE) };
    }
    let incomplete: Vec<_> = incomplete(snapshot.spec(), init).map(|status| status.name.as_str()).collect();
    let has_begun = |status: &ContainerStatus| {
        status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    // Whoever has begun came after them, though sidecars may be on their way up again.
    if incomplete.is_empty() || status.container_statuses.iter().flatten().any(has_begun) {
        return Verdict::yes(TYPE);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Verdict::no(TYPE, "ContainersNotInitialized", Some(message))
}

fn containers_ready(snapshot: &PodSnapshot, status: &PodStatus) -> Verdict {
    const TYPE: &str = "ContainersReady";
    match status.phase.as_deref() {
        Some("Succeeded") => return Verdict::no(TYPE, "PodCompleted", None),
        Some("Failed") => return Verdict::no(TYPE, "PodFailed", None),
        _ => {}
    }
    let spec = snapshot.spec();
    let sidecars = spec.init_containers.iter().flatten().filter(|c| init_role(c) == Role::Sidecar);
    let statuses = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let is_unready = |name: &&str| statuses().any(|status| status.name == *name && !status.ready);
    // In the order of the spec, which is not that of the statuses.
    let names = sidecars.chain(&spec.containers).map(|container| container.name.as_str());
    let unready: Vec<_> = names.filter(is_unready).collect();
    if unready.is_empty() {
        return Verdict::yes(TYPE);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Verdict::no(TYPE, "ContainersNotReady", Some(message))
}

fn ready(snapshot: &PodSnapshot, containers: &Verdict, old: &[PodCondition]) -> Verdict {
    const TYPE: &str = "Ready";
    if !containers.is_true {
        return Verdict {
            type_: TYPE,
            is_true: false,
            reason: containers.reason,
            message: containers.message.clone(),
        };
    }
    let mut messages = Vec::new();
    for gate in snapshot.spec().readiness_gates.iter().flatten() {
        let name = &gate.condition_type;
        match old.iter().find(|c| c.type_ == *name) {
            None => messages
                .push(format!("corresponding condition of pod readiness gate \"{name}\" does not exist.")),
            Some(c) if c.status != "True" => messages.push(format!(
                "the status of pod readiness gate \"{name}\" is not \"True\", but {}",
                c.status
            )),
            Some(_) => {}
        }
    }
    if messages.is_empty() {
        return Verdict::yes(TYPE);
    }
    Verdict::no(TYPE, "ReadinessGatesNotReady", Some(messages.join(", ")))
}
