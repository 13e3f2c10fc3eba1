//! The usage of containers and sandboxes by the kernel's counters, as CRI's stats and as its metrics.
//!
//! A sandbox's use is its containers' together: its shim is the runtime's own and works for nobody in the Pod.

use std::sync::Arc;

use cri::link_counters::LINK_COUNTERS;
use cri::{CriResult, v1};
use sys::tree::Size;
use sys::usage::{Link, PACKET_COUNTERS, Pressure, Stall, Usage};

use crate::filters::has_labels;
use crate::metrics;
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
        let Some(links) = links(sandbox) else { return Vec::new() };
        let (of_sandbox, timestamp) = (metrics::labels(sandbox, None), self.now());
        let of_link = |link: Link| {
            let labels = [of_sandbox.as_slice(), std::slice::from_ref(&link.name)].concat();
            let packets = PACKET_COUNTERS.map(|(name, _, pick)| (name, value(pick(&link))));
            let usage = interface(link);
            let others = LINK_COUNTERS.map(|(name, _, pick)| (name, pick(&usage)));
            others.into_iter().chain(packets).map(move |(name, value)| v1::Metric {
                name: name.to_owned(),
                timestamp,
                metric_type: v1::MetricType::Counter.into(),
                label_values: labels.clone(),
                value,
            })
        };
        links.into_iter().flat_map(of_link).collect()
    }

    fn metrics(&self, sandbox: &Sandbox, container: &Container) -> Vec<v1::Metric> {
        let dir = self.container_dir(container);
        let written = self.layer(container).bytes;
        metrics::of_container(&self.cgroups, sandbox, container, &dir, written, self.now())
    }

    /// What all containers have written into their own file systems.
    pub(crate) fn written(&self) -> Size {
        let containers: Vec<_> = self.tables.lock().containers.values().cloned().collect();
        containers.iter().map(|container| self.layer(container)).fold(Size::default(), Size::plus)
    }

    fn layer(&self, container: &Container) -> Size {
        sys::tree::size(&self.container_dir(container).join("upper"))
    }

    fn used(&self, container: &Container) -> Usage {
        self.cgroups.usage(&container.record.cgroup)
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
        let sum = |pick: fn(&Usage) -> u64| used.iter().map(pick).sum::<u64>();
        let pod = self.cgroups.usage(&self.cgroup_parent(sandbox));
        let all = Usage {
            cpu_ns: sum(|used| used.cpu_ns),
            memory_bytes: sum(|used| used.memory_bytes),
            working_set_bytes: sum(|used| used.working_set_bytes),
            rss_bytes: sum(|used| used.rss_bytes),
            page_faults: sum(|used| used.page_faults),
            major_page_faults: sum(|used| used.major_page_faults),
            threads: sum(|used| used.threads),
            memory_limit_bytes: pod.memory_limit_bytes,
            pressure: pod.pressure,
            ..Usage::default()
        };
        let timestamp = self.now();
        let stats = |(container, used)| stats(self, container, used);
        v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes {
                id: sandbox.id.clone(),
                metadata: sandbox.config.metadata.clone(),
                labels: sandbox.config.labels.clone(),
                annotations: sandbox.config.annotations.clone(),
            }),
            linux: Some(v1::LinuxPodSandboxStats {
                cpu: Some(cpu(&all, timestamp)),
                memory: Some(memory(&all, timestamp)),
                io: io(&all, timestamp),
                network: network(sandbox, timestamp),
                process: Some(v1::ProcessUsage { timestamp, process_count: value(all.threads) }),
                containers: containers.iter().zip(&used).map(stats).collect(),
            }),
            windows: None,
        }
    }
}

/// What [`Inner::pod_sandbox_metrics`] has.
pub(crate) fn descriptors() -> Vec<v1::MetricDescriptor> {
    let packets = PACKET_COUNTERS.map(|(name, help, _)| (name, help));
    metrics::descriptors(LINK_COUNTERS.map(|(name, help, _)| (name, help)).into_iter().chain(packets))
}

fn stats(inner: &Inner, container: &Container, used: &Usage) -> v1::ContainerStats {
    let timestamp = inner.now();
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.id.clone(),
            metadata: container.config.metadata.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
        }),
        cpu: Some(cpu(used, timestamp)),
        memory: Some(memory(used, timestamp)),
        io: io(used, timestamp),
        writable_layer: Some(writable_layer(inner, container, timestamp)),
        swap: Some(v1::SwapUsage {
            timestamp,
            swap_available_bytes: left(used.swap_limit_bytes, used.swap_bytes),
            swap_usage_bytes: value(used.swap_bytes),
        }),
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

