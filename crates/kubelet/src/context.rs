//! What all workers of one kubelet share: configuration, clients, and facts about the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::record::Recorder;
use controller::trace::Reporter;
use controller::{EventType, Informer, Informers};
use cri::{ImageService, RuntimeService};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Node, ObjectReference, Pod, PodSpec, Service};
use tokio::sync::Semaphore;

use crate::allocations::Allocations;
use crate::config::Config;
use crate::cpu::CpuManager;
use crate::csi::Drivers;
use crate::device_plugins::DevicePlugins;
use crate::dra::Dra;
use crate::memory::MemoryManager;
use crate::metrics::{Count, KubeletMetrics, Measure};
use crate::node_state::NodeState;
use crate::pod::admission::Rejection;
use crate::pod::status::NodeFacts;
use crate::runtime_features::RuntimeFeatures;
use crate::stats::Looks;
use crate::topology::{AFFINITY_ERROR, Asker, Distances, Hint, Hints, Nodes, Policy, Provider, Scope};

/// CRI calls that change something, at the same time.
pub(crate) const CRI_CALLS_MAX: usize = 32;

/// Shared by all workers.
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) client: kube::Client,
    pub(crate) informers: Informers,
    pub(crate) services: Informer<Service>,
    /// This node alone.
    pub(crate) node: Informer<Node>,
    /// What the node registers as: what is known of it while the API does not answer.
    pub(crate) initial_node: Node,
    pub(crate) node_state: NodeState,
    /// What plugins say there is of other things.
    pub(crate) devices: DevicePlugins,
    /// Drivers of devices that Pods have by claims, and what they have prepared.
    pub(crate) dra: Dra,
    /// Who has CPUs alone; `None` if nobody may.
    pub(crate) cpus: Option<CpuManager>,
    /// Who has memory of certain NUMA nodes; `None` if nobody may.
    pub(crate) memory: Option<MemoryManager>,
    /// All NUMA nodes.
    pub(crate) numa_nodes: Nodes,
    /// How far they are from each other.
    pub(crate) numa_distances: Distances,
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Clock,
    /// When this kubelet began.
    pub(crate) started_at: Timestamp,
    pub(crate) random: Random,
    pub(crate) recorder: Recorder,
    pub(crate) reporter: Reporter,
    pub(crate) facts: NodeFacts,
    /// ConfigMaps and Secrets that Pods name.
    pub(crate) objects: crate::objects::Registers,
    /// Certificates of Pods.
    pub(crate) certificates: crate::certificates::All,
    /// What the runtime can do.
    pub(crate) features: RuntimeFeatures,
    /// What Pods can have, CPU in thousandths. See [`crate::pod::admission::Room`].
    pub(crate) room: std::collections::BTreeMap<String, i64>,
    /// What of that they have.
    pub(crate) allocations: Allocations,
    /// What everything used when somebody asked last.
    pub(crate) looks: Looks,
    pub(crate) metrics: Arc<KubeletMetrics>,
    /// Bytes.
    pub(crate) memory_capacity: i64,
    /// What containers are told beside their limits.
    pub(crate) unified: crate::unified::Unified,
    /// Of huge pages, in bytes.
    pub(crate) page_sizes: Vec<u64>,
    /// The drivers of this node.
    pub(crate) csi: Drivers,
    /// Bounds the CRI calls.
    pub(crate) limit: Arc<Semaphore>,
    /// Who wants unused images gone.
    pub(crate) image_requests: crate::image_gc::collector::Requests,
    /// What pulls of images share.
    pub(crate) pulls: crate::pull::Pulls,
}

impl Context {
    /// The node as the API has it, or else as it registers.
    pub(crate) fn node(&self) -> Arc<Node> {
        self.node.get(&self.config.node_name).unwrap_or_else(|| {
            let mut node = self.initial_node.clone();
            self.features.known().show(node.status.get_or_insert_default());
            Arc::new(node)
        })
    }

    /// All that Pods can ask for, devices too.
    pub(crate) fn allocatable_now(&self) -> std::collections::BTreeMap<String, i64> {
        let mut all = self.room.clone();
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
        let given =
            self.config.alignment.allocate((self.numa_nodes, &self.numa_distances), (uid, spec), &providers);
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

    /// Records an event about the node.
    pub(crate) fn node_event(&self, event_type: EventType, reason: &str, message: String) {
        let name = self.config.node_name.clone();
        let regarding = ObjectReference {
            kind: Some("Node".into()),
            // Source: upstream's kubelet puts the name where the uid belongs, and `kubectl describe` looks for it.
            uid: Some(name.clone()),
            name: Some(name),
            ..ObjectReference::default()
        };
        self.recorder.event(regarding, event_type, reason, message);
    }

    /// Records an event about a Pod, or about one of its containers.
    pub(crate) fn event(
        &self,
        pod: &Pod,
        container: Option<&str>,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        let field_path = container.map(|name| {
            let spec = || pod.spec.iter();
            let is_init = spec().flat_map(|s| s.init_containers.iter().flatten()).any(|c| c.name == name);
            let is_ephemeral =
                spec().flat_map(|s| s.ephemeral_containers.iter().flatten()).any(|c| c.name == name);
            let list = match (is_init, is_ephemeral) {
                (true, _) => "initContainers",
                (_, true) => "ephemeralContainers",
                _ => "containers",
            };
            format!("spec.{list}{{{name}}}")
        });
        let regarding = ObjectReference { field_path, ..reference_to(pod) };
        self.recorder.event(regarding, event_type, reason, message);
    }

    /// Records an event about a Pod, with what machines may want to know beside its message.
    pub(crate) fn annotated_event(
        &self,
        pod: &Pod,
        (event_type, reason): (EventType, &str),
        message: String,
        annotations: BTreeMap<String, String>,
    ) {
        self.recorder.annotated(reference_to(pod), event_type, reason, message, annotations);
    }

    /// Counts and times a call of the runtime.
    pub(crate) async fn operation<T>(
        &self,
        kind: &str,
        call: impl Future<Output = Result<T, cri::CriError>>,
    ) -> Result<T, cri::CriError> {
        let start = std::time::Instant::now();
        let answer = call.await;
        self.metrics.operation(kind, start.elapsed(), answer.is_err());
        answer
    }

    /// Tells the trace of a step for a Pod that began at `start` and ends now.
    pub(crate) fn span(&self, cause: u64, name: &str, pod: &Pod, start: Timestamp, detail: &str) {
        let metadata = &pod.metadata;
        let object = format!(
            "pods/{}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        );
        self.reporter.span(cause, ("kubelet", name), &object, (start, self.clock.now()), detail);
    }
}

fn reference_to(pod: &Pod) -> ObjectReference {
    let metadata = &pod.metadata;
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        field_path: None,
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
