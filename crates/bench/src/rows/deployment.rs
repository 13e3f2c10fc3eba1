//! A large Deployment whose Pods no scheduler takes: what controllers and API server do alone.

use std::time::Instant;

use anyhow::{Context, Result};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::bench::Bench;
use crate::load::{Call, Door, STEP_MAX, as_f64, lines};
use crate::objects::{self, NAMESPACE};
use crate::processes;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let replicas = bench.extent.of(2_000, 200);
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let mut watcher = door.connect().await?;
        let path = format!("{}?watch=true&resourceVersion=0", objects::collection("pods"));
        let pods = watcher.stream(Call::get(path)).await?;
        let processes = cluster.processes("");
        let before = processes::usage(&processes)?;
        let started = Instant::now();
        let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
        door.call(Call::post(path, deployment(replicas))).await?;
        timeout(STEP_MAX, added(pods, replicas)).await.context("not all Pods were created")??;
        let took = started.elapsed();
        let cpu = (processes::usage(&processes)?.cpu - before.cpu).as_secs_f64() * 1e3;
        bench.report.durations(&format!("{replicas} Pods of one Deployment created"), Some("400"), &[took]);
        bench.report.value("  CPU of all processes per Pod", "ms", None, cpu / as_f64(replicas));
        Ok(())
    })
}

/// Reads events until so many were additions.
async fn added(mut events: Incoming, wanted: usize) -> Result<()> {
    const ADDED: &[u8] = br#"{"type":"ADDED""#;
    let mut seen = 0;
    lines(&mut events, |line| {
        seen += usize::from(line.starts_with(ADDED));
        Ok(seen == wanted)
    })
    .await
}

/// A Deployment whose Pods no scheduler takes.
fn deployment(replicas: usize) -> String {
    of_pods("large", replicas, json!({ "schedulerName": "nobody" }))
}

/// A Deployment for the Nodes that only the API knows.
pub(super) fn on_nodes(name: &str, replicas: usize) -> String {
    of_pods(name, replicas, super::scheduler::on_nodes())
}

fn of_pods(name: &str, replicas: usize, mut spec: Value) -> String {
    let labels = json!({ "app": name });
    spec["containers"] = json!([{ "name": "hello", "image": "knarr.local/hello" }]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
    .to_string()
}
