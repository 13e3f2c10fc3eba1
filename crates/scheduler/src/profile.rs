//! By what a Pod is scheduled: which plugins are asked, in which order, how much they count, and what they were told.
//!
//! A Pod names its profile in `spec.schedulerName`. Source: `KubeSchedulerProfile`, kubescheduler.config.k8s.io/v1.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::pod::Pod;
use controller::{Action, EventType};
use machinery::features::Feature;
use prometheus_client::encoding::EncodeLabelValue;

use crate::arguments::Arguments;

/// The profile of Pods that name none. Source: `DefaultSchedulerName`, core/v1.
pub const DEFAULT_NAME: &str = "default-scheduler";

/// An extension point: where a plugin is asked. Source: the scheduling framework's extension points, in the order in
/// which upstream looks at them when it sets a profile up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelValue)]
#[expect(missing_docs, reason = "the names are upstream's, as a configuration has them")]
pub enum Point {
    PreFilter,
    Filter,
    PostFilter,
    Reserve,
    PreScore,
    Score,
    PreBind,
    Bind,
    PostBind,
    Permit,
    PreEnqueue,
    QueueSort,
}

impl Point {
    /// All of them, in order.
    pub const ALL: [Self; 12] = [
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::Reserve,
        Self::PreScore,
        Self::Score,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
        Self::Permit,
        Self::PreEnqueue,
        Self::QueueSort,
    ];
}

/// A plugin that can be asked.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    /// Upstream's name.
    pub name: &'static str,
    /// The default weight; 0 where upstream says nothing, which counts as 1.
    pub weight: i32,
    /// The points at which it can be asked.
    pub points: &'static [Point],
    /// The condition on which it is asked by default.
    pub asked: Asked,
}

/// The condition on which a plugin is asked by default.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// Always.
    Always,
    /// If the feature is on.
    With(Feature),
    /// Never: its feature is off at this level.
    Never,
}

impl Plugin {
    /// `true` if it is asked unless somebody says otherwise.
    pub fn is_default(&self) -> bool {
        match self.asked {
            Asked::Always => true,
            Asked::With(feature) => feature.is_on(),
            Asked::Never => false,
        }
    }
}

const fn plugin(name: &'static str, weight: i32, points: &'static [Point]) -> Plugin {
    Plugin { name, weight, points, asked: Asked::Always }
}

use Point::{
    Bind, Filter, Permit, PostFilter, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
};

/// Upstream's plugins in its default order, then those that only do something behind gates that are off at this level.
/// Source: `getDefaultPlugins`, `NewInTreeRegistry`.
pub const PLUGINS: &[Plugin] = &[
    plugin("SchedulingGates", 0, &[PreEnqueue]),
    plugin("PrioritySort", 0, &[QueueSort]),
    plugin("NodeUnschedulable", 0, &[Filter]),
    plugin("NodeName", 0, &[Filter]),
    plugin("TaintToleration", 3, &[Filter, PreScore, Score]),
    plugin("NodeAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    plugin("NodePorts", 0, &[PreFilter, Filter]),
    plugin("NodeResourcesFit", 1, &[PreFilter, Filter, PreScore, Score]),
    plugin("VolumeRestrictions", 0, &[PreFilter, Filter]),
    plugin("NodeVolumeLimits", 0, &[PreFilter, Filter]),
    plugin("VolumeBinding", 0, &[PreFilter, Filter, Reserve, PreScore, Score, PreBind]),
    plugin("VolumeZone", 0, &[PreFilter, Filter]),
    plugin("PodTopologySpread", 2, &[PreFilter, Filter, PreScore, Score]),
    plugin("InterPodAffinity", 2, &[PreFilter, Filter, PreScore, Score]),
    plugin("DynamicResources", 2, &[PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind]),
    plugin("DefaultPreemption", 0, &[PreEnqueue, PostFilter]),
    plugin("NodeResourcesBalancedAllocation", 1, &[PreScore, Score]),
    plugin("ImageLocality", 1, &[Score]),
    plugin("DefaultBinder", 0, &[Bind]),
    Plugin { asked: Asked::Never, ..plugin("NodeDeclaredFeatures", 0, &[PreFilter, Filter]) },
    Plugin {
        asked: Asked::With(Feature::GangScheduling),
        ..plugin("GangScheduling", 0, &[PreEnqueue, Reserve, Permit])
    },
];

/// A profile: the plugins, weights and arguments by which a Pod is scheduled.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The name that Pods call it by.
    pub name: String,
    /// Among how many of a hundred Nodes that can take a Pod the best is good enough; 0 for upstream's adaptive share.
    pub percentage_of_nodes_to_score: usize,
    /// The arguments of the plugins.
    pub arguments: Arguments,
    plugins: BTreeMap<Point, Vec<&'static str>>,
    /// How much each that ranks Nodes counts, in their order.
    weights: Vec<i64>,
}

