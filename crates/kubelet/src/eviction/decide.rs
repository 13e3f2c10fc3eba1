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
    pub(crate) request: i64,
}

/// A Pod as a candidate.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) uid: String,
    pub(crate) priority: i64,
    /// Static, or of a system's priority: never evicted.
    pub(crate) is_critical: bool,
    /// What the Pod has asked for of the resource that is scarce; its containers may have asked for less, or at other
    /// times. Source: `GetResourceRequestQuantity`.
    pub(crate) request: i64,
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
/// Nobody asks for processes and inodes: there it is priority and use alone.
pub(crate) fn first_to_go(signal: Signal, pods: &[Candidate]) -> Option<&Candidate> {
    let has_requests = matches!(signal.resource(), "memory" | "ephemeral-storage");
    let rank = |pod: &&Candidate| {
        let request = if has_requests { pod.request } else { 0 };
        let exceeds = has_requests && pod.usage() > request;
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
    let offends = |container: &&Used| has_requests && container.usage > container.request;
    let offending: Vec<&Used> = pod.containers.iter().filter(offends).collect();
    let mut text = format!("The node was low on resource: {resource}. ");
    let wanted = quantity(threshold.amount.of(seen.capacity));
    text.push_str(&format!("Threshold quantity: {wanted}, available: {}. ", quantity(seen.available)));
    for container in &offending {
        text.push_str(&format!(
            "Container {} was using {}, request is {}, has larger consumption of {resource}. ",
            container.name,
            quantity(container.usage),
            quantity(container.request),
        ));
    }
    let list = |of: fn(&Used) -> String| offending.iter().map(|used| of(used)).collect::<Vec<_>>().join(",");
    let annotations = [
        ("offending_containers", list(|used| used.name.clone())),
        ("offending_containers_usage", list(|used| Quantity::new(used.usage, Format::BinarySi).to_string())),
        ("starved_resource", resource.to_owned()),
    ];
    (text, annotations.map(|(key, value)| (key.to_owned(), value)).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::eviction::Statements;

    fn policy(hard: &str, soft: &str, reclaim: &str) -> Policy {
        let map = |text: &str| {
            text.split(',')
                .filter_map(|p| p.split_once('<'))
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect()
        };
        Policy::parse(&Statements {
            hard: map(hard),
            soft: map(soft),
            soft_grace: [("memory.available".to_owned(), "30s".to_owned())].into(),
            minimum_reclaim: map(reclaim),
        })
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn memory(available: i64) -> Observations {
        [(Signal::MemoryAvailable, Observation { available, capacity: 1000 })].into()
    }

    #[test]
    fn a_hard_threshold_acts_at_once_and_its_condition_stays_a_while() {
        let (policy, mut state) = (policy("memory.available<100", "", ""), State::default());
        assert_eq!(state.look(&policy, &memory(100), at(0)), Verdict::default());
        let verdict = state.look(&policy, &memory(99), at(10));
        assert_eq!(verdict.conditions, ["MemoryPressure"]);
        assert_eq!(verdict.reclaim.map(|(_, seen)| seen.available), Some(99));
        let verdict = state.look(&policy, &memory(500), at(20));
        assert_eq!((verdict.conditions, verdict.reclaim), (vec!["MemoryPressure"], None));
        assert_eq!(state.due_at(&policy, at(20)), Some(at(310)));
        assert_eq!(state.look(&policy, &memory(500), at(310)), Verdict::default());
    }

    #[test]
    fn a_soft_threshold_must_be_crossed_for_its_grace_without_a_break() {
        let (policy, mut state) = (policy("", "memory.available<100", ""), State::default());
        let mut reclaims =
            |available, second| state.look(&policy, &memory(available), at(second)).reclaim.is_some();
        assert!(!reclaims(50, 0) && !reclaims(50, 29));
        assert!(!reclaims(200, 29) && !reclaims(50, 30) && !reclaims(50, 59));
        assert!(reclaims(50, 60));
    }

    #[test]
    fn what_was_acted_on_is_over_only_with_the_minimum_reclaimed() {
        let (policy, mut state) =
            (policy("memory.available<100", "", "memory.available<50"), State::default());
        assert!(state.look(&policy, &memory(99), at(0)).reclaim.is_some());
        assert!(state.look(&policy, &memory(149), at(1)).reclaim.is_some());
        assert!(state.look(&policy, &memory(150), at(2)).reclaim.is_none());
        assert!(state.look(&policy, &memory(149), at(3)).reclaim.is_none());
    }

    #[test]
    fn it_is_enough_when_nothing_is_short_and_the_minimum_is_reclaimed() {
        let policy = policy("memory.available<100,pid.available<10", "", "memory.available<50");
        let seen = |memory: i64, pids: i64| -> Observations {
            let of = |available| Observation { available, capacity: 1000 };
            [(Signal::MemoryAvailable, of(memory)), (Signal::PidAvailable, of(pids))].into()
        };
        assert!(is_enough(&policy, &seen(150, 10)));
        assert!(!is_enough(&policy, &seen(149, 10)), "more than the threshold, less than what is to be won");
        assert!(!is_enough(&policy, &seen(150, 9)), "of something else");
    }

    fn pod(uid: &str, priority: i64, usage: i64, request: i64) -> Candidate {
        let container = Used { name: "main".into(), usage, request };
        Candidate { uid: uid.into(), priority, request, containers: vec![container], ..Candidate::default() }
    }

    #[test]
    fn pods_go_in_upstreams_order() {
        let critical = Candidate { is_critical: true, ..pod("critical", 0, 900, 0) };
        for (name, signal, pods, expect) in [
            (
                "above its request first",
                Signal::MemoryAvailable,
                vec![pod("a", 0, 50, 100), pod("b", 9, 60, 50)],
                "b",
            ),
            (
                "then the lower priority",
                Signal::MemoryAvailable,
                vec![pod("a", 5, 90, 0), pod("b", 1, 10, 0)],
                "b",
            ),
            (
                "then the larger excess",
                Signal::MemoryAvailable,
                vec![pod("a", 0, 90, 50), pod("b", 0, 80, 10)],
                "b",
            ),
            (
                "what the Pod has asked for as a whole is what counts",
                Signal::MemoryAvailable,
                vec![Candidate { request: 200, ..pod("a", 0, 90, 10) }, pod("b", 0, 60, 50)],
                "b",
            ),
            ("never a critical one", Signal::MemoryAvailable, vec![critical, pod("b", 0, 1, 5)], "b"),
            (
                "processes have no requests",
                Signal::PidAvailable,
                vec![pod("a", 0, 9, 0), pod("b", 0, 10, 90)],
                "b",
            ),
        ] {
            assert_eq!(first_to_go(signal, &pods).map(|p| p.uid.as_str()), Some(expect), "{name}");
        }
        assert_eq!(first_to_go(Signal::MemoryAvailable, &[]), None);
    }

    #[test]
    fn messages_are_upstreams() {
        let threshold = policy("memory.available<100Mi", "", "").thresholds[0];
        let seen = Observation { available: 50 << 20, capacity: 1 << 30 };
        let mut one = pod("a", 0, 64 << 20, 32 << 20);
        one.containers.push(Used { name: "modest".into(), usage: 1, request: 2 });
        one.containers.push(Used { name: "other".into(), usage: 2 << 20, request: 0 });
        let (text, annotations) = message(&threshold, seen, &one);
        assert_eq!(
            text,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container main was using 64Mi, request is 32Mi, has larger consumption of memory. \
             Container other was using 2Mi, request is 0, has larger consumption of memory. "
        );
        let annotations: Vec<_> = annotations.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        let expect = [
            "offending_containers: main,other",
            "offending_containers_usage: 64Mi,2Mi",
            "starved_resource: memory",
        ];
        assert_eq!(annotations, expect);
    }
}
