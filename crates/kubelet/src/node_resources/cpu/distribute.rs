//! Which CPUs, in even parts of several NUMA nodes where one has not enough. Pure.
//!
//! As few nodes as can hold them evenly, and of those the ones after which what is free is spread most evenly over all.
//! Source: `takeByTopologyNUMADistributed` of upstream's `pkg/kubelet/cm/cpumanager`,
//! `cpuManagerPolicyOptions.distribute-cpus-across-numa`.

use std::collections::BTreeMap;

use super::{CpuSet, choice};
use crate::machine::layout::Layout;
use crate::machine::nodes::Nodes;

/// How many CPUs of which nodes.
type Shares = BTreeMap<usize, usize>;

/// From which nodes CPUs come: as many from each, and a group more from those that are left over.
struct Part {
    nodes: Vec<usize>,
    even: usize,
    more: Vec<usize>,
    imbalance: usize,
}

/// Takes `count` of those that are free, in groups of `group`; `None` if no nodes can give even parts.
pub(super) fn distribute(
    layout: &Layout,
    free: &CpuSet,
    (count, group): (usize, usize),
    packed: impl Fn(&CpuSet, usize) -> Option<CpuSet>,
) -> Option<CpuSet> {
    let group = group.max(1);
    if count == 0 || !count.is_multiple_of(group) {
        return None;
    }
    let of = |node: usize| free.and(&layout.cpus_of(std::iter::once(node).collect::<Nodes>()));
    let nodes = choice::nodes(layout, free);
    let available: Shares = layout.nodes().iter().map(|node| (node, of(node).len())).collect();
    let best = (1..=nodes.len()).find_map(|size| {
        let possible = combinations(&nodes, size).into_iter();
        let possible = possible.filter_map(|nodes| part(&available, nodes, count, group));
        possible.min_by_key(|part| part.imbalance)
    })?;
    let mut taken = CpuSet::default();
    for node in &best.nodes {
        taken = taken.or(&packed(&of(*node), best.even)?);
    }
    let mut more = best.more.iter().cycle();
    while taken.len() < count {
        let rest = of(*more.next()?).minus(&taken);
        if rest.len() >= group {
            taken = taken.or(&packed(&rest, group)?);
        }
    }
    Some(taken)
}

/// Even parts of these nodes, and of which of them more; `None` if they have not so much.
fn part(available: &Shares, nodes: Vec<usize>, count: usize, group: usize) -> Option<Part> {
    let even = count.checked_div(nodes.len())? / group * group;
    let mut left = available.clone();
    for node in &nodes {
        let has = left.get_mut(node)?;
        *has = has.checked_sub(even)?;
    }
    let rest = count - even * nodes.len();
    if rest == 0 {
        return Some(Part { imbalance: imbalance(&left), more: Vec::new(), nodes, even });
    }
    let has_more = |node: &&usize| left.get(node).is_some_and(|has| *has >= group);
    let candidates: Vec<usize> = nodes.iter().filter(has_more).copied().collect();
    // Of as many as can be, if that leaves no more of an imbalance.
    let choices = (1..=candidates.len()).rev().flat_map(|size| combinations(&candidates, size));
    let choices = choices.filter_map(|more| {
        let left = without(left.clone(), &more, rest, group)?;
        Some((imbalance(&left), more))
    });
    let (imbalance, more) = choices.min_by_key(|(imbalance, _)| *imbalance)?;
    Some(Part { nodes, even, more, imbalance })
}

/// What is left when `rest` is taken of these nodes by turns.
fn without(mut left: Shares, nodes: &[usize], mut rest: usize, group: usize) -> Option<Shares> {
    while rest > 0 {
        let before = rest;
        for node in nodes {
            let has = left.get_mut(node).filter(|has| rest > 0 && **has >= group);
            if let Some(has) = has {
                *has -= group;
                rest -= group;
            }
        }
        if rest == before {
            return None;
        }
    }
    Some(left)
}

/// How far what is free is from being the same everywhere: the sum of the squares of the distances to the mean, in units
/// that keep it whole.
fn imbalance(left: &Shares) -> usize {
    let (count, sum) = (left.len(), left.values().sum::<usize>());
    left.values().map(|one| (one * count).abs_diff(sum).pow(2)).sum()
}

