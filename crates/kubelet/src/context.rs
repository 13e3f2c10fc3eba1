//! What every part of a kubelet may use: configuration, clients, time, metrics, and facts about the node.
//!
//! It owns nothing that one room of the kubelet gives away: what rooms own is in handles of their own, which stand on this.

pub(crate) mod node_state;
pub(crate) mod runtime_features;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::record::Recorder;
use controller::trace::{Reporter, Span};
use controller::{EventType, Informer, Informers};
use cri::{ImageService, RuntimeService};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Service};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::context::node_state::NodeState;
use crate::context::runtime_features::RuntimeFeatures;
use crate::metrics::KubeletMetrics;
use crate::pod::status::NodeFacts;

/// CRI calls that change something, at the same time.
pub(crate) const CRI_CALLS_MAX: usize = 32;

/// Shared by all of a kubelet.
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
    /// What the runtime can do.
    pub(crate) features: RuntimeFeatures,
    /// What Pods can have beside devices, CPU in thousandths. See [`crate::pod::admission::Room`].
    pub(crate) allocatable: BTreeMap<String, i64>,
    pub(crate) metrics: Arc<KubeletMetrics>,
    /// Bounds the CRI calls.
    pub(crate) limit: Arc<Semaphore>,
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
        event_type: EventType,
        reason: &str,
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
        self.reporter.span(Span {
            cause,
            component: "kubelet".to_owned(),
            name: name.to_owned(),
            object,
            start_us: start.as_microsecond(),
            end_us: self.clock.now().as_microsecond(),
            detail: detail.to_owned(),
        });
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
