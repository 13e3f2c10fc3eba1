//! The same workload over the API: objects for keys, resource versions for revisions. The objects are ConfigMaps, or of a
//! custom kind whose definition changes, goes and comes again meanwhile.
//!
//! Whoever runs it says how requests reach the server: over TLS, or in the same process.

pub mod definition;
pub mod liar;
mod lines;
mod objects;
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
use crate::history::{Call, Outcome};
use crate::workload::{self, Plan, Target, World};
use definition::{Definition, Window};
use objects::{Objects, SELECTOR, Version, version};

/// The reason why a request was not answered.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
/// An answer's body.
pub type Body = UnsyncBoxBody<Bytes, Failure>;

/// The way in which a client reaches the API server.
pub trait Server: Send + Sync + 'static {
    /// Sends one request.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>>;
}

/// A request gets this long.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Before a server that could not be reached is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// A client.
#[derive(Clone)]
pub struct Client {
    server: Arc<dyn Server>,
    objects: Arc<Objects>,
    /// Of custom objects.
    definition: Option<Arc<Definition>>,
}

/// An answer: status and object.
type Answer = Result<(StatusCode, Value), Failure>;

impl Client {
    /// Sends its requests to `server`. Its objects are ConfigMaps.
    #[must_use]
    pub fn new(server: Arc<dyn Server>) -> Self {
        Self { server, objects: Arc::new(objects::config_maps()), definition: None }
    }

    /// The same with objects of the kind that `definition` defines.
    #[must_use]
    pub fn of_custom_kind(server: Arc<dyn Server>, definition: Arc<Definition>) -> Self {
        Self { server, objects: Arc::new(objects::custom()), definition: Some(definition) }
    }

