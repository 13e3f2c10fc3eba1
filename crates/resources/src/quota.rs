//! The usage of objects and the ResourceQuotas that count it. Pure; admission charges by it, the controller recounts by
//! it.
//!
//! Source: `k8s.io/apiserver/pkg/quota/v1`, `pkg/quota/v1/evaluator/core`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use machinery::metadata::Metadata;
use machinery::quantity::{Format, Quantity};
use serde_json::Value;

pub use crate::pod_resources::Amounts;
use crate::pod_resources::{self, Half, amounts};

/// Counts that have a name of their own beside `count/<plural>`.
const NAMED_COUNTS: [&str; 7] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
];
/// What compute resources may be called in a quota.
const COMPUTE: [&str; 9] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
/// Compute resources that every container must name once a quota counts them.
const NEEDED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const CLASS_STORAGE: &str = ".storageclass.storage.k8s.io/requests.storage";
/// Devices that claims ask for, after the name of their class. Source: `V1ResourceByDeviceClass`, KEP-4840.
const CLASS_DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// The most that a claim can be given, which is what one that asks for all counts as. Source:
/// `AllocationResultsMaxSize`.
const DEVICES_MAX: i64 = 32;
const CLASS_CLAIMS: &str = ".storageclass.storage.k8s.io/persistentvolumeclaims";

/// A ResourceQuota, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// `metadata.name`
    pub name: String,
    /// `spec.hard`
    pub hard: Amounts,
    scopes: Vec<Scope>,
}

/// One condition on what a quota counts.
#[derive(Clone, Debug, PartialEq)]
struct Scope {
    name: String,
    operator: String,
    values: Vec<String>,
}

impl Quota {
    /// Reads an object.
    pub fn of(object: &Value) -> Self {
        let words = |list: Option<&Value>| -> Vec<String> {
            let list = list.and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let plain = words(object.pointer("/spec/scopes")).into_iter().map(|name| Scope {
            name,
            operator: "Exists".to_owned(),
            values: Vec::new(),
        });
        let expressions = object.pointer("/spec/scopeSelector/matchExpressions").and_then(Value::as_array);
        let selected = expressions.into_iter().flatten().map(|expression| Scope {
            name: text(expression, "scopeName"),
            operator: text(expression, "operator"),
            values: words(expression.get("values")),
        });
        Self {
            name: Metadata::of(object).name().to_owned(),
            hard: amounts(object.pointer("/spec/hard")),
            scopes: plain.chain(selected).collect(),
        }
    }

    /// `true` if the quota counts any of what objects of this resource cost.
    pub fn counts(&self, group: &str, plural: &str) -> bool {
        self.hard.keys().any(|name| is_cost_of(name, group, plural))
    }

    /// The names under which the quota counts this resource.
    pub fn names(&self, group: &str, plural: &str) -> BTreeSet<&str> {
        self.hard.keys().map(String::as_str).filter(|name| is_cost_of(name, group, plural)).collect()
    }

    /// `true` if the quota counts this object.
    pub fn matches(&self, group: &str, plural: &str, object: &Value) -> bool {
        self.counts(group, plural)
            && self.scopes.iter().all(|scope| match (group, plural) {
                ("", "pods") => scope.matches_pod(object),
                ("", "persistentvolumeclaims") => scope.matches_claim(object),
                _ => false,
            })
    }

    /// The part of `usage` that the quota counts.
    pub fn mask(&self, usage: &Amounts) -> Amounts {
        usage.iter().filter(|(name, _)| self.hard.contains_key(*name)).map(|(n, q)| (n.clone(), *q)).collect()
    }

    /// Zero of everything that it counts.
    pub fn nothing_used(&self) -> Amounts {
        self.hard.iter().map(|(name, hard)| (name.clone(), hard.minus(*hard))).collect()
    }
}

impl Scope {
    fn matches_pod(&self, pod: &Value) -> bool {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let deadline = pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64);
        match self.name.as_str() {
            "Terminating" => deadline.is_some_and(|seconds| seconds >= 0),
            "NotTerminating" => deadline.is_none_or(|seconds| seconds < 0),
            "BestEffort" => is_best_effort(pod),
            "NotBestEffort" => !is_best_effort(pod),
            "PriorityClass" => self.matches_value(text("/spec/priorityClassName")),
            "CrossNamespacePodAffinity" => crosses_namespaces(pod),
            _ => false,
        }
    }

    fn matches_claim(&self, claim: &Value) -> bool {
        let class = |pointer: &str| claim.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if self.name != "VolumeAttributesClass" {
            return false;
        }
        let classes = [
            "/spec/volumeAttributesClassName",
            "/status/currentVolumeAttributesClassName",
            "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
        ];
        let mut named = classes.into_iter().map(class).filter(|class| !class.is_empty()).peekable();
        match named.peek() {
            None => self.matches_value(""),
            Some(_) => named.any(|class| self.matches_value(class)),
        }
    }

