//! The usage of cgroups, processes and links, as the kernel counts it: the only reader of these files, for the
//! runtime's stats and metrics and the kubelet's.
//!
//! What the host does not count is 0, and so is no limit; only pressure tells whether it is counted. Everything here may
//! block. Source: cAdvisor for what is read from where, on both versions of cgroups.

pub mod metrics;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::cgroup::{Cgroups, Version};

/// The usage and limits of a cgroup, with those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time since the group was made.
    pub cpu_ns: u64,
    /// That spent in programs.
    pub cpu_user_ns: u64,
    /// That spent in the kernel.
    pub cpu_system_ns: u64,
    /// Periods of a quota that have passed.
    pub cfs_periods: u64,
    /// Those at whose end tasks had to wait.
    pub cfs_throttled_periods: u64,
    /// The time for which they waited.
    pub cfs_throttled_ns: u64,
    /// Relative weight in v1's unit.
    pub cpu_shares: u64,
    /// CPU time for each period in microseconds; at most 0 for no limit.
    pub cpu_quota_us: i64,
    /// Length of the period.
    pub cpu_period_us: u64,
    /// Memory charged, including page cache.
    pub memory_bytes: u64,
    /// The most that it was.
    pub memory_max_bytes: u64,
    /// Memory charged, less inactive page cache.
    pub working_set_bytes: u64,
    /// Anonymous memory.
    pub rss_bytes: u64,
    /// Page cache.
    pub cache_bytes: u64,
    /// The memory in swap.
    pub swap_bytes: u64,
    /// Files mapped into processes.
    pub mapped_bytes: u64,
    /// The kernel's own memory for it.
    pub kernel_bytes: u64,
    /// Page cache that was used of late.
    pub active_file_bytes: u64,
    /// Page cache that was not.
    pub inactive_file_bytes: u64,
    /// The limit of memory.
    pub memory_limit_bytes: u64,
    /// The memory that is kept for it.
    pub memory_reserved_bytes: u64,
    /// Of v1 for memory and swap together.
    pub swap_limit_bytes: u64,
    /// The number of times that the limit was met.
    pub memory_failures: u64,
    /// Page faults.
    pub page_faults: u64,
    /// Those that had to wait for a disk.
    pub major_page_faults: u64,
    /// Without those of cgroups below, where v1 tells them apart.
    pub own_page_faults: u64,
    /// Without those of cgroups below, where v1 tells them apart.
    pub own_major_page_faults: u64,
    /// Without those of cgroups below.
    pub processes: u64,
    /// Tasks.
    pub threads: u64,
    /// The limit of tasks.
    pub threads_max: u64,
    /// The number of times that the kernel killed for lack of memory.
    pub oom_kills: u64,
    /// The time that tasks have waited for CPU, memory and disks; `None` where the kernel does not tell (v1 never
    /// does).
    pub pressure: Option<[Pressure; 3]>,
}

/// The time that some tasks waited for a resource, and that all did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one waited.
    pub some: Stall,
    /// All waited at once.
    pub full: Stall,
}

/// The time that tasks have waited.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    /// Shares of the last 10, 60 and 300 seconds in percent.
    pub averages: [f64; 3],
    /// Everything since the start.
    pub total_us: u64,
}

/// The bytes and operations of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The disk's number.
    pub major: u32,
    /// The disk's number.
    pub minor: u32,
    /// By operation: `Read`, `Write`, and others that the kernel tells of.
    pub bytes: BTreeMap<String, u64>,
    /// The number of operations, by kind.
    pub count: BTreeMap<String, u64>,
}

/// Huge pages of one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// As cgroups spell it: `2MB`.
    pub size: String,
    /// The bytes in use.
    pub bytes: u64,
    /// The most that it was; v2 does not tell.
    pub max_bytes: Option<u64>,
}

/// The files that processes have open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFiles {
    /// Files of all kinds.
    pub files: u64,
    /// Those that are sockets.
    pub sockets: u64,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The interface's name.
    pub name: String,
    /// The received traffic.
    pub rx: Traffic,
    /// The sent traffic.
    pub tx: Traffic,
}

/// A counter: name, help, and its value. Source: the names are cAdvisor's.
pub type PacketCounter = (&'static str, &'static str, fn(&Link) -> u64);

