//! The cases of upstream's `filtering_test.go` and `scoring_test.go`.

use controller::pod::Pod;

use crate::fixtures::{NodeRow, cluster, is_in, not_in, pod, pod_in, refusals, scores_of};
use crate::node_info::Snapshot;
use crate::transform::parse;

const FOO: &str = "foo: ''";
const BAR: &str = "bar: ''";
const BOTH: &str = "foo: '', bar: ''";

/// A constraint of skew 1 about Pods that have the label, and more.
fn spread(action: &str, key: &str, label: &str, more: &str) -> String {
    format!(
        "{{topologyKey: {key}, whenUnsatisfiable: {action}, maxSkew: 1, \
         labelSelector: {{matchExpressions: [{{key: {label}, operator: Exists}}]}}{more}}}"
    )
}

fn hard(key: &str, label: &str) -> String {
    spread("DoNotSchedule", key, label, "")
}

fn soft(key: &str, label: &str) -> String {
    spread("ScheduleAnyway", key, label, "")
}

fn skew(constraint: &str, max: i32) -> String {
    constraint.replace("maxSkew: 1", &format!("maxSkew: {max}"))
}

fn with(constraint: &str, more: &str) -> String {
    constraint.replace("maxSkew: 1", &format!("maxSkew: 1, {more}"))
}

fn spread_pod(labels: &str, constraints: &[String], more: &str) -> Pod {
    pod(labels, &format!("topologySpreadConstraints: [{}], {more}", constraints.join(", ")))
}

/// Required node affinity.
fn required(requirement: &str) -> String {
    format!(
        "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
         {{nodeSelectorTerms: [{{matchExpressions: [{requirement}]}}]}}}}}}"
    )
}

/// Pods with these labels, one for each letter: the name of its Node.
fn on<'a>(labels: &str, nodes: &'a str) -> Vec<(&'a str, Pod)> {
    nodes.split("").filter(|node| !node.is_empty()).map(|node| (node, pod(labels, ""))).collect()
}

fn mixed<'a>(groups: &[(&str, &'a str)]) -> Vec<(&'a str, Pod)> {
    groups.iter().flat_map(|(labels, nodes)| on(labels, nodes)).collect()
}

/// Two Nodes in each of two zones.
const ZONES: [NodeRow<'static>; 4] = [
    ("a", "zone: one, node: a, kubernetes.io/hostname: a", ""),
    ("b", "zone: one, node: b, kubernetes.io/hostname: b", ""),
    ("x", "zone: two, node: x, kubernetes.io/hostname: x", ""),
    ("y", "zone: two, node: y, kubernetes.io/hostname: y", ""),
];
const HOST: &str = "kubernetes.io/hostname";
const TAINTED: &str = "spec: {taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}]}";