/// Nothing is left of no limit.
fn left(limit: u64, used: u64) -> Option<v1::UInt64Value> {
    if limit == 0 { None } else { value(limit.saturating_sub(used)) }
}

/// Of CPU (0), memory (1) or disks (2), in nanoseconds; `None` where the kernel does not tell.
fn psi(used: &Usage, resource: usize) -> Option<v1::PsiStats> {
    let Pressure { some, full } = *used.pressure.as_ref()?.get(resource)?;
    let data = |Stall { averages: [avg10, avg60, avg300], total_us }: Stall| {
        Some(v1::PsiData { total: total_us.saturating_mul(1000), avg10, avg60, avg300 })
    };
    Some(v1::PsiStats { full: data(full), some: data(some) })
}

fn cpu(used: &Usage, timestamp: i64) -> v1::CpuUsage {
    let usage_core_nano_seconds = value(used.cpu_ns);
    v1::CpuUsage { timestamp, usage_core_nano_seconds, usage_nano_cores: None, psi: psi(used, 0) }
}

fn memory(used: &Usage, timestamp: i64) -> v1::MemoryUsage {
    v1::MemoryUsage {
        timestamp,
        working_set_bytes: value(used.working_set_bytes),
        available_bytes: left(used.memory_limit_bytes, used.working_set_bytes),
        usage_bytes: value(used.memory_bytes),
        rss_bytes: value(used.rss_bytes),
        page_faults: value(used.page_faults),
        major_page_faults: value(used.major_page_faults),
        psi: psi(used, 1),
    }
}

fn io(used: &Usage, timestamp: i64) -> Option<v1::IoUsage> {
    psi(used, 2).map(|psi| v1::IoUsage { timestamp, psi: Some(psi) })
}

/// The sandbox's links; `None` if it has the host's network, or none any more.
fn links(sandbox: &Sandbox) -> Option<Vec<Link>> {
    let netns = sys::netns::NetNs::open(sandbox.record.netns.as_ref()?).ok()?;
    // The thread's own: the process is in the host's namespace.
    let text = netns.run(|| Ok(std::fs::read_to_string("/proc/thread-self/net/dev"))).ok()?.ok()?;
    Some(sys::usage::links(&text))
}

/// What CRI's messages have of them.
fn network(sandbox: &Sandbox, timestamp: i64) -> Option<v1::NetworkUsage> {
    let mut links: Vec<_> = links(sandbox)?.into_iter().map(interface).collect();
    let default = links.iter().position(|link| link.name == "eth0").map(|at| links.remove(at));
    Some(v1::NetworkUsage { timestamp, default_interface: default, interfaces: links })
}

fn interface(Link { name, rx, tx }: Link) -> v1::NetworkInterfaceUsage {
    v1::NetworkInterfaceUsage {
        name,
        rx_bytes: value(rx.bytes),
        rx_errors: value(rx.errors),
        tx_bytes: value(tx.bytes),
        tx_errors: value(tx.errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_has_averages_and_nanoseconds() {
        let some = Stall { averages: [1.5, 0.2, 0.1], total_us: 3500 };
        let io = Pressure { some, full: Stall::default() };
        let used =
            Usage { pressure: Some([Pressure::default(), Pressure::default(), io]), ..Usage::default() };
        let found = super::io(&used, 7).unwrap().psi.unwrap().some;
        assert_eq!(found, Some(v1::PsiData { total: 3_500_000, avg10: 1.5, avg60: 0.2, avg300: 0.1 }));
    }

    #[test]
    fn what_is_left_of_a_limit_is_told_where_there_is_one() {
        let used =
            Usage { memory_limit_bytes: 100, working_set_bytes: 30, page_faults: 4, ..Usage::default() };
        let told = memory(&used, 7);
        assert_eq!((told.available_bytes, told.page_faults), (value(70), value(4)));
        assert_eq!(memory(&Usage { memory_limit_bytes: 0, ..used }, 7).available_bytes, None);
        assert_eq!(io(&used, 7), None);
    }
}
