//! From exec of `knarr up` to a Ready node with DNS, each time from nothing.

use std::time::Instant;

use anyhow::Result;
use testkit::Cluster;

use crate::bench::Bench;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let runs = bench.extent.of(10, 3);
    let mut took = Vec::new();
    for run in 1..=runs {
        eprintln!("bench:   knarr up, {run} of {runs}");
        let mut cluster = Cluster::new(&bench.knarr)?;
        let started = Instant::now();
        let up = cluster.up();
        let elapsed = started.elapsed();
        cluster.remove()?;
        up?;
        took.push(elapsed);
    }
    bench.report.durations("exec of `knarr up` to Ready Node with DNS", Some("1000"), &took);
    Ok(())
}
