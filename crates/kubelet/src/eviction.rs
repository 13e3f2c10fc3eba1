//! Eviction: Pods that must go so that the node lives, and Pods that take more of its disk than they may.
//!
//! The kernel tells when memory gets scarce (PSI); disks and process numbers have no such events, so the node looks at
//! them every ten seconds, which is three calls. Files of Pods are counted only where a limit is set.
//! Source: `pkg/kubelet/eviction` of upstream.

pub(crate) mod decide;
mod folders;
pub(crate) mod limits;
mod pressure;
mod reclaim;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use controller::EventType;
use cri::v1;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use sys::usage::Usage;

use crate::config::eviction::{self as policy, Signal};
use crate::connections::Connections;
use crate::inbox::Inboxes;
use crate::kubelet::Kubelet;
use crate::machine::file_system;
use crate::machine::{Machine, pids_max};
use crate::metrics::{Count, Measure};
use crate::node_resources::cgroups;
use crate::pod::identity::{is_critical, priority};
use crate::pod::quantity;
use crate::pod::requests::pod_request;
use crate::pod::snapshot::Ending;
use crate::stats::{self, machine};
use decide::{Candidate, Observation, Observations, State, Used};
use folders::{Counted, Devices, Folders};
use pressure::MemoryPressure;

/// How often disks and process numbers are looked at. Source: `evictionMonitoringPeriod`.
const PERIOD: Duration = Duration::from_secs(10);
/// How long an evicted Pod is waited for before the next one goes. Source: `podCleanupTimeout`.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Seconds that a Pod has that must go at once. Source: `immediateEvictionGracePeriodSeconds`.
const IMMEDIATE: i64 = 1;
/// Source: `PodStatus.reason` of evicted Pods.
const REASON: &str = "Evicted";

/// Runs until the group of tasks stops.
pub(crate) async fn run(context: Arc<Kubelet>, machine: Arc<Machine>, inboxes: Inboxes) {
    let mut state = State::default();
    let mut memory = MemoryPressure::open();
    let mut folders = Folders::of(&context.config.root_dir);
    let mut runtime_changes = context.runtime.status_changes();
    let mut connections = Connections::default();
    if context.config.eviction.statements.mention(policy::DERIVED) {
        tracing::warn!(
            "thresholds of containerfs are not read: it has those of the disk that it is on, nodefs' or imagefs'"
        );
    }
    loop {
        folders.ask(context.images.as_ref()).await;
        let (now, looked_at) = (context.clock.now(), std::time::Instant::now());
        let seen = observe(&context, &machine, &folders).await;
        let verdict = state.look(&context.config.eviction, &seen, now);
        context.node_state.set_pressure(&verdict.conditions);
        // The kernel does not tell of this table either.
        if let Some(message) = connections.look() {
            context.node_event(EventType::Warning, "ConntrackFull", message);
        }
        let mut evicted = evict_over_limits(&context, &inboxes, folders.devices()).await;
        if evicted.is_empty()
            && let Some((threshold, seen)) = verdict.reclaim
        {
            let resource = threshold.signal.resource();
            context.node_event(
                EventType::Warning,
                "EvictionThresholdMet",
                format!("Attempting to reclaim {resource}"),
            );
            // Images and dead containers go before Pods.
            let mut is_enough = false;
            if reclaim::helps(threshold.signal, folders.devices()) {
                reclaim::run(&context).await;
                let seen = observe(&context, &machine, &folders).await;
                is_enough = decide::is_enough(&context.config.eviction, &seen);
            }
            if !is_enough {
                let first = evict_first(&context, &inboxes, &threshold, seen, folders.devices()).await;
                if first.is_some() {
                    let signal = threshold.signal.as_str();
                    context.metrics.measure(Measure::EvictionStatsAge, &[signal], looked_at.elapsed());
                }
                evicted.extend(first);
            }
        }
        if !evicted.is_empty() {
            wait_for_cleanup(&inboxes, &evicted).await;
            continue;
        }
        let due = state.due_at(&context.config.eviction, context.clock.now());
        let due = due.and_then(|at| Duration::try_from(at.duration_since(context.clock.now())).ok());
        tokio::select! {
            () = memory.rises() => {}
            Some(()) = runtime_changes.next(), if !folders.are_known() => {}
            () = tokio::time::sleep(due.map_or(PERIOD, |due| due.min(PERIOD))) => {}
        }
    }
}

