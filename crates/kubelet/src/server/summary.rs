//! What the node runs, for people and for scrapers: `/pods`, `/stats/summary`, and what `/metrics` counts.
//!
//! Source: `k8s.io/kubelet/pkg/apis/stats/v1alpha1`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sys::tree::Size;
use sys::usage::{Link, Pressure, Stall, Usage, links};

use super::Server;
use crate::kubelet::Kubelet;
use crate::machine::file_system;
use crate::machine::file_system::FileSystem;
use crate::metrics::Counts;
use crate::metrics::VolumeStats;
use crate::pod::identity::is_mirror;
use crate::pod::time::nanos;
use crate::stats::disk::PodDisk;
use crate::stats::{self, ContainerStats, KUBEPODS, Look, NODE, PodStats};
use crate::volumes::persistent;

/// The Pods that the kubelet was told to run: not mirrors, but what they show.
pub(super) fn all(server: &Server) -> Vec<Arc<Pod>> {
    let of_api = server.pods.list().into_iter().filter(|pod| !is_mirror(pod));
    of_api.chain(server.statics.borrow().values().cloned()).collect()
}

/// `/pods`: a PodList.
pub(super) fn pods(server: &Server) -> Value {
    let items: Vec<_> = all(server)
        .iter()
        .filter_map(|pod| {
            let mut item = serde_json::to_value(pod.as_ref()).ok()?;
            let object = item.as_object_mut()?;
            object.remove("apiVersion");
            object.remove("kind");
            Some(item)
        })
        .collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
}

