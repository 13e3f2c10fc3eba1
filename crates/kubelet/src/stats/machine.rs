//! What the whole machine uses: the root of the cgroups, and of `/proc` what is not told there.

use std::path::Path;

use sys::cgroup::Cgroups;
use sys::usage::{Pressure, Usage};

/// The whole machine: the root of the cgroups, and what the root has not from `/proc`. Blocking.
pub(crate) fn usage(cgroups: &Cgroups) -> Usage {
    let mut usage = cgroups.usage("/");
    if usage.memory_bytes == 0 {
        let memory = Memory::read();
        usage.memory_bytes = memory.total.saturating_sub(memory.free);
        let inactive = match usage.inactive_file_bytes {
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
    let [cpu, memory, io] = ["cpu", "memory", "io"].map(|name| Some(Pressure::parse(&of(name)?)));
    Some([cpu?, memory?, io?])
}

/// What all CPUs have worked, from `/proc/stat` in hundredths of a second: without idling and waiting for disks.
fn cpu_time(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks = line.split_whitespace().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4));
    ticks.filter_map(|(_, word)| word.parse::<u64>().ok()).sum::<u64>() * 10_000_000
}

/// How many processes and threads there are.
pub(crate) fn processes() -> Option<i64> {
    parse_processes(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default())
}

/// `0.1 0.2 0.3 1/234 567`.
fn parse_processes(loadavg: &str) -> Option<i64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
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
    fn the_machine_is_read_from_proc() {
        assert_eq!(cpu_time("cpu  1 2 3 1000 1000 4 5 6 7 8\ncpu0 1 1 1 1\n"), 21 * 10_000_000);
        assert_eq!(parse_processes("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(parse_processes(""), None);
        let memory = Memory::parse("MemTotal:  100 kB\nMemFree: 40 kB\nInactive(file):   10 kB\n");
        assert_eq!((memory.total, memory.free, memory.inactive_file), (102_400, 40_960, 10_240));
    }

    #[test]
    fn what_proc_does_not_say_is_nothing() {
        for (stat, expect) in [
            ("", 0),
            ("cpu\n", 0),
            ("cpu  1\n", 1),
            ("cpu  1 2 3 4 5\n", 6),
            ("cpu0 1 2 3 4\n", 0),
            ("intr 1\ncpu  0 0 7 9 9 9 9 9 100 100\n", 34),
            ("cpu  x 2 3 4\n", 5),
        ] {
            assert_eq!(cpu_time(stat), expect * 10_000_000, "{stat}");
        }
        for (loadavg, expect) in [
            ("0.20 0.18 0.12 1/80 11206", Some(80)),
            ("0.20 0.18 0.12 1/0 11206", Some(0)),
            ("0.20 0.18 0.12 80 11206", None),
            ("0.20 0.18 0.12 1/many 11206", None),
            ("0.20 0.18", None),
        ] {
            assert_eq!(parse_processes(loadavg), expect, "{loadavg}");
        }
        for (text, total, swap) in [
            ("", 0, (0, 0)),
            ("MemTotal: 1 kB\nSwapTotal: 2 kB\nSwapFree: 1 kB", 1024, (2048, 1024)),
            ("MemTotal 1 kB", 0, (0, 0)),
            ("MemTotalX: 1 kB\nMemTotal: 3 kB", 3072, (0, 0)),
            ("MemTotal: much kB", 0, (0, 0)),
        ] {
            let memory = Memory::parse(text);
            assert_eq!((memory.total, (memory.swap_total, memory.swap_free)), (total, swap), "{text}");
        }
    }
}
