//! What containers and sandboxes use, as the kernel's counters have it, as CRI's stats and as its metrics.
//!
//! A sandbox's use is its containers' together: its shim is the runtime's own and works for nobody in the Pod.

use std::sync::Arc;

use cri::link_counters::{LINK_COUNTERS, LinkCounter};
use cri::{CriResult, v1};
use sys::tree::Size;

use crate::metrics;
use crate::service::has_labels;
use crate::state::{Container, Inner, Sandbox, Status, blocking, sandboxes_dir};

impl Inner {
    pub(crate) async fn container_stats(self: &Arc<Self>, id: &str) -> CriResult<v1::ContainerStats> {
        let (this, container) = (Arc::clone(self), self.container(id)?);
        blocking(move || Ok(stats(&this, &container, &this.used(&container)))).await
    }

    pub(crate) async fn list_container_stats(
        self: &Arc<Self>,
        filter: v1::ContainerStatsFilter,
    ) -> CriResult<Vec<v1::ContainerStats>> {
        let this = Arc::clone(self);
        blocking(move || {
            let wanted = |container: &&Container| {
                container.id.starts_with(&filter.id)
                    && container.sandbox.starts_with(&filter.pod_sandbox_id)
                    && has_labels(&container.config.labels, &filter.label_selector)
            };
            let containers = this.running(None);
            let stats = |container| stats(&this, container, &this.used(container));
            Ok(containers.iter().filter(wanted).map(stats).collect())
        })
        .await
    }

    pub(crate) async fn pod_sandbox_stats(self: &Arc<Self>, id: &str) -> CriResult<v1::PodSandboxStats> {
        let (this, sandbox) = (Arc::clone(self), self.sandbox(id)?);
        blocking(move || Ok(this.sandbox_stats(&sandbox))).await
    }

    pub(crate) async fn list_pod_sandbox_stats(
        self: &Arc<Self>,
        filter: v1::PodSandboxStatsFilter,
    ) -> CriResult<Vec<v1::PodSandboxStats>> {
        let this = Arc::clone(self);
        blocking(move || {
            let wanted = |sandbox: &&Sandbox| {
                sandbox.id.starts_with(&filter.id)
                    && has_labels(&sandbox.config.labels, &filter.label_selector)
            };
            let sandboxes = this.ready_sandboxes();
            Ok(sandboxes.iter().filter(wanted).map(|sandbox| this.sandbox_stats(sandbox)).collect())
        })
        .await
    }

    pub(crate) async fn pod_sandbox_metrics(self: &Arc<Self>) -> CriResult<Vec<v1::PodSandboxMetrics>> {
        let this = Arc::clone(self);
        blocking(move || {
            let of_container = |sandbox: &Sandbox, container: &Container| v1::ContainerMetrics {
                container_id: container.id.clone(),
                metrics: this.metrics(sandbox, container),
            };
            let of_sandbox = |sandbox: &Sandbox| v1::PodSandboxMetrics {
                pod_sandbox_id: sandbox.id.clone(),
                metrics: this.link_metrics(sandbox),
                container_metrics: this
                    .running(Some(&sandbox.id))
                    .iter()
                    .map(|container| of_container(sandbox, container))
                    .collect(),
            };
            Ok(this.ready_sandboxes().iter().map(of_sandbox).collect())
        })
        .await
    }

    /// None of a sandbox in the host's network, whose links are not its own.
    fn link_metrics(&self, sandbox: &Sandbox) -> Vec<v1::Metric> {
        let Some(network) = network(sandbox, self.now()) else { return Vec::new() };
        let of_sandbox = metrics::labels(sandbox, None);
        let of_link = |link: &v1::NetworkInterfaceUsage| {
            let labels = [of_sandbox.as_slice(), std::slice::from_ref(&link.name)].concat();
            let metric = |(name, _, pick): &LinkCounter| v1::Metric {
                name: (*name).to_owned(),
                timestamp: network.timestamp,
                metric_type: v1::MetricType::Counter.into(),
                label_values: labels.clone(),
                value: pick(link),
            };
            LINK_COUNTERS.iter().map(metric).collect::<Vec<_>>()
        };
        network.default_interface.iter().chain(&network.interfaces).flat_map(of_link).collect()
    }

