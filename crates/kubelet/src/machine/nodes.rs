//! Sets of NUMA nodes.

use std::collections::BTreeMap;
use std::fmt;

/// A set of NUMA nodes by number; the kernel numbers up to 64 of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Nodes(u64);

impl FromIterator<usize> for Nodes {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        Self(nodes.into_iter().filter(|node| *node < 64).fold(0, |bits, node| bits | 1 << node))
    }
}

impl Nodes {
    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn contains(self, node: usize) -> bool {
        node < 64 && self.0 >> node & 1 == 1
    }

    /// Those in both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// In order of number.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |node| self.contains(*node))
    }

    /// Fewer, or as many with lower numbers. Source: `BitMask.IsNarrowerThan`.
    pub(crate) fn is_narrower_than(self, other: Self) -> bool {
        (self.len(), self.0) < (other.len(), other.0)
    }

    /// Every set of some of these nodes, small ones first.
    pub(crate) fn subsets(self) -> Vec<Self> {
        let mut subsets = vec![Self::default()];
        for node in self.iter() {
            let with: Vec<Self> = subsets.iter().map(|set| Self(set.0 | 1 << node)).collect();
            subsets.extend(with);
        }
        subsets.retain(|set| !set.is_empty());
        subsets.sort_by_key(|set| (set.len(), set.0));
        subsets
    }
}

/// How far nodes are from each other, as the firmware says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Distances(pub(crate) BTreeMap<(usize, usize), u64>);

impl Distances {
    /// From each to each.
    fn within(&self, nodes: Nodes) -> u64 {
        let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to)));
        pairs.filter_map(|pair| self.0.get(&pair)).sum()
    }
}

/// Which of two sets of nodes is the better one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order<'a> {
    /// That with fewer nodes.
    Narrowest,
    /// And of as many, those that are nearer to each other. Source: `NUMAInfo.Closest`.
    Closest(&'a Distances),
}

impl Order<'_> {
    pub(crate) fn prefers(self, one: Nodes, other: Nodes) -> bool {
        match self {
            Self::Narrowest => one.is_narrower_than(other),
            Self::Closest(distances) => {
                let rank = |nodes: Nodes| (nodes.len(), distances.within(nodes), nodes.0);
                rank(one) < rank(other)
            }
        }
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
