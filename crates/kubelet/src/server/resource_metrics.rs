//! `/metrics/resource`: CPU and memory of the node, its Pods and their containers. Pure.
//!
//! Source: `pkg/kubelet/metrics/collectors/resource_metrics.go`.

use sys::usage::Usage;

use super::exposition::{Exposition, number, seconds};
use crate::stats::{ContainerStats, Look, PodStats};

/// Family, kind, help, and the value of a cgroup.
type Row = (&'static str, &'static str, &'static str, fn(&Usage) -> f64);

const NODE: [Row; 3] = [
    (
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        |usage| seconds(usage.cpu_ns),
    ),
    (
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
        |usage| number(usage.working_set_bytes),
    ),
    (
        "node_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        |usage| number(usage.swap_bytes),
    ),
];

const CONTAINER: [Row; 4] = [
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        |usage| seconds(usage.cpu_ns),
    ),
    (
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
        |usage| number(usage.working_set_bytes),
    ),
    (
        "container_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        |usage| number(usage.swap_bytes),
    ),
    (
        "container_swap_limit_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        |usage| number(usage.swap_limit_bytes),
    ),
];

const POD: [Row; 3] = [
    (
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        |usage| seconds(usage.cpu_ns),
    ),
    ("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes", |usage| {
        number(usage.working_set_bytes)
    }),
    (
        "pod_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        |usage| number(usage.swap_bytes),
    ),
];

/// The whole text.
pub(super) fn render(look: &Look) -> String {
    let mut out = Exposition::default();
    let at = Some(look.at / 1_000_000);
    for (name, kind, help, value) in NODE {
        out.family(name, kind, help);
        out.sample(name, &[], value(&look.node), at);
    }
    let containers = || look.pods.iter().flat_map(|pod| pod.containers.iter().map(move |c| (pod, c)));
    for (name, kind, help, value) in CONTAINER {
        out.family(name, kind, help);
        for (pod, container) in containers() {
            out.sample(name, &labels(pod, container), value(&container.usage), at);
        }
    }
    let name = "container_start_time_seconds";
    out.family(name, "gauge", "[STABLE] Start time of the container since unix epoch in seconds");
    // Nobody knows since when one runs that is only made.
    for (pod, container) in containers().filter(|(_, container)| container.created_at > 0) {
        let started = seconds(u64::try_from(container.created_at).unwrap_or_default());
        out.sample(name, &labels(pod, container), started, None);
    }
    for (name, kind, help, value) in POD {
        out.family(name, kind, help);
        for pod in &look.pods {
            out.sample(name, &[("namespace", &pod.namespace), ("pod", &pod.name)], value(&pod.usage), at);
        }
    }
    let (error, old) = ("resource_scrape_error", "scrape_error");
    out.family(
        error,
        "gauge",
        "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
    );
    out.sample(error, &[], 0.0, None);
    out.family(old, "gauge", "[ALPHA] 1 if there was an error while getting container metrics, 0 otherwise");
    out.sample(old, &[], 0.0, None);
    out.finish()
}

fn labels<'a>(pod: &'a PodStats, container: &'a ContainerStats) -> [(&'a str, &'a str); 3] {
    [("container", &container.name), ("namespace", &pod.namespace), ("pod", &pod.name)]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::server) fn look() -> Look {
        let usage =
            Usage { cpu_ns: 1_500_000_000, working_set_bytes: 4096, memory_bytes: 8192, ..Usage::default() };
        Look {
            at: 7_000_000_000,
            node: Usage { cpu_ns: 9_000_000_000, working_set_bytes: 1 << 20, ..Usage::default() },
            pods: vec![PodStats {
                uid: "u".into(),
                name: "web".into(),
                namespace: "shop".into(),
                cgroup: "/kubepods/podu".into(),
                usage,
                containers: vec![ContainerStats {
                    id: "abc".into(),
                    name: "main".into(),
                    image: "img".into(),
                    cgroup: "/kubepods/podu/abc".into(),
                    created_at: 5_500_000_000,
                    usage,
                }],
                ..PodStats::default()
            }],
            rates: [("/kubepods/podu/abc".to_owned(), 250_000_000)].into(),
            ..Look::default()
        }
    }

    /// Source: `TestCollectResourceMetrics` of upstream's `pkg/kubelet/metrics/collectors`.
    #[test]
    fn a_scrape_is_upstreams_to_the_letter() {
        let usage = |memory, limit| Usage {
            cpu_ns: 10_000_000_000,
            working_set_bytes: 1000,
            swap_bytes: memory,
            swap_limit_bytes: limit,
            ..Usage::default()
        };
        let container = |name: &str, seconds: i64| ContainerStats {
            name: name.into(),
            created_at: seconds * 1_000_000_000,
            usage: usage(1000, 10000),
            ..ContainerStats::default()
        };
        let pod = |name: &str, containers: Vec<ContainerStats>| PodStats {
            name: format!("pod_{name}"),
            namespace: format!("namespace_{name}"),
            usage: usage(5000, 0),
            containers,
            ..PodStats::default()
        };
        let look = Look {
            at: 1_624_396_278_302_000_000,
            node: usage(500, 0),
            pods: vec![
                pod("a", vec![container("container_a", 1_624_396_248), container("container_b", 0)]),
                pod("b", vec![container("container_a", -1)]),
            ],
            ..Look::default()
        };
        assert_eq!(render(&look), include_str!("tests/resource_metrics.txt"));
    }

    #[test]
    fn node_pods_and_containers_are_told_with_upstreams_labels() {
        let text = render(&look());
        for line in [
            "node_cpu_usage_seconds_total 9 7000",
            "container_cpu_usage_seconds_total{container=\"main\",namespace=\"shop\",pod=\"web\"} 1.5 7000",
            "container_memory_working_set_bytes{container=\"main\",namespace=\"shop\",pod=\"web\"} 4096 7000",
            "container_start_time_seconds{container=\"main\",namespace=\"shop\",pod=\"web\"} 5.5",
            "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web\"} 1.5 7000",
            "container_swap_limit_bytes{container=\"main\",namespace=\"shop\",pod=\"web\"} 0 7000",
            "resource_scrape_error 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
        }
    }
}
