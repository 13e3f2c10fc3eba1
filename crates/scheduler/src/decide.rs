//! The Node that a Pod goes to, or the reasons why none: a pure function of the snapshot and of one number of chance.

use std::collections::BTreeMap;

use controller::pod::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::diagnosis::{Diagnosis, Scored};
use crate::hints::NO_NODE;
use crate::node_info::{NodeInfo, Snapshot};
use crate::plugins::{AboutClaims, Candidate, Refusal, Remedy, normalize};
use crate::preemption::{Preemption, nominated};
use crate::profile::Point;
use crate::timings::Code;
use crate::{devices, storage};

/// What extenders together are called. Source: `ExtenderName`.
pub(crate) const EXTENDER: &str = "Extender";
const NO_NODES: &str = "no nodes available to schedule pods";

/// The answer for one Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It can be bound.
    Bind(Choice),
    /// No Node can take it; the text is what users read in the event and the condition, so far as Nodes are concerned.
    Unschedulable(String),
    /// Something that the Pod names is broken; the text is what users read.
    Failed(String),
    /// An extender that has a say gave no answer that counts; the text is what users read.
    Unheard(String),
}

/// The Node for a Pod, and the writes that come before its binding. Source: `Reserve`.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The Node.
    pub node: String,
    /// The volumes that it is to have, if that is not settled.
    pub volumes: Option<storage::PodVolumes>,
    /// The devices that its claims are to have, if any.
    pub devices: Option<devices::PodClaims>,
}

impl Choice {
    /// What it takes that the Pod goes to `node`, which can take it.
    fn of(candidate: &Candidate<'_>, node: &NodeInfo) -> Self {
        Self {
            node: node.name().to_owned(),
            volumes: candidate.pod_volumes(node),
            devices: candidate.pod_claims(node),
        }
    }
}

/// Chooses a Node for `pod`. `default_selector` selects the Pods that it is spread with if it says nothing about that itself;
/// `chance` (any number) says where the search begins, and picks one of equally good Nodes.
///
/// In a large cluster the search ends when [`enough`] Nodes can take the Pod. `told` learns why.
pub fn decide(
    pod: &Pod,
    default_selector: Option<&LabelSelector>,
    snapshot: &Snapshot,
    chance: u64,
    told: &mut Diagnosis,
) -> Decision {
    let mut search = match Search::begin(pod, default_selector, snapshot, chance, told) {
        Ok(search) => search,
        Err(decision) => return decision,
    };
    if search.look_at_nominated_node() {
        return search.choose(&[], told);
    }
    match search.look_everywhere(told) {
        Some(failed) => failed,
        None => search.choose(&[], told),
    }
}

/// A decision in the making: extenders are asked between its steps.
pub(crate) struct Search<'a> {
    candidate: Candidate<'a>,
    snapshot: &'a Snapshot,
    chance: u64,
    /// The Nodes that can take the Pod.
    pub(crate) feasible: Vec<&'a NodeInfo>,
}

impl<'a> Search<'a> {
    /// # Errors
    /// It is decided already: no Node will do.
    pub(crate) fn begin(
        pod: &'a Pod,
        default_selector: Option<&LabelSelector>,
        snapshot: &'a Snapshot,
        chance: u64,
        told: &mut Diagnosis,
    ) -> Result<Self, Decision> {
        if snapshot.is_empty() {
            told.refuse_all(NO_NODE, NO_NODES, 0);
            return Err(Decision::Unschedulable(NO_NODES.to_owned()));
        }
        let start = told.timings.start();
        let candidate = Candidate::new(pod, default_selector, snapshot);
        for plugin in candidate.profile.plugins(Point::PreFilter) {
            told.timings.evaluated(Point::PreFilter, plugin, 1);
        }
        if let Some((plugin, why)) = candidate.refused() {
            told.timings.point(Point::PreFilter, Code::UnschedulableAndUnresolvable, start);
            told.refuse_all(plugin, why, snapshot.len());
            return Err(Decision::Unschedulable(available(snapshot.len(), why)));
        }
        told.timings.point(Point::PreFilter, Code::Success, start);
        Ok(Self { candidate, snapshot, chance, feasible: Vec::new() })
    }