/// The kernel's counters of links that CRI's messages do not have, for exporters.
pub const PACKET_COUNTERS: [PacketCounter; 4] = [
    ("container_network_receive_packets_total", "Cumulative count of packets received", |link| {
        link.rx.packets
    }),
    (
        "container_network_receive_packets_dropped_total",
        "Cumulative count of packets dropped while receiving",
        |link| link.rx.dropped,
    ),
    ("container_network_transmit_packets_total", "Cumulative count of packets transmitted", |link| {
        link.tx.packets
    }),
    (
        "container_network_transmit_packets_dropped_total",
        "Cumulative count of packets dropped while transmitting",
        |link| link.tx.dropped,
    ),
];

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were faulty.
    pub errors: u64,
    /// Packets that there was no room for.
    pub dropped: u64,
}

/// v1's "no limit" is the largest page-aligned number.
const UNLIMITED_BYTES: u64 = 1 << 62;
/// `USER_HZ` is a hundred, whatever the machine.
const TICK_NS: u64 = 10_000_000;

type File<'a> = dyn Fn(&str, &str) -> String + 'a;

impl Cgroups {
    /// The usage of the cgroup; nothing if there is no such cgroup.
    pub fn usage(&self, path: &str) -> Usage {
        let file = |controller: &str, name: &str| self.read(controller, path, name).unwrap_or_default();
        let usage = match self.version() {
            Version::V2 => v2(&file),
            Version::V1 => v1(&file),
        };
        let [cpu, memory, io] = ["cpu", "memory", "io"].map(|resource| {
            let text = self.read(resource, path, &format!("{resource}.pressure"))?;
            Some(Pressure::parse(&text))
        });
        Usage {
            processes: as_u64(file("pids", "cgroup.procs").lines().count()),
            threads: number(&file("pids", "pids.current")),
            threads_max: number(&file("pids", "pids.max")),
            oom_kills: self.oom_kills(path),
            pressure: cpu.zip(memory).zip(io).map(|((cpu, memory), io)| [cpu, memory, io]),
            ..usage
        }
    }

    /// The number of times that the kernel killed in the cgroup for lack of memory.
    pub fn oom_kills(&self, path: &str) -> u64 {
        let file = match self.version() {
            Version::V2 => "memory.events",
            Version::V1 => "memory.oom_control",
        };
        field(&self.read("memory", path, file).unwrap_or_default(), "oom_kill")
    }

    /// The bytes and operations of the cgroup, by disk.
    pub fn devices(&self, path: &str) -> Vec<Device> {
        let file = |controller: &str, name: &str| self.read(controller, path, name).unwrap_or_default();
        if self.version() == Version::V2 {
            return devices_of_v2(&file("io", "io.stat"));
        }
        let [bytes, count] = ["io_service_bytes", "io_serviced"]
            .map(|what| file("blkio", &format!("blkio.throttle.{what}_recursive")));
        devices_of_v1(&bytes, &count)
    }

    /// The huge pages of the cgroup, by the sizes that the machine has.
    pub fn huge_pages(&self, path: &str) -> Vec<HugePages> {
        let folder = self.dir_of("hugetlb", path);
        let entries = folder.into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let used = match self.version() {
            Version::V2 => ".current",
            Version::V1 => ".usage_in_bytes",
        };
        let of_file = |name: String| {
            let size =
                name.strip_prefix("hugetlb.")?.strip_suffix(used).filter(|size| !size.contains('.'))?;
            let max = self.read("hugetlb", path, &format!("hugetlb.{size}.max_usage_in_bytes"));
            let bytes = number(&self.read("hugetlb", path, &name)?);
            Some(HugePages { size: size.to_owned(), bytes, max_bytes: max.map(|text| number(&text)) })
        };
        let mut all: Vec<_> = names.filter_map(of_file).collect();
        all.sort_unstable_by(|a, b| a.size.cmp(&b.size));
        all
    }
}

