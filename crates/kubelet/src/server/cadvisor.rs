//! `/metrics/cadvisor`: everything that the kernel counts of containers, Pods and the machine. Pure.
//!
//! Names, helps and labels are cAdvisor's as upstream's kubelet shows them: `id` is the cgroup, a Pod's own series have
//! no container, the machine's no Pod. What upstream's kubelet leaves off has no family here, nor what it never counts
//! (load averages and states of tasks, which are always 0). Source: `google/cadvisor/metrics/prometheus.go`.

mod io;

use cri::link_counters::LINK_COUNTERS;
use cri::v1;
use sys::usage::metrics::{Kind, USAGE_METRICS};
use sys::usage::{Link, PACKET_COUNTERS, Usage};

use super::exposition::{Exposition, number, seconds};
use crate::machine::Machine;
use crate::stats::{Look, PodStats};

/// Family, kind, help, more labels, and the value of a cgroup.
type Row =
    (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)], fn(&Usage) -> f64);

const ROWS: &[Row] = &[
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time consumed in seconds.",
        &[("cpu", "total")],
        |u| seconds(u.cpu_ns),
    ),
    (
        "container_cpu_user_seconds_total",
        "counter",
        "Cumulative user cpu time consumed in seconds.",
        &[],
        |u| seconds(u.cpu_user_ns),
    ),
    (
        "container_cpu_system_seconds_total",
        "counter",
        "Cumulative system cpu time consumed in seconds.",
        &[],
        |u| seconds(u.cpu_system_ns),
    ),
    ("container_spec_cpu_period", "gauge", "CPU period of the container.", &[], |u| number(u.cpu_period_us)),
    ("container_spec_cpu_shares", "gauge", "CPU share of the container.", &[], |u| number(u.cpu_shares)),
    ("container_spec_memory_limit_bytes", "gauge", "Memory limit for the container.", &[], |u| {
        number(u.memory_limit_bytes)
    }),
    (
        "container_spec_memory_reservation_limit_bytes",
        "gauge",
        "Memory reservation limit for the container.",
        &[],
        |u| number(u.memory_reserved_bytes),
    ),
    ("container_spec_memory_swap_limit_bytes", "gauge", "Memory swap limit for the container.", &[], |u| {
        number(u.swap_limit_bytes)
    }),
    ("container_processes", "gauge", "Number of processes running inside the container.", &[], |u| {
        number(u.processes)
    }),
];

/// What only a cgroup with a quota has.
const LIMITED: [Row; 4] = [
    (
        "container_cpu_cfs_periods_total",
        "counter",
        "Number of elapsed enforcement period intervals.",
        &[],
        |u| number(u.cfs_periods),
    ),
    (
        "container_cpu_cfs_throttled_periods_total",
        "counter",
        "Number of throttled period intervals.",
        &[],
        |u| number(u.cfs_throttled_periods),
    ),
    (
        "container_cpu_cfs_throttled_seconds_total",
        "counter",
        "Total time duration the container has been throttled.",
        &[],
        |u| seconds(u.cfs_throttled_ns),
    ),
    ("container_spec_cpu_quota", "gauge", "CPU quota of the container.", &[], |u| {
        number(u64::try_from(u.cpu_quota_us).unwrap_or_default())
    }),
];

/// One thing with series: its labels and its counters.
struct Subject<'a> {
    container: &'a str,
    id: &'a str,
    image: &'a str,
    name: &'a str,
    namespace: &'a str,
    pod: &'a str,
    created_at: i64,
    usage: &'a Usage,
}

impl<'a> Subject<'a> {
    fn labels(&self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut labels = vec![
            ("container", self.container),
            ("id", self.id),
            ("image", self.image),
            ("name", self.name),
            ("namespace", self.namespace),
            ("pod", self.pod),
        ];
        labels.extend(more);
        labels.sort_unstable();
        labels
    }
}

/// The machine. Its cgroup is the root.
const MACHINE: &str = "/";