/// `/runningpods`: a PodList of what the runtime runs, and no more than it knows.
pub(super) async fn running_pods(server: &Server) -> Result<Value, super::Refusal> {
    let runtime = &server.context.runtime;
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() }),
        ..v1::ContainerFilter::default()
    };
    let failed = |error: cri::CriError| super::Refusal::internal(error.to_string());
    let sandboxes =
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }).await.map_err(failed)?;
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let containers = runtime.list_containers(request).await.map_err(failed)?.containers;
    let ready = i32::from(v1::PodSandboxState::SandboxReady);
    let of_sandbox = |sandbox: v1::PodSandbox| {
        let own = containers.iter().filter(|c| c.pod_sandbox_id == sandbox.id);
        let own: Vec<Value> = own
            .map(|container| {
                let name = container.metadata.as_ref().map(|m| m.name.as_str()).unwrap_or_default();
                let image = container.image.as_ref().map(|i| i.image.as_str()).unwrap_or_default();
                json!({"name": name, "image": image, "resources": {}})
            })
            .collect();
        let metadata = sandbox.metadata.unwrap_or_default();
        let metadata = json!({"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid, "creationTimestamp": null});
        json!({"metadata": metadata, "spec": {"containers": own}, "status": {}})
    };
    let running = sandboxes.items.into_iter().filter(|sandbox| sandbox.state == ready);
    let items: Vec<Value> = running.map(of_sandbox).collect();
    Ok(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

/// What `/metrics` says of Pods and containers now.
pub(super) async fn counts(server: &Server) -> Counts {
    let runtime = &server.context.runtime;
    let (sandboxes, containers) = tokio::join!(
        runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None }),
        runtime.list_containers(v1::ListContainersRequest { filter: None }),
    );
    let ready = i32::from(v1::PodSandboxState::SandboxReady);
    let containers = containers.map(|answer| answer.containers).unwrap_or_default();
    let of = |state: v1::ContainerState| containers.iter().filter(|c| c.state == i32::from(state)).count();
    let statics = server.statics.borrow().len();
    let all = all(server);
    let desired = all.len() - statics;
    let ephemeral =
        all.iter().filter_map(|pod| pod.spec.as_ref()?.ephemeral_containers.as_ref()).map(Vec::len);
    let active = server.context.resources.allocations.pods();
    let active_statics = active.iter().filter(|pod| crate::pod::identity::is_static(pod)).count();
    Counts {
        running_pods: sandboxes.map_or(0, |answer| answer.items.iter().filter(|s| s.state == ready).count()),
        running: of(v1::ContainerState::ContainerRunning),
        exited: of(v1::ContainerState::ContainerExited),
        created: of(v1::ContainerState::ContainerCreated),
        active: (active.len() - active_statics, active_statics),
        desired: (desired, statics),
        mirrors: statics,
        ephemeral: ephemeral.sum(),
        working: server.inboxes.all().iter().map(|inbox| inbox.work()).collect(),
    }
}

fn time(at: i64) -> String {
    let at = nanos(at);
    crate::pod::time::whole_second(at).to_string()
}

fn cpu(look: &Look, usage: &Usage, cgroup: &str) -> Value {
    let mut cpu = json!({"time": time(look.at), "usageCoreNanoSeconds": usage.cpu_ns});
    if let Some(rate) = look.rates.get(cgroup) {
        cpu["usageNanoCores"] = (*rate).into();
    }
    add_pressure(&mut cpu, usage, 0);
    cpu
}

/// `capacity` 0 for no limit: there is nothing available of that.
fn memory(look: &Look, usage: &Usage, capacity: u64) -> Value {
    let mut memory = json!({
        "time": time(look.at),
        "usageBytes": usage.memory_bytes,
        "workingSetBytes": usage.working_set_bytes,
        "rssBytes": usage.rss_bytes,
        "pageFaults": usage.page_faults,
        "majorPageFaults": usage.major_page_faults,
    });
    if capacity > 0 {
        memory["availableBytes"] = capacity.saturating_sub(usage.working_set_bytes).into();
    }
    add_pressure(&mut memory, usage, 1);
    memory
}

/// How long tasks have waited for CPU (0), memory (1) or disks (2), where the kernel tells. Source: KEP-4205.
fn add_pressure(value: &mut Value, usage: &Usage, resource: usize) {
    let Some(Pressure { some, full }) = usage.pressure.and_then(|all| all.get(resource).copied()) else {
        return;
    };
    let stall = |Stall { averages: [avg10, avg60, avg300], total_us }: Stall| json!({"total": total_us, "avg10": avg10, "avg60": avg60, "avg300": avg300});
    value["psi"] = json!({"full": stall(full), "some": stall(some)});
}

/// Disks have nothing else yet.
fn add_io(value: &mut Value, look: &Look, usage: &Usage) {
    let mut io = json!({"time": time(look.at)});
    add_pressure(&mut io, usage, 2);
    if io.get("psi").is_some() {
        value["io"] = io;
    }
}

/// Of a cgroup. What is left is known where there is a limit.
fn swap(look: &Look, usage: &Usage) -> Value {
    let mut swap = json!({"time": time(look.at), "swapUsageBytes": usage.swap_bytes});
    if usage.swap_limit_bytes > 0 {
        swap["swapAvailableBytes"] = usage.swap_limit_bytes.saturating_sub(usage.swap_bytes).into();
    }
    swap
}

fn file_system(look: &Look, fs: FileSystem) -> Value {
    json!({
        "time": time(look.at),
        "availableBytes": fs.available,
        "capacityBytes": fs.capacity,
        "usedBytes": fs.used,
        "inodesFree": fs.inodes_free,
        "inodes": fs.inodes,
        "inodesUsed": fs.inodes.saturating_sub(fs.inodes_free),
    })
}

/// What a folder takes of the file system that it is on.
fn part_of(look: &Look, fs: FileSystem, tree: Size) -> Value {
    let mut part = file_system(look, fs);
    part["usedBytes"] = tree.bytes.into();
    part["inodesUsed"] = tree.inodes.into();
    part
}

fn network(look: &Look, usage: &v1::NetworkUsage) -> Value {
    let counter = |value: Option<v1::UInt64Value>| value.map_or(0, |value| value.value);
    let link = |link: &v1::NetworkInterfaceUsage| {
        json!({
            "name": link.name,
            "rxBytes": counter(link.rx_bytes),
            "rxErrors": counter(link.rx_errors),
            "txBytes": counter(link.tx_bytes),
            "txErrors": counter(link.tx_errors),
        })
    };
    let mut all: Vec<Value> = usage.default_interface.iter().map(link).collect();
    all.extend(usage.interfaces.iter().map(link));
    let mut network = usage.default_interface.as_ref().map_or_else(|| json!({}), link);
    network["time"] = time(look.at).into();
    network["interfaces"] = all.into();
    network
}

/// What disks say, where they are asked.
#[derive(Default)]
pub(super) struct Disks {
    node: FileSystem,
    images: Option<(FileSystem, u64)>,
    pods: BTreeMap<String, PodDisk>,
    claims: Arc<Vec<VolumeStats>>,
    /// What containers have written into their own file systems, by id.
    layers: HashMap<String, Size>,
    /// The host's.
    links: Vec<Link>,
    /// With their threads, the host's.
    processes: Option<i64>,
}

/// Asks the disks. Blocking but for the runtime.
async fn disks(server: &Server) -> Disks {
    let context = server.context.clone();
    let images = context.images.image_fs_info(v1::ImageFsInfoRequest {}).await.ok();
    let images = images.and_then(|answer| answer.image_filesystems.into_iter().next());
    let pods = all(server);
    let claims = persistent::stats(&context.volumes, &pods).await;
    let layers = layers(&context).await;
    let asked = tokio::task::spawn_blocking(move || Disks {
        claims,
        layers,
        processes: stats::machine::processes(),
        links: links(&std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default()),
        node: file_system::file_system(&context.config.root_dir).unwrap_or_default(),
        images: images.and_then(|images| {
            let used = images.used_bytes.map_or(0, |used| used.value);
            Some((file_system::file_system(images.fs_id?.mountpoint.as_ref())?, used))
        }),
        pods: pods
            .iter()
            .map(|pod| {
                (pod.metadata.uid.clone().unwrap_or_default(), stats::disk_use(&context.resources, pod))
            })
            .collect(),
    });
    asked.await.unwrap_or_default()
}

/// As far as the runtime says so.
async fn layers(context: &Kubelet) -> HashMap<String, Size> {
    let request = v1::ListContainerStatsRequest { filter: None };
    let stats = context.runtime.list_container_stats(request).await.map(|answer| answer.stats);
    let layer = |stats: v1::ContainerStats| {
        let layer = stats.writable_layer?;
        let number = |value: Option<v1::UInt64Value>| value.map_or(0, |value| value.value);
        let size = Size { bytes: number(layer.used_bytes), inodes: number(layer.inodes_used) };
        Some((stats.attributes?.id, size))
    };
    stats.unwrap_or_default().into_iter().filter_map(layer).collect()
}

/// The link that is the default one for upstream is the first of that name.
fn host_network(look: &Look, links: &[Link]) -> Value {
    let shown = |link: &Link| {
        json!({
            "name": link.name,
            "rxBytes": link.rx.bytes,
            "rxErrors": link.rx.errors,
            "txBytes": link.tx.bytes,
            "txErrors": link.tx.errors,
        })
    };
    let default = links.iter().find(|link| link.name == "eth0");
    let mut network = default.map_or_else(|| json!({"name": ""}), shown);
    network["time"] = time(look.at).into();
    network["interfaces"] = links.iter().map(shown).collect();
    network
}

/// `/stats/summary`; with `only_cpu_and_memory` disks and network are left alone.
pub(super) async fn stats(server: &Server, only_cpu_and_memory: bool) -> Value {
    let look = server.context.looks.with_rates(&server.context.resources).await;
    let disks = if only_cpu_and_memory { None } else { Some(disks(server).await) };
    let started = server.context.clock.now();
    let boot = crate::machine::boot_time().unwrap_or(started);
    render(&look, disks.as_ref(), &server.context.config.node_name, boot)
}

fn render(look: &Look, disks: Option<&Disks>, node_name: &str, boot: Timestamp) -> Value {
    let mut node = json!({
        "nodeName": node_name,
        "startTime": crate::pod::time::whole_second(boot).to_string(),
        "cpu": cpu(look, &look.node, NODE),
        "memory": memory(look, &look.node, look.memory.total),
        "swap": {
            "time": time(look.at),
            "swapAvailableBytes": look.memory.swap_free,
            "swapUsageBytes": look.memory.swap_total.saturating_sub(look.memory.swap_free),
        },
    });
    add_io(&mut node, look, &look.node);
    let mut pods = json!({
        "name": "pods",
        "startTime": crate::pod::time::whole_second(boot).to_string(),
        "cpu": cpu(look, &look.all_pods, KUBEPODS),
        "memory": memory(look, &look.all_pods, look.all_pods.memory_limit_bytes),
        "swap": swap(look, &look.all_pods),
    });
    add_io(&mut pods, look, &look.all_pods);
    node["systemContainers"] = json!([pods]);
    if let Some(disks) = disks {
        node["network"] = host_network(look, &disks.links);
        node["fs"] = file_system(look, disks.node);
        node["rlimit"] = json!({"time": time(look.at), "maxpid": crate::machine::pids_max()});
        if let Some(count) = disks.processes {
            node["rlimit"]["curproc"] = count.into();
        }
        if let Some((images, used)) = disks.images {
            let mut fs = file_system(look, images);
            fs["usedBytes"] = used.into();
            node["runtime"] = json!({"imageFs": fs, "containerFs": fs});
        }
    }
    let pods: Vec<Value> = look.pods.iter().map(|pod| of_pod(look, disks, pod)).collect();
    json!({"node": node, "pods": pods})
}

fn of_pod(look: &Look, disks: Option<&Disks>, pod: &PodStats) -> Value {
    let disk = disks.and_then(|disks| disks.pods.get(&pod.uid));
    let fs = disks.map(|disks| disks.node).unwrap_or_default();
    let of_container = |container| of_container(look, disks, disk, container);
    let containers: Vec<Value> = pod.containers.iter().map(of_container).collect();
    let mut value = json!({
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "startTime": time(pod.created_at),
        "containers": containers,
        "cpu": cpu(look, &pod.usage, &pod.cgroup),
        "memory": memory(look, &pod.usage, pod.usage.memory_limit_bytes),
        "swap": swap(look, &pod.usage),
        "process_stats": {"process_count": pod.usage.processes},
    });
    add_io(&mut value, look, &pod.usage);
    let Some(disk) = disk else { return value };
    if let Some(usage) = &pod.network {
        value["network"] = network(look, usage);
    }
    let mut volumes: Vec<Value> = disk
        .volumes
        .iter()
        .map(|(name, tree)| {
            let mut volume = part_of(look, fs, *tree);
            volume["name"] = name.as_str().into();
            volume
        })
        .collect();
    let claims = disks.iter().flat_map(|disks| disks.claims.iter());
    volumes.extend(claims.filter(|volume| volume.pod_uid == pod.uid).map(|volume| of_volume(look, volume)));
    if !volumes.is_empty() {
        value["volume"] = volumes.into();
    }
    let own = disk.volumes.iter().filter(|(name, _)| !disk.foreign.contains(*name)).map(|(_, tree)| tree);
    let layers = disks.map(|disks| &disks.layers);
    let layers = pod.containers.iter().filter_map(|container| layers?.get(&container.id));
    let all = disk.logs.values().chain(own).chain([&disk.others]).chain(layers);
    let sum = all.fold(Size::default(), |sum, tree| Size {
        bytes: sum.bytes + tree.bytes,
        inodes: sum.inodes + tree.inodes,
    });
    value["ephemeral-storage"] = part_of(look, fs, sum);
    value
}

/// A volume of a claim or driver.
fn of_volume(look: &Look, stats: &VolumeStats) -> Value {
    let mut value = json!({"name": stats.name, "time": time(look.at)});
    let amounts = [
        ("availableBytes", stats.available),
        ("capacityBytes", stats.capacity),
        ("usedBytes", stats.used),
        ("inodesFree", stats.inodes_free),
        ("inodes", stats.inodes),
        ("inodesUsed", stats.inodes_used),
    ];
    for (field, amount) in amounts {
        if let Some(amount) = amount {
            value[field] = amount.into();
        }
    }
    if let Some((namespace, name)) = &stats.claim {
        value["pvcRef"] = json!({"name": name, "namespace": namespace});
    }
    if let Some(abnormal) = stats.is_abnormal {
        value["volumeHealthStats"] = json!({"abnormal": abnormal});
    }
    value
}

/// What volumes of claims hold, as `/metrics` has it: once for each claim.
pub(super) async fn volumes(server: &Server) -> Arc<Vec<VolumeStats>> {
    persistent::stats(&server.context.volumes, &all(server)).await
}

fn of_container(
    look: &Look,
    disks: Option<&Disks>,
    disk: Option<&PodDisk>,
    container: &ContainerStats,
) -> Value {
    let mut value = json!({
        "name": container.name,
        "startTime": time(container.created_at),
        "cpu": cpu(look, &container.usage, &container.cgroup),
        "memory": memory(look, &container.usage, container.usage.memory_limit_bytes),
        "swap": swap(look, &container.usage),
    });
    add_io(&mut value, look, &container.usage);
    let Some(disks) = disks else { return value };
    if let Some(layer) = disks.layers.get(&container.id) {
        let images = disks.images.map_or(disks.node, |(fs, _)| fs);
        value["rootfs"] = part_of(look, images, *layer);
    }
    if let Some(log) = disk.and_then(|disk| disk.logs.get(&container.name)) {
        value["logs"] = part_of(look, disks.node, *log);
    }
    value
}

#[cfg(test)]
mod tests;
