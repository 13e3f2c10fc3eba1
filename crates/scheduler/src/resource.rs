//! The resources that Pods ask for and Nodes have, in whole numbers.
//!
//! Source: `k8s.io/kubernetes/pkg/scheduler/framework.Resource`, `k8s.io/component-helpers/resource.PodRequests`.

use std::collections::BTreeMap;

use controller::pod::{Container, Pairs, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use machinery::names;
use machinery::quantity::Quantity;

/// The CPU that scores assume for a container that asks for none, in millicores.
pub const NON_ZERO_MILLI_CPU: i64 = 100;
/// The memory that scores assume for a container that asks for none, in bytes.
pub const NON_ZERO_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

const HUGE_PAGES: &str = "hugepages-";

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
    pub fn from_list<'a>(list: Option<impl IntoIterator<Item = (&'a String, &'a ApiQuantity)>>) -> Self {
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

    /// The amount of one resource: millicores of `cpu`, else in its own unit.
    pub fn amount(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            _ => self.scalar.get(name).copied().unwrap_or(0),
        }
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

/// The resources that a Pod needs at its peak: its containers and sidecars together, or an init container with the
/// sidecars started before it, whichever is more; or what the Pod as a whole says; plus the overhead of its runtime
/// class.
///
/// Of a container that is being resized the most counts of what it wants, has and was allocated. Source: `PodRequests`
/// with `UseStatusResources`.
pub fn pod_requests(pod: &Pod) -> Resources {
    sum(pod, |_, _| {})
}

/// As [`pod_requests`], but containers that ask for no CPU or memory count a little, so that many of them spread.
pub fn pod_requests_non_zero(pod: &Pod) -> Resources {
    sum(pod, |requests, amount| {
        let asks = |name: &str| requests.is_some_and(|requests| requests.get(name).is_some());
        if !asks("cpu") {
            amount.milli_cpu = amount.milli_cpu.max(NON_ZERO_MILLI_CPU);
        }
        if !asks("memory") {
            amount.memory = amount.memory.max(NON_ZERO_MEMORY_BYTES);
        }
    })
}

/// Quantities by resource.
type List = Pairs<ApiQuantity>;

fn sum(pod: &Pod, raise: impl Fn(Option<&List>, &mut Resources)) -> Resources {
    let Some(spec) = &pod.spec else { return Resources::default() };
    let mut all = peak(spec, |container, may_be_resized| {
        let status = pod.status.as_ref().filter(|_| may_be_resized);
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let mut amount = status
            .and_then(|status| resized(status, container))
            .unwrap_or_else(|| Resources::from_list(requests));
        raise(requests, &mut amount);
        amount
    });
    let whole = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    for (name, quantity) in whole.into_iter().flatten() {
        let Ok(quantity) = quantity.0.parse::<Quantity>() else { continue };
        match name.as_str() {
            "cpu" => all.milli_cpu = quantity.milli_value(),
            "memory" => all.memory = quantity.value(),
            pages if pages.starts_with(HUGE_PAGES) => drop(all.scalar.insert(name.clone(), quantity.value())),
            _ => {}
        }
    }
    all.add(&Resources::from_list(spec.overhead.as_ref()));
    all
}

/// What a container that may be resized takes up, if its status says something. Source: `determineEffectiveRequests`.
fn resized(status: &PodStatus, container: &Container) -> Option<Resources> {
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let own = all.into_iter().find(|own| own.name == container.name)?;
    let has = own.resources.as_ref()?;
    let mut amount = Resources::from_list(has.requests.as_ref());
    amount.raise_to(&Resources::from_list(own.allocated_resources.as_ref()));
    let mut conditions = status.conditions.iter().flatten();
    let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
    if pending.is_none_or(|pending| pending.reason.as_deref() != Some("Infeasible")) {
        let wants = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        amount.raise_to(&Resources::from_list(wants));
    }
    Some(amount)
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// `of` gives what a container takes up; the other argument is whether it may be resized.
fn peak(spec: &PodSpec, of: impl Fn(&Container, bool) -> Resources) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&of(container, true));
    }
    let mut sidecars = Resources::default();
    let mut starting = Resources::default();
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = is_sidecar(container);
        let mut need = of(container, is_sidecar);
        need.add(&sidecars);
        starting.raise_to(&need);
        if is_sidecar {
            sidecars = need;
        }
    }
    running.add(&sidecars);
    running.raise_to(&starting);
    running
}

