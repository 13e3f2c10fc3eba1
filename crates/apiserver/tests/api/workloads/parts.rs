//! Controllers and schedulers, two candidates of each, which are killed at their writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use apiserver::ApiService;
use apiserver::respond::BoxError;
use base::Tasks;
use bytes::Bytes;
use controller::lease::{self, Election, Timing};
use controller::trace::Reporter;
use controller::{Controller, Engine, Informers};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::ServiceExt;

use super::Shared;
use crate::server::{TestServer, admin};

/// The controllers that workloads meet.
const CONTROLLERS: [Controller; 9] = [
    controllers::deployment::CONTROLLER,
    controllers::replica_set::CONTROLLER,
    controllers::stateful_set::CONTROLLER,
    controllers::job::CONTROLLER,
    controllers::job::ORPHANS,
    controllers::cron_job::CONTROLLER,
    controllers::autoscaler::CONTROLLER,
    controllers::garbage_collector::CONTROLLER,
    controllers::pod_gc::CONTROLLER,
];
/// Who leads is killed after at most so many writes.
const WRITES_MAX: u64 = 40;
/// Before somebody who was killed stands for election again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// One request in so many is lied about.
const EVERY: u64 = 4;

type Answer = Response<apiserver::respond::Body>;

/// What a control plane does wrong: the negative controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// A Pod is made twice.
    MadeTwice,
    /// All Pods are bound to one Node.
    OneNodeForAll,
    /// Of a Job's Pods that succeeded one is left out.
    CountForgotten,
}

/// The life of a process, which ends at one of its writes: before the write, or when it is made and not answered yet.
struct Fuse {
    left: AtomicI64,
    is_before: bool,
    is_calm: Arc<AtomicBool>,
    is_burnt: AtomicBool,
    burns: Notify,
}

impl Fuse {
    fn new(shared: &Shared) -> Self {
        let left = i64::try_from(1 + shared.random.below(WRITES_MAX)).unwrap();
        let (is_before, is_calm) = (shared.random.below(2) == 0, Arc::clone(&shared.is_calm));
        Self { left: left.into(), is_before, is_calm, is_burnt: false.into(), burns: Notify::new() }
    }

    async fn through<T>(&self, is_write: bool, request: impl Future<Output = T>) -> T {
        let is_last = is_write
            && self.left.fetch_sub(1, Ordering::SeqCst) == 1
            && !self.is_calm.load(Ordering::Relaxed);
        if is_last && self.is_before {
            self.burn();
        }
        self.unless_burnt().await;
        let done = request.await;
        if is_last {
            self.burn();
        }
        self.unless_burnt().await;
        done
    }

    fn burn(&self) {
        self.is_burnt.store(true, Ordering::SeqCst);
        self.burns.notify_one();
    }

    /// The dead ask for nothing more and hear of nothing.
    async fn unless_burnt(&self) {
        if self.is_burnt.load(Ordering::SeqCst) {
            std::future::pending().await
        }
    }
}

/// Starts everybody.
pub(super) fn start(shared: &Shared, server: &TestServer) -> Tasks {
    let tasks = Tasks::new();
    for candidate in ["a", "b"] {
        let controllers = Part { name: "controllers", candidate, begin: begin_controllers };
        let schedulers = Part { name: "scheduler", candidate, begin: begin_scheduler };
        for part in [controllers, schedulers] {
            tasks.spawn(part.name, part.live(shared.clone(), server.server.service(), tasks.clone()));
        }
    }
    tasks
}

struct Part {
    name: &'static str,
    candidate: &'static str,
    begin: fn(&Informers),
}

fn begin_controllers(informers: &Informers) {
    let engine = Engine::new(informers.clone(), "controllermanager");
    CONTROLLERS.into_iter().for_each(|row| engine.start(row));
}

