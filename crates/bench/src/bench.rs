//! What all rows share: clusters, and rates of requests.

use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use testkit::Cluster;
use tokio::time::timeout;

use crate::extent::Extent;
use crate::load::{self, Connection, Door, Job, STEP_MAX};
use crate::processes;
use crate::report::Report;

/// The run of the program.
pub(crate) struct Bench {
    pub(crate) knarr: String,
    pub(crate) extent: Extent,
    pub(crate) report: Report,
}

/// A series of requests of one kind.
pub(crate) struct Series {
    /// For people, such as `durable 1 kB create`.
    pub(crate) what: &'static str,
    /// CPU of all processes per request, in milliseconds.
    pub(crate) goal: Option<&'static str>,
    pub(crate) job: Job,
}

impl Bench {
    /// A cluster that is up, as long as `work` lasts; `work` runs in its network namespace.
    pub(crate) fn with_cluster<F>(&mut self, work: F) -> Result<()>
    where
        F: AsyncFnOnce(&mut Self, &mut Cluster) -> Result<()> + Send,
    {
        self.with_cluster_that(Cluster::up, work)
    }

    /// The same, brought up by `up`, which may give something that has to last as long as the cluster.
    pub(crate) fn with_cluster_that<B, F>(
        &mut self,
        up: impl FnOnce(&mut Cluster) -> Result<B>,
        work: F,
    ) -> Result<()>
    where
        F: AsyncFnOnce(&mut Self, &mut Cluster) -> Result<()> + Send,
    {
        let mut cluster = Cluster::new(&self.knarr)?;
        let beside = up(&mut cluster);
        let measured = beside.as_ref().err().map_or_else(
            || inside(&mut cluster, async |cluster: &mut Cluster| work(self, cluster).await),
            |error| Err(anyhow!("{error:#}")),
        );
        if measured.is_err() {
            eprintln!("{}", cluster.log_tail());
        }
        let reset = cluster.knarr(&["reset", "--yes"]).map(drop);
        drop(beside);
        let removed = cluster.remove().context("remove the cluster");
        measured.and(reset).and(removed)
    }

    /// Sends the requests of `numbers`, and reports rate, CPU and latency. Returns the CPU of all processes per request, in
    /// milliseconds.
    pub(crate) async fn series(
        &mut self,
        cluster: &Cluster,
        door: &Door,
        clients: usize,
        numbers: std::ops::Range<usize>,
        series: &Series,
    ) -> Result<f64> {
        let what = series.what;
        eprintln!("bench:   {} x {what}, {clients} clients", numbers.len());
        let many = load::as_f64(numbers.len());
        let connected: Vec<Connection> = door.clients(clients).await?;
        let processes = cluster.processes("");
        let before = processes::usage(&processes)?;
        let started = Instant::now();
        let run = load::run(connected, numbers, series.job.clone());
        let took = timeout(STEP_MAX, run).await.with_context(|| format!("{what} took too long"))??;
        let elapsed = started.elapsed();
        let cpu = processes::usage(&processes)?.cpu - before.cpu;
        self.report.value(&format!("{what}, {clients} clients"), "1/s", None, many / elapsed.as_secs_f64());
        let each = cpu.as_secs_f64() * 1e3 / many;
        self.report.value(&format!("  CPU of all processes, {clients} clients"), "ms", series.goal, each);
        self.report.durations(&format!("  until the answer, {clients} clients"), None, &took);
        Ok(each)
    }
}

/// Runs `work` on a thread, and threads of its own, inside the cluster's network namespace.
pub(crate) fn inside<F>(cluster: &mut Cluster, work: F) -> Result<()>
where
    F: AsyncFnOnce(&mut Cluster) -> Result<()> + Send,
{
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            cluster.enter()?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    done = work(cluster) => done,
                    _ = tokio::signal::ctrl_c() => bail!("interrupted"),
                }
            })
        });
        thread.join().unwrap_or_else(|_| bail!("the measuring thread panicked"))
    })
}
