//! What a running container has, as its status tells: what the node has agreed to, with what the kernel was told so far.
//!
//! A resize is carried out resource by resource, and shown so. Source: `convertContainerStatusResources` of upstream's
//! `pkg/kubelet/kubelet_pods.go`, `toKubeContainerResources` of `pkg/kubelet/kuberuntime`.

use std::collections::BTreeMap;

use cri::v1;
use k8s_openapi::api::core::v1::{Container as ContainerSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use machinery::quantity::{Format, Quantity as Amount};

use crate::pod::in_place::difference;
use crate::pod::quantity;
use crate::pod::snapshot::{Container, PodSnapshot};

/// The kernel has no less: what is asked for is told then. Source: `MinMilliCPULimit`, `MinShares`.
const CPU_LIMIT_LEAST: i64 = 10;
const CPU_REQUEST_LEAST: i64 = 2;

type Amounts = BTreeMap<String, Quantity>;

/// The resources of the container of `spec`. `before` is what was told of the same container.
pub(super) fn resources(
    snapshot: &PodSnapshot,
    spec: &ContainerSpec,
    container: Option<&Container>,
    before: Option<&ResourceRequirements>,
) -> Option<ResourceRequirements> {
    let mut agreed = spec.resources.clone()?;
    let running = container.filter(|container| container.is_running());
    let Some((container, told)) = running.and_then(|found| Some((found, found.resources.as_ref()?))) else {
        return Some(agreed);
    };
    // Nobody tells of the memory that a container has asked for.
    let before = before.filter(|_| difference(snapshot.spec(), spec, container).is_some());
    if let Some(limits) = &mut agreed.limits {
        let before = before.and_then(|before| before.limits.as_ref());
        show_cpu(limits, cpu_limit(told), CPU_LIMIT_LEAST, before);
        match Some(told.memory_limit_in_bytes).filter(|bytes| *bytes > 0) {
            Some(bytes) => {
                put(limits, "memory", bytes, quantity::whole, Amount::new(bytes, Format::BinarySi))
            }
            None => keep(limits, "memory", before),
        }
    }
    if let Some(requests) = &mut agreed.requests {
        let before = before.and_then(|before| before.requests.as_ref());
        show_cpu(requests, cpu_request(told), CPU_REQUEST_LEAST, before);
        keep(requests, "memory", before);
    }
    Some(agreed)
}

/// Thousandths of a CPU. Source: `quotaToMilliCPU`.
fn cpu_limit(told: &v1::LinuxContainerResources) -> Option<i64> {
    let period = Some(told.cpu_period).filter(|period| *period > 0)?;
    told.cpu_quota.checked_mul(1000).map(|quota| quota / period).filter(|milli| *milli > 0)
}

/// Thousandths of a CPU, rounded up as they were rounded down. Source: `sharesToMilliCPU`.
fn cpu_request(told: &v1::LinuxContainerResources) -> Option<i64> {
    let shares = Some(told.cpu_shares).filter(|shares| *shares >= CPU_REQUEST_LEAST)?;
    shares.checked_mul(1000)?.checked_add(1023).map(|shares| shares / 1024)
}

fn show_cpu(list: &mut Amounts, told: Option<i64>, least: i64, before: Option<&Amounts>) {
    let agreed = list.get("cpu").map_or(0, quantity::milli);
    match told {
        Some(milli) if milli > least || agreed > least => {
            put(list, "cpu", milli, quantity::milli, Amount::from_milli(milli));
        }
        Some(_) => {}
        None => keep(list, "cpu", before),
    }
}

/// The same amount stays in the words that it was asked for in.
fn put(list: &mut Amounts, name: &str, number: i64, of: fn(&Quantity) -> i64, amount: Amount) {
    if list.get(name).map(of) != Some(number) {
        list.insert(name.to_owned(), Quantity(amount.to_string()));
    }
}

fn keep(list: &mut Amounts, name: &str, before: Option<&Amounts>) {
    if let Some(known) = before.and_then(|before| before.get(name)) {
        list.insert(name.to_owned(), known.clone());
    }
}
