//! Durable creates of 1 kB, by 1 to 64 clients.

use anyhow::Result;

use crate::bench::{Bench, Series};
use crate::load::Door;
use crate::objects;

pub(super) const CLIENTS: [usize; 4] = [1, 8, 32, 64];

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let creates = bench.extent.of(2_000, 500);
        let series =
            Series { what: "durable 1 kB create", goal: Some("0.15"), job: objects::create_config_maps() };
        for (index, clients) in CLIENTS.into_iter().enumerate() {
            let numbers = index * creates..(index + 1) * creates;
            bench.series(cluster, &door, clients, numbers, &series).await?;
        }
        Ok(())
    })
}
