//! One container's status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container as ContainerSpec, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, ContainerUser, LinuxContainerUser, ResourceRequirements,
    VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{NodeFacts, actual, pull_error_shown_until};
use crate::pod::lifecycle::{is_over, should_restart};
use crate::pod::roles::Role;
use crate::pod::snapshot::{self, Container, Exit, LOST_CODE, LOST_REASON, PodSnapshot};
use crate::pod::time::go_duration;
use crate::pod::time::whole_second;

/// Bytes of all termination messages of a Pod. Source: `MaxPodTerminationMessageLogLength` of upstream.
const MESSAGES_MAX: usize = 12 * 1024;

/// The status of the container that `spec` describes.
pub(super) fn status(
    snapshot: &PodSnapshot,
    node: &NodeFacts,
    spec: &ContainerSpec,
    role: Role,
    now: Timestamp,
) -> ContainerStatus {
    let latest = snapshot.latest(&spec.name);
    let old = snapshot.recorded(&spec.name);
    let (state, last_state) = states(snapshot, node, spec, role, now);
    let is_running = state.running.is_some();
    let started = is_running && latest.is_some_and(|c| snapshot.is_started(spec, c));
    let restart_count = match (latest, old) {
        (Some(container), _) => i32::try_from(container.attempt).unwrap_or(i32::MAX),
        (None, Some(old)) => old.restart_count + i32::from(is_lost(old) && !snapshot.is_terminating()),
        (None, None) => 0,
    };
    // The runtime may forget what has ended: what was known of it stays.
    let kept = old.filter(|_| latest.is_none()).filter(|old| has_ended(old));
    let is_ready = match role {
        Role::Init => state.terminated.as_ref().is_some_and(|t| t.exit_code == 0),
        Role::Ephemeral => false,
        Role::Main | Role::Sidecar => started && latest.is_some_and(|c| is_ready(snapshot, spec, c)),
    };
    ContainerStatus {
        name: spec.name.clone(),
        image: latest
            .map(|c| c.image.clone())
            .filter(|i| !i.is_empty())
            .or_else(|| spec.image.clone())
            .unwrap_or_default(),
        image_id: latest
            .map(|c| c.image_ref.clone())
            .or_else(|| Some(kept?.image_id.clone()))
            .unwrap_or_default(),
        container_id: latest.map(|c| id(node, c)).or_else(|| kept?.container_id.clone()),
        ready: is_ready,
        started: (role != Role::Ephemeral).then_some(started),
        restart_count,
        state: Some(state),
        last_state: Some(last_state),
        resources: actual::resources(snapshot, spec, latest, told_before(snapshot, node, latest)),
        allocated_resources: spec.resources.as_ref().and_then(|r| r.requests.clone()),
        user: latest.filter(|_| is_running).and_then(user),
        volume_mounts: volume_mounts(spec, latest),
        ..ContainerStatus::default()
    }
}

fn has_ended(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

/// Whether a container that the runtime does not have ran when it was heard of last.
fn is_lost(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// What was told of the resources of this very container.
fn told_before<'a>(
    snapshot: &'a PodSnapshot,
    node: &NodeFacts,
    container: Option<&Container>,
) -> Option<&'a ResourceRequirements> {
    let container = container?;
    let before = snapshot.recorded(&container.name)?;
    before.resources.as_ref().filter(|_| before.container_id.as_deref() == Some(&*id(node, container)))
}

fn id(node: &NodeFacts, container: &Container) -> String {
    format!("{}://{}", node.runtime_name, container.id)
}

fn is_ready(snapshot: &PodSnapshot, spec: &ContainerSpec, container: &Container) -> bool {
    spec.readiness_probe.is_none()
        || snapshot.probe_results(container).and_then(|p| p.readiness).unwrap_or(false)
}

fn user(container: &Container) -> Option<ContainerUser> {
    let (uid, gid, groups) = container.user.clone()?;
    Some(ContainerUser { linux: Some(LinuxContainerUser { uid, gid, supplemental_groups: Some(groups) }) })
}

fn volume_mounts(spec: &ContainerSpec, container: Option<&Container>) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.as_ref()?;
    let recursion = |path: &String| match container.is_some_and(|c| c.recursive_mounts.contains(path)) {
        true => "Enabled".to_owned(),
        false => "Disabled".to_owned(),
    };
    Some(
        mounts
            .iter()
            .map(|m| VolumeMountStatus {
                name: m.name.clone(),
                mount_path: m.mount_path.clone(),
                read_only: m.read_only.filter(|r| *r),
                recursive_read_only: (m.read_only == Some(true)).then(|| recursion(&m.mount_path)),
            })
            .collect(),
    )
}

/// The state now and the one before.
fn states(
    snapshot: &PodSnapshot,
    node: &NodeFacts,
    spec: &ContainerSpec,
    role: Role,
    now: Timestamp,
) -> (ContainerState, ContainerState) {
    let latest = snapshot.latest(&spec.name);
    let before = latest.and_then(|latest| {
        snapshot
            .containers
            .iter()
            .rev()
            .find(|c| c.name == spec.name && c.id != latest.id && c.exit().is_some())
    });
    let last = before.and_then(|c| Some(terminated(snapshot, node, c, c.exit()?))).unwrap_or_default();
    let Some(container) = latest else { return never_seen(snapshot, spec, role, now) };
    match &container.state {
        snapshot::ContainerState::Running { started_at } => {
            let running = ContainerStateRunning { started_at: Some(Time(whole_second(*started_at))) };
            (ContainerState { running: Some(running), ..ContainerState::default() }, last)
        }
        snapshot::ContainerState::Exited(exit) => {
            let state = terminated(snapshot, node, container, exit);
            match restart_waiting(snapshot, spec, role, exit, now) {
                Some(reason) => (reason, state),
                None => (state, last),
            }
        }
        snapshot::ContainerState::Created => (waiting(snapshot, spec, now), last),
        snapshot::ContainerState::Unknown => {
            let running = snapshot.recorded(&spec.name).and_then(|old| old.state.as_ref()?.running.clone());
            (waiting(snapshot, spec, now), running.map_or(last, lost))
        }
    }
}