async fn observe(context: &Kubelet, machine: &Machine, folders: &Folders) -> Observations {
    let folders = folders.clone();
    let kubepods = cgroups::kubepods(&context.config);
    let capacity = i64::try_from(machine.memory).unwrap_or(i64::MAX);
    let reserved = context.config.reserved.whole("memory");
    let looked = tokio::task::spawn_blocking(move || {
        let mut seen = Observations::new();
        if let Ok(cgroups) = sys::cgroup::Cgroups::detect() {
            let used = |usage: Usage| i64::try_from(usage.working_set_bytes).unwrap_or(i64::MAX);
            let of_node = Observation { available: capacity - used(machine::usage(&cgroups)), capacity };
            seen.insert(Signal::MemoryAvailable, of_node);
            let capacity = capacity - reserved;
            let of_pods = Observation { available: capacity - used(cgroups.usage(&kubepods)), capacity };
            seen.insert(Signal::AllocatableMemoryAvailable, of_pods);
        }
        file_system(&mut seen, &folders.root, Signal::NodeFsAvailable, Signal::NodeFsInodesFree);
        if let Some(images) = folders.images {
            file_system(&mut seen, &images, Signal::ImageFsAvailable, Signal::ImageFsInodesFree);
        }
        if let Some(running) = machine::processes() {
            let capacity = pids_max();
            seen.insert(Signal::PidAvailable, Observation { available: capacity - running, capacity });
        }
        seen
    });
    looked.await.unwrap_or_default()
}

fn file_system(seen: &mut Observations, path: &Path, bytes: Signal, inodes: Signal) {
    let Some(found) = file_system::file_system(path) else { return };
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let of = |available: u64, capacity: u64| Observation {
        available: number(available),
        capacity: number(capacity),
    };
    seen.insert(bytes, of(found.available, found.capacity));
    // Some file systems have no inodes to count.
    if found.inodes > 0 {
        seen.insert(inodes, of(found.inodes_free, found.inodes));
    }
}

/// Pods that take more of the disk than they may.
async fn evict_over_limits(context: &Arc<Kubelet>, inboxes: &Inboxes, devices: Devices) -> Vec<String> {
    let pods: Vec<_> = context
        .resources
        .allocations
        .pods()
        .into_iter()
        .filter(|pod| pod.spec.as_ref().is_some_and(limits::has_limits) && !is_critical(pod))
        .collect();
    if pods.is_empty() {
        return Vec::new();
    }
    let mut layers = writable_layers(context).await;
    let mut evicted = Vec::new();
    for pod in pods {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let own = layers.remove(&uid).unwrap_or_default();
        let (looking, of) = (context.resources.clone(), pod.clone());
        let disk = tokio::task::spawn_blocking(move || stats::disk_use(&looking, &of)).await;
        let empty = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&empty);
        let disk = disk.unwrap_or_default();
        let used = if devices.have_one_for_images() { disk.limited_apart(&own) } else { disk.limited(&own) };
        let Some((signal, message)) = limits::exceeded(spec, &used) else { continue };
        let eviction = Eviction { signal, message, annotations: BTreeMap::new(), grace_seconds: IMMEDIATE };
        if evict(context, inboxes, &pod, eviction) {
            evicted.push(uid);
        }
    }
    evicted
}

/// Bytes by Pod uid and container, as far as the runtime says so.
async fn writable_layers(context: &Kubelet) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut layers = BTreeMap::<String, BTreeMap<String, u64>>::new();
    let request = v1::ListContainerStatsRequest { filter: None };
    let Ok(answer) = context.runtime.list_container_stats(request).await else { return layers };
    for stats in answer.stats {
        let Some(attributes) = stats.attributes else { continue };
        let label = |name: &str| attributes.labels.get(name).cloned().unwrap_or_default();
        let bytes = stats.writable_layer.and_then(|layer| layer.used_bytes).map_or(0, |used| used.value);
        let (uid, name) = (label(crate::pod::labels::POD_UID), label(crate::pod::labels::CONTAINER_NAME));
        *layers.entry(uid).or_default().entry(name).or_default() += bytes;
    }
    layers
}

