//! The cases of upstream's `filtering_test.go` and `scoring_test.go`.

use crate::arguments::Near;
use crate::fixtures::{NodeRow, cluster, exists, is_in, lacks, not_in, pod, pod_in, refusals, scores};
use crate::node_info::Snapshot;
use crate::profile::{Profile, Profiles};
use controller::pod::Pod;

const FITS: &str = "";
const NEAR: &str = "!node(s) didn't match pod affinity rules";
const FAR: &str = "node(s) didn't match pod anti-affinity rules";
const THEIRS: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

const SCAN: &str = "service: scan";
const SECURE: &str = "security: S1";

/// A term: where, about Pods that satisfy all of these, and more.
fn term_of(key: &str, requirements: &[String], more: &str) -> String {
    let all = requirements.join(", ");
    format!("{{topologyKey: {key}, labelSelector: {{matchExpressions: [{all}]}}{more}}}")
}

fn term(key: &str, requirements: &[String]) -> String {
    term_of(key, requirements, "")
}

fn hard(terms: &[String]) -> String {
    format!("requiredDuringSchedulingIgnoredDuringExecution: [{}]", terms.join(", "))
}

fn soft(terms: &[(i32, String)]) -> String {
    let weighted: Vec<_> =
        terms.iter().map(|(weight, term)| format!("{{weight: {weight}, podAffinityTerm: {term}}}")).collect();
    format!("preferredDuringSchedulingIgnoredDuringExecution: [{}]", weighted.join(", "))
}

/// The spec of a Pod that wants some near and others far.
fn wants(near: &str, far: &str) -> String {
    format!("affinity: {{podAffinity: {{{near}}}, podAntiAffinity: {{{far}}}}}")
}

fn near(terms: &[String]) -> String {
    wants(&hard(terms), "")
}

fn far(terms: &[String]) -> String {
    wants("", &hard(terms))
}

fn with_namespaces(mut snapshot: Snapshot) -> Snapshot {
    for (name, team) in [("a1", "one"), ("a2", "one"), ("b1", "two"), ("b2", "two")] {
        let labels = [("team".to_owned(), team.to_owned())].into();
        snapshot.set_namespace(name, Some(labels));
    }
    snapshot
}

