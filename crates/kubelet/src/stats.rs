//! What the node and its Pods use, looked up when somebody asks and never else.
//!
//! Counters come from the containers' cgroups, whoever the runtime is; the network's from the runtime. A rate needs two
//! looks: the one before if it is recent, else a second one a moment later.
//! Source: `pkg/kubelet/stats` of upstream.

pub(crate) mod deep;
pub(crate) mod disk;
pub(crate) mod machine;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::v1;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use sys::cgroup::Cgroups;
use sys::usage::Usage;

use crate::machine::file_system;
use crate::metrics::Measure;
use crate::node_resources::NodeResources;
use crate::pod::labels;
use machine::Memory;

/// Looks that are closer together give the same rates.
const WINDOW_MIN: Duration = Duration::from_millis(500);
/// A look that is longer ago says nothing about now.
const WINDOW_MAX: Duration = Duration::from_secs(120);

/// One container that runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContainerStats {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) cgroup: String,
    /// Nanoseconds since the epoch.
    pub(crate) created_at: i64,
    pub(crate) usage: Usage,
}

/// One Pod that runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodStats {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) cgroup: String,
    pub(crate) created_at: i64,
    pub(crate) usage: Usage,
    pub(crate) network: Option<v1::NetworkUsage>,
    pub(crate) containers: Vec<ContainerStats>,
}

/// A cgroup with those of Pods in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) cgroup: String,
    /// Nanoseconds since the epoch, as cAdvisor has it: what the folder says.
    pub(crate) created_at: i64,
    pub(crate) usage: Usage,
}

/// A look at everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Nanoseconds since the epoch.
    pub(crate) at: i64,
    /// When the machine began, likewise; 0 if nobody knows.
    pub(crate) booted_at: i64,
    pub(crate) node: Usage,
    /// Of all Pods together.
    pub(crate) all_pods: Usage,
    /// Of all Pods together, and of those of a class that has a cgroup.
    pub(crate) groups: Vec<Group>,
    pub(crate) memory: Memory,
    /// The file system with the Pods' folders, by device.
    pub(crate) disk: Option<(String, file_system::FileSystem)>,
    /// In order of namespace and name.
    pub(crate) pods: Vec<PodStats>,
    /// Billionths of a CPU, by cgroup.
    pub(crate) rates: HashMap<String, u64>,
    /// Over which time the rates are.
    pub(crate) window: Duration,
    /// By cgroup of a container, if it was looked at so.
    pub(crate) deep: HashMap<String, deep::Deep>,
    /// Of the device of `disk`, with the same condition.
    pub(crate) disk_counters: Option<deep::DiskCounters>,
}

/// Remembers the last look.
#[derive(Default)]
pub(crate) struct Looks(Mutex<Option<(Instant, Look)>>);

impl Looks {
    /// Looks now, and gives no rates.
    pub(crate) async fn now(&self, resources: &NodeResources) -> Look {
        look(resources).await
    }

    /// Looks now, and at every process of every container.
    pub(crate) async fn deep(&self, resources: &NodeResources) -> Look {
        let mut look = look(resources).await;
        let device = look.disk.as_ref().map(|(device, _)| device.clone()).unwrap_or_default();
        let containers = look.pods.iter().flat_map(|pod| &pod.containers);
        let paths: Vec<String> = containers.map(|container| container.cgroup.clone()).collect();
        let looked = tokio::task::spawn_blocking(move || {
            let diskstats = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
            let counters = deep::disk_counters(&diskstats, &device);
            let Ok(cgroups) = Cgroups::detect() else { return (HashMap::new(), counters) };
            let looked = paths.into_iter().map(|path| {
                let deep = deep::look(&cgroups, &path);
                (path, deep)
            });
            (looked.collect(), counters)
        });
        (look.deep, look.disk_counters) = looked.await.unwrap_or_default();
        look
    }

    /// Looks now, with rates.
    pub(crate) async fn with_rates(&self, resources: &NodeResources) -> Look {
        let earlier = self.0.lock().clone();
        let earlier = match earlier {
            Some((at, look)) if at.elapsed() < WINDOW_MIN => return look,
            Some((at, look)) if at.elapsed() < WINDOW_MAX => (at, look),
            _ => {
                let first = (Instant::now(), look(resources).await);
                tokio::time::sleep(WINDOW_MIN).await;
                first
            }
        };
        let mut now = look(resources).await;
        now.window = earlier.0.elapsed();
        now.rates = rates(&earlier.1, &now);
        *self.0.lock() = Some((Instant::now(), now.clone()));
        now
    }
}

/// The node's own name among the rates.
pub(crate) const NODE: &str = "/";
/// All Pods' own name there.
pub(crate) const KUBEPODS: &str = "/kubepods";

fn counters(look: &Look) -> impl Iterator<Item = (&str, u64)> {
    let pods = look.pods.iter().flat_map(|pod| {
        let containers = pod.containers.iter().map(|c| (c.cgroup.as_str(), c.usage.cpu_ns));
        containers.chain([(pod.cgroup.as_str(), pod.usage.cpu_ns)])
    });
    pods.chain([(NODE, look.node.cpu_ns), (KUBEPODS, look.all_pods.cpu_ns)])
}

fn rates(before: &Look, now: &Look) -> HashMap<String, u64> {
    let old: HashMap<&str, u64> = counters(before).collect();
    let nanos = u64::try_from(now.at - before.at).unwrap_or_default().max(1);
    let rate = |(name, new): (&str, u64)| {
        let used = new.checked_sub(*old.get(name)?)?;
        let rate = u128::from(used) * 1_000_000_000 / u128::from(nanos);
        Some((name.to_owned(), u64::try_from(rate).ok()?))
    };
    counters(now).filter_map(rate).collect()
}