fn subjects(look: &Look) -> Vec<Subject<'_>> {
    let of_nobody = |id, created_at, usage| Subject {
        container: "",
        id,
        image: "",
        name: "",
        namespace: "",
        pod: "",
        created_at,
        usage,
    };
    let mut all = vec![of_nobody(MACHINE, look.booted_at, &look.node)];
    all.extend(look.groups.iter().map(|group| of_nobody(&group.cgroup, group.created_at, &group.usage)));
    for pod in &look.pods {
        let of_pod = |usage, id| Subject {
            container: "",
            id,
            image: "",
            name: "",
            namespace: &pod.namespace,
            pod: &pod.name,
            created_at: pod.created_at,
            usage,
        };
        all.push(of_pod(&pod.usage, &pod.cgroup));
        all.extend(pod.containers.iter().map(|container| Subject {
            container: &container.name,
            image: &container.image,
            name: &container.id,
            created_at: container.created_at,
            ..of_pod(&container.usage, &container.cgroup)
        }));
    }
    all
}

/// The whole text.
pub(super) fn render(look: &Look, version: &str, machine: &Machine) -> String {
    let mut out = Exposition::default();
    let at = Some(look.at / 1_000_000);
    let subjects = subjects(look);
    out.family(
        "cadvisor_version_info",
        "gauge",
        "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.",
    );
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let labels = [("cadvisorRevision", ""), ("cadvisorVersion", version), ("kernelVersion", kernel.trim())];
    out.sample("cadvisor_version_info", &labels, 1.0, None);
    for (name, kind, help, value) in USAGE_METRICS {
        out.family(name, if *kind == Kind::Counter { "counter" } else { "gauge" }, help);
        for subject in &subjects {
            out.sample(name, &subject.labels(&[]), number(value(subject.usage)), at);
        }
    }
    let limited = |subject: &&Subject<'_>| subject.usage.cpu_quota_us > 0;
    rows(&mut out, ROWS, subjects.iter(), at);
    rows(&mut out, &LIMITED, subjects.iter().filter(limited), at);
    page_faults(&mut out, &subjects, at);
    pressure(&mut out, &subjects, at);
    times(&mut out, &subjects, look.at);
    for (name, help, counter) in LINK_COUNTERS {
        out.family(name, "counter", help);
        look.pods.iter().for_each(|pod| links(&mut out, name, pod, counter, at));
    }
    for (name, help, counter) in PACKET_COUNTERS {
        out.family(name, "counter", help);
        packets(&mut out, name, look, counter, at);
    }
    io::render(&mut out, look, &subjects, at);
    of_machine(&mut out, machine, look.memory.swap_total);
    out.finish()
}

fn rows<'a>(
    out: &mut Exposition,
    rows: &[Row],
    subjects: impl Iterator<Item = &'a Subject<'a>> + Clone,
    at: Option<i64>,
) {
    for (name, kind, help, more, value) in rows {
        out.family(name, kind, help);
        for subject in subjects.clone() {
            out.sample(name, &subject.labels(more), value(subject.usage), at);
        }
    }
}

