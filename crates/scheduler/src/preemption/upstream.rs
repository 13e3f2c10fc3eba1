//! The cases of upstream's `default_preemption_test.go`.

use super::*;
use crate::fixtures::{allocatable, cluster, pod};
use crate::profile::{Profile, Profiles};
use crate::transform::parse;

const NEGATIVE: i32 = -100;
const LOW: i32 = 0;
const MID: i32 = 100;
const HIGH: i32 = 1000;
const VERY_HIGH: i32 = 10000;
/// CPU in hundreds of millicores; a Node has five.
const SMALL: u32 = 1;
const MEDIUM: u32 = 2;
const LARGE: u32 = 3;
const ALL: u32 = 5;

/// A Pod: where, name, priority, size, and the second at which it was started.
type Row<'a> = (&'a str, &'a str, i32, u32, i64);

fn sized(name: &str, priority: i32, size: u32, more: &str) -> Pod {
    let started = if more.is_empty() { "startTime: '1970-01-01T00:00:00Z'" } else { more };
    parse(&format!(
        "{{metadata: {{name: {name}, namespace: d, uid: {name}, labels: {{app: {name}}}}}, \
         spec: {{priority: {priority}, containers: [{{name: c, resources: {{requests: {{cpu: {size}00m}}}}}}]}}, \
         status: {{{started}}}}}"
    ))
}

/// As many Nodes as there are names, each with room for [`ALL`].
fn world(nodes: &[&str], rows: &[Row<'_>]) -> Snapshot {
    let room = allocatable("cpu: 500m, pods: 32");
    let nodes: Vec<_> = nodes.iter().map(|name| (*name, "", room.as_str())).collect();
    let mut snapshot = cluster(&nodes, &[]);
    for (node, name, priority, size, second) in rows {
        let started = format!("startTime: '1970-01-01T00:00:0{second}Z'");
        snapshot.place(&Arc::new(sized(name, *priority, *size, &started)), node);
    }
    snapshot
}

/// Each candidate as `node: victims`, after the number of broken budgets if any is.
fn found(
    pod: &Pod,
    snapshot: &mut Snapshot,
    budgets: &[Arc<PodDisruptionBudget>],
    chance: u64,
) -> Vec<String> {
    let (candidates, _) = candidates(pod, snapshot, budgets, chance).expect("eligible");
    let text = |candidate: PreemptionCandidate| {
        let names: Vec<_> = candidate.victims.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        let broken = if candidate.violations == 0 {
            String::new()
        } else {
            format!(", {} broken", candidate.violations)
        };
        format!("{}: {}{broken}", candidate.node, names.join(" "))
    };
    candidates.into_iter().map(text).collect()
}

#[test]
fn those_go_without_whom_the_pod_fits() {
    let ab = ["a", "b"];
    let large = || sized("p", HIGH, LARGE, "");
    for (case, pod, rows, expect) in [
        (
            "both Nodes",
            large(),
            &[("a", "p1", MID, LARGE, 0), ("b", "p2", MID, LARGE, 0)][..],
            &["a: p1", "b: p2"][..],
        ),
        (
            "nobody of less priority",
            sized("p", LOW, LARGE, ""),
            &[("a", "p1", MID, LARGE, 0), ("b", "p2", MID, LARGE, 0)],
            &[],
        ),
        (
            "a small one of low priority stays",
            large(),
            &[("a", "small", LOW, SMALL, 0), ("a", "large", MID, LARGE, 0), ("b", "p2", MID, LARGE, 0)],
            &["a: large", "b: p2"],
        ),
        (
            "of all priorities",
            large(),
            &[
                ("a", "p1", MID, SMALL, 0),
                ("a", "p2", LOW, SMALL, 0),
                ("a", "p3", MID, MEDIUM, 0),
                ("a", "p4", HIGH, SMALL, 0),
                ("b", "p5", HIGH, LARGE, 0),
            ],
            &["a: p3 p2"],
        ),
        (
            "of the same priority who came later",
            large(),
            &[
                ("a", "p1", LOW, SMALL, 5),
                ("a", "p2", LOW, SMALL, 4),
                ("a", "p3", MID, MEDIUM, 3),
                ("a", "p4", HIGH, SMALL, 2),
                ("b", "p5", HIGH, LARGE, 1),
            ],
            &["a: p3 p1"],
        ),
    ] {
        let mut snapshot = world(&ab, rows);
        assert_eq!(found(&pod, &mut snapshot, &[], 0), expect, "{case}");
    }
}

/// Room is not all that Pods may lack.
#[test]
fn those_go_who_are_in_the_way_of_company() {
    let named = |name: &str, priority: i32, labels: &str, more: &str| {
        let mut named = pod(labels, &format!("priority: {priority}, {more}"));
        named.metadata.name = Some(name.to_owned());
        named
    };
    let room = allocatable("pods: 32");
    let hates = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                 [{topologyKey: hostname, labelSelector: {matchExpressions: [{key: foo, operator: Exists}]}}]}}";
    let nodes = [("a", "hostname: a", room.as_str()), ("b", "hostname: b", &room)];
    let placed = [
        ("a", named("hater", LOW, "foo: ''", hates)),
        ("a", named("other", MID, "", "")),
        ("a", named("high", HIGH, "", "")),
        ("b", named("b", HIGH, "foo: ''", hates)),
    ];
    let asks = named("p", HIGH, "foo: ''", "");
    assert_eq!(found(&asks, &mut cluster(&nodes, &placed), &[], 0), ["a: hater"]);

    let constraint = |key: &str| {
        format!(
            "{{maxSkew: 1, topologyKey: {key}, whenUnsatisfiable: DoNotSchedule, \
             labelSelector: {{matchExpressions: [{{key: foo, operator: Exists}}]}}}}"
        )
    };
    let spread = format!("topologySpreadConstraints: [{}, {}]", constraint("zone"), constraint("hostname"));
    let nodes = [
        ("a", "zone: one, hostname: a", room.as_str()),
        ("b", "zone: one, hostname: b", &room),
        ("x", "zone: two, hostname: x", &room),
    ];
    let placed = [
        ("a", named("a1", MID, "foo: ''", "")),
        ("a", named("a2", LOW, "foo: ''", "")),
        ("b", named("b1", LOW, "foo: ''", "")),
        ("x", named("x1", HIGH, "foo: ''", "")),
        ("x", named("x2", HIGH, "foo: ''", "")),
    ];
    let asks = named("p", HIGH, "foo: ''", &spread);
    assert_eq!(found(&asks, &mut cluster(&nodes, &placed), &[], 0), ["a: a2", "b: b1"]);
}

