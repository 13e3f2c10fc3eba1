//! Files, sockets and disks: of containers as far as their cgroups count them, of the machine as its disk does.

use sys::usage::Device;

use super::{MACHINE, Subject};
use crate::machine::file_system::FileSystem;
use crate::server::exposition::{Exposition, number, seconds};
use crate::stats::Look;
use crate::stats::deep::Deep;

/// Family, kind, help, and the file system's value.
type FileSystemRow = (&'static str, &'static str, fn(&FileSystem) -> u64);

/// The machine's: no container has a file system of its own.
const FILE_SYSTEM: [FileSystemRow; 4] = [
    ("container_fs_inodes_free", "Number of available Inodes", |fs| fs.inodes_free),
    ("container_fs_inodes_total", "Number of Inodes", |fs| fs.inodes),
    (
        "container_fs_limit_bytes",
        "Number of bytes that can be consumed by the container on this filesystem.",
        |fs| fs.capacity,
    ),
    (
        "container_fs_usage_bytes",
        "Number of bytes that are consumed by the container on this filesystem.",
        |fs| fs.used,
    ),
];

/// Family, kind, help; what of a cgroup's device it is; which of a disk's counters, and their unit in nanoseconds.
struct DiskRow {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    of_cgroup: fn(&Device) -> Option<u64>,
    of_disk: Option<(usize, Unit)>,
}

/// What a disk's counter is in.
#[derive(Clone, Copy)]
enum Unit {
    One,
    Milliseconds,
}

const fn row(
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    of_cgroup: fn(&Device) -> Option<u64>,
    of_disk: Option<(usize, Unit)>,
) -> DiskRow {
    DiskRow { name, kind, help, of_cgroup, of_disk }
}

const fn of_disk(name: &'static str, help: &'static str, at: usize, unit: Unit) -> DiskRow {
    row(name, "counter", help, |_| None, Some((at, unit)))
}

const DISKS: [DiskRow; 13] = [
    row(
        "container_fs_reads_bytes_total",
        "counter",
        "Cumulative count of bytes read",
        |device| device.bytes.get("Read").copied(),
        None,
    ),
    row(
        "container_fs_reads_total",
        "counter",
        "Cumulative count of reads completed",
        |device| device.count.get("Read").copied(),
        Some((0, Unit::One)),
    ),
    of_disk("container_fs_reads_merged_total", "Cumulative count of reads merged", 1, Unit::One),
    of_disk("container_fs_sector_reads_total", "Cumulative count of sector reads completed", 2, Unit::One),
    of_disk(
        "container_fs_read_seconds_total",
        "Cumulative count of seconds spent reading",
        3,
        Unit::Milliseconds,
    ),
    row(
        "container_fs_writes_bytes_total",
        "counter",
        "Cumulative count of bytes written",
        |device| device.bytes.get("Write").copied(),
        None,
    ),
    row(
        "container_fs_writes_total",
        "counter",
        "Cumulative count of writes completed",
        |device| device.count.get("Write").copied(),
        Some((4, Unit::One)),
    ),
    of_disk("container_fs_writes_merged_total", "Cumulative count of writes merged", 5, Unit::One),
    of_disk("container_fs_sector_writes_total", "Cumulative count of sector writes completed", 6, Unit::One),
    of_disk(
        "container_fs_write_seconds_total",
        "Cumulative count of seconds spent writing",
        7,
        Unit::Milliseconds,
    ),
    row(
        "container_fs_io_current",
        "gauge",
        "Number of I/Os currently in progress",
        |_| None,
        Some((8, Unit::One)),
    ),
    of_disk(
        "container_fs_io_time_seconds_total",
        "Cumulative count of seconds spent doing I/Os",
        9,
        Unit::Milliseconds,
    ),
    of_disk(
        "container_fs_io_time_weighted_seconds_total",
        "Cumulative weighted I/O time in seconds",
        10,
        Unit::Milliseconds,
    ),
];

/// Writes all families that have a value.
pub(super) fn render(out: &mut Exposition, look: &Look, subjects: &[Subject<'_>], at: Option<i64>) {
    let machine = subjects.iter().find(|subject| subject.id == MACHINE);
    if let (Some(machine), Some((device, fs))) = (machine, &look.disk) {
        for (name, help, value) in FILE_SYSTEM {
            out.family(name, "gauge", help);
            out.sample(name, &machine.labels(&[("device", device)]), number(value(fs)), at);
        }
    }
    let deep: Vec<(&Subject<'_>, &Deep)> =
        subjects.iter().filter_map(|subject| Some((subject, look.deep.get(subject.id)?))).collect();
    for row in &DISKS {
        out.family(row.name, row.kind, row.help);
        let of_disk = row.of_disk.zip(look.disk_counters.as_ref()).zip(machine).zip(look.disk.as_ref());
        if let Some(((((index, unit), counters), machine), (device, _))) = of_disk {
            let value = match unit {
                Unit::One => number(counters[index]),
                Unit::Milliseconds => seconds(counters[index].saturating_mul(1_000_000)),
            };
            out.sample(row.name, &machine.labels(&[("device", device)]), value, at);
        }
        for (subject, deep) in &deep {
            for device in &deep.devices {
                let Some(value) = (row.of_cgroup)(device) else { continue };
                out.sample(row.name, &subject.labels(&[("device", &device.name())]), number(value), at);
            }
        }
    }
    devices(out, &deep, at);
    processes(out, &deep, at);
}

fn devices(out: &mut Exposition, deep: &[(&Subject<'_>, &Deep)], at: Option<i64>) {
    let name = "container_blkio_device_usage_total";
    out.family(name, "counter", "Blkio Device bytes usage");
    for (subject, deep) in deep {
        for device in &deep.devices {
            let (major, minor) = (device.major.to_string(), device.minor.to_string());
            for (operation, bytes) in &device.bytes {
                let of_device = [
                    ("device", &*device.name()),
                    ("major", &major),
                    ("minor", &minor),
                    ("operation", operation),
                ];
                out.sample(name, &subject.labels(&of_device), number(*bytes), at);
            }
        }
    }
}

fn processes(out: &mut Exposition, deep: &[(&Subject<'_>, &Deep)], at: Option<i64>) {
    let name = "container_ulimits_soft";
    let help = "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice";
    out.family(name, "gauge", help);
    for (subject, deep) in deep {
        let limit = deep.open_files_max.map_or(-1.0, number);
        out.sample(name, &subject.labels(&[("ulimit", "max_open_files")]), limit, at);
    }
    for (name, help, value) in [
        (
            "container_file_descriptors",
            "Number of open file descriptors for the container.",
            (|deep| deep.open.files) as fn(&Deep) -> u64,
        ),
        ("container_sockets", "Number of open sockets for the container.", |deep| deep.open.sockets),
    ] {
        out.family(name, "gauge", help);
        for (subject, deep) in deep {
            out.sample(name, &subject.labels(&[]), number(value(deep)), at);
        }
    }
}

#[cfg(test)]
mod tests;
