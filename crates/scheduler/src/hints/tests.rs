mod gangs;

use std::sync::Arc;

use base::Random;
use k8s_openapi::api::core::v1::Node;

use super::*;
use crate::decide::{Decision, decide};
use crate::diagnosis::Diagnosis;
use crate::events::Turn;
use crate::transform::parse;

fn turn<T: serde::de::DeserializeOwned + 'static>(old: &str, new: &str) -> Turn<T> {
    let object = |yaml: &str| (!yaml.is_empty()).then(|| Arc::new(parse(yaml)));
    Turn { old: object(old), new: object(new) }
}

fn of_node(old: &str, new: &str) -> Event {
    let node =
        |more: &str| if more.is_empty() { String::new() } else { format!("{{metadata: {{name: n{more}") };
    Event::Node(turn(&node(old), &node(new)))
}

fn of_pod(old: &str, new: &str) -> Event {
    Event::Pod(turn(old, new))
}

/// The Pod `p` of namespace `d`, which `plugin` has refused.
fn check(plugin: &str, pod: &str, cases: &[(Event, bool)]) {
    let pod: Pod = parse(&format!(
        "{{metadata: {{name: p, namespace: d, uid: p, labels: {{app: p}}}}, spec: {{containers: [{{name: c}}], {pod}}}}}"
    ));
    for (event, expect) in cases {
        assert_eq!(helps(plugin, event, &pod, &Snapshot::default()), *expect, "{plugin}: {event:?}");
    }
}

const PLAIN: &str = "}}";
const CORDONED: &str = "}, spec: {unschedulable: true}}";
const TAINTED: &str = "}, spec: {taints: [{key: k, effect: NoExecute}]}}";
const ZONE: &str = ", labels: {zone: a}}}";
const OTHER_ZONE: &str = ", labels: {zone: b}}}";

fn allocatable(cpu: &str, more: &str) -> String {
    format!("}}, status: {{allocatable: {{cpu: '{cpu}', pods: '9'{more}}}}}}}")
}

fn other(name: &str, labels: &str, more: &str) -> String {
    format!(
        "{{metadata: {{name: {name}, namespace: d, uid: {name}, labels: {{{labels}}}}}, spec: {{nodeName: n, containers: [{{name: c}}]{more}}}}}"
    )
}

#[test]
fn a_node_helps_whom_it_did_not_take_before() {
    check(
        "NodeName",
        "",
        &[(of_node("", PLAIN), true), (of_node(PLAIN, ZONE), false), (of_node(PLAIN, ""), false)],
    );
    check(NO_NODE, "", &[(of_node("", CORDONED), true)]);
    check(
        "NodeUnschedulable",
        "",
        &[
            (of_node("", CORDONED), false),
            (of_node(CORDONED, PLAIN), true),
            (of_node(PLAIN, ZONE), false),
            (of_node(PLAIN, CORDONED), false),
        ],
    );
    check(
        "TaintToleration",
        "",
        &[(of_node("", TAINTED), false), (of_node(TAINTED, PLAIN), true), (of_node(PLAIN, ZONE), false)],
    );
    check("TaintToleration", "tolerations: [{key: k, operator: Exists}]", &[(of_node("", TAINTED), true)]);
    check(
        "NodeAffinity",
        "nodeSelector: {zone: a}",
        &[
            (of_node("", PLAIN), false),
            (of_node(PLAIN, ZONE), true),
            (of_node(ZONE, ZONE), false),
            (of_node(ZONE, OTHER_ZONE), false),
        ],
    );
}

#[test]
fn room_helps_whom_it_is_enough_for() {
    let wants = "initContainers: [{name: i, resources: {requests: {cpu: '4', example.com/gpu: '1'}}}]";
    let gpu = ", example.com/gpu: '1'";
    check(
        "NodeResourcesFit",
        wants,
        &[
            (of_node("", &allocatable("4", gpu)), true),
            (of_node("", &allocatable("4", "")), false),
            (of_node("", &allocatable("3", gpu)), false),
            (of_node(&allocatable("4", gpu), &allocatable("5", gpu)), true),
            (of_node(&allocatable("5", gpu), &allocatable("4", gpu)), false),
            (
                of_node(&allocatable("4", gpu), &allocatable("4", ", example.com/gpu: '1', memory: 5Gi")),
                false,
            ),
            (of_pod(&other("x", "", ""), ""), true),
            (of_pod("", &other("x", "", "")), false),
            (of_pod(&other("x", "", ""), &other("x", "a: b", "")), false),
        ],
    );
    let sized = |cpu| {
        other("x", "", &format!(", initContainers: [{{name: i, restartPolicy: Always, resources: {{requests: {{cpu: '{cpu}'}}}}}}]")).replace("name: c", &format!("name: c, resources: {{requests: {{cpu: '{cpu}'}}}}"))
    };
    check(
        "NodeResourcesFit",
        wants,
        &[(of_pod(&sized(2), &sized(1)), true), (of_pod(&sized(1), &sized(2)), false)],
    );
    let port = |port: i32| {
        format!(
            ", initContainers: [{{name: i, restartPolicy: Always, ports: [{{containerPort: 1, hostPort: {port}}}]}}]"
        )
    };
    check(
        "NodePorts",
        port(80).trim_start_matches(','),
        &[
            (of_pod(&other("x", "", &port(80)), ""), true),
            (of_pod(&other("x", "", &port(81)), ""), false),
            (of_node("", PLAIN), true),
            (of_node(PLAIN, ZONE), false),
        ],
    );
}

