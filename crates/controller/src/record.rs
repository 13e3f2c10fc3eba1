//! Records Events: equal ones are counted instead of repeated, and recording never holds anyone up.
//!
//! Source: `k8s.io/client-go/tools/record`: events are core/v1 objects named `<object>.<suffix>`; an event with
//! the same object, reason and message as one of the last few minutes raises that one's `count`.

use std::collections::HashMap;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc;

use crate::cause;
use crate::informer::Informers;
use crate::plan::{EventAction, EventType};

/// Events that wait to be written; more are dropped, and the drop is logged.
const QUEUE_MAX: usize = 1024;
/// Distinct events whose counts are remembered.
const REMEMBERED_MAX: usize = 4096;
/// Controllers that events call otherwise than flags do. Source: the `EventSource` of each in `pkg/controller`.
const COMPONENTS: [(&str, &str); 12] = [
    ("daemon-set-controller", "daemonset-controller"),
    ("disruption-controller", "controllermanager"),
    ("endpoints-controller", "endpoint-controller"),
    ("endpointslice-controller", "endpoint-slice-controller"),
    ("ephemeral-volume-controller", "ephemeral_volume"),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
    ("node-ipam-controller", "cidrAllocator"),
    ("node-lifecycle-controller", "node-controller"),
    ("persistentvolume-attach-detach-controller", "attachdetach-controller"),
    ("persistentvolume-binder-controller", "persistentvolume-controller"),
    ("persistentvolume-expander-controller", "volume_expand"),
    ("resource-claim-controller", "resource_claim"),
];

/// As whom a controller of that name speaks in events.
pub fn component_of(controller: &'static str) -> &'static str {
    COMPONENTS.iter().find(|(name, _)| *name == controller).map_or(controller, |(_, component)| component)
}

/// Takes events and writes them in the background. Cloning shares it.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Recorded>,
    component: &'static str,
}

struct Recorded {
    event: EventAction,
    woken_by: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Same {
    component: &'static str,
    uid: String,
    key: String,
    event_type: &'static str,
    field_path: String,
    reason: String,
    message: String,
}

struct Written {
    name: String,
    namespace: String,
    count: u64,
}

struct Writer {
    informers: Informers,
    /// The Node that the events are of; empty for components that are of none.
    host: String,
    remembered: HashMap<Same, Written>,
}

impl Recorder {
    /// A recorder whose events come from `component`.
    pub fn start(informers: &Informers, component: &'static str) -> Self {
        Self::start_on(informers, component, "")
    }

    /// A recorder whose events come from `component` on the Node `host`.
    pub fn start_on(informers: &Informers, component: &'static str, host: &str) -> Self {
        let (queue, mut events) = mpsc::channel(QUEUE_MAX);
        let mut writer =
            Writer { informers: informers.clone(), host: host.to_owned(), remembered: HashMap::new() };
        informers.tasks().spawn("event recorder", async move {
            while let Some(Recorded { event, woken_by }) = events.recv().await {
                cause::with(woken_by, writer.write(event)).await;
            }
        });
        Self { queue, component }
    }

    /// The same recorder for another component of this process.
    #[must_use]
    pub fn of(&self, component: &'static str) -> Self {
        Self { queue: self.queue.clone(), component }
    }

    /// Records an event about the referenced object.
    pub fn event(&self, regarding: ObjectReference, event_type: EventType, reason: &str, message: String) {
        let component = self.component;
        self.record(EventAction { component, regarding, event_type, reason: reason.to_owned(), message });
    }

    pub(crate) fn record(&self, mut event: EventAction) {
        let woken_by = cause::current().unwrap_or(0);
        if event.component.is_empty() {
            event.component = self.component;
        }
        let recorded = Recorded { event, woken_by };
        if let Err(error) = self.queue.try_send(recorded) {
            tracing::warn!(%error, "an event was dropped");
        }
    }
}

impl Writer {
    async fn write(&mut self, event: EventAction) {
        let now = self.informers.clock().now();
        let same = Same {
            component: event.component,
            uid: event.regarding.uid.clone().unwrap_or_default(),
            key: format!("{:?}/{:?}", event.regarding.namespace, event.regarding.name),
            event_type: event.event_type.as_str(),
            field_path: event.regarding.field_path.clone().unwrap_or_default(),
            reason: event.reason.clone(),
            message: event.message.clone(),
        };
        if let Some(written) = self.remembered.get_mut(&same) {
            written.count += 1;
            let request = count_request(written, now);
            if self.send(request).await {
                return;
            }
        }
        let (request, written) = self.create_request(&event, now);
        if self.send(request).await {
            if self.remembered.len() >= REMEMBERED_MAX {
                self.remembered.clear();
            }
            self.remembered.insert(same, written);
        }
    }

    fn create_request(
        &self,
        event: &EventAction,
        now: Timestamp,
    ) -> (Result<Request<Body>, http::Error>, Written) {
        let object = event.regarding.name.as_deref().unwrap_or_default();
        let namespace = event.regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = format!("{object}.{:016x}", self.informers.random().below(u64::MAX));
        let at = second(now);
        let mut body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": event.regarding,
            "type": event.event_type.as_str(),
            "reason": event.reason,
            "message": event.message,
            "source": { "component": event.component },
            "reportingComponent": event.component,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        });
        if !self.host.is_empty() {
            body["source"]["host"] = json!(self.host);
            body["reportingInstance"] = json!(self.host);
        }
        let request = Request::post(format!("/api/v1/namespaces/{namespace}/events"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string().into_bytes()));
        (request, Written { name, namespace, count: 1 })
    }

    async fn send(&self, request: Result<Request<Body>, http::Error>) -> bool {
        let answer = match request {
            Ok(request) => self.informers.sender().send(request).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(response) if response.status().is_success() => true,
            Ok(response) => {
                tracing::debug!(status = %response.status(), "an event was refused");
                false
            }
            Err(error) => {
                tracing::debug!(error, "an event was not written");
                false
            }
        }
    }
}

fn count_request(written: &Written, now: Timestamp) -> Result<Request<Body>, http::Error> {
    let body = json!({ "count": written.count, "lastTimestamp": second(now) });
    Request::patch(format!("/api/v1/namespaces/{}/events/{}", written.namespace, written.name))
        .header("content-type", "application/merge-patch+json")
        .body(Body::from(body.to_string().into_bytes()))
}

/// `metav1.Time` has seconds only.
fn second(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
