//! Pods of one kind spread over topology domains. Source: `core/v1.TopologySpreadConstraint`.
//!
//! Topology domains are the values of a Node label. What each holds is kept by kinds of Pods; it is counted for a Pod alone
//! only if not every Node counts for it: those do that have every label that the constraints name and that the Pod could be on
//! at all. A Pod that says nothing about it is spread all the same, a little over hosts and less over zones, if it has a
//! default selector: Pods of the same Services and of the same owner. Source: upstream's system default constraints.

use std::collections::{HashMap, HashSet};

use controller::pod::Pod;
use controller::selector;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::node_affinity::{allows_known, is_restricted};
use super::taint_toleration::tolerates_all;
use super::{Candidate, Refusal, SCORE_MAX};
use crate::allowed::Verdicts;
use crate::arguments::Spread as Defaults;
use crate::node_info::{NodeInfo, Snapshot};
use crate::topology_domains::{Counts, KindId};

/// The label by which a Node is a domain of its own.
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const SOFT: &str = "ScheduleAnyway";
/// How uneven Pods without constraints may lie before it counts: by key.
const DEFAULTS: [(&str, i32); 2] = [(HOSTNAME, 3), (ZONE, 5)];

/// What is known about topology domains for one Pod.
#[derive(Clone, Debug, Default)]
pub(super) struct State<'a> {
    /// Constraints that must hold.
    hard: Vec<Spread<'a>>,
    /// Constraints that should hold.
    soft: Vec<Spread<'a>>,
    /// Whether a Node without one of the labels is out of the question: not so for the defaults.
    needs_all_labels: bool,
}

#[derive(Clone, Debug)]
struct Spread<'a> {
    key: String,
    max_skew: i64,
    /// Whether the Pod counts itself.
    own: i64,
    /// Matching Pods in each domain.
    counts: Counts<'a>,
    /// The fewest in any domain; 0 while there are fewer domains than there should be.
    fewest: i64,
    /// What a Pod in the same domain counts: the more domains, the more.
    weight: f64,
}

impl<'a> State<'a> {
    /// `default_selector` selects the Pods that `pod` is spread with if it says nothing itself.
    pub(super) fn new(pod: &Pod, default_selector: Option<&LabelSelector>, all: &'a Snapshot) -> Self {
        let own = pod.spec.as_ref().and_then(|spec| spec.topology_spread_constraints.as_deref());
        let own = own.unwrap_or_default();
        let arguments = &all.profiles.of(pod).arguments.spread;
        let default_selector = default_selector.filter(|_| own.is_empty());
        let defaults = default_selector
            .map(|default_selector| by_default(arguments, default_selector))
            .unwrap_or_default();
        let needs_all_labels = !own.is_empty() || *arguments != Defaults::System;
        let of = |action: &str| -> Vec<Spread<'a>> {
            let chosen: Vec<_> =
                own.iter().chain(&defaults).filter(|c| c.when_unsatisfiable == action).collect();
            let together = if needs_all_labels { chosen.as_slice() } else { &[] };
            chosen.iter().map(|constraint| spread(constraint, together, pod, all)).collect()
        };
        Self { hard: of("DoNotSchedule"), soft: of(SOFT), needs_all_labels }
    }

    /// Weighs the soft constraints by the number of domains among the Nodes in question.
    ///
    /// Source: `topologyNormalizingWeight`.
    pub(super) fn weigh(&mut self, feasible: &[&NodeInfo]) {
        let counted: Vec<_> = feasible.iter().filter(|node| !self.is_ignored(node)).copied().collect();
        for spread in &mut self.soft {
            let domains: HashSet<_> = counted.iter().filter_map(|node| node.label(&spread.key)).collect();
            let count = if spread.key == HOSTNAME { counted.len() } else { domains.len() };
            #[expect(clippy::cast_precision_loss, reason = "a weight needs no more than 52 bits")]
            let count = count as f64;
            spread.weight = (count + 2.0).ln();
        }
    }

    fn is_ignored(&self, node: &NodeInfo) -> bool {
        self.needs_all_labels && self.soft.iter().any(|spread| node.label(&spread.key).is_none())
    }
}

fn by_default(arguments: &Defaults, default_selector: &LabelSelector) -> Vec<TopologySpreadConstraint> {
    let with_kin = |constraint: &TopologySpreadConstraint| TopologySpreadConstraint {
        label_selector: Some(default_selector.clone()),
        ..constraint.clone()
    };
    if let Defaults::List(constraints) = arguments {
        return constraints.iter().map(with_kin).collect();
    }
    let constraints = DEFAULTS.iter().map(|(key, max_skew)| TopologySpreadConstraint {
        topology_key: (*key).to_owned(),
        max_skew: *max_skew,
        when_unsatisfiable: SOFT.to_owned(),
        label_selector: Some(default_selector.clone()),
        ..TopologySpreadConstraint::default()
    });
    constraints.collect()
}

