//! What to do next for one Pod: a pure function of its snapshot.
//!
//! Volumes, sandbox and images are prepared at the same time; a container is started when all three are there.
//! Init containers run one after the other, sidecars stay, main containers are started in the spec's order, one
//! at a time (a `postStart` hook holds up the next). Ephemeral containers need no more than the sandbox. Whatever is in [`PodSnapshot::busy`] is not asked for again.
//! Source: `kuberuntime.computePodActions` of upstream for the rules.

mod terminate;

use std::borrow::Cow;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container as ContainerSpec;

use super::identity::spec_hash;
use super::in_place::{difference, differences};
use super::job::JobKey;
use super::lifecycle::{deadline, is_over, latest_code, should_restart};
use super::needed_images::needed_by;
use super::roles::{Role, ephemeral, init_role};
use super::snapshot::{Container, ContainerState, Failure, PodSnapshot, Step};
use super::status::pull_error_shown_until;

/// One thing to be done for a Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodAction {
    /// Make the Pod's directories, files and mounts.
    PrepareVolumes,
    /// Have drivers prepare the Pod's claims.
    PrepareClaims,
    /// Have drivers take them back.
    UnprepareClaims,
    /// Start a sandbox with its network.
    RunSandbox {
        /// Its number over the Pod's life.
        attempt: u32,
    },
    /// Have the image, by the container's pull policy.
    PullImage {
        /// As the spec has it.
        image: String,
        /// `Always`, `IfNotPresent` or `Never`.
        policy: String,
    },
    /// Create and start a container, and run its `postStart` hook.
    Start {
        /// Its name in the spec.
        name: String,
        /// Its restart count.
        attempt: u32,
        /// When the last one ended, if there was one.
        after: Option<Timestamp>,
    },
    /// Run the `preStop` hook and stop a container.
    Kill {
        /// The runtime's id.
        id: String,
        /// Its name in the spec.
        name: String,
        /// Seconds.
        grace: i64,
        /// For the event.
        message: String,
        /// Ids of those that must have ended before, as far as its time goes.
        after: Vec<String>,
    },
    /// Say that a container that ended must wait before it is started again.
    TellBackOff {
        /// Its name in the spec.
        name: String,
        /// The runtime's id of the one that ended.
        id: String,
    },
    /// Change what a running container may use.
    Resize {
        /// The runtime's id.
        id: String,
        /// Its name in the spec.
        name: String,
        /// What the kernel is to have.
        resources: v1::LinuxContainerResources,
    },
    /// Remove a dead container that nobody can ask for any more.
    RemoveContainer {
        /// The runtime's id.
        id: String,
    },
    /// Stop a sandbox and its network.
    StopSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Remove a stopped sandbox of an earlier attempt.
    RemoveSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Take volumes and the cgroup back, which a Pod that is over needs no more.
    Release,
    /// Take everything back: containers, sandboxes, mounts, directories, cgroups.
    Cleanup,
    /// Delete the object: the node has finished with it.
    Delete,
    /// Look again at that time.
    WakeAt(Timestamp),
}

impl PodAction {
    /// What [`PodSnapshot::busy`] has while this is being carried out.
    pub fn key(&self) -> JobKey {
        match self {
            Self::PrepareVolumes => JobKey::Volumes,
            Self::PrepareClaims | Self::UnprepareClaims => JobKey::Claims,
            Self::RunSandbox { .. } => JobKey::Sandbox,
            Self::PullImage { image, .. } => JobKey::Image(image.clone()),
            Self::Start { name, .. } => JobKey::Start(name.clone()),
            Self::Kill { id, grace, .. } => JobKey::Kill { id: id.clone(), grace: *grace },
            Self::TellBackOff { id, .. } => JobKey::BackOff(id.clone()),
            Self::Resize { id, .. } => JobKey::Resize(id.clone()),
            Self::RemoveContainer { id } => JobKey::RemoveContainer(id.clone()),
            Self::StopSandbox { id } => JobKey::StopSandbox(id.clone()),
            Self::RemoveSandbox { id } => JobKey::RemoveSandbox(id.clone()),
            Self::Release => JobKey::Release,
            Self::Cleanup => JobKey::Cleanup,
            Self::Delete => JobKey::Delete,
            Self::WakeAt(_) => JobKey::Wake,
        }
    }
}

/// What to do now. Doing it twice does no harm.
pub fn next_actions(snapshot: &PodSnapshot, now: Timestamp) -> Vec<PodAction> {
    let mut actions = if snapshot.is_terminating() {
        terminate::all(snapshot)
    } else if is_over(snapshot, now) {
        terminate::all_but_logs(snapshot)
    } else {
        run(snapshot, now)
    };
    actions.extend(deadline(snapshot).filter(|end| *end > now).map(PodAction::WakeAt));
    actions.retain(|action| !snapshot.busy.contains(&action.key()));
    actions
}