/// The runtime has no such container: not yet, or no longer.
fn never_seen(
    snapshot: &PodSnapshot,
    spec: &ContainerSpec,
    role: Role,
    now: Timestamp,
) -> (ContainerState, ContainerState) {
    let old = snapshot.recorded(&spec.name);
    let state = old.and_then(|o| o.state.clone()).unwrap_or_default();
    let last = old.and_then(|o| o.last_state.clone()).unwrap_or_default();
    if let Some(ended) = &state.terminated {
        let is_done = is_over(snapshot, now) || (role == Role::Init && ended.exit_code == 0);
        return match blocked(snapshot, spec, now).filter(|_| !is_done) {
            Some(waiting) => (waiting, state),
            None => (state, last),
        };
    }
    match state.running.map(lost) {
        Some(lost) if snapshot.is_terminating() => (lost, last),
        Some(lost) => (waiting(snapshot, spec, now), lost),
        None => (waiting(snapshot, spec, now), last),
    }
}

/// Of one that ran and is not to be found.
fn lost(running: ContainerStateRunning) -> ContainerState {
    const MESSAGE: &str =
        "The container could not be located when the pod was deleted.  The container used to be Running";
    let terminated = ContainerStateTerminated {
        exit_code: LOST_CODE,
        reason: Some(LOST_REASON.into()),
        message: Some(MESSAGE.into()),
        started_at: running.started_at,
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn terminated(
    snapshot: &PodSnapshot,
    node: &NodeFacts,
    container: &Container,
    exit: &Exit,
) -> ContainerState {
    let reason = match (exit.reason.as_str(), exit.code) {
        ("", 0) => "Completed",
        ("", _) => "Error",
        (reason, _) => reason,
    };
    let terminated = ContainerStateTerminated {
        exit_code: exit.code,
        reason: Some(reason.into()),
        message: Some(share(snapshot, &exit.message)).filter(|message| !message.is_empty()),
        started_at: Some(Time(whole_second(exit.started_at))),
        finished_at: Some(Time(whole_second(exit.finished_at))),
        container_id: Some(id(node, container)),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

/// As much of a termination message as is one container's part of what its Pod's may have together.
fn share(snapshot: &PodSnapshot, message: &str) -> String {
    let spec = snapshot.spec();
    let init = spec.init_containers.iter().flatten().count();
    let ephemeral = spec.ephemeral_containers.iter().flatten().count();
    let most = MESSAGES_MAX / (spec.containers.len() + init + ephemeral).max(1);
    message.get(..message.floor_char_boundary(most)).unwrap_or_default().to_owned()
}

fn make_waiting(reason: &str, message: Option<String>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.into()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

/// Why an ended container that is to run again does not yet.
fn restart_waiting(
    snapshot: &PodSnapshot,
    spec: &ContainerSpec,
    role: Role,
    exit: &Exit,
    now: Timestamp,
) -> Option<ContainerState> {
    if is_over(snapshot, now) {
        return None;
    }
    if (role == Role::Init && exit.code == 0) || !should_restart(snapshot.spec(), spec, exit.code) {
        return None;
    }
    let crashes = snapshot.crashes.get(&spec.name);
    let Some((delay, _)) = crashes.and_then(|crashes| crashes.waiting(exit.finished_at, now)) else {
        return blocked(snapshot, spec, now);
    };
    let metadata = &snapshot.pod.metadata;
    let message = format!(
        "back-off {} restarting failed container={} pod={}_{}({})",
        go_duration(delay),
        spec.name,
        metadata.name.as_deref().unwrap_or_default(),
        metadata.namespace.as_deref().unwrap_or_default(),
        snapshot.uid(),
    );
    Some(make_waiting("CrashLoopBackOff", Some(message)))
}

/// What keeps a container from being created: its image, or the last failure.
fn blocked(snapshot: &PodSnapshot, spec: &ContainerSpec, now: Timestamp) -> Option<ContainerState> {
    if let Some(failure) = snapshot.failures.get(&spec.name) {
        return Some(make_waiting(failure.reason.as_str(), Some(failure.message.clone())));
    }
    let needed = crate::pod::needed_images::needed_by(snapshot.spec(), spec);
    let failed = |(image, _): (String, String)| Some((snapshot.images.get(&image)?.failure()?, image));
    let (failure, image) = needed.into_iter().find_map(failed)?;
    if !failure.reason.is_pull_failure() || now < pull_error_shown_until(failure) {
        return Some(make_waiting(failure.reason.as_str(), Some(failure.message.clone())));
    }
    let reason = failure.reason.as_str();
    let message = format!("Back-off pulling image \"{image}\": {reason}: {}", failure.message);
    Some(make_waiting("ImagePullBackOff", Some(message)))
}

fn waiting(snapshot: &PodSnapshot, spec: &ContainerSpec, now: Timestamp) -> ContainerState {
    if let Some(state) = blocked(snapshot, spec, now) {
        return state;
    }
    let has_init = snapshot.spec().init_containers.as_ref().is_some_and(|c| !c.is_empty());
    make_waiting(if has_init { "PodInitializing" } else { "ContainerCreating" }, None)
}
