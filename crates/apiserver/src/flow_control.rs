//! Priority and fairness: nobody takes all of the server, and what matters most always gets through.
//!
//! FlowSchemas say to which priority level a request belongs, PriorityLevelConfigurations how many seats a level has
//! and how its requests queue. `rules` and `queues` decide; this joins them to requests. While a level has free seats,
//! a request costs a walk over the schemas and one lock.
//! Source: KEP-1040, `flowcontrol.apiserver.k8s.io/v1`.

pub mod metrics;
pub mod queues;
pub mod rules;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use auth::{MASTERS, UserInfo};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};
use machinery::metadata::Metadata;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::cache::watcher_index::IndexKey;
use crate::cluster::Cluster;
use crate::request_info::RequestInfo;
use crate::status::Error;
use crate::tree::text;
use metrics::{FlowMetrics, Handles, Running};
use queues::{Full, Id, Queues, Settings, Verdict};
use rules::Schema;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// How long a request may wait in a queue: a quarter of the time that it has.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// How many objects of a list count as one seat, and how many seats a list takes at most.
const OBJECTS_PER_SEAT: usize = 100;
const LIST_SEATS_MAX: u32 = 10;
/// What a queueing level has if it does not say. Source: `QueuingConfiguration`.
const QUEUING: (i64, i64, i64) = (64, 8, 50);

/// The part of the API server that deals out seats.
pub struct FlowControl {
    seats_max: u32,
    hasher: RandomState,
    plan: RwLock<Arc<Plan>>,
    metrics: FlowMetrics,
}

/// One reading of all schemas and levels.
struct Plan {
    schemas: Vec<Classified>,
    settings: Vec<Settings>,
    shared: Mutex<Shared>,
    /// What is counted, per schema; nothing before the first reading.
    handles: Vec<Arc<Handles>>,
}

/// A schema and where it leads.
#[derive(PartialEq)]
struct Classified {
    schema: Schema,
    /// `None` is exempt.
    level: Option<usize>,
    headers: Option<(HeaderValue, HeaderValue)>,
}

struct Shared {
    queues: Queues,
    waiting: HashMap<Id, oneshot::Sender<Seats>>,
    next_id: Id,
}

/// A request's seats; they are given back when this is dropped.
pub struct Seats {
    plan: Arc<Plan>,
    level: usize,
    width: u32,
}

/// The reason why a request was sent away, and the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Source: the `reason` of `apiserver_flowcontrol_rejected_requests_total`.
    pub reason: &'static str,
    headers: Option<(HeaderValue, HeaderValue)>,
}

impl Rejected {
    fn because(reason: &'static str) -> Self {
        Self { reason, headers: None }
    }

    /// Says which schema and level it was.
    pub fn write(&self, headers: &mut HeaderMap) {
        write_headers(self.headers.as_ref(), headers);
    }
}

fn write_headers(values: Option<&(HeaderValue, HeaderValue)>, headers: &mut HeaderMap) {
    if let Some((schema, level)) = values {
        headers.insert(SCHEMA_HEADER, schema.clone());
        headers.insert(LEVEL_HEADER, level.clone());
    }
}

/// The classification of a request: its seats, unless it needs none, and what its response says about it.
pub struct Admission {
    seats: Option<Seats>,
    /// Counts the request until it ends.
    _running: Option<Running>,
    headers: Option<(HeaderValue, HeaderValue)>,
}

impl Admission {
    /// Says which schema and level it was.
    pub fn write(&self, headers: &mut HeaderMap) {
        write_headers(self.headers.as_ref(), headers);
    }

    /// `true` if seats are held.
    pub fn has_seats(&self) -> bool {
        self.seats.is_some()
    }
}

impl FlowControl {
    /// With room for so many requests; until schemas are read, everybody shares them.
    pub fn new(seats_max: usize, registry: &base::Metrics) -> Self {
        let seats_max = u32::try_from(seats_max).unwrap_or(u32::MAX).max(1);
        let plan = RwLock::new(Arc::new(Plan::of(&[], &[], seats_max)));
        Self { seats_max, hasher: RandomState::new(), plan, metrics: FlowMetrics::new(registry) }
    }

    /// Takes over the schemas and levels that the cache holds.
    pub fn load(&self, cluster: &Cluster) {
        let read = |resource: &str| -> Vec<Value> {
            let Some(kind) = cluster.kind(GROUP, "v1", resource) else { return Vec::new() };
            let listing = kind.cache().list(kind.prefix(), 0);
            listing.objects.iter().map(|object| kind.value(object)).collect()
        };
        let (schemas, levels) = (read("flowschemas"), read("prioritylevelconfigurations"));
        let mut plan = Plan::of(&schemas, &levels, self.seats_max);
        plan.count(&self.metrics, &levels);
        let mut current = self.plan.write();
        if current.schemas != plan.schemas || current.settings != plan.settings {
            // Requests that run or wait keep the plan that they came under.
            *current = Arc::new(plan);
        }
    }

