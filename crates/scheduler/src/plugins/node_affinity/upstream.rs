//! The cases of upstream's `node_affinity_test.go`.

use controller::pod::Pod;

use crate::decide::{Decision, decide};
use crate::diagnosis::Diagnosis;
use crate::fixtures::{NodeRow, cluster, exists, is_in, lacks, not_in, pod, refusals, scores};
use crate::node_info::Snapshot;
use crate::profile::{Profile, Profiles};
use crate::transform::parse;

const OWN: &str = "!node(s) didn't match Pod's node affinity/selector";
const ENFORCED: &str = "!node(s) didn't match scheduler-enforced node affinity";

fn by_label(requirements: &[String]) -> String {
    format!("{{matchExpressions: [{}]}}", requirements.join(", "))
}

fn by_name(names: &[&str]) -> String {
    let fields: Vec<_> = names.iter().map(|name| is_in("metadata.name", name)).collect();
    format!("{{matchFields: [{}]}}", fields.join(", "))
}

fn required(terms: &[String]) -> String {
    let terms = terms.join(", ");
    format!("requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{terms}]}}")
}

fn preferred(terms: &[(i32, String)]) -> String {
    let terms: Vec<_> =
        terms.iter().map(|(weight, term)| format!("{{weight: {weight}, preference: {term}}}")).collect();
    format!("preferredDuringSchedulingIgnoredDuringExecution: [{}]", terms.join(", "))
}

fn spec(affinity: &str) -> String {
    format!("affinity: {{nodeAffinity: {{{affinity}}}}}")
}

fn numbered(key: &str, operator: &str, value: &str) -> String {
    format!("{{key: {key}, operator: {operator}, values: ['{value}']}}")
}

