//! CRI's metrics: what containers use, under cAdvisor's names. Those that need no labels of their own are
//! [`USAGE_METRICS`], one table has all others: a row says what a family is called and what of [`sys::usage`] it tells.
//!
//! Values are whole, as CRI has them: of seconds the fractions are cut off. Labels, and what is limited by the
//! container's configuration, are as containerd's.
//! Source: `ListMetricDescriptors` and `ListPodSandboxMetrics` of containerd 2; CRI-O's for quota, huge pages and
//! pressure.

use std::path::Path;

use cri::v1;
use sys::cgroup::Cgroups;
use sys::usage::metrics::{Kind, USAGE_METRICS};
use sys::usage::{Device, HugePages, OpenFiles, Pressure, Stall, Usage, open_files, open_files_max};
use v1::MetricType::{self, Counter, Gauge};

use crate::shim::layout::Started;
use crate::state::{Container, Sandbox, Status};

/// What tells one container from another.
const LABELS: [&str; 5] = ["pod", "namespace", "container", "id", "image"];
const DEVICE: &[&str] = &["device"];
const DEVICE_OPERATION: &[&str] = &["device", "major", "minor", "operation"];
const FAILURE: &[&str] = &["failure_type", "scope"];

const SECOND_US: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Series of one family: the values of its own labels, and its value.
type Values = Vec<(Vec<String>, u64)>;
/// Name, kind, help, labels of its own, and its series.
type Family = (&'static str, MetricType, &'static str, &'static [&'static str], fn(&Look) -> Values);

const FAMILIES: &[Family] = &[
    ("container_cpu_usage_seconds_total", Counter, "Cumulative CPU time consumed in seconds.", &[], |it| {
        one(it.used.cpu_ns / SECOND_NS)
    }),
    (
        "container_cpu_user_seconds_total",
        Counter,
        "Cumulative user CPU time consumed in seconds.",
        &[],
        |it| one(it.used.cpu_user_ns / SECOND_NS),
    ),
    (
        "container_cpu_system_seconds_total",
        Counter,
        "Cumulative system CPU time consumed in seconds.",
        &[],
        |it| one(it.used.cpu_system_ns / SECOND_NS),
    ),
    (
        "container_cpu_cfs_periods_total",
        Counter,
        "Number of elapsed enforcement period intervals.",
        &[],
        |it| one(it.used.cfs_periods),
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        Counter,
        "Number of throttled period intervals.",
        &[],
        |it| one(it.used.cfs_throttled_periods),
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        Counter,
        "Total time duration the container has been throttled.",
        &[],
        |it| one(it.used.cfs_throttled_ns / SECOND_NS),
    ),
    (
        "container_memory_failures_total",
        Counter,
        "Cumulative count of memory allocation failures.",
        FAILURE,
        |it| it.failures(),
    ),
    ("container_hugetlb_usage_bytes", Gauge, "Current hugepage usage", &["pagesize"], |it| {
        it.huge_pages(|pages| Some(pages.bytes))
    }),
    ("container_hugetlb_max_usage_bytes", Gauge, "Maximum hugepage usages recorded", &["pagesize"], |it| {
        it.huge_pages(|pages| pages.max_bytes)
    }),
    ("container_fs_inodes_free", Gauge, "Number of available Inodes", DEVICE, |it| it.disk(|disk| disk.3)),
    ("container_fs_inodes_total", Gauge, "Number of Inodes", DEVICE, |it| it.disk(|disk| disk.2)),
    (
        "container_fs_limit_bytes",
        Gauge,
        "Number of bytes that can be consumed by the container on this filesystem.",
        DEVICE,
        |it| it.disk(|disk| disk.1),
    ),
    (
        "container_fs_usage_bytes",
        Gauge,
        "Number of bytes that are consumed by the container on this filesystem.",
        DEVICE,
        |it| it.disk(|disk| disk.0),
    ),
    ("container_fs_reads_bytes_total", Counter, "Cumulative count of bytes read", DEVICE, |it| {
        it.io(|device| device.bytes.get("Read"))
    }),
    ("container_fs_reads_total", Counter, "Cumulative count of reads completed", DEVICE, |it| {
        it.io(|device| device.count.get("Read"))
    }),
    ("container_fs_writes_bytes_total", Counter, "Cumulative count of bytes written", DEVICE, |it| {
        it.io(|device| device.bytes.get("Write"))
    }),
    ("container_fs_writes_total", Counter, "Cumulative count of writes completed", DEVICE, |it| {
        it.io(|device| device.count.get("Write"))
    }),
    ("container_blkio_device_usage_total", Counter, "Blkio Device bytes usage", DEVICE_OPERATION, |it| {
        it.transfers()
    }),
    ("container_processes", Gauge, "Number of processes running inside the container.", &[], |it| {
        one(it.processes)
    }),
    ("container_file_descriptors", Gauge, "Number of open file descriptors for the container.", &[], |it| {
        one(it.open.files)
    }),
    ("container_sockets", Gauge, "Number of open sockets for the container.", &[], |it| one(it.open.sockets)),
    (
        "container_ulimits_soft",
        Gauge,
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        &["ulimit"],
        |it| it.open_files_max.map(|max| (vec!["max_open_files".to_owned()], max)).into_iter().collect(),
    ),
    ("container_last_seen", Gauge, "Last time a container was seen by the exporter", &[], |it| {
        one(it.now / SECOND_NS)
    }),
    (
        "container_start_time_seconds",
        Gauge,
        "Start time of the container since unix epoch in seconds.",
        &[],
        |it| one(it.started_at / SECOND_NS),
    ),
    ("container_spec_cpu_period", Gauge, "CPU period of the container.", &[], |it| {
        it.limit(|limits| limits.cpu_period)
    }),
    ("container_spec_cpu_quota", Gauge, "CPU quota of the container.", &[], |it| {
        it.limit(|limits| limits.cpu_quota)
    }),
    ("container_spec_cpu_shares", Gauge, "CPU share of the container.", &[], |it| {
        it.limit(|limits| limits.cpu_shares)
    }),
    ("container_spec_memory_limit_bytes", Gauge, "Memory limit for the container.", &[], |it| {
        it.limit(|limits| limits.memory_limit_in_bytes)
    }),
    ("container_spec_memory_swap_limit_bytes", Gauge, "Memory swap limit for the container.", &[], |it| {
        it.limit(|limits| limits.memory_swap_limit_in_bytes)
    }),
    (
        "container_pressure_cpu_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to CPU congestion.",
        &[],
        |it| it.pressure(0, |it| it.some),
    ),
    (
        "container_pressure_cpu_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        &[],
        |it| it.pressure(0, |it| it.full),
    ),
    (
        "container_pressure_memory_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to memory congestion.",
        &[],
        |it| it.pressure(1, |it| it.some),
    ),
    (
        "container_pressure_memory_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        &[],
        |it| it.pressure(1, |it| it.full),
    ),
    (
        "container_pressure_io_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to IO congestion.",
        &[],
        |it| it.pressure(2, |it| it.some),
    ),
    (
        "container_pressure_io_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        &[],
        |it| it.pressure(2, |it| it.full),
    ),
];

