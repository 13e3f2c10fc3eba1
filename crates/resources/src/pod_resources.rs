//! The requests and limits of a Pod as a whole. Pure.
//!
//! Source: `k8s.io/component-helpers/resource`, KEP-753 (sidecars), KEP-2837 (resources of Pods).

use std::collections::BTreeMap;

use machinery::quantity::Quantity;
use serde_json::Value;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// The half of `resources`: requests or limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// `requests`
    Requests,
    /// `limits`
    Limits,
}

impl Half {
    /// The field's name.
    pub fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// Reads a map of quantities; what is none is left out.
pub fn amounts(map: Option<&Value>) -> Amounts {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    entries
        .filter_map(|(name, value)| {
            let quantity = match value {
                Value::String(text) => text.parse().ok()?,
                Value::Number(number) => number.to_string().parse().ok()?,
                _ => return None,
            };
            Some((name.clone(), quantity))
        })
        .collect()
}

/// The resources of one container.
pub fn of_container(container: &Value, half: Half) -> Amounts {
    amounts(container.pointer(&format!("/resources/{}", half.field())))
}

/// `true` if the Pod itself, and not only its containers, says something about cpu, memory or huge pages.
pub fn has_pod_level(pod: &Value, half: Half) -> bool {
    pod_level(pod, half).next().is_some()
}

fn pod_level(pod: &Value, half: Half) -> impl Iterator<Item = (String, Quantity)> {
    let set = amounts(pod.pointer(&format!("/spec/resources/{}", half.field())));
    set.into_iter()
        .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-"))
}

/// The requests or limits of the whole Pod: its containers together, or its init containers where these need more, or
/// what it says itself; with the overhead of its runtime class on top.
pub fn of_pod(pod: &Value, half: Half) -> Amounts {
    let mut total = without_overhead(pod, half);
    for (name, overhead) in amounts(pod.pointer("/spec/overhead")) {
        match half {
            Half::Requests => add(&mut total, name, overhead),
            Half::Limits => {
                if let Some(limit) = total.get_mut(&name) {
                    *limit = limit.plus(overhead);
                }
            }
        }
    }
    total
}

/// The same without overhead.
pub fn without_overhead(pod: &Value, half: Half) -> Amounts {
    let mut total = of_containers(pod, half);
    for (name, amount) in pod_level(pod, half) {
        total.insert(name, amount);
    }
    total
}

/// The requests or limits of the containers together, or the init containers where these need more.
///
/// Source: `AggregateContainerRequests`, `AggregateContainerLimits`.
pub fn of_containers(pod: &Value, half: Half) -> Amounts {
    let list =
        |name: &str| pod.pointer(&format!("/spec/{name}")).and_then(Value::as_array).into_iter().flatten();
    let mut total = Amounts::new();
    for container in list("containers") {
        add_all(&mut total, &of_container(container, half));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in list("initContainers") {
        let mut own = of_container(container, half);
        if container.get("restartPolicy").is_some_and(|policy| policy == "Always") {
            add_all(&mut total, &own);
            add_all(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add_all(&mut own, &sidecars);
        }
        raise(&mut starting, &own);
    }
    raise(&mut total, &starting);
    total
}

fn add(total: &mut Amounts, name: String, amount: Quantity) {
    let entry = total.entry(name).or_default();
    *entry = entry.plus(amount);
}

/// Adds every amount of `more`.
pub fn add_all(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        add(total, name.clone(), *amount);
    }
}

fn raise(total: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        match total.get_mut(name) {
            Some(entry) => *entry = (*entry).max(*amount),
            None => {
                total.insert(name.clone(), *amount);
            }
        }
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
///
/// Source: `k8s.io/kubernetes/pkg/apis/core/helper/qos`.
pub fn qos_class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let pod_level =
        spec.get("resources").filter(|r| r.get("limits").is_some() || r.get("requests").is_some());
    let containers: Vec<&Value> = match pod_level {
        Some(_) => vec![spec],
        None => ["containers", "initContainers"]
            .into_iter()
            .filter_map(|list| spec.get(list)?.as_array())
            .flatten()
            .collect(),
    };
    let (mut any, mut all_guaranteed) = (false, true);
    for container in containers {
        for name in ["cpu", "memory"] {
            let amount = |list: &str| {
                let value = container.pointer(&format!("/resources/{list}/{name}"));
                value.and_then(Value::as_str).and_then(|text| text.parse::<Quantity>().ok())
            };
            let is_some = |amount: &Option<Quantity>| amount.as_ref().is_some_and(|q| !q.is_zero());
            let (limit, request) = (amount("limits"), amount("requests"));
            any |= is_some(&limit) || is_some(&request);
            // A request that is not said is the limit; one of nothing is said.
            all_guaranteed &= is_some(&limit) && request.is_none_or(|r| Some(r) == limit);
        }
    }
    match (any, all_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pod: &str, half: Half, expect: &str) {
        let pod: Value = serde_saphyr::from_str(pod).unwrap();
        let shown: Vec<String> = of_pod(&pod, half).iter().map(|(name, q)| format!("{name}={q}")).collect();
        assert_eq!(shown.join(","), expect);
    }

    #[test]
    fn containers_add_up_and_init_containers_count_where_they_need_more() {
        check(
            "{spec: {containers: [{resources: {requests: {cpu: 100m, memory: 1Gi}}}, {resources: {requests: {cpu: 200m}}}], \
             initContainers: [{resources: {requests: {cpu: 1, memory: 10Mi}}}]}}",
            Half::Requests,
            "cpu=1,memory=1Gi",
        );
        check(
            "{spec: {containers: [{resources: {requests: {cpu: 1}}}], initContainers: [{restartPolicy: Always, \
             resources: {requests: {cpu: 500m}}}, {resources: {requests: {cpu: 1200m}}}]}}",
            Half::Requests,
            "cpu=1700m",
        );
    }

    #[test]
    fn a_pods_own_word_counts_and_overhead_comes_on_top() {
        let pod = "{spec: {resources: {requests: {cpu: 2}, limits: {cpu: 3}}, overhead: {cpu: 100m, memory: 1Mi}, \
                   containers: [{resources: {requests: {cpu: 1}}}]}}";
        check(pod, Half::Requests, "cpu=2100m,memory=1Mi");
        check(pod, Half::Limits, "cpu=3100m");
    }
}
