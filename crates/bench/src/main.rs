//! Measures the release build of knarr that lies beside this program; `cargo xtask bench` builds and runs both.
//!
//! Every cluster lives in a folder and a network namespace of its own with no route to the outside, and is removed
//! with `knarr reset`, also after a failure. A measurement that fails is reported beside the others. All loops are
//! bounded. The clients share the machine with what they measure, so CPU per operation stands beside every rate.

mod load;
mod pods;
mod processes;
mod report;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use testkit::Cluster;
use tokio::time::timeout;

use load::Door;
use pods::Deployments;
use report::{Format, Machine, Report};

const START_RUNS: usize = 10;
const ONE_POD_RUNS: usize = 20;
const MANY_PODS_RUNS: usize = 3;
const MANY_PODS: usize = 30;
const CREATES: usize = 2_000;
const CLIENTS: [usize; 4] = [1, 8, 32, 64];
const LISTED: usize = 10_000;
const LIST_RUNS: usize = 10;
/// After the start and before the idle time: what was started comes to rest.
const SETTLE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(10);
/// Any one Deployment or series of requests gets this long.
const STEP_MAX: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let format = Format::parse(std::env::args().skip(1))?;
    let knarr = std::env::current_exe()?.with_file_name("knarr");
    let knarr = knarr.to_str().context("the path of this program is not UTF-8")?;
    let mut report = Report::new(Machine::look()?);
    let cluster = start(knarr, &mut report)?;
    if let Some(cluster) = cluster {
        let measured = in_cluster(&cluster, &mut report);
        report.note("enter the cluster", measured);
        if report.has_failures() {
            eprintln!("{}", cluster.log_tail());
        }
        report.note("remove the cluster", cluster.remove());
    }
    print!("{}", report.render(format)?);
    if report.has_failures() {
        bail!("not everything could be measured");
    }
    Ok(())
}

/// From exec of `knarr up` to a Ready node with DNS, each time from nothing; the last cluster stays.
fn start(knarr: &str, report: &mut Report) -> Result<Option<Cluster>> {
    let mut took = Vec::new();
    let mut last = None;
    for run in 1..=START_RUNS {
        eprintln!("bench: knarr up, {run} of {START_RUNS}");
        let mut cluster = Cluster::new(knarr)?;
        let started = Instant::now();
        let up = cluster.up();
        took.push(started.elapsed());
        if up.is_err() {
            took.pop();
            report.note("knarr up", up);
            report.note("remove the cluster", cluster.remove());
            break;
        }
        if let Some(before) = last.replace(cluster) {
            report.note("remove the cluster", before.remove());
        }
    }
    report.durations("exec of `knarr up` to Ready node with DNS", &took);
    Ok(last)
}

/// Everything else is measured by a thread of the cluster's network namespace.
fn in_cluster(cluster: &Cluster, report: &mut Report) -> Result<()> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cluster.enter()?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(measure(cluster, report))
        });
        thread.join().unwrap_or_else(|_| bail!("the measuring thread panicked"))
    })
}

async fn measure(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let interrupted = tokio::signal::ctrl_c();
    let all = async {
        let door = Door::new(&cluster.kubeconfig()).await?;
        let noted = idle(cluster, "no Pods", report).await;
        report.note("idle", noted);
        let noted = pods_ready(cluster, report).await;
        report.note("Deployments", noted);
        let noted = creates_and_list(cluster, &door, report).await;
        report.note("ConfigMaps", noted);
        let noted = idle(cluster, "10,000 ConfigMaps", report).await;
        report.note("idle", noted);
        Ok(())
    };
    tokio::select! {
        done = all => done,
        _ = interrupted => bail!("interrupted"),
    }
}

