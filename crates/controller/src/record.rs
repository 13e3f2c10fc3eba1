//! Records Events: equal ones are counted instead of repeated, and recording never holds anyone up.
//!
//! Source: `k8s.io/client-go/tools/record`: events are core/v1 objects named `<object>.<suffix>`.

mod correlate;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use base::{Clock, Random, Tasks};
use http::request::Builder;
use http::{Request, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::cause;
use crate::event::{EventAction, EventType};
use crate::sender::Sender;
use correlate::{Correlator, Observed};

/// Events are written by so many tasks, those of one object by one of them, in their order. Source: the recorder of
/// `k8s.io/client-go/tools/events`, which has one for each event.
const SHARDS: usize = 8;
/// Events of a shard that wait to be written; more are dropped, and the drop is logged.
const SHARD_MAX: usize = 256;
/// Controllers that events call otherwise than flags do. Source: the `EventSource` of each in `pkg/controller`.
const COMPONENTS: [(&str, &str); 17] = [
    ("replicationcontroller-controller", "replication-controller"),
    ("daemon-set-controller", "daemonset-controller"),
    ("disruption-controller", "controllermanager"),
    ("endpointslice-mirroring-controller", "endpoint-slice-mirroring-controller"),
    ("endpoints-controller", "endpoint-controller"),
    ("endpointslice-controller", "endpoint-slice-controller"),
    ("ephemeral-volume-controller", "ephemeral_volume"),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
    ("node-ipam-controller", "cidrAllocator"),
    ("node-lifecycle-controller", "node-controller"),
    ("node-route-controller", "route_controller"),
    ("service-lb-controller", "service-controller"),
    ("persistentvolume-attach-detach-controller", "attachdetach-controller"),
    ("persistentvolume-binder-controller", "persistentvolume-controller"),
    ("persistentvolume-expander-controller", "volume_expand"),
    ("resource-claim-controller", "resource_claim"),
    ("selinux-warning-controller", "selinux_warning"),
];

/// As whom a controller of that name speaks in events.
pub fn component_of(controller: &'static str) -> &'static str {
    COMPONENTS.iter().find(|(name, _)| *name == controller).map_or(controller, |(_, component)| component)
}

/// A Node as events of its parts name it: `kubectl describe` looks for the name where the uid is.
pub fn node(name: &str) -> ObjectReference {
    let (kind, uid) = (Some("Node".to_owned()), Some(name.to_owned()));
    ObjectReference { kind, uid, name: Some(name.to_owned()), ..ObjectReference::default() }
}

/// A recorder of events, which writes them in the background. Cloning shares it.
#[derive(Clone)]
pub struct Recorder {
    shards: Arc<[mpsc::Sender<Recorded>]>,
    component: &'static str,
}

struct Recorded {
    event: Box<EventAction>,
    woken_by: u64,
}

/// What writes the events of one shard.
pub(crate) struct Writer {
    sender: Sender,
    clock: Clock,
    random: Random,
    /// The Node that the events are of; empty for components that are of none.
    host: String,
    correlator: Correlator,
}

impl Recorder {
    /// A recorder whose events come from `component`; `writer` makes that of each shard.
    pub(crate) fn start(writer: impl Fn() -> Writer, tasks: &Tasks, component: &'static str) -> Self {
        let shard = |_| {
            let (shard, mut events) = mpsc::channel(SHARD_MAX);
            let mut writer = writer();
            tasks.spawn("event recorder", async move {
                while let Some(Recorded { event, woken_by }) = events.recv().await {
                    cause::with(woken_by, writer.write(&event)).await;
                }
            });
            shard
        };
        Self { shards: (0..SHARDS).map(shard).collect(), component }
    }

    /// The same recorder for another component of this process.
    #[must_use]
    pub fn of(&self, component: &'static str) -> Self {
        Self { shards: self.shards.clone(), component }
    }

    /// Records an event about the referenced object.
    pub fn event(&self, regarding: ObjectReference, event_type: EventType, reason: &str, message: String) {
        self.annotated(regarding, event_type, reason, message, BTreeMap::new());
    }

    /// The same with annotations. Source: `AnnotatedEventf`.
    pub fn annotated(
        &self,
        regarding: ObjectReference,
        event_type: EventType,
        reason: &str,
        message: String,
        annotations: BTreeMap<String, String>,
    ) {
        let (component, reason) = (self.component.into(), reason.to_owned());
        let event = EventAction { component, regarding, event_type, reason, message, annotations };
        self.record(Box::new(event));
    }

    pub(crate) fn record(&self, mut event: Box<EventAction>) {
        let woken_by = cause::current().unwrap_or(0);
        if event.component.is_empty() {
            event.component = self.component.into();
        }
        let shard = shard_of(&event.regarding);
        let recorded = Recorded { event, woken_by };
        if let Some(Err(error)) = self.shards.get(shard).map(|shard| shard.try_send(recorded)) {
            tracing::warn!(%error, "an event was dropped");
        }
    }
}

/// The shard that all events about an object take.
fn shard_of(object: &ObjectReference) -> usize {
    let mut hasher = DefaultHasher::new();
    (&object.namespace, &object.name, &object.uid).hash(&mut hasher);
    usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0)
}

impl Writer {
    /// `host` is the Node that the events are of.
    pub(crate) fn new(sender: Sender, clock: Clock, random: Random, host: &str) -> Self {
        Self { sender, clock, random, host: host.to_owned(), correlator: Correlator::default() }
    }

    async fn write(&mut self, event: &EventAction) {
        let now = self.clock.now();
        let Some(observed) = self.correlator.observe(event, now, &self.random) else { return };
        let namespace = event.regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name =
            format!("{}.{:016x}", event.regarding.name.as_deref().unwrap_or_default(), observed.suffix);
        let events = format!("/api/v1/namespaces/{namespace}/events");
        if observed.count > 1 {
            let body = json!({
                "count": observed.count,
                "lastTimestamp": second(now),
                "message": observed.message(event),
            });
            let request = Request::patch(format!("{events}/{name}"));
            if self.send(request, "application/merge-patch+json", &body).await != Some(StatusCode::NOT_FOUND)
            {
                return;
            }
        }
        let body = self.object(event, &observed, json!({ "name": name, "namespace": namespace }), now);
        self.send(Request::post(events), "application/json", &body).await;
    }

    fn object(&self, event: &EventAction, observed: &Observed, metadata: Value, now: Timestamp) -> Value {
        let mut object = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": event.regarding,
            "type": event.event_type.as_str(),
            "reason": event.reason,
            "message": observed.message(event),
            "source": { "component": event.component },
            "reportingComponent": event.component,
            "firstTimestamp": second(observed.first),
            "lastTimestamp": second(now),
            "count": observed.count,
        });
        if !event.annotations.is_empty() {
            object["metadata"]["annotations"] = json!(event.annotations);
        }
        if !self.host.is_empty() {
            object["source"]["host"] = json!(self.host);
            object["reportingInstance"] = json!(self.host);
        }
        object
    }

    /// The answer's status; `None` if there was no answer, which the log tells.
    async fn send(&self, request: Builder, content_type: &str, body: &Value) -> Option<StatusCode> {
        let body = Body::from(body.to_string().into_bytes());
        let answer = match request.header("content-type", content_type).body(body) {
            Ok(request) => self.sender.send(request).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(response) => {
                let status = response.status();
                if !status.is_success() {
                    tracing::debug!(%status, "an event was refused");
                }
                Some(status)
            }
            Err(error) => {
                tracing::debug!(error, "an event was not written");
                None
            }
        }
    }
}

