//! Pods onto Nodes that only the API knows, through the real API and store: from the first POST to the last binding.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::bench::{Bench, STEP_MAX};
use crate::load::{self, Call, Door, Job, as_f64};
use crate::{objects, processes};

const CLIENTS: usize = 32;
/// The label that keeps Pods off the one real Node.
const LABEL: &str = "bench/fake";

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let (nodes, pods) = (bench.extent.of(1_000, 100), bench.extent.of(5_000, 500));
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        door.fill(0..nodes, Arc::new(|n| Call::post("/api/v1/nodes".to_owned(), node(n)))).await?;
        door.fill(0..nodes, Arc::new(node_status)).await?;
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
        bench.report.value(&what, "1/s", Some("5000"), as_f64(pods) / elapsed);
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

/// Reads events until so many Pods have a Node.
async fn bound(mut events: Incoming, wanted: usize) -> Result<()> {
    let (mut seen, mut line) = (HashSet::new(), Vec::new());
    while seen.len() < wanted {
        let Some(frame) = events.frame().await else { bail!("the watch ended after {} Pods", seen.len()) };
        let Ok(data) = frame?.into_data() else { continue };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.last() == Some(&b'\n') {
                let event: Event = serde_json::from_slice(&line).context("read an event")?;
                if !event.object.spec.node_name.is_empty() {
                    seen.insert(event.object.metadata.name);
                }
                line.clear();
            }
        }
    }
    Ok(())
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

/// It tolerates everything: nobody renews the leases of these Nodes.
fn pod(number: usize) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("pod-{number}"), "labels": { "app": "scheduled" } },
        "spec": {
            "nodeSelector": { LABEL: "" },
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{
                "name": "hello",
                "image": "knarr.local/hello",
                "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
            }],
        },
    })
    .to_string()
}