/// Whether somebody has added the resource to those that Kubernetes knows. Source: `IsExtendedResourceName`.
pub(crate) fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milli_cpu(yaml: &str) -> i64 {
        pod_requests(&serde_saphyr::from_str(yaml).expect("a pod")).milli_cpu
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
            (
                "the Pod as a whole says more than its containers, or less",
                "resources: {requests: {cpu: 300m}}\noverhead: {cpu: 1m}\ncontainers: [{name: a, resources: {requests: {cpu: '1'}}}]",
                301,
            ),
            (
                "a whole that says nothing of it leaves it",
                "resources: {requests: {memory: 1Gi, ephemeral-storage: 1Gi}}\ncontainers: [{name: a, resources: {requests: {cpu: 20m}}}]",
                20,
            ),
            (
                "a sidecar runs beside init containers that come later only",
                "initContainers: [{name: i, resources: {requests: {cpu: '3'}}}, {name: s, restartPolicy: Always, resources: {requests: {cpu: '1'}}}, {name: j, resources: {requests: {cpu: '1'}}}]\ncontainers: [{name: a}]",
                3000,
            ),
        ];
        for (name, yaml, expected) in cases {
            let spec = yaml.replace('\n', "\n  ");
            assert_eq!(milli_cpu(&format!("spec:\n  {spec}")), expected, "{name}");
        }
    }

    #[test]
    fn a_container_that_is_resized_takes_up_the_most_of_what_it_wants_and_has() {
        let of = |wants: &str, has: &str, allocated: &str, why: &str| {
            milli_cpu(&format!(
                "{{spec: {{containers: [{{name: a, resources: {{requests: {{cpu: {wants}}}}}}}]}}, status: {{\
                 containerStatuses: [{{name: a, image: i, imageID: i, ready: true, restartCount: 0, \
                 resources: {{requests: {{cpu: {has}}}}}, allocatedResources: {{cpu: {allocated}}}}}], \
                 conditions: [{{type: PodResizePending, status: 'True', reason: {why}}}]}}}}"
            ))
        };
        assert_eq!(of("100m", "200m", "150m", "Deferred"), 200);
        assert_eq!(of("300m", "200m", "150m", "Deferred"), 300);
        assert_eq!(of("300m", "100m", "150m", "Infeasible"), 150);
    }

    #[test]
    fn who_asks_for_nothing_counts_a_little() {
        let of = |spec: &str| {
            let pod = serde_saphyr::from_str(&format!("spec: {spec}")).expect("a pod");
            let amount = pod_requests_non_zero(&pod);
            (amount.milli_cpu, amount.memory)
        };
        assert_eq!(of("{containers: [{name: a}, {name: b}]}"), (200, 2 * NON_ZERO_MEMORY_BYTES));
        assert_eq!(of("{containers: [{name: a, resources: {requests: {cpu: '0', memory: '5'}}}]}"), (0, 5));
        let whole = "{resources: {requests: {cpu: 10m}}, containers: [{name: a}]}";
        assert_eq!(of(whole), (10, NON_ZERO_MEMORY_BYTES));
    }

    #[test]
    fn what_somebody_has_added_is_extended() {
        for (name, expect) in [
            ("example.com/gpu", true),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/batch", false),
            ("requests.example.com/gpu", false),
            ("example.com/", false),
        ] {
            assert_eq!(is_extended(name), expect, "{name}");
        }
    }
}

#[cfg(test)]
mod upstream;
