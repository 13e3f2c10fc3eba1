//! What Pods ask for and Nodes have, in whole numbers.
//!
//! Source: `k8s.io/kubernetes/pkg/scheduler/framework.Resource`, `k8s.io/component-helpers/resource.PodRequests`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery::quantity::Quantity;

/// What a container that asks for no CPU counts as in scores, in millicores.
pub const NON_ZERO_MILLI_CPU: i64 = 100;
/// What a container that asks for no memory counts as in scores, in bytes.
pub const NON_ZERO_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

/// Amounts per resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Millicores.
    pub milli_cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Pods.
    pub pods: i64,
    /// Everything else, by name: hugepages, extended resources.
    pub scalar: BTreeMap<String, i64>,
}

impl Resources {
    /// Reads a resource list.
    pub fn from_list(list: Option<&BTreeMap<String, ApiQuantity>>) -> Self {
        let mut sum = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            let Ok(quantity) = quantity.0.parse::<Quantity>() else { continue };
            match name.as_str() {
                "cpu" => sum.milli_cpu = quantity.milli_value(),
                "memory" => sum.memory = quantity.value(),
                "ephemeral-storage" => sum.ephemeral_storage = quantity.value(),
                "pods" => sum.pods = quantity.value(),
                _ => {
                    sum.scalar.insert(name.clone(), quantity.value());
                }
            }
        }
        sum
    }

    /// Adds another amount to this one.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_add(b));
    }

    /// Takes another amount from this one.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, |a, b| a.saturating_sub(b));
    }

    /// Raises each amount to that of `other` where that is larger.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Self, with: fn(i64, i64) -> i64) {
        self.milli_cpu = with(self.milli_cpu, other.milli_cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral_storage = with(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = with(self.pods, other.pods);
        for (name, amount) in &other.scalar {
            let mine = self.scalar.entry(name.clone()).or_default();
            *mine = with(*mine, *amount);
        }
    }
}

/// What a Pod needs at its peak: its containers and sidecars together, or an init container with the sidecars
/// started before it, whichever is more; plus the overhead of its runtime class.
pub fn pod_requests(spec: &PodSpec) -> Resources {
    peak(spec, |container| {
        Resources::from_list(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    })
}

/// As [`pod_requests`], but containers that ask for no CPU or memory count a little, so that many of them spread.
pub fn pod_requests_non_zero(spec: &PodSpec) -> Resources {
    peak(spec, |container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let mut amount = Resources::from_list(requests);
        let asks = |name: &str| requests.is_some_and(|requests| requests.contains_key(name));
        if !asks("cpu") {
            amount.milli_cpu = NON_ZERO_MILLI_CPU;
        }
        if !asks("memory") {
            amount.memory = NON_ZERO_MEMORY_BYTES;
        }
        amount
    })
}

fn peak(spec: &PodSpec, of: impl Fn(&Container) -> Resources) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&of(container));
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let mut need = of(container);
        need.add(&sidecars);
        starting.raise_to(&need);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = need;
        }
    }
    running.add(&sidecars);
    running.raise_to(&starting);
    running.add(&Resources::from_list(spec.overhead.as_ref()));
    running
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milli_cpu(yaml: &str) -> i64 {
        let spec: PodSpec = serde_saphyr::from_str(yaml).expect("a pod spec");
        pod_requests(&spec).milli_cpu
    }

    #[test]
    fn a_pod_needs_its_peak() {
        let cases = [
            (
                "containers add up",
                "containers: [{name: a, resources: {requests: {cpu: 100m}}}, {name: b, resources: {requests: {cpu: '1'}}}]",
                1100,
            ),
            (
                "the largest init container may be more",
                "initContainers: [{name: i, resources: {requests: {cpu: '2'}}}]\ncontainers: [{name: a, resources: {requests: {cpu: '1'}}}]",
                2000,
            ),
            (
                "sidecars stay",
                "initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 500m}}}]\ncontainers: [{name: a, resources: {requests: {cpu: '1'}}}]",
                1500,
            ),
            ("overhead comes on top", "overhead: {cpu: 50m}\ncontainers: [{name: a}]", 50),
        ];
        for (name, yaml, expected) in cases {
            assert_eq!(milli_cpu(yaml), expected, "{name}");
        }
    }
}