/// When each began and was seen, the latter in nanoseconds since the epoch.
fn times(out: &mut Exposition, subjects: &[Subject<'_>], seen_at: i64) {
    for (name, help) in [
        ("container_start_time_seconds", "Start time of the container since unix epoch in seconds."),
        ("container_last_seen", "Last time a container was seen by the exporter"),
    ] {
        out.family(name, "gauge", help);
        for subject in subjects {
            let nanos = if name == "container_last_seen" { seen_at } else { subject.created_at };
            let time = seconds(u64::try_from(nanos).unwrap_or_default());
            out.sample(name, &subject.labels(&[]), time, Some(seen_at / 1_000_000));
        }
    }
}

fn of_machine(out: &mut Exposition, machine: &Machine, swap_total: u64) {
    let machine_labels = [
        ("boot_id", machine.boot_id.as_str()),
        ("machine_id", &machine.machine_id),
        ("system_uuid", &machine.system_uuid),
    ];
    for (name, help, labels, value) in [
        (
            "container_scrape_error",
            "1 if there was an error while getting container metrics, 0 otherwise",
            &[] as &[(&str, &str)],
            0,
        ),
        ("machine_cpu_cores", "Number of logical CPU cores.", &machine_labels, machine.cpus),
        (
            "machine_cpu_physical_cores",
            "Number of physical CPU cores.",
            &machine_labels,
            machine.physical_cores,
        ),
        ("machine_cpu_sockets", "Number of CPU sockets.", &machine_labels, machine.sockets),
        (
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            &machine_labels,
            machine.memory,
        ),
        (
            "machine_swap_bytes",
            "Amount of swap memory available on the machine.",
            &machine_labels,
            swap_total,
        ),
        (
            "machine_scrape_error",
            "1 if there was an error while getting machine metrics, 0 otherwise.",
            &[],
            0,
        ),
    ] {
        out.family(name, "gauge", help);
        out.sample(name, labels, number(value), None);
    }
}

/// Where the kernel tells of it.
fn pressure(out: &mut Exposition, subjects: &[Subject<'_>], at: Option<i64>) {
    let resources = [("cpu", "CPU"), ("memory", "memory"), ("io", "IO")];
    for (index, (resource, word)) in resources.into_iter().enumerate() {
        for kind in ["waiting", "stalled"] {
            let stalls = subjects
                .iter()
                .filter_map(|subject| Some((subject, subject.usage.pressure?.get(index).copied()?)));
            let stalls: Vec<_> = stalls.collect();
            if stalls.is_empty() {
                continue;
            }
            let name = format!("container_pressure_{resource}_{kind}_seconds_total");
            let help = match kind {
                "waiting" => format!(
                    "Total time duration tasks in the container have waited due to {word} congestion."
                ),
                _ => format!(
                    "Total time duration no tasks in the container could make progress due to {word} congestion."
                ),
            };
            out.family(&name, "counter", &help);
            for (subject, stall) in stalls {
                let part = if kind == "waiting" { stall.some } else { stall.full };
                out.sample(&name, &subject.labels(&[]), seconds(part.total_us * 1000), at);
            }
        }
    }
}

fn page_faults(out: &mut Exposition, subjects: &[Subject<'_>], at: Option<i64>) {
    let name = "container_memory_failures_total";
    out.family(name, "counter", "Cumulative count of memory allocation failures.");
    for subject in subjects {
        let usage = subject.usage;
        for (kind, scope, count) in [
            ("pgfault", "container", usage.own_page_faults),
            ("pgmajfault", "container", usage.own_major_page_faults),
            ("pgfault", "hierarchy", usage.page_faults),
            ("pgmajfault", "hierarchy", usage.major_page_faults),
        ] {
            let labels = subject.labels(&[("failure_type", kind), ("scope", scope)]);
            out.sample(name, &labels, number(count), at);
        }
    }
}

fn links(
    out: &mut Exposition,
    name: &str,
    pod: &PodStats,
    counter: fn(&v1::NetworkInterfaceUsage) -> Option<v1::UInt64Value>,
    at: Option<i64>,
) {
    let Some(network) = &pod.network else { return };
    for link in network.default_interface.iter().chain(&network.interfaces) {
        let Some(value) = counter(link) else { continue };
        out.sample(name, &link_labels(pod, &link.name), number(value.value), at);
    }
}

/// Of Pods with a network of their own: what the kernel says to one of the containers.
fn packets(out: &mut Exposition, name: &str, look: &Look, counter: fn(&Link) -> u64, at: Option<i64>) {
    for pod in look.pods.iter().filter(|pod| pod.network.is_some()) {
        let mut of_pod = pod.containers.iter().filter_map(|container| look.deep.get(&container.cgroup));
        let Some(deep) = of_pod.find(|deep| !deep.links.is_empty()) else { continue };
        for link in &deep.links {
            out.sample(name, &link_labels(pod, &link.name), number(counter(link)), at);
        }
    }
}

fn link_labels<'a>(pod: &'a PodStats, interface: &'a str) -> [(&'static str, &'a str); 7] {
    [
        ("container", ""),
        ("id", &pod.cgroup),
        ("image", ""),
        ("interface", interface),
        ("name", ""),
        ("namespace", &pod.namespace),
        ("pod", &pod.name),
    ]
}

#[cfg(test)]
mod tests {
    use sys::usage::{Device, OpenFiles, Pressure, Stall, Traffic};

    use super::super::resource_metrics::tests::look;
    use super::*;
    use crate::stats::Group;
    use crate::stats::deep::Deep;

    #[test]
    fn series_have_cadvisors_names_and_labels() {
        let mut look = look();
        let value = |value| Some(v1::UInt64Value { value });
        let link =
            v1::NetworkInterfaceUsage { name: "eth0".into(), rx_bytes: value(42), ..Default::default() };
        look.pods[0].network = Some(v1::NetworkUsage { default_interface: Some(link), ..Default::default() });
        let fs = crate::machine::file_system::FileSystem { capacity: 100, used: 40, ..Default::default() };
        look.disk = Some(("/dev/sda1".into(), fs));
        let stall = |total_us| Stall { total_us, ..Stall::default() };
        let pressure = Pressure { some: stall(2_000_000), full: stall(500_000) };
        look.node.pressure = Some([pressure; 3]);
        let links = vec![Link {
            name: "eth0".into(),
            rx: Traffic { packets: 7, ..Traffic::default() },
            ..Link::default()
        }];
        let bytes = [("Read".to_owned(), 4096)].into();
        let devices = vec![Device { major: 8, minor: 9, bytes, ..Device::default() }];
        let deep =
            Deep { open: OpenFiles { files: 9, sockets: 3 }, open_files_max: Some(1024), devices, links };
        look.deep = [("/kubepods/podu/abc".to_owned(), deep)].into();
        look.booted_at = 3_000_000_000;
        look.groups = vec![Group {
            cgroup: "/kubepods".to_owned(),
            created_at: 4_000_000_000,
            usage: Usage { cpu_quota_us: 50_000, cfs_periods: 4, ..Usage::default() },
        }];
        look.disk_counters = Some([1, 2, 3, 4000, 5, 6, 7, 8, 9, 10, 11]);
        let machine = Machine { cpus: 2, physical_cores: 1, machine_id: "m".into(), ..Machine::default() };
        let text = render(&look, "v1", &machine);
        for line in [
            "container_cpu_usage_seconds_total{container=\"main\",cpu=\"total\",id=\"/kubepods/podu/abc\",image=\"img\",name=\"abc\",namespace=\"shop\",pod=\"web\"} 1.5 7000",
            "container_memory_working_set_bytes{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 1048576 7000",
            "container_network_receive_bytes_total{container=\"\",id=\"/kubepods/podu\",image=\"\",interface=\"eth0\",name=\"\",namespace=\"shop\",pod=\"web\"} 42 7000",
            "container_network_receive_packets_total{container=\"\",id=\"/kubepods/podu\",image=\"\",interface=\"eth0\",name=\"\",namespace=\"shop\",pod=\"web\"} 7 7000",
            "container_blkio_device_usage_total{container=\"main\",device=\"8:9\",id=\"/kubepods/podu/abc\",image=\"img\",major=\"8\",minor=\"9\",name=\"abc\",namespace=\"shop\",operation=\"Read\",pod=\"web\"} 4096 7000",
            "container_fs_reads_bytes_total{container=\"main\",device=\"8:9\",id=\"/kubepods/podu/abc\",image=\"img\",name=\"abc\",namespace=\"shop\",pod=\"web\"} 4096 7000",
            "container_fs_reads_total{container=\"\",device=\"/dev/sda1\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 1 7000",
            "container_fs_read_seconds_total{container=\"\",device=\"/dev/sda1\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 4 7000",
            "container_sockets{container=\"main\",id=\"/kubepods/podu/abc\",image=\"img\",name=\"abc\",namespace=\"shop\",pod=\"web\"} 3 7000",
            "container_ulimits_soft{container=\"main\",id=\"/kubepods/podu/abc\",image=\"img\",name=\"abc\",namespace=\"shop\",pod=\"web\",ulimit=\"max_open_files\"} 1024 7000",
            "container_memory_failures_total{container=\"main\",failure_type=\"pgfault\",id=\"/kubepods/podu/abc\",image=\"img\",name=\"abc\",namespace=\"shop\",pod=\"web\",scope=\"container\"} 0 7000",
            "machine_cpu_cores{boot_id=\"\",machine_id=\"m\",system_uuid=\"\"} 2",
            "container_fs_usage_bytes{container=\"\",device=\"/dev/sda1\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 40 7000",
            "container_pressure_io_stalled_seconds_total{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 0.5 7000",
            "container_start_time_seconds{container=\"\",id=\"/kubepods\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 4 7000",
            "container_start_time_seconds{container=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 3 7000",
            "container_cpu_cfs_periods_total{container=\"\",id=\"/kubepods\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 4 7000",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
        assert_eq!(text.matches("\ncontainer_cpu_cfs_periods_total{").count(), 1, "others have no quota");
    }
}