fn budget(selector: &str, allowed: i32, gone: &[&str]) -> Arc<PodDisruptionBudget> {
    let gone: Vec<_> = gone.iter().map(|name| format!("{name}: '2026-01-01T00:00:00Z'")).collect();
    Arc::new(parse(&format!(
        "{{metadata: {{name: b, namespace: d}}, spec: {{{selector}}}, status: {{disruptionsAllowed: {allowed}, \
         currentHealthy: 1, desiredHealthy: 1, expectedPods: 1, disruptedPods: {{{}}}}}}}",
        gone.join(", ")
    )))
}

#[test]
fn budgets_count_who_goes_but_not_who_was_evicted() {
    let two = [("a", "p1", MID, MEDIUM, 0), ("a", "p2", MID, MEDIUM, 1)];
    let three = [two[0], two[1], ("a", "p3", MID, SMALL, 2)];
    let of_both = "selector: {matchExpressions: [{key: app, operator: Exists}]}";
    for (case, rows, budgets, expect) in [
        ("one too many", &two[..], vec![budget(of_both, 1, &[])], "a: p1 p2, 1 broken"),
        ("somebody else was evicted", &two, vec![budget(of_both, 1, &["x"])], "a: p1 p2, 1 broken"),
        ("one of them was", &two, vec![budget(of_both, 1, &["p2"])], "a: p1 p2"),
        ("one of three was", &three, vec![budget(of_both, 1, &["p3"])], "a: p1 p2 p3, 1 broken"),
        ("enough", &two, vec![budget(of_both, 2, &[])], "a: p1 p2"),
        (
            "two budgets, one too many",
            &two,
            vec![budget(of_both, 2, &[]), budget(of_both, 0, &[])],
            "a: p1 p2, 2 broken",
        ),
        ("an empty selector protects nobody", &two, vec![budget("selector: {}", 0, &[])], "a: p1 p2"),
        ("nor does none", &two, vec![budget("", 0, &[])], "a: p1 p2"),
    ] {
        let mut snapshot = world(&["a"], rows);
        assert_eq!(found(&sized("p", HIGH, ALL, ""), &mut snapshot, &budgets, 0), [expect], "{case}");
    }
}