/// All choices of so many of them, in order.
fn combinations(nodes: &[usize], size: usize) -> Vec<Vec<usize>> {
    let Some((first, rest)) = nodes.split_first().filter(|_| size > 0 && size <= nodes.len()) else {
        return if size == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let with = combinations(rest, size - 1).into_iter().map(|mut tail| {
        tail.insert(0, *first);
        tail
    });
    with.chain(combinations(rest, size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::layout::Place;
    use crate::node_resources::cpu::choice::{Caches, choose, machine};

    /// Four nodes of two cores of two threads each: 0,8 1,9 and so on.
    fn layout() -> Layout {
        let place = |cpu: usize| {
            let core = cpu % 8;
            Place { node: core / 2, socket: core / 4, core, ..Place::default() }
        };
        Layout { cpus: (0..16).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() }
    }

    fn check(free: &str, wanted: (usize, usize), expect: Option<&str>) {
        let layout = layout();
        let packed = |free: &CpuSet, count| choose(&layout, free, count, Caches::Ignored);
        let found = distribute(&layout, &free.parse().unwrap(), wanted, packed);
        assert_eq!(found.map(|set| set.to_string()).as_deref(), expect, "{wanted:?} of {free}");
    }

    #[test]
    fn what_one_node_cannot_give_comes_in_even_parts() {
        check("0-15", (4, 1), Some("0-1,8-9"));
        check("0-15", (6, 1), Some("0-3,8,10"));
        check("0-15", (6, 2), Some("0-2,8-10"));
        check("0-15", (8, 1), Some("0-3,8-11"));
        check("0-15", (16, 2), Some("0-15"));
    }

    #[test]
    fn nodes_that_have_less_are_left_alone_if_others_do() {
        // Node 0 has one core, the others have both.
        check("1-7,9-15", (8, 2), Some("2-5,10-13"));
    }

    #[test]
    fn what_cannot_be_had_evenly_is_left_to_others() {
        check("0-15", (3, 2), None);
        check("0-3", (5, 1), None);
    }

    #[test]
    fn nodes_are_combined_in_order() {
        assert_eq!(combinations(&[1, 2, 3], 2), [vec![1, 2], vec![1, 3], vec![2, 3]]);
        assert!(combinations(&[1], 2).is_empty());
    }

    /// Source: `TestTakeByTopologyNUMADistributed` of upstream's `pkg/kubelet/cm/cpumanager`.
    #[test]
    fn what_stays_free_is_spread_evenly() {
        let two = machine(12, |cpu| Place { node: cpu % 2, socket: cpu % 2, core: cpu % 6, cache: 0 });
        let four = machine(80, |cpu| {
            let core = cpu % 40;
            Place { node: core / 10, socket: core / 20, core, cache: 0 }
        });
        let most = "0-8,10-18,20-39,40-48,50-58,60-79";
        for (layout, free, wanted, expect) in [
            (&two, "0-11", (8, 1), Some("0-3,6-9")),
            (&two, "1-5,7-11", (1, 1), Some("1")),
            (&two, "1-5,7-11", (1, 2), None),
            (&four, "0-79", (64, 1), Some("0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77")),
            (&four, "0-79", (48, 1), Some("0-7,10-17,20-27,40-47,50-57,60-67")),
            (&four, "1-29,32-39,41-69,72-79", (48, 1), Some("1-8,10-17,20-27,41-48,50-57,60-67")),
            (&four, "2-29,31-39,42-69,71-79", (48, 1), Some("10-17,20-27,31-38,50-57,60-67,71-78")),
            (
                &four,
                "0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71",
                (16, 1),
                Some("0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71"),
            ),
            (&four, "0-79", (26, 1), Some("0-6,10-16,40-45,50-55")),
            (&four, "0-79", (26, 2), Some("0-6,10-15,40-46,50-55")),
            (&four, "0-79", (62, 1), Some("0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76")),
            (&four, "0-79", (62, 2), Some("0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76")),
            (&four, most, (62, 1), Some("0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77")),
            (&four, most, (62, 2), Some("0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77")),
            (
                &four,
                "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76",
                (34, 1),
                Some("0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74"),
            ),
        ] {
            let packed = |free: &CpuSet, count| choose(layout, free, count, Caches::Ignored);
            let found = distribute(layout, &free.parse().unwrap(), wanted, packed);
            let expect = expect.map(|set| set.parse::<CpuSet>().unwrap().to_string());
            assert_eq!(found.map(|set| set.to_string()), expect, "{wanted:?} of {free}");
        }
    }
}
