//! An API server for tests, whose kinds come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use base::{Clock, Metrics, Random, Tasks};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{ClientMetrics, Informers};

/// What it serves. Paths are those of group-versions, such as `example.com/v1`.
#[derive(Clone, Default)]
pub(crate) struct State {
    /// Plurals, by group-version; nothing where the group-version is stale.
    pub(crate) kinds: BTreeMap<String, Option<BTreeSet<String>>>,
    /// Names, by group-version and plural; with the revision at which they changed.
    pub(crate) objects: BTreeMap<(String, String), BTreeMap<String, u64>>,
    /// Plurals whose lists fail.
    pub(crate) broken: BTreeSet<String>,
    /// What is told of the stored versions, by plural.
    pub(crate) hashes: BTreeMap<String, String>,
    /// Whether `/apis` is answered.
    pub(crate) is_mute: bool,
    revision: u64,
}

impl State {
    pub(crate) fn serve(&mut self, group_version: &str, plurals: &[&str]) {
        let plurals = plurals.iter().map(|&plural| plural.to_owned()).collect();
        self.kinds.insert(group_version.to_owned(), Some(plurals));
    }

    /// Makes or changes an object.
    pub(crate) fn put(&mut self, group_version: &str, plural: &str, name: &str) {
        self.revision += 1;
        let place = (group_version.to_owned(), plural.to_owned());
        self.objects.entry(place).or_default().insert(name.to_owned(), 10 + self.revision);
    }
}

/// What was asked.
#[derive(Default)]
pub(crate) struct Seen {
    /// Requests by path; with ` watch` behind it, or ` 304` for documents that had not changed.
    pub(crate) requests: Mutex<BTreeMap<String, usize>>,
    /// Open watches by plural.
    pub(crate) watches: Mutex<BTreeMap<String, usize>>,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) state: watch::Sender<State>,
    pub(crate) seen: Arc<Seen>,
}