    /// Looks at the Node from which others went so that the Pod fits there; says whether it does.
    pub(crate) fn look_at_nominated_node(&mut self) -> bool {
        let nominated_node = nominated(self.candidate.pod).and_then(|name| self.snapshot.node(name));
        self.feasible.extend(nominated_node.filter(|node| self.candidate.refusal(node).is_none()));
        !self.feasible.is_empty()
    }

    /// Looks at as many Nodes as are enough. What the Pod names may turn out to be broken.
    pub(crate) fn look_everywhere(&mut self, told: &mut Diagnosis) -> Option<Decision> {
        let start = told.timings.start();
        let mut refused = Vec::new();
        let failed = self.filter(told, &mut refused);
        let code = match &failed {
            Some(_) => Code::Error,
            None if self.feasible.is_empty() => Code::Unschedulable,
            None => Code::Success,
        };
        told.timings.point(Point::Filter, code, start);
        // A plugin is asked about a Node if none before it refuses that.
        let mut left = self.feasible.len() + refused.len();
        for plugin in self.candidate.asked() {
            told.timings.evaluated(Point::Filter, plugin, left);
            left -= refused.iter().filter(|by| **by == plugin).count();
        }
        failed
    }

    fn filter(&mut self, told: &mut Diagnosis, refused: &mut Vec<&'static str>) -> Option<Decision> {
        let enough = enough(self.candidate.profile.percentage_of_nodes_to_score, self.snapshot.len());
        self.feasible.reserve(enough);
        for node in self.snapshot.nodes_from(self.chance) {
            match self.candidate.refusal_by(node, &mut told.timings) {
                None => self.feasible.push(node),
                Some((plugin, refusal)) => {
                    refused.push(plugin);
                    let fatal = (refusal.remedy == Remedy::Repair).then(|| failed(&refusal));
                    told.refuse(node.name(), plugin, refusal);
                    if let Some(why) = fatal {
                        return Some(Decision::Failed(why));
                    }
                }
            }
            if self.feasible.len() == enough {
                break;
            }
        }
        None
    }

    /// Takes the best of the Nodes; `more` is added to their scores, in their order.
    pub(crate) fn choose(mut self, more: &[i64], told: &mut Diagnosis) -> Decision {
        self.prepare_scores(told);
        match best(&self.candidate, &self.feasible, more, self.chance, told) {
            Some(node) => Decision::Bind(Choice::of(&self.candidate, node)),
            None => Decision::Unschedulable(available(self.snapshot.len(), &told.reasons())),
        }
    }

    fn prepare_scores(&mut self, told: &mut Diagnosis) {
        let start = told.timings.start();
        self.candidate.settle(&self.feasible);
        // One Node needs no score.
        if self.feasible.len() > 1 {
            told.timings.point(Point::PreScore, Code::Success, start);
            for plugin in self.candidate.profile.plugins(Point::PreScore) {
                told.timings.evaluated(Point::PreScore, plugin, 1);
            }
        }
    }
}

/// The message for users about a Pod that fits nowhere: `why` the Nodes refuse it, and what came of preemption.
///
/// `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. no new claims to deallocate,
/// preemption: 0/3 nodes are available: ...`.
pub fn explain(why: &str, claims: &AboutClaims, preemption: &Preemption, nodes: usize) -> String {
    let preemption = match preemption {
        // Room is being made: nothing more is said.
        Preemption::Possible(_) => return why.to_owned(),
        _ if nodes == 0 => return why.to_owned(),
        Preemption::NotAsked => None,
        Preemption::NotEligible(why) => Some(format!("preemption: {why}")),
        Preemption::Useless(reasons) => Some(format!("preemption: {}", available(nodes, &counted(reasons)))),
    };
    let claims = match claims {
        AboutClaims::NotAsked => None,
        AboutClaims::Nothing => Some("no new claims to deallocate".to_owned()),
        AboutClaims::Useless => Some("still not schedulable".to_owned()),
        AboutClaims::GiveBack(_) => Some("deallocation of ResourceClaim completed".to_owned()),
    };
    let more: Vec<String> = claims.into_iter().chain(preemption).collect();
    if more.is_empty() { why.to_owned() } else { format!("{why} {}", more.join(", ")) }
}

