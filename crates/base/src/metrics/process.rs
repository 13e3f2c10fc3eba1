//! The usage of the process itself, under the names that every Prometheus client has. Linux only.
//!
//! Source: `prometheus/client_golang`, `process_collector`.

use std::fs;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;

type Number = Gauge<f64, AtomicU64>;

/// Clock ticks per second in `/proc`, whatever the machine.
const TICKS: f64 = 100.0;

const GAUGES: [(&str, &str); 5] = [
    ("process_start_time_seconds", "Start time of the process since unix epoch in seconds"),
    ("process_resident_memory_bytes", "Resident memory size in bytes"),
    ("process_virtual_memory_bytes", "Virtual memory size in bytes"),
    ("process_open_fds", "Number of open file descriptors"),
    ("process_max_fds", "Maximum number of open file descriptors"),
];

/// Adds them to a registry; they are looked up whenever it is read.
pub fn register(metrics: &Metrics) {
    let cpu = Counter::<f64, AtomicU64>::default();
    metrics.register("process_cpu_seconds", "Total user and system CPU time spent in seconds", &cpu);
    let gauges = GAUGES.map(|(name, help)| {
        let gauge = Number::default();
        metrics.register(name, help, &gauge);
        gauge
    });
    metrics.before_render(move || {
        let file = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let Some(used) =
            Used::parse(&file("self/stat"), &file("stat"), &file("self/status"), &file("self/limits"))
        else {
            return;
        };
        cpu.inner().store(used.cpu_seconds.to_bits(), std::sync::atomic::Ordering::Relaxed);
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let open = f64::from(u32::try_from(open).unwrap_or(u32::MAX));
        let values = [used.start_seconds, used.resident_bytes, used.virtual_bytes, open, used.fds_max];
        for (gauge, value) in gauges.iter().zip(values) {
            gauge.set(value);
        }
    });
}

/// What `/proc` says of a process.
#[derive(Debug, PartialEq)]
struct Used {
    cpu_seconds: f64,
    start_seconds: f64,
    resident_bytes: f64,
    virtual_bytes: f64,
    fds_max: f64,
}

impl Used {
    /// From the process's `stat`, the machine's, and the process's `status` and `limits`.
    fn parse(stat: &str, machine: &str, status: &str, limits: &str) -> Option<Self> {
        // The command's name, in brackets, may hold anything.
        let fields: Vec<f64> =
            stat.rsplit_once(')')?.1.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect();
        // Source: proc(5), whose first field after the name is number 3.
        let field = |number: usize| fields.get(number - 3).copied();
        let boot =
            machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<f64>().ok()?;
        let number = |text: &str, name: &str| -> Option<f64> {
            text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS,
            start_seconds: boot + field(22)? / TICKS,
            virtual_bytes: field(23)?,
            resident_bytes: number(status, "VmRSS:")? * 1024.0,
            fds_max: number(limits, "Max open files").unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_from_proc() {
        let stat = "7 (a ) b) S 1 1 1 0 -1 0 1 2 3 4 150 50 0 0 20 0 9 0 1000 8192 3 18446744073709551615";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        let used = Used::parse(stat, "cpu 1\nbtime 100\n", "VmHWM: 9 kB\nVmRSS:\t  12 kB\n", limits).unwrap();
        let expect = Used {
            cpu_seconds: 2.0,
            start_seconds: 110.0,
            resident_bytes: 12_288.0,
            virtual_bytes: 8192.0,
            fds_max: 1024.0,
        };
        assert_eq!(used, expect);
    }

    #[test]
    fn what_proc_does_not_say_is_not_made_up() {
        let (stat, machine, status) =
            ("7 (a) S 1 1 1 0 -1 0 1 2 3 4 150 50 0 0 20 0 9 0 1000 8192 3", "btime 100\n", "VmRSS: 12 kB\n");
        let is_there = |stat, machine, status| Used::parse(stat, machine, status, "").is_some();
        assert!(is_there(stat, machine, status), "limits may be missing");
        for (name, stat, machine, status) in [
            ("nothing", "", "", ""),
            ("no name", "7 a S 1 1 1", machine, status),
            ("cut off in the middle", "7 (a) S 1 1 1 0 -1 0 1 2 3 4 150", machine, status),
            ("no start of the machine", stat, "cpu 1\n", status),
            ("a start that is no number", stat, "btime never\n", status),
            ("a kernel thread", stat, machine, "Name: kthreadd\n"),
        ] {
            assert!(!is_there(stat, machine, status), "{name}");
        }
    }

    #[test]
    fn our_own_process_has_all_of_them() {
        let metrics = Metrics::new();
        register(&metrics);
        let text = metrics.render();
        for name in GAUGES.map(|(name, _)| name).iter().chain(&["process_cpu_seconds_total"]) {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
            assert!(line.is_some(), "{name} is not in {text}");
        }
        assert!(!text.contains("process_resident_memory_bytes 0\n"), "{text}");
    }
}
