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

    /// Whole caches, as many as are wanted; then whole cores of the first one that has all that is left to take.
    /// Source: `takeUncoreCache`.
    fn take_caches(&mut self) {
        self.take_whole(&self.caches(), cache_of);
        for cache in self.caches() {
            let free: CpuSet = self.free.iter().filter(|cpu| cache_of(self.place(*cpu)) == cache).collect();
            let is_whole = |core: usize| {
                let mut own = self.layout.cpus.iter().filter(|(_, place)| place.core == core);
                own.all(|(cpu, _)| free.contains(*cpu))
            };
            let cores: BTreeSet<usize> = free.iter().map(|cpu| self.place(cpu).core).collect();
            let per_core = self.layout.threads_per_core();
            let cores: BTreeSet<usize> = cores
                .into_iter()
                .filter(|core| is_whole(*core))
                .take(self.wanted().div_ceil(per_core))
                .collect();
            let some = free.iter().filter(|cpu| cores.contains(&self.place(*cpu).core));
            let some: CpuSet = some.take(self.wanted()).collect();
            if some.len() == self.wanted() {
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
mod tests {
    use super::*;

    /// Two sockets, each a NUMA node of two cores of two threads: 0,4 1,5 and 2,6 3,7.
    fn layout() -> Layout {
        let place = |cpu: usize| {
            let core = cpu % 4;
            Place { node: core / 2, socket: core / 2, core, cache: 0 }
        };
        Layout { cpus: (0..8).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() }
    }

    fn check(free: &str, count: usize, expect: Option<&str>) {
        let chosen = choose(&layout(), &free.parse().unwrap(), count, Caches::Ignored);
        assert_eq!(chosen.map(|set| set.to_string()).as_deref(), expect, "{count} of {free}");
    }

    #[test]
    fn cpus_lie_together_as_far_as_they_can() {
        check("0-7", 4, Some("0-1,4-5"));
        check("1-7", 4, Some("2-3,6-7"));
        check("0-7", 2, Some("0,4"));
        check("1-7", 2, Some("1,5"));
        check("0-7", 6, Some("0-2,4-6"));
        check("1-7", 1, Some("4"));
        check("0-7", 3, Some("0-1,4"));
        check("0,1,6", 2, Some("0,6"));
        check("0-7", 8, Some("0-7"));
        check("0-3", 5, None);
    }

    #[test]
    fn cpus_of_one_cache_lie_together_if_that_is_wanted() {
        // One node of twelve CPUs, of which each four share a cache.
        let place = |cpu: usize| Place { core: cpu, cache: cpu / 4 * 4, ..Place::default() };
        let layout = Layout { cpus: (0..12).map(|cpu| (cpu, place(cpu))).collect(), ..Layout::default() };
        let check = |free: &str, count: usize, caches, expect: &str| {
            let chosen = choose(&layout, &free.parse().unwrap(), count, caches).unwrap();
            assert_eq!(chosen.to_string(), expect, "{count} of {free}");
        };
        check("2-11", 4, Caches::Ignored, "2-5");
        check("2-11", 4, Caches::Preferred, "4-7");
        check("2-11", 3, Caches::Preferred, "4-6");
        check("2-11", 2, Caches::Preferred, "2-3");
        check("2-11", 6, Caches::Preferred, "2-7");
        check("1,5,9", 2, Caches::Preferred, "1,5");
    }

    /// Source of this and of what follows: `cpu_assignment_test.go` of upstream's `pkg/kubelet/cm/cpumanager`.
    #[test]
    fn cpus_are_taken_where_least_is_free() {
        // Four cores of two threads; then twice three, by turns; then two sockets of two nodes of ten each.
        let one = machine(8, |cpu| Place { core: cpu % 4, ..Place::default() });
        let two = machine(12, |cpu| Place { node: cpu % 2, socket: cpu % 2, core: cpu % 6, cache: 0 });
        let four = machine(80, |cpu| {
            let core = cpu % 40;
            Place { node: core / 10, socket: core / 20, core, cache: 0 }
        });
        for (layout, free, count, expect) in [
            (&one, "0,2,4,6", 5, None),
            (&one, "0-7", 0, Some("")),
            (&one, "0-7", 1, Some("0")),
            (&one, "1,3,5-7", 1, Some("6")),
            (&one, "0-7", 2, Some("0,4")),
            (&one, "0-7", 8, Some("0-7")),
            (&one, "0-3,6", 2, Some("2,6")),
            (&two, "0-11", 6, Some("0,2,4,6,8,10")),
            (&two, "1-5,7-11", 1, Some("2")),
            (&two, "0-11", 8, Some("0-2,4,6-8,10")),
            (&four, "0-79", 40, Some("0-19,40-59")),
            (&four, "0-79", 20, Some("0-9,40-49")),
            (&four, "10-39,50-79", 20, Some("10-19,50-59")),
            (&four, "0-79", 60, Some("0-29,40-69")),
            (&four, "1-39,41-79", 60, Some("10-39,50-79")),
            (&four, "0-79", 64, Some("0-31,40-71")),
            // A whole socket comes before two nodes of two sockets, and a node beside others before a free socket's.
            (&four, "10-39,50-79", 40, Some("20-39,60-79")),
            (&four, "0-19,30-59,70-79", 20, Some("30-39,70-79")),
            (&four, "0-29,40-69", 2, Some("20,60")),
        ] {
            let chosen = choose(layout, &free.parse().unwrap(), count, Caches::Ignored);
            assert_eq!(chosen.map(|set| set.to_string()).as_deref(), expect, "{count} of {free}");
        }
    }

    #[test]
    fn caches_are_taken_whole_before_parts_of_others() {
        let place = |socket, core, cache| Place { node: socket, socket, core, cache };
        let one = machine(16, |cpu| place(0, cpu, cpu / 4));
        let two = machine(16, |cpu| place(cpu / 8, cpu, cpu / 4));
        let nodes = machine(16, |cpu| Place { node: cpu / 8, ..place(0, cpu, cpu / 4) });
        let threads = machine(16, |cpu| place(0, cpu % 8, cpu % 8 / 4));
        for (layout, free, count, expect) in [
            (&one, "1-15", 10, "1-2,4-11"),
            (&two, "0-15", 4, "0-3"),
            (&two, "2-15", 6, "2-7"),
            (&two, "8-15", 4, "8-11"),
            (&nodes, "3-8,12", 2, "4-5"),
            (&threads, "2-7,10-15", 6, "4-6,12-14"),
            (&threads, "1-7,9-15", 10, "1,4-7,9,12-15"),
        ] {
            let chosen = choose(layout, &free.parse().unwrap(), count, Caches::Preferred).unwrap();
            assert_eq!(chosen.to_string(), expect, "{count} of {free}");
        }
    }
}
