//! Pods that want to be near others, or far from them. Source: `core/v1.PodAffinity` and `PodAntiAffinity`.
//!
//! Near and far are by topology: Nodes whose label `topologyKey` has the same value are one domain. What each domain
//! holds is kept by kinds of Pods, which are asked instead of their Pods; a Node is then judged by its labels.

use std::collections::BTreeMap;

use controller::pod::Pod;
use controller::selector;
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, WeightedPodAffinityTerm};

use super::{Candidate, Refusal};
use crate::arguments::Near;
use crate::node_info::{NodeInfo, Snapshot};
use crate::topology_domains::{Counts, KindId};

/// What is known about topology domains for one Pod.
#[derive(Clone, Debug, Default)]
pub(super) struct State<'a> {
    near: Vec<&'a PodAffinityTerm>,
    far: Vec<&'a PodAffinityTerm>,
    /// For each of `near`: where Pods are that match all of them.
    wanted: Vec<Counts<'a>>,
    /// For each of `far`: where Pods are that match it.
    unwanted: Vec<Counts<'a>>,
    /// By topology key: where Pods are that do not want this one.
    forbidden: Vec<(&'a str, Counts<'a>)>,
    /// The Pod matches its own `near`: it may be the first of its group.
    matches_itself: bool,
    /// What each Pod in a domain counts, by topology key.
    wishes: Vec<(&'a str, i64, Counts<'a>)>,
}

/// Kinds of Pods by topology key and by what each of their Pods counts.
type Kinds<'a> = BTreeMap<(&'a str, i64), Vec<KindId>>;

impl<'a> State<'a> {
    pub(super) fn new(pod: &'a Pod, all: &'a Snapshot) -> Self {
        let mut state = Self { near: required(pod, near_of), far: required(pod, far_of), ..Self::default() };
        state.matches_itself = matches_all(&state.near, pod, pod, all);
        let arguments = &all.profiles.of(pod).arguments.near;
        let (forbidden, mut wishes_of) = said_by_others(pod, all, arguments);
        if arguments.ignores_wishes_of_others && wishes(pod).next().is_none() {
            wishes_of.clear();
        }
        if !state.near.is_empty() {
            let group = kinds(pod, &state.near, all, |other| matches_all(&state.near, pod, other, all));
            state.wanted =
                state.near.iter().map(|term| all.domains.counts(&group, &term.topology_key)).collect();
        }
        let about = |term: &PodAffinityTerm| kinds(pod, &[term], all, |other| matches(term, pod, other, all));
        state.unwanted =
            state.far.iter().map(|term| all.domains.counts(&about(term), &term.topology_key)).collect();
        for (term, weight) in wishes(pod) {
            wishes_of.entry((&term.topology_key, weight)).or_default().extend(about(term));
        }
        let counted = |kinds: Kinds<'a>| {
            let counts =
                kinds.into_iter().map(|((key, weight), ids)| (key, weight, all.domains.counts(&ids, key)));
            counts.filter(|(_, _, counts)| counts.domains() > 0).collect::<Vec<_>>()
        };
        state.forbidden = counted(forbidden).into_iter().map(|(key, _, counts)| (key, counts)).collect();
        state.wishes = counted(wishes_of);
        state
    }

    fn is_near(&self, node: &NodeInfo) -> bool {
        let domains: Option<Vec<&str>> =
            self.near.iter().map(|term| node.label(&term.topology_key)).collect();
        let Some(domains) = domains else { return false };
        self.wanted.iter().zip(domains).all(|(counts, domain)| counts.get(domain) > 0)
            || (self.wanted.iter().all(|counts| counts.domains() == 0) && self.matches_itself)
    }
}

/// What other Pods say about `pod`: where it must not be, and where they want it or do not.
fn said_by_others<'a>(pod: &Pod, all: &'a Snapshot, arguments: &Near) -> (Kinds<'a>, Kinds<'a>) {
    let (mut forbidden, mut wanted) = (Kinds::new(), Kinds::new());
    for (id, other) in all.domains.choosy().map(|(id, kind)| (id, &*kind.pod)) {
        for term in required(other, far_of).into_iter().filter(|term| matches(term, other, pod, all)) {
            forbidden.entry((term.topology_key.as_str(), 0)).or_default().push(id);
        }
        let hard = required(other, near_of).into_iter().map(|term| (term, arguments.hard_weight));
        let hard = hard.filter(|(_, weight)| *weight > 0);
        for (term, weight) in hard.chain(wishes(other)).filter(|(term, _)| matches(term, other, pod, all)) {
            wanted.entry((term.topology_key.as_str(), weight)).or_default().push(id);
        }
    }
    (forbidden, wanted)
}