    /// The keys of its objects.
    #[must_use]
    pub fn world(&self) -> &'static World {
        self.objects.world
    }

    /// Makes the namespaces that the workload is in, and the definition of its kind.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn prepare(&self, recorder: &Recorder) -> Result<(), Failure> {
        for (folder, _) in self.objects.world.folders {
            let name = self.objects.place(folder).0;
            let namespace = json!({"metadata": {"name": name}});
            let (code, body) = self.ask(Method::POST, "/api/v1/namespaces", Some(namespace)).await?;
            if !code.is_success() && code != StatusCode::CONFLICT {
                return Err(format!("namespace {name}: {body}").into());
            }
        }
        match &self.definition {
            Some(definition) => definition.begin(self, recorder).await,
            None => Ok(()),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let media_type =
            if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = Request::builder().method(method).uri(path).header("content-type", media_type);
        let (code, bytes) = self.send(request.header("accept", "application/json").body(body)?).await?;
        Ok((code, serde_json::from_slice(&bytes)?))
    }

    async fn text(&self, path: &str, accept: &str) -> Result<(StatusCode, Bytes), Failure> {
        self.send(Request::get(path).header("accept", accept).body(Bytes::new())?).await
    }

    async fn send(&self, request: Request<Bytes>) -> Result<(StatusCode, Bytes), Failure> {
        let answer = async {
            let response = self.server.send(request).await?;
            let code = response.status();
            Ok::<_, Failure>((code, response.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(REQUEST_MAX, answer).await?
    }

    /// The newest revision, as soon as the server can say it; it always serves namespaces.
    async fn newest(&self, timeout: Duration) -> Result<Revision, Failure> {
        let asked = async {
            loop {
                let answer = self.ask(Method::GET, "/api/v1/namespaces", None).await;
                if let Some(revision) = answer.ok().and_then(|(_, list)| version(&list)) {
                    return revision;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        Ok(tokio::time::timeout(timeout, asked).await?)
    }

    async fn outcome(&self, call: Call, recorder: &Recorder) -> Outcome {
        let window = self.definition.as_deref().map(Window::open);
        let version = self.objects.version();
        match self.try_call(&call, version, window.as_ref()).await {
            Ok((code, body)) => {
                let close = |window: Window<'_>| window.close(&call, version, code, &body, recorder);
                window.into_iter().for_each(close);
                self.objects.read(&call, code, &body)
            }
            Err(why) => Outcome::Unknown(why.to_string()),
        }
    }

    async fn try_call(&self, call: &Call, version: Version, window: Option<&Window<'_>>) -> Answer {
        let objects = &self.objects;
        let level = window.map(|window| window.level);
        match call {
            Call::Create { key, value, .. } => {
                let (namespace, name) = objects.place(key);
                let object = objects.object(name, value, level, version);
                self.ask(Method::POST, &objects.collection(version, namespace), Some(object)).await
            }
            Call::Update { key, value, expect, .. } => {
                let mut object = objects.object(objects.place(key).1, value, level, version);
                object["metadata"]["resourceVersion"] = json!(expect.to_string());
                self.ask(Method::PUT, &objects.path(version, key), Some(object)).await
            }
            Call::Delete { key, expect, .. } => {
                let preconditions = json!({"preconditions": {"resourceVersion": expect.to_string()}});
                self.ask(Method::DELETE, &objects.path(version, key), Some(preconditions)).await
            }
            Call::Get { key } => self.ask(Method::GET, &objects.path(version, key), None).await,
            Call::List { start, at, limit, .. } => {
                let namespace = start.strip_prefix(objects.prefix).unwrap_or_default().trim_end_matches('/');
                let mut path = format!("{}?{SELECTOR}", objects.collection(version, namespace));
                if *limit > 0 {
                    path += &format!("&limit={limit}");
                }
                if let Some(at) = at {
                    path += &format!("&resourceVersion={at}&resourceVersionMatch=Exact");
                }
                self.ask(Method::GET, &path, None).await
            }
            Call::Newest | Call::Compact { .. } | Call::End { .. } => Err("the API has no such call".into()),
        }
    }
}

impl Target for Client {
    fn call<'a>(&'a self, call: Call, recorder: &'a Recorder) -> BoxFuture<'a, Outcome> {
        self.outcome(call, recorder).boxed()
    }
}

/// Runs a workload to its end, then waits until every watcher has seen all of it.
///
/// # Errors
/// If the server cannot be reached at the beginning or at the end.
pub async fn run(client: &Client, plan: &Plan, recorder: &Recorder) -> Result<(), Failure> {
    let tasks = Tasks::new();
    let start = client.newest(plan.timeout).await?;
    let watchers: Vec<_> = (0..plan.watchers)
        .map(|number| watcher::spawn(client, recorder, &tasks, watcher::Manner::of(number), start))
        .collect();
    let clients = (0..plan.clients).map(|number| workload::work(client, plan, number, recorder));
    let clients = futures::future::join_all(clients);
    match &client.definition {
        Some(definition) => drop(definition.keep_changing(client, (plan.seed, recorder), clients).await?),
        None => drop(clients.await),
    }
    let newest = mark(client, plan, recorder).await?;
    workload::read_everything(client, plan.world, recorder).await;
    for watcher in watchers {
        watcher.finish(newest, plan.timeout, recorder).await;
    }
    tasks.stop_and_wait().await;
    Ok(())
}

/// The last write, which every watcher has to come to.
async fn mark(client: &Client, plan: &Plan, recorder: &Recorder) -> Result<Revision, Failure> {
    let mut last = String::new();
    let tried = async {
        for number in 0.. {
            let (key, value) = (
                format!("{}a/{}.mark{number}", client.objects.prefix, plan.name),
                format!("{}.mark{number}", plan.name),
            );
            let keep = crate::history::Keep::Durably;
            match workload::ask(client, recorder, Call::Create { key, value, keep }).await {
                Outcome::Wrote(revision) => return revision,
                other => last = format!("{other:?}"),
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        0
    };
    let marked = tokio::time::timeout(plan.timeout, tried).await;
    marked.map_err(|_| format!("the last write is not taken: {last}").into())
}
