//! The cases of upstream's `fit_test.go` and of the tests of its scorers.

use controller::pod::Pod;

use super::*;
use crate::fixtures::{allocatable, asking, asking_each, cluster, refusals, scores};
use crate::transform::parse;

/// What the Node has, beside 32 Pods.
const ROOM: &str =
    "cpu: 10m, memory: '20', ephemeral-storage: '20', example.com/aaa: '5', hugepages-2Mi: '5', pods: 32";
const A: &str = "example.com/aaa";

/// A Pod whose init containers ask for each of `init`, and its containers for each of `main`.
fn starting(main: &[&str], init: &[&str]) -> Pod {
    let container = |requests: &&str| format!("{{name: c, resources: {{requests: {{{requests}}}}}}}");
    let all = |each: &[&str]| each.iter().map(container).collect::<Vec<_>>().join(", ");
    parse(&format!(
        "{{metadata: {{name: p, namespace: d, uid: p}}, \
         spec: {{containers: [{}], initContainers: [{}]}}}}",
        all(main),
        all(init)
    ))
}

fn amounts(cpu: u32, memory: u32) -> String {
    format!("cpu: {cpu}m, memory: '{memory}'")
}

/// What is said of a Node of [`ROOM`] on which the other Pod is.
fn check(case: &str, pod: &Pod, placed: &str, expect: &str) {
    let room = allocatable(ROOM);
    let snapshot = cluster(&[("n", "", &room)], &[("n", asking(placed))]);
    assert_eq!(refusals("NodeResourcesFit", pod, &snapshot), [expect], "{case}");
}

#[test]
fn whatever_is_asked_for_must_be_left() {
    let (cpu, memory) = ("Insufficient cpu", "Insufficient memory");
    for (case, wants, placed, expect) in [
        ("both are used up", (1, 1), (10, 20), "Insufficient cpu, Insufficient memory"),
        ("both fit", (1, 1), (5, 5), ""),
        ("one is used up", (2, 1), (9, 5), cpu),
        ("so is the other", (1, 2), (5, 19), memory),
        ("just enough", (5, 1), (5, 19), ""),
        ("more than there is", (11, 1), (0, 0), "!Insufficient cpu"),
        (
            "less of one and more than there is of the other",
            (2, 21),
            (9, 0),
            "!Insufficient cpu, Insufficient memory",
        ),
    ] {
        let (wants, placed) = (amounts(wants.0, wants.1), amounts(placed.0, placed.1));
        check(case, &asking(&wants), &placed, expect);
    }
    check("who asks for nothing fits", &asking(""), &amounts(10, 20), "");
    check("who asks for 0 fits", &asking("cpu: 0, memory: 0"), &amounts(11, 21), "");
}

#[test]
fn init_containers_count_by_the_largest() {
    let (cpu, memory) = ("Insufficient cpu", "Insufficient memory");
    for (case, main, init, placed, expect) in [
        ("too much", (1, 1), &[(3, 1)][..], (8, 19), cpu),
        ("the larger of two", (1, 1), &[(3, 1), (2, 1)], (8, 19), cpu),
        ("too much memory", (1, 1), &[(1, 3)], (9, 19), memory),
        ("the larger of two in memory", (1, 1), &[(1, 3), (1, 2)], (9, 19), memory),
        ("as much as the others", (1, 1), &[(1, 1)], (9, 19), ""),
        ("two as much as the others", (1, 1), &[(1, 1), (1, 1)], (9, 19), ""),
        ("just enough", (4, 1), &[(5, 1)], (5, 19), ""),
    ] {
        let init: Vec<_> = init.iter().map(|(cpu, memory)| amounts(*cpu, *memory)).collect();
        let init: Vec<_> = init.iter().map(String::as_str).collect();
        let pod = starting(&[&amounts(main.0, main.1)], &init);
        check(case, &pod, &amounts(placed.0, placed.1), expect);
    }
}

#[test]
fn other_resources_must_be_left_too() {
    let (extended, unknown) = (format!("Insufficient {A}"), "!Insufficient example.com/bbb".to_owned());
    let never = format!("!{extended}");
    let of = |name: &str, amount: u32| format!("cpu: 1m, memory: '1', {name}: '{amount}'");
    let pages = "!Insufficient hugepages-2Mi".to_owned();
    for (case, main, init, placed, expect) in [
        ("some", &[of(A, 1)][..], &[][..], 0, ""),
        ("some to start", &[], &[of(A, 1)], 0, ""),
        ("more than there is", &[of(A, 10)], &[], 0, never.as_str()),
        ("more than there is to start", &[], &[of(A, 10)], 0, &never),
        ("used up", &[of(A, 1)], &[], 5, &extended),
        ("used up to start", &[], &[of(A, 1)], 5, &extended),
        ("two add up", &[of(A, 3), of(A, 3)], &[], 2, &never),
        ("two to start do not", &[], &[of(A, 3), of(A, 3)], 2, ""),
        ("the larger to start", &[], &[of(A, 6), of(A, 3)], 2, &never),
        ("nobody has it", &[of("example.com/bbb", 1)], &[], 0, &unknown),
        ("nobody has it to start", &[], &[of("example.com/bbb", 1)], 0, &unknown),
        ("none of what nobody has", &[of("example.com/bbb", 0)], &[], 0, ""),
        ("of Kubernetes", &[of("kubernetes.io/x", 10)], &[], 0, "!Insufficient kubernetes.io/x"),
        ("pages", &[of("hugepages-2Mi", 10)], &[], 0, &pages),
        ("pages that add up", &[of("hugepages-2Mi", 3), of("hugepages-2Mi", 3)], &[], 0, &pages),
        ("storage", &[of("ephemeral-storage", 21)], &[], 0, "!Insufficient ephemeral-storage"),
        ("storage that is left", &[of("ephemeral-storage", 20)], &[], 0, ""),
    ] {
        let (main, init): (Vec<_>, Vec<_>) =
            (main.iter().map(String::as_str).collect(), init.iter().map(String::as_str).collect());
        check(case, &starting(&main, &init), &format!("{A}: '{placed}'"), expect);
    }
}

