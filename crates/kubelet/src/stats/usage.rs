//! The kernel's counters of one cgroup, and of the whole machine.
//!
//! Source: cAdvisor for what is read from where, on both versions of cgroups.

use std::path::Path;

use sys::cgroup::{Cgroups, Version};

/// What a cgroup uses. 0 where the host does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    pub(crate) cpu_user_ns: u64,
    pub(crate) cpu_system_ns: u64,
    pub(crate) cfs_periods: u64,
    pub(crate) cfs_throttled_periods: u64,
    pub(crate) cfs_throttled_ns: u64,
    pub(crate) cpu_shares: u64,
    pub(crate) cpu_quota_us: i64,
    pub(crate) cpu_period_us: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_max_bytes: u64,
    pub(crate) working_set_bytes: u64,
    pub(crate) rss_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) swap_bytes: u64,
    pub(crate) mapped_bytes: u64,
    pub(crate) kernel_bytes: u64,
    pub(crate) active_file_bytes: u64,
    pub(crate) inactive_file_bytes: u64,
    /// 0 for none.
    pub(crate) memory_limit_bytes: u64,
    /// What is kept for it; 0 for none.
    pub(crate) memory_reserved_bytes: u64,
    /// Of v1 for memory and swap together; 0 for none.
    pub(crate) swap_limit_bytes: u64,
    pub(crate) memory_failures: u64,
    pub(crate) page_faults: u64,
    pub(crate) major_page_faults: u64,
    /// Without those of cgroups below.
    pub(crate) own_page_faults: u64,
    pub(crate) own_major_page_faults: u64,
    /// Without those of cgroups below.
    pub(crate) processes: u64,
    pub(crate) threads: u64,
    pub(crate) threads_max: u64,
    pub(crate) oom_kills: u64,
    /// How long tasks have waited for CPU, memory and disks; `None` where the kernel does not tell (PSI of cgroups: v2 only).
    pub(crate) pressure: Option<[Pressure; 3]>,
}

/// How long some tasks waited for a resource, and how long all did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pressure {
    pub(crate) some: Stall,
    pub(crate) full: Stall,
}

/// Shares of the last 10, 60 and 300 seconds in percent, and everything since the start in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stall {
    pub(crate) averages: [f64; 3],
    pub(crate) total_us: u64,
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same with `full`.
fn pressure(text: &str) -> Pressure {
    let stall = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)).unwrap_or_default();
        let word =
            |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let average = |name: &str| word(name).and_then(|number| number.parse().ok()).unwrap_or_default();
        Stall {
            averages: ["avg10", "avg60", "avg300"].map(average),
            total_us: word("total").and_then(|number| number.parse().ok()).unwrap_or_default(),
        }
    };
    Pressure { some: stall("some "), full: stall("full ") }
}

/// v1's "no limit" is the largest page-aligned number.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// Reads a cgroup's counters. Blocking.
pub(crate) fn read(cgroups: &Cgroups, path: &str) -> Usage {
    let file = |controller: &str, name: &str| {
        let dir = cgroups.dir_of(controller, path)?;
        std::fs::read_to_string(dir.join(name)).ok()
    };
    let usage = match cgroups.version() {
        Version::V2 => v2(&file),
        Version::V1 => v1(&file),
    };
    let processes = file("pids", "cgroup.procs").unwrap_or_default().lines().count();
    Usage { processes: u64::try_from(processes).unwrap_or(u64::MAX), ..usage }
}

type File<'a> = dyn Fn(&str, &str) -> Option<String> + 'a;

fn number(text: Option<String>) -> u64 {
    text.and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}