/// What is said of each Node.
fn check(case: &str, pod: &Pod, nodes: &[NodeRow<'_>], placed: &[(&str, Pod)], expect: &[&str]) {
    let snapshot = with_namespaces(cluster(nodes, placed));
    assert_eq!(refusals("InterPodAffinity", pod, &snapshot), expect, "{case}");
}

/// One Node with one Pod on it.
fn check_one(case: &str, pod: &Pod, placed: Pod, expect: &str) {
    check(case, pod, &[("a", "region: r1, zone: z11", "")], &[("a", placed)], &[expect]);
}

#[test]
fn one_node_is_judged_by_the_pod_on_it() {
    let scan = || pod(SCAN, "");
    let in_scan = || is_in("service", "scan, value2");
    let near_scan = || term("region", &[in_scan()]);
    check_one("in", &pod(SECURE, &near(&[near_scan()])), scan(), FITS);
    let others = near(&[term("region", &[not_in("service", "scan3, value3")])]);
    check_one("not in", &pod(SECURE, &others), scan(), FITS);
    let elsewhere = near(&[term_of("region", &[in_scan()], ", namespaces: [other]")]);
    check_one("another namespace", &pod(SECURE, &elsewhere), pod_in("ns", SCAN, ""), NEAR);
    let unmatched = near(&[term("region", &[is_in("service", "antivirus, value2")])]);
    check_one("a selector that selects others", &pod(SCAN, &unmatched), scan(), NEAR);
    let two = |value: &str| {
        near(&[
            term("region", &[exists("service"), lacks("wrongkey")]),
            term("region", &[is_in("service", value), not_in("service", "WrongValue")]),
        ])
    };
    check_one("several terms", &pod(SECURE, &two("scan")), scan(), FITS);
    check_one("requirements are all to hold", &pod(SECURE, &two("scan2")), scan(), NEAR);
    let far_virus = || term("node", &[is_in("service", "antivirus, value2")]);
    let both = wants(&hard(&[near_scan()]), &hard(&[far_virus()]));
    check_one("near and far", &pod(SECURE, &both), scan(), FITS);
    check_one("and the other too", &pod(SECURE, &both), pod(SCAN, &far(&[far_virus()])), FITS);
    let torn = wants(&hard(&[near_scan()]), &hard(&[term("zone", &[in_scan()])]));
    check_one("near the one from which to be far", &pod(SECURE, &torn), scan(), FAR);
    let hater = pod(SCAN, &far(&[term("zone", &[in_scan()])]));
    check_one("the other does not want it", &pod(SCAN, &both), hater.clone(), THEIRS);
    check_one("nor a Pod that wants nothing", &pod(SCAN, ""), hater, THEIRS);
    let tolerant = pod(SCAN, &far(&[term("zone", &[not_in("service", "scan, value2")])]));
    check_one("it is not meant", &pod(SCAN, ""), tolerant, FITS);
    let own = near(&[term("region", &[not_in("service", "scan, value2")])]);
    let (node, away) = ([("a", "region: r1", "")], [("b", scan())]);
    check("whom it wants is nowhere", &pod(SCAN, &own), &node, &away, &[NEAR]);
}

#[test]
fn whoever_is_hated_is_kept_away_whoever_asks() {
    let all = |keys: &[&str]| {
        let terms: Vec<_> = keys.iter().map(|key| term("zone", &[exists(key)])).collect();
        far(&terms)
    };
    let service_or_security = all(&["service", "security"]);
    for (case, labels, spec, other_labels, other_spec, expect) in [
        ("both hate the other's", SCAN, &service_or_security, SECURE, &all(&["security"]), FAR),
        ("the other hates it", SECURE, &all(&["security"]), SCAN, &service_or_security, THEIRS),
        (
            "in part",
            "abc: '', xyz: ''",
            &all(&["abc", "def"]),
            "def: '', xyz: ''",
            &all(&["abc", "def"]),
            FAR,
        ),
        (
            "in part too",
            "def: '', xyz: ''",
            &all(&["abc", "def"]),
            "abc: '', xyz: ''",
            &all(&["abc", "def"]),
            FAR,
        ),
    ] {
        check_one(case, &pod(labels, spec), pod(other_labels, other_spec), expect);
    }
}

#[test]
fn namespaces_are_chosen_by_name_or_by_label() {
    let team = |selector: &str| {
        term_of("region", &[is_in("service", "scan")], &format!(", namespaceSelector: {selector}"))
    };
    let one = "{matchLabels: {team: one}}";
    for (selector, namespace, expect) in
        [(one, "a1", FITS), (one, "b1", NEAR), ("{}", "b1", FITS), ("{}", "unlabelled", FITS)]
    {
        let case = format!("near {selector} {namespace}");
        check_one(&case, &pod(SECURE, &near(&[team(selector)])), pod_in(namespace, SCAN, ""), expect);
    }
    for (selector, namespace, expect) in [(one, "a2", FAR), ("{}", "a2", FAR), (one, "b1", FITS)] {
        let case = format!("far {selector} {namespace}");
        let asks = pod_in("a1", SECURE, &far(&[team(selector)]));
        check_one(&case, &asks, pod_in(namespace, SCAN, ""), expect);
        let theirs = if expect == FITS { FITS } else { THEIRS };
        let hater = pod_in("a1", SECURE, &far(&[team(selector)]));
        check_one(&format!("they {case}"), &pod_in(namespace, SCAN, ""), hater, theirs);
    }
}

/// A region with two Nodes and one with another.
const REGIONS: [NodeRow<'static>; 3] =
    [("a", "region: China", ""), ("b", "region: China, az: az1", ""), ("c", "region: India", "")];
const ONE_ZONE: [NodeRow<'static>; 2] =
    [("a", "region: r1, zone: z1, host: a", ""), ("b", "region: r1, zone: z1, host: b", "")];
const TWO_ZONES: [NodeRow<'static>; 2] =
    [("a", "region: r1, zone: z1, host: a", ""), ("b", "region: r1, zone: z2, host: b", "")];
const THREE_ZONES: [NodeRow<'static>; 3] = [TWO_ZONES[0], TWO_ZONES[1], ("c", "region: r1, zone: z3", "")];

#[test]
fn places_are_nodes_with_the_same_label() {
    let one = |key: &str, value: &str| term(key, &[is_in("foo", value)]);
    let bar = [("a", pod("foo: bar", ""))];
    check("a region", &pod("", &near(&[one("region", "bar")])), &REGIONS, &bar, &[FITS, FITS, NEAR]);
    let group = near(&[one("zone", "bar"), term("zone", &[is_in("service", "scan")])]);
    let first = pod("foo: bar, service: scan", &group);
    check("the first of its group goes anywhere", &first, &TWO_ZONES, &bar, &[FITS, FITS]);
    check("that is a place", &first, &REGIONS, &bar, &[NEAR, NEAR, NEAR]);
    let far_abc = pod("", &far(&[one("region", "abc")]));
    let abc = [("a", pod("foo: abc", ""))];
    check("a region to be far from", &far_abc, &ONE_ZONE, &abc, &[FAR, FAR]);
    check("and another", &far_abc, &REGIONS, &abc, &[FAR, FAR, FITS]);
    let any = far(&[one("region", "abc"), term("zone", &[is_in("service", "scan")])]);
    let abc_scan = [("a", pod("foo: abc, service: scan", ""))];
    check("any term is enough", &pod("", &any), &TWO_ZONES, &abc_scan, &[FAR, FAR]);
    let asks = pod_in("one", "foo: '123'", &far(&[one("region", "bar")]));
    let hater = pod_in("two", "", &far(&[one("region", "'123'")]));
    let placed = [("a", pod_in("one", "foo: bar", "")), ("c", hater)];
    check("hated in another namespace", &asks, &REGIONS, &placed, &[FAR, FAR, FITS]);
}

#[test]
fn a_term_holds_where_selector_and_place_both_match() {
    let all = |terms: &[(&str, &str)]| {
        let terms: Vec<_> = terms.iter().map(|(label, key)| term(key, &[exists(label)])).collect();
        terms
    };
    let has = |labels: &str| pod(labels, "");
    let hates = |terms: &[(&str, &str)]| pod("", &far(&all(terms)));
    let (foo, foo_bar) = ("foo: ''", "foo: '', bar: ''");
    let nowhere = [("foo", "no-such-label")];
    check("their place is none", &has(foo), &ONE_ZONE, &[("a", hates(&nowhere))], &[FITS, FITS]);
    check("its place is none", &hates(&nowhere), &ONE_ZONE, &[("a", has(foo))], &[FITS, FITS]);
    let two = [("a", hates(&[("foo", "zone")])), ("a", hates(&[("bar", "region")]))];
    check("hated by two", &has(foo_bar), &TWO_ZONES, &two, &[THEIRS, THEIRS]);
    let two = [("a", has(foo)), ("b", has("bar: ''"))];
    check("hates two", &hates(&[("foo", "zone"), ("bar", "region")]), &TWO_ZONES, &two, &[FAR, FAR]);
    let half = [("foo", "no-such-label"), ("bar", "zone")];
    check("half hated", &has(foo_bar), &TWO_ZONES, &[("a", hates(&half))], &[THEIRS, FITS]);
    check("half hates", &hates(&half), &TWO_ZONES, &[("a", has(foo_bar))], &[FAR, FITS]);
    let whole = [("foo", "region"), ("bar", "zone")];
    check("hated", &has(foo_bar), &TWO_ZONES, &[("a", hates(&whole))], &[THEIRS, THEIRS]);
    check("hates", &hates(&whole), &TWO_ZONES, &[("a", has(foo_bar))], &[FAR, FAR]);
    let each =
        [("a", hates(&[("foo", "zone"), ("x", "zone")])), ("b", hates(&[("bar", "zone"), ("y", "zone")]))];
    check("hated on two of three", &has(foo_bar), &THREE_ZONES, &each, &[THEIRS, THEIRS, FITS]);
    let wants = pod("", &near(&all(&[("foo", "region"), ("bar", "zone")])));
    check("one who is all", &wants, &ONE_ZONE, &[("a", has(foo_bar))], &[FITS, FITS]);
    let two = [("a", has(foo)), ("b", has("bar: ''"))];
    check("all are to be one", &wants, &TWO_ZONES, &two, &[NEAR, NEAR]);
}

/// The scores of each Node; nothing if nobody is asked.
fn rank(case: &str, pod: &Pod, nodes: &[NodeRow<'_>], placed: &[(&str, Pod)], expect: Option<&[i64]>) {
    rank_with(case, Near::default(), pod, nodes, placed, expect);
}

fn rank_with(
    case: &str,
    arguments: Near,
    pod: &Pod,
    nodes: &[NodeRow<'_>],
    placed: &[(&str, Pod)],
    expect: Option<&[i64]>,
) {
    let mut snapshot = with_namespaces(cluster(nodes, placed));
    let mut profile = Profile::default();
    profile.arguments.near = arguments;
    snapshot.profiles = Profiles::new(profile, Vec::new());
    assert_eq!(scores("InterPodAffinity", pod, None, &snapshot).as_deref(), expect, "{case}");
}

const S1: &str = "security: S1";
const S2: &str = "security: S2";
const CHINA: &str = "region: China";
const INDIA: &str = "region: India";
const AZ1: &str = "az: az1";
const AZ2: &str = "az: az2";

fn with_s1(weight: i32) -> String {
    soft(&[(weight, term("region", &[is_in("security", "S1")]))])
}

fn with_s2() -> String {
    soft(&[(6, term("region", &[is_in("security", "S2")]))])
}

fn away(from: &str) -> String {
    soft(&[(5, term("az", &[is_in("security", from)]))])
}

/// Nodes `a`, `b` and so on with these labels.
fn named<'a>(labels: &[&'a str]) -> Vec<NodeRow<'a>> {
    ["a", "b", "c", "d", "e"].into_iter().zip(labels).map(|(name, labels)| (name, *labels, "")).collect()
}

#[test]
fn wishes_to_be_near_count_by_place() {
    let three = named(&[CHINA, INDIA, AZ1]);
    let s = |labels: &str| pod(labels, "");
    let mixed = [("a", s(S1)), ("b", s(S2)), ("c", s(S1))];
    rank("nobody wishes anything", &s(S1), &three, &[], None);
    let near_s1 = wants(&with_s1(5), "");
    rank("near", &pod(S1, &near_s1), &three, &mixed, Some(&[100, 0, 0]));
    let nodes = named(&[CHINA, "region: China, az: az1", INDIA]);
    rank("a region is one place", &pod("", &near_s1), &nodes, &mixed[..1], Some(&[100, 100, 0]));
    let five = named(&[CHINA, INDIA, CHINA, CHINA, INDIA]);
    let many = ["a", "a", "b", "c", "d", "e"].map(|node| (node, s(S2)));
    let near_s2 = wants(&with_s2(), "");
    rank("where more are", &pod(S1, &near_s2), &five, &many, Some(&[100, 0, 100, 100, 0]));
    let wishes = soft(&[
        (8, term("region", &[not_in("security", "S1"), is_in("security", "S2")])),
        (2, term("region", &[exists("security"), lacks("wrongkey")])),
    ]);
    rank("weights", &pod(S1, &wants(&wishes, "")), &three, &mixed, Some(&[20, 100, 0]));
    let theirs = [("a", pod(S1, &near_s1)), ("b", pod(S2, &near_s2))];
    rank("others wish it", &s(S2), &three, &theirs, Some(&[0, 100, 0]));
    let hard = hard(&[
        term("region", &[is_in("security", "S1, value2")]),
        term("region", &[exists("security"), lacks("wrongkey")]),
    ]);
    let theirs = [("a", pod(S1, &wants(&hard, ""))), ("b", pod(S2, &wants(&hard, "")))];
    rank("others require it", &s(S1), &three, &theirs, Some(&[100, 100, 0]));
}

#[test]
fn wishes_to_be_far_count_against_a_place() {
    let s = |labels: &str| pod(labels, "");
    let far_from = |which: &str| wants("", &away(which));
    let two = named(&[AZ1, CHINA]);
    rank("far", &pod(S1, &far_from("S1")), &two, &[("a", s(S1)), ("b", s(S2))], Some(&[0, 100]));
    rank("no place", &pod(S1, &far_from("S1")), &two, &[("a", s(S1)), ("b", s(S1))], Some(&[0, 100]));
    let placed = [("a", s(S1)), ("a", s(S1)), ("b", s(S2))];
    rank("more of them", &pod(S1, &far_from("S1")), &named(&[AZ1, INDIA]), &placed, Some(&[0, 100]));
    let theirs = [("a", pod(S1, &far_from("S2"))), ("b", pod(S2, &far_from("S1")))];
    rank("others wish it", &s(S2), &named(&[AZ1, AZ2]), &theirs, Some(&[0, 100]));
    let torn = wants(&with_s1(8), &away("S2"));
    let placed = [("a", s(S1)), ("b", s(S1))];
    rank("near and far", &pod(S1, &torn), &named(&[CHINA, AZ1]), &placed, Some(&[100, 0]));
    let five = named(&["region: China, az: az1", INDIA, CHINA, CHINA, INDIA]);
    let many = ["a", "a", "b", "c", "c", "d", "e"].map(|node| (node, s(S1)));
    rank("brothers", &pod(S1, &torn), &five, &many, Some(&[100, 0, 100, 100, 0]));
    let four = named(&[CHINA, AZ1, INDIA, AZ2]);
    let all = [("a", s(S1)), ("b", s(S2)), ("c", pod("", &torn)), ("d", pod("", &far_from("S1")))];
    rank("all of it", &pod(S1, &torn), &four, &all, Some(&[100, 0, 100, 0]));
    let placed = [("a", s(S1)), ("b", pod("", &torn))];
    rank("alike", &s(S1), &named(&[CHINA, CHINA]), &placed, Some(&[0, 0]));
}

#[test]
fn wishes_may_be_about_other_namespaces() {
    let about = ", namespaces: [b2], namespaceSelector: {matchLabels: {team: one}}";
    let wish = soft(&[(5, term_of("region", &[is_in("security", "S1")], about))]);
    let nodes = named(&[CHINA, INDIA]);
    for (third, expect) in [("b1", [100, 0]), ("b2", [100, 0])] {
        let placed = [("a", "a1"), ("a", "a1"), ("a", third), ("b", "a2")];
        let placed = placed.map(|(node, namespace)| (node, pod_in(namespace, S1, "")));
        rank(third, &pod_in("a1", S1, &wants(&wish, "")), &nodes, &placed, Some(&expect));
        let [first, second] = expect;
        rank(third, &pod_in("a1", S1, &wants("", &wish)), &nodes, &placed, Some(&[second, first]));
    }
    // Only those that it is about count: `b1` is not.
    let placed = [("a", pod_in("b1", S1, "")), ("b", pod_in("b2", S1, ""))];
    rank("by name only", &pod_in("a1", S1, &wants(&wish, "")), &nodes, &placed, Some(&[0, 100]));
}

#[test]
fn the_profile_says_what_others_wishes_count() {
    let torn = wants(&with_s1(8), &away("S2"));
    let placed = [("a", pod(S1, &torn)), ("b", pod(S2, &wants(&with_s2(), "")))];
    let nodes = named(&[CHINA, INDIA]);
    let near = |hard_weight, ignores_wishes_of_others| Near { hard_weight, ignores_wishes_of_others };
    rank_with("ignored", near(1, true), &pod(S2, ""), &nodes, &placed, None);
    rank_with("not ignored", near(1, false), &pod(S2, ""), &nodes, &placed, Some(&[0, 100]));
    let hard = wants(&hard(&[term("region", &[exists("security")])]), "");
    let placed = [("a", pod(S1, &hard)), ("b", pod(S1, &hard)), ("c", pod(S1, &hard))];
    let nodes = named(&[CHINA, INDIA, AZ1]);
    rank_with("of no weight", near(0, false), &pod(S1, ""), &nodes, &placed, None);
    rank_with("of weight 1", near(1, false), &pod(S1, ""), &nodes, &placed, Some(&[100, 100, 0]));
}