    fn metrics(&self, sandbox: &Sandbox, container: &Container) -> Vec<v1::Metric> {
        let dir = self.container_dir(container);
        let written = self.layer(container).bytes;
        metrics::of_container(&self.cgroups, (sandbox, container), (&dir, written), self.now())
    }

    /// What all containers have written into their own file systems.
    pub(crate) fn written(&self) -> Size {
        let containers: Vec<_> = self.tables.lock().containers.values().cloned().collect();
        containers.iter().map(|container| self.layer(container)).fold(Size::default(), Size::plus)
    }

    fn layer(&self, container: &Container) -> Size {
        sys::tree::size(&self.container_dir(container).join("upper"))
    }

    fn used(&self, container: &Container) -> sys::cgroup::Stats {
        self.cgroups.stats(&container.record.cgroup)
    }

    fn ready_sandboxes(&self) -> Vec<Sandbox> {
        let tables = self.tables.lock();
        tables.sandboxes.values().filter(|sandbox| !sandbox.record.is_stopped).cloned().collect()
    }

    fn running(&self, sandbox: Option<&str>) -> Vec<Container> {
        let tables = self.tables.lock();
        let wanted = |container: &&Container| {
            sandbox.is_none_or(|sandbox| container.sandbox == sandbox)
                && matches!(*container.status.borrow(), Status::Running(_))
        };
        tables.containers.values().filter(wanted).cloned().collect()
    }

    fn sandbox_stats(&self, sandbox: &Sandbox) -> v1::PodSandboxStats {
        let containers = self.running(Some(&sandbox.id));
        let used: Vec<_> = containers.iter().map(|container| self.used(container)).collect();
        let sum = |pick: fn(&sys::cgroup::Stats) -> u64| used.iter().map(pick).sum::<u64>();
        let all = sys::cgroup::Stats {
            cpu_usage_ns: sum(|used| used.cpu_usage_ns),
            memory_usage_bytes: sum(|used| used.memory_usage_bytes),
            memory_working_set_bytes: sum(|used| used.memory_working_set_bytes),
            memory_rss_bytes: sum(|used| used.memory_rss_bytes),
            pids: sum(|used| used.pids),
            oom_kills: sum(|used| used.oom_kills),
        };
        let timestamp = self.now();
        let stats = |(container, used)| stats(self, container, used);
        let pod = self.cgroup_parent(sandbox);
        let pressure = |controller, file| pressure(self, &pod, controller, file);
        v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes {
                id: sandbox.id.clone(),
                metadata: sandbox.config.metadata.clone(),
                labels: sandbox.config.labels.clone(),
                annotations: sandbox.config.annotations.clone(),
            }),
            linux: Some(v1::LinuxPodSandboxStats {
                cpu: Some(cpu(&all, timestamp, pressure("cpu", "cpu.pressure"))),
                memory: Some(memory(&all, timestamp, pressure("memory", "memory.pressure"))),
                io: io(timestamp, pressure("io", "io.pressure")),
                network: network(sandbox, timestamp),
                process: Some(v1::ProcessUsage { timestamp, process_count: value(all.pids) }),
                containers: containers.iter().zip(&used).map(stats).collect(),
            }),
            windows: None,
        }
    }
}

/// What [`Inner::pod_sandbox_metrics`] has.
pub(crate) fn descriptors() -> Vec<v1::MetricDescriptor> {
    metrics::descriptors(LINK_COUNTERS.iter().map(|(name, help, _)| (*name, *help)))
}

