//! Controllers and scheduler as processes of their own: what they keep in memory of Pods.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::{Cluster, Process};
use tokio::time::timeout;

use super::{deployment, scheduler};
use crate::bench::Bench;
use crate::load::{Call, Door, STEP_MAX, as_f64};
use crate::objects::{self, NAMESPACE};
use crate::processes;

const PARTS: [&str; 2] = ["controller-manager", "scheduler"];
/// Pods that are there before anything is counted, so that all that is made once is made.
const FEW: usize = 50;
/// After the last binding, until its events are written and what all that took is given back.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let up = |cluster: &mut Cluster| {
        cluster.up_with(&["--disable", "controller-manager,scheduler", "--disable=agent"])
    };
    bench.with_cluster_that(up, async |bench, cluster| {
        let (nodes, pods) = (bench.extent.of(100, 10), bench.extent.of(5_000, 500));
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let parts = PARTS.iter().map(|part| start(cluster, part)).collect::<Result<Vec<_>>>()?;
        scheduler::make_nodes(&door, nodes).await?;
        let make = async |name: &str, count: usize| {
            let mut watcher = door.connect().await?;
            let path = format!(
                "{}?watch=true&resourceVersion=0&labelSelector=app%3D{name}",
                objects::collection("pods")
            );
            let events = watcher.stream(Call::get(path)).await?;
            let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
            door.call(Call::post(path, deployment::on_nodes(name, count))).await?;
            timeout(STEP_MAX, scheduler::bound(events, count)).await.context("not all Pods were bound")??;
            tokio::time::sleep(SETTLED_AFTER).await;
            anyhow::Ok(())
        };
        make("few", FEW.min(nodes)).await?;
        let before = parts.iter().map(memory).collect::<Result<Vec<_>>>()?;
        make("many", pods).await?;
        for ((part, process), before) in PARTS.iter().zip(&parts).zip(before) {
            let each = (memory(process)? - before) * 1_000.0 / as_f64(pods);
            bench.report.value(&format!("memory of {part} per 1,000 Pods"), "MiB", Some("4"), each);
            bench.report.value(&format!("  {part} before them"), "MiB", None, before);
        }
        Ok(())
    })
}

fn memory(process: &Process) -> Result<f64> {
    Ok(processes::mebibytes(processes::pss_bytes(&[process.id()?])?))
}

/// Starts a part with the kubeconfig that the cluster made for it.
fn start(cluster: &Cluster, part: &str) -> Result<Process> {
    let kubeconfig = cluster.data_dir().join(format!("server/cred/{part}.kubeconfig"));
    cluster.start(part, &[part, &format!("--kubeconfig={}", kubeconfig.display()), "--leader-elect=false"])
}