/// The families of containers; `links` are those of sandboxes, by name and help.
pub(crate) fn descriptors<'a>(links: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<v1::MetricDescriptor> {
    let descriptor = |(name, help, more): (&str, &str, &[&str])| v1::MetricDescriptor {
        name: name.to_owned(),
        help: help.to_owned(),
        label_keys: LABELS.iter().chain(more).map(|label| (*label).to_owned()).collect(),
    };
    let plain = USAGE_METRICS.iter().map(|(name, _, help, _)| (*name, *help, &[][..]));
    let others = FAMILIES.iter().map(|(name, _, help, more, _)| (*name, *help, *more));
    let links = links.map(|(name, help)| (name, help, &["interface"][..]));
    plain.chain(others).chain(links).map(descriptor).collect()
}

/// The values of [`LABELS`]; a sandbox's own are of no container.
pub(crate) fn labels(sandbox: &Sandbox, container: Option<&Container>) -> Vec<String> {
    let pod = sandbox.metadata();
    let name = container.and_then(|it| it.config.metadata.as_ref()).map(|it| it.name.clone());
    let id = container.map_or(&sandbox.id, |container| &container.id);
    let image = container.map(|container| container.record.image_name.clone());
    vec![pod.name, pod.namespace, name.unwrap_or_default(), id.clone(), image.unwrap_or_default()]
}

/// All series of a container that runs. `written` are the bytes in its writable layer, which is in `folder`. Blocking.
pub(crate) fn of_container(
    cgroups: &Cgroups,
    sandbox: &Sandbox,
    container: &Container,
    folder: &Path,
    written: u64,
    now: i64,
) -> Vec<v1::Metric> {
    let labels = labels(sandbox, Some(container));
    let look = Look::at(cgroups, container, folder, written, now);
    let metric = |name: &str, kind: MetricType, more: Vec<String>, value| v1::Metric {
        name: name.to_owned(),
        timestamp: now,
        metric_type: kind.into(),
        label_values: labels.iter().cloned().chain(more).collect(),
        value: Some(v1::UInt64Value { value }),
    };
    let plain = USAGE_METRICS.iter().map(|(name, kind, _, value)| {
        let kind = if *kind == Kind::Counter { Counter } else { Gauge };
        metric(name, kind, Vec::new(), value(&look.used))
    });
    let others = FAMILIES.iter().flat_map(|(name, kind, _, _, values)| {
        values(&look).into_iter().map(|(more, value)| metric(name, *kind, more, value)).collect::<Vec<_>>()
    });
    plain.chain(others).collect()
}

