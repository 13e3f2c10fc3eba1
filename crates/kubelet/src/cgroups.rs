//! The cgroups above containers: of all Pods together, of the quality-of-service classes, of each Pod.
//!
//! The kubelet makes them, so that whatever the runtime puts below is held together, pause processes included. Where
//! the host lacks a controller the limit is noted as missing and nothing fails.
//! Source: `pkg/kubelet/cm` of upstream.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use machinery::quantity::Quantity;
use sys::cgroup::{Cgroups, Limits};

use crate::config::{Config, ReservedCgroup};
use crate::context::Context;
use crate::metrics::Measure;
use crate::node::Machine;
use crate::qos;

/// The cgroup of all Pods.
pub(crate) fn kubepods(config: &Config) -> String {
    format!("{}/kubepods", config.cgroup_root.trim_end_matches('/'))
}

/// Of all Pods together: what is not reserved, whatever the eviction thresholds keep. Blocking.
pub(crate) fn limit_all(config: &Config, machine: &Machine) {
    let root = kubepods(config);
    let memory = i64::try_from(machine.memory).unwrap_or(i64::MAX);
    let cpus = i64::try_from(machine.cpus * 1000).unwrap_or(i64::MAX) - config.reserved.milli("cpu");
    let pids = Some(config.reserved.whole("pid")).filter(|pids| *pids > 0);
    let limits = Limits {
        cpu_shares: u64::try_from(qos::cpu_shares(cpus)).ok(),
        memory_max_bytes: Some(memory - config.reserved.whole("memory")).filter(|bytes| *bytes > 0),
        pids_max: pids.map(|reserved| (machine.pids_max - reserved).max(1)),
        ..Limits::default()
    };
    set(&root, &limits);
    for class in ["burstable", "besteffort"] {
        set(&format!("{root}/{class}"), &Limits { cpu_shares: Some(2), ..Limits::default() });
    }
}

/// Of what the operator has put Kubernetes' and the system's processes in: what is reserved for them. Blocking.
///
/// # Errors
/// In upstream's words: there is no such cgroup, or it takes no limits.
pub(crate) fn limit_reserved(config: &Config) -> Result<(), String> {
    let cgroups = Cgroups::detect().map_err(|error| error.to_string())?;
    let all = [
        ("System", &config.enforced.system, &config.reserved.system),
        ("Kube", &config.enforced.kube, &config.reserved.kube),
    ];
    for (name, cgroup, amounts) in all {
        let Some(ReservedCgroup { path, is_cpu_only }) = cgroup else { continue };
        let failed =
            |why: String| format!("failed to enforce {name} Reserved Cgroup Limits on {path:?}: {why}");
        if !cgroups.exists(path) {
            return Err(failed(format!("{path:?} cgroup does not exist")));
        }
        let limits = reserved_limits(amounts, *is_cpu_only);
        let missing = cgroups.set_limits(path, &limits).map_err(|error| failed(error.to_string()))?;
        if !missing.is_empty() {
            tracing::warn!(path, ?missing, "the host has not all controllers for what is reserved");
        }
    }
    Ok(())
}

fn reserved_limits(amounts: &BTreeMap<String, String>, is_cpu_only: bool) -> Limits {
    let amount = |name: &str| amounts.get(name).and_then(|text| text.parse::<Quantity>().ok());
    let cpu = amount("cpu").map(Quantity::milli_value).filter(|milli| *milli > 0);
    let whole = |name: &str| amount(name).map(Quantity::value).filter(|n| *n > 0 && !is_cpu_only);
    Limits {
        cpu_shares: cpu.and_then(|milli| u64::try_from(qos::cpu_shares(milli)).ok()),
        memory_max_bytes: whole("memory"),
        pids_max: whole("pid"),
        ..Limits::default()
    }
}

/// Which limits of a Pod are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Which {
    pub(crate) cpu: bool,
    pub(crate) memory: bool,
}

impl Which {
    pub(crate) const ALL: Self = Self { cpu: true, memory: true };
    pub(crate) const NONE: Self = Self { cpu: false, memory: false };
}

/// Of one Pod, before its sandbox is made.
///
/// # Errors
/// A text: the cgroup cannot be made.
pub(crate) async fn limit_pod(context: &Context, pod: &Pod, which: Which) -> Result<(), String> {
    let is_wanted = context.config.cgroups_per_qos && which != Which::NONE;
    let Some(spec) = pod.spec.as_ref().filter(|_| is_wanted) else { return Ok(()) };
    let mut wanted = qos::pod_resources(spec);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let has_own =
        |cpus: &crate::cpu::CpuManager| containers.any(|c| !cpus.exclusive(uid, &c.name).is_empty());
    if context.cpus.as_ref().is_some_and(has_own) {
        wanted.cpu_quota = qos::UNLIMITED_QUOTA;
    }
    crate::huge_pages::deny_others(&mut wanted.hugepage_limits, &context.page_sizes);
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let some = |number: i64| (number != 0).then_some(number);
    let limits = Limits {
        cpu_shares: positive(wanted.cpu_shares).filter(|_| which.cpu),
        cpu_quota_us: some(wanted.cpu_quota).filter(|_| which.cpu),
        cpu_period_us: positive(wanted.cpu_period).filter(|_| which.cpu && wanted.cpu_quota != 0),
        memory_max_bytes: some(wanted.memory_limit_in_bytes).filter(|_| which.memory),
        pids_max: Some(context.config.pod_pids_limit).filter(|limit| *limit > 0),
        huge_pages: wanted.hugepage_limits.into_iter().map(|limit| (limit.page_size, limit.limit)).collect(),
        ..Limits::default()
    };
    let path = qos::cgroup_parent(&context.config.cgroup_root, pod);
    let start = std::time::Instant::now();
    let set = tokio::task::spawn_blocking(move || set(&path, &limits));
    let operation = if set.await.map_err(|error| error.to_string())? { "update" } else { "create" };
    context.metrics.measure(Measure::CgroupManager, &[operation], start.elapsed());
    Ok(())
}

/// Whether it was there before.
fn set(path: &str, limits: &Limits) -> bool {
    let mut was_there = false;
    let done = Cgroups::detect().and_then(|cgroups| {
        was_there = cgroups.exists(path);
        cgroups.create(path)?;
        cgroups.set_limits(path, limits)
    });
    match done {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => tracing::debug!(path, ?missing, "the host has not all controllers for a cgroup"),
        Err(error) => tracing::warn!(path, %error, "a cgroup was not limited"),
    }
    was_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_what_the_operators_cgroup_may_have() {
        let amounts = ["cpu=500m", "memory=1Gi", "pid=100", "ephemeral-storage=1Gi"];
        let amounts = amounts.iter().filter_map(|text| text.split_once('='));
        let amounts = amounts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        let all = Limits {
            cpu_shares: Some(512),
            memory_max_bytes: Some(1 << 30),
            pids_max: Some(100),
            ..Limits::default()
        };
        assert_eq!(reserved_limits(&amounts, false), all);
        let cpu = Limits { cpu_shares: Some(512), ..Limits::default() };
        assert_eq!(reserved_limits(&amounts, true), cpu);
    }
}
