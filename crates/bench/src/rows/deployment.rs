//! A large Deployment whose Pods no scheduler takes: what controllers and API server do alone.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::timeout;

use crate::bench::{Bench, STEP_MAX};
use crate::load::{Call, Door, as_f64};
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
    let (mut seen, mut line) = (0, Vec::new());
    while seen < wanted {
        let Some(frame) = events.frame().await else { bail!("the watch ended after {seen} Pods") };
        let Ok(data) = frame?.into_data() else { continue };
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.last() == Some(&b'\n') {
                seen += usize::from(line.starts_with(ADDED));
                line.clear();
            }
        }
    }
    Ok(())
}

fn deployment(replicas: usize) -> String {
    let labels = json!({ "app": "large" });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "large" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "schedulerName": "nobody",
                    "containers": [{ "name": "hello", "image": "knarr.local/hello" }],
                },
            },
        },
    })
    .to_string()
}