fn run(snapshot: &PodSnapshot, now: Timestamp) -> Vec<PodAction> {
    let mut actions = Vec::new();
    let mut ready = true;
    ready &= want_volumes(snapshot, now, &mut actions);
    ready &= want_claims(snapshot, now, &mut actions) && want_sandbox(snapshot, now, &mut actions);
    let due = due(snapshot);
    actions.extend(due.kill);
    let is_starting = snapshot.busy.iter().any(|key| matches!(key, JobKey::Start(_)));
    let mut may_start = !is_starting;
    for container in due.start {
        if want_images(snapshot, &container, now, &mut actions)
            && ready
            && may_start
            && want_start(snapshot, &container, now, &mut actions)
        {
            may_start = false;
        }
    }
    actions.extend(resizes(snapshot));
    actions.extend(outdated(snapshot));
    actions
}

/// What can be resized while it runs.
fn resizes(snapshot: &PodSnapshot) -> impl Iterator<Item = PodAction> {
    let in_place = differences(snapshot).into_iter().filter(|(_, _, found)| !found.needs_restart);
    in_place.map(|(spec, container, found)| PodAction::Resize {
        id: container.id.clone(),
        name: spec.name.clone(),
        resources: found.resources,
    })
}

/// Whether `failure` lies so far back that it is time for the next try; wakes then if not.
fn is_due(failure: Option<&Failure>, now: Timestamp, actions: &mut Vec<PodAction>) -> bool {
    match failure.map(Failure::retry_at).filter(|retry| *retry > now) {
        Some(retry) => {
            actions.push(PodAction::WakeAt(retry));
            false
        }
        None => true,
    }
}

fn want_volumes(snapshot: &PodSnapshot, now: Timestamp, actions: &mut Vec<PodAction>) -> bool {
    if snapshot.volumes.is_ready() {
        return true;
    }
    if is_due(snapshot.volumes.failure(), now, actions) {
        actions.push(PodAction::PrepareVolumes);
    }
    false
}

/// Devices are there before the sandbox: who makes its network may need them.
fn want_claims(snapshot: &PodSnapshot, now: Timestamp, actions: &mut Vec<PodAction>) -> bool {
    let has_claims = snapshot.spec().resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
    if !has_claims || snapshot.claims.is_ready() {
        return true;
    }
    if is_due(snapshot.claims.failure(), now, actions) {
        actions.push(PodAction::PrepareClaims);
    }
    false
}

fn want_sandbox(snapshot: &PodSnapshot, now: Timestamp, actions: &mut Vec<PodAction>) -> bool {
    if snapshot.ready_sandbox().is_some() {
        return true;
    }
    let attempt = snapshot.sandboxes.last().map_or(0, |s| s.attempt + 1);
    // What still runs in a sandbox that broke is taken down before the next one comes up.
    let kills =
        terminate::kills(snapshot, |_| "Pod sandbox changed, it will be killed and re-created.".into());
    if !kills.is_empty() {
        actions.extend(kills);
        return false;
    }
    if is_due(snapshot.sandbox_failure.as_ref(), now, actions) {
        actions.push(PodAction::RunSandbox { attempt });
    }
    false
}

/// Whether the container's image is there, and those that are its volumes.
fn want_images(
    snapshot: &PodSnapshot,
    container: &ContainerSpec,
    now: Timestamp,
    actions: &mut Vec<PodAction>,
) -> bool {
    let mut are_there = true;
    for image in needed_by(snapshot.spec(), container) {
        are_there &= want_image(snapshot, image, now, actions);
    }
    are_there
}

fn want_image(
    snapshot: &PodSnapshot,
    (image, policy): (String, String),
    now: Timestamp,
    actions: &mut Vec<PodAction>,
) -> bool {
    let step = snapshot.images.get(&image).unwrap_or(&Step::Missing);
    if step.is_ready() {
        return true;
    }
    if let Some(failure) = step.failure() {
        // The waiting reason turns from ErrImagePull to ImagePullBackOff then.
        let shown = pull_error_shown_until(failure);
        actions.extend((shown > now).then_some(PodAction::WakeAt(shown)));
    }
    if is_due(step.failure(), now, actions) {
        let pull = PodAction::PullImage { image, policy };
        if !actions.contains(&pull) {
            actions.push(pull);
        }
    }
    false
}

