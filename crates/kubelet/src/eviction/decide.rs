//! Which thresholds are crossed, what the node says of itself, and which Pod goes first. Pure.
//!
//! Source: `managerImpl.synchronize` and the rank functions of upstream's `pkg/kubelet/eviction`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use machinery::quantity::{Format, Quantity};

use crate::config::eviction::{Policy, Signal, Threshold};
use crate::pod::time::after;

/// How much there is of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) available: i64,
    pub(crate) capacity: i64,
}

/// What was looked at.
pub(crate) type Observations = BTreeMap<Signal, Observation>;

/// What is remembered from one look to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Crossed thresholds (by place in the policy), and since when.
    crossed_since: BTreeMap<usize, Timestamp>,
    /// Thresholds that were acted on and are not over.
    met: Vec<usize>,
    /// When each condition was seen last.
    seen_at: BTreeMap<&'static str, Timestamp>,
}

/// What a look has shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// The node's conditions that are true, in order.
    pub(crate) conditions: Vec<&'static str>,
    /// What to win back, and what there was of it.
    pub(crate) reclaim: Option<(Threshold, Observation)>,
}

impl State {
    /// Takes a look.
    pub(crate) fn look(&mut self, policy: &Policy, seen: &Observations, now: Timestamp) -> Verdict {
        let is_crossed = |index: usize, threshold: &Threshold| {
            let least = if self.met.contains(&index) { goal } else { least };
            seen.get(&threshold.signal).is_some_and(|seen| seen.available < least(threshold, seen))
        };
        let indexed = || policy.thresholds.iter().enumerate();
        let crossed: Vec<usize> = indexed().filter(|(i, t)| is_crossed(*i, t)).map(|(i, _)| i).collect();
        self.crossed_since.retain(|index, _| crossed.contains(index));
        for index in &crossed {
            self.crossed_since.entry(*index).or_insert(now);
        }
        for (index, threshold) in indexed() {
            if crossed.contains(&index) {
                self.seen_at.insert(threshold.signal.condition(), now);
            }
        }
        self.seen_at.retain(|_, at| after(*at, policy.transition_period) > now || *at == now);
        let is_due = |(index, threshold): &(usize, &Threshold)| {
            self.crossed_since.get(index).is_some_and(|since| after(*since, threshold.grace) <= now)
        };
        let due: Vec<(usize, &Threshold)> = indexed().filter(is_due).collect();
        self.met = due.iter().map(|(index, _)| *index).collect();
        // Memory first: what is short of it dies soonest.
        let first = due.iter().min_by_key(|(_, t)| (t.signal, !t.is_hard()));
        Verdict {
            conditions: self.seen_at.keys().copied().collect(),
            reclaim: first.and_then(|(_, threshold)| Some((**threshold, *seen.get(&threshold.signal)?))),
        }
    }

    /// When a soft threshold's grace or a condition's transition period ends.
    pub(crate) fn due_at(&self, policy: &Policy, now: Timestamp) -> Option<Timestamp> {
        let graces = self
            .crossed_since
            .iter()
            .filter_map(|(index, since)| Some(after(*since, policy.thresholds.get(*index)?.grace)));
        let transitions = self.seen_at.values().map(|at| after(*at, policy.transition_period));
        graces.chain(transitions).filter(|at| *at > now).min()
    }
}

/// What must be there so that nothing happens.
fn least(threshold: &Threshold, seen: &Observation) -> i64 {
    threshold.amount.of(seen.capacity)
}

/// What must be there so that no more happens.
fn goal(threshold: &Threshold, seen: &Observation) -> i64 {
    let beyond = threshold.minimum_reclaim.map_or(0, |amount| amount.of(seen.capacity));
    least(threshold, seen).saturating_add(beyond)
}

/// Whether so much has been won back that no Pod has to go: of everything. Source: `reclaimNodeLevelResources`.
pub(crate) fn is_enough(policy: &Policy, seen: &Observations) -> bool {
    let is_short = |threshold: &Threshold| {
        seen.get(&threshold.signal).is_some_and(|seen| seen.available < goal(threshold, seen))
    };
    !policy.thresholds.iter().any(is_short)
}

