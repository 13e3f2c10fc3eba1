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
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use tower::ServiceExt;

use super::{Schedulers, Shared};
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
/// Who leads meets its fate after at most so many writes.
const WRITES_MAX: u64 = 40;
/// How long a line is cut, at most: longer than a Lease lasts.
const CUT_MAX_MILLIS: u64 = 40_000;
/// How late a request arrives, at most: what a Lease lasts longer than its holder believes in it, which is 5 s.
const LATE_MAX_MILLIS: u64 = 4_900;
/// Before somebody who was killed stands for election again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// One request in so many is lied about.
const EVERY: u64 = 4;

const SCHEDULER: &str = "scheduler";
/// Of the Leases.
const NAMESPACE: &str = "kube-system";

type Answer = Response<apiserver::respond::Body>;
/// A request on its way.
type Sent = BoxFuture<'static, Result<Answer, BoxError>>;

/// What a control plane does wrong: the negative controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// A Pod is made twice.
    MadeTwice,
    /// All Pods are bound to one Node.
    OneNodeForAll,
    /// Of a Job's Pods that succeeded one is left out.
    CountForgotten,
    /// Who has lost the lead works on.
    LeadsOn,
    /// Nodes take in whoever comes.
    TakesAllIn,
}

/// What happens to a process at one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It dies before it is sent.
    DiesBefore,
    /// It dies when the write is made and not answered yet.
    DiesAfter,
    /// The API server is out of its reach for a while. It goes on by what it knew.
    IsCutOff(Duration),
}