/// Only devices are looked for in what users have written themselves.
fn failed(refusal: &Refusal) -> String {
    format!("running \"DynamicResources\" filter plugin: {}", refusal.reasons.join(", "))
}

/// Among how many Nodes that can take a Pod the best is good enough: `percent` of them, but never under 100 Nodes. 0 is
/// adaptive: 50 % less one for each 125 Nodes, never under 5 %. Source: `percentageOfNodesToScore`.
fn enough(percent: usize, nodes: usize) -> usize {
    let percent = match percent {
        0 => 50_usize.saturating_sub(nodes / 125).max(5),
        percent => percent,
    };
    (nodes * percent / 100).max(100).min(nodes)
}

fn best<'a>(
    candidate: &Candidate<'_>,
    feasible: &[&'a NodeInfo],
    more: &[i64],
    chance: u64,
    told: &mut Diagnosis,
) -> Option<&'a NodeInfo> {
    if let [only] = feasible {
        told.choose(1, std::iter::once(Scored { node: only.name().to_owned(), scores: Vec::new() }));
        return Some(only);
    }
    let start = told.timings.start();
    let mut totals = vec![0; feasible.len()];
    let mut weighed: Vec<(&'static str, Vec<i64>)> = Vec::new();
    for (plugin, weight) in candidate.scores() {
        told.timings.evaluated(Point::Score, plugin.name, feasible.len());
        let mut score = |node: &&NodeInfo| {
            let ask = || (plugin.score)(candidate, node);
            told.timings.plugin(Point::Score, plugin.name, ask, |_| Code::Success)
        };
        let mut scores: Vec<i64> = feasible.iter().map(&mut score).collect();
        normalize(&mut scores, plugin.normalize);
        for (total, score) in totals.iter_mut().zip(&mut scores) {
            *score *= weight;
            *total += *score;
        }
        weighed.push((plugin.name, scores));
    }
    if !more.is_empty() {
        totals.iter_mut().zip(more).for_each(|(total, score)| *total = score.saturating_add(*total));
        weighed.push((EXTENDER, more.to_vec()));
    }
    let top = totals.iter().copied().max()?;
    told.timings.point(Point::Score, Code::Success, start);
    let winners = || totals.iter().enumerate().filter(|(_, total)| **total == top).map(|(at, _)| at);
    let pick = usize::try_from(chance % u64::try_from(winners().count()).ok()?).ok()?;
    let chosen = winners().nth(pick)?;
    let scored = |at: usize| {
        let scores = weighed.iter().filter_map(|(plugin, scores)| Some((*plugin, *scores.get(at)?)));
        Some(Scored { node: feasible.get(at)?.name().to_owned(), scores: scores.collect() })
    };
    let others = runners_up(&totals, chosen);
    told.choose(feasible.len(), std::iter::once(chosen).chain(others).filter_map(scored));
    feasible.get(chosen).copied()
}

/// The best two but the chosen one, the better first.
fn runners_up(totals: &[i64], chosen: usize) -> impl Iterator<Item = usize> {
    let mut best: [Option<(i64, usize)>; 2] = [None, None];
    for (at, total) in totals.iter().copied().enumerate().filter(|(at, _)| *at != chosen) {
        let is_better = |other: &Option<(i64, usize)>| other.is_none_or(|(other, _)| total > other);
        let [first, second] = &mut best;
        if is_better(first) {
            *second = first.replace((total, at));
        } else if is_better(second) {
            *second = Some((total, at));
        }
    }
    best.into_iter().flatten().map(|(_, at)| at)
}

