//! `torture`: what `cargo xtask torture` runs, and the processes that it kills.

mod summary;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base::Random;
use clap::{Parser, ValueEnum};
use store::Store;
use store::embedded::{Embedded, Options, Threads};
use torture::Recorder;
use torture::scenario::{self, Cheat, DISK_CALLS, ERRORS};
use torture::workload::{self, Plan};

use summary::Summary;

/// Injects faults into the embedded store and checks that it never loses and never lies.
#[derive(Parser)]
enum Command {
    /// Runs every scenario again and again, with new seeds.
    Run {
        /// For so long.
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// The first seed; the clock's if it is not given. Each failure prints its own.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Opens a store, says what is there, and works: what the scenarios start.
    #[command(hide = true)]
    Child {
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        operations: u64,
        #[arg(long)]
        last_id: u64,
        #[arg(long)]
        threads: Where,
        folder: PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Where {
    Own,
    None,
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Run { minutes, seed } => run(
            Duration::from_secs(minutes * 60),
            seed.unwrap_or_else(|| Random::from_system().below(1 << 32)),
        ),
        Command::Child { seed, operations, last_id, threads, folder } => {
            let mut runtime = match threads {
                Where::Own => tokio::runtime::Builder::new_multi_thread(),
                Where::None => tokio::runtime::Builder::new_current_thread(),
            };
            let threads = if threads == Where::Own { Threads::Own } else { Threads::None };
            let runtime = runtime.worker_threads(2).enable_all().build()?;
            runtime.block_on(child(seed, operations, last_id, threads, folder))
        }
    }
}

/// Runs every scenario until the time is over.
fn run(time: Duration, first: u64) -> Result<()> {
    let binary = std::env::current_exe()?;
    let (started, mut summary) = (Instant::now(), Summary::default());
    for seed in first.. {
        eprintln!("torture: seed {seed}");
        summary.add(scenario::random_kills(&binary, seed, 20)?);
        for call in DISK_CALLS {
            summary.add(scenario::kills_at_calls(&binary, seed, call, None)?);
        }
        for error in ERRORS {
            summary.add(scenario::errors_at_calls(&binary, seed, error, Some(20))?);
        }
        summary.add(scenario::power_losses(&binary, seed, 400, Cheat::None)?);
        if started.elapsed() >= time {
            break;
        }
    }
    summary.print(started.elapsed());
    anyhow::ensure!(summary.is_clean(), "promises were broken");
    Ok(())
}

async fn child(seed: u64, operations: u64, last_id: u64, threads: Threads, folder: PathBuf) -> Result<()> {
    let options = Options { relaxed_flush: Duration::from_millis(5), threads, ..Options::default() };
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&folder, options)?);
    let recorder = Recorder::to_stdout(last_id);
    let start = workload::take_stock(&store, &recorder).await.context("take stock")?;
    let name = format!("p{last_id}");
    if operations > 0 {
        let patience = Duration::from_secs(5);
        let plan = Plan { name, operations, patience, ..Plan::new(seed) };
        workload::run(&store, &plan, start, &recorder).await;
    } else {
        workload::write_once(&store, &name, &recorder).await;
    }
    store.close().await.context("close the store")?;
    Ok(())
}
