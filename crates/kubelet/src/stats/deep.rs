//! What only `/metrics/cadvisor` tells: a look at each process of a container, at its disks, and at its Pod's links.
//!
//! It costs a call for each open file, so that nobody else looks. Source: cAdvisor's `container/libcontainer/handler.go`.

use sys::cgroup::Cgroups;
use sys::usage::{Device, Link, OpenFiles, links, open_files, open_files_max};

/// Of one cgroup.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deep {
    pub(crate) open: OpenFiles,
    /// The soft limit of the first process; `None` is no limit.
    pub(crate) open_files_max: Option<u64>,
    pub(crate) devices: Vec<Device>,
    /// Of the network that its processes are in.
    pub(crate) links: Vec<Link>,
}

/// Looks at a container's cgroup. Blocking.
pub(crate) fn look(cgroups: &Cgroups, path: &str) -> Deep {
    let processes = cgroups.processes(path);
    let net = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok();
    Deep {
        open: open_files(&processes),
        open_files_max: processes.iter().find_map(|pid| open_files_max(*pid)),
        devices: cgroups.devices(path),
        links: links(&processes.iter().find_map(net).unwrap_or_default()),
    }
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
    fn disks_have_what_the_kernel_counts() {
        let disks =
            "   8       0 sda 9 9 9 9 9 9 9 9 9 9 9\n   8       1 sda1 1 2 3 4 5 6 7 8 9 10 11 12 13\n";
        assert_eq!(disk_counters(disks, "/dev/sda1"), Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
        assert_eq!(disk_counters(disks, "8:1"), None);
    }

    #[test]
    fn a_cgroup_that_is_not_there_has_nothing() {
        let Ok(cgroups) = Cgroups::detect() else { return };
        assert_eq!(look(&cgroups, "/there-is-no-such-cgroup"), Deep::default());
    }
}