fn v1(file: &File<'_>) -> Usage {
    let memory = file("memory", "memory.stat").unwrap_or_default();
    let cpu = file("cpu", "cpu.stat").unwrap_or_default();
    let times = file("cpuacct", "cpuacct.stat").unwrap_or_default();
    let used = number(file("memory", "memory.usage_in_bytes"));
    // In hundredths of a second, whatever the machine.
    let ticks = |name: &str| field(&times, name) * 10_000_000;
    let limit = |name: &str| Some(number(file("memory", name))).filter(|limit| *limit < UNLIMITED_BYTES);
    Usage {
        cpu_ns: number(file("cpuacct", "cpuacct.usage")),
        cpu_user_ns: ticks("user"),
        cpu_system_ns: ticks("system"),
        cfs_periods: field(&cpu, "nr_periods"),
        cfs_throttled_periods: field(&cpu, "nr_throttled"),
        cfs_throttled_ns: field(&cpu, "throttled_time"),
        cpu_shares: number(file("cpu", "cpu.shares")),
        cpu_quota_us: file("cpu", "cpu.cfs_quota_us").and_then(|t| t.trim().parse().ok()).unwrap_or_default(),
        cpu_period_us: number(file("cpu", "cpu.cfs_period_us")),
        memory_bytes: used,
        memory_max_bytes: number(file("memory", "memory.max_usage_in_bytes")),
        working_set_bytes: used.saturating_sub(field(&memory, "total_inactive_file")),
        rss_bytes: field(&memory, "total_rss"),
        cache_bytes: field(&memory, "total_cache"),
        swap_bytes: field(&memory, "total_swap"),
        mapped_bytes: field(&memory, "total_mapped_file"),
        kernel_bytes: number(file("memory", "memory.kmem.usage_in_bytes")),
        active_file_bytes: field(&memory, "total_active_file"),
        inactive_file_bytes: field(&memory, "total_inactive_file"),
        memory_limit_bytes: limit("memory.limit_in_bytes").unwrap_or_default(),
        memory_reserved_bytes: limit("memory.soft_limit_in_bytes").unwrap_or_default(),
        swap_limit_bytes: limit("memory.memsw.limit_in_bytes").unwrap_or_default(),
        memory_failures: number(file("memory", "memory.failcnt")),
        page_faults: field(&memory, "total_pgfault"),
        major_page_faults: field(&memory, "total_pgmajfault"),
        own_page_faults: field(&memory, "pgfault"),
        own_major_page_faults: field(&memory, "pgmajfault"),
        processes: 0,
        threads: number(file("pids", "pids.current")),
        threads_max: number(file("pids", "pids.max")),
        oom_kills: field(&file("memory", "memory.oom_control").unwrap_or_default(), "oom_kill"),
        pressure: None,
    }
}

fn v2(file: &File<'_>) -> Usage {
    let memory = file("memory", "memory.stat").unwrap_or_default();
    let cpu = file("cpu", "cpu.stat").unwrap_or_default();
    let events = file("memory", "memory.events").unwrap_or_default();
    let used = number(file("memory", "memory.current"));
    let max = file("cpu", "cpu.max").unwrap_or_default();
    let (quota, period) = max.trim().split_once(' ').unwrap_or_default();
    let weight = number(file("cpu", "cpu.weight"));
    Usage {
        cpu_ns: field(&cpu, "usage_usec") * 1000,
        cpu_user_ns: field(&cpu, "user_usec") * 1000,
        cpu_system_ns: field(&cpu, "system_usec") * 1000,
        cfs_periods: field(&cpu, "nr_periods"),
        cfs_throttled_periods: field(&cpu, "nr_throttled"),
        cfs_throttled_ns: field(&cpu, "throttled_usec") * 1000,
        // The other way round from KEP-2254.
        cpu_shares: if weight == 0 { 0 } else { 2 + (weight - 1) * 262_142 / 9999 },
        cpu_quota_us: quota.parse().unwrap_or_default(),
        cpu_period_us: period.parse().unwrap_or_default(),
        memory_bytes: used,
        memory_max_bytes: number(file("memory", "memory.peak")),
        working_set_bytes: used.saturating_sub(field(&memory, "inactive_file")),
        rss_bytes: field(&memory, "anon"),
        cache_bytes: field(&memory, "file"),
        swap_bytes: number(file("memory", "memory.swap.current")),
        mapped_bytes: field(&memory, "file_mapped"),
        kernel_bytes: field(&memory, "kernel"),
        active_file_bytes: field(&memory, "active_file"),
        inactive_file_bytes: field(&memory, "inactive_file"),
        memory_limit_bytes: number(file("memory", "memory.max")),
        memory_reserved_bytes: number(file("memory", "memory.min")),
        swap_limit_bytes: number(file("memory", "memory.swap.max")),
        memory_failures: field(&events, "max"),
        page_faults: field(&memory, "pgfault"),
        major_page_faults: field(&memory, "pgmajfault"),
        own_page_faults: field(&memory, "pgfault"),
        own_major_page_faults: field(&memory, "pgmajfault"),
        processes: 0,
        threads: number(file("pids", "pids.current")),
        threads_max: number(file("pids", "pids.max")),
        oom_kills: field(&events, "oom_kill"),
        pressure: file("cpu", "cpu.pressure").map(|cpu| {
            let of = |name: &str| pressure(&file("memory", name).unwrap_or_default());
            [pressure(&cpu), of("memory.pressure"), of("io.pressure")]
        }),
    }
}

