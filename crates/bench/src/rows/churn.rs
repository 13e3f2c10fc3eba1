//! Pods that come and go on one Node: how many a second, what of them is left, and what the node's process has grown by.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;
use testkit::{Cluster, leaks};

use super::pods::{Deployments, create_and_delete};
use crate::bench::Bench;
use crate::{load, processes};

/// Pods at the same time.
const BATCH: usize = 50;
/// How long what is taken back after a Pod is gone from the API may take.
const GONE_MAX: Duration = Duration::from_secs(30);
/// Between two looks at the machine, which tells nobody when something of it goes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Where a cluster writes as it likes: its store and its logs.
const IGNORED: [&str; 4] =
    ["data/server/", "data/agent/", "data/knarr.log", "data/cni/networks/knarr/last_reserved"];

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let container = json!({ "image": "knarr.local/hello", "imagePullPolicy": "IfNotPresent" });
        let deployments = Deployments::new(&cluster.kubeconfig(), container).await?;
        // What the first Pods bring into being stays for those that follow: one Pod does, too.
        deployments.create("stays", 1).await?;
        churn(&deployments, "first").await?;
        let (before, process) = (cluster.inventory(&IGNORED)?, node(cluster)?);
        let (memory, descriptors) = (processes::rss_bytes(process)?, processes::descriptors(process)?);
        let (pods, started) = (bench.extent.of(1000, 100), Instant::now());
        for batch in 1..=pods / BATCH {
            eprintln!("bench:   {BATCH} Pods come and go, {batch} of {}", pods / BATCH);
            churn(&deployments, &format!("batch-{batch}")).await?;
        }
        let elapsed = started.elapsed();
        let looked = Instant::now();
        let left = loop {
            let left = leaks(&before, &cluster.inventory(&IGNORED)?);
            if left.is_empty() || looked.elapsed() > GONE_MAX {
                break left;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        };
        left.iter().for_each(|line| eprintln!("bench:   left: {line}"));
        let rate = load::as_f64(pods) / elapsed.as_secs_f64();
        bench.report.value(&format!("{pods} Pods churned"), "1/s", None, rate);
        bench.report.value("  leaks", "", Some("0"), load::as_f64(left.len()));
        let grown = |before: u64, now: u64| now.saturating_sub(before);
        let memory = processes::mebibytes(grown(memory, processes::rss_bytes(process)?));
        bench.report.value("  the node's process grew by", "MiB", None, memory);
        let descriptors = processes::descriptors(process)?.saturating_sub(descriptors);
        bench.report.value("  and by descriptors", "", None, load::as_f64(descriptors));
        Ok(())
    })
}

async fn churn(deployments: &Deployments, name: &str) -> Result<()> {
    create_and_delete(deployments, name, BATCH, async || Ok(())).await.map(drop)
}

fn node(cluster: &Cluster) -> Result<i32> {
    let [process] = *cluster.processes("knarr node") else { bail!("there is not one node") };
    Ok(process)
}
