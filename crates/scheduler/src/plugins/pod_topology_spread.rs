//! Pods of one kind spread over places. Source: `core/v1.TopologySpreadConstraint`.
//!
//! Places are the values of a Node label. What each holds is summed up once per decision, over the Nodes that have
//! every label that the constraints name and that the Pod could be on at all.

use std::collections::HashMap;

use controller::selector;
use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};

use super::node_affinity::allows;
use super::taint_toleration::tolerates_all;
use super::{Candidate, Refusal};
use crate::node_info::{NodeInfo, Snapshot};

/// What is known about places for one Pod.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Constraints that must hold.
    hard: Vec<Spread>,
    /// Constraints that should hold.
    soft: Vec<Spread>,
}

#[derive(Clone, Debug)]
struct Spread {
    key: String,
    max_skew: i64,
    /// Whether the Pod counts itself.
    own: i64,
    /// Matching Pods in each place.
    counts: HashMap<String, i64>,
    /// The fewest in any place; 0 while there are fewer places than there should be.
    fewest: i64,
}

impl State {
    pub(super) fn new(pod: &Pod, all: &Snapshot) -> Self {
        let constraints = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_deref());
        let constraints = constraints.unwrap_or_default();
        let of = |action: &str| -> Vec<Spread> {
            let chosen: Vec<_> = constraints.iter().filter(|c| c.when_unsatisfiable == action).collect();
            chosen.iter().map(|constraint| spread(constraint, &chosen, pod, all)).collect()
        };
        Self { hard: of("DoNotSchedule"), soft: of("ScheduleAnyway") }
    }
}

fn spread(
    constraint: &TopologySpreadConstraint,
    together: &[&TopologySpreadConstraint],
    pod: &Pod,
    all: &Snapshot,
) -> Spread {
    let mut counts: HashMap<String, i64> = HashMap::new();
    for node in all.nodes() {
        let has_labels = together.iter().all(|other| node.label(&other.topology_key).is_some());
        let Some(value) = node.label(&constraint.topology_key) else { continue };
        if !has_labels || !counts_node(constraint, pod, node) {
            continue;
        }
        let here = node.pods.values().filter(|other| {
            other.metadata.deletion_timestamp.is_none() && is_same_kind(constraint, pod, other)
        });
        *counts.entry(value.to_owned()).or_default() += i64::try_from(here.count()).unwrap_or(i64::MAX);
    }
    let places_min = constraint.min_domains.and_then(|places| usize::try_from(places).ok()).unwrap_or(1);
    let fewest = if counts.len() < places_min { 0 } else { counts.values().copied().min().unwrap_or(0) };
    Spread {
        key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        own: i64::from(is_same_kind(constraint, pod, pod)),
        counts,
        fewest,
    }
}

fn counts_node(constraint: &TopologySpreadConstraint, pod: &Pod, node: &NodeInfo) -> bool {
    let by_affinity = constraint.node_affinity_policy.as_deref() == Some("Ignore") || allows(pod, node);
    let by_taints = constraint.node_taints_policy.as_deref() != Some("Honor") || tolerates_all(pod, node);
    by_affinity && by_taints
}

/// Whether `other` is what `pod` is spread with.
fn is_same_kind(constraint: &TopologySpreadConstraint, pod: &Pod, other: &Pod) -> bool {
    let label =
        |of: &Pod, key: &String| of.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    let mut keys = constraint.match_label_keys.iter().flatten().filter(|key| label(pod, key).is_some());
    pod.metadata.namespace == other.metadata.namespace
        && constraint
            .label_selector
            .as_ref()
            .is_some_and(|wanted| selector::selects(wanted, other.metadata.labels.as_ref()))
        && keys.all(|key| label(pod, key) == label(other, key))
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    for spread in &candidate.spread.hard {
        let Some(value) = node.label(&spread.key) else {
            return Some(Refusal::lasting(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ));
        };
        let here = spread.counts.get(value).copied().unwrap_or(0);
        if here + spread.own - spread.fewest > spread.max_skew {
            return Some(Refusal::passing("node(s) didn't match pod topology spread constraints"));
        }
    }
    None
}

/// How many Pods of the kind the Node's places hold already.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let soft = candidate.spread.soft.iter();
    soft.map(|spread| {
        let most = || spread.counts.values().copied().max().unwrap_or(0) + 1;
        node.label(&spread.key).map_or_else(most, |value| spread.counts.get(value).copied().unwrap_or(0))
    })
    .sum()
}