fn one(value: u64) -> Values {
    vec![(Vec::new(), value)]
}

/// What there is to know of a container at one moment.
#[derive(Default)]
struct Look {
    used: Usage,
    limits: v1::LinuxContainerResources,
    processes: u64,
    open: OpenFiles,
    open_files_max: Option<u64>,
    huge_pages: Vec<HugePages>,
    devices: Vec<Device>,
    /// Bytes used and in all, inodes in all and free.
    disk: Option<(u64, u64, u64, u64)>,
    now: u64,
    started_at: u64,
}

impl Look {
    fn at(cgroups: &Cgroups, container: &Container, folder: &Path, written: u64, now: i64) -> Self {
        let cgroup = &container.record.cgroup;
        let started = match *container.status.borrow() {
            Status::Running(Started { pid, at, .. }) => Some((pid, at)),
            _ => None,
        };
        let processes = cgroups.processes(cgroup);
        let disk = nix::sys::statvfs::statvfs(folder).ok().map(|disk| {
            (written, disk.blocks() * disk.fragment_size(), disk.files(), disk.files_available())
        });
        Self {
            used: cgroups.usage(cgroup),
            limits: container.config.linux.as_ref().and_then(|it| it.resources.clone()).unwrap_or_default(),
            open: open_files(&processes),
            processes: u64::try_from(processes.len()).unwrap_or(u64::MAX),
            open_files_max: started.and_then(|(pid, _)| open_files_max(pid)),
            huge_pages: cgroups.huge_pages(cgroup),
            devices: cgroups.devices(cgroup),
            disk,
            now: u64::try_from(now).unwrap_or_default(),
            started_at: started.and_then(|(_, at)| u64::try_from(at).ok()).unwrap_or_default(),
        }
    }

    fn limit(&self, pick: fn(&v1::LinuxContainerResources) -> i64) -> Values {
        let limit = u64::try_from(pick(&self.limits)).ok().filter(|limit| *limit > 0);
        limit.map(|limit| (Vec::new(), limit)).into_iter().collect()
    }

    fn failures(&self) -> Values {
        let used = &self.used;
        let all = [
            ("pgfault", "container", used.own_page_faults),
            ("pgfault", "hierarchy", used.page_faults),
            ("pgmajfault", "container", used.own_major_page_faults),
            ("pgmajfault", "hierarchy", used.major_page_faults),
        ];
        all.map(|(kind, scope, count)| (vec![kind.to_owned(), scope.to_owned()], count)).into()
    }

    fn disk(&self, pick: fn((u64, u64, u64, u64)) -> u64) -> Values {
        self.disk.map(|disk| (vec!["/".to_owned()], pick(disk))).into_iter().collect()
    }

    fn huge_pages(&self, pick: fn(&HugePages) -> Option<u64>) -> Values {
        let of_size = |pages: &HugePages| Some((vec![pages.size.clone()], pick(pages)?));
        self.huge_pages.iter().filter_map(of_size).collect()
    }

    fn io(&self, pick: fn(&Device) -> Option<&u64>) -> Values {
        let of_device = |device: &Device| Some((vec![device.name()], *pick(device)?));
        self.devices.iter().filter_map(of_device).collect()
    }

    fn transfers(&self) -> Values {
        let of_device = |device: &Device| {
            let (name, major, minor) = (device.name(), device.major.to_string(), device.minor.to_string());
            let operation = |operation: &str| {
                let labels = [&name, &major, &minor, operation].map(str::to_owned);
                Some((labels.into(), *device.bytes.get(operation)?))
            };
            ["Read", "Write"].into_iter().filter_map(operation).collect::<Values>()
        };
        self.devices.iter().flat_map(of_device).collect()
    }

    /// Of CPU (0), memory (1) or disks (2), where the kernel tells.
    fn pressure(&self, resource: usize, pick: fn(&Pressure) -> Stall) -> Values {
        let pressure = self.used.pressure.iter().filter_map(|all| all.get(resource));
        pressure.map(|it| (Vec::new(), pick(it).total_us / SECOND_US)).collect()
    }
}

#[cfg(test)]
mod tests;