async fn idle(cluster: &Cluster, state: &str, report: &mut Report) -> Result<()> {
    eprintln!("bench: idle with {state}");
    tokio::time::sleep(SETTLE).await;
    let processes = cluster.processes("");
    let before = processes::usage(&processes)?;
    let started = Instant::now();
    tokio::time::sleep(IDLE).await;
    let used = processes::usage(&processes)?;
    let share = (used.cpu - before.cpu).as_secs_f64() / started.elapsed().as_secs_f64();
    report.value(
        &format!("idle, {state}: CPU of all processes, in steps of 0.1"),
        "% of a core",
        share * 100.0,
    );
    let hour = Duration::from_secs(3600).as_secs_f64() / IDLE.as_secs_f64();
    let written = processes::megabytes(used.written_bytes - before.written_bytes) * hour;
    report.value(&format!("idle, {state}: written to disk"), "MB/h", written);
    let memory = processes::pss_bytes(&processes)?;
    report.value(&format!("idle, {state}: PSS of all processes"), "MiB", processes::mebibytes(memory));
    Ok(())
}

async fn pods_ready(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let deployments = Deployments::new(&cluster.kubeconfig()).await?;
    let mut took = Vec::new();
    let mut failed = Ok(());
    for run in 1..=ONE_POD_RUNS {
        eprintln!("bench: Deployment with 1 Pod, {run} of {ONE_POD_RUNS}");
        let name = format!("one-{run}");
        match one_pod(&deployments, &name).await {
            Ok(ready_after) => took.push(ready_after),
            Err(error) => failed = Err(error.context(name)),
        }
        if failed.is_err() {
            break;
        }
    }
    report.durations("Deployment POST to Pod Ready, 1 Pod", &took);
    failed?;
    let (mut took, mut shims) = (Vec::new(), Vec::new());
    for run in 1..=MANY_PODS_RUNS {
        eprintln!("bench: Deployment with {MANY_PODS} Pods, {run} of {MANY_PODS_RUNS}");
        let name = format!("many-{run}");
        took.push(timeout(STEP_MAX, deployments.create(&name, MANY_PODS)).await.context(name.clone())??);
        for shim in processes::shims(&cluster.processes(""))? {
            shims.push(processes::mebibytes(processes::pss_bytes(&[shim])?));
        }
        timeout(STEP_MAX, deployments.delete(&name)).await.with_context(|| format!("delete {name}"))??;
    }
    report.durations(&format!("{MANY_PODS}-Pod Deployment POST to all Ready"), &took);
    report.samples("PSS of a Pod's shim", "MiB", &shims);
    Ok(())
}

async fn one_pod(deployments: &Deployments, name: &str) -> Result<Duration> {
    let took = timeout(STEP_MAX, deployments.create(name, 1)).await.context("not Ready in time")??;
    timeout(STEP_MAX, deployments.delete(name)).await.context("not deleted in time")??;
    Ok(took)
}

async fn creates_and_list(cluster: &Cluster, door: &Door, report: &mut Report) -> Result<()> {
    door.create_namespace().await?;
    let mut made = 0;
    for clients in CLIENTS {
        eprintln!("bench: {CREATES} creates by {clients} clients");
        let connected = door.clients(clients).await?;
        let processes = cluster.processes("");
        let before = processes::usage(&processes)?;
        let started = Instant::now();
        let creates = load::create(connected, made..made + CREATES);
        let took = timeout(STEP_MAX, creates).await.context("creates took too long")??;
        let elapsed = started.elapsed();
        let cpu = processes::usage(&processes)?.cpu - before.cpu;
        made += CREATES;
        let many = load::as_f64(CREATES);
        report.value(
            &format!("durable 1 kB creates, {clients} clients"),
            "1/s",
            many / elapsed.as_secs_f64(),
        );
        let each = cpu.as_secs_f64() * 1e3 / many;
        report.value(&format!("  CPU of all processes per create, {clients} clients"), "ms", each);
        report.durations(&format!("  POST to answer, {clients} clients"), &took);
    }
    let rest = load::create(door.clients(16).await?, made..LISTED);
    timeout(STEP_MAX, rest).await.context("creates took too long")??;
    let mut client = door.connect().await?;
    let (mut took, mut bytes) = (Vec::new(), 0);
    for _ in 0..LIST_RUNS {
        let started = Instant::now();
        bytes = timeout(STEP_MAX, load::list(&mut client)).await.context("LIST took too long")??;
        took.push(started.elapsed());
    }
    report.durations("LIST of 10,000 ConfigMaps", &took);
    report.value("  its body", "MB", processes::megabytes(bytes));
    Ok(())
}