impl Pressure {
    /// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same with `full`. Source: Documentation/accounting/psi.
    pub fn parse(text: &str) -> Self {
        let stall = |kind: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(kind)).unwrap_or_default();
            let word = |name: &str| {
                line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            };
            let average = |name: &str| word(name).and_then(|word| word.parse().ok()).unwrap_or_default();
            Stall {
                averages: ["avg10", "avg60", "avg300"].map(average),
                total_us: word("total").map(number).unwrap_or_default(),
            }
        };
        Self { some: stall("some "), full: stall("full ") }
    }
}

impl Device {
    /// Such as `/dev/sda`; its numbers if it has no such name.
    pub fn name(&self) -> String {
        device_name(self.major.into(), self.minor.into())
    }
}

/// Such as `/dev/sda1`, or `8:1` if there is no such name.
pub fn device_name(major: u64, minor: u64) -> String {
    let event = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    name.map_or_else(|| format!("{major}:{minor}"), |name| format!("/dev/{name}"))
}

/// Looks at every open file of these processes.
pub fn open_files(processes: &[i32]) -> OpenFiles {
    let folders = processes.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    let is_socket = |path: &Path| {
        fs::read_link(path).is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
    };
    folders.flatten().flatten().fold(OpenFiles::default(), |all, file| OpenFiles {
        files: all.files + 1,
        sockets: all.sockets + u64::from(is_socket(&file.path())),
    })
}

/// The number of files that a process may have open (its soft limit); `None` for no limit, or no such process.
pub fn open_files_max(pid: i32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let rest = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Reads `/proc/<pid>/net/dev`; loopback is nobody's traffic.
pub fn links(text: &str) -> Vec<Link> {
    let link = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> = counters.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let counter = |at: usize| counters.get(at).copied().unwrap_or_default();
        let name = name.trim().to_owned();
        let traffic = |at: usize| Traffic {
            bytes: counter(at),
            packets: counter(at + 1),
            errors: counter(at + 2),
            dropped: counter(at + 3),
        };
        (name != "lo").then(|| Link { name, rx: traffic(0), tx: traffic(8) })
    };
    text.lines().filter_map(link).collect()
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_default()
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map(number).unwrap_or_default()
}

fn v1(file: &File<'_>) -> Usage {
    let memory = file("memory", "memory.stat");
    let cpu = file("cpu", "cpu.stat");
    let times = file("cpuacct", "cpuacct.stat");
    let used = number(&file("memory", "memory.usage_in_bytes"));
    let limit = |name: &str| match number(&file("memory", name)) {
        UNLIMITED_BYTES.. => 0,
        limit => limit,
    };
    Usage {
        cpu_ns: number(&file("cpuacct", "cpuacct.usage")),
        cpu_user_ns: field(&times, "user").saturating_mul(TICK_NS),
        cpu_system_ns: field(&times, "system").saturating_mul(TICK_NS),
        cfs_periods: field(&cpu, "nr_periods"),
        cfs_throttled_periods: field(&cpu, "nr_throttled"),
        cfs_throttled_ns: field(&cpu, "throttled_time"),
        cpu_shares: number(&file("cpu", "cpu.shares")),
        cpu_quota_us: file("cpu", "cpu.cfs_quota_us").trim().parse().unwrap_or_default(),
        cpu_period_us: number(&file("cpu", "cpu.cfs_period_us")),
        memory_bytes: used,
        memory_max_bytes: number(&file("memory", "memory.max_usage_in_bytes")),
        working_set_bytes: used.saturating_sub(field(&memory, "total_inactive_file")),
        rss_bytes: field(&memory, "total_rss"),
        cache_bytes: field(&memory, "total_cache"),
        swap_bytes: field(&memory, "total_swap"),
        mapped_bytes: field(&memory, "total_mapped_file"),
        kernel_bytes: number(&file("memory", "memory.kmem.usage_in_bytes")),
        active_file_bytes: field(&memory, "total_active_file"),
        inactive_file_bytes: field(&memory, "total_inactive_file"),
        memory_limit_bytes: limit("memory.limit_in_bytes"),
        memory_reserved_bytes: limit("memory.soft_limit_in_bytes"),
        swap_limit_bytes: limit("memory.memsw.limit_in_bytes"),
        memory_failures: number(&file("memory", "memory.failcnt")),
        page_faults: field(&memory, "total_pgfault"),
        major_page_faults: field(&memory, "total_pgmajfault"),
        own_page_faults: field(&memory, "pgfault"),
        own_major_page_faults: field(&memory, "pgmajfault"),
        ..Usage::default()
    }
}

