//! Whether what a checkpoint says can be so on this machine. Pure.
//!
//! Source: `validateState` of `policy_static.go`, and `restoreState` of `state_checkpoint.go`.

use super::{CpuSet, State, StaticPolicy};
use crate::checkpoint::Impossible;

/// # Errors
/// Why not.
pub(super) fn check(state: &State, all: &CpuSet, policy: &StaticPolicy) -> Result<(), Impossible> {
    let text = &state.default_cpu_set;
    let shared: CpuSet = text.parse().map_err(|error| Impossible::DefaultCpus(text.clone(), error))?;
    let mut known = shared.clone();
    for (pod, containers) in &state.entries {
        for (container, text) in containers {
            let (container, pod) = (container.clone(), pod.clone());
            let cpus: CpuSet = match text.parse() {
                Ok(cpus) => cpus,
                Err(source) => {
                    return Err(Impossible::Cpus { text: text.clone(), container, pod, source });
                }
            };
            if !cpus.and(&shared).is_empty() {
                return Err(Impossible::Overlap { pod, container, cpus, shared });
            }
            known = known.or(&cpus);
        }
    }
    if shared.is_empty() && state.entries.is_empty() {
        return Ok(());
    }
    let reserved = &policy.reserved;
    if policy.is_reservation_strict {
        let both = reserved.and(&shared);
        if !both.is_empty() {
            return Err(Impossible::ReservedShared(both, shared));
        }
        known = known.or(reserved);
    } else if !reserved.minus(&shared).is_empty() {
        return Err(Impossible::ReservedMissing(reserved.clone(), shared));
    }
    if known != *all {
        return Err(Impossible::OtherCpus(all.clone(), known));
    }
    Ok(())
}