/// The life of a process, and its line to the API server.
struct Process {
    shared: Shared,
    /// Its name as a candidate for a Lease, if it needs that to work.
    stands_for: Option<(&'static str, String)>,
    /// Brings requests of it that arrive late, also when it is dead.
    network: Tasks,
    /// Writes until its fate.
    left: AtomicI64,
    fate: Mutex<Fate>,
    cut_until: Mutex<Option<Instant>>,
    is_dead: AtomicBool,
    dies: Notify,
}

impl Process {
    fn new(shared: &Shared, network: &Tasks, stands_for: Option<(&'static str, String)>) -> Self {
        Self {
            shared: shared.clone(),
            stands_for,
            network: network.clone(),
            left: writes(shared).into(),
            fate: Mutex::new(fate(shared)),
            cut_until: Mutex::default(),
            is_dead: false.into(),
            dies: Notify::new(),
        }
    }

    async fn through(self: Arc<Self>, kind: Kind, request: Sent) -> Result<Answer, BoxError> {
        let fate =
            (kind.counts && self.left.fetch_sub(1, Ordering::SeqCst) == 1).then(|| self.turns()).flatten();
        if fate == Some(Fate::DiesBefore) {
            self.die();
        }
        self.unless_dead().await;
        if let Some(left) = self.cut_for() {
            return self.lost(kind, left, request).await;
        }
        let done = self.arrives(kind, request).await;
        if fate == Some(Fate::DiesAfter) {
            self.die();
        }
        self.line_is_up().await;
        self.unless_dead().await;
        Ok(done?.map(|body| self.heard(body)))
    }

    /// What happens now; nothing any more once all is calm.
    fn turns(&self) -> Option<Fate> {
        if self.shared.is_calm.load(Ordering::Relaxed) {
            return None;
        }
        let turned = std::mem::replace(&mut *self.fate.lock(), fate(&self.shared));
        if let Fate::IsCutOff(span) = turned {
            self.shared.cuts.fetch_add(1, Ordering::Relaxed);
            *self.cut_until.lock() = Some(Instant::now() + span);
            self.left.store(writes(&self.shared), Ordering::SeqCst);
        }
        Some(turned)
    }

    /// What is sent while the line is cut is not answered; some of it arrives late.
    async fn lost(self: Arc<Self>, kind: Kind, left: Duration, request: Sent) -> Result<Answer, BoxError> {
        let late = Duration::from_millis(self.shared.random.below(LATE_MAX_MILLIS));
        // What arrives when its sender is there again and has made the same once more is one too many, upstream, too; only
        // bindings are certain.
        let arrives = kind.is_binding || late < left;
        if kind.is_change && arrives && self.shared.random.below(2) == 0 {
            let process = Arc::clone(&self);
            self.network.spawn("late request", async move {
                tokio::time::sleep(late).await;
                drop(process.arrives(kind, request).await);
            });
        }
        self.line_is_up().await;
        self.unless_dead().await;
        Err("the connection was reset".into())
    }

    /// A request that gets to the API server.
    async fn arrives(&self, kind: Kind, request: Sent) -> Result<Answer, BoxError> {
        if let (true, Some((part, identity))) = (kind.counts, &self.stands_for) {
            self.shared.judge.lock().written(&format!("{NAMESPACE}/{part}"), identity);
        }
        request.await
    }

    /// An answer, or a watch, whose parts arrive while the line is up.
    fn heard(self: &Arc<Self>, body: apiserver::respond::Body) -> apiserver::respond::Body {
        let parts = futures::stream::unfold((body, Arc::clone(self)), |(mut body, process)| async move {
            let part = body.frame().await?;
            process.line_is_up().await;
            Some((part, (body, process)))
        });
        StreamBody::new(parts).boxed_unsync()
    }

    fn cut_for(&self) -> Option<Duration> {
        let until = (*self.cut_until.lock())?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    async fn line_is_up(&self) {
        while let Some(left) = self.cut_for() {
            tokio::time::sleep(left).await;
        }
    }

    fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        self.dies.notify_one();
    }

    /// The dead ask for nothing more and hear of nothing.
    async fn unless_dead(&self) {
        if self.is_dead.load(Ordering::SeqCst) {
            std::future::pending().await
        }
    }
}

fn writes(shared: &Shared) -> i64 {
    i64::try_from(1 + shared.random.below(WRITES_MAX)).unwrap()
}

fn fate(shared: &Shared) -> Fate {
    match shared.random.below(3) {
        0 => Fate::DiesBefore,
        1 => Fate::DiesAfter,
        _ => Fate::IsCutOff(Duration::from_millis(shared.random.below(CUT_MAX_MILLIS))),
    }
}

/// What sort of request it is.
#[derive(Clone, Copy)]
struct Kind {
    /// It asks for a change.
    is_change: bool,
    /// Something follows from it; from Leases and Events nothing does.
    counts: bool,
    is_binding: bool,
}

impl Kind {
    fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path();
        let is_change = *request.method() != Method::GET;
        let counts = is_change && !path.contains("/leases") && !path.contains("/events");
        Self { is_change, counts, is_binding: path.ends_with("/binding") }
    }
}

/// Starts everybody.
pub(super) fn start(shared: &Shared, server: &TestServer) -> Tasks {
    let tasks = Tasks::new();
    for candidate in ["a", "b"] {
        let controllers = Part { name: "controllers", candidate, begin: begin_controllers };
        let schedulers = Part { name: SCHEDULER, candidate, begin: begin_scheduler };
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
    controllers::set_transforms(informers);
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
            let identity = format!("{}-{process}", self.candidate);
            let works_always = self.name == SCHEDULER && shared.schedulers == Schedulers::AtOnce;
            let stands_for = (!works_always).then(|| (self.name, identity.clone()));
            let (own, life) = (tasks.child(), Arc::new(Process::new(&shared, &tasks, stands_for)));
            let client = client(service.clone(), Arc::clone(&life), shared.lie);
            let informers = Informers::new(client, own.clone(), shared.clock.clone(), shared.random.clone());
            let (namespace, name, timing) = (NAMESPACE.to_owned(), self.name, Timing::default());
            let election = Election { namespace, name, identity, timing };
            let lead = async {
                if works_always {
                    (self.begin)(&informers);
                    return std::future::pending().await;
                }
                let mut held = lease::acquire(election, &informers).await;
                (self.begin)(&informers);
                held.lost().await;
                if shared.lie == Some(Lie::LeadsOn) {
                    std::future::pending().await
                }
            };
            tokio::select! {
                () = lead => {}
                () = life.dies.notified() => {
                    shared.kills.fetch_add(1, Ordering::Relaxed);
                }
            }
            own.stop();
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

/// The client of one process.
fn client(service: ApiService, life: Arc<Process>, lie: Option<Lie>) -> kube::Client {
    let chances = Arc::new(AtomicU64::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (service, life, chances) = (service.clone(), Arc::clone(&life), Arc::clone(&chances));
        let kind = Kind::of(&request);
        let sent = Box::pin(async move {
            match lie {
                Some(lie) => tell(lie, service, request, &chances).await,
                None => send(service, request).await,
            }
        });
        life.through(kind, sent)
    });
    kube::Client::new(service, "default")
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
