//! CRI's metrics: what containers use, under cAdvisor's names. One table has all of them: a row says what a family is
//! called and which files of a container's cgroup tell it, in either version of cgroups.
//!
//! Values are whole, as CRI has them: of seconds the fractions are cut off. What the kernel does not tell has no
//! series. Labels, and what is limited by the container's configuration, are as containerd's.
//! Source: `ListMetricDescriptors` and `ListPodSandboxMetrics` of containerd 2; CRI-O's for quota, huge pages and
//! pressure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use cri::v1;
use sys::cgroup::{Cgroups, Version};
use v1::MetricType::{self, Counter, Gauge};

use crate::shim::layout::Started;
use crate::state::{Container, Sandbox, Status};

/// What tells one container from another.
const LABELS: [&str; 5] = ["pod", "namespace", "container", "id", "image"];
const DEVICE: &[&str] = &["device"];
const DEVICE_OPERATION: &[&str] = &["device", "major", "minor", "operation"];
const FAILURE: &[&str] = &["failure_type", "scope"];

/// v1's "no limit" is the largest page-aligned number.
const UNLIMITED: u64 = 1 << 62;
const SECOND_US: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// `USER_HZ`, whatever the machine.
const SECOND_TICKS: u64 = 100;

/// Series of one family: the values of its own labels, and its value.
type Values = Vec<(Vec<String>, u64)>;
/// Name, kind, help, labels of its own, and its series.
type Family = (&'static str, MetricType, &'static str, &'static [&'static str], fn(&Look<'_>) -> Values);
/// Controller, file, the line that begins so (the file is a number alone: nothing), and how many are one of the unit.
type Field = (&'static str, &'static str, &'static str, u64);

const fn stat(key: &'static str) -> Field {
    ("memory", "memory.stat", key, 1)
}

const fn memory(file: &'static str) -> Field {
    ("memory", file, "", 1)
}

const FAMILIES: &[Family] = &[
    ("container_cpu_usage_seconds_total", Counter, "Cumulative CPU time consumed in seconds.", &[], |it| {
        it.field(("cpuacct", "cpuacct.usage", "", SECOND_NS), ("cpu", "cpu.stat", "usage_usec", SECOND_US))
    }),
    (
        "container_cpu_user_seconds_total",
        Counter,
        "Cumulative user CPU time consumed in seconds.",
        &[],
        |it| {
            let v1 = ("cpuacct", "cpuacct.stat", "user", SECOND_TICKS);
            it.field(v1, ("cpu", "cpu.stat", "user_usec", SECOND_US))
        },
    ),
    (
        "container_cpu_system_seconds_total",
        Counter,
        "Cumulative system CPU time consumed in seconds.",
        &[],
        |it| {
            let v1 = ("cpuacct", "cpuacct.stat", "system", SECOND_TICKS);
            it.field(v1, ("cpu", "cpu.stat", "system_usec", SECOND_US))
        },
    ),
    (
        "container_cpu_cfs_periods_total",
        Counter,
        "Number of elapsed enforcement period intervals.",
        &[],
        |it| it.same(("cpu", "cpu.stat", "nr_periods", 1)),
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        Counter,
        "Number of throttled period intervals.",
        &[],
        |it| it.same(("cpu", "cpu.stat", "nr_throttled", 1)),
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        Counter,
        "Total time duration the container has been throttled.",
        &[],
        |it| {
            let v1 = ("cpu", "cpu.stat", "throttled_time", SECOND_NS);
            it.field(v1, ("cpu", "cpu.stat", "throttled_usec", SECOND_US))
        },
    ),
    ("container_memory_cache", Gauge, "Number of bytes of page cache memory.", &[], |it| {
        it.field(stat("total_cache"), stat("file"))
    }),
    ("container_memory_rss", Gauge, "Size of RSS in bytes.", &[], |it| {
        it.field(stat("total_rss"), stat("anon"))
    }),
    ("container_memory_kernel_usage", Gauge, "Size of kernel memory allocated in bytes.", &[], |it| {
        it.field(memory("memory.kmem.usage_in_bytes"), stat("kernel"))
    }),
    ("container_memory_mapped_file", Gauge, "Size of memory mapped files in bytes.", &[], |it| {
        it.field(stat("total_mapped_file"), stat("file_mapped"))
    }),
    ("container_memory_swap", Gauge, "Container swap usage in bytes.", &[], |it| {
        it.field(stat("total_swap"), memory("memory.swap.current"))
    }),
    ("container_memory_failcnt", Counter, "Number of memory usage hits limits", &[], |it| {
        it.field(memory("memory.failcnt"), ("memory", "memory.events", "max", 1))
    }),
    (
        "container_memory_usage_bytes",
        Gauge,
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        &[],
        |it| it.field(memory("memory.usage_in_bytes"), memory("memory.current")),
    ),
    ("container_memory_max_usage_bytes", Gauge, "Maximum memory usage recorded in bytes", &[], |it| {
        it.field(memory("memory.max_usage_in_bytes"), memory("memory.peak"))
    }),
    ("container_memory_working_set_bytes", Gauge, "Current working set in bytes.", &[], |it| {
        vec![(Vec::new(), it.used.memory_working_set_bytes)]
    }),
    ("container_memory_total_active_file_bytes", Gauge, "Current total active file in bytes.", &[], |it| {
        it.field(stat("total_active_file"), stat("active_file"))
    }),
    (
        "container_memory_total_inactive_file_bytes",
        Gauge,
        "Current total inactive file in bytes.",
        &[],
        |it| it.field(stat("total_inactive_file"), stat("inactive_file")),
    ),
    (
        "container_memory_failures_total",
        Counter,
        "Cumulative count of memory allocation failures.",
        FAILURE,
        |it| it.failures(&[("pgfault", "total_pgfault"), ("pgmajfault", "total_pgmajfault")]),
    ),
    (
        "container_oom_events_total",
        Counter,
        "Count of out of memory events observed for the container",
        &[],
        |it| vec![(Vec::new(), it.used.oom_kills)],
    ),
    ("container_hugetlb_usage_bytes", Gauge, "Current hugepage usage", &["pagesize"], |it| {
        it.huge_pages("usage_in_bytes", "current")
    }),
    ("container_hugetlb_max_usage_bytes", Gauge, "Maximum hugepage usages recorded", &["pagesize"], |it| {
        it.huge_pages("max_usage_in_bytes", "peak")
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
        it.io("bytes", "Read")
    }),
    ("container_fs_reads_total", Counter, "Cumulative count of reads completed", DEVICE, |it| {
        it.io("count", "Read")
    }),
    ("container_fs_writes_bytes_total", Counter, "Cumulative count of bytes written", DEVICE, |it| {
        it.io("bytes", "Write")
    }),
    ("container_fs_writes_total", Counter, "Cumulative count of writes completed", DEVICE, |it| {
        it.io("count", "Write")
    }),
    ("container_blkio_device_usage_total", Counter, "Blkio Device bytes usage", DEVICE_OPERATION, |it| {
        let with_numbers = |(device, operation, bytes): (String, &str, u64)| {
            let (major, minor) = device.split_once(':').unwrap_or_default();
            (vec![device_name(&device), major.to_owned(), minor.to_owned(), operation.to_owned()], bytes)
        };
        it.transfers("bytes").into_iter().map(with_numbers).collect()
    }),
    ("container_processes", Gauge, "Number of processes running inside the container.", &[], |it| {
        vec![(Vec::new(), as_u64(it.processes.len()))]
    }),
    ("container_file_descriptors", Gauge, "Number of open file descriptors for the container.", &[], |it| {
        vec![(Vec::new(), as_u64(it.open_files.0))]
    }),
    ("container_sockets", Gauge, "Number of open sockets for the container.", &[], |it| {
        vec![(Vec::new(), as_u64(it.open_files.1))]
    }),
    ("container_threads", Gauge, "Number of threads running inside the container", &[], |it| {
        it.same(("pids", "pids.current", "", 1))
    }),
    (
        "container_threads_max",
        Gauge,
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        &[],
        |it| it.same(("pids", "pids.max", "", 1)),
    ),
    (
        "container_ulimits_soft",
        Gauge,
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        &["ulimit"],
        |it| it.open_files_max.map(|max| (vec!["max_open_files".to_owned()], max)).into_iter().collect(),
    ),
    ("container_last_seen", Gauge, "Last time a container was seen by the exporter", &[], |it| {
        vec![(Vec::new(), it.now / SECOND_NS)]
    }),
    (
        "container_start_time_seconds",
        Gauge,
        "Start time of the container since unix epoch in seconds.",
        &[],
        |it| vec![(Vec::new(), it.started_at / SECOND_NS)],
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
        |it| it.pressure("cpu", "cpu.pressure", |psi| psi.some),
    ),
    (
        "container_pressure_cpu_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        &[],
        |it| it.pressure("cpu", "cpu.pressure", |psi| psi.full),
    ),
    (
        "container_pressure_memory_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to memory congestion.",
        &[],
        |it| it.pressure("memory", "memory.pressure", |psi| psi.some),
    ),
    (
        "container_pressure_memory_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        &[],
        |it| it.pressure("memory", "memory.pressure", |psi| psi.full),
    ),
    (
        "container_pressure_io_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to IO congestion.",
        &[],
        |it| it.pressure("io", "io.pressure", |psi| psi.some),
    ),
    (
        "container_pressure_io_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        &[],
        |it| it.pressure("io", "io.pressure", |psi| psi.full),
    ),
];

/// The families of containers; `links` are those of sandboxes, by name and help.
pub(crate) fn descriptors<'a>(links: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<v1::MetricDescriptor> {
    let descriptor = |(name, help, more): (&str, &str, &[&str])| v1::MetricDescriptor {
        name: name.to_owned(),
        help: help.to_owned(),
        label_keys: LABELS.iter().chain(more).map(|label| (*label).to_owned()).collect(),
    };
    let containers = FAMILIES.iter().map(|(name, _, help, more, _)| (*name, *help, *more));
    let links = links.map(|(name, help)| (name, help, &["interface"][..]));
    containers.chain(links).map(descriptor).collect()
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
    (sandbox, container): (&Sandbox, &Container),
    (folder, written): (&Path, u64),
    now: i64,
) -> Vec<v1::Metric> {
    let labels = labels(sandbox, Some(container));
    let look = Look::at(cgroups, container, (folder, written), now);
    let series = |(name, kind, _, _, values): &Family| {
        let metric = |(more, value): (Vec<String>, u64)| v1::Metric {
            name: (*name).to_owned(),
            timestamp: now,
            metric_type: (*kind).into(),
            label_values: labels.iter().cloned().chain(more).collect(),
            value: Some(v1::UInt64Value { value }),
        };
        values(&look).into_iter().map(metric).collect::<Vec<_>>()
    };
    FAMILIES.iter().flat_map(series).collect()
}

/// Files by controller and name; `None` is one that is not there.
type Texts = BTreeMap<(&'static str, String), Option<Rc<str>>>;
type Reader<'a> = Box<dyn Fn(&str, &str) -> Option<String> + 'a>;

/// What there is to know of a container at one moment; each file is read once.
struct Look<'a> {
    version: Version,
    read: Reader<'a>,
    texts: RefCell<Texts>,
    used: sys::cgroup::Stats,
    limits: v1::LinuxContainerResources,
    processes: Vec<i32>,
    /// All, and those that are sockets.
    open_files: (usize, usize),
    open_files_max: Option<u64>,
    /// Bytes used and in all, inodes in all and free.
    disk: Option<(u64, u64, u64, u64)>,
    now: u64,
    started_at: u64,
}

impl<'a> Look<'a> {
    fn at(cgroups: &'a Cgroups, container: &'a Container, (folder, written): (&Path, u64), now: i64) -> Self {
        let cgroup = &container.record.cgroup;
        let started = match *container.status.borrow() {
            Status::Running(Started { pid, at, .. }) => Some((pid, at)),
            _ => None,
        };
        let limits = started.and_then(|(pid, _)| fs::read_to_string(format!("/proc/{pid}/limits")).ok());
        let processes = cgroups.processes(cgroup);
        let disk = nix::sys::statvfs::statvfs(folder).ok().map(|disk| {
            (written, disk.blocks() * disk.fragment_size(), disk.files(), disk.files_available())
        });
        Self {
            version: cgroups.version(),
            read: Box::new(|controller, file| {
                fs::read_to_string(cgroups.dir_of(controller, cgroup)?.join(file)).ok()
            }),
            texts: RefCell::default(),
            used: cgroups.stats(cgroup),
            limits: container.config.linux.as_ref().and_then(|it| it.resources.clone()).unwrap_or_default(),
            open_files: open_files(&processes),
            processes,
            open_files_max: limits.as_deref().and_then(open_files_max),
            disk,
            now: u64::try_from(now).unwrap_or_default(),
            started_at: started.and_then(|(_, at)| u64::try_from(at).ok()).unwrap_or_default(),
        }
    }

    fn text(&self, controller: &'static str, file: &str) -> Option<Rc<str>> {
        let mut texts = self.texts.borrow_mut();
        let read = || (self.read)(controller, file).map(Rc::from);
        texts.entry((controller, file.to_owned())).or_insert_with(read).clone()
    }

    fn number(&self, (controller, file, key, per): Field) -> Option<u64> {
        let text = self.text(controller, file)?;
        let word = match key {
            "" => text.trim(),
            key => text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?.trim(),
        };
        let number = if word == "max" { 0 } else { word.parse().ok()? };
        Some(if number >= UNLIMITED { 0 } else { number / per })
    }

    fn field(&self, v1: Field, v2: Field) -> Values {
        let field = if self.version == Version::V1 { v1 } else { v2 };
        self.number(field).map(|value| (Vec::new(), value)).into_iter().collect()
    }

    /// In both versions alike.
    fn same(&self, field: Field) -> Values {
        self.field(field, field)
    }

    fn limit(&self, pick: fn(&v1::LinuxContainerResources) -> i64) -> Values {
        let limit = u64::try_from(pick(&self.limits)).ok().filter(|limit| *limit > 0);
        limit.map(|limit| (Vec::new(), limit)).into_iter().collect()
    }

    /// Kinds, and what version 1 calls them with those of the cgroups below.
    fn failures(&self, kinds: &[(&'static str, &'static str)]) -> Values {
        let mut all = Vec::new();
        for &(kind, in_all) in kinds {
            let hierarchy = if self.version == Version::V1 { in_all } else { kind };
            for (key, scope) in [(kind, "container"), (hierarchy, "hierarchy")] {
                let value = self.number(stat(key));
                all.extend(value.map(|value| (vec![kind.to_owned(), scope.to_owned()], value)));
            }
        }
        all
    }

    fn disk(&self, pick: fn((u64, u64, u64, u64)) -> u64) -> Values {
        self.disk.map(|disk| (vec!["/".to_owned()], pick(disk))).into_iter().collect()
    }

    /// Of the sizes that the machine has, such as `2MB`.
    fn huge_pages(&self, v1: &str, v2: &str) -> Values {
        let name = if self.version == Version::V1 { v1 } else { v2 };
        let of_size = |size: String| {
            let text = self.text("hugetlb", &format!("hugetlb.{size}.{name}"))?;
            Some((vec![size], text.trim().parse().ok()?))
        };
        huge_page_sizes().into_iter().filter_map(of_size).collect()
    }

    /// What has gone to disks and come from them: device, operation, and its bytes or how often.
    fn transfers(&self, what: &str) -> Vec<(String, &'static str, u64)> {
        let (file, keys) = match (self.version, what) {
            (Version::V1, "bytes") => ("blkio.throttle.io_service_bytes_recursive", ["Read", "Write"]),
            (Version::V1, _) => ("blkio.throttle.io_serviced_recursive", ["Read", "Write"]),
            (Version::V2, "bytes") => ("io.stat", ["rbytes=", "wbytes="]),
            (Version::V2, _) => ("io.stat", ["rios=", "wios="]),
        };
        let controller = if self.version == Version::V1 { "blkio" } else { "io" };
        let text = self.text(controller, file).unwrap_or_default();
        let of_line = |line: &str| {
            let (device, rest) = line.split_once(' ')?;
            let value = |key: &str| {
                let words = rest.strip_prefix(key).into_iter();
                let mut words = words.chain(rest.split(' ').filter_map(|word| word.strip_prefix(key)));
                words.find_map(|word| word.trim().parse::<u64>().ok())
            };
            let named = ["Read", "Write"].into_iter().zip(keys);
            let values = named.filter_map(|(name, key)| Some((device.to_owned(), name, value(key)?)));
            Some(values.collect::<Vec<_>>())
        };
        text.lines().filter_map(of_line).flatten().collect()
    }

    fn io(&self, what: &str, operation: &str) -> Values {
        let wanted = self.transfers(what).into_iter().filter(|(_, name, _)| *name == operation);
        wanted.map(|(device, _, value)| (vec![device_name(&device)], value)).collect()
    }

    fn pressure(
        &self,
        controller: &'static str,
        file: &str,
        pick: fn(v1::PsiStats) -> Option<v1::PsiData>,
    ) -> Values {
        let stall = self.text(controller, file).and_then(|text| pick(psi(&text)));
        stall.map(|stall| (Vec::new(), stall.total / SECOND_NS)).into_iter().collect()
    }
}

/// Such as `/dev/sda`; its numbers if it has no name.
fn device_name(numbers: &str) -> String {
    let event = fs::read_to_string(format!("/sys/dev/block/{numbers}/uevent")).unwrap_or_default();
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    name.map_or_else(|| numbers.to_owned(), |name| format!("/dev/{name}"))
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same with `full`; the total is in microseconds.
pub(crate) fn psi(text: &str) -> v1::PsiStats {
    let data = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        let word = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let average = |name| word(name).and_then(|number| number.parse().ok()).unwrap_or_default();
        Some(v1::PsiData {
            total: word("total")?.trim().parse::<u64>().ok()?.saturating_mul(1000),
            avg10: average("avg10"),
            avg60: average("avg60"),
            avg300: average("avg300"),
        })
    };
    v1::PsiStats { full: data("full"), some: data("some") }
}

/// How many files processes have open, and how many of them are sockets.
fn open_files(processes: &[i32]) -> (usize, usize) {
    let folders = processes.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    let mut count = (0, 0);
    for file in folders.flat_map(Iterator::flatten) {
        count.0 += 1;
        let target = fs::read_link(file.path());
        count.1 += usize::from(target.is_ok_and(|target| target.to_string_lossy().starts_with("socket:")));
    }
    count
}

/// `Max open files  1024  4096  files`
fn open_files_max(limits: &str) -> Option<u64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// As cgroups call them.
fn huge_page_sizes() -> Vec<String> {
    let entries = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let size = |name: &str| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let (mib, gib) = (kib >> 10, kib >> 20);
        Some(match (gib, mib) {
            (1.., _) => format!("{gib}GB"),
            (_, 1..) => format!("{mib}MB"),
            _ => format!("{kib}KB"),
        })
    };
    let mut sizes: Vec<_> = entries.filter_map(|entry| size(&entry.file_name().to_string_lossy())).collect();
    sizes.sort_unstable();
    sizes
}

fn as_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
