//! Upstream's cases for what suits all who give something away.

use super::*;
use crate::machine::nodes::Distances;
use crate::node_resources::topology::tests::{hint, nodes};

/// How far the nodes of upstream's machine of eight are from each other.
const FAR: [[u64; 8]; 8] = [
    [10, 11, 12, 12, 30, 30, 30, 30],
    [11, 10, 12, 12, 30, 30, 30, 30],
    [12, 12, 10, 11, 30, 30, 30, 30],
    [12, 12, 11, 10, 30, 30, 30, 30],
    [30, 30, 30, 30, 10, 11, 12, 12],
    [30, 30, 30, 30, 11, 10, 12, 12],
    [30, 30, 30, 30, 12, 12, 10, 11],
    [30, 30, 30, 30, 12, 12, 13, 10],
];

fn distances() -> Distances {
    let pairs = FAR
        .iter()
        .enumerate()
        .flat_map(|(from, row)| row.iter().enumerate().map(move |(to, distance)| ((from, to), *distance)));
    Distances(pairs.collect())
}

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(" | ").collect())
}

fn provider(word: &str) -> Hints {
    if word == "none" {
        return Hints::new();
    }
    let list = |text: &str| match text {
        "any" => None,
        "empty" => Some(Vec::new()),
        text => Some(text.split(',').map(hint).collect()),
    };
    word.split(';').enumerate().map(|(index, text)| (format!("resource{index}"), list(text))).collect()
}

fn shown(hint: Hint, all: Nodes) -> String {
    let nodes = match hint.nodes {
        None => "*".to_owned(),
        Some(nodes) if nodes == all => "all".to_owned(),
        Some(nodes) => nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join("+"),
    };
    format!("{}{nodes}", if hint.is_preferred { "" } else { "!" })
}

#[test]
fn policies_take_what_upstreams_take() {
    let (four, eight) = (nodes(&[0, 1, 2, 3]), nodes(&[0, 1, 2, 3, 4, 5, 6, 7]));
    let distances = distances();
    let near = Order::Closest(&distances);
    for row in rows(include_str!("tests/merge.txt")) {
        let words = row[0].split(' ').filter(|word| *word != "nobody");
        let providers: Vec<Hints> = words.map(provider).collect();
        let merged = |policy: Policy, all, order| {
            policy.merge(all, &providers, order).map_or_else(|| "refused".to_owned(), |hint| shown(hint, all))
        };
        let check = |what: &str, found: String, expect: &str, all: Nodes| {
            let whole = expect == "0+1+2+3" && all.len() == 4;
            assert_eq!(found, if whole { "all" } else { expect }, "{what}: {}", row[0]);
        };
        check("best effort", merged(Policy::BestEffort, four, Order::Narrowest), row[1], four);
        check("best effort, near", merged(Policy::BestEffort, eight, near), row[2], eight);
        let strict = |index: usize| if row[index].starts_with('!') { "refused" } else { row[index] };
        check("restricted", merged(Policy::Restricted, four, Order::Narrowest), strict(1), four);
        check("restricted, near", merged(Policy::Restricted, eight, near), strict(2), eight);
        check("one node", merged(Policy::SingleNumaNode, four, Order::Narrowest), row[3], four);
        assert_eq!(merged(Policy::None, four, Order::Narrowest), "*", "{}", row[0]);
    }
}

#[test]
fn of_what_is_not_preferred_that_is_better_which_is_as_wide_as_is_needed() {
    for row in rows(include_str!("tests/compare.txt")) {
        let [current, candidate] = [row[1], row[2]].map(|text| {
            let hint = hint(text);
            (hint.nodes.unwrap(), hint.is_preferred)
        });
        let is_better = is_better(current, candidate, row[0].parse().unwrap(), Order::Narrowest);
        assert_eq!(if is_better { "candidate" } else { "current" }, row[3], "{row:?}");
    }
}

/// Source: `TestMaxOfMinAffinityCounts` of upstream's `policy_test.go`.
#[test]
fn the_resource_that_needs_most_nodes_says_how_many_are_needed() {
    for (given, expect) in [
        ("", 0),
        ("*", 0),
        ("0", 1),
        ("0+1", 2),
        ("0+1,0+1+2", 2),
        ("0+1,0+1+2 0+1+2", 3),
        ("0+1,0+1+2 0+1+2,0+1+2+3", 3),
        ("!0+1+2,!3 *", 1),
    ] {
        let lists = given.split_whitespace().map(|word| word.split(',').map(hint).collect());
        assert_eq!(aim(&lists.collect::<Vec<_>>()), expect, "{given}");
    }
}

/// Source: `TestPolicySingleNumaNodeFilterHints` of upstream's `policy_single_numa_node_test.go`.
#[test]
fn only_preferred_hints_of_one_node_or_of_any_are_left() {
    let given = ["!*", "*", "0,!*", "1,*", "1,0,!*", "0,1,!1+2,!0+1+2,!*", "!1+2,!0+1+2,!0+2,!3", "0+1,2"];
    let expect = ["", "*", "0", "1,*", "1,0", "0,1", "", "2"];
    let lists: Vec<Vec<Hint>> = given.iter().map(|text| text.split(',').map(hint).collect()).collect();
    for (found, expect) in on_one_node(&lists).into_iter().zip(expect) {
        let found: Vec<String> = found.into_iter().map(|hint| shown(hint, Nodes::default())).collect();
        assert_eq!(found.join(","), expect);
    }
}
