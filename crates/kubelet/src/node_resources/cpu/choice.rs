//! Which CPUs: whole NUMA nodes and sockets first, then whole cores, then what is left of cores in use. Pure.
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
    let mut choice = Choice { layout, free: free.clone(), taken: CpuSet::default(), count };
    choice.take_whole(|place| place.node);
    choice.take_whole(|place| (usize::MAX, place.socket));
    if caches == Caches::Preferred {
        choice.take_caches();
    }
    choice.take_cores();
    choice.take_rest();
    Some(choice.taken)
}

struct Choice<'a> {
    layout: &'a Layout,
    free: CpuSet,
    taken: CpuSet,
    count: usize,
}

impl Choice<'_> {
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

    /// Groups of which every CPU is free and that are not more than what is wanted.
    fn take_whole<K: Ord>(&mut self, group_of: impl Fn(Place) -> K) {
        let mut groups = BTreeMap::<K, BTreeSet<usize>>::new();
        for (cpu, place) in &self.layout.cpus {
            groups.entry(group_of(*place)).or_default().insert(*cpu);
        }
        for cpus in groups.into_values() {
            let cpus: CpuSet = cpus.into_iter().collect();
            if cpus.len() <= self.wanted() && cpus.minus(&self.free).is_empty() {
                self.take(&cpus);
            }
        }
    }

    /// For each cache: all of its CPUs if so many are wanted, or whole cores of it if they are all that is wanted.
    /// Source: `takeUncoreCache`.
    fn take_caches(&mut self) {
        let mut caches = BTreeMap::<(usize, usize), BTreeSet<usize>>::new();
        for (cpu, place) in &self.layout.cpus {
            caches.entry((place.socket, place.cache)).or_default().insert(*cpu);
        }
        for cpus in caches.into_values() {
            let cpus: CpuSet = cpus.into_iter().collect();
            let free = cpus.and(&self.free);
            if free == cpus && cpus.len() <= self.wanted() {
                self.take(&cpus);
                continue;
            }
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
                self.take(&some);
            }
        }
    }

    /// Whole cores, of the fullest socket first.
    fn take_cores(&mut self) {
        let mut all = BTreeMap::<usize, BTreeSet<usize>>::new();
        for (cpu, place) in &self.layout.cpus {
            all.entry(place.core).or_default().insert(*cpu);
        }
        let free_in =
            |socket: usize| self.free.iter().filter(|cpu| self.place(*cpu).socket == socket).count();
        let mut cores: Vec<_> = all
            .into_iter()
            .map(|(core, cpus)| {
                let socket = self.place(core).socket;
                ((free_in(socket), socket, core), cpus.into_iter().collect::<CpuSet>())
            })
            .collect();
        cores.sort_by_key(|(order, _)| *order);
        for (_, cpus) in cores {
            if cpus.len() <= self.wanted() && cpus.minus(&self.free).is_empty() {
                self.take(&cpus);
            }
        }
    }

    /// One by one: where something is taken already, then of cores of which least is free.
    fn take_rest(&mut self) {
        while self.wanted() > 0 {
            let in_socket = |set: &CpuSet, place: Place| {
                set.iter().filter(|cpu| self.place(*cpu).socket == place.socket).count()
            };
            let in_core =
                |place: Place| self.free.iter().filter(|cpu| self.place(*cpu).core == place.core).count();
            let order = |cpu: usize| {
                let place = self.place(cpu);
                let taken = std::cmp::Reverse(in_socket(&self.taken, place));
                (taken, in_socket(&self.free, place), place.socket, in_core(place), place.core, cpu)
            };
            let Some(cpu) = self.free.iter().min_by_key(|cpu| order(*cpu)) else { return };
            self.take(&std::iter::once(cpu).collect());
        }
    }
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
        check("2-11", 6, Caches::Preferred, "4-9");
        check("1,5,9", 2, Caches::Preferred, "1,5");
    }
}