#[test]
fn the_number_of_pods_is_limited() {
    let room = allocatable("cpu: 10m, pods: 1");
    for (case, placed, wants, expect) in [
        ("one more", &["cpu: 10m"][..], "cpu: 1m", "Too many pods, Insufficient cpu"),
        ("who asks for nothing", &["cpu: 5m"], "", "Too many pods"),
        ("there is room", &["cpu: 5m"], "cpu: 11m", "!Too many pods, Insufficient cpu"),
        ("the first", &[], "cpu: 10m", ""),
    ] {
        let placed: Vec<_> = placed.iter().map(|requests| ("n", asking(requests))).collect();
        let snapshot = cluster(&[("n", "", &room)], &placed);
        assert_eq!(refusals("NodeResourcesFit", &asking(wants), &snapshot), [expect], "{case}");
    }
}

#[test]
fn overhead_and_the_whole_count() {
    let pod = |more: &str| -> Pod {
        parse(&format!(
            "{{metadata: {{uid: p}}, spec: {{containers: [{{name: c, resources: {{requests: \
             {{cpu: 1m, memory: '1'}}}}}}], {more}}}}}"
        ))
    };
    let placed = amounts(5, 5);
    check("overhead", &pod("overhead: {cpu: 3m, memory: '13'}"), &placed, "");
    check("too much", &pod("overhead: {cpu: 1m, memory: '15'}"), &placed, "Insufficient memory");
    check("the whole", &pod("resources: {requests: {cpu: 5m, memory: '2'}}"), &placed, "");
    let whole = pod("resources: {requests: {cpu: 6m, memory: '2'}}");
    check("too much of the whole", &whole, &placed, "Insufficient cpu");
    let pages = pod("resources: {requests: {cpu: 1m, hugepages-2Mi: '6'}}");
    check("pages of the whole", &pages, &placed, "!Insufficient hugepages-2Mi");
}

/// The Pods that a Node has.
type Placed<'a> = (&'a str, Pod);

