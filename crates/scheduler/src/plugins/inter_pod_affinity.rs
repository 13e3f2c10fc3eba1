//! Pods that want to be near others, or far from them. Source: `core/v1.PodAffinity` and `PodAntiAffinity`.
//!
//! Near and far are by topology: Nodes whose label `topologyKey` has the same value are one place. What each place
//! holds is summed up once per decision; a Node is then judged by its labels.

use std::collections::{BTreeMap, HashMap};

use controller::selector;
use k8s_openapi::api::core::v1::{Affinity, Pod, PodAffinityTerm, WeightedPodAffinityTerm};

use super::{Candidate, Refusal};
use crate::node_info::{NodeInfo, Snapshot};

/// What a Pod's being matched by another's required affinity counts. Source: `hardPodAffinityWeight`.
const REQUIRED_WEIGHT: i64 = 1;

/// A place: a label and its value.
type Place = (String, String);

/// What is known about places for one Pod.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    near: Vec<PodAffinityTerm>,
    far: Vec<PodAffinityTerm>,
    /// Where Pods are that match all of `near`.
    wanted: HashMap<Place, usize>,
    /// Where Pods are that match one of `far`.
    unwanted: HashMap<Place, usize>,
    /// Where Pods are that do not want this one.
    forbidden: HashMap<Place, usize>,
    /// The Pod matches its own `near`: it may be the first of its group.
    matches_itself: bool,
    scores: HashMap<Place, i64>,
}

impl State {
    pub(super) fn new(pod: &Pod, all: &Snapshot) -> Self {
        let mut state = Self { near: required(pod, near_of), far: required(pod, far_of), ..Self::default() };
        state.matches_itself = matches_all(&state.near, pod, pod, all);
        for (other, node) in all.choosy() {
            state.hear(pod, other, node, all);
        }
        let wishes = wishes(pod);
        if !state.near.is_empty() || !state.far.is_empty() || !wishes.is_empty() {
            for node in all.nodes() {
                for other in node.pods.values() {
                    state.look(pod, other, node, all);
                    for (term, weight) in &wishes {
                        if matches(term, pod, other, all) {
                            add(&mut state.scores, node, term, *weight);
                        }
                    }
                }
            }
        }
        state
    }

    /// What `other` says about `pod`.
    fn hear(&mut self, pod: &Pod, other: &Pod, node: &NodeInfo, all: &Snapshot) {
        for term in required(other, far_of).iter().filter(|term| matches(term, other, pod, all)) {
            add(&mut self.forbidden, node, term, 1);
        }
        for term in required(other, near_of).iter().filter(|term| matches(term, other, pod, all)) {
            add(&mut self.scores, node, term, REQUIRED_WEIGHT);
        }
        for (term, weight) in wishes(other).iter().filter(|(term, _)| matches(term, other, pod, all)) {
            add(&mut self.scores, node, term, *weight);
        }
    }

    /// What `pod` requires of `other`.
    fn look(&mut self, pod: &Pod, other: &Pod, node: &NodeInfo, all: &Snapshot) {
        if matches_all(&self.near, pod, other, all) {
            for term in &self.near {
                add(&mut self.wanted, node, term, 1);
            }
        }
        for term in self.far.iter().filter(|term| matches(term, pod, other, all)) {
            add(&mut self.unwanted, node, term, 1);
        }
    }

    fn is_near(&self, node: &NodeInfo) -> bool {
        let places: Option<Vec<Place>> = self.near.iter().map(|term| place(node, term)).collect();
        let Some(places) = places else { return false };
        places.iter().all(|place| self.wanted.contains_key(place))
            || (self.wanted.is_empty() && self.matches_itself)
    }
}

/// Whether somebody requires something, the Pod or another of it.
pub(super) fn restricts(candidate: &Candidate<'_>) -> bool {
    let state = &candidate.near;
    !(state.near.is_empty() && state.far.is_empty() && state.forbidden.is_empty())
}

