//! Whether what a checkpoint says can be so on this machine. Pure.
//!
//! Source: `validateState` of `policy_static.go`, and `restoreState` of `state_checkpoint.go`.

use super::{CpuSet, State, StaticPolicy};

/// # Errors
/// Why not, in upstream's words.
pub(super) fn check(state: &State, all: &CpuSet, policy: &StaticPolicy) -> Result<(), String> {
    let text = &state.default_cpu_set;
    let shared: CpuSet =
        text.parse().map_err(|error| format!("could not parse default cpu set {text:?}: {error}"))?;
    let mut known = shared.clone();
    for (pod, containers) in &state.entries {
        for (container, text) in containers {
            let cpus: CpuSet = text.parse().map_err(|error| {
                format!("could not parse cpuset {text:?} for container {container:?} in pod {pod:?}: {error}")
            })?;
            if !cpus.and(&shared).is_empty() {
                return Err(format!(
                    "pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{shared}\""
                ));
            }
            known = known.or(&cpus);
        }
    }
    if shared.is_empty() && state.entries.is_empty() {
        return Ok(());
    }
    let reserved = &policy.reserved;
    if policy.is_reservation_strict {
        if !reserved.and(&shared).is_empty() {
            return Err(format!(
                "some of strictly reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\""
            ));
        }
        known = known.or(reserved);
    } else if !reserved.minus(&shared).is_empty() {
        return Err(format!(
            "not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{shared}\""
        ));
    }
    if known != *all {
        return Err(format!(
            "current set of available CPUs \"{all}\" doesn't match with CPUs in state \"{known}\""
        ));
    }
    Ok(())
}
