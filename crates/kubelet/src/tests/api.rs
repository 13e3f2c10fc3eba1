//! As much of an API server as one Pod needs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

#[derive(Default)]
struct State {
    pod: Option<Value>,
    /// Everything else, by path.
    objects: BTreeMap<String, Value>,
    node: Value,
    revision: u64,
    status_writes: usize,
    /// Nobody is answered.
    is_away: bool,
    /// By which tokens expire; they do not without one.
    clock: Option<base::Clock>,
    /// How many were given.
    tokens: u32,
    events: Vec<(u64, Value)>,
    /// For Pods' certificates, in the order in which they were made, and what changed of them.
    certificate_requests: Vec<Value>,
    certificate_events: Vec<(u64, Value)>,
}

type Events = fn(&State) -> &Vec<(u64, Value)>;
const CERTIFICATES: &str = "/podcertificaterequests";

#[derive(Clone)]
pub(super) struct Api(Arc<(Mutex<State>, watch::Sender<u64>)>);

impl Default for Api {
    fn default() -> Self {
        Self(Arc::new((Mutex::new(State { revision: 1, ..State::default() }), watch::channel(1).0)))
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

fn answer(code: u16, value: &Value) -> Answer {
    let body = Full::new(Bytes::from(value.to_string())).boxed();
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

fn not_found() -> Answer {
    answer(
        404,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}),
    )
}

impl Api {
    pub(super) fn client(&self) -> kube::Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.handle(request).await) }
        });
        kube::Client::new(service, "default")
    }

    /// Answers nobody, or everybody again.
    pub(super) fn set_away(&self, is_away: bool) {
        self.0.0.lock().is_away = is_away;
    }

    /// Gives tokens that live as long as they are asked for, each another one.
    pub(super) fn set_clock(&self, clock: base::Clock) {
        self.0.0.lock().clock = Some(clock);
    }

    fn token(&self, seconds: i64) -> Value {
        let mut state = self.0.0.lock();
        let Some(clock) = &state.clock else {
            return json!({"token": "secret", "expirationTimestamp": "2099-01-01T00:00:00Z"});
        };
        let expires = clock.now() + jiff::SignedDuration::from_secs(seconds);
        state.tokens += 1;
        json!({"token": format!("secret {}", state.tokens), "expirationTimestamp": expires.to_string()})
    }

    fn change(&self, change: impl FnOnce(&mut State) -> &'static str) {
        let mut state = self.0.0.lock();
        state.revision += 1;
        let before = state.pod.clone();
        let kind = change(&mut state);
        let revision = state.revision;
        if let Some(pod) = state.pod.as_mut() {
            pod["metadata"]["resourceVersion"] = json!(revision.to_string());
        }
        let mut object = state.pod.clone().or(before).unwrap();
        object["metadata"]["resourceVersion"] = json!(revision.to_string());
        state.events.push((revision, json!({"type": kind, "object": object})));
        self.0.1.send_replace(revision);
    }

    /// A new request for a Pod's certificate.
    fn ask(&self, mut request: Value) -> Value {
        let mut state = self.0.0.lock();
        let number = state.certificate_requests.len() + 1;
        let created = state.clock.as_ref().map_or_else(jiff::Timestamp::now, base::Clock::now);
        request["metadata"]["name"] = format!("req-{number}").into();
        request["metadata"]["creationTimestamp"] = created.to_string().into();
        state.certificate_requests.push(request);
        self.tell_of_request(state, number, "ADDED")
    }

    fn tell_of_request(
        &self,
        mut state: parking_lot::MutexGuard<'_, State>,
        number: usize,
        kind: &str,
    ) -> Value {
        state.revision += 1;
        let revision = state.revision;
        state.certificate_requests[number - 1]["metadata"]["resourceVersion"] = revision.to_string().into();
        let object = state.certificate_requests[number - 1].clone();
        state.certificate_events.push((revision, json!({"type": kind, "object": object.clone()})));
        drop(state);
        self.0.1.send_replace(revision);
        object
    }

    /// Waits for the request of that number, and answers it.
    pub(super) async fn answer_request(&self, number: usize, status: Value) -> Value {
        let mut revisions = self.0.1.subscribe();
        while self.0.0.lock().certificate_requests.len() < number {
            revisions.changed().await.unwrap();
        }
        let mut state = self.0.0.lock();
        state.certificate_requests[number - 1]["status"] = status;
        self.tell_of_request(state, number, "MODIFIED")
    }

    /// Somebody deletes the request of that number.
    pub(super) fn lose_request(&self, number: usize) {
        self.tell_of_request(self.0.0.lock(), number, "DELETED");
    }

    pub(super) fn requests_made(&self) -> usize {
        self.0.0.lock().certificate_requests.len()
    }

    pub(super) fn put(&self, pod: Value) {
        self.change(|state| {
            state.pod = Some(pod);
            "ADDED"
        });
    }

    pub(super) fn delete(&self) {
        self.change(|state| {
            let metadata = &mut state.pod.as_mut().unwrap()["metadata"];
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            metadata["deletionGracePeriodSeconds"] = json!(1);
            "MODIFIED"
        });
    }

    /// As after a deletion by force, or by somebody else: the Pod is not there any more.
    pub(super) fn vanish(&self) {
        self.change(|state| {
            state.pod = None;
            "DELETED"
        });
    }

    pub(super) fn annotate(&self, value: &str) {
        self.change(|state| {
            state.pod.as_mut().unwrap()["metadata"]["annotations"] = json!({"a": value});
            "MODIFIED"
        });
    }

    pub(super) fn pod(&self) -> Value {
        self.0.0.lock().pod.clone().unwrap_or_default()
    }

    /// Has an object at a path; what is there already is replaced, without anybody being told.
    pub(super) fn set(&self, path: &str, object: Value) {
        self.0.0.lock().objects.insert(path.to_owned(), object);
        self.0.1.send_modify(|_| {});
    }

    pub(super) async fn until_object(&self, path: &str, condition: impl Fn(&Value) -> bool) {
        let mut revisions = self.0.1.subscribe();
        let object = || self.0.0.lock().objects.get(path).cloned().unwrap_or_default();
        let seen = async {
            while !condition(&object()) {
                revisions.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(super::DEADLINE, seen).await.is_err() {
            panic!("{path} did not become so: {:#}", object());
        }
    }

    /// Waits for an event with that reason that says so.
    pub(super) async fn until_event(&self, reason: &str, text: &str) {
        let mut revisions = self.0.1.subscribe();
        let is_there = || {
            let state = self.0.0.lock();
            let mut events = state.objects.iter().filter(|(path, _)| path.contains("/events/"));
            events.any(|(_, event)| {
                let said = [&event["note"], &event["message"]];
                event["reason"] == reason && said.iter().any(|said| **said == text)
            })
        };
        let seen = async {
            while !is_there() {
                revisions.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(super::DEADLINE, seen).await.is_err() {
            panic!("there is no event {reason} that says {text}: {:#?}", self.0.0.lock().objects);
        }
    }

    /// The node's status as it was written last.
    pub(super) fn node(&self) -> Value {
        self.0.0.lock().node.clone()
    }

    pub(super) async fn until_node(&self, condition: impl Fn(&Value) -> bool) {
        let mut revisions = self.0.1.subscribe();
        let seen = async {
            while !condition(&self.node()) {
                revisions.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(super::DEADLINE, seen).await.is_err() {
            panic!("the node did not become so: {:#}", self.node());
        }
    }

    pub(super) fn status_writes(&self) -> usize {
        self.0.0.lock().status_writes
    }

    pub(super) async fn until(&self, condition: impl Fn(&Value) -> bool) -> Value {
        let mut revisions = self.0.1.subscribe();
        loop {
            let pod = self.pod();
            if condition(&pod) {
                return pod;
            }
            revisions.changed().await.unwrap();
        }
    }

    pub(super) async fn until_gone(&self) {
        self.until(Value::is_null).await;
    }

    async fn handle(&self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        if self.0.0.lock().is_away {
            return answer(
                503,
                &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503}),
            );
        }
        let is_watch = query.contains("watch=true");
        match (parts.method, path) {
            (Method::GET, "/api/v1/pods") if is_watch => self.watch(query, |state| &state.events),
            (Method::GET, path) if is_watch && path.ends_with(CERTIFICATES) => {
                self.watch(query, |state| &state.certificate_events)
            }
            (Method::GET, _) if is_watch => forever(),
            (Method::GET, path) if path.ends_with(CERTIFICATES) => {
                let requests = self.0.0.lock().certificate_requests.clone();
                self.list("PodCertificateRequestList", requests)
            }
            (Method::POST, path) if path.ends_with(CERTIFICATES) => answer(201, &self.ask(body)),
            (Method::GET, "/api/v1/pods") => {
                self.list("PodList", self.0.0.lock().pod.clone().into_iter().collect())
            }
            (Method::GET, path) => self.read(path),
            (Method::PATCH, "/api/v1/namespaces/shop/pods/web/status") => self.patch_status(&body),
            (Method::PATCH, "/api/v1/nodes/n1/status") => {
                let mut state = self.0.0.lock();
                let used = state.node["status"]["volumesInUse"].take();
                state.node = body.clone();
                // Only this is written apart from the rest, and not by heartbeats.
                if state.node["status"]["volumesInUse"].is_null() && !used.is_null() {
                    state.node["status"]["volumesInUse"] = used;
                }
                drop(state);
                self.0.1.send_modify(|_| {});
                answer(200, &body)
            }
            (Method::DELETE, "/api/v1/namespaces/shop/pods/web") => {
                assert_eq!(body["preconditions"]["uid"], "u1");
                self.vanish();
                answer(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            (Method::POST, path) if path.ends_with("/token") => {
                let status = self.token(body["spec"]["expirationSeconds"].as_i64().unwrap_or_default());
                answer(
                    201,
                    &json!({"kind": "TokenRequest", "metadata": {}, "spec": {"audiences": []}, "status": status}),
                )
            }
            (Method::PATCH, path) => self.patch(path.strip_suffix("/status").unwrap_or(path), &body),
            (Method::PUT, path) => {
                self.set(path, body.clone());
                answer(200, &body)
            }
            (Method::POST, "/api/v1/nodes") if self.0.0.lock().objects.contains_key("/api/v1/nodes/n1") => {
                answer(409, &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409}))
            }
            (Method::POST, path) => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default();
                self.set(&format!("{path}/{name}"), body.clone());
                answer(201, &body)
            }
            _ => answer(200, &body),
        }
    }

    fn read(&self, path: &str) -> Answer {
        let state = self.0.0.lock();
        if let Some(object) = state.objects.get(path) {
            return answer(200, object);
        }
        let below = |other: &str| {
            other
                .strip_prefix(path)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|rest| !rest.contains('/'))
        };
        let items = state.objects.iter().filter(|(other, _)| below(other)).map(|(_, object)| object.clone());
        let items: Vec<_> = items.collect();
        drop(state);
        let is_named = ["/nodes/", "/csinodes/", "/persistentvolumeclaims/", "/persistentvolumes/"];
        match is_named.iter().any(|word| path.contains(word)) {
            true => not_found(),
            false => self.list("List", items),
        }
    }

    fn patch(&self, path: &str, patch: &Value) -> Answer {
        let mut state = self.0.0.lock();
        let Some(object) = state.objects.get_mut(path) else { return answer(200, patch) };
        merge_patch(object, patch);
        let answer = answer(200, object);
        drop(state);
        self.0.1.send_modify(|_| {});
        answer
    }

    fn list(&self, kind: &str, items: Vec<Value>) -> Answer {
        let revision = self.0.1.borrow().to_string();
        answer(
            200,
            &json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": revision}, "items": items}),
        )
    }

    fn patch_status(&self, patch: &Value) -> Answer {
        if self.0.0.lock().pod.is_none() {
            return not_found();
        }
        self.change(|state| {
            state.status_writes += 1;
            let status = &mut state.pod.as_mut().unwrap()["status"];
            for (key, value) in patch["status"].as_object().unwrap() {
                merge(status, key, value);
            }
            "MODIFIED"
        });
        answer(200, &self.pod())
    }

    fn watch(&self, query: &str, events: Events) -> Answer {
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")).unwrap();
        let from: u64 = from.parse().unwrap();
        let (shared, revisions) = (self.0.clone(), self.0.1.subscribe());
        let stream = futures::stream::unfold((from, revisions), move |(seen, mut revisions)| {
            let shared = shared.clone();
            async move {
                loop {
                    revisions.borrow_and_update();
                    let next =
                        events(&shared.0.lock()).iter().find(|(revision, _)| *revision > seen).cloned();
                    if let Some((revision, event)) = next {
                        return Some((Bytes::from(format!("{event}\n")), (revision, revisions)));
                    }
                    revisions.changed().await.ok()?;
                }
            }
        });
        let body = StreamBody::new(stream.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes))));
        Response::builder()
            .header("content-type", "application/json")
            .body(BodyExt::boxed(SyncBody(Mutex::new(Box::pin(body)))))
            .unwrap()
    }
}