fn begin_scheduler(informers: &Informers) {
    let (config, tasks) = (scheduler::Configuration::default(), informers.tasks().clone());
    let run = scheduler::run(config, informers.clone(), Reporter::disabled(), tasks.clone());
    tasks.spawn("scheduler", run);
}

impl Part {
    /// One process after the other.
    async fn live(self, shared: Shared, service: ApiService, tasks: Tasks) {
        for process in 0.. {
            let (own, fuse) = (tasks.child(), Arc::new(Fuse::new(&shared)));
            let client = client(service.clone(), Arc::clone(&fuse), shared.lie);
            let informers = Informers::new(client, own.clone(), shared.clock.clone(), shared.random.clone());
            let identity = format!("{}-{process}", self.candidate);
            let (namespace, name, timing) = ("kube-system".to_owned(), self.name, Timing::default());
            let election = Election { namespace, name, identity, timing };
            let lead = async {
                let mut held = lease::acquire(election, &informers).await;
                (self.begin)(&informers);
                held.lost().await;
            };
            tokio::select! {
                () = lead => {}
                () = fuse.burns.notified() => {
                    shared.kills.fetch_add(1, Ordering::Relaxed);
                }
            }
            own.stop();
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

/// The client of one process.
fn client(service: ApiService, fuse: Arc<Fuse>, lie: Option<Lie>) -> kube::Client {
    let chances = Arc::new(AtomicU64::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, fuse, chances) = (service.clone(), Arc::clone(&fuse), Arc::clone(&chances));
        async move {
            let is_write = is_write(&request);
            fuse.through(is_write, async {
                match lie {
                    Some(lie) => tell(lie, service, request, &chances).await,
                    None => send(service, request).await,
                }
            })
            .await
        }
    });
    kube::Client::new(service, "default")
}

/// Writes that something follows from; Leases and Events are not.
fn is_write(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    *request.method() != Method::GET && !path.contains("/leases") && !path.contains("/events")
}

async fn send<B>(service: ApiService, mut request: Request<B>) -> Result<Answer, BoxError>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    if let Some(load) = request.uri().path().strip_prefix("/apis/external.metrics.k8s.io/") {
        return Ok(measured(load));
    }
    request.extensions_mut().insert(admin());
    let Ok(answer) = service.oneshot(request).await;
    Ok(answer)
}

/// What whoever serves external metrics says; the metric's name says how much there is.
fn measured(path: &str) -> Answer {
    let value = path.rsplit("load-").next().unwrap_or_default();
    let body = json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
        "items": [{"metricName": path.rsplit('/').next(), "value": value, "timestamp": "2026-01-01T00:00:00Z"}]});
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
    Response::new(body)
}

async fn tell(
    lie: Lie,
    service: ApiService,
    request: Request<Body>,
    chances: &AtomicU64,
) -> Result<Answer, BoxError> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let (path, is_post) = (parts.uri.path().to_owned(), parts.method == Method::POST);
    let is_chosen = || chances.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1;
    let mut object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if lie == Lie::MadeTwice && is_post && path.ends_with("/pods") && is_chosen() {
        let mut other = object.clone();
        let name = format!("{}x", other["metadata"]["name"].as_str().unwrap_or("other"));
        other["metadata"]["name"] = json!(name);
        let again = Request::from_parts(parts.clone(), Full::new(Bytes::from(other.to_string())));
        send(service.clone(), again).await?;
    }
    let bytes = match lie {
        Lie::OneNodeForAll if path.ends_with("/binding") => {
            object["target"]["name"] = json!("node-0");
            object.to_string().into()
        }
        Lie::CountForgotten
            if path.contains("/jobs/") && object["status"]["succeeded"].as_i64() > Some(0) =>
        {
            object["status"]["succeeded"] = json!(object["status"]["succeeded"].as_i64().unwrap_or(1) - 1);
            object.to_string().into()
        }
        _ => bytes,
    };
    send(service, Request::from_parts(parts, Full::new(bytes))).await
}