    fn matches_value(&self, value: &str) -> bool {
        let is_listed = self.values.iter().any(|one| one == value);
        match self.operator.as_str() {
            "Exists" => !value.is_empty(),
            "DoesNotExist" => value.is_empty(),
            "In" => !value.is_empty() && is_listed,
            "NotIn" => !is_listed,
            _ => false,
        }
    }
}

/// Whether no container asks for cpu or memory. Source: `GetPodQOS`.
fn is_best_effort(pod: &Value) -> bool {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| {
        pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array).into_iter().flatten()
    });
    let asks = |object: &Value| {
        [Half::Requests, Half::Limits].into_iter().any(|half| {
            let all = pod_resources::of_container(object, half);
            ["cpu", "memory"].iter().any(|name| all.get(*name).is_some_and(|amount| !amount.is_zero()))
        })
    };
    let asks_itself = pod.get("spec").is_some_and(asks);
    !asks_itself && !containers.into_iter().any(asks)
}

/// Whether an affinity term looks into other namespaces.
fn crosses_namespaces(pod: &Value) -> bool {
    let term_crosses = |term: &Value| {
        term.get("namespaces").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
            || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        let list = |name: &str| {
            let pointer = format!("/spec/affinity/{affinity}/{name}");
            pod.pointer(&pointer).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(term_crosses)
            || list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| weighted.get("podAffinityTerm").is_some_and(term_crosses))
    })
}

/// `count/deployments.apps`, `count/pods`.
fn count_name(group: &str, plural: &str) -> String {
    format!("count/{}", machinery::group::group_resource(group, plural))
}

/// Whether a name in a quota counts something that objects of this resource cost.
fn is_cost_of(name: &str, group: &str, plural: &str) -> bool {
    if name.strip_prefix("count/").is_some() {
        return name == count_name(group, plural);
    }
    if (group, plural) == ("resource.k8s.io", "resourceclaims") {
        return name.ends_with(CLASS_DEVICES);
    }
    if !group.is_empty() {
        return false;
    }
    if name == plural {
        return NAMED_COUNTS.contains(&name);
    }
    match plural {
        "pods" => {
            COMPUTE.contains(&name)
                || name.starts_with("hugepages-")
                || name
                    .strip_prefix("requests.")
                    .is_some_and(|rest| rest.starts_with("hugepages-") || is_extended(rest))
        }
        "services" => matches!(name, "services.nodeports" | "services.loadbalancers"),
        "persistentvolumeclaims" => {
            name == "requests.storage" || name.ends_with(CLASS_STORAGE) || name.ends_with(CLASS_CLAIMS)
        }
        _ => false,
    }
}

/// Whether a resource is neither Kubernetes' own nor a claim's class.
fn is_extended(name: &str) -> bool {
    match name.split_once('/') {
        Some((domain, _)) => {
            !domain.ends_with("kubernetes.io") && !domain.ends_with("storageclass.storage.k8s.io")
        }
        None => false,
    }
}

/// The usage of an object, in all that a quota may name. Zero amounts are left out.
pub fn usage(group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts {
    let mut usage = Amounts::new();
    let mut set = |name: String, amount: Quantity| {
        if !amount.is_zero() {
            usage.insert(name, amount);
        }
    };
    let one = Quantity::new(1, Format::DecimalSi);
    set(count_name(group, plural), one);
    if group.is_empty() && NAMED_COUNTS.contains(&plural) && plural != "pods" {
        set(plural.to_owned(), one);
    }
    match (group, plural) {
        ("", "pods") if !is_over(object, now) => {
            set("pods".to_owned(), one);
            for (name, amount) in compute(
                &pod_resources::of_pod(object, Half::Requests),
                &pod_resources::of_pod(object, Half::Limits),
            ) {
                set(name, amount);
            }
        }
        ("", "services") => {
            let (ports, balancers) = service_usage(object);
            set("services.nodeports".to_owned(), Quantity::new(ports, Format::DecimalSi));
            set("services.loadbalancers".to_owned(), Quantity::new(balancers, Format::DecimalSi));
        }
        ("", "persistentvolumeclaims") => {
            let storage = claimed_storage(object);
            let class = storage_class(object);
            set("requests.storage".to_owned(), storage);
            if !class.is_empty() {
                set(format!("{class}{CLASS_STORAGE}"), storage);
                set(format!("{class}{CLASS_CLAIMS}"), one);
            }
        }
        ("resource.k8s.io", "resourceclaims") => {
            for (class, devices) in device_usage(object) {
                set(format!("{class}{CLASS_DEVICES}"), Quantity::new(devices, Format::DecimalSi));
            }
        }
        _ => {}
    }
    usage
}

/// How many devices of each class a claim can be given at most.
///
/// Source: `pkg/quota/v1/evaluator/core/resource_claims.go`.
fn device_usage(claim: &Value) -> BTreeMap<&str, i64> {
    let requests = claim.pointer("/spec/devices/requests").and_then(Value::as_array);
    let mut total = BTreeMap::new();
    for request in requests.into_iter().flatten() {
        let alternatives = request.get("firstAvailable").and_then(Value::as_array).map(Vec::as_slice);
        let alternatives = alternatives.unwrap_or_default();
        // Of alternatives the worst counts, for each class.
        let mut worst: BTreeMap<&str, i64> = BTreeMap::new();
        let exactly = request.get("exactly").filter(|_| alternatives.is_empty());
        for one in alternatives.iter().chain(exactly) {
            let text = |field: &str| one.get(field).and_then(Value::as_str).unwrap_or_default();
            let devices = match text("allocationMode") {
                "ExactCount" => one.get("count").and_then(Value::as_i64).unwrap_or_default(),
                _ => DEVICES_MAX,
            };
            let most = worst.entry(text("deviceClassName")).or_default();
            *most = devices.max(*most);
        }
        for (class, devices) in worst {
            *total.entry(class).or_default() += devices;
        }
    }
    total
}

/// Whether a Pod uses nothing any more: it has ended, or should have been gone.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    if matches!(phase, "Failed" | "Succeeded") {
        return true;
    }
    let metadata = Metadata::of(pod);
    match (metadata.deletion_timestamp(), metadata.deletion_grace_period_seconds()) {
        (Some(at), Some(grace)) => now > at + SignedDuration::from_secs(grace),
        _ => false,
    }
}

