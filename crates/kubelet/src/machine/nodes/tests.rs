//! Sets of NUMA nodes: `bitmask_test.go` and `numa_info_test.go` of upstream's `topologymanager`.

use super::*;

fn set(text: &str) -> Nodes {
    text.split(' ').filter_map(|node| node.parse::<usize>().ok()).collect()
}

fn shown(nodes: Nodes) -> String {
    nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_set_has_its_nodes_once_and_in_order() {
    for (given, expect, len) in [
        ("", "", 0),
        ("0", "0", 1),
        ("1", "1", 1),
        ("1 0", "0 1", 2),
        ("3 3 3", "3", 1),
        ("63 0", "0 63", 2),
        ("64", "", 0),
        ("0 64 1000 18446744073709551615", "0", 1),
    ] {
        let nodes = set(given);
        assert_eq!(
            (shown(nodes).as_str(), nodes.len(), nodes.is_empty()),
            (expect, len, len == 0),
            "{given}"
        );
        assert!((0..70).all(|node| nodes.contains(node) == nodes.iter().any(|own| own == node)), "{given}");
        assert!(!nodes.contains(usize::MAX));
    }
    assert_eq!(set(&(0..64).map(|node| node.to_string()).collect::<Vec<_>>().join(" ")).len(), 64);
}

#[test]
fn what_is_in_both_is_in_their_intersection() {
    for (all, expect) in [
        (&["0 1", "0 1"][..], "0 1"),
        (&["0 1", "1"], "1"),
        (&["0", "0 1"], "0"),
        (&["0 1", "0 1", "1"], "1"),
        (&["0", "0", "1", "0 1"], ""),
        (&["0 1 2 3", "1 2 3", "2 3", "3"], "3"),
        (&["63", "0 63"], "63"),
    ] {
        let found = all.iter().map(|text| set(text)).reduce(Nodes::and).unwrap();
        assert_eq!(shown(found), expect, "{all:?}");
    }
}

/// Source: `TestIsNarrowerThan`, and `TestNarrowest` in the order of pairs.
#[test]
fn fewer_nodes_are_narrower_and_of_as_many_the_lower_ones() {
    for (one, other, expect) in [
        ("0", "0 1", true),
        ("0 1", "0", false),
        ("0 1", "0 1", false),
        ("0", "1", true),
        ("1", "0", false),
        ("0 2", "1 2", true),
        ("1 2", "0 3", true),
        ("0 3", "1 2", false),
        ("63", "0 1", true),
        ("", "0", true),
    ] {
        assert_eq!(set(one).is_narrower_than(set(other)), expect, "{one} and {other}");
        assert_eq!(Order::Narrowest.prefers(set(one), set(other)), expect, "{one} and {other}");
    }
}

#[test]
fn subsets_are_all_that_can_be_small_ones_first() {
    for (given, expect) in [
        ("", ""),
        ("4", "4"),
        ("1 3", "1, 3, 1 3"),
        ("0 1 2", "0, 1, 2, 0 1, 0 2, 1 2, 0 1 2"),
        ("0 63", "0, 63, 0 63"),
    ] {
        let found: Vec<String> = set(given).subsets().into_iter().map(shown).collect();
        assert_eq!(found.join(", "), expect, "{given}");
    }
    assert_eq!(set("0 1 2 3 4 5 6 7").subsets().len(), 255);
}

fn distances(rows: &[&[u64]]) -> Distances {
    let pairs = rows
        .iter()
        .enumerate()
        .flat_map(|(from, row)| row.iter().enumerate().map(move |(to, distance)| ((from, to), *distance)));
    Distances(pairs.collect())
}

/// Source: `TestClosest`.
#[test]
fn of_as_many_nodes_the_nearer_ones_are_closer() {
    let row: &[u64] = &[10; 4];
    let same: &[&[u64]] = &[row; 4];
    let pairs: &[&[u64]] = &[&[10, 11, 12, 12], &[11, 10, 12, 12], &[12, 12, 10, 11], &[12, 12, 11, 10]];
    for (name, rows, current, candidate, expect) in [
        ("fewer ones stay", pairs, "0", "0 2", false),
        ("fewer ones come", pairs, "0 2", "3", true),
        ("as near, and lower", same, "0 1", "0 2", false),
        ("as near, and higher", same, "0 3", "0 2", true),
        ("nearer", pairs, "0 3", "0 1", true),
        ("farther", pairs, "2 3", "0 3", false),
        ("nearer, though higher", pairs, "0 2", "2 3", true),
        ("the same", pairs, "0 1", "0 1", false),
        ("nobody knows how far they are", &[], "0 1", "0 2", false),
        ("nobody knows, and they are lower", &[], "0 2", "0 1", true),
    ] {
        let distances = distances(rows);
        let order = Order::Closest(&distances);
        assert_eq!(order.prefers(set(candidate), set(current)), expect, "{name}");
    }
}

/// Source: `TestCalculateAvgDistanceFor`, of which sums are compared here.
#[test]
fn how_far_nodes_are_apart_is_summed_over_all_pairs() {
    let two: &[&[u64]] = &[&[10, 11], &[11, 10]];
    let four: &[&[u64]] = &[&[10, 11, 12, 12], &[11, 10, 12, 12], &[12, 12, 10, 11], &[12, 12, 11, 10]];
    for (rows, nodes, expect) in [
        (&[][..], "", 0),
        (&[&[10_u64][..]][..], "0", 10),
        (two, "0", 10),
        (two, "0 1", 42),
        (four, "0 2", 44),
        (four, "0 2 3", 100),
        (four, "0 1 2 3", 4 * 10 + 4 * 11 + 8 * 12),
        (two, "0 7", 10),
    ] {
        assert_eq!(distances(rows).within(set(nodes)), expect, "{nodes}");
    }
}