/// `metav1.Time` has seconds only.
fn second(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;
    use std::time::Duration;

    use http::Response;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{ClientMetrics, Informers};

    /// A server that takes events and tells of each the object and the reason; `stuck` is never answered.
    fn client(told: mpsc::UnboundedSender<(String, String)>) -> kube::Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let told = told.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let event: Value = serde_json::from_slice(&body).unwrap();
                let text = |pointer: &str| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
                told.send((text("/involvedObject/name"), text("/reason"))).unwrap();
                if text("/involvedObject/name") == "stuck" {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::builder().status(201).body(Body::empty()).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    fn object(name: &str) -> ObjectReference {
        let (namespace, name) = (Some("default".to_owned()), Some(name.to_owned()));
        ObjectReference { namespace, name, ..ObjectReference::default() }
    }

    #[tokio::test]
    async fn events_of_one_object_are_written_in_order_and_hold_up_nobody_elses() {
        let (told, mut heard) = mpsc::unbounded_channel();
        let (clock, random) = (Clock::manual(Timestamp::UNIX_EPOCH), Random::seeded(1));
        let metrics = ClientMetrics::default();
        let informers = Informers::metered(client(told), Tasks::new(), clock, random, metrics);
        let recorder = informers.recorder("tester");
        let say = |name: &str, reason: &str| {
            recorder.event(object(name), EventType::Normal, reason, format!("{name} {reason}"));
        };
        let stuck = shard_of(&object("stuck"));
        let names: Vec<String> = (0..32).map(|number| format!("pod-{number}")).collect();
        let free: Vec<_> = names.iter().filter(|name| shard_of(&object(name)) != stuck).collect();
        assert!(free.len() > 20 && free.len() < names.len(), "{}", free.len());
        say("stuck", "Stays");
        for reason in ["First", "Second", "Third"] {
            names.iter().for_each(|name| say(name, reason));
        }
        let mut seen: HashMap<String, Vec<String>> = HashMap::new();
        for _ in 0..=3 * free.len() {
            let (name, reason) =
                tokio::time::timeout(Duration::from_secs(30), heard.recv()).await.unwrap().unwrap();
            seen.entry(name).or_default().push(reason);
        }
        assert_eq!(seen.remove("stuck").unwrap(), ["Stays"]);
        assert_eq!(seen.len(), free.len());
        for (name, reasons) in seen {
            assert_eq!(reasons, ["First", "Second", "Third"], "{name}");
        }
    }
}
