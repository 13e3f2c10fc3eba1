//! The plugins that look at Nodes, as rows. Which are asked, in which order and with which weights is a profile's affair.

mod balanced_allocation;
mod dynamic_resources;
pub(crate) mod gang_scheduling;
mod image_locality;
pub(crate) mod inter_pod_affinity;
mod node_affinity;
mod node_name;
pub(crate) mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod pod_topology_spread;
mod taint_toleration;
mod volume_binding;
mod volume_limits;
pub(crate) mod volume_restrictions;
mod volume_zone;

use std::collections::BTreeSet;
use std::sync::Arc;

use controller::pod::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::allowed::Verdicts;
use crate::devices::{self, Devices};
use crate::node_info::{NodeInfo, PodNeed, Snapshot};
use crate::profile::{Point, Profile};
use crate::storage::{PodVolumes, Storage};
use crate::timings::{Code, Timings};

/// The best score that a plugin can give.
pub const SCORE_MAX: i64 = 100;

/// The Pod that wants a Node, with what it needs summed up once.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// Its requests and ports.
    pub need: PodNeed,
    /// By what it is scheduled.
    pub profile: &'a Profile,
    images: image_locality::State,
    near: inter_pod_affinity::State<'a>,
    spread: pod_topology_spread::State<'a>,
    storage: &'a Storage,
    volumes: volume_binding::State,
    zones: volume_zone::State,
    attached: volume_limits::State,
    is_claim_taken: bool,
    /// Which Nodes its selector and affinity allow, as far as that is known.
    allowed: Verdicts,
    /// The only Nodes that it may be on, if it names them.
    named: Option<BTreeSet<&'a str>>,
    devices: &'a Devices,
    claims: dynamic_resources::State,
    /// Those of the profile's filters that may have something against a Node.
    filters: Vec<&'static Filter>,
}

impl<'a> Candidate<'a> {
    /// A Pod that wants one of the Nodes of `snapshot`, away from those that `default_selector` selects.
    pub fn new(pod: &'a Pod, default_selector: Option<&LabelSelector>, snapshot: &'a Snapshot) -> Self {
        let mut candidate = Self {
            pod,
            need: PodNeed::of(pod),
            profile: snapshot.profiles.of(pod),
            images: image_locality::State::new(pod, snapshot),
            near: inter_pod_affinity::State::new(pod, snapshot),
            spread: pod_topology_spread::State::new(pod, default_selector, snapshot),
            storage: &snapshot.storage,
            volumes: volume_binding::State::new(pod, snapshot),
            zones: volume_zone::State::new(pod, &snapshot.storage),
            attached: volume_limits::State::new(pod, &snapshot.storage),
            is_claim_taken: volume_restrictions::is_taken(pod, snapshot),
            allowed: snapshot.allowed.of(pod, snapshot.len()),
            named: None,
            devices: &snapshot.devices,
            claims: dynamic_resources::State::new(pod, snapshot),
            filters: Vec::new(),
        };
        if candidate.profile.asks("NodeAffinity", Point::PreFilter) {
            candidate.named = node_affinity::named(pod);
        }
        let names = candidate.profile.plugins(Point::Filter);
        let filters = names.iter().filter_map(|name| FILTERS.iter().find(|row| row.name == *name));
        candidate.filters = filters.filter(|plugin| (plugin.concerns)(&candidate)).collect();
        candidate
    }

    /// The reason why the Node cannot take the Pod, by the first filter that refuses it.
    pub fn refusal(&self, node: &NodeInfo) -> Option<Refusal> {
        self.refusal_by(node, &mut Timings::default()).map(|(_, refusal)| refusal)
    }

    /// The same, with the plugin that says so; `timings` learns how long each took.
    pub(crate) fn refusal_by(
        &self,
        node: &NodeInfo,
        timings: &mut Timings,
    ) -> Option<(&'static str, Refusal)> {
        if self.named.as_ref().is_some_and(|names| !names.contains(node.name())) {
            return Some(("NodeAffinity", Refusal::lasting(node_affinity::NOT_NAMED)));
        }
        self.filters.iter().find_map(|plugin| {
            let ask = || (plugin.filter)(self, node);
            let refusal = timings.plugin(Point::Filter, plugin.name, ask, |said| {
                said.as_ref().map_or(Code::Success, Refusal::code)
            });
            Some((plugin.name, refusal?))
        })
    }

