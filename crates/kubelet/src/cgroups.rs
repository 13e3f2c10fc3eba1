//! The cgroups above containers: of all Pods together, of the quality-of-service classes, of each Pod.
//!
//! The kubelet makes them, so that whatever the runtime puts below is held together, pause processes included. Where
//! the host lacks a controller the limit is noted as missing and nothing fails.
//! Source: `pkg/kubelet/cm` of upstream.

use k8s_openapi::api::core::v1::Pod;
use sys::cgroup::{Cgroups, Limits};

use crate::config::Config;
use crate::context::Context;
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

/// Of one Pod, before its sandbox is made.
///
/// # Errors
/// A text: the cgroup cannot be made.
pub(crate) async fn limit_pod(context: &Context, pod: &Pod) -> Result<(), String> {
    let Some(spec) = pod.spec.as_ref().filter(|_| context.config.cgroups_per_qos) else { return Ok(()) };
    let wanted = qos::pod_resources(spec);
    let positive = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let some = |number: i64| (number != 0).then_some(number);
    let limits = Limits {
        cpu_shares: positive(wanted.cpu_shares),
        cpu_quota_us: some(wanted.cpu_quota),
        cpu_period_us: positive(wanted.cpu_period).filter(|_| wanted.cpu_quota != 0),
        memory_max_bytes: some(wanted.memory_limit_in_bytes),
        pids_max: Some(context.config.pod_pids_limit).filter(|limit| *limit > 0),
    };
    let path = qos::cgroup_parent(&context.config.cgroup_root, pod);
    tokio::task::spawn_blocking(move || set(&path, &limits)).await.map_err(|error| error.to_string())
}

fn set(path: &str, limits: &Limits) {
    let done = Cgroups::detect().and_then(|cgroups| {
        cgroups.create(path)?;
        cgroups.set_limits(path, limits)
    });
    match done {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => tracing::debug!(path, ?missing, "the host has not all controllers for a cgroup"),
        Err(error) => tracing::warn!(path, %error, "a cgroup was not limited"),
    }
}