#[test]
fn the_search_ends_when_there_is_enough_to_choose_from() {
    const FIVE: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];
    let same = |priorities: [i32; 5]| -> Vec<Row<'_>> {
        let names = ["p1", "p2", "p3", "p4", "p5"];
        FIVE.iter()
            .zip(names)
            .zip(priorities)
            .map(|((node, name), priority)| (*node, name, priority, LARGE, 0))
            .collect()
    };
    let protected =
        budget("selector: {matchExpressions: [{key: app, operator: In, values: [p1, p2, p5]}]}", 0, &[]);
    for (case, absolute, priorities, budgets, chance, expect) in [
        ("two of five", 1, [MID; 5], vec![], 4, &["n5: p5", "n1: p1"][..]),
        ("from the second", 1, [MID; 5], vec![], 1, &["n2: p2", "n3: p3"]),
        ("from the fourth", 1, [MID; 5], vec![], 3, &["n4: p4", "n5: p5"]),
        ("two that have room", 1, [MID, VERY_HIGH, MID, MID, VERY_HIGH], vec![], 4, &["n1: p1", "n3: p3"]),
        (
            "until no budget is broken",
            2,
            [MID; 5],
            vec![protected],
            4,
            &["n5: p5, 1 broken", "n1: p1, 1 broken", "n2: p2, 1 broken", "n3: p3"],
        ),
    ] {
        let mut snapshot = world(&FIVE, &same(priorities));
        let mut profile = Profile::default();
        profile.arguments.preemption = Candidates { percentage: 40, absolute };
        snapshot.profiles = Profiles::new(profile, Vec::new());
        assert_eq!(found(&sized("p", HIGH, LARGE, ""), &mut snapshot, &budgets, chance), expect, "{case}");
    }
}

const FOUR: [(&str, [&str; 4]); 4] = [
    ("a", ["a1", "a2", "a3", "a4"]),
    ("b", ["b1", "b2", "b3", "b4"]),
    ("c", ["c1", "c2", "c3", "c4"]),
    ("d", ["d1", "d2", "d3", "d4"]),
];

/// The Pods of each Node: priority and size.
fn sizes(nodes: &[&[(i32, u32)]]) -> Vec<Row<'static>> {
    let mut rows = Vec::new();
    for ((node, names), pods) in FOUR.into_iter().zip(nodes) {
        rows.extend(
            names.into_iter().zip(*pods).map(|(name, (priority, size))| (node, name, *priority, *size, 0)),
        );
    }
    rows
}

