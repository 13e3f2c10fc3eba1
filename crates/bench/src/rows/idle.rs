//! What an idle cluster uses, empty and with 10,000 objects.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::Cluster;

use crate::bench::Bench;
use crate::load::Door;
use crate::{objects, processes};

/// After the start and before the idle time: what was started comes to rest.
const SETTLE: Duration = Duration::from_secs(5);
const OBJECTS: usize = 10_000;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        look(bench, cluster, "no Pods").await?;
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let count = bench.extent.of(OBJECTS, OBJECTS / 10);
        door.fill(0..count, objects::create_config_maps()).await?;
        look(bench, cluster, &format!("{count} ConfigMaps")).await
    })
}

async fn look(bench: &mut Bench, cluster: &Cluster, state: &str) -> Result<()> {
    tokio::time::sleep(SETTLE).await;
    let processes = cluster.processes("");
    let before = processes::usage(&processes)?;
    let started = Instant::now();
    let seconds = u64::try_from(bench.extent.of(60, 10))?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let used = processes::usage(&processes)?;
    let elapsed = started.elapsed().as_secs_f64();
    let share = (used.cpu - before.cpu).as_secs_f64() / elapsed * 100.0;
    let report = &mut bench.report;
    report.value(&format!("idle, {state}: CPU of all processes"), "% of a core", Some("0.5"), share);
    let written = processes::megabytes(used.written_bytes - before.written_bytes) * 3600.0 / elapsed;
    report.value(&format!("idle, {state}: written to disk"), "MB/h", Some("1"), written);
    let memory = processes::mebibytes(processes::pss_bytes(&processes)?);
    report.value(&format!("idle, {state}: PSS of all processes"), "MiB", Some("80"), memory);
    Ok(())
}