/// What a container uses of one resource and has asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Used {
    pub(crate) name: String,
    pub(crate) usage: i64,
    /// `None` of an ephemeral container: it can ask for nothing, and is not to blame.
    pub(crate) request: Option<i64>,
}

impl Used {
    /// How much it has asked for, if it uses more.
    fn exceeded(&self) -> Option<i64> {
        self.request.filter(|request| self.usage > *request)
    }
}

/// A Pod as a candidate.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) priority: i64,
    /// Static, or of a system's priority: never evicted.
    pub(crate) is_critical: bool,
    /// What the Pod has asked for of the resource that is scarce; its containers may have asked for less, or at other
    /// times. Source: `GetResourceRequestQuantity`.
    pub(crate) request: i64,
    /// What of it the Pod itself has asked for beside its containers, as it has said it; of memory only.
    pub(crate) own_request: Option<String>,
    /// Of that resource.
    pub(crate) containers: Vec<Used>,
    /// What is no container's: volumes.
    pub(crate) volumes: i64,
}

impl Candidate {
    fn usage(&self) -> i64 {
        self.containers.iter().map(|c| c.usage).sum::<i64>().saturating_add(self.volumes)
    }
}

/// The Pod that goes first; `None` if none may.
///
/// Who uses more than it has asked for, then who matters less, then who is furthest above what it has asked for.
/// Nobody asks for processes and inodes: there it is priority and use alone, but for those who have no file at all.
pub(crate) fn first_to_go(signal: Signal, pods: &[Candidate]) -> Option<&Candidate> {
    let has_requests = matches!(signal.resource(), "memory" | "ephemeral-storage");
    let rank = |pod: &&Candidate| {
        let request = if has_requests { pod.request } else { 0 };
        let exceeds = signal.resource() != "pids" && pod.usage() > request;
        (Reverse(exceeds), pod.priority, Reverse(pod.usage() - request))
    };
    pods.iter().filter(|pod| !pod.is_critical).min_by_key(rank)
}

/// Why the Pod goes, in upstream's words, and the same for machines. Source: `evictionMessage`.
pub(crate) fn message(
    threshold: &Threshold,
    seen: Observation,
    pod: &Candidate,
) -> (String, BTreeMap<String, String>) {
    let resource = threshold.signal.resource();
    let has_requests = matches!(resource, "memory" | "ephemeral-storage");
    let format = if has_requests { Format::BinarySi } else { Format::DecimalSi };
    let quantity = |units: i64| Quantity::new(units, format).to_string();
    let offending: Vec<(&Used, i64)> = match has_requests {
        true => pod.containers.iter().filter_map(|used| Some((used, used.exceeded()?))).collect(),
        false => Vec::new(),
    };
    let mut text = format!("The node was low on resource: {resource}. ");
    let wanted = quantity(threshold.amount.of(seen.capacity));
    text.push_str(&format!("Threshold quantity: {wanted}, available: {}. ", quantity(seen.available)));
    let larger = |what: &str, name: &str, usage: &str, request: &str| {
        format!(
            "{what} {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
        )
    };
    let mut annotations = BTreeMap::new();
    if let Some(request) = &pod.own_request {
        let usage = quantity(pod.usage());
        text.push_str(&larger("Pod", &pod.name, &usage, request));
        annotations.insert("offending_pod".to_owned(), pod.name.clone());
        annotations.insert("offending_pod_usage".to_owned(), usage);
    }
    for (container, request) in &offending {
        text.push_str(&larger("Container", &container.name, &quantity(container.usage), &quantity(*request)));
    }
    let list =
        |of: fn(&Used) -> String| offending.iter().map(|(used, _)| of(used)).collect::<Vec<_>>().join(",");
    let of_containers = [
        ("offending_containers", list(|used| used.name.clone())),
        ("offending_containers_usage", list(|used| Quantity::new(used.usage, Format::BinarySi).to_string())),
        ("starved_resource", resource.to_owned()),
    ];
    annotations.extend(of_containers.map(|(key, value)| (key.to_owned(), value)));
    (text, annotations)
}

#[cfg(test)]
mod tests;
