//! LIST of 10,000 ConfigMaps, whole, in both forms.

use std::time::Instant;

use anyhow::{Context, Result};
use tokio::time::timeout;

use crate::bench::Bench;
use crate::load::{Call, Door, STEP_MAX, as_f64};
use crate::{objects, processes};

const OBJECTS: usize = 10_000;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        door.fill(0..OBJECTS, objects::create_config_maps()).await?;
        let runs = bench.extent.of(20, 5);
        for (form, accept) in
            [("JSON", "application/json"), ("protobuf", "application/vnd.kubernetes.protobuf")]
        {
            let mut client = door.connect().await?;
            let processes = cluster.processes("");
            let before = processes::usage(&processes)?;
            let (mut took, mut bytes) = (Vec::new(), 0);
            for _ in 0..runs {
                let call = Call::get(objects::collection("configmaps")).accepting(accept);
                let started = Instant::now();
                let body = timeout(STEP_MAX, client.call(call)).await.context("LIST took too long")??;
                took.push(started.elapsed());
                bytes = body.len();
            }
            let cpu = (processes::usage(&processes)?.cpu - before.cpu).as_secs_f64() * 1e3 / as_f64(runs);
            bench.report.durations(&format!("LIST of 10,000 ConfigMaps, {form}"), Some("15"), &took);
            bench.report.value("  CPU of all processes", "ms", None, cpu);
            bench.report.value("  its body", "MB", None, processes::megabytes(u64::try_from(bytes)?));
        }
        Ok(())
    })
}
