//! Merge patches and configurations applied, each of another object, so that none waits for another.

use std::sync::Arc;

use anyhow::Result;
use serde_json::json;

use crate::bench::{Bench, Series};
use crate::load::{Call, Door};
use crate::objects;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    bench.with_cluster(async |bench, cluster| {
        let door = Door::new(&cluster.kubeconfig()).await?;
        door.call(objects::namespace()).await?;
        let patches = bench.extent.of(2_000, 500);
        door.fill(0..patches, objects::create_config_maps()).await?;
        for clients in [1, 32] {
            let job = Arc::new(move |number| {
                let patch = json!({ "data": { "patched": format!("by one of {clients}") } });
                Call::merge_patch(objects::config_map_path(number), patch.to_string())
            });
            let series = Series { what: "merge patch", goal: None, job };
            bench.series(cluster, &door, clients, 0..patches, &series).await?;
            let job = Arc::new(move |number| {
                Call::apply(objects::config_map_path(number), objects::applied(number, clients))
            });
            let series = Series { what: "server-side apply", goal: None, job };
            bench.series(cluster, &door, clients, 0..patches, &series).await?;
        }
        Ok(())
    })
}