fn check_choice(case: &str, priority: i32, rows: &[Row<'_>], expect: &str) {
    let nodes = FOUR.iter().map(|(node, _)| *node).filter(|node| rows.iter().any(|row| row.0 == *node));
    let mut snapshot = world(&nodes.collect::<Vec<_>>(), rows);
    let answer = preempt(&sized("p", priority, ALL, ""), &mut snapshot, &[], 0);
    assert!(
        matches!(&answer, Preemption::Possible(candidate) if candidate.node == expect),
        "{case}: {answer:?}"
    );
}

#[test]
fn the_node_is_chosen_whose_loss_is_smallest() {
    let (small, medium, large) =
        (|priority| (priority, SMALL), |priority| (priority, MEDIUM), |priority| (priority, LARGE));
    let one_large = || vec![large(MID), medium(NEGATIVE)];
    let three = || vec![medium(MID), small(NEGATIVE), small(LOW)];
    for (case, priority, nodes, expect) in [
        (
            "the lowest of the highest priorities",
            HIGH,
            [vec![medium(MID), large(MID)], vec![medium(MID), medium(LOW)], vec![medium(LOW); 2], vec![]],
            "c",
        ),
        (
            "the smallest sum",
            HIGH,
            [vec![medium(MID), large(MID)], vec![large(MID), medium(LOW)], vec![medium(MID); 2], vec![]],
            "b",
        ),
        (
            "the fewest",
            HIGH,
            [vec![small(MID), small(NEGATIVE), small(MID), small(NEGATIVE)], one_large(), three(), vec![]],
            "b",
        ),
        (
            "negative priorities count too",
            HIGH,
            [vec![small(MID), small(NEGATIVE), small(NEGATIVE)], one_large(), three(), vec![]],
            "b",
        ),
        (
            "one after the other",
            VERY_HIGH,
            [
                vec![small(MID), small(LOW), small(LOW)],
                vec![large(HIGH)],
                vec![medium(MID), small(LOW), small(LOW), medium(LOW)],
                vec![medium(MID), small(MID), small(MID), small(NEGATIVE)],
            ],
            "a",
        ),
    ] {
        check_choice(case, priority, &sizes(&nodes.each_ref().map(Vec::as_slice)), expect);
    }
}

#[test]
fn of_like_losses_the_latest_is_smallest() {
    for (case, rows, expect) in [
        ("who came last", starts(MID, [(2, 2), (3, 3), (1, 1)], MID), "b"),
        ("the earliest of each Node", starts(MID, [(4, 2), (5, 1), (3, 6)], MID), "c"),
        ("the earliest of the highest priority", starts(LOW, [(4, 2), (1, 6), (3, 5)], MID), "b"),
    ] {
        check_choice(case, HIGH, &rows, expect);
    }
}

/// Two Pods on each of three Nodes, of these priorities and started at these seconds.
fn starts(first: i32, [a, b, c]: [(i64, i64); 3], second: i32) -> [Row<'static>; 6] {
    [
        ("a", "a1", first, MEDIUM, a.0),
        ("a", "a2", second, MEDIUM, a.1),
        ("b", "b1", first, MEDIUM, b.0),
        ("b", "b2", second, MEDIUM, b.1),
        ("c", "c1", first, MEDIUM, c.0),
        ("c", "c2", second, MEDIUM, c.1),
    ]
}

#[test]
fn a_pod_asks_again_unless_its_victims_are_leaving() {
    const VICTIM: &str =
        "conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler}]";
    const EVICTED: &str =
        "conditions: [{type: DisruptionTarget, status: 'True', reason: EvictionByEvictionAPI}]";
    let waiting = |more: &str| sized("p", HIGH, ALL, more);
    let never =
        parse("{metadata: {uid: p}, spec: {priority: 1000, preemptionPolicy: Never, containers: []}}");
    for (case, pod, taint, victim, may) in [
        ("its Node will not do any more", waiting("nominatedNodeName: a"), true, VICTIM, true),
        ("it waits for no Node", waiting(""), false, VICTIM, true),
        ("it may never", never, false, "", false),
        ("a victim leaves", waiting("nominatedNodeName: a"), false, VICTIM, false),
        ("somebody else leaves", waiting("nominatedNodeName: a"), false, "phase: Running", true),
        ("evicted by others", waiting("nominatedNodeName: a"), false, EVICTED, true),
        ("the Node is gone", waiting("nominatedNodeName: z"), false, VICTIM, true),
    ] {
        let taints = if taint { "[{key: k, effect: NoSchedule}]" } else { "[]" };
        let node = format!("spec: {{taints: {taints}}}, status: {{allocatable: {{cpu: 500m, pods: 9}}}}");
        let mut leaving = sized("victim", LOW, ALL, victim);
        leaving.metadata.deletion_timestamp = Some(parse("'2026-01-01T00:00:00Z'"));
        let mut snapshot = cluster(&[("a", "", &node)], &[("a", leaving)]);
        let answer = preempt(&pod, &mut snapshot, &[], 0);
        assert_eq!(!matches!(answer, Preemption::NotEligible(_)), may, "{case}: {answer:?}");
    }
}
