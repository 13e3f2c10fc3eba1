//! What all workers of one kubelet share: configuration, clients, and facts about the node.

use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::record::Recorder;
use controller::trace::Reporter;
use controller::{EventType, Informer, Informers};
use cri::{ImageService, RuntimeService};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use tokio::sync::Semaphore;

use crate::allocations::Allocations;
use crate::config::Config;
use crate::csi::Drivers;
use crate::status::NodeFacts;

/// CRI calls that change something, at the same time.
pub(crate) const CRI_CALLS_MAX: usize = 32;

/// Shared by all workers.
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) client: kube::Client,
    pub(crate) informers: Informers,
    pub(crate) services: Informer<Service>,
    pub(crate) runtime: Arc<dyn RuntimeService>,
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) recorder: Recorder,
    pub(crate) reporter: Reporter,
    pub(crate) facts: NodeFacts,
    /// CPU in thousandths and memory in bytes that Pods can have.
    pub(crate) allocatable: (i64, i64),
    /// What of that they have.
    pub(crate) allocations: Allocations,
    /// Bytes.
    pub(crate) memory_capacity: i64,
    /// The drivers of this node.
    pub(crate) csi: Drivers,
    /// Bounds the CRI calls.
    pub(crate) limit: Arc<Semaphore>,
    /// What pulls of images share.
    pub(crate) pulls: crate::pull::Pulls,
}

impl Context {
    /// Records an event about a Pod, or about one of its containers.
    pub(crate) fn event(
        &self,
        pod: &Pod,
        container: Option<&str>,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        let metadata = &pod.metadata;
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
        let regarding = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
            field_path,
        };
        self.recorder.event(regarding, event_type, reason, message);
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