fn spread<'a>(
    constraint: &TopologySpreadConstraint,
    together: &[&TopologySpreadConstraint],
    pod: &Pod,
    all: &'a Snapshot,
) -> Spread<'a> {
    let here = all.domains.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
    let same = here.filter(|(_, kind)| {
        kind.pod.metadata.deletion_timestamp.is_none() && counts_pod(constraint, pod, &kind.pod)
    });
    let same: Vec<KindId> = same.map(|(id, _)| id).collect();
    let key = constraint.topology_key.as_str();
    let (counts, domains, fewest) =
        match all.domains.extent(key).filter(|_| counts_all(constraint, together, pod, all)) {
            Some((domains, _)) => {
                let counts = all.domains.counts(&same, key);
                let fewest = if counts.domains() < domains { 0 } else { counts.fewest() };
                (counts, domains, fewest)
            }
            None => {
                let counts = count(constraint, together, pod, all, &same);
                let (domains, fewest) = (counts.len(), counts.values().copied().min().unwrap_or(0));
                (Counts::Sum(counts), domains, fewest)
            }
        };
    let domains_min = constraint.min_domains.and_then(|domains| usize::try_from(domains).ok()).unwrap_or(1);
    Spread {
        key: constraint.topology_key.clone(),
        max_skew: i64::from(constraint.max_skew),
        own: i64::from(is_same_kind(constraint, pod, pod)),
        counts,
        fewest: if domains < domains_min { 0 } else { signed(fewest) },
        weight: 1.0,
    }
}

/// Whether every Node that has the constraint's label counts: then nothing has to be counted for this Pod alone.
fn counts_all(
    constraint: &TopologySpreadConstraint,
    together: &[&TopologySpreadConstraint],
    pod: &Pod,
    all: &Snapshot,
) -> bool {
    let is_on_all = |other: &&TopologySpreadConstraint| {
        other.topology_key == constraint.topology_key
            || all.domains.extent(&other.topology_key).is_some_and(|(_, nodes)| nodes == all.len())
    };
    (constraint.node_affinity_policy.as_deref() == Some("Ignore") || !is_restricted(pod))
        && constraint.node_taints_policy.as_deref() != Some("Honor")
        && together.iter().all(is_on_all)
}

/// How many Pods of these kinds each domain has, of the Nodes that count; 0 for domains without.
fn count<'a>(
    constraint: &TopologySpreadConstraint,
    together: &[&TopologySpreadConstraint],
    pod: &Pod,
    all: &'a Snapshot,
    same: &[KindId],
) -> HashMap<&'a str, usize> {
    let (per_node, allowed) = (all.domains.per_node(same), all.allowed.of(pod, all.len()));
    let mut counts = HashMap::new();
    for node in all.nodes() {
        let has_labels = together.iter().all(|other| node.label(&other.topology_key).is_some());
        let Some(value) = node.label(&constraint.topology_key) else { continue };
        if has_labels && counts_node(constraint, pod, node, &allowed) {
            *counts.entry(value).or_default() += per_node.get(node.name()).copied().unwrap_or(0);
        }
    }
    counts
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn counts_node(
    constraint: &TopologySpreadConstraint,
    pod: &Pod,
    node: &NodeInfo,
    allowed: &Verdicts,
) -> bool {
    let by_affinity =
        constraint.node_affinity_policy.as_deref() == Some("Ignore") || allows_known(pod, node, allowed);
    let by_taints = constraint.node_taints_policy.as_deref() != Some("Honor") || tolerates_all(pod, node);
    by_affinity && by_taints
}

/// Whether `other`, which has a Node, is what `pod` is spread with. Whoever selects everybody counts nobody. Source:
/// `countPodsMatchSelector`.
fn counts_pod(constraint: &TopologySpreadConstraint, pod: &Pod, other: &Pod) -> bool {
    let selects_all = constraint.label_selector.as_ref().is_some_and(selector::is_empty)
        && constraint.match_label_keys.as_ref().is_none_or(Vec::is_empty);
    !selects_all && is_same_kind(constraint, pod, other)
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

pub(super) fn restricts(candidate: &Candidate<'_>) -> bool {
    !candidate.spread.hard.is_empty()
}

pub(super) fn prefers(candidate: &Candidate<'_>) -> bool {
    !candidate.spread.soft.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    for spread in &candidate.spread.hard {
        let Some(value) = node.label(&spread.key) else {
            return Some(Refusal::lasting(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ));
        };
        let here = signed(spread.counts.get(value));
        if here + spread.own - spread.fewest > spread.max_skew {
            return Some(Refusal::passing("node(s) didn't match pod topology spread constraints"));
        }
    }
    None
}

/// What the Pods of the kind in the Node's domains weigh; below 0 for a Node that is no domain at all.
///
/// Source: `scoreForCount`.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let state = &candidate.spread;
    if state.is_ignored(node) {
        return IGNORED;
    }
    let here = state.soft.iter().filter_map(|spread| {
        let count = spread.counts.get(node.label(&spread.key)?);
        #[expect(clippy::cast_precision_loss, reason = "a score needs no more than 52 bits")]
        Some((count as f64).mul_add(spread.weight, (spread.max_skew - 1) as f64))
    });
    #[expect(clippy::cast_possible_truncation, reason = "rounded, and small")]
    let score = here.sum::<f64>().round() as i64;
    score
}

/// The score of a Node that lacks a label, before normalizing; 0 afterwards.
const IGNORED: i64 = -1;

/// The emptier, the better; 0 for Nodes that are no domain. Source: `PodTopologySpread.NormalizeScore`.
pub(super) fn normalize(scores: &mut [i64]) {
    let counted = || scores.iter().copied().filter(|score| *score != IGNORED);
    let (min, max) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0));
    for score in scores {
        *score = match *score {
            IGNORED => 0,
            _ if max == 0 => SCORE_MAX,
            score => SCORE_MAX * (max + min - score) / max,
        };
    }
}

#[cfg(test)]
mod tests;