#[test]
fn company_helps_whom_it_was_missing_or_in_the_way_of() {
    let near = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {app: web}}}]}}";
    let far = near.replace("podAffinity", "podAntiAffinity");
    let (web, db) = (other("w", "app: web", ""), other("w", "app: db", ""));
    check(
        "InterPodAffinity",
        near,
        &[
            (of_pod("", &web), true),
            (of_pod("", &db), false),
            (of_pod(&db, &web), true),
            (of_pod(&web, ""), false),
            (of_node("", ZONE), true),
            (of_node("", PLAIN), false),
            (of_node(ZONE, OTHER_ZONE), true),
        ],
    );
    let hates_p = ", ".to_owned() + &far.replace("app: web", "app: p");
    check(
        "InterPodAffinity",
        &far,
        &[
            (of_pod("", &web), false),
            (of_pod(&web, &db), true),
            (of_pod(&web, ""), true),
            (of_pod(&other("x", "", &hates_p), ""), true),
            (of_pod(&db, ""), false),
            (of_node("", PLAIN), true),
            (of_node(PLAIN, PLAIN), false),
            (of_node(ZONE, PLAIN), true),
        ],
    );
}

#[test]
fn a_spread_is_helped_by_its_kind_and_by_topology_domains() {
    let spread = "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]";
    let (web, db) = (other("w", "app: web", ""), other("w", "app: db", ""));
    let going = web.replace("uid: w", "uid: w, deletionTimestamp: '2026-01-01T00:00:00Z'");
    check(
        "PodTopologySpread",
        spread,
        &[
            (of_pod("", &web), true),
            (of_pod(&web, ""), true),
            (of_pod(&web, &going), true),
            (of_pod(&going, ""), false),
            (of_pod(&web, &db), true),
            (of_pod("", &db), false),
            (of_pod("", &web.replace("namespace: d", "namespace: e")), false),
            (of_node("", ZONE), true),
            (of_node("", PLAIN), false),
            (of_node(ZONE, OTHER_ZONE), true),
            (of_node(ZONE, ""), true),
        ],
    );
    check("PodTopologySpread", "", &[(of_pod("", &db), true)]);
    let soft = spread.replace("}]", "}, {topologyKey: rack, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]");
    check("PodTopologySpread", &soft, &[(of_node("", ZONE), true), (of_node(ZONE, ""), true)]);
    let picky = |policy: &str| {
        format!("nodeSelector: {{disk: ssd}}, {}", spread.replace("maxSkew", &format!("{policy}maxSkew")))
    };
    check("PodTopologySpread", &picky(""), &[(of_node("", ZONE), false), (of_node(ZONE, ""), false)]);
    let ignores = picky("nodeAffinityPolicy: Ignore, ");
    check(
        "PodTopologySpread",
        &ignores,
        &[(of_node("", ZONE), true), (of_node(ZONE, ""), true), (of_node("", PLAIN), false)],
    );
}

