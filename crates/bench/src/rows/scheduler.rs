//! Pods onto Nodes that only the API knows, through the real API and store: from the first POST to the last binding.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use http::{Method, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::bench::Bench;
use crate::load::{self, Call, Door, Job, STEP_MAX, as_f64, lines};
use crate::{objects, processes};

const CLIENTS: usize = 32;
/// The label that keeps Pods off the one real Node.
const LABEL: &str = "bench/fake";

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let (nodes, pods) = (bench.extent.of(1_000, 100), bench.extent.of(5_000, 500));
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        make_nodes(&door, nodes).await?;
        let mut watcher = door.connect().await?;
        let path = format!("{}?watch=true&resourceVersion=0", objects::collection("pods"));
        let events = watcher.stream(Call::get(path)).await?;
        let processes = cluster.processes("");
        let before = processes::usage(&processes)?;
        let started = Instant::now();
        let job: Job = Arc::new(|n| Call::post(objects::collection("pods"), pod(n)));
        let posting = load::run(door.clients(CLIENTS).await?, 0..pods, job);
        let (posted, seen) = timeout(STEP_MAX, async { tokio::join!(posting, bound(events, pods)) })
            .await
            .context("not all Pods were scheduled")?;
        posted?;
        seen?;
        let elapsed = started.elapsed().as_secs_f64();
        let cpu = (processes::usage(&processes)?.cpu - before.cpu).as_secs_f64() * 1e3;
        let what = format!("{pods} Pods onto {nodes} Nodes, POST to bound");
        bench.report.value(&what, "1/s", Some("4000"), as_f64(pods) / elapsed);
        bench.report.value("  CPU of all processes per Pod", "ms", None, cpu / as_f64(pods));
        Ok(())
    })
}

#[derive(Deserialize)]
struct Event {
    object: Pod,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

/// Makes so many Nodes, with room for 110 Pods each.
pub(super) async fn make_nodes(door: &Door, nodes: usize) -> Result<()> {
    door.fill(0..nodes, Arc::new(|n| Call::post("/api/v1/nodes".to_owned(), node(n)))).await?;
    door.fill(0..nodes, Arc::new(node_status)).await
}

/// Reads events until so many Pods have a Node.
pub(super) async fn bound(mut events: Incoming, wanted: usize) -> Result<()> {
    let mut seen = HashSet::new();
    lines(&mut events, |line| {
        let event: Event = serde_json::from_slice(line).context("read an event")?;
        if !event.object.spec.node_name.is_empty() {
            seen.insert(event.object.metadata.name);
        }
        Ok(seen.len() == wanted)
    })
    .await
}

fn node_name(number: usize) -> String {
    format!("fake-{number}")
}

fn node(number: usize) -> String {
    let metadata = json!({ "name": node_name(number), "labels": { LABEL: "" } });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }).to_string()
}

fn node_status(number: usize) -> Call {
    let room = json!({ "cpu": "32", "memory": "64Gi", "pods": "110" });
    let ready = json!({ "type": "Ready", "status": "True" });
    let status = json!({ "status": { "capacity": room, "allocatable": room, "conditions": [ready] } });
    Call {
        method: Method::PATCH,
        content_type: "application/strategic-merge-patch+json",
        body: status.to_string(),
        wanted: StatusCode::OK,
        ..Call::get(format!("/api/v1/nodes/{}/status", node_name(number)))
    }
}

/// What leads a Pod to these Nodes. It tolerates everything: nobody renews their leases.
pub(super) fn on_nodes() -> Value {
    json!({ "nodeSelector": { LABEL: "" }, "tolerations": [{ "operator": "Exists" }] })
}

fn pod(number: usize) -> String {
    let mut spec = on_nodes();
    spec["containers"] = json!([{
        "name": "hello",
        "image": "knarr.local/hello",
        "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
    }]);
    let metadata = json!({ "name": format!("pod-{number}"), "labels": { "app": "scheduled" } });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }).to_string()
}