impl Profile {
    /// A profile that asks `plugins` at each point, in that order; `weight` says how much one counts.
    pub fn new(
        name: String,
        plugins: BTreeMap<Point, Vec<&'static str>>,
        weight: impl Fn(&str) -> i64,
        arguments: Arguments,
    ) -> Self {
        let weights = plugins.get(&Score).into_iter().flatten().map(|name| weight(name)).collect();
        Self { name, percentage_of_nodes_to_score: 0, arguments, plugins, weights }
    }

    /// Those that rank Nodes, with their weights.
    pub fn scores(&self) -> impl Iterator<Item = (&'static str, i64)> {
        self.plugins(Score).iter().copied().zip(self.weights.iter().copied())
    }

    /// `true` if a plugin is asked there.
    pub fn asks(&self, name: &str, point: Point) -> bool {
        self.plugins(point).contains(&name)
    }

    /// The plugins that are asked there, in order.
    pub fn plugins(&self, point: Point) -> &[&'static str] {
        self.plugins.get(&point).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Default for Profile {
    /// What upstream does unless it is told otherwise.
    fn default() -> Self {
        let at = |point: Point| {
            let asked = PLUGINS.iter().filter(move |row| row.is_default() && row.points.contains(&point));
            (point, asked.map(|row| row.name).collect())
        };
        let weight = |name: &str| {
            let row = PLUGINS.iter().find(|row| row.name == name);
            row.map_or(1, |row| i64::from(row.weight.max(1)))
        };
        Self::new(DEFAULT_NAME.to_owned(), Point::ALL.map(at).into(), weight, Arguments::default())
    }
}

/// The profiles of one scheduler, never none.
#[derive(Clone, Debug)]
pub struct Profiles {
    first: Arc<Profile>,
    others: Vec<Arc<Profile>>,
}

impl Profiles {
    /// `first` and others, each of another name.
    pub fn new(first: Profile, others: Vec<Profile>) -> Self {
        Self { first: Arc::new(first), others: others.into_iter().map(Arc::new).collect() }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Profile>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The one that the Pod names, if it is one of ours.
    pub fn named_by(&self, pod: &Pod) -> Option<&Arc<Profile>> {
        let name = scheduler_name(pod);
        self.all().find(|profile| profile.name == name)
    }

    /// The one that the Pod is scheduled by; the first for a Pod that names none of ours.
    pub fn of(&self, pod: &Pod) -> &Arc<Profile> {
        self.named_by(pod).unwrap_or(&self.first)
    }
}

impl Default for Profiles {
    fn default() -> Self {
        Self::new(Profile::default(), Vec::new())
    }
}

/// The name of the profile that is to schedule the Pod.
pub fn scheduler_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(DEFAULT_NAME)
}

/// An event about `regarding` that happens because `pod` is scheduled: it comes from the profile that the Pod names.
pub(crate) fn event(
    pod: &Pod,
    regarding: &Pod,
    event_type: EventType,
    reason: &str,
    message: impl Into<String>,
) -> Action {
    Action::event_from(scheduler_name(pod).to_owned(), regarding, event_type, reason, message)
}

#[cfg(test)]
mod tests {
    use controller::pod::Interned;

    use super::*;

    #[test]
    fn a_pod_names_its_profile() {
        let profiles = Profiles::new(
            Profile::default(),
            vec![Profile { name: "packed".to_owned(), ..Profile::default() }],
        );
        for (name, expect) in
            [(None, Some(DEFAULT_NAME)), (Some("packed"), Some("packed")), (Some("x"), None)]
        {
            let mut pod = Pod::default();
            pod.spec.get_or_insert_default().scheduler_name = name.map(|name| Interned::of(name.to_owned()));
            assert_eq!(profiles.named_by(&pod).map(|profile| profile.name.as_str()), expect);
        }
    }
}