#[test]
fn volumes_help_whoever_names_them() {
    let claim = |name: &str| format!("{{metadata: {{name: {name}, namespace: d}}}}");
    let uses = "volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]";
    let of_claim = |old: &str, new: &str| Event::Claim(turn(old, new));
    for plugin in ["VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"] {
        check(plugin, uses, &[(of_claim("", &claim("a")), true), (of_claim("", &claim("b")), false)]);
        check(plugin, "", &[(of_claim("", &claim("a")), false)]);
    }
    check(
        "VolumeBinding",
        uses,
        &[(of_claim(&claim("a"), &claim("a")), true), (of_claim(&claim("a"), ""), false)],
    );
    let node = |count: &str| {
        format!("{{metadata: {{name: n}}, spec: {{drivers: [{{name: d, nodeID: n{count}}}]}}}}")
    };
    let (few, more) = (node(", allocatable: {count: 1}"), node(", allocatable: {count: 2}"));
    let of_csi = |old: &str, new: &str| Event::CsiNode(turn(old, new));
    check(
        "NodeVolumeLimits",
        uses,
        &[
            (of_csi(&few, &more), true),
            (of_csi(&more, &few), false),
            (of_csi(&few, &node("")), true),
            (of_csi("", &few), true),
        ],
    );
    let attachment = "{metadata: {name: a}, spec: {attacher: ebs.csi.aws.com, nodeName: n, source: {}}}";
    let (come, gone) = (Event::Attachment(turn("", attachment)), Event::Attachment(turn(attachment, "")));
    check("NodeVolumeLimits", uses, &[(gone.clone(), true), (come, false)]);
    check("NodeVolumeLimits", "volumes: [{name: v, ephemeral: {}}]", &[(gone.clone(), true)]);
    let disk = "volumes: [{name: v, awsElasticBlockStore: {volumeID: vol-1}}]";
    check("NodeVolumeLimits", disk, &[(gone.clone(), true)]);
    let file = "volumes: [{name: v, azureFile: {secretName: s, shareName: f}}, {name: w, emptyDir: {}}]";
    check("NodeVolumeLimits", file, &[(gone, false)]);
    let with = |volumes: &str| other("x", "", &format!(", {volumes}"));
    check(
        "VolumeRestrictions",
        uses,
        &[(of_pod(&with(uses), ""), true), (of_pod(&other("x", "", ""), ""), false)],
    );
}

#[test]
fn devices_help_when_they_are_given_back_or_new() {
    let claim = |name: &str, status: &str| {
        format!("{{metadata: {{name: {name}, namespace: d}}, spec: {{}}, status: {{{status}}}}}")
    };
    let (free, taken) = (claim("a", ""), claim("a", "allocation: {}"));
    let of_claim = |old: &str, new: &str| Event::DeviceClaim(turn(old, new));
    check(
        "DynamicResources",
        "resourceClaims: [{name: r, resourceClaimName: b}]",
        &[
            (of_claim(&taken, &free), true),
            (of_claim(&taken, ""), true),
            (of_claim(&free, &taken), false),
            (of_claim("", &claim("b", "")), true),
            (of_claim(&claim("b", ""), &claim("b", "")), false),
            (of_node("", PLAIN), true),
        ],
    );
}

#[test]
fn a_gang_is_helped_by_its_own_and_by_its_workload() {
    let named = |of: &str| other("x", "", &format!(", workloadRef: {{{of}}}"));
    let workload = |name: &str, namespace: &str| {
        format!("{{metadata: {{name: {name}, namespace: {namespace}}}, spec: {{podGroups: []}}}}")
    };
    let of_workload = |old: &str, new: &str| Event::Workload(turn(old, new));
    let newcomer = |of: &str| Event::Newcomer(Arc::new(parse(&named(of))));
    let (one, two) = ("name: w, podGroup: g", "name: w, podGroup: g, podGroupReplicaKey: '2'");
    check(
        "GangScheduling",
        "workloadRef: {name: w, podGroup: g}",
        &[
            (newcomer(one), true),
            (newcomer(two), false),
            (newcomer("name: w, podGroup: h"), false),
            (newcomer("name: v, podGroup: g"), false),
            (of_pod("", &named(one)), true),
            (of_pod("", &named(two)), false),
            (of_pod(&named(one), ""), false),
            (of_pod("", &other("x", "", "")), false),
            (of_workload("", &workload("w", "d")), true),
            (of_workload("", &workload("v", "d")), false),
            (of_workload("", &workload("w", "e")), false),
            (of_workload(&workload("w", "d"), &workload("w", "d")), false),
            (of_workload(&workload("w", "d"), ""), false),
            (of_node("", PLAIN), false),
        ],
    );
    check("GangScheduling", "", &[(newcomer(one), false), (of_workload("", &workload("w", "d")), false)]);
}

#[test]
fn the_pods_own_wishes_help_only_itself() {
    let tolerant = |name: &str| other(name, "app: p", ", tolerations: [{key: k, operator: Exists}]");
    let wish = |name: &str| Event::Wish(turn(&other(name, "app: p", ""), &tolerant(name)));
    for plugin in ["TaintToleration", "NodeUnschedulable"] {
        check(plugin, "", &[(wish("p"), true), (wish("x"), false)]);
    }
    check("NodeAffinity", "", &[(wish("p"), false)]);
    check("NobodyHasHeardOf", "", &[(wish("x"), true)]);
}

#[test]
fn every_filter_has_a_hint() {
    for filter in crate::plugins::FILTERS {
        assert!(HINTS.iter().any(|hint| hint.plugin == filter.name), "{}", filter.name);
    }
}