/// How many Nodes gave which reason.
fn counted(all: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in all {
        *counts.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    reasons.sort();
    reasons.join(", ")
}

pub(crate) fn available(nodes: usize, reasons: &str) -> String {
    format!("0/{nodes} nodes are available: {reasons}.")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::preemption::preempt;
    use crate::transform::parse;
    use expect_test::{Expect, expect};
    use k8s_openapi::api::core::v1::Node;

    /// `nodes` and `pod` in YAML; Pods in `placed` are on a Node already.
    fn check(nodes: &[&str], placed: &[(&str, &str)], pod: &str, expected: Expect) {
        check_default_selector(nodes, placed, (pod, None), expected);
    }

    /// The same for a Pod that is spread with others.
    fn check_default_selector(
        nodes: &[&str],
        placed: &[(&str, &str)],
        (pod, default_selector): (&str, Option<&str>),
        expected: Expect,
    ) {
        let default_selector: Option<LabelSelector> = default_selector
            .map(|default_selector| serde_saphyr::from_str(default_selector).expect("a selector"));
        let mut snapshot = Snapshot::default();
        for node in nodes {
            snapshot.set_node(Arc::new(serde_saphyr::from_str::<Node>(node).expect("a node")));
        }
        for (index, (node, pod)) in placed.iter().enumerate() {
            let mut pod: Pod = parse(pod);
            pod.metadata.uid = Some(index.to_string());
            snapshot.place(&Arc::new(pod), node);
        }
        let pod: Pod = parse(pod);
        let decision = match decide(&pod, default_selector.as_ref(), &snapshot, 0, &mut Diagnosis::default())
        {
            Decision::Unschedulable(why) => {
                let preemption = preempt(&pod, &mut snapshot, &[], 0);
                Decision::Unschedulable(explain(&why, &AboutClaims::Nothing, &preemption, snapshot.len()))
            }
            Decision::Bind(choice) => return expected.assert_eq(&format!("Bind({:?})", choice.node)),
            failed => failed,
        };
        expected.assert_eq(&format!("{decision:?}"));
    }

    const A: &str =
        "{metadata: {name: a, labels: {zone: x}}, status: {allocatable: {cpu: '2', memory: 4Gi, pods: 2}}}";
    const B: &str = "{metadata: {name: b, labels: {zone: y, ssd: 'true'}}, status: {allocatable: {cpu: '4', memory: 4Gi, pods: 2}}}";
    const CORDONED: &str = "{metadata: {name: c}, spec: {unschedulable: true}, status: {allocatable: {cpu: '4', memory: 4Gi, pods: 9}}}";
    const TAINTED: &str = "{metadata: {name: t}, spec: {taints: [{key: gpu, value: 'yes', effect: NoSchedule}]}, status: {allocatable: {cpu: '4', memory: 4Gi, pods: 9}}}";
    const ONE_CPU: &str =
        "{metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}";
    const NINE_CPUS: &str =
        "{metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: '9'}}}]}}";

    #[test]
    fn a_large_cluster_is_not_searched_to_its_end() {
        let cases = [(1, 1), (99, 99), (150, 100), (1_000, 420), (5_000, 500), (10_000, 500)];
        for (nodes, expected) in cases {
            assert_eq!(enough(0, nodes), expected, "{nodes} Nodes");
        }
        for (percent, nodes, expected) in [(100, 5_000, 5_000), (1, 5_000, 100), (30, 500, 150), (70, 50, 50)]
        {
            assert_eq!(enough(percent, nodes), expected, "{percent} % of {nodes} Nodes");
        }
    }

    #[test]
    fn every_node_has_its_turn_whatever_the_chance() {
        let mut snapshot = Snapshot::default();
        for name in ["a", "b", "c"] {
            let node = format!("{{metadata: {{name: {name}}}, status: {{allocatable: {{pods: 9}}}}}}");
            snapshot.set_node(Arc::new(serde_saphyr::from_str::<Node>(&node).expect("a node")));
        }
        for (chance, expected) in [(0, "abc"), (1, "bca"), (5, "cab")] {
            let order: String = snapshot.nodes_from(chance).map(NodeInfo::name).collect();
            assert_eq!(order, expected, "chance {chance}");
        }
    }

    #[test]
    fn the_emptier_node_is_chosen() {
        check(&[A, B], &[], ONE_CPU, expect![[r#"Bind("b")"#]]);
        check(&[A, B], &[("b", ONE_CPU), ("b", ONE_CPU)], ONE_CPU, expect![[r#"Bind("a")"#]]);
    }

    #[test]
    fn every_reason_is_counted() {
        check(
            &[A, B, CORDONED, TAINTED],
            &[],
            NINE_CPUS,
            expect![[
                r#"Unschedulable("0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.")"#
            ]],
        );
        check(&[], &[], ONE_CPU, expect![[r#"Unschedulable("no nodes available to schedule pods")"#]]);
    }

    #[test]
    fn a_full_node_takes_no_more_pods() {
        let empty = "{metadata: {name: p}, spec: {containers: [{name: c}]}}";
        check(
            &[A],
            &[("a", empty), ("a", empty)],
            empty,
            expect![[
                r#"Unschedulable("0/1 nodes are available: 1 Too many pods. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")"#
            ]],
        );
    }

    #[test]
    fn whoever_may_not_preempt_is_told_so() {
        let modest = "{metadata: {name: p}, spec: {preemptionPolicy: Never, containers: [{name: c, resources: {requests: {cpu: '2'}}}]}}";
        check(
            &[A],
            &[("a", ONE_CPU)],
            modest,
            expect![[
                r#"Unschedulable("0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.")"#
            ]],
        );
    }

    #[test]
    fn selectors_affinity_and_tolerations_are_honoured() {
        let zone_x = "{metadata: {name: p}, spec: {nodeSelector: {zone: x}, containers: [{name: c}]}}";
        check(&[A, B], &[], zone_x, expect![[r#"Bind("a")"#]]);
        let no_ssd = "{metadata: {name: p}, spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: ssd, operator: DoesNotExist}]}]}}}, containers: [{name: c}]}}";
        check(&[A, B], &[], no_ssd, expect![[r#"Bind("a")"#]]);
        let nowhere = "{metadata: {name: p}, spec: {nodeSelector: {zone: z}, containers: [{name: c}]}}";
        check(
            &[A, B],
            &[],
            nowhere,
            expect![[
                r#"Unschedulable("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")"#
            ]],
        );
        let tolerant = "{metadata: {name: p}, spec: {tolerations: [{key: gpu, operator: Exists}], containers: [{name: c}]}}";
        check(&[TAINTED], &[], tolerant, expect![[r#"Bind("t")"#]]);
    }

    #[test]
    fn a_host_port_is_taken_once() {
        let port = "{metadata: {name: p}, spec: {containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]}}";
        check(
            &[A],
            &[("a", port)],
            port,
            expect![[
                r#"Unschedulable("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")"#
            ]],
        );
    }

    const ZONES: [&str; 3] = [
        "{metadata: {name: a, labels: {zone: x}}, status: {allocatable: {cpu: '9', memory: 4Gi, pods: 9}}}",
        "{metadata: {name: b, labels: {zone: y}}, status: {allocatable: {cpu: '9', memory: 4Gi, pods: 9}}}",
        "{metadata: {name: c}, status: {allocatable: {cpu: '9', memory: 4Gi, pods: 9}}}",
    ];
    const WEB: &str = "{metadata: {name: w, labels: {app: web}}, spec: {containers: [{name: c}]}}";
    const TERM: &str = "{topologyKey: zone, labelSelector: {matchLabels: {app: web}}}";

    fn with_affinity(kind: &str, app: &str) -> String {
        format!(
            "{{metadata: {{name: p, labels: {{app: {app}}}}}, spec: {{containers: [{{name: c}}], affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{TERM}]}}}}}}}}"
        )
    }

    #[test]
    fn pods_are_put_near_those_they_want_and_far_from_those_they_do_not() {
        let (near, far) = (with_affinity("podAffinity", "db"), with_affinity("podAntiAffinity", "db"));
        check(&ZONES, &[("b", WEB)], &near, expect![[r#"Bind("b")"#]]);
        check(&ZONES[..2], &[("b", WEB)], &far, expect![[r#"Bind("a")"#]]);
        check(
            &ZONES[..1],
            &[("a", WEB)],
            &far,
            expect![[
                r#"Unschedulable("0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")"#
            ]],
        );
        check(
            &ZONES,
            &[],
            &near,
            expect![[
                r#"Unschedulable("0/3 nodes are available: 3 node(s) didn't match pod affinity rules. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.")"#
            ]],
        );
    }

    #[test]
    fn the_first_of_a_group_needs_no_company_but_a_domain() {
        let group = with_affinity("podAffinity", "web");
        check(&ZONES[1..], &[], &group, expect![[r#"Bind("b")"#]]);
    }

    #[test]
    fn pods_that_want_nobody_near_are_left_alone() {
        let loner = with_affinity("podAntiAffinity", "loner");
        check(&ZONES[..2], &[("a", &loner)], WEB, expect![[r#"Bind("b")"#]]);
        check(
            &ZONES[..1],
            &[("a", &loner)],
            WEB,
            expect![[
                r#"Unschedulable("0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")"#
            ]],
        );
    }

    #[test]
    fn pods_are_spread_as_evenly_as_they_must() {
        let spread = "{metadata: {name: p, labels: {app: web}}, spec: {containers: [{name: c}], topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]}}";
        check(&ZONES, &[("a", WEB)], spread, expect![[r#"Bind("b")"#]]);
        let full = "{metadata: {name: b, labels: {zone: y}}, status: {allocatable: {cpu: '9', memory: 4Gi, pods: 0}}}";
        check(
            &[ZONES[0], full, ZONES[2]],
            &[("a", WEB)],
            spread,
            expect![[
                r#"Unschedulable("0/3 nodes are available: 1 Too many pods, 1 node(s) didn't match pod topology spread constraints, 1 node(s) didn't match pod topology spread constraints (missing required label). no new claims to deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod.")"#
            ]],
        );
        let soft = spread.replace("DoNotSchedule", "ScheduleAnyway");
        check(&ZONES[..2], &[("a", WEB)], &soft, expect![[r#"Bind("b")"#]]);
    }

    #[test]
    fn pods_of_a_service_go_where_fewer_of_them_are() {
        let node = |name: &str, zone: &str| {
            format!(
                "{{metadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}, \
                 topology.kubernetes.io/zone: {zone}}}}}, status: {{allocatable: {{cpu: '8', memory: 32Gi, pods: 9}}}}}}"
            )
        };
        let (a, b, c) = (node("a", "x"), node("b", "x"), node("c", "y"));
        let nodes = [a.as_str(), b.as_str(), c.as_str()];
        let web = "{metadata: {name: p, labels: {app: web}}, spec: {containers: [{name: c}]}}";
        let default_selector = Some("{matchLabels: {app: web}}");
        // Hosts first, then zones: the zone of `a` has one already.
        check_default_selector(&nodes, &[("a", web)], (web, default_selector), expect![[r#"Bind("c")"#]]);
        check_default_selector(
            &nodes,
            &[("a", web), ("c", web)],
            (web, default_selector),
            expect![[r#"Bind("b")"#]],
        );
        check_default_selector(
            &nodes,
            &[("b", web), ("c", web)],
            (web, default_selector),
            expect![[r#"Bind("a")"#]],
        );
        // A Node without the labels is not out of the question.
        let bare = "{metadata: {name: z}, status: {allocatable: {cpu: '8', memory: 32Gi, pods: 9}}}";
        check_default_selector(
            &[&a, bare],
            &[("a", web)],
            (web, default_selector),
            expect![[r#"Bind("z")"#]],
        );
    }
}