    /// The filters that may have something against a Node.
    pub fn asked(&self) -> impl Iterator<Item = &'static str> {
        self.filters.iter().map(|plugin| plugin.name)
    }

    /// The scores that may tell Nodes apart, with their weights. Once [`Candidate::settle`] was called.
    pub fn scores(&self) -> impl Iterator<Item = (&'static Score, i64)> {
        let rows = self.profile.scores().filter_map(|(name, weight)| {
            let row = SCORES.iter().find(|row| row.name == name)?;
            Some((row, weight))
        });
        rows.filter(|(plugin, _)| (plugin.concerns)(self))
    }

    /// The plugin that refuses every Node, whatever it is like, and the reason. Source: `PreFilter`.
    pub fn refused(&self) -> Option<(&'static str, &str)> {
        let is_conflict = self.named.as_ref().is_some_and(BTreeSet::is_empty);
        let refusals = [
            ("NodeAffinity", is_conflict.then_some(node_affinity::CONFLICT)),
            ("VolumeBinding", self.volumes.refused.as_ref().map(Refusal::reason)),
            ("DynamicResources", self.claims.refused.as_ref().map(Refusal::reason)),
        ];
        let mut asked = refusals.into_iter().filter(|(name, _)| self.profile.asks(name, Point::PreFilter));
        asked.find_map(|(name, why)| Some((name, why?)))
    }

    /// The writes to the Pod's claims before it is bound to `node`, which can take it. Source: `Reserve`.
    pub fn pod_claims(&self, node: &NodeInfo) -> Option<devices::PodClaims> {
        let pod_claims = dynamic_resources::pod_claims(&self.claims, self.pod, self.devices, node);
        (!pod_claims.claims.is_empty()).then_some(pod_claims)
    }

    /// The remedy for claims when no Node will do. Source: `PostFilter`.
    pub fn after_refusal(&self, snapshot: &Snapshot) -> AboutClaims {
        if !self.profile.asks("DynamicResources", Point::PostFilter) {
            return AboutClaims::NotAsked;
        }
        if self.claims.is_empty() {
            return AboutClaims::Nothing;
        }
        let held = self.claims.in_the_way(self.pod, snapshot);
        held.map_or(AboutClaims::Useless, AboutClaims::GiveBack)
    }

    /// The steps for the Pod's volumes on `node`, which can take it. Source: `Reserve`.
    pub fn pod_volumes(&self, node: &NodeInfo) -> Option<PodVolumes> {
        volume_binding::settle(&self.volumes, self.storage, node)
            .ok()
            .filter(|pod_volumes| !pod_volumes.is_empty())
    }

    /// Learns which Nodes are in question, before they are scored. Source: `PreScore`.
    pub fn settle(&mut self, feasible: &[&NodeInfo]) {
        self.spread.weigh(feasible);
    }
}

/// The fate of a Pod's claims when no Node takes it.
#[derive(Clone, Debug, PartialEq)]
pub enum AboutClaims {
    /// Nobody looks at them.
    NotAsked,
    /// It has none that count.
    Nothing,
    /// None holds it back.
    Useless,
    /// The devices of this one are given back.
    GiveBack(Arc<ResourceClaim>),
}

/// The reason why a Node cannot take a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For people; several where upstream reports several.
    pub reasons: Vec<String>,
    /// The remedy: whether it would be otherwise if Pods of less priority went.
    pub remedy: Remedy,
}

/// The remedy that could make a Node take a Pod. Source: `Unschedulable` and `UnschedulableAndUnresolvable` of the
/// framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Other Pods' going.
    Preemption,
    /// Nothing that happens to Pods.
    None,
    /// Nothing that other Nodes could do either: something that the Pod names is broken. Source: `Error`.
    Repair,
}

impl Refusal {
    /// The framework's word for it.
    fn code(&self) -> Code {
        match self.remedy {
            Remedy::Preemption => Code::Unschedulable,
            Remedy::None => Code::UnschedulableAndUnresolvable,
            Remedy::Repair => Code::Error,
        }
    }

    /// The first of the reasons.
    fn reason(&self) -> &str {
        self.reasons.first().map_or("", String::as_str)
    }