    /// Follows the schemas and levels for ever; `maintain` keeps those that there must be.
    pub async fn follow<'a>(
        &self,
        cluster: &Cluster,
        maintain: impl Fn() -> BoxFuture<'a, Result<(), Error>> + Send,
    ) {
        let kinds =
            ["flowschemas", "prioritylevelconfigurations"].map(|name| cluster.kind(GROUP, "v1", name));
        let [Some(schemas), Some(levels)] = kinds else { return };
        loop {
            let revision = cluster.cache.revision();
            let (mut schemas, mut levels) = (
                schemas.cache().watch(revision, IndexKey::Everything),
                levels.cache().watch(revision, IndexKey::Everything),
            );
            self.load(cluster);
            if let Err(failure) = maintain().await {
                tracing::warn!(%failure, "flow control's own objects could not be kept");
            }
            // Either says that something changed, or that too much did: in both cases all is read again.
            tokio::select! {
                _ = schemas.next() => {}
                _ = levels.next() => {}
            }
        }
    }

    /// Finds a request's place, waiting for it if needed.
    ///
    /// # Errors
    /// When there is none, or none in time.
    pub async fn admit(
        &self,
        cluster: &Cluster,
        user: &UserInfo,
        info: &RequestInfo,
    ) -> Result<Admission, Rejected> {
        let plan = Arc::clone(&self.plan.read());
        let Some((number, found)) =
            plan.schemas.iter().enumerate().find(|(_, one)| one.schema.matches(user, info))
        else {
            // Nobody is let in by accident: what no schema knows shares the last level.
            let level = if user.is_in(MASTERS) { None } else { Some(0) };
            let seats = match level {
                Some(level) => Some(seat(&plan, level, 0, 1).await?),
                None => None,
            };
            return Ok(Admission { seats, _running: None, headers: None });
        };
        let headers = found.headers.clone();
        let waiting = plan.handles.get(number).map(Handles::wait);
        let Some(level) = found.level else {
            let running = waiting.map(|waiting| waiting.run(1));
            return Ok(Admission { seats: None, _running: running, headers });
        };
        let flow = self.hasher.hash_one((&found.schema.name, found.schema.flow(user, info)));
        let width = width(cluster, info);
        match seat(&plan, level, flow, width).await {
            Ok(seats) => {
                let running = waiting.map(|waiting| waiting.run(width));
                Ok(Admission { seats: Some(seats), _running: running, headers })
            }
            Err(rejected) => {
                if let Some(waiting) = waiting {
                    waiting.reject(rejected.reason);
                }
                Err(Rejected { headers, ..rejected })
            }
        }
    }
}

/// How many seats a request takes: a list by its length, anything else one. Source: `listWorkEstimator`.
fn width(cluster: &Cluster, info: &RequestInfo) -> u32 {
    let Some(resource) = info.resource.as_ref().filter(|r| r.verb == crate::request_info::Verb::List) else {
        return 1;
    };
    let catalogue = cluster.catalogue.current();
    let kind = catalogue.find(&resource.group, &resource.version, &resource.resource);
    let Some(kind) = kind.filter(|kind| kind.row().is_stored()) else { return 1 };
    let count = kind.cache().len();
    let limit = info.query.get("limit").and_then(|text| text.parse().ok()).filter(|limit| *limit > 0);
    let read = limit.map_or(count, |limit: usize| limit.min(count));
    u32::try_from(read.div_ceil(OBJECTS_PER_SEAT)).unwrap_or(LIST_SEATS_MAX).clamp(1, LIST_SEATS_MAX)
}

async fn seat(plan: &Arc<Plan>, level: usize, flow: u64, width: u32) -> Result<Seats, Rejected> {
    let waiter = {
        let mut shared = plan.shared.lock();
        let id = shared.next_id;
        shared.next_id += 1;
        match shared.queues.arrive(level, flow, width, id) {
            Verdict::Run => return Ok(Seats { plan: Arc::clone(plan), level, width }),
            Verdict::Reject(why) => return Err(Rejected::because(why)),
            Verdict::Wait => {
                let (sender, waiter) = oneshot::channel();
                shared.waiting.insert(id, sender);
                Waiter { plan: Arc::clone(plan), level, id, receiver: Some(waiter) }
            }
        }
    };
    waiter.seats().await
}

/// Someone in a queue; leaves it when dropped.
struct Waiter {
    plan: Arc<Plan>,
    level: usize,
    id: Id,
    receiver: Option<oneshot::Receiver<Seats>>,
}

