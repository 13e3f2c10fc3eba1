//! kill -9 of the control plane, until the API server says that it is ready again.
//!
//! Between two kills the cluster is stopped and started, so that the supervisor's backoff starts over.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::Cluster;
use tokio::time::timeout;

use crate::bench::Bench;
use crate::load::{Call, Door, STEP_MAX};
use crate::{objects, processes};

const OBJECTS: usize = 10_000;
/// Between two looks whether it answers; part of what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        door.fill(0..OBJECTS, objects::create_config_maps()).await?;
        let mut took = Vec::new();
        for run in 0..bench.extent.of(20, 3) {
            if run > 0 {
                cluster.knarr(&["down"])?;
                cluster.up()?;
            }
            took.push(kill(cluster, &door).await?);
        }
        let what = "kill -9 of the control plane to ready, 10,000 objects";
        bench.report.durations(what, Some("300"), &took);
        let last = Call::get(objects::config_map_path(OBJECTS - 1));
        door.call(last).await.context("an object is missing after the kills").map(drop)
    })
}

async fn kill(cluster: &Cluster, door: &Door) -> Result<Duration> {
    let [process] = *cluster.processes("knarr control-plane") else {
        bail!("there is not one control plane");
    };
    let started = Instant::now();
    processes::kill(process)?;
    let ready = async {
        // The process that was killed may still answer what had reached it; a connection made now is the next one's.
        while cluster.processes("knarr control-plane").contains(&process)
            || door.call(Call::get("/readyz".to_owned())).await.is_err()
        {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    timeout(STEP_MAX, ready).await.context("the control plane did not come back")?;
    Ok(started.elapsed())
}