    /// Whatever Pods do, the Node cannot take this one.
    pub(crate) fn lasting(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], remedy: Remedy::None }
    }

    /// No Node can take it until somebody mends what it names.
    pub(crate) fn fatal(reason: impl Into<String>) -> Self {
        Self { reasons: vec![reason.into()], remedy: Remedy::Repair }
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
    /// `true` if it may rule out any Node for this Pod; if not, it is not asked. Source: `Skip`, which `PreFilter`
    /// answers.
    pub concerns: fn(&Candidate<'_>) -> bool,
    /// Nothing if the Node can take the Pod.
    pub filter: fn(&Candidate<'_>, &NodeInfo) -> Option<Refusal>,
}

/// A plugin that ranks Nodes.
#[derive(Clone, Copy, Debug)]
pub struct Score {
    /// Upstream's plugin name.
    pub name: &'static str,
    /// `true` if it may tell Nodes apart for this Pod; if not, it is not asked. Source: `Skip`, which `PreScore`
    /// answers.
    pub concerns: fn(&Candidate<'_>) -> bool,
    /// A Node's raw score.
    pub score: fn(&Candidate<'_>, &NodeInfo) -> i64,
    /// The normalization of raw scores to `0..=SCORE_MAX`.
    pub normalize: Normalize,
}

/// The normalization that makes raw scores comparable.
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
    /// As Pods are spread over topology domains: what weighs nothing becomes [`SCORE_MAX`].
    Spread,
}

/// Whatever the Pod is like.
fn always(_: &Candidate<'_>) -> bool {
    true
}

/// The filters in upstream's order; a profile may have another.
pub const FILTERS: &[Filter] = &[
    Filter { name: "NodeUnschedulable", concerns: always, filter: node_unschedulable::filter },
    Filter { name: "NodeName", concerns: node_name::concerns, filter: node_name::filter },
    Filter { name: "TaintToleration", concerns: always, filter: taint_toleration::filter },
    Filter { name: "NodeAffinity", concerns: node_affinity::restricts, filter: node_affinity::filter },
    Filter { name: "NodePorts", concerns: node_ports::concerns, filter: node_ports::filter },
    Filter { name: "NodeResourcesFit", concerns: always, filter: node_resources_fit::filter },
    Filter {
        name: "VolumeRestrictions",
        concerns: volume_restrictions::concerns,
        filter: volume_restrictions::filter,
    },
    Filter { name: "NodeVolumeLimits", concerns: volume_limits::concerns, filter: volume_limits::filter },
    Filter { name: "VolumeBinding", concerns: volume_binding::concerns, filter: volume_binding::filter },
    Filter { name: "VolumeZone", concerns: volume_zone::concerns, filter: volume_zone::filter },
    Filter {
        name: "PodTopologySpread",
        concerns: pod_topology_spread::restricts,
        filter: pod_topology_spread::filter,
    },
    Filter {
        name: "InterPodAffinity",
        concerns: inter_pod_affinity::restricts,
        filter: inter_pod_affinity::filter,
    },
    Filter {
        name: "DynamicResources",
        concerns: dynamic_resources::concerns,
        filter: dynamic_resources::filter,
    },
];

/// A profile says in which order.
pub const SCORES: &[Score] = &[
    Score {
        name: "TaintToleration",
        concerns: always,
        score: taint_toleration::score,
        normalize: Normalize::ByMaxReversed,
    },
    Score {
        name: "NodeAffinity",
        concerns: node_affinity::prefers,
        score: node_affinity::score,
        normalize: Normalize::ByMax,
    },
    Score {
        name: "VolumeBinding",
        concerns: volume_binding::prefers,
        score: volume_binding::score,
        normalize: Normalize::AsIs,
    },
    Score {
        name: "PodTopologySpread",
        concerns: pod_topology_spread::prefers,
        score: pod_topology_spread::score,
        normalize: Normalize::Spread,
    },
    Score {
        name: "InterPodAffinity",
        concerns: inter_pod_affinity::prefers,
        score: inter_pod_affinity::score,
        normalize: Normalize::ByRange,
    },
    Score {
        name: "DynamicResources",
        concerns: dynamic_resources::prefers,
        score: dynamic_resources::score,
        normalize: Normalize::ByMax,
    },
    Score {
        name: "NodeResourcesFit",
        concerns: always,
        score: node_resources_fit::score,
        normalize: Normalize::AsIs,
    },
    Score {
        name: "NodeResourcesBalancedAllocation",
        concerns: balanced_allocation::concerns,
        score: balanced_allocation::score,
        normalize: Normalize::AsIs,
    },
    Score {
        name: "ImageLocality",
        concerns: image_locality::concerns,
        score: image_locality::score,
        normalize: Normalize::AsIs,
    },
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
        Normalize::ByRange => scores.iter_mut().for_each(|score| *score = part_of(*score - min, max - min)),
        Normalize::Spread => pod_topology_spread::normalize(scores),
        Normalize::ByMaxReversed if max == 0 => scores.fill(SCORE_MAX),
        Normalize::ByMaxReversed => {
            scores.iter_mut().for_each(|score| *score = SCORE_MAX - *score * SCORE_MAX / max);
        }
    }
}

/// A part of the whole, as that of [`SCORE_MAX`]; upstream's floating point makes 28 of 29 of 100.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a score needs no more than 52 bits"
)]
fn part_of(part: i64, whole: i64) -> i64 {
    (SCORE_MAX as f64 * (part as f64 / whole as f64)) as i64
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;
    use crate::transform::parse;

    /// Two Nodes that differ in all that plugins look at; nobody who is not asked about `pod` would say anything.
    fn check(pod: &str, filters: &[&str], scores: &[&str]) {
        let mut snapshot = Snapshot::default();
        for node in [
            "{metadata: {name: a, labels: {zone: x, kubernetes.io/hostname: a, topology.kubernetes.io/zone: x}}, \
             status: {allocatable: {cpu: '2', memory: 8Gi, pods: 9}, images: [{names: [big:1], sizeBytes: 900000000}]}}",
            "{metadata: {name: b}, spec: {taints: [{key: k, effect: PreferNoSchedule}]}, \
             status: {allocatable: {cpu: '8', memory: 2Gi, pods: 9}}}",
        ] {
            snapshot.set_node(Arc::new(parse::<Node>(node)));
        }
        let web = "{metadata: {name: w, uid: w, namespace: d, labels: {app: web}}, spec: {containers: [{name: c, \
                   ports: [{containerPort: 1, hostPort: 1}], resources: {requests: {cpu: '1'}}}]}}";
        snapshot.place(&Arc::new(parse(web)), "a");
        let pod: Pod =
            parse(&format!("{{metadata: {{name: p, uid: p, namespace: d, labels: {{app: web}}}}, {pod}}}"));
        let candidate = Candidate::new(&pod, None, &snapshot);
        let nodes: Vec<_> = snapshot.nodes().collect();
        let mut asked = Vec::new();
        for plugin in FILTERS {
            match (plugin.concerns)(&candidate) {
                true => asked.push(plugin.name),
                false => assert!(nodes.iter().all(|node| (plugin.filter)(&candidate, node).is_none())),
            }
        }
        asked.retain(|name| !["NodeUnschedulable", "TaintToleration", "NodeResourcesFit"].contains(name));
        assert_eq!(asked, filters, "{pod:?}");
        let mut asked = Vec::new();
        for plugin in SCORES {
            let mut all: Vec<i64> = nodes.iter().map(|node| (plugin.score)(&candidate, node)).collect();
            normalize(&mut all, plugin.normalize);
            match (plugin.concerns)(&candidate) {
                true => asked.push(plugin.name),
                // What it would say of a Pod that asks for nothing is not to count.
                false if plugin.name == "NodeResourcesBalancedAllocation" => {}
                false => assert!(all.iter().all(|score| Some(score) == all.first()), "{}", plugin.name),
            }
        }
        asked.retain(|name| !["TaintToleration", "NodeResourcesFit"].contains(name));
        assert_eq!(asked, scores, "{pod:?}");
    }

    #[test]
    fn the_default_profile_asks_every_row_in_upstreams_order() {
        let profile = Profile::default();
        let known: Vec<_> = FILTERS.iter().map(|row| row.name).collect();
        assert_eq!(profile.plugins(Point::Filter), known);
        let ranked: Vec<_> = profile.scores().collect();
        let expect = [
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("NodeResourcesFit", 1),
            ("VolumeBinding", 1),
            ("PodTopologySpread", 2),
            ("InterPodAffinity", 2),
            ("DynamicResources", 2),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
        ];
        assert_eq!(ranked, expect);
        assert!(SCORES.iter().all(|row| expect.iter().any(|(name, _)| *name == row.name)));
    }

    #[test]
    fn scores_by_range_are_upstreams_numbers() {
        for (scores, expect) in [
            ([0, 29, 100], [0, 28, 100]),
            ([-50, 7, 50], [0, 56, 100]),
            ([0, 1, 3], [0, 33, 100]),
            ([5, 5, 5], [0, 0, 0]),
        ] {
            let mut found = scores;
            normalize(&mut found, Normalize::ByRange);
            assert_eq!(found, expect, "{scores:?}");
        }
    }

    #[test]
    fn only_plugins_that_may_have_something_to_say_are_asked() {
        check("spec: {containers: [{name: c, image: small}]}", &[], &[]);
        check(
            "spec: {nodeName: a, nodeSelector: {zone: x}, containers: [{name: c, ports: [{containerPort: 1, hostPort: 1}]}]}",
            &["NodeName", "NodeAffinity", "NodePorts"],
            &[],
        );
        check(
            "spec: {containers: [{name: c, image: 'big:1', resources: {requests: {cpu: '1'}}}]}",
            &[],
            &["NodeResourcesBalancedAllocation", "ImageLocality"],
        );
        check(
            "spec: {containers: [{name: c}], affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: \
             [{weight: 1, preference: {matchExpressions: [{key: zone, operator: Exists}]}}]}, podAntiAffinity: \
             {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {}}]}}}",
            &["InterPodAffinity"],
            &["NodeAffinity"],
        );
        check(
            "spec: {containers: [{name: c}], topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, \
             whenUnsatisfiable: DoNotSchedule, labelSelector: {}}, {maxSkew: 1, topologyKey: zone, \
             whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]}",
            &["PodTopologySpread"],
            &["PodTopologySpread"],
        );
        check(
            "spec: {containers: [{name: c}], volumes: [{name: v, persistentVolumeClaim: {claimName: none}}]}",
            &["VolumeBinding"],
            &[],
        );
    }
}
