//! The arguments of plugins, with upstream's defaults. Source: the plugins' `Args` of kubescheduler.config.k8s.io/v1.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use machinery::features::Feature;

/// The arguments of a profile's plugins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// `NodeResourcesFitArgs`
    pub fit: Fit,
    /// `NodeResourcesBalancedAllocationArgs`
    pub balance: Balance,
    /// `InterPodAffinityArgs`
    pub near: Near,
    /// `PodTopologySpreadArgs`
    pub spread: Spread,
    /// `NodeAffinityArgs.addedAffinity`: what every Pod asks for beside its own.
    pub added_affinity: Option<NodeAffinity>,
    /// `VolumeBindingArgs`
    pub volumes: Volumes,
    /// `DefaultPreemptionArgs`
    pub preemption: Candidates,
}

/// The arguments about a Node's resources.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Extended resources that a Node need not have.
    pub ignored: BTreeSet<String>,
    /// The prefixes of their names, up to the slash.
    pub ignored_groups: BTreeSet<String>,
    /// The strategy that makes a Node better.
    pub strategy: Strategy,
    /// The resources that are looked at, and their weights.
    pub resources: Vec<(String, i64)>,
}

/// The scoring strategy for a Node's free resources. Source: `ScoringStrategy`.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// More room.
    LeastAllocated,
    /// Less room.
    MostAllocated,
    /// What a broken line says of the share in use.
    RequestedToCapacityRatio(Line),
}

/// The resources whose shares are to be alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balance {
    /// The resources.
    pub resources: Vec<String>,
}

/// The arguments about other Pods' affinities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// The weight of another Pod's requirement to have this one near.
    pub hard_weight: i64,
    /// `true` if others' wishes do not count for a Pod that has none.
    pub ignores_wishes_of_others: bool,
}

/// The default spread of Pods that say nothing about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Spread {
    /// A little over hosts and less over zones; a Node without the labels is not out of the question.
    #[default]
    System,
    /// As these say.
    List(Vec<TopologySpreadConstraint>),
}

/// The arguments about volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volumes {
    /// The time-out of the wait for them.
    pub bind_timeout: Duration,
    /// The score of a Node by the share of its storage that the Pod's volumes would take, as [`Line`] has it; empty while
    /// `StorageCapacityScoring` is off, and nothing is scored.
    pub shape: Line,
}

/// A broken line: percentages, which rise, and scores up to 100.
pub type Line = Vec<(i64, i64)>;

/// The number of Nodes that are candidates for preemption: a percentage or a number, whichever is more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// Of a hundred.
    pub percentage: usize,
    /// Of all.
    pub absolute: usize,
}

/// CPU and memory, alike.
pub(crate) fn default_resources() -> Vec<(String, i64)> {
    vec![("cpu".to_owned(), 1), ("memory".to_owned(), 1)]
}

impl Default for Fit {
    fn default() -> Self {
        Self {
            ignored: BTreeSet::new(),
            ignored_groups: BTreeSet::new(),
            strategy: Strategy::LeastAllocated,
            resources: default_resources(),
        }
    }
}

impl Default for Balance {
    fn default() -> Self {
        Self { resources: default_resources().into_iter().map(|(name, _)| name).collect() }
    }
}

impl Default for Near {
    fn default() -> Self {
        Self { hard_weight: 1, ignores_wishes_of_others: false }
    }
}

impl Default for Volumes {
    fn default() -> Self {
        let shape =
            if Feature::StorageCapacityScoring.is_on() { vec![(0, 100), (100, 0)] } else { Line::new() };
        Self { bind_timeout: Duration::from_secs(600), shape }
    }
}

impl Default for Candidates {
    fn default() -> Self {
        Self { percentage: 10, absolute: 100 }
    }
}
