//! What only `/metrics/cadvisor` tells: a look at each process of a container, at its disks, and at its Pod's links.
//!
//! It costs a call for each open file, so that nobody else looks. Source: cAdvisor's `container/libcontainer/handler.go`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sys::cgroup::{Cgroups, Version};

/// Of one cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deep {
    pub(crate) open_files: u64,
    pub(crate) sockets: u64,
    /// The soft limit of the first process; `None` is no limit.
    pub(crate) open_files_max: Option<u64>,
    pub(crate) devices: Vec<Device>,
    /// Of the network that its processes are in.
    pub(crate) links: Vec<Link>,
}

/// What was read from a disk and written to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// By operation: `Read`, `Write`, and others that the kernel tells of.
    pub(crate) bytes: BTreeMap<String, u64>,
    pub(crate) count: BTreeMap<String, u64>,
}

impl Device {
    /// Such as `/dev/sda`; its numbers if it has no such name.
    pub(crate) fn name(&self) -> String {
        super::disk::device_name(self.major.into(), self.minor.into())
    }
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    /// What was received.
    pub(crate) rx: Traffic,
    /// What was sent.
    pub(crate) tx: Traffic,
}

/// One direction of a link. CRI has no field for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) errors: u64,
    pub(crate) dropped: u64,
}

/// Looks at a container's cgroup. Blocking.
pub(crate) fn look(cgroups: &Cgroups, path: &str) -> Deep {
    let processes = cgroups.processes(path);
    let proc_file = |name: &str| {
        let read = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        processes.iter().find_map(read).unwrap_or_default()
    };
    let mut deep = Deep {
        open_files_max: open_files_max(&proc_file("limits")),
        links: links(&proc_file("net/dev")),
        devices: devices(cgroups, path),
        ..Deep::default()
    };
    for pid in &processes {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            deep.open_files += 1;
            let target = fs::read_link(entry.path()).unwrap_or_default();
            deep.sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
        }
    }
    deep
}

/// Not below the runtime's controllers on v1: others make the same path for disks too.
fn devices(cgroups: &Cgroups, path: &str) -> Vec<Device> {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    if cgroups.version() == Version::V2 {
        let folder = cgroups.dir_of("memory", path).unwrap_or_default();
        return of_v2(&read(&folder.join("io.stat")));
    }
    let folder = Path::new("/sys/fs/cgroup/blkio").join(path.trim_start_matches('/'));
    let file = |name: &str| read(&folder.join(format!("blkio.throttle.{name}_recursive")));
    of_v1(&file("io_service_bytes"), &file("io_serviced"))
}

/// `8:0 Read 4096`, and the same for numbers of operations.
fn of_v1(bytes: &str, count: &str) -> Vec<Device> {
    let mut all = BTreeMap::new();
    let mut take = |text: &str, part: fn(&mut Device) -> &mut BTreeMap<String, u64>| {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [device, operation, value] = words.as_slice() else { continue };
            let (Some(device), Ok(value)) = (numbers(device), value.parse()) else { continue };
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
fn of_v2(stat: &str) -> Vec<Device> {
    let line = |line: &str| {
        let (device, rest) = line.split_once(' ')?;
        let (major, minor) = numbers(device)?;
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
        Some(device)
    };
    stat.lines().filter_map(line).collect()
}

fn numbers(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn open_files_max(limits: &str) -> Option<u64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Reads `/proc/<pid>/net/dev`; loopback is nobody's traffic.
pub(crate) fn links(text: &str) -> Vec<Link> {
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

/// The counters of a whole disk or partition, in the kernel's order: reads completed, merged, sectors, milliseconds; the
/// same for writes; in progress, milliseconds, weighted milliseconds. Source: Documentation/admin-guide/iostats.
pub(crate) type DiskCounters = [u64; 11];

/// From `/proc/diskstats`, of a device such as `/dev/sda1`.
pub(crate) fn disk_counters(diskstats: &str, device: &str) -> Option<DiskCounters> {
    let name = device.strip_prefix("/dev/")?;
    let mut lines = diskstats.lines().map(|line| line.split_whitespace().skip(2));
    let numbers = lines.find_map(|mut words| (words.next() == Some(name)).then_some(words))?;
    let numbers: Vec<u64> = numbers.take(11).filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_found_in_both_versions() {
        let map =
            |read: u64, write: u64| BTreeMap::from([("Read".to_owned(), read), ("Write".to_owned(), write)]);
        let device = |bytes, count| Device { major: 8, minor: 16, bytes, count };
        let v1 =
            of_v1("8:16 Read 4096\n8:16 Write 512\nTotal 4608\n", "8:16 Read 2\n8:16 Write 1\nTotal 3\n");
        assert_eq!(v1, [device(map(4096, 512), map(2, 1))]);
        let [v2] = of_v2("8:16 rbytes=4096 wbytes=512 rios=2 wios=1 dbytes=7 dios=3\n").try_into().unwrap();
        assert_eq!((v2.bytes["Read"], v2.bytes["Write"], v2.count["Discard"]), (4096, 512, 3));
    }

    #[test]
    fn links_and_disks_have_what_the_kernel_counts() {
        let text = "Inter-|\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12\n  eth0: 1 22 3 44 5 6 7 8 9 100 11 122 13\n";
        let name = "eth0".to_owned();
        let rx = Traffic { bytes: 1, packets: 22, errors: 3, dropped: 44 };
        let tx = Traffic { bytes: 9, packets: 100, errors: 11, dropped: 122 };
        let eth0 = Link { name, rx, tx };
        assert_eq!(links(text), [eth0]);
        let disks =
            "   8       0 sda 9 9 9 9 9 9 9 9 9 9 9\n   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11 12 13\n";
        assert_eq!(disk_counters(disks, "/dev/sda1"), Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
        assert_eq!(disk_counters(disks, "8:1"), None);
    }

    #[test]
    fn our_own_process_has_open_files() {
        let Ok(cgroups) = Cgroups::detect() else { return };
        assert_eq!(look(&cgroups, "/there-is-no-such-cgroup"), Deep::default());
        assert!(open_files_max(&fs::read_to_string("/proc/self/limits").unwrap()).is_some());
    }
}