async fn look(resources: &NodeResources) -> Look {
    let (sandboxes, containers, networks) = tokio::join!(
        resources.runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        resources.runtime.list_containers(v1::ListContainersRequest { filter: None }),
        resources.runtime.list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest { filter: None }),
    );
    let sandboxes = sandboxes.map(|answer| answer.items).unwrap_or_default();
    let containers = containers.map(|answer| answer.containers).unwrap_or_default();
    let networks = networks.map(|answer| answer.stats).unwrap_or_default();
    let mut pods = pods_of(sandboxes, containers);
    for stats in networks {
        let id = stats.attributes.map(|attributes| attributes.id).unwrap_or_default();
        if let Some(pod) = pods.get_mut(&id) {
            pod.network = stats.linux.and_then(|linux| linux.network);
        }
    }
    let root = resources.config.cgroup_root.clone();
    let classes: HashMap<String, String> = resources.allocations.cgroups(&root);
    let at = i64::try_from(resources.clock.now().as_nanosecond()).unwrap_or(i64::MAX);
    let root_dir = resources.config.root_dir.clone();
    let kubepods = crate::node_resources::cgroups::kubepods(&resources.config);
    let mut pods: Vec<_> = pods.into_values().collect();
    pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let read = tokio::task::spawn_blocking(move || {
        let disk = file_system::device(&root_dir).zip(file_system::file_system(&root_dir));
        let Ok(cgroups) = Cgroups::detect() else { return (pods, Usage::default(), Vec::new(), disk) };
        for pod in &mut pods {
            pod.cgroup = classes.get(&pod.uid).cloned().unwrap_or_default();
            for container in &mut pod.containers {
                container.cgroup = format!("{}/{}", pod.cgroup, container.id);
                container.usage = cgroups.usage(&container.cgroup);
            }
            pod.usage = cgroups.usage(&pod.cgroup);
            pod.usage.processes +=
                pod.containers.iter().map(|container| container.usage.processes).sum::<u64>();
        }
        let groups = std::iter::once(kubepods.clone()).chain(classes_of(&cgroups, &kubepods));
        let groups = groups.map(|path| group(&cgroups, path)).collect();
        (pods, machine::usage(&cgroups), groups, disk)
    });
    let (pods, node, groups, disk) = read.await.unwrap_or_default();
    let all_pods = groups.first().map(|group| group.usage).unwrap_or_default();
    let booted_at = crate::machine::boot_time().and_then(|boot| i64::try_from(boot.as_nanosecond()).ok());
    let booted_at = booted_at.unwrap_or_default();
    Look { at, booted_at, node, all_pods, groups, memory: Memory::read(), disk, pods, ..Look::default() }
}

/// The cgroups of classes of Pods. Guaranteed ones are at the side of these.
fn classes_of(cgroups: &Cgroups, kubepods: &str) -> impl Iterator<Item = String> {
    let all = ["besteffort", "burstable"].map(|class| format!("{kubepods}/{class}"));
    all.into_iter().filter(|path| cgroups.exists(path))
}

fn group(cgroups: &Cgroups, cgroup: String) -> Group {
    let changed = cgroups.dir_of("memory", &cgroup).and_then(|dir| dir.metadata().ok()?.modified().ok());
    let since = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    let created_at = i64::try_from(since.as_nanos()).unwrap_or_default();
    Group { created_at, usage: cgroups.usage(&cgroup), cgroup }
}

/// By sandbox id: what is up, with the containers that run.
fn pods_of(sandboxes: Vec<v1::PodSandbox>, containers: Vec<v1::Container>) -> BTreeMap<String, PodStats> {
    let is_up = |sandbox: &v1::PodSandbox| sandbox.state == i32::from(v1::PodSandboxState::SandboxReady);
    let mut pods: BTreeMap<String, PodStats> = sandboxes
        .into_iter()
        .filter(is_up)
        .map(|sandbox| {
            let metadata = sandbox.metadata.unwrap_or_default();
            let pod = PodStats {
                uid: metadata.uid,
                name: metadata.name,
                namespace: metadata.namespace,
                created_at: sandbox.created_at,
                ..PodStats::default()
            };
            (sandbox.id, pod)
        })
        .collect();
    let running = i32::from(v1::ContainerState::ContainerRunning);
    for container in containers.into_iter().filter(|container| container.state == running) {
        let Some(pod) = pods.get_mut(&container.pod_sandbox_id) else { continue };
        let image = container.image.unwrap_or_default();
        pod.containers.push(ContainerStats {
            name: container.labels.get(labels::CONTAINER_NAME).cloned().unwrap_or_default(),
            id: container.id,
            image: if image.user_specified_image.is_empty() {
                image.image
            } else {
                image.user_specified_image
            },
            created_at: container.created_at,
            ..ContainerStats::default()
        });
    }
    for pod in pods.values_mut() {
        pod.containers.sort_by(|a, b| a.name.cmp(&b.name));
    }
    pods
}

/// What the Pod has on disk: its logs, its volumes, and the rest of its folder. Blocking.
pub(crate) fn disk_use(resources: &NodeResources, pod: &Arc<Pod>) -> disk::PodDisk {
    let (name, namespace, uid) = crate::pod::identity::identity(pod);
    let log_dir = resources.config.log_dir(&namespace, &name, &uid);
    let disk = disk::of_pod(&resources.config.pod_dir(&uid), &log_dir, pod);
    for took in &disk.looks {
        resources.metrics.measure(Measure::VolumeLook, &["du"], *took);
    }
    disk
}

#[cfg(test)]
mod tests;