/// The Pod that matters least for what is scarce.
async fn evict_first(
    context: &Arc<Kubelet>,
    inboxes: &Inboxes,
    threshold: &policy::Threshold,
    seen: Observation,
    devices: Devices,
) -> Option<String> {
    let pods = context.resources.allocations.pods();
    let look = context.looks.now(&context.resources).await;
    let layers = writable_layers(context).await;
    let counted = devices.counted(threshold.signal);
    let mut candidates = Vec::new();
    for pod in &pods {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let own = look.pods.iter().find(|stats| stats.uid == uid).cloned().unwrap_or_default();
        let of_disk = layers.get(&uid).cloned().unwrap_or_default();
        candidates.push(candidate(context, threshold.signal, counted, pod, &own, of_disk).await);
    }
    let first = decide::first_to_go(threshold.signal, &candidates)?;
    let pod = pods.iter().find(|pod| pod.metadata.uid.as_deref() == Some(&first.uid))?;
    let grace_seconds =
        if threshold.is_hard() { IMMEDIATE } else { context.config.eviction.max_pod_grace_seconds };
    let (message, annotations) = decide::message(threshold, seen, first);
    let eviction = Eviction { signal: threshold.signal.as_str(), message, annotations, grace_seconds };
    evict(context, inboxes, pod, eviction).then(|| first.uid.clone())
}

async fn candidate(
    context: &Arc<Kubelet>,
    signal: Signal,
    counted: Counted,
    pod: &Arc<Pod>,
    stats: &stats::PodStats,
    layers: BTreeMap<String, u64>,
) -> Candidate {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let resource = signal.resource();
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let request = |name: &str| {
        let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let container = containers.find(|c| c.name == name)?;
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        Some(requests.and_then(|requests| requests.get(resource)).map_or(0, quantity::whole))
    };
    let used = |name: &str, usage: i64| Used { name: name.to_owned(), usage, request: request(name) };
    let own = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let own_request = own.and_then(|own| own.get(resource)).filter(|_| resource == "memory");
    let mut candidate = Candidate {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        priority: priority(pod),
        is_critical: is_critical(pod),
        own_request: own_request.map(|request| request.0.clone()),
        request: pod_request(spec, resource, quantity::whole),
        ..Candidate::default()
    };
    if matches!(resource, "ephemeral-storage" | "inodes") {
        let (looking, of) = (context.resources.clone(), pod.clone());
        let disk =
            tokio::task::spawn_blocking(move || stats::disk_use(&looking, &of)).await.unwrap_or_default();
        let amount = |tree: &sys::tree::Size| if resource == "inodes" { tree.inodes } else { tree.bytes };
        for (name, log) in &disk.logs {
            let has_layer = counted.layers && resource != "inodes";
            let layer = layers.get(name).copied().filter(|_| has_layer).unwrap_or(0);
            let log = if counted.files { amount(log) } else { 0 };
            candidate.containers.push(used(name, number(log + layer)));
        }
        let own = disk.volumes.iter().filter(|(name, _)| counted.files && !disk.foreign.contains(*name));
        candidate.volumes = own.map(|(_, tree)| number(amount(tree))).sum();
        return candidate;
    }
    for container in &stats.containers {
        let usage = match resource {
            "memory" => container.usage.working_set_bytes,
            _ => container.usage.threads,
        };
        candidate.containers.push(used(&container.name, number(usage)));
    }
    candidate
}

/// What is told of a Pod that is evicted, and how long it has to end.
struct Eviction<'a> {
    signal: &'a str,
    message: String,
    /// Of the event.
    annotations: BTreeMap<String, String>,
    grace_seconds: i64,
}

/// Makes a Pod go. Whether it was still there.
fn evict(context: &Kubelet, inboxes: &Inboxes, pod: &Pod, eviction: Eviction<'_>) -> bool {
    let Eviction { signal, message, annotations, grace_seconds } = eviction;
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let Some(inbox) = inboxes.get(uid) else { return false };
    tracing::info!(pod = uid, signal, message, "a pod is evicted");
    context.annotated_event(pod, EventType::Warning, REASON, message.clone(), annotations);
    context.metrics.count(Count::Evictions, &[signal]);
    inbox.end(Ending {
        reason: REASON.into(),
        message,
        grace: Some(grace_seconds),
        is_disruption: true,
        is_rejection: false,
    });
    true
}

/// Waits until the Pods have given back what they had.
async fn wait_for_cleanup(inboxes: &Inboxes, evicted: &[String]) {
    let gone = async {
        for uid in evicted {
            if let Some(inbox) = inboxes.get(uid) {
                inbox.released().await;
            }
        }
    };
    if tokio::time::timeout(CLEANUP_TIMEOUT, gone).await.is_err() {
        tracing::warn!(?evicted, "evicted pods are not gone yet");
    }
}
