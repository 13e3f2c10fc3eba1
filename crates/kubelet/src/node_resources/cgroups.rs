//! The cgroups above containers: of all Pods together, of the quality-of-service classes, of each Pod.
//!
//! The kubelet makes them, so that whatever the runtime puts below is held together, pause processes included. Where
//! the host lacks a controller the limit is noted as missing and nothing fails.
//! Source: `pkg/kubelet/cm` of upstream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use controller::EventType;
use k8s_openapi::api::core::v1::Pod;
use machinery::quantity::Quantity;
use sys::cgroup::{Cgroups, Limits};

use crate::config::{Config, ReservedCgroup};
use crate::machine::Machine;
use crate::metrics::Measure;
use crate::node_resources::NodeResources;
use crate::pod::{huge_pages, qos};

/// The cgroup of all Pods.
pub(crate) fn kubepods(config: &Config) -> String {
    format!("{}/kubepods", config.cgroup_root.trim_end_matches('/'))
}

/// The weight of those that ask for nothing. Source: `MinShares`.
const SHARES_MIN: u64 = 2;

/// Why a cgroup does not hold what is in it to what it may have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    /// The kernel has not taken a limit.
    #[error(transparent)]
    Kernel(#[from] sys::Error),
    /// What is reserved is for processes in a cgroup that is not there; in upstream's words.
    #[error("failed to enforce {name} Reserved Cgroup Limits on {path:?}: {path:?} cgroup does not exist")]
    NoReserved { name: &'static str, path: String },
    /// The kernel has not taken what is reserved for a limit; in upstream's words.
    #[error("failed to enforce {name} Reserved Cgroup Limits on {path:?}: {source}")]
    Reserved { name: &'static str, path: String, source: sys::Error },
    /// It was not tried to the end.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

/// Makes the cgroups of all Pods together and of their classes. Blocking.
///
/// # Errors
/// A text: Pods are not held below what they may have, as when they use more already.
pub(crate) fn limit_all(config: &Config, machine: &Machine) -> Result<(), CgroupError> {
    let root = kubepods(config);
    let limited = try_set(&root, &limits_of_all(config, machine));
    let least = Limits { cpu_shares: Some(SHARES_MIN), ..Limits::default() };
    set(&format!("{root}/besteffort"), &least);
    let burstable = format!("{root}/burstable");
    // What is known of those that run already comes with them.
    if !Cgroups::detect().is_ok_and(|cgroups| cgroups.exists(&burstable)) {
        set(&burstable, &least);
    }
    limited.map(drop)
}

/// What the machine has, less what is reserved if that is to be kept from Pods. Eviction thresholds and the file system
/// do not matter. Source: `getNodeAllocatableInternalAbsolute`, `getCgroupConfig`.
fn limits_of_all(config: &Config, machine: &Machine) -> Limits {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (mut cpu, mut memory, mut pids) =
        (number(machine.cpus * 1000), number(machine.memory), machine.pids_max);
    let pages = machine.huge_pages.iter().map(|(size, count)| (*size, size.saturating_mul(*count)));
    if config.enforced.pods {
        cpu = cpu.saturating_sub(config.reserved.milli("cpu")).max(0);
        memory = memory.saturating_sub(config.reserved.whole("memory")).max(0);
        pids = pids.saturating_sub(config.reserved.whole("pid")).max(1);
    }
    memory = pages.clone().fold(memory, |memory, (_, bytes)| memory.saturating_sub(number(bytes)));
    let named = pages.filter_map(|(size, bytes)| Some((huge_pages::kernel_name(number(size))?, bytes)));
    Limits {
        cpu_shares: u64::try_from(qos::cpu_shares(cpu)).ok(),
        memory_max_bytes: Some(memory).filter(|bytes| *bytes > 0),
        pids_max: Some(pids),
        huge_pages: named.collect(),
        ..Limits::default()
    }
}

/// Before limits that the kernel did not take are set again.
const RETRY: Duration = Duration::from_secs(60);
/// Source: `SuccessfulNodeAllocatableEnforcement`, `FailedNodeAllocatableEnforcement`.
const ENFORCED: &str = "NodeAllocatableEnforced";
const NOT_ENFORCED: &str = "FailedNodeAllocatableEnforcement";

/// Tells how far Pods and what is reserved are held to what they may have; what the kernel has not taken is tried again
/// until enough Pods have gone.
pub(crate) async fn enforce(
    resources: Arc<NodeResources>,
    machine: Arc<Machine>,
    mut limited: Result<(), CgroupError>,
) {
    let config = &resources.config;
    for (name, cgroup) in [("system", &config.enforced.system), ("kube", &config.enforced.kube)] {
        if let Some(ReservedCgroup { path, .. }) = cgroup {
            let message = format!("Updated limits on {name} reserved cgroup {path}");
            resources.node_event(EventType::Normal, ENFORCED, message);
        }
    }
    while let Err(error) = limited {
        let root = kubepods(config);
        let message = format!("Failed to update Node Allocatable Limits {root:?}: {error}");
        resources.node_event(EventType::Warning, NOT_ENFORCED, message);
        tokio::time::sleep(RETRY).await;
        let (config, machine) = (config.clone(), machine.clone());
        let again = tokio::task::spawn_blocking(move || limit_all(&config, &machine));
        limited = again.await.unwrap_or_else(|error| Err(error.into()));
    }
    resources.node_event(
        EventType::Normal,
        ENFORCED,
        "Updated Node Allocatable limit across pods".to_owned(),
    );
}

/// Keeps the weight of all Burstable Pods together at what they ask for. Source: `setCPUCgroupConfig` of
/// `qos_container_manager_linux.go`.
pub(crate) async fn weigh_burstable(resources: Arc<NodeResources>) {
    let mut weight = resources.allocations.burstable_cpu();
    let path = format!("{}/burstable", kubepods(&resources.config));
    while weight.changed().await.is_ok() {
        let cpu = *weight.borrow_and_update();
        let shares = u64::try_from(qos::cpu_shares(cpu)).ok();
        let (path, limits) = (path.clone(), Limits { cpu_shares: shares, ..Limits::default() });
        if let Err(error) = tokio::task::spawn_blocking(move || set(&path, &limits)).await {
            tracing::warn!(%error, "burstable pods have another weight than they ask for");
        }
    }
}

/// Of what the operator has put Kubernetes' and the system's processes in: what is reserved for them. Blocking.
///
/// # Errors
/// In upstream's words: there is no such cgroup, or it takes no limits.
pub(crate) fn limit_reserved(config: &Config) -> Result<(), CgroupError> {
    let cgroups = Cgroups::detect()?;
    let all = [
        ("System", &config.enforced.system, &config.reserved.system),
        ("Kube", &config.enforced.kube, &config.reserved.kube),
    ];
    for (name, cgroup, amounts) in all {
        let Some(ReservedCgroup { path, is_cpu_only }) = cgroup else { continue };
        if !cgroups.exists(path) {
            return Err(CgroupError::NoReserved { name, path: path.clone() });
        }
        let limits = reserved_limits(amounts, *is_cpu_only);
        let missing = cgroups.set_limits(path, &limits).map_err(|source| CgroupError::Reserved {
            name,
            path: path.clone(),
            source,
        })?;
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
pub(crate) async fn limit_pod(resources: &NodeResources, pod: &Pod, which: Which) -> Result<(), CgroupError> {
    let is_wanted = resources.config.cgroups_per_qos && which != Which::NONE;
    let Some(spec) = pod.spec.as_ref().filter(|_| is_wanted) else { return Ok(()) };
    let mut wanted = qos::pod_resources(spec);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let has_own = |cpus: &crate::node_resources::cpu::CpuManager| {
        containers.any(|c| !cpus.exclusive(uid, &c.name).is_empty())
    };
    // Source: `ResourceConfigForPod`, for `cpuCFSQuota: false`.
    if resources.cpus.as_ref().is_some_and(has_own)
        || (!resources.config.cpu_cfs_quota && wanted.cpu_quota != 0)
    {
        wanted.cpu_quota = qos::UNLIMITED_QUOTA;
    }
    huge_pages::deny_others(&mut wanted.hugepage_limits, &resources.page_sizes);
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let some = |number: i64| (number != 0).then_some(number);
    let limits = Limits {
        cpu_shares: positive(wanted.cpu_shares).filter(|_| which.cpu),
        cpu_quota_us: some(wanted.cpu_quota).filter(|_| which.cpu),
        cpu_period_us: positive(wanted.cpu_period).filter(|_| which.cpu && wanted.cpu_quota != 0),
        memory_max_bytes: some(wanted.memory_limit_in_bytes).filter(|_| which.memory),
        pids_max: Some(resources.config.pod_pids_limit).filter(|limit| *limit > 0),
        huge_pages: wanted.hugepage_limits.into_iter().map(|limit| (limit.page_size, limit.limit)).collect(),
        ..Limits::default()
    };
    let path = qos::cgroup_parent(&resources.config.cgroup_root, pod);
    let start = std::time::Instant::now();
    let set = tokio::task::spawn_blocking(move || set(&path, &limits));
    let operation = if set.await? { "update" } else { "create" };
    resources.metrics.measure(Measure::CgroupManager, &[operation], start.elapsed());
    Ok(())
}

/// Whether it was there before.
fn set(path: &str, limits: &Limits) -> bool {
    let done = try_set(path, limits);
    done.unwrap_or_else(|_| Cgroups::detect().is_ok_and(|cgroups| cgroups.exists(path)))
}

fn try_set(path: &str, limits: &Limits) -> Result<bool, CgroupError> {
    let done = Cgroups::detect().and_then(|cgroups| {
        let was_there = cgroups.exists(path);
        cgroups.create(path)?;
        Ok((was_there, cgroups.set_limits(path, limits)?))
    });
    let (was_there, missing) = done.inspect_err(|error| {
        let error = error as &(dyn std::error::Error + 'static);
        tracing::warn!(path, error, "a cgroup was not limited");
    })?;

    if !missing.is_empty() {
        tracing::debug!(path, ?missing, "the host has not all controllers for a cgroup");
    }
    Ok(was_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pods_together_have_what_is_not_reserved() {
        let machine = Machine {
            cpus: 4,
            memory: 8 << 30,
            pids_max: 1000,
            huge_pages: vec![(2 << 20, 512)],
            ..Machine::default()
        };
        let mut config = Config::default();
        let reserved = [("cpu", "500m"), ("memory", "1Gi"), ("pid", "100")];
        config.reserved.kube = reserved.map(|(name, amount)| (name.to_owned(), amount.to_owned())).into();
        let expect = Limits {
            cpu_shares: Some(3584),
            memory_max_bytes: Some(6 << 30),
            pids_max: Some(900),
            huge_pages: [("2MB".to_owned(), 1 << 30)].into(),
            ..Limits::default()
        };
        assert_eq!(limits_of_all(&config, &machine), expect);
        config.enforced.pods = false;
        let all = Limits {
            cpu_shares: Some(4096),
            memory_max_bytes: Some(7 << 30),
            pids_max: Some(1000),
            ..expect
        };
        assert_eq!(limits_of_all(&config, &machine), all, "nothing is kept from them");
    }

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