fn v2(file: &File<'_>) -> Usage {
    let memory = file("memory", "memory.stat");
    let cpu = file("cpu", "cpu.stat");
    let used = number(&file("memory", "memory.current"));
    let max = file("cpu", "cpu.max");
    let (quota, period) = max.trim().split_once(' ').unwrap_or_default();
    let weight = number(&file("cpu", "cpu.weight"));
    let microseconds = |name: &str| field(&cpu, name).saturating_mul(1000);
    Usage {
        cpu_ns: microseconds("usage_usec"),
        cpu_user_ns: microseconds("user_usec"),
        cpu_system_ns: microseconds("system_usec"),
        cfs_periods: field(&cpu, "nr_periods"),
        cfs_throttled_periods: field(&cpu, "nr_throttled"),
        cfs_throttled_ns: microseconds("throttled_usec"),
        // The other way round from KEP-2254.
        cpu_shares: if weight == 0 { 0 } else { 2 + (weight - 1) * 262_142 / 9999 },
        cpu_quota_us: quota.parse().unwrap_or_default(),
        cpu_period_us: number(period),
        memory_bytes: used,
        memory_max_bytes: number(&file("memory", "memory.peak")),
        working_set_bytes: used.saturating_sub(field(&memory, "inactive_file")),
        rss_bytes: field(&memory, "anon"),
        cache_bytes: field(&memory, "file"),
        swap_bytes: number(&file("memory", "memory.swap.current")),
        mapped_bytes: field(&memory, "file_mapped"),
        kernel_bytes: field(&memory, "kernel"),
        active_file_bytes: field(&memory, "active_file"),
        inactive_file_bytes: field(&memory, "inactive_file"),
        memory_limit_bytes: number(&file("memory", "memory.max")),
        memory_reserved_bytes: number(&file("memory", "memory.min")),
        swap_limit_bytes: number(&file("memory", "memory.swap.max")),
        memory_failures: field(&file("memory", "memory.events"), "max"),
        page_faults: field(&memory, "pgfault"),
        major_page_faults: field(&memory, "pgmajfault"),
        own_page_faults: field(&memory, "pgfault"),
        own_major_page_faults: field(&memory, "pgmajfault"),
        ..Usage::default()
    }
}

/// `8:0 Read 4096`, and the same for numbers of operations.
fn devices_of_v1(bytes: &str, count: &str) -> Vec<Device> {
    let mut all = BTreeMap::new();
    let mut take = |text: &str, part: fn(&mut Device) -> &mut BTreeMap<String, u64>| {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [device, operation, value] = words.as_slice() else { continue };
            let (Some(device), Ok(value)) = (device_numbers(device), value.parse()) else { continue };
            let (major, minor) = device;
            let known = all.entry(device).or_insert_with(|| Device { major, minor, ..Device::default() });
            part(known).insert((*operation).to_owned(), value);
        }
    };
    take(bytes, |device| &mut device.bytes);
    take(count, |device| &mut device.count);
    all.into_values().collect()
}

/// `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`.
fn devices_of_v2(stat: &str) -> Vec<Device> {
    let line = |line: &str| {
        let (device, rest) = line.split_once(' ')?;
        let (major, minor) = device_numbers(device)?;
        let mut device = Device { major, minor, ..Device::default() };
        for (name, value) in rest.split_whitespace().filter_map(|word| word.split_once('=')) {
            let Ok(value) = value.parse() else { continue };
            let operation = match name.chars().next() {
                Some('r') => "Read",
                Some('w') => "Write",
                _ => "Discard",
            };
            match name.get(1..) {
                Some("bytes") => device.bytes.insert(operation.to_owned(), value),
                Some("ios") => device.count.insert(operation.to_owned(), value),
                _ => None,
            };
        }
        // Of some disks there are only the numbers.
        (!device.bytes.is_empty() || !device.count.is_empty()).then_some(device)
    };
    stat.lines().filter_map(line).collect()
}

fn device_numbers(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests;
