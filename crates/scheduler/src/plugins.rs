//! The plugins as rows, in the order in which they run. Source: upstream's default plugin set and weights.

mod balanced_allocation;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod pod_topology_spread;
mod taint_toleration;
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
mod volume_zone;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::node_info::{NodeInfo, PodNeed, Snapshot};
use crate::storage::{Promise, Storage};

/// The best score that a plugin can give.
pub const SCORE_MAX: i64 = 100;

/// The Pod that wants a Node, with what it needs summed up once.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// Its requests and ports.
    pub need: PodNeed,
    images: image_locality::State,
    near: inter_pod_affinity::State,
    spread: pod_topology_spread::State,
    storage: &'a Storage,
    volumes: volume_binding::State,
    is_claim_taken: bool,
}

impl<'a> Candidate<'a> {
    /// A Pod that wants one of the Nodes of `snapshot`, away from those that `kin` selects.
    pub fn new(pod: &'a Pod, kin: Option<&LabelSelector>, snapshot: &'a Snapshot) -> Self {
        Self {
            pod,
            need: PodNeed::of(pod),
            images: image_locality::State::new(pod, snapshot),
            near: inter_pod_affinity::State::new(pod, snapshot),
            spread: pod_topology_spread::State::new(pod, kin, snapshot),
            storage: &snapshot.storage,
            volumes: volume_binding::State::new(pod, snapshot),
            is_claim_taken: volume_restrictions::is_taken(pod, snapshot),
        }
    }

    /// Why no Node will do, whatever it is like. Source: `PreFilter`.
    pub fn refused(&self) -> Option<&str> {
        self.volumes.refused.as_deref()
    }

    /// What is to be done for the Pod's volumes on `node`, which can take it. Source: `Reserve`.
    pub fn promise(&self, node: &NodeInfo) -> Option<Promise> {
        volume_binding::settle(&self.volumes, self.storage, node).ok().filter(|promise| !promise.is_empty())
    }

    /// Learns which Nodes are in question, before they are scored. Source: `PreScore`.
    pub fn settle(&mut self, feasible: &[&NodeInfo]) {
        self.spread.weigh(feasible);
    }
}

/// Why a Node cannot take a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For people; several where upstream reports several.
    pub reasons: Vec<String>,
    /// Whether it would be otherwise if Pods of less priority went.
    pub remedy: Remedy,
}

/// What could make a Node take a Pod. Source: `Unschedulable` and `UnschedulableAndUnresolvable` of the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Other Pods' going.
    Preemption,
    /// Nothing that happens to Pods.
    None,
}

impl Refusal {
    /// Whatever Pods do, the Node cannot take this one.
    pub(crate) fn lasting(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], remedy: Remedy::None }
    }

    /// The Node could take the Pod if others went.
    pub(crate) fn passing(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], remedy: Remedy::Preemption }
    }
}

/// A plugin that rules Nodes out.
#[derive(Clone, Copy, Debug)]
pub struct Filter {
    /// Upstream's plugin name.
    pub name: &'static str,
    /// Nothing if the Node can take the Pod.
    pub filter: fn(&Candidate<'_>, &NodeInfo) -> Option<Refusal>,
}

/// A plugin that ranks Nodes.
#[derive(Clone, Copy, Debug)]
pub struct Score {
    /// Upstream's plugin name.
    pub name: &'static str,
    /// How much it counts.
    pub weight: i64,
    /// A Node's raw score.
    pub score: fn(&Candidate<'_>, &NodeInfo) -> i64,
    /// How raw scores become `0..=SCORE_MAX`.
    pub normalize: Normalize,
}

/// How raw scores become comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalize {
    /// They are already.
    AsIs,
    /// The largest becomes [`SCORE_MAX`].
    ByMax,
    /// The largest becomes 0, and 0 becomes [`SCORE_MAX`].
    ByMaxReversed,
    /// The smallest becomes 0, the largest [`SCORE_MAX`].
    ByRange,
    /// As Pods are spread over places: what weighs nothing becomes [`SCORE_MAX`].
    Spread,
}

/// Cheap and most telling first.
pub const FILTERS: &[Filter] = &[
    Filter { name: "NodeUnschedulable", filter: node_unschedulable::filter },
    Filter { name: "NodeName", filter: node_name::filter },
    Filter { name: "TaintToleration", filter: taint_toleration::filter },
    Filter { name: "NodeAffinity", filter: node_affinity::filter },
    Filter { name: "NodePorts", filter: node_ports::filter },
    Filter { name: "NodeResourcesFit", filter: node_resources_fit::filter },
    Filter { name: "VolumeRestrictions", filter: volume_restrictions::filter },
    Filter { name: "NodeVolumeLimits", filter: volume_limits::filter },
    Filter { name: "VolumeBinding", filter: volume_binding::filter },
    Filter { name: "VolumeZone", filter: volume_zone::filter },
    Filter { name: "PodTopologySpread", filter: pod_topology_spread::filter },
    Filter { name: "InterPodAffinity", filter: inter_pod_affinity::filter },
];

/// Weights are upstream's.
pub const SCORES: &[Score] = &[
    Score {
        name: "TaintToleration",
        weight: 3,
        score: taint_toleration::score,
        normalize: Normalize::ByMaxReversed,
    },
    Score { name: "NodeAffinity", weight: 2, score: node_affinity::score, normalize: Normalize::ByMax },
    Score {
        name: "PodTopologySpread",
        weight: 2,
        score: pod_topology_spread::score,
        normalize: Normalize::Spread,
    },
    Score {
        name: "InterPodAffinity",
        weight: 2,
        score: inter_pod_affinity::score,
        normalize: Normalize::ByRange,
    },
    Score {
        name: "NodeResourcesFit",
        weight: 1,
        score: node_resources_fit::score,
        normalize: Normalize::AsIs,
    },
    Score {
        name: "NodeResourcesBalancedAllocation",
        weight: 1,
        score: balanced_allocation::score,
        normalize: Normalize::AsIs,
    },
    Score { name: "ImageLocality", weight: 1, score: image_locality::score, normalize: Normalize::AsIs },
];

/// Scales one plugin's scores in place.
pub fn normalize(scores: &mut [i64], how: Normalize) {
    let max = scores.iter().copied().max().unwrap_or(0);
    let min = scores.iter().copied().min().unwrap_or(0);
    match how {
        Normalize::AsIs => {}
        Normalize::ByMax if max == 0 => {}
        Normalize::ByMax => scores.iter_mut().for_each(|score| *score = *score * SCORE_MAX / max),
        Normalize::ByRange if max == min => scores.fill(0),
        Normalize::ByRange => {
            scores.iter_mut().for_each(|score| *score = (*score - min) * SCORE_MAX / (max - min));
        }
        Normalize::Spread => pod_topology_spread::normalize(scores),
        Normalize::ByMaxReversed if max == 0 => scores.fill(SCORE_MAX),
        Normalize::ByMaxReversed => {
            scores.iter_mut().for_each(|score| *score = SCORE_MAX - *score * SCORE_MAX / max);
        }
    }
}
