//! A whole node under kills: a real cluster runs Pods of many shapes, and its processes are killed at every stage of
//! their starts and stops.
//!
//! Some Pods stay from beginning to end ([`shapes::STEADY`]); others come and go without pause ([`workload`]). Meanwhile
//! node, control plane, supervisor and shims are killed at random moments, and by `strace` at calls to the kernel
//! ([`killer`]). What must hold is said in [`oracle`]: the containers of Pods that stay are the same processes, with no
//! restart counted, and their Pods are Ready all the time; every other Pod gets to what it is for, and goes when it is
//! told to; no two have one address. Those of a custom kind's objects stay and go with these ([`owners`]). Whatever clients
//! write meanwhile ([`poison`]), each part follows the store. At the end nothing is left of what came and went.

pub mod killer;
pub mod oracle;
mod owners;
mod poison;
pub mod shapes;
mod view;
mod workload;

mod client;
mod processes;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::Random;
use testkit::{Cluster, Inventory, leaks};

use client::Client;
use killer::Killer;
use processes::Processes;
pub use report::{Kill, Report, Stage};
use view::View;
use workload::Workload;

/// The image with busybox.
pub(crate) const BUSYBOX: &str = "test.local/busybox";
/// How long what was made may take to be gone, when nothing is killed any more.
const GONE_MAX: Duration = Duration::from_secs(60);
/// Between two looks at the machine, which tells nobody when something of it goes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Where a cluster writes as it likes: its store, its logs, and who runs.
const IGNORED: [&str; 13] = [
    "up.log",
    "strace",
    "data/knarr.log",
    "data/knarr.pid",
    "data/parts",
    "data/server/",
    "data/agent/",
    "data/run/",
    "data/runtime/images/",
    "data/kubelet/image_manager/",
    "data/cni/networks/knarr/last_reserved",
    "data/kubelet/plugins_registry/",
    // Made with the first claim; what is staged below would show as a mount.
    "data/kubelet/plugins/kubernetes.io",
];

/// The setup of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'b> {
    /// The product's binary.
    pub knarr: &'b str,
    /// Everything that is chosen follows from it.
    pub seed: u64,
    /// So many kills.
    pub kills: usize,
    /// Pods that come and go at the same time.
    pub workers: u64,
}

/// Runs one cluster from nothing to nothing.
///
/// # Errors
/// If the cluster cannot be started, or not be removed.
pub fn run(setup: &Setup<'_>) -> Result<Report> {
    let mut cluster = Cluster::new(setup.knarr)?;
    cluster.import_busybox(BUSYBOX)?;
    cluster.up()?;
    let client = Client::new(&cluster)?;
    let view = View::follow(&client);
    let mut report = Report { seed: setup.seed, ..Report::default() };
    let judged = torture(setup, &mut cluster, (&client, &view), &mut report);
    report.breaches.extend(view.breaches());
    if judged.is_err() || !report.is_clean() {
        eprintln!("{}", cluster.log_tail());
    }
    drop(client);
    cluster.remove()?;
    judged.map(|()| report)
}

fn torture(
    setup: &Setup<'_>,
    cluster: &mut Cluster,
    (client, view): (&Client, &Arc<View>),
    report: &mut Report,
) -> Result<()> {
    client.prepare()?;
    for shape in shapes::STEADY {
        client.create_pod(&(shape.pod)(&format!("steady-{}", shape.name)))?;
    }
    let steady = client.wait(view.all_ready("steady-", shapes::STEADY.len()))?;
    view.keep(&steady);
    let running = Processes::of(&steady);
    ensure!(running.are_all_there(), "no process is found of a Pod that runs: {running:?}");
    let before = cluster.inventory(&IGNORED)?;

    let random = Random::seeded(setup.seed);
    let workload = Workload::start(client, view, setup);
    let mut killer = Killer::new(cluster, view, &random);
    let began = Instant::now();
    while report.kills.len() < setup.kills && view.is_sound() {
        report.kills.extend(killer.kill()?);
    }
    report.killed_for = began.elapsed();
    killer.bring_back()?;
    report.lived = workload.stop(client)?;
    let now = client.wait(view.all_ready("steady-", shapes::STEADY.len()))?;
    report.breaches.extend(running.differences(&Processes::of(&now)));
    report.leaks = left(cluster, &before)?;
    Ok(())
}

/// What is there and was not before anything was killed, and stays: what Pods that run do shows now and then, too.
fn left(cluster: &mut Cluster, before: &Inventory) -> Result<Vec<String>> {
    let began = Instant::now();
    let mut left = leaks(before, &cluster.inventory(&IGNORED)?);
    while !left.is_empty() && began.elapsed() < GONE_MAX {
        std::thread::sleep(LOOK_EVERY);
        let now = leaks(before, &cluster.inventory(&IGNORED).context("look at the machine")?);
        left.retain(|line| now.contains(line));
    }
    Ok(left)
}