/// The kinds that `is_meant` says these terms of `pod` are about.
fn kinds(
    pod: &Pod,
    terms: &[&PodAffinityTerm],
    all: &Snapshot,
    is_meant: impl Fn(&Pod) -> bool,
) -> Vec<KindId> {
    let is_home = |term: &&PodAffinityTerm| {
        term.namespace_selector.is_none() && term.namespaces.as_ref().is_none_or(Vec::is_empty)
    };
    if terms.iter().all(is_home) {
        let here = all.domains.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
        return here.filter(|(_, kind)| is_meant(&kind.pod)).map(|(id, _)| id).collect();
    }
    all.domains.all().filter(|(_, kind)| is_meant(&kind.pod)).map(|(id, _)| id).collect()
}

/// Whether somebody requires something, the Pod or another of it.
pub(super) fn restricts(candidate: &Candidate<'_>) -> bool {
    let state = &candidate.near;
    !(state.near.is_empty() && state.far.is_empty() && state.forbidden.is_empty())
}

/// Whether somebody wishes something.
pub(super) fn prefers(candidate: &Candidate<'_>) -> bool {
    !candidate.near.wishes.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let state = &candidate.near;
    if !state.is_near(node) {
        return Some(Refusal::lasting("node(s) didn't match pod affinity rules"));
    }
    let has_any =
        |key: &str, counts: &Counts<'_>| node.label(key).is_some_and(|domain| counts.get(domain) > 0);
    if state.far.iter().zip(&state.unwanted).any(|(term, counts)| has_any(&term.topology_key, counts)) {
        return Some(Refusal::passing("node(s) didn't match pod anti-affinity rules"));
    }
    if state.forbidden.iter().any(|(key, counts)| has_any(key, counts)) {
        return Some(Refusal::passing("node(s) didn't satisfy existing pods anti-affinity rules"));
    }
    None
}

/// The weights of all wishes that the Node's domains fulfil.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let here = candidate.near.wishes.iter().filter_map(|(key, weight, counts)| {
        let count = counts.get(node.label(key)?);
        Some(weight.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
    });
    here.sum()
}

/// Required and preferred terms of one direction.
pub(crate) type Terms<'a> = (Option<&'a [PodAffinityTerm]>, Option<&'a [WeightedPodAffinityTerm]>);

/// Near or far.
type Direction = fn(&Affinity) -> Option<Terms<'_>>;

pub(crate) fn near_of(affinity: &Affinity) -> Option<Terms<'_>> {
    let near = affinity.pod_affinity.as_ref()?;
    Some((
        near.required_during_scheduling_ignored_during_execution.as_deref(),
        near.preferred_during_scheduling_ignored_during_execution.as_deref(),
    ))
}

pub(crate) fn far_of(affinity: &Affinity) -> Option<Terms<'_>> {
    let far = affinity.pod_anti_affinity.as_ref()?;
    Some((
        far.required_during_scheduling_ignored_during_execution.as_deref(),
        far.preferred_during_scheduling_ignored_during_execution.as_deref(),
    ))
}

pub(crate) fn required(pod: &Pod, of: fn(&Affinity) -> Option<Terms<'_>>) -> Vec<&PodAffinityTerm> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_deref());
    affinity.and_then(of).and_then(|(required, _)| required).unwrap_or_default().iter().collect()
}

/// Preferred terms with their weights; those to be far from count against a domain.
fn wishes(pod: &Pod) -> impl Iterator<Item = (&PodAffinityTerm, i64)> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_deref());
    let both: [(Direction, i64); 2] = [(near_of, 1), (far_of, -1)];
    both.into_iter().flat_map(move |(of, sign)| {
        let terms = affinity.and_then(of).and_then(|(_, preferred)| preferred).unwrap_or_default();
        terms.iter().map(move |term| (&term.pod_affinity_term, sign * i64::from(term.weight)))
    })
}

pub(crate) fn matches_all(terms: &[&PodAffinityTerm], owner: &Pod, other: &Pod, all: &Snapshot) -> bool {
    !terms.is_empty() && terms.iter().all(|term| matches(term, owner, other, all))
}

/// Whether a term of `owner` is about `other`.
pub(crate) fn matches(term: &PodAffinityTerm, owner: &Pod, other: &Pod, all: &Snapshot) -> bool {
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

#[cfg(test)]
mod tests;