/// Whether the container is started now.
fn want_start(
    snapshot: &PodSnapshot,
    container: &ContainerSpec,
    now: Timestamp,
    actions: &mut Vec<PodAction>,
) -> bool {
    let ended = snapshot.latest(&container.name).and_then(|ended| Some((ended, ended.exit()?)));
    if let Some((ended, exit)) = ended {
        let backoff = snapshot.crashes.get(&container.name).cloned().unwrap_or_default();
        if let Some((_, end)) = backoff.waiting(exit.finished_at, now) {
            actions.push(PodAction::TellBackOff { name: container.name.clone(), id: ended.id.clone() });
            actions.push(PodAction::WakeAt(end));
            return false;
        }
    }
    if !is_due(snapshot.failures.get(&container.name), now, actions) {
        return false;
    }
    actions.push(PodAction::Start {
        name: container.name.clone(),
        attempt: next_attempt(snapshot, container),
        after: ended.map(|(_, exit)| exit.finished_at),
    });
    true
}

/// The restart count of the next container of that name: also when the runtime has lost the one before. One that was
/// made and never started is the next one itself.
fn next_attempt(snapshot: &PodSnapshot, spec: &ContainerSpec) -> u32 {
    let name = &spec.name;
    if let Some(made) = snapshot.unstarted(spec) {
        return made.attempt;
    }
    if let Some(container) = snapshot.latest(name) {
        return container.attempt + 1;
    }
    let Some(known) = snapshot.recorded(name) else { return 0 };
    let ended = known.last_state.as_ref().and_then(|state| state.terminated.as_ref()?.container_id.as_ref());
    // A status without either is of one that was lost, and counts its end already.
    let is_counted = known.container_id.as_ref().or(ended).is_none_or(String::is_empty);
    u32::try_from(known.restart_count).unwrap_or(0) + u32::from(!is_counted)
}

#[derive(Default)]
struct Due<'a> {
    start: Vec<Cow<'a, ContainerSpec>>,
    kill: Vec<PodAction>,
}

/// Which containers are to be started, and which running ones must go first.
fn due(snapshot: &PodSnapshot) -> Due<'_> {
    let spec = snapshot.spec();
    let mut due = Due::default();
    // Before all others: they are there to find out why those do not start.
    let new = ephemeral(spec).into_iter().filter(|c| snapshot.latest(&c.name).is_none());
    due.start.extend(new.map(Cow::Owned));
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let mains_created = snapshot.has_begun_main();
    // Those before the last one that was begun have had their turn, whatever has become of them.
    let last_begun = init.iter().rposition(|c| snapshot.current(&c.name).is_some()).unwrap_or(0);
    for (index, container) in init.iter().enumerate() {
        let role = init_role(container);
        let had_its_turn = mains_created || index < last_begun;
        if role == Role::Init && had_its_turn {
            continue;
        }
        let need = assess(snapshot, container, role);
        let is_up = role == Role::Sidecar
            && snapshot.current(&container.name).is_some_and(|c| snapshot.is_started(container, c));
        let holds_up = !matches!(need, Need::Nothing) && !had_its_turn && !is_up;
        match need {
            Need::Nothing | Need::Patience => {}
            Need::Start => due.start.push(Cow::Borrowed(container)),
            Need::Kill(kill) => due.kill.push(*kill),
        }
        if holds_up {
            return due;
        }
    }
    for container in &spec.containers {
        match assess(snapshot, container, Role::Main) {
            Need::Nothing | Need::Patience => {}
            Need::Start => due.start.push(Cow::Borrowed(container)),
            Need::Kill(kill) => due.kill.push(*kill),
        }
    }
    due
}

enum Need {
    /// All is well.
    Nothing,
    /// It must get further before the next init container may start.
    Patience,
    Start,
    Kill(Box<PodAction>),
}

fn assess(snapshot: &PodSnapshot, spec: &ContainerSpec, role: Role) -> Need {
    let Some(container) = snapshot.current(&spec.name) else {
        // A main container that ended well does not run again only because the sandbox was lost.
        let done =
            latest_code(snapshot, spec).is_some_and(|code| !should_restart(snapshot.spec(), spec, code));
        return if role == Role::Main && done { Need::Nothing } else { Need::Start };
    };
    match &container.state {
        ContainerState::Created if snapshot.busy.contains(&JobKey::Start(spec.name.clone())) => {
            Need::Patience
        }
        ContainerState::Created => Need::Start,
        ContainerState::Unknown => kill(snapshot, spec, container, &KillReason::Unknown, role),
        ContainerState::Running { .. } => match kill_reason(snapshot, spec, container) {
            Some(reason) => kill(snapshot, spec, container, &reason, role),
            None if role == Role::Init => Need::Patience,
            None if role == Role::Sidecar && !snapshot.is_started(spec, container) => Need::Patience,
            None => Need::Nothing,
        },
        ContainerState::Exited(exit) if role == Role::Init && exit.code == 0 => Need::Nothing,
        ContainerState::Exited(exit) if should_restart(snapshot.spec(), spec, exit.code) => Need::Start,
        ContainerState::Exited(_) => Need::Nothing,
    }
}

