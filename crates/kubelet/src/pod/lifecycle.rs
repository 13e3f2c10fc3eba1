//! Whether a Pod, or a container of it, is over: what both the decisions and the status stand on. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self, Container as ContainerSpec, PodSpec};

use super::job::JobKey;
use super::roles::{Role, init_role};
use super::snapshot::{ContainerState, Exit, LOST_CODE, PodSnapshot};
use super::time::after;

/// When `activeDeadlineSeconds` are over.
pub(super) fn deadline(snapshot: &PodSnapshot) -> Option<Timestamp> {
    let seconds = u64::try_from(snapshot.spec().active_deadline_seconds?).ok()?;
    let start = snapshot.pod.status.as_ref()?.start_time.as_ref()?.0;
    Some(after(start, std::time::Duration::from_secs(seconds)))
}

/// The Pod has been active for longer than its spec allows.
pub fn is_past_deadline(snapshot: &PodSnapshot, now: Timestamp) -> bool {
    deadline(snapshot).is_some_and(|end| end <= now)
}

/// Nothing of the Pod is to run at `now` or later.
pub fn is_over(snapshot: &PodSnapshot, now: Timestamp) -> bool {
    snapshot.is_terminating() || is_finished(snapshot) || is_past_deadline(snapshot, now)
}

/// Nothing of the Pod will ever be started again.
pub fn is_finished(snapshot: &PodSnapshot) -> bool {
    if snapshot.ending.is_some() {
        return true;
    }
    if matches!(snapshot.recorded_phase(), "Succeeded" | "Failed") || is_lost(snapshot) {
        return true;
    }
    let spec = snapshot.spec();
    let init_failed = spec.init_containers.iter().flatten().any(|c| {
        init_role(c) == Role::Init
            && latest_code(snapshot, c).is_some_and(|code| code != 0 && !should_restart(spec, c, code))
    });
    let mains_done = !spec.containers.is_empty()
        && spec.containers.iter().all(|c| {
            latest_code(snapshot, c).is_some_and(|code| !should_restart(spec, c, code))
                && !snapshot.busy.contains(&JobKey::Start(c.name.clone()))
        });
    init_failed || mains_done
}

/// A Pod that runs once gets no other sandbox when one is lost in which something was made: nothing of it runs twice, not
/// even init containers. Upstream leaves it at that, and the Pod in its phase for ever; here it has failed.
///
/// Source: `computePodActions` of upstream's `pkg/kubelet/kuberuntime`.
fn is_lost(snapshot: &PodSnapshot) -> bool {
    snapshot.spec().restart_policy.as_deref() == Some("Never")
        && !snapshot.sandboxes.is_empty()
        && snapshot.ready_sandbox().is_none()
        && !snapshot.containers.is_empty()
}

/// The code with which the newest container of that name has ended; what the runtime has lost, the API may still know.
///
/// Nobody knows how one ended that ran and is lost: that counts as a failure, so that what is to run once does not run
/// twice. Source: `convertToAPIContainerStatuses` of upstream's `pkg/kubelet/kubelet_pods.go`.
pub(super) fn latest_code(snapshot: &PodSnapshot, spec: &ContainerSpec) -> Option<i32> {
    let recorded = || snapshot.recorded(&spec.name);
    let has_run = || recorded()?.state.as_ref()?.running.as_ref().map(|_| LOST_CODE);
    let Some(container) = snapshot.latest(&spec.name) else {
        let code = |state: &Option<v1::ContainerState>| Some(state.as_ref()?.terminated.as_ref()?.exit_code);
        let known = recorded()?;
        return code(&known.state).or_else(has_run).or_else(|| code(&known.last_state));
    };
    match &container.state {
        ContainerState::Exited(Exit { code, .. }) => Some(*code),
        ContainerState::Unknown => has_run(),
        ContainerState::Created | ContainerState::Running { .. } => None,
    }
}

/// Whether a container that ended with `code` is to be started again.
///
/// Source: `PodSpec.restartPolicy`, overridden by `Container.restartPolicy` and its rules (KEP-5307).
pub fn should_restart(spec: &PodSpec, container: &ContainerSpec, code: i32) -> bool {
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(codes) = &rule.exit_codes else { continue };
        let listed = codes.values.iter().flatten().any(|value| *value == code);
        if rule.action == "Restart" && listed == (codes.operator == "In") {
            return true;
        }
    }
    match container.restart_policy.as_deref().or(spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
