//! GET of one object after the other.

use std::sync::Arc;

use anyhow::Result;

use crate::bench::{Bench, Series};
use crate::load::{Call, Door};
use crate::objects;

const OBJECTS: usize = 1_000;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        door.fill(0..OBJECTS, objects::create_config_maps()).await?;
        let job = Arc::new(|number| Call::get(objects::config_map_path(number % OBJECTS)));
        let series = Series { what: "GET of 1 kB", goal: Some("0.06"), job };
        let gets = bench.extent.of(20_000, 2_000);
        for clients in [1, 32] {
            bench.series(cluster, &door, clients, 0..gets, &series).await?;
        }
        Ok(())
    })
}
