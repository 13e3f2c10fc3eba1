//! What the node gives to Pods: CPUs, memory, huge pages, devices, claims, and the cgroups that hold Pods to it.
//!
//! Each that gives something away is a [`Provider`]: admission asks all of them alike, and releases from all of them
//! alike. Nothing in here decides what runs; it knows Pods by their specs and uids only.

pub(crate) mod allocations;
pub(crate) mod cgroups;
pub(crate) mod cpu;
pub(crate) mod device_plugins;
pub(crate) mod dra;
pub(crate) mod memory;
pub(crate) mod pod_resources;
pub(crate) mod topology;
pub(crate) mod unified;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::config::alignment::{Policy, Scope};
use crate::context::Context;
use crate::machine::layout::Layout;
use crate::metrics::{Count, KubeletMetrics, Measure};
use crate::pod::admission::Rejection;
use allocations::Allocations;
use cpu::CpuManager;
use device_plugins::DevicePlugins;
use dra::Dra;
use memory::MemoryManager;
use topology::{AFFINITY_ERROR, Asker, Hint, Hints, Provider};

/// Who has what of the node.
pub(crate) struct NodeResources {
    pub(crate) context: Arc<Context>,
    /// What plugins say there is of other things.
    pub(crate) devices: DevicePlugins,
    /// Drivers of devices that Pods have by claims, and what they have prepared.
    pub(crate) dra: Dra,
    /// Who has CPUs alone; `None` if nobody may.
    pub(crate) cpus: Option<CpuManager>,
    /// Who has memory of certain NUMA nodes; `None` if nobody may.
    pub(crate) memory: Option<MemoryManager>,
    /// Which NUMA nodes there are, and what lies on them.
    pub(crate) layout: Arc<Layout>,
    /// What of that they have.
    pub(crate) allocations: Allocations,
    /// Bytes.
    pub(crate) memory_capacity: i64,
    /// What containers are told beside their limits.
    pub(crate) unified: unified::Unified,
    /// Of huge pages, in bytes.
    pub(crate) page_sizes: Vec<u64>,
}

impl Deref for NodeResources {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl NodeResources {
    /// All that Pods can ask for, devices too.
    pub(crate) fn allocatable_now(&self) -> BTreeMap<String, i64> {
        let mut all = self.context.allocatable.clone();
        all.extend(self.devices.counts().into_iter().map(|(name, (_, healthy))| (name, healthy)));
        all
    }

    /// Gives the Pod's containers what they have alone: devices, CPUs, memory.
    ///
    /// # Errors
    /// In upstream's words. What was given up to then is to be released.
    pub(crate) fn allocate(&self, uid: &str, spec: &PodSpec) -> Result<(), Rejection> {
        let counted = |provider, counts| Pinned { provider, metrics: &self.metrics, counts };
        let cpus = self.cpus.as_ref().map(|cpus| counted(cpus, (Count::CpuPinning, Count::CpuPinningErrors)));
        let memory = self.memory.as_ref();
        let memory = memory.map(|memory| counted(memory, (Count::MemoryPinning, Count::MemoryPinningErrors)));
        let mut providers: Vec<&dyn Provider> = vec![&self.devices];
        providers.extend(cpus.iter().chain(&memory).map(|provider| provider as &dyn Provider));
        let start = std::time::Instant::now();
        self.metrics.count(Count::TopologyAdmissions, &[]);
        let given = self.config.alignment.allocate(&self.layout, uid, spec, &providers);
        self.metrics.measure(Measure::TopologyAdmission, &[], start.elapsed().as_secs_f64() * 1000.0);
        self.count_alignment(spec, &given);
        given
    }

    /// Only one policy promises that what a container has is near. Source: `IsAlignmentGuaranteed` of upstream.
    fn count_alignment(&self, spec: &PodSpec, given: &Result<(), Rejection>) {
        let alignment = self.config.alignment;
        let is_refused = matches!(given, Err(rejection) if rejection.reason == AFFINITY_ERROR);
        if is_refused {
            self.metrics.count(Count::TopologyAdmissionErrors, &[]);
        }
        if alignment.policy != Policy::SingleNumaNode {
            return;
        }
        let labels = [alignment.scope.as_str(), "numa_node"];
        let askers = match alignment.scope {
            Scope::Pod => 1,
            Scope::Container => spec.init_containers.iter().flatten().chain(&spec.containers).count(),
        };
        if is_refused {
            self.metrics.count(Count::AlignedResourcesFailures, &labels);
        } else if given.is_ok() {
            (0..askers).for_each(|_| self.metrics.count(Count::AlignedResources, &labels));
        }
    }

    /// Takes it back. Whether that changes which CPUs others share.
    pub(crate) fn release(&self, uid: &str) -> bool {
        self.devices.release(uid);
        if let Some(memory) = &self.memory {
            memory.release(uid);
        }
        self.cpus.as_ref().is_some_and(|cpus| cpus.release(uid))
    }

    /// Takes back what Pods have that are not among `uids`.
    pub(crate) fn keep_only(&self, uids: &BTreeSet<String>) {
        self.devices.keep_only(uids);
        self.cpus.iter().for_each(|cpus| cpus.keep_only(uids));
        self.memory.iter().for_each(|memory| memory.keep_only(uids));
    }
}

/// Counts what is pinned, and what could not be.
struct Pinned<'a> {
    provider: &'a dyn Provider,
    metrics: &'a KubeletMetrics,
    /// All, and those that failed.
    counts: (Count, Count),
}

impl Provider for Pinned<'_> {
    fn hints(&self, uid: &str, spec: &PodSpec, asker: Asker<'_>) -> Hints {
        self.provider.hints(uid, spec, asker)
    }

    fn pins(&self, spec: &PodSpec, container: &Container) -> bool {
        self.provider.pins(spec, container)
    }

    fn allocate(
        &self,
        uid: &str,
        spec: &PodSpec,
        container: &Container,
        hint: &Hint,
    ) -> Result<(), Rejection> {
        let given = self.provider.allocate(uid, spec, container, hint);
        if self.pins(spec, container) {
            self.metrics.count(self.counts.0, &[]);
        }
        if given.is_err() {
            self.metrics.count(self.counts.1, &[]);
        }
        given
    }
}