/// Requests and limits by the names that quotas give them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut named = Amounts::new();
    for (name, amount) in requests {
        let is_own = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if is_own || name.starts_with("hugepages-") {
            named.insert(name.clone(), *amount);
            named.insert(format!("requests.{name}"), *amount);
        } else if is_extended(name) {
            named.insert(format!("requests.{name}"), *amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            named.insert(format!("limits.{name}"), *amount);
        }
    }
    named
}

/// Node ports and load balancers.
fn service_usage(service: &Value) -> (i64, i64) {
    let ports =
        service.pointer("/spec/ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let all = i64::try_from(ports.len()).unwrap_or(i64::MAX);
    match service.pointer("/spec/type").and_then(Value::as_str) {
        Some("NodePort") => (all, 0),
        Some("LoadBalancer") => {
            let allocates = service.pointer("/spec/allocateLoadBalancerNodePorts").and_then(Value::as_bool);
            let explicit =
                ports.iter().filter(|p| p.get("nodePort").and_then(Value::as_i64).is_some_and(|n| n > 0));
            let count =
                if allocates == Some(false) { i64::try_from(explicit.count()).unwrap_or(all) } else { all };
            (count, 1)
        }
        _ => (0, 0),
    }
}

fn claimed_storage(claim: &Value) -> Quantity {
    let read = |pointer: &str| amounts(claim.pointer(pointer)).get("storage").copied().unwrap_or_default();
    read("/spec/resources/requests").max(read("/status/allocatedResources"))
}

fn storage_class(claim: &Value) -> &str {
    let annotated = Metadata::of(claim).annotation("volume.beta.kubernetes.io/storage-class");
    annotated.or_else(|| claim.pointer("/spec/storageClassName").and_then(Value::as_str)).unwrap_or_default()
}

/// The resources that containers do not name although `required` counts them, as upstream says it: `must specify cpu
/// for: a,b`.
pub fn unspecified(pod: &Value, required: &BTreeSet<&str>) -> Option<String> {
    let required: Vec<&str> = NEEDED.into_iter().filter(|name| required.contains(name)).collect();
    let mut missing: BTreeMap<&str, BTreeSet<String>> = Default::default();
    let of_pod = compute(
        &pod_resources::amounts(pod.pointer("/spec/resources/requests")),
        &pod_resources::amounts(pod.pointer("/spec/resources/limits")),
    );
    for list in ["containers", "initContainers"] {
        let containers =
            pod.pointer(&format!("/spec/{list}")).and_then(Value::as_array).into_iter().flatten();
        for container in containers {
            let set = compute(
                &pod_resources::of_container(container, Half::Requests),
                &pod_resources::of_container(container, Half::Limits),
            );
            for name in &required {
                if !set.contains_key(*name) && !of_pod.contains_key(*name) {
                    let container = container.get("name").and_then(Value::as_str).unwrap_or_default();
                    missing.entry(name).or_default().insert(container.to_owned());
                }
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let texts = missing.iter().map(|(name, containers)| {
        format!("{name} for: {}", containers.iter().cloned().collect::<Vec<_>>().join(","))
    });
    Some(format!("must specify {}", texts.collect::<Vec<_>>().join("; ")))
}

/// The amounts by which `new` costs more than `old`.
pub fn increase(new: &Amounts, old: &Amounts) -> Amounts {
    let more = new.iter().map(|(name, amount)| {
        let before = old.get(name).copied().unwrap_or_default();
        (name.clone(), amount.minus(before))
    });
    more.filter(|(_, amount)| amount.signum() > 0).collect()
}

/// `name=amount,other=amount`
pub fn show(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