/// A cluster whose scheduler asks this of every Pod too.
fn enforcing(nodes: &[NodeRow<'_>], added: &str) -> Snapshot {
    let mut snapshot = cluster(nodes, &[]);
    let mut profile = Profile::default();
    profile.arguments.added_affinity = Some(parse(&format!("{{{added}}}")));
    snapshot.profiles = Profiles::new(profile, Vec::new());
    snapshot
}

#[test]
fn selector_and_affinity_say_which_nodes() {
    let both = by_label(&[exists("GPU"), not_in("GPU", "AMD, INTER")]);
    let neither = by_label(&[exists("GPU"), is_in("GPU", "AMD, INTER")]);
    let either = [by_label(&[is_in("foo", "bar, v")]), by_label(&[is_in("other", "wrong, v")])];
    let mixed = "{matchExpressions: [{key: foo, operator: In, values: [bar]}], \
                 matchFields: [{key: metadata.name, operator: In, values: [one]}]}";
    let has_foo = spec(&required(&[by_label(&[exists("foo")])]));
    for (case, wish, node, labels, expect) in [
        ("a label is missing", "nodeSelector: {foo: bar}".to_owned(), "n", "", OWN),
        ("the same", "nodeSelector: {foo: bar}".to_owned(), "n", "foo: bar", ""),
        ("more", "nodeSelector: {foo: bar}".to_owned(), "n", "foo: bar, baz: blah", ""),
        ("less", "nodeSelector: {foo: bar, baz: blah}".to_owned(), "n", "foo: bar", OWN),
        ("in", spec(&required(&[by_label(&[is_in("foo", "bar, v")])])), "n", "foo: bar", ""),
        ("not in these", spec(&required(&[by_label(&[is_in("foo", "v, w")])])), "n", "foo: bar", OWN),
        ("not in", spec(&required(&[by_label(&[not_in("mem", "DDR, DDR2")])])), "n", "mem: DDR3", ""),
        ("exists", spec(&required(&[by_label(&[exists("GPU")])])), "n", "GPU: NVIDIA", ""),
        ("lacks", spec(&required(&[by_label(&[lacks("GPU")])])), "n", "GPU: NVIDIA", OWN),
        ("more than", spec(&required(&[by_label(&[numbered("v", "Gt", "0204")])])), "n", "v: '0206'", ""),
        (
            "not more than",
            spec(&required(&[by_label(&[numbered("v", "Gt", "0206")])])),
            "n",
            "v: '0206'",
            OWN,
        ),
        ("less than", spec(&required(&[by_label(&[numbered("v", "Lt", "0207")])])), "n", "v: '0206'", ""),
        ("less than no number", spec(&required(&[by_label(&[numbered("v", "Lt", "7")])])), "n", "v: x", OWN),
        ("no requirement", spec(&required(&[by_label(&[])])), "n", "foo: bar", OWN),
        ("no term", spec(&required(&[])), "n", "foo: bar", OWN),
        ("nothing required", spec(""), "n", "foo: bar", ""),
        ("both hold", spec(&required(&[both])), "n", "GPU: NVIDIA", ""),
        ("one does not", spec(&required(&[neither])), "n", "GPU: NVIDIA", OWN),
        ("one of two terms", spec(&required(&either)), "n", "foo: bar", ""),
        ("selector too", format!("nodeSelector: {{foo: bar}}, {has_foo}"), "n", "foo: bar", ""),
        ("not the selector", format!("nodeSelector: {{foo: bar}}, {has_foo}"), "n", "foo: barr", OWN),
        ("named", spec(&required(&[by_name(&["one"])])), "one", "", ""),
        ("another named", spec(&required(&[by_name(&["one"])])), "two", "", OWN),
        (
            "named or labelled",
            spec(&required(&[by_name(&["one", "two"]), by_label(&[is_in("foo", "bar")])])),
            "two",
            "foo: bar",
            "",
        ),
        ("named and labelled", spec(&required(&[mixed.to_owned()])), "one", "foo: bar", ""),
        ("labelled, not named", spec(&required(&[mixed.to_owned()])), "two", "foo: bar", OWN),
        (
            "neither",
            spec(&required(&[by_name(&["one"]), by_label(&[is_in("foo", "x")])])),
            "two",
            "foo: bar",
            OWN,
        ),
        ("one of two named", spec(&required(&[by_name(&["one"]), by_name(&["two"])])), "two", "", ""),
        ("two named at once", spec(&required(&[by_name(&["one", "two"])])), "two", "foo: bar", OWN),
    ] {
        let snapshot = cluster(&[(node, labels, "")], &[]);
        assert_eq!(refusals("NodeAffinity", &pod("", &wish), &snapshot), [expect], "{case}");
    }
}

#[test]
fn the_scheduler_may_ask_more_of_every_pod() {
    let zone = |value: &str| spec(&required(&[by_label(&[is_in("zone", value)])]));
    let (named, bar) = (required(&[by_name(&["two"])]), required(&[by_label(&[is_in("zone", "bar")])]));
    for (case, wish, added, expect) in [
        ("both hold", zone("foo"), &named, ""),
        ("not its own", zone("bar"), &named, OWN),
        ("not the scheduler's", String::new(), &bar, ENFORCED),
    ] {
        let snapshot = enforcing(&[("two", "zone: foo", "")], added);
        assert_eq!(refusals("NodeAffinity", &pod("", &wish), &snapshot), [expect], "{case}");
    }
}

/// Where the Pod goes, or why nowhere, of three Nodes of which one is tainted.
fn check(wish: &str, expect: &str) {
    let taint = "spec: {taints: [{key: k, effect: NoSchedule}]}, status: {allocatable: {pods: 1}}";
    let room = "status: {allocatable: {pods: 1}}";
    let nodes =
        [("one", "", room), ("two", "zone: x", "status: {allocatable: {pods: 0}}"), ("three", "", taint)];
    let asks: Pod = pod("", wish);
    let mut told = Diagnosis::default();
    let text = match decide(&asks, None, &cluster(&nodes, &[]), 0, &mut told) {
        Decision::Bind(choice) => choice.node,
        Decision::Unschedulable(why) | Decision::Failed(why) | Decision::Unheard(why) => why,
    };
    assert_eq!(text, expect, "{wish}");
}

/// Whatever else they have against the Pod.
#[test]
fn other_nodes_than_those_named_are_not_looked_at() {
    check(&spec(&required(&[by_name(&["one"])])), "one");
    check(
        &spec(&required(&[by_name(&["two"])])),
        "0/3 nodes are available: 1 Too many pods, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    );
    check(
        &spec(&required(&[by_name(&["three"]), by_name(&["two"])])),
        "0/3 nodes are available: 1 Too many pods, 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) had untolerated taint(s).",
    );
    check(
        &spec(&required(&[by_name(&["gone"])])),
        "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    );
    check(
        &spec(&required(&[by_name(&["one", "two"])])),
        "0/3 nodes are available: pod affinity terms conflict.",
    );
    // A term without a name is about all of them.
    check(
        &spec(&required(&[by_name(&["two"]), by_label(&[exists("rack")])])),
        "0/3 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s).",
    );
}

#[test]
fn nodes_are_ranked_by_the_weights_of_the_terms_that_hold() {
    let (one, two) = (by_label(&[is_in("foo", "bar")]), by_label(&[is_in("key", "value")]));
    let five = by_label(&[is_in("foo", "bar"), is_in("key", "value"), is_in("az", "az1")]);
    let (first, all) = (preferred(&[(2, one.clone())]), preferred(&[(2, one), (4, two), (5, five)]));
    let nodes = [("a", "foo: bar", ""), ("b", "key: value", ""), ("c", "foo: bar, key: value, az: az1", "")];
    for (case, wish, added, labels, expect) in [
        ("nothing preferred", "", "", &nodes[..], None),
        ("nobody matches", first.as_str(), "", &[("a", "az: az1", ""), ("b", "", "")], Some(vec![0, 0])),
        ("only one", &first, "", &[("a", "foo: bar", ""), ("b", "", "")], Some(vec![100, 0])),
        ("all of it", &all, "", &nodes, Some(vec![18, 36, 100])),
        ("an empty term", &preferred(&[(9, by_label(&[]))]), "", &nodes[..2], Some(vec![0, 0])),
        ("the scheduler's", "", first.as_str(), &nodes[..2], Some(vec![100, 0])),
        ("both", &preferred(&[(1, by_label(&[exists("key")]))]), &first, &nodes[..2], Some(vec![100, 50])),
    ] {
        let snapshot = enforcing(labels, added);
        assert_eq!(scores("NodeAffinity", &pod("", &spec(wish)), None, &snapshot), expect, "{case}");
    }
}