/// Whether somebody wishes something.
pub(super) fn prefers(candidate: &Candidate<'_>) -> bool {
    !candidate.near.scores.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let state = &candidate.near;
    if !state.is_near(node) {
        return Some(Refusal::lasting("node(s) didn't match pod affinity rules"));
    }
    let mut far = state.far.iter().filter_map(|term| place(node, term));
    if far.any(|place| state.unwanted.contains_key(&place)) {
        return Some(Refusal::passing("node(s) didn't match pod anti-affinity rules"));
    }
    let is_forbidden = |place: &Place| node.label(&place.0) == Some(place.1.as_str());
    if state.forbidden.keys().any(is_forbidden) {
        return Some(Refusal::passing("node(s) didn't satisfy existing pods anti-affinity rules"));
    }
    None
}

/// The weights of all wishes that the Node's places fulfil.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let scores = candidate.near.scores.iter();
    let here = scores.filter(|((key, value), _)| node.label(key) == Some(value.as_str()));
    here.map(|(_, weight)| weight).sum()
}

fn add<N: std::ops::AddAssign + Default>(
    counts: &mut HashMap<Place, N>,
    node: &NodeInfo,
    term: &PodAffinityTerm,
    count: N,
) {
    if let Some(place) = place(node, term) {
        *counts.entry(place).or_default() += count;
    }
}

fn place(node: &NodeInfo, term: &PodAffinityTerm) -> Option<Place> {
    node.label(&term.topology_key).map(|value| (term.topology_key.clone(), value.to_owned()))
}

/// Required and preferred terms of one direction.
type Terms<'a> = (Option<&'a [PodAffinityTerm]>, Option<&'a [WeightedPodAffinityTerm]>);

fn near_of(affinity: &Affinity) -> Option<Terms<'_>> {
    let near = affinity.pod_affinity.as_ref()?;
    Some((
        near.required_during_scheduling_ignored_during_execution.as_deref(),
        near.preferred_during_scheduling_ignored_during_execution.as_deref(),
    ))
}

fn far_of(affinity: &Affinity) -> Option<Terms<'_>> {
    let far = affinity.pod_anti_affinity.as_ref()?;
    Some((
        far.required_during_scheduling_ignored_during_execution.as_deref(),
        far.preferred_during_scheduling_ignored_during_execution.as_deref(),
    ))
}

fn required(pod: &Pod, of: fn(&Affinity) -> Option<Terms<'_>>) -> Vec<PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    affinity.and_then(of).and_then(|(required, _)| required).unwrap_or_default().to_vec()
}

/// Preferred terms with their weights; those to be far from count against a place.
fn wishes(pod: &Pod) -> Vec<(PodAffinityTerm, i64)> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let preferred = |of: fn(&Affinity) -> Option<Terms<'_>>, sign: i64| -> Vec<(PodAffinityTerm, i64)> {
        let terms = affinity.and_then(of).and_then(|(_, preferred)| preferred).unwrap_or_default();
        terms.iter().map(|t| (t.pod_affinity_term.clone(), sign * i64::from(t.weight))).collect()
    };
    let mut all = preferred(near_of, 1);
    all.extend(preferred(far_of, -1));
    all
}

fn matches_all(terms: &[PodAffinityTerm], owner: &Pod, other: &Pod, all: &Snapshot) -> bool {
    !terms.is_empty() && terms.iter().all(|term| matches(term, owner, other, all))
}

/// Whether a term of `owner` is about `other`.
fn matches(term: &PodAffinityTerm, owner: &Pod, other: &Pod, all: &Snapshot) -> bool {
    let namespace = other.metadata.namespace.as_deref().unwrap_or_default();
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let none = BTreeMap::new();
    let is_in_namespace = match &term.namespace_selector {
        None if listed.is_empty() => namespace == owner.metadata.namespace.as_deref().unwrap_or_default(),
        None => listed.iter().any(|name| name == namespace),
        Some(wanted) => {
            let labels = all.namespace_labels(namespace).unwrap_or(&none);
            listed.iter().any(|name| name == namespace) || selector::selects(wanted, Some(labels))
        }
    };
    let labels = other.metadata.labels.as_ref();
    is_in_namespace && term.label_selector.as_ref().is_some_and(|wanted| selector::selects(wanted, labels))
}