/// The whole machine: the root of the cgroups, and what the root has not from `/proc`. Blocking.
pub(crate) fn node(cgroups: &Cgroups) -> Usage {
    let mut usage = read(cgroups, "/");
    if usage.memory_bytes == 0 {
        let memory = Memory::read();
        usage.memory_bytes = memory.total.saturating_sub(memory.free);
        let inactive = std::fs::read_to_string("/sys/fs/cgroup/memory.stat").unwrap_or_default();
        let inactive = match field(&inactive, "inactive_file") {
            0 => memory.inactive_file,
            bytes => bytes,
        };
        usage.working_set_bytes = usage.memory_bytes.saturating_sub(inactive);
    }
    if usage.pressure.is_none() {
        usage.pressure = machine_pressure();
    }
    if usage.cpu_ns == 0 {
        usage.cpu_ns = cpu_time(&std::fs::read_to_string("/proc/stat").unwrap_or_default());
    }
    usage
}

/// `None` if the kernel does not count it.
fn machine_pressure() -> Option<[Pressure; 3]> {
    let of = |name: &str| std::fs::read_to_string(format!("/proc/pressure/{name}")).ok();
    let [cpu, memory, io] = ["cpu", "memory", "io"].map(of);
    Some([pressure(&cpu?), pressure(&memory?), pressure(&io?)])
}

/// What all CPUs have worked, from `/proc/stat` in hundredths of a second: without idling and waiting for disks.
fn cpu_time(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks = line.split_whitespace().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
    ticks.filter_map(|(_, word)| word.parse::<u64>().ok()).sum::<u64>() * 10_000_000
}

/// The machine's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) inactive_file: u64,
    pub(crate) swap_total: u64,
    pub(crate) swap_free: u64,
}

impl Memory {
    /// From `/proc/meminfo`.
    pub(crate) fn read() -> Self {
        Self::parse(&std::fs::read_to_string(Path::new("/proc/meminfo")).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            kib.unwrap_or_default() * 1024
        };
        Self {
            total: field("MemTotal"),
            free: field("MemFree"),
            inactive_file: field("Inactive(file)"),
            swap_total: field("SwapTotal"),
            swap_free: field("SwapFree"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_both_versions() {
        let one = |controller: &str, name: &str| {
            let text = match (controller, name) {
                ("memory", "memory.usage_in_bytes") => "1000\n",
                ("memory", "memory.stat") => {
                    "cache 1\npgfault 5\ntotal_inactive_file 300\ntotal_rss 400\ntotal_pgfault 9\n"
                }
                ("memory", "memory.memsw.limit_in_bytes") => "4096\n",
                ("memory", "memory.limit_in_bytes") => "9223372036854771712\n",
                ("cpuacct", "cpuacct.usage") => "77\n",
                ("cpuacct", "cpuacct.stat") => "user 3\nsystem 4\n",
                ("pids", "pids.max") => "max\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let usage = v1(&one);
        assert_eq!((usage.cpu_ns, usage.cpu_user_ns, usage.working_set_bytes), (77, 30_000_000, 700));
        assert_eq!((usage.rss_bytes, usage.memory_limit_bytes, usage.threads_max), (400, 0, 0));
        assert_eq!((usage.page_faults, usage.own_page_faults, usage.swap_limit_bytes), (9, 5, 4096));
        let two = |controller: &str, name: &str| {
            let text = match (controller, name) {
                ("memory", "memory.current") => "1000\n",
                ("memory", "memory.stat") => "anon 400\nfile 500\ninactive_file 300\n",
                ("memory", "memory.max") => "2048\n",
                ("memory", "memory.events") => "max 2\noom_kill 1\n",
                ("cpu", "cpu.stat") => "usage_usec 7\nuser_usec 3\n",
                ("cpu", "cpu.max") => "50000 100000\n",
                ("cpu", "cpu.pressure") => {
                    "some avg10=1.50 avg60=0.25 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"
                }
                _ => return None,
            };
            Some(text.to_owned())
        };
        let usage = v2(&two);
        assert_eq!((usage.cpu_ns, usage.working_set_bytes, usage.rss_bytes), (7000, 700, 400));
        assert_eq!((usage.cpu_quota_us, usage.cpu_period_us), (50_000, 100_000));
        let some = Stall { averages: [1.5, 0.25, 0.0], total_us: 12 };
        let full = Stall { total_us: 3, ..Stall::default() };
        assert_eq!(usage.pressure.unwrap()[0], Pressure { some, full });
        assert_eq!((usage.memory_limit_bytes, usage.memory_failures, usage.oom_kills), (2048, 2, 1));
    }

    #[test]
    fn the_machine_is_read_from_proc() {
        assert_eq!(cpu_time("cpu  1 2 3 1000 1000 4 5 6 7 8\ncpu0 1 1 1 1\n"), 21 * 10_000_000);
        let memory = Memory::parse("MemTotal:  100 kB\nMemFree: 40 kB\nInactive(file):   10 kB\n");
        assert_eq!((memory.total, memory.free, memory.inactive_file), (102_400, 40_960, 10_240));
    }
}