/// For each Node: `.` if it fits, `x` if not, `!` if it never will.
fn check(case: &str, pod: &Pod, nodes: &[NodeRow<'_>], placed: &[(&str, Pod)], expect: &str) {
    let snapshot = cluster(nodes, placed);
    let said = refusals("PodTopologySpread", pod, &snapshot);
    let mark = |said: &String| match said.as_str() {
        "" => '.',
        "node(s) didn't match pod topology spread constraints" => 'x',
        "!node(s) didn't match pod topology spread constraints (missing required label)" => '!',
        other => panic!("{case}: {other}"),
    };
    assert_eq!(said.iter().map(mark).collect::<String>(), expect, "{case}");
}

#[test]
fn one_constraint_is_kept_over_its_places() {
    let by_zone = spread_pod(FOO, &[hard("zone", "foo")], "");
    let by_node = spread_pod(FOO, &[hard("node", "foo")], "");
    check("nobody is there", &by_zone, &ZONES, &[], "....");
    check("nor is it one of them", &spread_pod(FOO, &[hard("zone", "bar")], ""), &ZONES, &[], "....");
    let elsewhere: Vec<_> = ["one", "two"].map(|namespace| ("a", pod_in(namespace, FOO, ""))).into();
    let placed = [elsewhere, on(FOO, "xy")].concat();
    check("other namespaces do not count", &by_zone, &ZONES, &placed, "..xx");
    let of_nobody = "{topologyKey: zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}";
    check("no selector", &spread_pod(FOO, &[of_nobody.to_owned()], ""), &ZONES, &on(FOO, "xy"), "....");
    let of_all = of_nobody.replace('}', ", labelSelector: {}}");
    check("an empty selector", &spread_pod(FOO, &[of_all], ""), &ZONES, &on(FOO, "xxyy"), "....");
    check("3/3", &by_zone, &ZONES, &on(FOO, "aabyyy"), "....");
    let mistyped = [ZONES[0], ("b", "zon: one, node: b", ""), ZONES[2], ZONES[3]];
    check("1/2, as a label is missing", &by_zone, &mistyped, &on(FOO, "abxy"), ".!xx");
    check("no places", &spread_pod(FOO, &[hard("rack", "foo")], ""), &ZONES, &[], "!!!!");
    check("2/1/0/3", &by_node, &ZONES, &on(FOO, "aabyyy"), "xx.x");
    let skew_2 = spread_pod(FOO, &[skew(&hard("node", "foo"), 2)], "");
    check("2/1/0/3, skew 2", &skew_2, &ZONES, &on(FOO, "aabyyy"), "x..x");
    let other = spread_pod(BAR, &[hard("node", "foo")], "");
    check("2/1/0/3, it does not count", &other, &ZONES, &on(FOO, "aabyyy"), "x..x");
    let going =
        parse("{metadata: {namespace: d, deletionTimestamp: '2026-01-01T00:00:00Z', labels: {foo: ''}}}");
    check("who goes does not count", &by_zone, &ZONES, &[("a", going)], "....");
}

#[test]
fn nodes_that_the_pod_may_not_be_on_do_not_count() {
    let on_a_y = spread_pod(FOO, &[hard("node", "foo")], &required(&is_in("node", "a, y")));
    check("2/-/-/3", &on_a_y, &ZONES, &on(FOO, "aabyyy"), "...x");
    let not_b = spread_pod(FOO, &[hard("zone", "foo")], &required(&not_in("node", "b")));
    check("0/-2-/0/1", &not_b, &ZONES, &on(FOO, "bby"), "..xx");
    let nodes: [NodeRow<'_>; 4] = [
        ("a", "node: a, foo: ''", ""),
        ("b", "node: b, foo: ''", ""),
        ("x", "node: x, foo: ''", ""),
        ("y", "node: y", TAINTED),
    ];
    let selector = "nodeSelector: {foo: ''}";
    let affinity = required(&is_in("foo", "''"));
    for (case, constraint, more, expect) in [
        ("selector honoured", hard("node", "foo"), selector, "xx.."),
        ("affinity honoured", hard("node", "foo"), affinity.as_str(), "xx.."),
        ("said so", with(&hard("node", "foo"), "nodeAffinityPolicy: Honor"), selector, "xx.."),
        ("selector ignored", with(&hard("node", "foo"), "nodeAffinityPolicy: Ignore"), selector, "xx.x"),
        ("affinity ignored", with(&hard("node", "foo"), "nodeAffinityPolicy: Ignore"), &affinity, "xx.x"),
        ("taints honoured", with(&hard("node", "foo"), "nodeTaintsPolicy: Honor"), "", "xx.."),
        ("taints ignored", hard("node", "foo"), "", "xx.x"),
        (
            "taints tolerated",
            with(&hard("node", "foo"), "nodeTaintsPolicy: Honor"),
            "tolerations: [{operator: Exists}]",
            "xx.x",
        ),
    ] {
        check(case, &spread_pod(FOO, &[constraint], more), &nodes, &on(FOO, "aby"), expect);
    }
}

#[test]
fn fewer_places_than_there_should_be_count_as_an_empty_one() {
    let nodes = [ZONES[0], ZONES[1], ZONES[2]];
    let at_least = |key: &str, places: usize| {
        spread_pod(FOO, &[skew(&with(&hard(key, "foo"), &format!("minDomains: {places}")), 2)], "")
    };
    check("2/2/1 of 4", &at_least("node", 4), &nodes, &on(FOO, "aabbx"), "xx.");
    check("2/2/1 of 3", &at_least("node", 3), &nodes, &on(FOO, "aabbx"), "...");
    check("2/2/1 of 2", &at_least("node", 2), &nodes, &on(FOO, "aabbx"), "...");
    check("2/1 of 3", &at_least("zone", 3), &ZONES, &on(FOO, "aby"), "xx..");
    check("2/1 of 1", &at_least("zone", 1), &ZONES, &on(FOO, "aby"), "....");
}

#[test]
fn all_constraints_are_to_be_kept() {
    let two = |labels: &str, zone: &str, node: &str| {
        spread_pod(labels, &[hard("zone", zone), hard("node", node)], "")
    };
    let same = two(FOO, "foo", "foo");
    check("3/3, 2/1/0/3", &same, &ZONES, &on(FOO, "aabyyy"), "xx.x");
    check("3/4, 2/1/0/4", &same, &ZONES, &on(FOO, "aabyyyy"), "xxxx");
    let differ = two(BOTH, "foo", "bar");
    check("1/0, 0/0/0/1", &differ, &ZONES, &mixed(&[(FOO, "a"), (BAR, "y")]), "xx.x");
    check("1/0, 0/0/1/1", &differ, &ZONES, &mixed(&[(FOO, "a"), (BAR, "xy")]), "xxxx");
    check("2/3, 1/0/0/1", &differ, &ZONES, &mixed(&[(FOO, "ayy"), (BOTH, "ay")]), "x.xx");
    let half = two(BAR, "foo", "bar");
    check("1/0 without it, 0/0/1/1", &half, &ZONES, &mixed(&[(FOO, "a"), (BAR, "xy")]), "..xx");
    let unnamed = [ZONES[0], ZONES[1], ("x", "zone: two", ""), ZONES[3]];
    check("a label is missing", &same, &unnamed, &on(FOO, "ay"), "x.!x");
    let zones = spread_pod(BOTH, &[hard("zone", "bar"), hard("zone", "foo")], "");
    let placed = mixed(&[(BOTH, "aby"), (FOO, "ayy")]);
    check("2/1, 3/3 on the same places", &zones, &ZONES, &placed, "xx..");
    let placed = mixed(&[(FOO, "ab"), (BAR, "xy")]);
    check("2/0, 0/2 on the same places", &zones, &ZONES, &placed, "xxxx");
}

#[test]
fn each_constraint_says_which_nodes_count() {
    let labelled = |which: [bool; 4], tainted: &'static str| -> Vec<NodeRow<'static>> {
        const LABELS: [[&str; 2]; 4] = [
            ["zone: one, node: a", "zone: one, node: a, foo: ''"],
            ["zone: one, node: b", "zone: one, node: b, foo: ''"],
            ["zone: two, node: x", "zone: two, node: x, foo: ''"],
            ["zone: two, node: y", "zone: two, node: y, foo: ''"],
        ];
        let rows = ["a", "b", "x", "y"].into_iter().zip(LABELS).zip(which);
        rows.map(|((name, labels), has)| {
            (name, labels[usize::from(has)], if name == "y" { tainted } else { "" })
        })
        .collect()
    };
    let selector = "nodeSelector: {foo: ''}";
    let ignore = |constraint: String| with(&constraint, "nodeAffinityPolicy: Ignore");
    let honour = |constraint: String| with(&constraint, "nodeTaintsPolicy: Honor");
    let (zone, node) = (|| hard("zone", "foo"), || hard("node", "foo"));
    for (case, which, constraints, more, expect) in [
        ("2/-0-, 1/1/0/1", [true, true, true, false], [zone(), ignore(node())], selector, "xx.x"),
        ("2/0, 1/1/0/1", [true; 4], [honour(zone()), node()], "", "xx.x"),
        ("1/1, 1/-/0/1", [true, false, true, true], [zone(), node()], selector, "x..x"),
        ("1/0, 1/1/0/1", [true, false, true, true], [honour(zone()), ignore(node())], selector, "xx.x"),
    ] {
        let asks = spread_pod(FOO, &constraints, more);
        check(case, &asks, &labelled(which, TAINTED), &on(FOO, "aby"), expect);
    }
}

#[test]
fn some_labels_are_to_be_the_pods_own() {
    let keyed = |labels: &str, keys: &str| {
        spread_pod(labels, &[with(&hard("zone", "foo"), &format!("matchLabelKeys: [{keys}]"))], "")
    };
    let placed = mixed(&[("foo: '', hash: one", "aa"), ("foo: '', hash: two", "x")]);
    for (case, asks, expect) in [
        ("its own", keyed("foo: '', hash: one", "hash"), "xx.."),
        ("of another", keyed("foo: '', hash: two", "hash"), "..xx"),
        ("of none yet", keyed("foo: '', hash: three", "hash"), "...."),
        ("a label that it does not have", keyed(FOO, "hash"), "xx.."),
        ("both", keyed("foo: '', hash: one", "hash, none"), "xx.."),
    ] {
        check(case, &asks, &ZONES, &placed, expect);
    }
}

/// The scores of the Nodes in question, whose names are the letters of `feasible`.
fn rank(case: &str, pod: &Pod, snapshot: &Snapshot, feasible: &str, expect: &[i64]) {
    rank_kin(case, pod, None, snapshot, feasible, expect);
}

fn rank_kin(case: &str, pod: &Pod, kin: Option<&str>, snapshot: &Snapshot, feasible: &str, expect: &[i64]) {
    let kin = kin.map(parse);
    let nodes: Vec<_> = snapshot.nodes().filter(|node| feasible.contains(node.name())).collect();
    let found = scores_of("PodTopologySpread", (pod, kin.as_ref()), &nodes, snapshot);
    assert_eq!(found.as_deref(), Some(expect), "{case}");
}

/// Nodes `a`, `b`, `c` and so on, each a host of its own.
const HOSTS: [NodeRow<'static>; 4] = [
    ("a", "kubernetes.io/hostname: a, node: a", ""),
    ("b", "kubernetes.io/hostname: b, node: b", ""),
    ("c", "kubernetes.io/hostname: c, node: c", ""),
    ("d", "kubernetes.io/hostname: d, node: d", ""),
];

#[test]
fn the_emptier_place_is_better() {
    let by_host = || soft(HOST, "foo");
    let of = |constraint: String| spread_pod(FOO, &[constraint], "");
    let hosts = |placed: &str| cluster(&HOSTS, &on(FOO, placed));
    rank("nobody", &of(by_host()), &hosts(""), "ab", &[100, 100]);
    rank("only one", &of(by_host()), &hosts("aab"), "a", &[100]);
    rank("1/1", &of(by_host()), &hosts("ab"), "ab", &[100, 100]);
    rank("2/1/0/3", &of(by_host()), &hosts("aabddd"), "abcd", &[20, 60, 100, 0]);
    let of_nobody = format!("{{topologyKey: {HOST}, whenUnsatisfiable: ScheduleAnyway, maxSkew: 1}}");
    rank("no selector", &of(of_nobody), &hosts("aabddd"), "abcd", &[100; 4]);
    rank("skew 2", &of(skew(&by_host(), 2)), &hosts("aabddd"), "abcd", &[33, 66, 100, 16]);
    rank("4/3/2/1, skew 3", &of(skew(&by_host(), 3)), &hosts("aaaabbbccd"), "abcd", &[44, 66, 77, 100]);
    let kin = Some("{matchLabels: {foo: ''}}");
    rank_kin("by default", &pod(FOO, ""), kin, &hosts("aaaabbbccd"), "abcd", &[44, 66, 77, 100]);
    rank("4/2/1, and 3 out of the question", &of(by_host()), &hosts("aaaabbcddd"), "abc", &[33, 83, 100]);
    let unnamed = [HOSTS[0], ("b", "n: b", ""), HOSTS[2], HOSTS[3]];
    let snapshot = cluster(&unnamed, &on(FOO, "aaaabbcddd"));
    rank("one is no place", &of(by_host()), &snapshot, "abc", &[16, 0, 100]);
    let zones = cluster(&ZONES, &on(FOO, "aaaabbxyyy"));
    rank("6/4 by zone", &of(soft("zone", "foo")), &zones, "abx", &[75, 75, 100]);
    let (there, elsewhere) = (on(FOO, "abb"), vec![("a", pod_in("other", FOO, ""))]);
    let snapshot = cluster(&HOSTS, &[there, elsewhere].concat());
    rank("other namespaces", &of(by_host()), &snapshot, "ab", &[100, 33]);
    let going =
        parse("{metadata: {namespace: d, deletionTimestamp: '2026-01-01T00:00:00Z', labels: {foo: ''}}}");
    let snapshot = cluster(&HOSTS, &[vec![("a", going)], on(FOO, "b")].concat());
    rank("who goes", &of(by_host()), &snapshot, "ab", &[100, 0]);
    let many = with(&soft("node", "foo"), "minDomains: 10").replace("maxSkew: 1", "maxSkew: 2");
    rank("places that should be there", &of(many), &hosts("aabbc"), "abc", &[75, 75, 100]);
}

#[test]
fn several_wishes_are_added_up() {
    let two = |labels: &str, zone: &str, host: &str| {
        spread_pod(labels, &[soft("zone", zone), soft(HOST, host)], "")
    };
    let snapshot = cluster(&ZONES, &on(FOO, "aabxxyyyy"));
    rank("2/-1-/2/-4-", &two(FOO, "foo", "foo"), &snapshot, "ax", &[100, 63]);
    let zones = spread_pod(BOTH, &[soft("zone", "foo"), soft("zone", "bar")], "");
    let snapshot = cluster(&ZONES, &mixed(&[(BOTH, "aby"), (FOO, "ayy")]));
    rank("two on zones", &zones, &snapshot, "ax", &[85, 100]);
    let differ = two(BOTH, "foo", "bar");
    let snapshot = cluster(&ZONES, &mixed(&[(FOO, "ay"), (BOTH, "b"), (BAR, "y")]));
    rank("2/1, 0/1/0/1", &differ, &snapshot, "abxy", &[60, 20, 100, 60]);
    rank("2/1, 0/1/0/-1-", &differ, &snapshot, "abx", &[50, 25, 100]);
    let snapshot = cluster(&ZONES, &mixed(&[(BAR, "b"), (FOO, "x"), (BOTH, "y")]));
    rank("0/2, 0/1/0/1", &differ, &snapshot, "abxy", &[100, 60, 40, 0]);
}

#[test]
fn wishes_say_which_nodes_count() {
    let nodes: [NodeRow<'_>; 3] =
        [("a", "node: a, foo: ''", ""), ("b", "node: b, foo: ''", ""), ("c", "node: c", TAINTED)];
    let snapshot = cluster(&nodes, &on(FOO, "aabc"));
    let selector = "nodeSelector: {foo: ''}";
    let affinity = required(&is_in("foo", "''"));
    let by_node = || soft("node", "foo");
    for (case, constraint, more, expect) in [
        ("selector honoured", by_node(), selector, [0, 33, 100]),
        ("affinity honoured", by_node(), &affinity, [0, 33, 100]),
        ("selector ignored", with(&by_node(), "nodeAffinityPolicy: Ignore"), selector, [66, 100, 100]),
        ("affinity ignored", with(&by_node(), "nodeAffinityPolicy: Ignore"), &affinity, [66, 100, 100]),
        ("taints honoured", with(&by_node(), "nodeTaintsPolicy: Honor"), "", [0, 33, 100]),
        ("taints ignored", by_node(), "", [66, 100, 100]),
    ] {
        rank(case, &spread_pod(FOO, &[constraint], more), &snapshot, "abc", &expect);
    }
}
