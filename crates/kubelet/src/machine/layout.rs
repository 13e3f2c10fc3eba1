//! Which CPUs, how much memory and which huge pages each NUMA node of the machine has.
//!
//! Source: `/sys/devices/system/{node,cpu}`, Documentation/ABI of the kernel.

use std::collections::BTreeMap;
use std::path::Path;

use super::nodes::{Distances, Nodes};
use crate::config::CpuSet;
use crate::machine::pages::huge_page_name;

/// Where a CPU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) socket: usize,
    /// The lowest CPU of those that share its core.
    pub(crate) core: usize,
    /// The lowest CPU of those that share its last-level cache.
    pub(crate) cache: usize,
}

/// The machine as those see it who give parts of it away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) cpus: BTreeMap<usize, Place>,
    /// Bytes by node and resource: `memory` (with what huge pages take of it) and `hugepages-*`.
    pub(crate) memory: BTreeMap<usize, BTreeMap<String, i64>>,
    pub(crate) distances: Distances,
}

impl Layout {
    /// Reads `devices/system` below `sys`. What cannot be read is one node with one core per CPU. Blocking.
    pub(crate) fn read(sys: &Path, memory_total: i64) -> Self {
        let system = sys.join("devices/system");
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let online = text(&system.join("cpu/online"));
        let online = online.parse::<CpuSet>().ok().filter(|set| !set.is_empty());
        let online = online.unwrap_or_else(|| CpuSet::first(1));
        let mut layout = Self::default();
        for cpu in online.iter() {
            let folder = system.join(format!("cpu/cpu{cpu}/topology"));
            let siblings = text(&folder.join("thread_siblings_list")).parse::<CpuSet>();
            let core = siblings.ok().and_then(|set| set.iter().next()).unwrap_or(cpu);
            let socket = text(&folder.join("physical_package_id")).trim().parse().unwrap_or(0);
            let cache = last_cache(&system.join(format!("cpu/cpu{cpu}/cache")));
            layout.cpus.insert(cpu, Place { node: 0, socket, core, cache: cache.unwrap_or(0) });
        }
        for entry in std::fs::read_dir(system.join("node")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(node) = name.strip_prefix("node").and_then(|number| number.parse::<usize>().ok()) else {
                continue;
            };
            let cpus = text(&entry.path().join("cpulist")).parse::<CpuSet>().unwrap_or_default();
            for cpu in cpus.iter() {
                layout.cpus.entry(cpu).and_modify(|place| place.node = node);
            }
            let own = layout.memory.entry(node).or_default();
            own.insert("memory".into(), total(&text(&entry.path().join("meminfo"))));
            own.extend(huge_pages(&entry.path().join("hugepages")));
        }
        let nodes: Vec<usize> = layout.memory.keys().copied().collect();
        for from in &nodes {
            let all = text(&system.join(format!("node/node{from}/distance")));
            let all = all.split_whitespace().filter_map(|number| number.parse().ok());
            let pairs = nodes.iter().zip(all).map(|(to, distance)| ((*from, *to), distance));
            layout.distances.0.extend(pairs);
        }
        if layout.memory.is_empty() {
            layout.memory.insert(0, BTreeMap::from([("memory".to_owned(), memory_total)]));
        }
        layout
    }

    /// All NUMA nodes.
    pub(crate) fn nodes(&self) -> Nodes {
        let of_cpus = self.cpus.values().map(|place| place.node);
        of_cpus.chain(self.memory.keys().copied()).collect()
    }

    /// The CPUs of these nodes.
    pub(crate) fn cpus_of(&self, nodes: Nodes) -> CpuSet {
        let own = self.cpus.iter().filter(|(_, place)| nodes.contains(place.node));
        own.map(|(cpu, _)| *cpu).collect()
    }

    /// These CPUs, and those that share a core with one of them.
    pub(crate) fn siblings<'a>(&'a self, cpus: &CpuSet) -> impl Iterator<Item = usize> + use<'a> {
        let cores: std::collections::BTreeSet<_> =
            cpus.iter().filter_map(|cpu| Some(self.cpus.get(&cpu)?.core)).collect();
        self.cpus.iter().filter(move |(_, place)| cores.contains(&place.core)).map(|(cpu, _)| *cpu)
    }

    /// How many CPUs share a core.
    pub(crate) fn threads_per_core(&self) -> usize {
        let cores: std::collections::BTreeSet<_> = self.cpus.values().map(|place| place.core).collect();
        self.cpus.len().checked_div(cores.len()).unwrap_or(1).max(1)
    }
}

/// The lowest CPU that shares the third-level cache whose folders are here.
fn last_cache(folder: &Path) -> Option<usize> {
    const LEVEL: &str = "3";
    let text = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let mut caches = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let last = caches.find(|cache| text(cache.join("level")).trim() == LEVEL)?;
    text(last.join("shared_cpu_list")).parse::<CpuSet>().ok()?.iter().next()
}

/// `Node 0 MemTotal:  16384 kB`
fn total(meminfo: &str) -> i64 {
    let line = meminfo.lines().find_map(|line| line.split_once("MemTotal:"));
    let kib = line.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<i64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

fn huge_pages(folder: &Path) -> BTreeMap<String, i64> {
    let pages = crate::machine::pages::huge_pages(folder).into_iter();
    let bytes = |size: u64, count: u64| i64::try_from(size.saturating_mul(count)).unwrap_or(i64::MAX);
    pages.map(|(size, count)| (huge_page_name(size), bytes(size, count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_of_two_nodes_is_read_from_sysfs() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join("devices/system").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cpu/online", "0-3\n");
        for (cpu, socket, siblings) in [(0, 0, "0,2"), (1, 1, "1,3"), (2, 0, "0,2"), (3, 1, "1,3")] {
            write(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"), siblings);
            write(&format!("cpu/cpu{cpu}/topology/physical_package_id"), &socket.to_string());
            write(&format!("cpu/cpu{cpu}/cache/index1/level"), "1\n");
            write(&format!("cpu/cpu{cpu}/cache/index3/level"), "3\n");
            write(&format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"), siblings);
        }
        write("node/node0/cpulist", "0,2\n");
        write("node/node1/cpulist", "1,3\n");
        write("node/node0/distance", "10 21\n");
        write("node/node1/distance", "22 10\n");
        write("node/node0/meminfo", "Node 0 MemTotal:       4096 kB\n");
        write("node/node1/meminfo", "Node 1 MemTotal:       2048 kB\n");
        write("node/node1/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
        let layout = Layout::read(sys.path(), 1);
        assert_eq!(layout.cpus[&3], Place { node: 1, socket: 1, core: 1, cache: 1 });
        assert_eq!(layout.threads_per_core(), 2);
        assert_eq!(layout.distances.0.values().copied().collect::<Vec<_>>(), [10, 21, 22, 10]);
        assert_eq!(format!("{:?}", layout.nodes()), "{0, 1}");
        assert_eq!(layout.memory[&0]["memory"], 4096 * 1024);
        assert_eq!(layout.memory[&1]["hugepages-2Mi"], 6 << 20);
        let bare = Layout::read(&sys.path().join("nothing"), 7);
        assert_eq!((bare.cpus.len(), bare.memory[&0]["memory"], bare.threads_per_core()), (1, 7, 1));
    }
}
