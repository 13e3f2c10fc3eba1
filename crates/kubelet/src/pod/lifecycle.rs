//! Whether a Pod, or a container of it, is over: what both the decisions and the status stand on. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as ContainerSpec, PodSpec};

use super::job::JobKey;
use super::roles::{Role, init_role};
use super::snapshot::{Container, Exit, PodSnapshot};
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
    if matches!(snapshot.recorded_phase(), "Succeeded" | "Failed") {
        return true;
    }
    let spec = snapshot.spec();
    let init_failed = spec.init_containers.iter().flatten().any(|c| {
        init_role(c) == Role::Init
            && latest_exit(snapshot, c).is_some_and(|e| e.code != 0 && !should_restart(spec, c, e.code))
    });
    let mains_done = !spec.containers.is_empty()
        && spec.containers.iter().all(|c| {
            latest_exit(snapshot, c).is_some_and(|e| !should_restart(spec, c, e.code))
                && !snapshot.busy.contains(&JobKey::Start(c.name.clone()))
        });
    init_failed || mains_done
}

pub(super) fn latest_exit<'a>(snapshot: &'a PodSnapshot, spec: &ContainerSpec) -> Option<&'a Exit> {
    snapshot.latest(&spec.name).and_then(Container::exit)
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