fn rank(
    case: &str,
    strategy: &Strategy,
    resources: &[(&str, i64)],
    pod: &Pod,
    nodes: [&str; 2],
    placed: &[Placed<'_>],
    expect: [i64; 2],
) {
    let [one, two] = nodes.map(allocatable);
    let mut snapshot = cluster(&[("a", "", &one), ("b", "", &two)], placed);
    let mut profile = Profile::default();
    let resources = resources.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    profile.arguments.fit = Fit { strategy: strategy.clone(), resources, ..Fit::default() };
    snapshot.profiles = Profiles::new(profile, Vec::new());
    assert_eq!(scores("NodeResourcesFit", pod, None, &snapshot), Some(expect.to_vec()), "{case}");
}

const BASIC: &[(&str, i64)] = &[("cpu", 1), ("memory", 1)];
const WEIGHED: &[(&str, i64)] = &[("memory", 2), ("cpu", 1)];
const EXTENDED: &[(&str, i64)] = &[("cpu", 1), ("memory", 1), (A, 1)];

/// Upstream's Pods without containers ask for nothing at all.
fn empty() -> Pod {
    parse("{metadata: {uid: p}, spec: {containers: []}}")
}

fn two_containers() -> Pod {
    asking_each(&["cpu: '1000', memory: '2000'", "cpu: '2000', memory: '3000'"])
}

const SMALL: &str = "cpu: '4000', memory: '10000'";
const MIDDLE: &str = "cpu: '6000', memory: '10000'";
const LARGE: &str = "cpu: '10000', memory: '20000'";
const HUGE: &str = "cpu: '10000', memory: '50000'";

/// Of each strategy, what the two Nodes are worth.
#[test]
fn the_same_nodes_are_worth_what_each_strategy_says() {
    let cpu_only = || asking("cpu: '3000', memory: '0'");
    let both = || asking("cpu: '3000', memory: '5000'");
    let used = [("a", cpu_only()), ("b", both())];
    let twice = [("a", cpu_only()), ("a", cpu_only()), ("b", cpu_only()), ("b", both())];
    let with_a = format!("{MIDDLE}, {A}: '4'");
    let with_more = format!("{MIDDLE}, {A}: '10'");
    let wants_a = asking(&format!("cpu: '3000', memory: '5000', {A}: '2'"));
    let down = Strategy::RequestedToCapacityRatio(vec![(0, 100), (100, 0)]);
    for (case, resources, pod, nodes, placed, least, most, line) in [
        ("nothing", BASIC, empty(), [SMALL, SMALL], &[][..], [100, 100], [0, 0], [100, 100]),
        ("of two sizes", BASIC, two_containers(), [SMALL, MIDDLE], &[], [37, 50], [62, 50], [38, 50]),
        ("only others ask", BASIC, empty(), [LARGE, LARGE], &twice, [70, 57], [30, 42], [70, 58]),
        ("both ask", BASIC, two_containers(), [LARGE, LARGE], &used, [57, 45], [42, 55], [58, 45]),
        (
            "both ask, of two sizes",
            BASIC,
            two_containers(),
            [LARGE, HUGE],
            &used,
            [57, 60],
            [42, 40],
            [58, 60],
        ),
        ("more than there is", BASIC, cpu_only(), [SMALL, SMALL], &used, [50, 25], [50, 75], [100, 50]),
        ("there is nothing", BASIC, empty(), ["", ""], &used, [0, 0], [0, 0], [0, 0]),
        ("weights", WEIGHED, two_containers(), [SMALL, MIDDLE], &[], [41, 50], [58, 50], [42, 50]),
        (
            "nobody asks for it",
            EXTENDED,
            two_containers(),
            [MIDDLE, &with_a],
            &[],
            [50, 50],
            [50, 50],
            [50, 50],
        ),
        ("somebody asks for it", EXTENDED, wants_a, [&with_a, &with_more], &[], [50, 60], [50, 40], [50, 60]),
    ] {
        rank(case, &Strategy::LeastAllocated, resources, &pod, nodes, placed, least);
        rank(case, &Strategy::MostAllocated, resources, &pod, nodes, placed, most);
        rank(case, &down, resources, &pod, nodes, placed, line);
    }
    let equal = asking_each(&["cpu: '2000', memory: '4000'", "cpu: '3000', memory: '5000'"]);
    let nodes = ["cpu: '5000', memory: '10000'", "cpu: '10000', memory: '9000'"];
    rank("all that there is", &Strategy::MostAllocated, BASIC, &equal, nodes, &[], [95, 75]);
    let modest = ["cpu: 250m, memory: 1000Mi"; 2];
    let placed = [("a", asking("")), ("a", asking(""))];
    rank("a little each", &Strategy::MostAllocated, BASIC, &asking(""), modest, &placed, [80, 30]);
}

#[test]
fn a_line_is_drawn_for_each_resource() {
    let line = Strategy::RequestedToCapacityRatio(vec![(0, 0), (100, 10)]);
    let (foo, bar) = ("intel.com/foo", "intel.com/bar");
    let of = |foo_amount: u32, bar_amount: u32| format!("{foo}: '{foo_amount}', {bar}: '{bar_amount}'");
    let (eight, four) = (of(8, 4), of(4, 8));
    let nodes = [eight.as_str(), four.as_str()];
    let single: &[(&str, i64)] = &[(foo, 1)];
    let both: &[(&str, i64)] = &[(foo, 3), (bar, 5)];
    for (case, resources, wants, placed, expect) in [
        ("nothing", single, "", &[][..], [0, 0]),
        ("2 of 8, 2 of 4", single, "intel.com/foo: '2'", &[], [2, 5]),
        ("2 are used", single, "intel.com/foo: '2'", &[("b", asking("intel.com/foo: '2'"))], [2, 10]),
        ("4 of 8, 4 of 4", single, "intel.com/foo: '4'", &[], [5, 10]),
        ("nothing of two", both, "", &[], [0, 0]),
        ("2 and 2", both, &of(2, 2), &[], [4, 3]),
        ("2 and 2 are used", both, &of(2, 2), &[("b", asking(&of(2, 2)))], [4, 7]),
        ("4 and 2", both, &of(4, 2), &[], [5, 5]),
    ] {
        rank(case, &line, resources, &asking(wants), nodes, placed, expect);
    }
}

#[test]
fn a_line_is_level_beyond_its_ends_and_straight_between_its_points() {
    for (line, cases) in [
        (
            &[(10, 1), (90, 9)][..],
            &[(0, 1), (9, 1), (10, 1), (15, 1), (19, 1), (20, 2), (89, 8), (90, 9), (110, 9)][..],
        ),
        (
            &[(0, 2), (40, 10), (100, 0)],
            &[(-10, 2), (0, 2), (20, 6), (30, 8), (40, 10), (70, 5), (100, 0), (110, 0)],
        ),
        (&[(0, 2), (40, 2), (100, 2)], &[(-10, 2), (0, 2), (20, 2), (40, 2), (70, 2), (100, 2), (110, 2)]),
    ] {
        for (at, expect) in cases {
            assert_eq!(on_line(line, *at), *expect, "{line:?} at {at} %");
        }
    }
}
