//! Jobs whose Pods no Node runs: what controllers and API server do alone. A client says of each Pod that it has succeeded.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use http::{Method, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bench::Bench;
use crate::load::{self, Call, Connection, Door, STEP_MAX, as_f64, lines};
use crate::objects::{self, NAMESPACE};
use crate::processes;

const CLIENTS: usize = 16;
/// Pods of which one client is yet to say that they have ended.
const WAITING_MAX: usize = 1_000;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let processes = cluster.processes("");
        let many = bench.extent.of(1_000, 200);
        timeout(STEP_MAX, large(bench, &door, &processes, many))
            .await
            .context("a large Job took too long")??;
        let many = bench.extent.of(10_000, 300);
        timeout(STEP_MAX, small(bench, &door, &processes, many)).await.context("many Jobs took too long")?
    })
}

/// One Job with many Pods: until they are there, then until it is complete once they have succeeded.
async fn large(bench: &mut Bench, door: &Door, processes: &[i32], pods: usize) -> Result<()> {
    let (mut of_pods, mut of_jobs) =
        (Watch::of(door, "/api/v1", "pods").await?, Watch::of(door, "/apis/batch/v1", "jobs").await?);
    let before = processes::usage(processes)?;
    let started = Instant::now();
    door.call(Call::post(jobs(), job("large", pods))).await?;
    let mut names = Vec::with_capacity(pods);
    lines(&mut of_pods.events, |line| {
        let event = Event::read(line)?;
        if event.kind == "ADDED" {
            names.push(event.object.metadata.name);
        }
        Ok(names.len() == pods)
    })
    .await?;
    bench.report.durations(&format!("{pods} Pods of one Job created"), Some("1000"), &[started.elapsed()]);
    let started = Instant::now();
    let names = Arc::new(names);
    let ended = load::run(
        door.clients(CLIENTS).await?,
        0..pods,
        Arc::new(move |n| end(names.get(n).map_or("", String::as_str))),
    );
    let complete = lines(&mut of_jobs.events, |line| Ok(Event::read(line)?.object.is_complete()));
    let (ended, complete) = tokio::join!(ended, complete);
    ended?;
    complete?;
    let took = started.elapsed();
    let cpu = (processes::usage(processes)?.cpu - before.cpu).as_secs_f64() * 1e3;
    bench.report.durations(&format!("  {pods} Pods succeeded to Job complete"), None, &[took]);
    bench.report.value("  CPU of all processes per Pod, from POST to end", "ms", None, cpu / as_f64(pods));
    door.call(Call {
        method: Method::DELETE,
        ..Call::get(format!("{}/large?propagationPolicy=Background", jobs()))
    })
    .await?;
    lines(&mut of_pods.events, gone(pods)).await
}

/// Many Jobs with one Pod each, which go as soon as they are over.
async fn small(bench: &mut Bench, door: &Door, processes: &[i32], many: usize) -> Result<()> {
    let mut of_jobs = Watch::of(door, "/apis/batch/v1", "jobs").await?;
    let mut of_pods = Watch::of(door, "/api/v1", "pods").await?;
    let mut enders = JoinSet::new();
    let mut names = Vec::new();
    for mut client in door.clients(CLIENTS).await? {
        let (sender, mut receiver) = mpsc::channel::<String>(WAITING_MAX);
        names.push(sender);
        enders.spawn(async move {
            while let Some(name) = receiver.recv().await {
                client.call(end(&name)).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    let before = processes::usage(processes)?;
    let started = Instant::now();
    let posting = load::run(
        door.clients(CLIENTS).await?,
        0..many,
        Arc::new(|n| Call::post(jobs(), job(&format!("job-{n}"), 1))),
    );
    let ending = async {
        let mut seen = 0;
        lines(&mut of_pods.events, |line| {
            let event = Event::read(line)?;
            if event.kind == "ADDED" {
                let to = names.get(seen % CLIENTS).context("no client")?;
                to.try_send(event.object.metadata.name).context("Pods come faster than they end")?;
                seen += 1;
            }
            Ok(seen == many)
        })
        .await?;
        names.clear();
        while let Some(ended) = enders.join_next().await {
            ended.context("a client panicked")??;
        }
        Ok::<_, anyhow::Error>(())
    };
    let (posted, ended, collected) = tokio::join!(posting, ending, lines(&mut of_jobs.events, gone(many)));
    posted?;
    ended?;
    collected?;
    let elapsed = started.elapsed().as_secs_f64();
    let cpu = (processes::usage(processes)?.cpu - before.cpu).as_secs_f64() * 1e3;
    let what = format!("{many} Jobs with a Pod each, POST to collected");
    bench.report.value(&what, "1/s", Some("300"), as_f64(many) / elapsed);
    bench.report.value("  CPU of all processes per Job", "ms", None, cpu / as_f64(many));
    Ok(())
}

/// What happens to objects of the namespace from now on. The connection lives as long as its body.
struct Watch {
    events: Incoming,
    _connection: Connection,
}

impl Watch {
    async fn of(door: &Door, prefix: &str, plural: &str) -> Result<Self> {
        let collection = format!("{prefix}/namespaces/{NAMESPACE}/{plural}");
        let list = door.call(Call::get(format!("{collection}?limit=1"))).await?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        let revision = list
            .pointer("/metadata/resourceVersion")
            .and_then(|text| text.as_str())
            .context("no revision")?;
        let mut connection = door.connect().await?;
        let events = connection
            .stream(Call::get(format!("{collection}?watch=true&resourceVersion={revision}")))
            .await?;
        Ok(Self { events, _connection: connection })
    }
}

/// Whether so many objects have gone.
fn gone(wanted: usize) -> impl FnMut(&[u8]) -> Result<bool> {
    let mut seen = HashSet::with_capacity(wanted);
    move |line| {
        let event = Event::read(line)?;
        if event.kind == "DELETED" {
            seen.insert(event.object.metadata.name);
        }
        Ok(seen.len() == wanted)
    }
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: Object,
}

impl Event {
    fn read(line: &[u8]) -> Result<Self> {
        serde_json::from_slice(line).context("read an event")
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

impl Object {
    fn is_complete(&self) -> bool {
        self.status.conditions.iter().flatten().any(|one| one.kind == "Complete" && one.status == "True")
    }
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
struct Status {
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

fn jobs() -> String {
    format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
}

fn job(name: &str, pods: usize) -> String {
    let mut spec = json!({
        "completions": pods,
        "parallelism": pods,
        "template": {
            "spec": {
                "schedulerName": "nobody",
                "restartPolicy": "Never",
                "containers": [{ "name": "hello", "image": "knarr.local/hello" }],
            },
        },
    });
    if pods == 1 {
        spec["ttlSecondsAfterFinished"] = 0.into();
    }
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": spec }).to_string()
}

/// Says of a Pod that it has succeeded, as its kubelet would.
fn end(pod: &str) -> Call {
    Call {
        method: Method::PATCH,
        content_type: "application/strategic-merge-patch+json",
        body: json!({ "status": { "phase": "Succeeded" } }).to_string(),
        wanted: StatusCode::OK,
        ..Call::get(format!("{}/{pod}/status", objects::collection("pods")))
    }
}
