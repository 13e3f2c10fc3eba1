//! Which CPUs: whole NUMA nodes and sockets first, then whole cores, then what is left of cores in use; of each, those
//! first where least is free. Pure.
//!
//! Source: `pkg/kubelet/cm/cpumanager/cpu_assignment.go` of upstream, packed.

use std::collections::{BTreeMap, BTreeSet};

use super::CpuSet;
use crate::machine::layout::{Layout, Place};

/// Whether CPUs that share a last-level cache are kept together.
///
/// Source: `cpuManagerPolicyOptions.prefer-align-cpus-by-uncorecache`, KEP-4800.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Caches {
    /// As it comes.
    #[default]
    Ignored,
    /// Where one cache has enough.
    Preferred,
}

/// Takes `count` of those that are free, as near to each other as can be; `None` if there are not so many.
pub(super) fn choose(layout: &Layout, free: &CpuSet, count: usize, caches: Caches) -> Option<CpuSet> {
    if free.len() < count {
        return None;
    }
    let mut choice = Choice::of(layout, free, count);
    if choice.sockets_come_first() {
        choice.take_whole(&choice.sockets(), |place| place.socket);
        choice.take_whole(&choice.nodes(), |place| place.node);
    } else {
        choice.take_whole(&choice.nodes(), |place| place.node);
        choice.take_whole(&choice.sockets(), |place| place.socket);
    }
    if caches == Caches::Preferred {
        choice.take_caches();
    }
    choice.take_whole(&choice.cores(), |place| place.core);
    choice.take_rest();
    Some(choice.taken)
}

/// The NUMA nodes that have free CPUs, in the order in which they are taken from.
pub(super) fn nodes(layout: &Layout, free: &CpuSet) -> Vec<usize> {
    Choice::of(layout, free, 0).nodes()
}

struct Choice<'a> {
    layout: &'a Layout,
    free: CpuSet,
    taken: CpuSet,
    count: usize,
}

impl<'a> Choice<'a> {
    fn of(layout: &'a Layout, free: &CpuSet, count: usize) -> Self {
        Self { layout, free: free.clone(), taken: CpuSet::default(), count }
    }

    fn wanted(&self) -> usize {
        self.count - self.taken.len()
    }

    fn take(&mut self, cpus: &CpuSet) {
        self.free = self.free.minus(cpus);
        self.taken = self.taken.or(cpus);
    }

    fn place(&self, cpu: usize) -> Place {
        self.layout.cpus.get(&cpu).copied().unwrap_or(Place { core: cpu, ..Place::default() })
    }

    /// A socket holds several NUMA nodes. Otherwise a node holds one socket or more.
    fn sockets_come_first(&self) -> bool {
        let count =
            |of: fn(&Place) -> usize| self.layout.cpus.values().map(of).collect::<BTreeSet<_>>().len();
        count(|place| place.socket) < count(|place| place.node)
    }

    /// Groups with free CPUs, of which least is free first.
    fn sorted<K: Ord + Copy>(
        &self,
        is_within: impl Fn(Place) -> bool,
        group_of: impl Fn(Place) -> K,
    ) -> Vec<K> {
        let mut free = BTreeMap::<K, usize>::new();
        for place in self.free.iter().map(|cpu| self.place(cpu)).filter(|place| is_within(*place)) {
            *free.entry(group_of(place)).or_default() += 1;
        }
        let mut groups: Vec<_> = free.into_iter().map(|(group, count)| (count, group)).collect();
        groups.sort_unstable();
        groups.into_iter().map(|(_, group)| group).collect()
    }

    fn nodes(&self) -> Vec<usize> {
        if !self.sockets_come_first() {
            return self.sorted(|_| true, |place| place.node);
        }
        let of = |socket: usize| self.sorted(|place| place.socket == socket, |place| place.node);
        self.sockets().into_iter().flat_map(of).collect()
    }

    fn sockets(&self) -> Vec<usize> {
        if self.sockets_come_first() {
            return self.sorted(|_| true, |place| place.socket);
        }
        let of = |node: usize| self.sorted(|place| place.node == node, |place| place.socket);
        self.nodes().into_iter().flat_map(of).collect()
    }

    fn caches(&self) -> Vec<(usize, usize)> {
        let of = |node: usize| self.sorted(|place| place.node == node, cache_of);
        self.nodes().into_iter().flat_map(of).collect()
    }

    fn cores(&self) -> Vec<usize> {
        if self.sockets_come_first() {
            let of = |node: usize| self.sorted(|place| place.node == node, |place| place.core);
            return self.nodes().into_iter().flat_map(of).collect();
        }
        let of = |socket: usize| self.sorted(|place| place.socket == socket, |place| place.core);
        self.sockets().into_iter().flat_map(of).collect()
    }

    /// Those groups of which every CPU is free and that are not more than what is wanted.
    fn take_whole<K: Ord + Copy>(&mut self, groups: &[K], group_of: impl Fn(Place) -> K) {
        let mut all = BTreeMap::<K, BTreeSet<usize>>::new();
        for (cpu, place) in &self.layout.cpus {
            all.entry(group_of(*place)).or_default().insert(*cpu);
        }
        for cpus in groups.iter().filter_map(|group| all.get(group)) {
            let cpus: CpuSet = cpus.iter().copied().collect();
            if cpus.len() <= self.wanted() && cpus.minus(&self.free).is_empty() {
                self.take(&cpus);
            }
        }
    }

    /// Whole caches, as many as are wanted; then the first cores, whole or not, of a cache where those have all that is
    /// left to take.
    /// Source: `takeUncoreCache`.
    fn take_caches(&mut self) {
        self.take_whole(&self.caches(), cache_of);
        for cache in self.caches() {
            let free: CpuSet = self.free.iter().filter(|cpu| cache_of(self.place(*cpu)) == cache).collect();
            let cores: BTreeSet<usize> = free.iter().map(|cpu| self.place(cpu).core).collect();
            let per_core = self.layout.threads_per_core();
            let cores: BTreeSet<usize> = cores.into_iter().take(self.wanted().div_ceil(per_core)).collect();
            let some = || free.iter().filter(|cpu| cores.contains(&self.place(*cpu).core));
            // Only of the last core some may be left: where cores differ, more of them would be torn.
            if (self.wanted()..self.wanted() + per_core).contains(&some().count()) {
                let some: CpuSet = some().take(self.wanted()).collect();
                return self.take(&some);
            }
        }
    }

    /// One by one, of cores of which least is free.
    fn take_rest(&mut self) {
        for core in self.cores() {
            let cpus = self.free.iter().filter(|cpu| self.place(*cpu).core == core);
            let cpus: CpuSet = cpus.take(self.wanted()).collect();
            self.take(&cpus);
        }
    }
}

/// One that nobody tells of is one for each socket.
fn cache_of(place: Place) -> (usize, usize) {
    (place.socket, place.cache)
}

#[cfg(test)]
pub(super) fn machine(count: usize, place: impl Fn(usize) -> Place) -> Layout {
    Layout { cpus: (0..count).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() }
}

#[cfg(test)]
mod tests;
