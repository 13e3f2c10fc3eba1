//! From exec of `knarr up` to a Ready Node with DNS, or several, each time from nothing.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::Cluster;

use crate::bench::Bench;

pub(super) fn measure(bench: &mut Bench) -> Result<()> {
    let took = runs(bench, bench.extent.of(10, 3), Cluster::up)?;
    bench.report.durations("exec of `knarr up` to Ready Node with DNS", Some("1000"), &took);
    Ok(())
}

pub(super) fn of_three(bench: &mut Bench) -> Result<()> {
    let took = runs(bench, bench.extent.of(10, 2), |cluster| cluster.up_with(&["--nodes", "3"]))?;
    bench.report.durations("exec of `knarr up --nodes 3` to three Ready Nodes", Some("3000"), &took);
    Ok(())
}

fn runs(bench: &Bench, runs: usize, up: fn(&mut Cluster) -> Result<()>) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for run in 1..=runs {
        eprintln!("bench:   knarr up, {run} of {runs}");
        let mut cluster = Cluster::new(&bench.knarr)?;
        let started = Instant::now();
        let is_up = up(&mut cluster);
        let elapsed = started.elapsed();
        cluster.remove()?;
        is_up?;
        took.push(elapsed);
    }
    Ok(took)
}
