//! `torture`: what `cargo xtask torture` runs, and the processes that it kills.

mod summary;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base::Random;
use clap::{Args, Parser, ValueEnum};
use store::Store;
use store::embedded::{Embedded, Options, Threads};
use torture::Recorder;
use torture::members::{self, Trouble};
use torture::mutants::{Liar, Lie};
use torture::node;
use torture::scenario::{self, Camera, Cheat, DISK_CALLS, ERRORS, Report, Setup};
use torture::workload::{self, Plan};

use summary::Summary;

/// Simulated stores of a round.
const SIMULATIONS: u64 = 20;
/// Positions of each error in a round.
const ERRORS_OF_A_KIND: u64 = 10;
/// Often enough that every short run has a compaction in it.
const COMPACT_PERCENT: u64 = 10;

/// How long watchers get at the end; a machine with much else to do needs seconds where one is the rule.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Injects faults into stores and checks that they never lose and never lie.
#[derive(Parser)]
enum Command {
    /// Runs every scenario again and again, with new seeds.
    Run {
        /// For so long.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// The first seed; the clock's if it is not given. Each failure prints its own.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Kills the processes of a real cluster's node, with a new cluster for each seed.
    Node {
        /// The product's binary.
        #[arg(long)]
        knarr: String,
        /// For so long; the first cluster is killed to its end in any case.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// The first seed; the clock's if it is not given.
        #[arg(long)]
        seed: Option<u64>,
        /// Kills of each cluster.
        #[arg(long, default_value_t = 200)]
        kills: usize,
        /// Pods that come and go at the same time.
        #[arg(long, default_value_t = 6)]
        workers: u64,
    },
    /// Opens a store, says what is there, and works: what the scenarios start.
    #[command(hide = true)]
    Child(Child),
}

#[derive(Args)]
struct Child {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    operations: u64,
    #[arg(long)]
    last_id: u64,
    #[arg(long)]
    threads: Where,
    #[arg(long)]
    lie: Lie,
    folder: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
    Own,
    None,
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Run { seconds, seed } => {
            run(Duration::from_secs(seconds), seed.unwrap_or_else(|| Random::from_system().below(1 << 32)))
        }
        Command::Node { knarr, seconds, seed, kills, workers } => {
            let first = seed.unwrap_or_else(|| Random::from_system().below(1 << 32));
            let setup = node::Setup { knarr: &knarr, seed: first, kills, workers };
            kill_nodes(Duration::from_secs(seconds), setup)
        }
        Command::Child(child) => child.run(),
    }
}

/// One cluster after the other, until the time is over or a promise is broken.
#[expect(clippy::print_stdout, reason = "it is the result")]
fn kill_nodes(time: Duration, first: node::Setup<'_>) -> Result<()> {
    let (started, mut all) = (Instant::now(), node::Report::default());
    for seed in first.seed.. {
        eprintln!("torture: node, seed {seed}");
        let report = node::run(&node::Setup { seed, ..first }).with_context(|| format!("seed {seed}"))?;
        for line in report.breaches.iter().chain(&report.leaks) {
            eprintln!("torture: seed {seed}: {line}");
        }
        all.add(report);
        if started.elapsed() >= time || !all.is_clean() {
            break;
        }
    }
    print!("{all}");
    anyhow::ensure!(all.is_clean(), "promises were broken");
    Ok(())
}

/// Runs every scenario until the time is over; the first round is run to its end in any case.
fn run(time: Duration, first: u64) -> Result<()> {
    let binary = std::env::current_exe()?;
    let (started, mut summary) = (Instant::now(), Summary::default());
    'rounds: for seed in first.. {
        eprintln!("torture: seed {seed}");
        let setup = Setup { binary: &binary, seed, lie: Lie::None };
        for (name, stage) in stages() {
            let begun = Instant::now();
            summary.add(stage(&setup)?);
            eprintln!("torture: {name}: {:.0?}", begun.elapsed());
            if seed > first && started.elapsed() >= time {
                break 'rounds;
            }
        }
        if started.elapsed() >= time {
            break;
        }
    }
    summary.print(started.elapsed());
    anyhow::ensure!(summary.is_clean(), "promises were broken");
    Ok(())
}

/// A scenario and its name.
type Stage = (String, Box<dyn Fn(&Setup<'_>) -> Result<Report>>);

fn stages() -> Vec<Stage> {
    let mut stages: Vec<Stage> = vec![
        ("simulation".to_owned(), Box::new(|setup| scenario::simulated(setup, SIMULATIONS))),
        ("kills at random".to_owned(), Box::new(|setup| scenario::random_kills(setup, 40))),
        ("stops".to_owned(), Box::new(|setup| scenario::stops(setup, 6))),
        ("leaps of the clock".to_owned(), Box::new(|setup| scenario::leaps(setup, 12))),
        ("backups".to_owned(), Box::new(|setup| scenario::pictures(setup, Camera::Steady))),
        ("power losses".to_owned(), Box::new(|setup| scenario::power_losses(setup, 400, Cheat::None))),
        ("etcd".to_owned(), Box::new(|setup| members::run(setup.seed, setup.lie, &Trouble::ALL))),
    ];
    for call in DISK_CALLS {
        let kills = move |setup: &Setup<'_>| scenario::kills_at_calls(setup, call, None);
        stages.push((format!("kills at every {call}"), Box::new(kills)));
    }
    for (call, error) in ERRORS {
        let errors =
            move |setup: &Setup<'_>| scenario::errors_at_calls(setup, (call, error), Some(ERRORS_OF_A_KIND));
        stages.push((format!("{error} of {call}"), Box::new(errors)));
    }
    stages
}

impl Child {
    fn run(self) -> Result<()> {
        let mut runtime = match self.threads {
            Where::Own => tokio::runtime::Builder::new_multi_thread(),
            Where::None => tokio::runtime::Builder::new_current_thread(),
        };
        runtime.worker_threads(2).enable_all().build()?.block_on(self.work())
    }

    async fn work(self) -> Result<()> {
        let threads = if self.threads == Where::Own { Threads::Own } else { Threads::None };
        let relaxed_flush = Duration::from_millis(5);
        let options = Options { relaxed_flush, slack_bytes_min: 0, threads, ..Options::default() };
        let embedded = Arc::new(Embedded::open(&self.folder, options)?);
        let store: Arc<dyn Store> = Arc::new(Liar::new(embedded, self.lie));
        let recorder = Recorder::to_stdout(self.last_id);
        let start = workload::take_stock(&store, &recorder).await.context("take stock")?;
        let name = format!("p{}", self.last_id);
        if self.operations > 0 {
            let (operations, timeout) = (self.operations, TIMEOUT);
            let plan =
                Plan { name, operations, timeout, compact_percent: COMPACT_PERCENT, ..Plan::new(self.seed) };
            workload::run(&store, &plan, start, &recorder).await;
        } else {
            workload::write_once(&store, &name, &recorder).await;
        }
        store.close().await.context("close the store")?;
        Ok(())
    }
}