fn stats(inner: &Inner, container: &Container, used: &sys::cgroup::Stats) -> v1::ContainerStats {
    let timestamp = inner.now();
    let pressure = |controller, file| pressure(inner, &container.record.cgroup, controller, file);
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: container.config.metadata.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
        }),
        cpu: Some(cpu(used, timestamp, pressure("cpu", "cpu.pressure"))),
        memory: Some(memory(used, timestamp, pressure("memory", "memory.pressure"))),
        io: io(timestamp, pressure("io", "io.pressure")),
        writable_layer: Some(writable_layer(inner, container, timestamp)),
        swap: None,
    }
}

/// What the container has written into its own file system.
fn writable_layer(inner: &Inner, container: &Container, timestamp: i64) -> v1::FilesystemUsage {
    let used = inner.layer(container);
    let mountpoint = sandboxes_dir(&inner.config.data_dir).display().to_string();
    v1::FilesystemUsage {
        timestamp,
        fs_id: Some(v1::FilesystemIdentifier { mountpoint }),
        used_bytes: value(used.bytes),
        inodes_used: value(used.inodes),
    }
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

/// `None` where the kernel does not tell: cgroups of version 1 have none.
fn pressure(inner: &Inner, cgroup: &str, controller: &str, file: &str) -> Option<v1::PsiStats> {
    let path = inner.cgroups.dir_of(controller, cgroup)?.join(file);
    Some(metrics::psi(&std::fs::read_to_string(path).ok()?))
}

fn cpu(used: &sys::cgroup::Stats, timestamp: i64, psi: Option<v1::PsiStats>) -> v1::CpuUsage {
    let usage_core_nano_seconds = value(used.cpu_usage_ns);
    v1::CpuUsage { timestamp, usage_core_nano_seconds, usage_nano_cores: None, psi }
}

fn io(timestamp: i64, psi: Option<v1::PsiStats>) -> Option<v1::IoUsage> {
    psi.map(|psi| v1::IoUsage { timestamp, psi: Some(psi) })
}

fn memory(used: &sys::cgroup::Stats, timestamp: i64, psi: Option<v1::PsiStats>) -> v1::MemoryUsage {
    v1::MemoryUsage {
        timestamp,
        working_set_bytes: value(used.memory_working_set_bytes),
        usage_bytes: value(used.memory_usage_bytes),
        rss_bytes: value(used.memory_rss_bytes),
        psi,
        ..Default::default()
    }
}

/// The counters of the sandbox's links; none if it has the host's network, or none any more.
fn network(sandbox: &Sandbox, timestamp: i64) -> Option<v1::NetworkUsage> {
    let netns = sys::netns::NetNs::open(sandbox.record.netns.as_ref()?).ok()?;
    // The thread's own: the process is in the host's namespace.
    let text = netns.run(|| Ok(std::fs::read_to_string("/proc/thread-self/net/dev"))).ok()?.ok()?;
    let mut links = links(&text);
    let default = links.iter().position(|link| link.name == "eth0").map(|at| links.remove(at));
    Some(v1::NetworkUsage { timestamp, default_interface: default, interfaces: links })
}

/// Reads `/proc/net/dev`; loopback is nobody's traffic.
fn links(text: &str) -> Vec<v1::NetworkInterfaceUsage> {
    let link = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> = counters.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let counter = |at: usize| counters.get(at).copied().and_then(value);
        let name = name.trim().to_owned();
        (name != "lo").then(|| v1::NetworkInterfaceUsage {
            name,
            rx_bytes: counter(0),
            rx_errors: counter(2),
            tx_bytes: counter(8),
            tx_errors: counter(10),
        })
    };
    text.lines().filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_their_bytes_and_errors() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n  eth0: 100 2 3 4 5 6 7 8 900 10 11 12 13 14 15 16\n";
        let found = links(text);
        let [eth0] = found.as_slice() else { panic!("{found:?}") };
        let values = [&eth0.rx_bytes, &eth0.rx_errors, &eth0.tx_bytes, &eth0.tx_errors];
        assert_eq!(eth0.name, "eth0");
        assert_eq!(values.map(|value| value.map(|value| value.value)), [100, 3, 900, 11].map(Some));
    }
}