/// A body that may be shared, as `BoxBody` wants it.
struct SyncBody<B>(Mutex<std::pin::Pin<Box<B>>>);

impl<B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send> hyper::body::Body for SyncBody<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.lock().as_mut().poll_frame(cx)
    }
}

fn forever() -> Answer {
    let body = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>());
    Response::builder().header("content-type", "application/json").body(BodyExt::boxed(body)).unwrap()
}

/// RFC 7386.
fn merge_patch(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else { return *target = patch.clone() };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(key)),
            value => merge_patch(&mut target[key], value),
        }
    }
}

/// Strategic merge, as far as a Pod's status goes.
fn merge(status: &mut Value, key: &str, value: &Value) {
    match (key, value) {
        (_, Value::Null) => {
            status.as_object_mut().unwrap().remove(key);
        }
        ("conditions", Value::Array(changed)) => {
            let mut all = status["conditions"].as_array().cloned().unwrap_or_default();
            for condition in changed {
                let mut condition = condition.clone();
                condition.as_object_mut().unwrap().retain(|_, v| !v.is_null());
                all.retain(|c| c["type"] != condition["type"]);
                all.push(condition);
            }
            status["conditions"] = Value::Array(all);
        }
        ("podIPs" | "hostIPs", Value::Array(items)) => {
            status[key] = items.iter().filter(|i| i["$patch"].is_null()).cloned().collect();
        }
        _ => status[key] = value.clone(),
    }
}