impl Server {
    /// Starts it, and informers that stand on it.
    pub(crate) fn start(state: State) -> (Self, Informers, ClientMetrics) {
        let server = Self { state: watch::Sender::new(state), seen: Arc::default() };
        let of = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = of.clone();
            async move { Ok::<_, Infallible>(server.answer(&request)) }
        });
        let metrics = ClientMetrics::new(&Metrics::default()).of_part("tester");
        let clock = Clock::simulated("2026-01-01T12:00:00Z".parse().unwrap());
        let client = kube::Client::new(service, "default");
        let informers = Informers::metered(client, Tasks::new(), clock, Random::seeded(1), metrics.clone());
        (server, informers, metrics)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }

    pub(crate) fn requests(&self, path: &str) -> usize {
        self.seen.requests.lock().get(path).copied().unwrap_or_default()
    }

    pub(crate) fn watches(&self, plural: &str) -> usize {
        self.seen.watches.lock().get(plural).copied().unwrap_or_default()
    }

    fn answer(&self, request: &Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let path = request.uri().path().to_owned();
        let state = self.state.borrow();
        if matches!(path.as_str(), "/api" | "/apis") {
            return self.discovery(&path, &state, request);
        }
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        let counted = if is_watch { format!("{path} watch") } else { path.clone() };
        *self.seen.requests.lock().entry(counted).or_default() += 1;
        if let Some(plurals) = state.kinds.get(path.trim_start_matches("/apis/")) {
            let listed = plurals.iter().flatten().map(|plural| {
                json!({"name": plural, "storageVersionHash": state.hashes.get(plural).cloned().unwrap_or_default()})
            });
            return full(200, "", &json!({"resources": listed.collect::<Vec<_>>()}));
        }
        let parts: Vec<&str> = path.trim_start_matches("/apis/").rsplitn(2, '/').collect();
        let [plural, group_version] = parts.as_slice() else { return full(404, "", &Value::Null) };
        let is_served = state
            .kinds
            .get(*group_version)
            .is_some_and(|plurals| plurals.as_ref().is_none_or(|plurals| plurals.contains(*plural)));
        if !is_served {
            return full(404, "", &json!({"kind": "Status", "code": 404, "details": {}}));
        }
        if state.broken.contains(*plural) {
            return full(500, "", &json!({"kind": "Status", "message": "conversion webhook failed"}));
        }
        let place = ((*group_version).to_owned(), (*plural).to_owned());
        if is_watch {
            let from =
                query.split("&resourceVersion=").nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
            return self.follow(place, from);
        }
        let items: Vec<Value> = state.objects.get(&place).into_iter().flatten().map(object).collect();
        full(
            200,
            "",
            &json!({"metadata": {"resourceVersion": (10 + state.revision).to_string()}, "items": items}),
        )
    }

    fn discovery(
        &self,
        path: &str,
        state: &State,
        request: &Request<Body>,
    ) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let mut counted = path.to_owned();
        let groups = if path == "/apis" { state.kinds.clone() } else { BTreeMap::new() };
        let mut items: Vec<Value> = Vec::new();
        for (place, plurals) in &groups {
            let mut one = group(place, plurals.as_ref());
            match items.last_mut().filter(|last| last["metadata"] == one["metadata"]) {
                Some(last) => {
                    let more = one["versions"].as_array_mut().unwrap().drain(..);
                    last["versions"].as_array_mut().unwrap().extend(more);
                }
                None => items.push(one),
            }
        }
        let document = json!({"kind": "APIGroupDiscoveryList", "items": items});
        let tag = format!("\"{}\"", document.to_string().len());
        let is_known =
            request.headers().get("if-none-match").is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let answer = if state.is_mute {
            full(503, "", &json!({"kind": "Status", "message": "etcd is away"}))
        } else if is_known {
            counted.push_str(" 304");
            full(304, &tag, &Value::Null)
        } else {
            full(200, &tag, &document)
        };
        *self.seen.requests.lock().entry(counted).or_default() += 1;
        answer
    }

    /// A watch, which ends when its kind goes.
    fn follow(&self, place: (String, String), from: u64) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let open = Open::new(self.seen.clone(), place.1.clone());
        let mut states = self.state.subscribe();
        states.mark_changed();
        let stream = futures::stream::unfold((states, open, from), move |(mut states, open, from)| {
            let place = place.clone();
            async move {
                states.changed().await.ok()?;
                let state = states.borrow_and_update().clone();
                let plurals = state.kinds.get(&place.0)?;
                if plurals.as_ref().is_some_and(|plurals| !plurals.contains(&place.1)) {
                    return None;
                }
                let new = state.objects.get(&place).into_iter().flatten().filter(|(_, at)| **at > from);
                let lines =
                    new.map(|one| format!("{}\n", json!({"type": "MODIFIED", "object": object(one)})));
                let data: String = lines.collect();
                let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(data)));
                Some((frame, (states, open, 10 + state.revision)))
            }
        });
        Response::new(StreamBody::new(stream.boxed()).boxed_unsync())
    }
}

/// A watch that is open.
struct Open(Arc<Seen>, String);

impl Open {
    fn new(seen: Arc<Seen>, plural: String) -> Self {
        *seen.watches.lock().entry(plural.clone()).or_default() += 1;
        Self(seen, plural)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.0.watches.lock().entry(self.1.clone()).or_default() -= 1;
    }
}

fn object((name, revision): (&String, &u64)) -> Value {
    json!({"metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": revision.to_string()}})
}

fn group(place: &str, plurals: Option<&BTreeSet<String>>) -> Value {
    let (name, version) = place.split_once('/').unwrap();
    let freshness = if plurals.is_some() { "Current" } else { "Stale" };
    let resources: Vec<Value> = plurals
        .into_iter()
        .flatten()
        .map(|plural| {
            json!({"resource": plural, "responseKind": {"kind": plural}, "scope": "Cluster",
                   "verbs": ["create", "delete", "get", "list", "watch"]})
        })
        .collect();
    json!({"metadata": {"name": name},
           "versions": [{"version": version, "freshness": freshness, "resources": resources}]})
}

fn full(code: u16, tag: &str, body: &Value) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    let response = Response::builder().status(StatusCode::from_u16(code).unwrap());
    let response = if tag.is_empty() { response } else { response.header("etag", tag) };
    response.body(body).unwrap()
}