/// A small world that changes at random.
struct World {
    random: Random,
    snapshot: Snapshot,
    nodes: [Option<Arc<Node>>; 3],
    pods: [Option<(Arc<Pod>, usize)>; 4],
}

impl World {
    fn one_of(&self, texts: &[&str]) -> String {
        let at = self.random.below(u64::try_from(texts.len()).expect("few"));
        texts[usize::try_from(at).expect("few")].to_owned()
    }

    fn node(&self, at: usize) -> Node {
        let labels = self.one_of(&["", "zone: x, ", "zone: y, "]);
        let spec = self.one_of(&["", "", "unschedulable: true", "taints: [{key: k, effect: NoSchedule}]"]);
        let cpu = self.one_of(&["1", "2", "4"]);
        parse(&format!(
            "{{metadata: {{name: n{at}, labels: {{{labels}host: n{at}}}}}, spec: {{{spec}}}, \
             status: {{allocatable: {{cpu: '{cpu}', pods: '3'}}}}}}"
        ))
    }

    fn pod(&self, name: &str) -> Pod {
        let app = self.one_of(&["a", "b"]);
        let cpu = self.one_of(&["1", "2"]);
        let key = self.one_of(&["zone", "host"]);
        let selector = format!("labelSelector: {{matchLabels: {{app: {}}}}}", self.one_of(&["a", "b"]));
        let port = self.one_of(&["", ", ports: [{containerPort: 1, hostPort: 80}]"]);
        let kind = self.one_of(&["podAffinity", "podAntiAffinity"]);
        let affinity = format!(
            ", affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: {key}, {selector}}}]}}}}"
        );
        let spread = format!(
            ", topologySpreadConstraints: [{{topologyKey: {key}, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, {selector}}}]"
        );
        let wants = self.one_of(&[
            "",
            &affinity,
            &affinity,
            &spread,
            &spread,
            ", nodeSelector: {zone: x}",
            ", tolerations: [{operator: Exists}]",
        ]);
        parse(&format!(
            "{{metadata: {{name: {name}, namespace: d, uid: {name}, labels: {{app: {app}}}}}, spec: {{containers: \
             [{{name: c, resources: {{requests: {{cpu: '{cpu}'}}}}{port}}}]{wants}}}}}"
        ))
    }

    /// One thing happens.
    fn step(&mut self) -> Event {
        let pick = |below: u64| usize::try_from(self.random.below(below)).expect("few");
        let (at, is_node) = (pick(4), pick(2) == 0);
        if is_node {
            let at = at % self.nodes.len();
            let is_used = self.pods.iter().flatten().any(|(_, node)| *node == at);
            let old = self.nodes[at].take();
            // What is on a Node outlives it for a while.
            let new = (is_used || old.is_none() || pick(2) == 0).then(|| Arc::new(self.node(at)));
            match &new {
                Some(new) => self.snapshot.set_node(new.clone()),
                None => self.snapshot.remove_node(&format!("n{at}")),
            }
            self.nodes[at] = new.clone();
            return Event::Node(Turn { old, new });
        }
        let mut old = self.pods[at].take();
        let node = old.as_ref().map_or_else(|| pick(3), |(_, node)| *node);
        let mut pod = self.pod(&format!("placed-{at}"));
        if let Some((old, _)) = &old {
            // Only labels of what is there change.
            pod.spec = old.spec.clone();
        }
        let stays = self.nodes[node].is_some() && (old.is_none() || pick(2) == 0);
        let new = stays.then(|| Arc::new(pod));
        match &new {
            Some(new) => drop(self.snapshot.place(new, &format!("n{node}"))),
            None => drop(self.snapshot.remove(&format!("placed-{at}"))),
        }
        self.pods[at] = new.clone().map(|new| (new, node));
        Event::Pod(Turn { old: old.take().map(|(old, _)| old), new })
    }
}

#[test]
fn whoever_finds_a_node_after_something_happened_was_told_of_it() {
    let random = Random::seeded(7);
    let mut world =
        World { random, snapshot: Snapshot::default(), nodes: Default::default(), pods: Default::default() };
    let mut helped = 0;
    for round in 0..3_000 {
        let pod = world.pod("p");
        let mut told = Diagnosis::default();
        let before = decide(&pod, None, &world.snapshot, 0, &mut told);
        let event = world.step();
        let after = decide(&pod, None, &world.snapshot, 0, &mut Diagnosis::default());
        if matches!(before, Decision::Unschedulable(_)) && matches!(after, Decision::Bind(_)) {
            helped += 1;
            let is_told = told.rejectors().iter().any(|plugin| helps(plugin, &event, &pod, &world.snapshot));
            assert!(is_told, "round {round}: {:?}, {pod:?}, {event:?}", told.text());
        }
    }
    assert!(helped > 50, "{helped} times something helped");
}
