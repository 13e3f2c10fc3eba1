//! The same workload over the API: ConfigMaps for keys, resource versions for revisions.
//!
//! Whoever runs it says how requests reach the server: over TLS, or in the same process.

pub mod liar;
mod lines;
mod watcher;

use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Value, json};
use store::Revision;

use crate::Recorder;
use crate::history::{Call, Outcome, State};
use crate::value;
use crate::workload::{self, OBJECTS, Plan, Target};

/// Why a request was not answered.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// An answer's body.
pub type Body = UnsyncBoxBody<Bytes, Failure>;

/// How a client reaches the API server.
pub trait Server: Send + Sync + 'static {
    /// Sends one request.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>>;
}

/// A request gets this long.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Before a server that could not be reached is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// What the workload's objects are told from others by.
const SELECTOR: &str = "labelSelector=torture%3Dyes";
const PREFIX: &str = "/registry/configmaps/";

/// A client.
#[derive(Clone)]
pub struct Client(Arc<dyn Server>);

/// An answer: status and object.
type Answer = Result<(StatusCode, Value), Failure>;

impl Client {
    /// Sends its requests to `server`.
    #[must_use]
    pub fn new(server: Arc<dyn Server>) -> Self {
        Self(server)
    }

    /// Makes the namespaces that the workload is in.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn prepare(&self) -> Result<(), Failure> {
        for (folder, _) in OBJECTS.folders {
            let name = place(folder).0;
            let namespace = json!({"metadata": {"name": name}});
            let (code, body) = self.ask(Method::POST, "/api/v1/namespaces", Some(namespace)).await?;
            if !code.is_success() && code != StatusCode::CONFLICT {
                return Err(format!("namespace {name}: {body}").into());
            }
        }
        Ok(())
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("accept", "application/json").body(body)?;
        let answer = async {
            let response = self.0.send(request).await?;
            let code = response.status();
            let bytes = response.into_body().collect().await?.to_bytes();
            Ok::<_, Failure>((code, serde_json::from_slice(&bytes)?))
        };
        tokio::time::timeout(REQUEST_MAX, answer).await?
    }

    /// The newest revision, as soon as the server can say it.
    async fn newest(&self, patience: Duration) -> Result<Revision, Failure> {
        let path = format!("/api/v1/configmaps?{SELECTOR}");
        let asked = async {
            loop {
                let answer = self.ask(Method::GET, &path, None).await;
                if let Some(revision) = answer.ok().and_then(|(_, list)| version(&list)) {
                    return revision;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        Ok(tokio::time::timeout(patience, asked).await?)
    }

    async fn outcome(&self, call: Call) -> Outcome {
        match self.try_call(&call).await {
            Ok((code, body)) => read(&call, code, &body),
            Err(why) => Outcome::Unknown(why.to_string()),
        }
    }

    async fn try_call(&self, call: &Call) -> Answer {
        match call {
            Call::Create { key, value, .. } => {
                let (namespace, name) = place(key);
                let path = format!("/api/v1/namespaces/{namespace}/configmaps");
                self.ask(Method::POST, &path, Some(object(name, value, None))).await
            }
            Call::Update { key, value, expect, .. } => {
                let body = object(place(key).1, value, Some(*expect));
                self.ask(Method::PUT, &path(key), Some(body)).await
            }
            Call::Delete { key, expect, .. } => {
                let preconditions = json!({"preconditions": {"resourceVersion": expect.to_string()}});
                self.ask(Method::DELETE, &path(key), Some(preconditions)).await
            }
            Call::Get { key } => self.ask(Method::GET, &path(key), None).await,
            Call::List { start, at, limit, .. } => {
                let mut path = format!("{}?{SELECTOR}", collection(start));
                if *limit > 0 {
                    path += &format!("&limit={limit}");
                }
                if let Some(at) = at {
                    path += &format!("&resourceVersion={at}&resourceVersionMatch=Exact");
                }
                self.ask(Method::GET, &path, None).await
            }
            Call::Newest | Call::Compact { .. } => Err("the API has no such call".into()),
        }
    }
}

impl Target for Client {
    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        self.outcome(call).boxed()
    }
}

/// Runs a workload to its end, then waits until every watcher has seen all of it.
///
/// # Errors
/// If the server cannot be reached at the beginning or at the end.
pub async fn run(client: &Client, plan: &Plan, recorder: &Recorder) -> Result<(), Failure> {
    let tasks = Tasks::new();
    let start = client.newest(plan.patience).await?;
    let watchers: Vec<_> = (0..plan.watchers)
        .map(|number| watcher::spawn(client, recorder, &tasks, watcher::Manner::of(number), start))
        .collect();
    let clients = (0..plan.clients).map(|number| workload::work(client, plan, number, recorder));
    futures::future::join_all(clients).await;
    let newest = mark(client, plan, recorder).await?;
    workload::read_everything(client, plan.world, recorder).await;
    for watcher in watchers {
        watcher.finish(newest, plan.patience, recorder).await;
    }
    tasks.stop_and_wait().await;
    Ok(())
}

/// The last write, which every watcher has to come to.
async fn mark(client: &Client, plan: &Plan, recorder: &Recorder) -> Result<Revision, Failure> {
    let mut last = String::new();
    let tried = async {
        for number in 0.. {
            let (key, value) =
                (format!("{PREFIX}a/{}.mark{number}", plan.name), format!("{}.mark{number}", plan.name));
            let keep = crate::history::Keep::Durably;
            match workload::ask(client, recorder, Call::Create { key, value, keep }).await {
                Outcome::Wrote(revision) => return revision,
                other => last = format!("{other:?}"),
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        0
    };
    let marked = tokio::time::timeout(plan.patience, tried).await;
    marked.map_err(|_| format!("the last write is not taken: {last}").into())
}

/// Namespace and name.
fn place(key: &str) -> (&str, &str) {
    key.strip_prefix(PREFIX).unwrap_or(key).split_once('/').unwrap_or_default()
}

fn path(key: &str) -> String {
    let (namespace, name) = place(key);
    format!("/api/v1/namespaces/{namespace}/configmaps/{name}")
}

/// Of a range's first key.
fn collection(start: &str) -> String {
    match start.strip_prefix(PREFIX).unwrap_or_default().trim_end_matches('/') {
        "" => "/api/v1/configmaps".to_owned(),
        namespace => format!("/api/v1/namespaces/{namespace}/configmaps"),
    }
}

fn object(name: &str, tag: &str, expect: Option<Revision>) -> Value {
    let value = String::from_utf8_lossy(&value::encode(tag)).into_owned();
    let mut metadata = json!({"name": name, "labels": {"torture": "yes"}});
    if let Some(expect) = expect {
        metadata["resourceVersion"] = json!(expect.to_string());
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}})
}

fn version(object: &Value) -> Option<Revision> {
    object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// Key and state of an object.
fn state(object: &Value) -> Option<(String, State)> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let key = format!("{PREFIX}{}/{}", text("/metadata/namespace")?, text("/metadata/name")?);
    let value = value::decode(text("/data/value")?.as_bytes());
    Some((key, State { value, revision: version(object)?, created: None }))
}

/// What an answer says about a call.
fn read(call: &Call, code: StatusCode, body: &Value) -> Outcome {
    let unclear = || Outcome::Unknown(format!("{code}: {body:.200}"));
    match (call, code) {
        (Call::Create { .. } | Call::Update { .. }, StatusCode::OK | StatusCode::CREATED) => {
            version(body).map_or_else(unclear, Outcome::Wrote)
        }
        (Call::Delete { .. }, StatusCode::OK) => Outcome::Done,
        (Call::Get { .. }, StatusCode::OK) => {
            state(body).map_or_else(unclear, |(_, state)| Outcome::Got(Some(state)))
        }
        (Call::Get { .. }, StatusCode::NOT_FOUND) => Outcome::Got(None),
        (Call::List { .. }, StatusCode::OK) => {
            let states = body["items"].as_array().map(|items| items.iter().map(state).collect::<Option<_>>());
            match (version(body), states.unwrap_or(Some(Vec::new()))) {
                (Some(revision), Some(states)) => Outcome::Listed { revision, states, remaining: None },
                _ => unclear(),
            }
        }
        (Call::List { .. }, StatusCode::GONE) => Outcome::Gone,
        (Call::Update { .. } | Call::Delete { .. }, StatusCode::NOT_FOUND) => Outcome::Refused(None),
        (Call::Create { .. } | Call::Update { .. } | Call::Delete { .. }, StatusCode::CONFLICT) => {
            Outcome::RefusedBlindly
        }
        (_, code) if code.is_client_error() && code != StatusCode::TOO_MANY_REQUESTS => {
            Outcome::NotDone(format!("{code}: {body}"))
        }
        _ => unclear(),
    }
}