impl Waiter {
    async fn seats(mut self) -> Result<Seats, Rejected> {
        let Some(receiver) = self.receiver.as_mut() else { return Err(Rejected::because("cancelled")) };
        match tokio::time::timeout(WAIT_MAX, receiver).await {
            Ok(Ok(seats)) => {
                self.receiver = None;
                Ok(seats)
            }
            _ => Err(Rejected::because("time-out")),
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.receiver.is_some() {
            let mut shared = self.plan.shared.lock();
            shared.waiting.remove(&self.id);
            shared.queues.abandon(self.level, self.id);
        }
        // Seats that were on their way are given back by their own drop.
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let mut refused = Vec::new();
        {
            let mut shared = self.plan.shared.lock();
            for one in shared.queues.finish(self.level, self.width) {
                let Some(waiter) = shared.waiting.remove(&one.id) else { continue };
                let seats = Self { plan: Arc::clone(&self.plan), level: one.level, width: one.width };
                if let Err(back) = waiter.send(seats) {
                    refused.push(back);
                }
            }
        }
        // Who left meanwhile gives the seats back, now that the lock is free.
        drop(refused);
    }
}

impl Plan {
    fn of(schemas: &[Value], levels: &[Value], seats_max: u32) -> Self {
        let names: Vec<(&str, &str)> =
            levels.iter().map(|level| (Metadata::of(level).name(), Metadata::of(level).uid())).collect();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut settings = Vec::new();
        let shares = |level: &Value| field(level, "nominalConcurrencyShares", 30);
        let limited: Vec<&Value> =
            levels.iter().filter(|level| text(level, "/spec/type") == "Limited").collect();
        let total: i64 = limited.iter().map(|level| shares(level)).sum::<i64>().max(1);
        for level in &limited {
            numbers.insert(Metadata::of(level).name(), settings.len());
            settings.push(of_level(level, shares(level), total, seats_max));
        }
        if settings.is_empty() {
            settings.push(Settings {
                seats: seats_max,
                lendable: 0,
                borrowing_max: 0,
                full: queueing(&Value::Null),
            });
        }
        let mut schemas: Vec<Classified> = schemas
            .iter()
            .map(Schema::of)
            .filter_map(|schema| {
                let (_, uid) = names.iter().find(|(name, _)| *name == schema.level)?;
                let headers = HeaderValue::from_str(&schema.uid).ok().zip(HeaderValue::from_str(uid).ok());
                Some(Classified { level: numbers.get(schema.level.as_str()).copied(), schema, headers })
            })
            .collect();
        schemas.sort_by(|a, b| {
            (a.schema.precedence, &a.schema.name).cmp(&(b.schema.precedence, &b.schema.name))
        });
        let shared = Shared { queues: Queues::new(&settings), waiting: HashMap::new(), next_id: 0 };
        Self { schemas, settings, shared: Mutex::new(shared), handles: Vec::new() }
    }

    /// Looks up what is counted.
    fn count(&mut self, metrics: &FlowMetrics, levels: &[Value]) {
        let of = |one: &Classified| Arc::new(metrics.of(&one.schema.name, &one.schema.level));
        self.handles = self.schemas.iter().map(of).collect();
        let limited = levels.iter().filter(|level| text(level, "/spec/type") == "Limited");
        for (level, settings) in limited.zip(&self.settings) {
            metrics.level(Metadata::of(level).name(), settings);
        }
    }
}

fn field(level: &Value, name: &str, default: i64) -> i64 {
    level.pointer(&format!("/spec/limited/{name}")).and_then(Value::as_i64).unwrap_or(default)
}

/// A level's part of all seats, by its shares.
fn of_level(level: &Value, shares: i64, total: i64, seats_max: u32) -> Settings {
    let seats = (i64::from(seats_max) * shares + total - 1) / total;
    let percent = |name: &str| level.pointer(&format!("/spec/limited/{name}")).and_then(Value::as_i64);
    let part = |percent: i64| u32::try_from(seats * percent / 100).unwrap_or_default();
    let full = match text(level, "/spec/limited/limitResponse/type") {
        "Reject" => Full::Reject,
        _ => queueing(level),
    };
    Settings {
        // Without shares there is no seat: what such a level is for is sent away, or waits for what others lend.
        seats: u32::try_from(seats).unwrap_or(seats_max),
        lendable: part(percent("lendablePercent").unwrap_or(0)),
        borrowing_max: percent("borrowingLimitPercent").map_or(seats_max, part),
        full,
    }
}

fn queueing(level: &Value) -> Full {
    let number = |name: &str, default: i64| {
        let given =
            level.pointer(&format!("/spec/limited/limitResponse/queuing/{name}")).and_then(Value::as_i64);
        usize::try_from(given.unwrap_or(default)).unwrap_or(1)
    };
    Full::Queue {
        queues: number("queues", QUEUING.0),
        hand: number("handSize", QUEUING.1),
        length_max: number("queueLengthLimit", QUEUING.2),
    }
}
