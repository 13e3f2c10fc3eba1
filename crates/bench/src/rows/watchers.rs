//! Many watchers of one collection: how long an event takes from the request that makes it to each of them, and what
//! a watcher costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use testkit::Cluster;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::bench::Bench;
use crate::load::{Call, Connection, Door, Job, STEP_MAX, as_f64};
use crate::{objects, processes};

const EVENTS_PER_SECOND: u64 = 100;
/// How the name of each object begins in an event; its number follows.
const NAME: &[u8] = br#""name":"load-"#;

/// When each event's request was sent, in nanoseconds after a common start.
struct Sent {
    start: Instant,
    at: Vec<AtomicU64>,
    /// The number of the first object.
    first: usize,
}

impl Sent {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let (watchers, events) = (bench.extent.of(1_000, 100), bench.extent.of(1_000, 200));
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let job = objects::create_config_maps();
        let collection = objects::collection("configmaps");
        let watched = Watched { what: "", collection, job, first: 0, events, watchers };
        deliveries(bench, cluster, &door, &watched).await
    })
}

/// The objects that are watched.
pub(super) struct Watched {
    /// What follows the name of the measurement.
    pub(super) what: &'static str,
    pub(super) collection: String,
    /// Creates each, by its number: `load-NUMBER`.
    pub(super) job: Job,
    /// The number of the first; those below are there.
    pub(super) first: usize,
    /// How many are created while they are watched.
    pub(super) events: usize,
    pub(super) watchers: usize,
}

/// The watchers of a collection, which follow creates.
pub(super) async fn deliveries(
    bench: &mut Bench,
    cluster: &Cluster,
    door: &Door,
    watched: &Watched,
) -> Result<()> {
    let Watched { events, watchers, .. } = *watched;
    let processes = cluster.processes("");
    let before = processes::pss_bytes(&processes)?;
    let at = (0..events).map(|_| AtomicU64::new(0)).collect();
    let sent = Arc::new(Sent { start: Instant::now(), at, first: watched.first });
    let mut running = JoinSet::new();
    // What was there before is not what is measured.
    let path = format!("{}?watch=true&resourceVersion={}", watched.collection, now(door, watched).await?);
    for _ in 0..watchers {
        let mut connection = door.connect().await?;
        let body = connection.stream(Call::get(path.clone())).await?;
        running.spawn(timeout(STEP_MAX, watch(body, connection, sent.clone())));
    }
    let after = processes::pss_bytes(&processes)?;
    let each = processes::kibibytes(after.saturating_sub(before)) / as_f64(watchers);
    let usage = processes::usage(&processes)?;
    produce(door, &watched.job, &sent).await?;
    let mut took = Vec::with_capacity(watchers * events);
    while let Some(watcher) = running.join_next().await {
        took.extend(watcher.context("a watcher panicked")?.context("events were missing")??);
    }
    let cpu = (processes::usage(&processes)?.cpu - usage.cpu).as_secs_f64() * 1e6 / as_f64(took.len());
    let what =
        format!("POST to delivery{}, {watchers} watchers x {EVENTS_PER_SECOND} events/s", watched.what);
    bench.report.durations(&what, None, &took);
    bench.report.value("  CPU of all processes per delivery", "µs", None, cpu);
    bench.report.value("  memory of a watcher", "KiB", None, each);
    Ok(())
}

/// The collection's revision.
async fn now(door: &Door, watched: &Watched) -> Result<String> {
    let list = door.call(Call::get(format!("{}?limit=1", watched.collection))).await?;
    let list: serde_json::Value = serde_json::from_slice(&list).context("read a list")?;
    let revision = list["metadata"]["resourceVersion"].as_str();
    Ok(revision.context("a list has no resourceVersion")?.to_owned())
}

/// One event after the other, at a steady pace whatever the answers take.
async fn produce(door: &Door, job: &Job, sent: &Arc<Sent>) -> Result<()> {
    let mut pace = interval(Duration::from_secs(1) / u32::try_from(EVENTS_PER_SECOND)?);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection = door.connect().await?;
    for (number, at) in sent.at.iter().enumerate() {
        pace.tick().await;
        let call = job(sent.first + number);
        at.store(sent.now(), Ordering::Release);
        connection.call(call).await?;
    }
    Ok(())
}

/// Reads events until all have come; returns how long each took. The connection lives as long as its body.
async fn watch(mut body: Incoming, connection: Connection, sent: Arc<Sent>) -> Result<Vec<Duration>> {
    let mut took = Vec::with_capacity(sent.at.len());
    let mut line = Vec::new();
    while took.len() < sent.at.len() {
        let Some(frame) = body.frame().await else { bail!("a watch ended after {} events", took.len()) };
        let Ok(data) = frame?.into_data() else { continue };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.last() != Some(&b'\n') {
                continue;
            }
            if let Some(at) = number(&line).and_then(|number| sent.at.get(number.checked_sub(sent.first)?)) {
                took.push(Duration::from_nanos(sent.now().saturating_sub(at.load(Ordering::Acquire))));
            }
            line.clear();
        }
    }
    drop(connection);
    Ok(took)
}

/// The number in the name of an event's object.
fn number(line: &[u8]) -> Option<usize> {
    let start = line.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let digits = line.get(start..)?.iter().take_while(|byte| byte.is_ascii_digit());
    digits
        .fold(None, |number: Option<usize>, digit| Some(number.unwrap_or(0) * 10 + usize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_known_by_its_objects_name() {
        assert_eq!(number(br#"{"object":{"metadata":{"name":"load-17","namespace":"x"}}}"#), Some(17));
        assert_eq!(number(br#"{"object":{"metadata":{"name":"kube-root-ca.crt"}}}"#), None);
    }
}
