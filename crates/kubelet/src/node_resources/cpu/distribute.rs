//! Which CPUs, in even parts of several NUMA nodes where one has not enough. Pure.
//!
//! As few nodes as can hold them evenly, and of those the ones after which what is free is spread most evenly over all.
//! Source: `takeByTopologyNUMADistributed` of upstream's `pkg/kubelet/cm/cpumanager`,
//! `cpuManagerPolicyOptions.distribute-cpus-across-numa`.

use std::collections::BTreeMap;

use super::CpuSet;
use crate::machine::layout::Layout;
use crate::machine::nodes::Nodes;

/// How many CPUs of which nodes.
type Shares = BTreeMap<usize, usize>;

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
    let available: Shares = layout.nodes().iter().map(|node| (node, of(node).len())).collect();
    let nodes: Vec<usize> = available.iter().filter(|(_, n)| **n > 0).map(|(node, _)| *node).collect();
    let best = (1..=nodes.len()).find_map(|size| {
        let possible = combinations(&nodes, size).into_iter();
        let possible = possible.filter_map(|combination| shares(&available, &combination, count, group));
        possible.min_by_key(|shares| imbalance(&available, shares))
    })?;
    let mut taken = CpuSet::default();
    for (node, share) in best {
        taken = taken.or(&packed(&of(node), share)?);
    }
    Some(taken)
}

/// Even parts of these nodes, and one group more of some of them; `None` if they have not so much.
fn shares(available: &Shares, nodes: &[usize], count: usize, group: usize) -> Option<Shares> {
    let even = count.checked_div(nodes.len())? / group * group;
    let has = |node: &usize| available.get(node).copied().unwrap_or(0);
    if nodes.iter().any(|node| has(node) < even) {
        return None;
    }
    let mut shares: Shares = nodes.iter().map(|node| (*node, even)).collect();
    let mut left = (count - even * nodes.len()) / group;
    while left > 0 {
        // From where most is left.
        let room = |(node, share): &(&usize, &mut usize)| has(node) - **share;
        let next = shares.iter_mut().filter(|entry| room(entry) >= group);
        let (_, share) = next.max_by_key(|entry| (room(entry), std::cmp::Reverse(*entry.0)))?;
        *share += group;
        left -= 1;
    }
    Some(shares)
}

/// How far what stays free is from being the same everywhere: the sum of the squares of the distances to the mean, in
/// units that keep it whole.
fn imbalance(available: &Shares, shares: &Shares) -> usize {
    let rest = || available.iter().map(|(node, has)| has - shares.get(node).copied().unwrap_or(0).min(*has));
    let (count, sum) = (available.len(), rest().sum::<usize>());
    rest().map(|one| (one * count).abs_diff(sum).pow(2)).sum()
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
    use crate::node_resources::cpu::choice::{Caches, choose};

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
}