fn kill(
    snapshot: &PodSnapshot,
    spec: &ContainerSpec,
    container: &Container,
    reason: &KillReason,
    role: Role,
) -> Need {
    Need::Kill(Box::new(PodAction::Kill {
        id: container.id.clone(),
        name: spec.name.clone(),
        grace: reason.grace(spec).unwrap_or_else(|| grace(snapshot)),
        message: reason.message(snapshot, spec, role),
        after: Vec::new(),
    }))
}

/// Why a running container must be killed.
enum KillReason {
    /// It may run or not: there must never be two of it.
    Unknown,
    DefinitionChanged,
    ResizeNeedsRestart,
    Liveness,
    Startup,
}

impl KillReason {
    /// For the event, in upstream's words.
    fn message(&self, snapshot: &PodSnapshot, spec: &ContainerSpec, role: Role) -> String {
        let name = &spec.name;
        let is_init = matches!(role, Role::Init | Role::Sidecar);
        let policy = spec.restart_policy.as_deref().or(snapshot.spec().restart_policy.as_deref());
        let (what, comes_back) = match self {
            Self::ResizeNeedsRestart => return format!("Container {name} resize requires restart"),
            Self::Unknown => {
                let whose = if is_init { "Init container" } else { "Container" };
                return format!("{whose} is in \"unknown\" state, try killing it before restart");
            }
            Self::DefinitionChanged => ("definition changed", true),
            Self::Liveness => ("failed liveness probe", policy != Some("Never")),
            Self::Startup => ("failed startup probe", policy != Some("Never")),
        };
        match (is_init, comes_back) {
            (true, _) => format!("Init container {name} {what}"),
            (false, true) => format!("Container {name} {what}, will be restarted"),
            (false, false) => format!("Container {name} {what}"),
        }
    }

    /// A probe may bring a grace period of its own.
    fn grace(&self, spec: &ContainerSpec) -> Option<i64> {
        let probe = match self {
            Self::Liveness => spec.liveness_probe.as_ref(),
            Self::Startup => spec.startup_probe.as_ref(),
            Self::DefinitionChanged | Self::ResizeNeedsRestart | Self::Unknown => None,
        };
        probe?.termination_grace_period_seconds
    }
}

/// `None` if it need not be killed.
fn kill_reason(snapshot: &PodSnapshot, spec: &ContainerSpec, container: &Container) -> Option<KillReason> {
    if !container.hash.is_empty() && container.hash != spec_hash(spec) {
        return Some(KillReason::DefinitionChanged);
    }
    if difference(snapshot.spec(), spec, container).is_some_and(|found| found.needs_restart) {
        return Some(KillReason::ResizeNeedsRestart);
    }
    let results = snapshot.probe_results(container)?;
    match (results.liveness, results.startup) {
        (Some(false), _) => Some(KillReason::Liveness),
        (_, Some(false)) => Some(KillReason::Startup),
        _ => None,
    }
}

/// How long a container may take to stop, in seconds.
fn grace(snapshot: &PodSnapshot) -> i64 {
    let metadata = &snapshot.pod.metadata;
    let spec_grace = snapshot.spec().termination_grace_period_seconds.unwrap_or(30);
    let grace = match metadata.deletion_timestamp {
        // The node itself deletes the object last of all: somebody did it by force, which is with no grace.
        _ if snapshot.removed_from_api && !snapshot.is_static() => 0,
        Some(_) => metadata.deletion_grace_period_seconds.unwrap_or(spec_grace),
        None => spec_grace,
    };
    let most = snapshot.ending.as_ref().and_then(|ending| ending.grace);
    most.map_or(grace, |most| grace.min(most)).max(1)
}

/// Dead containers beside the newest two of each name, and dead sandboxes beside the newest.
fn outdated(snapshot: &PodSnapshot) -> Vec<PodAction> {
    let mut seen = std::collections::BTreeMap::<&str, u32>::new();
    let mut actions = Vec::new();
    for container in snapshot.containers.iter().rev() {
        let count = seen.entry(&container.name).or_default();
        *count += 1;
        if *count > 2 && container.exit().is_some() {
            actions.push(PodAction::RemoveContainer { id: container.id.clone() });
        }
    }
    if let (Some(_), Some((_, old))) = (snapshot.ready_sandbox(), snapshot.sandboxes.split_last()) {
        let is_empty = |id: &str| snapshot.containers.iter().all(|c| c.sandbox_id != id);
        let dead = old.iter().filter(|s| is_empty(&s.id));
        actions.extend(dead.map(|s| PodAction::RemoveSandbox { id: s.id.clone() }));
    }
    actions
}

#[cfg(test)]
mod tests;
