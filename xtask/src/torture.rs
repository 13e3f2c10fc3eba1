//! `cargo xtask torture [--what store|node] [--debug] [--minutes N] [--seed S]`: what the tests do to the store and to all
//! that stands on it for a few seconds, for longer.
//!
//! Two thirds of the time go to stores (the crate `torture`), the rest to the API server in simulation; then a cluster's
//! processes are killed once more. With `--what node` all of it goes to killing the processes of real nodes at every
//! stage of a Pod's life. A failure prints its seed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::bench::{cargo, step, target_directory};

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    what: What,
    minutes: u64,
    seed: Option<u64>,
    /// Whether what is built is the release: it does more in the same time, and takes minutes to build.
    is_release: bool,
}

/// What is tortured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The store, and the API on it.
    Store,
    /// A node with its Pods.
    Node,
}

pub(crate) fn run() -> Result<()> {
    let asked = Asked::parse(std::env::args().skip(2))?;
    let root = crate::tidy::root()?;
    let seed = match asked.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock")?.as_secs(),
    };
    let profile = if asked.is_release { "release" } else { "dev" };
    // Alone: its simulations have a clock that the product must not have.
    step(cargo().args(["build", "-p", "torture", "--profile", profile]).current_dir(&root))?;
    let folder = if asked.is_release { "release" } else { "debug" };
    let torture = target_directory(&root)?.join(folder).join("torture");
    if asked.what == What::Node {
        step(cargo().args(["build", "-p", "knarr", "--profile", profile]).current_dir(&root))?;
        let mut kills = Command::new(&torture);
        kills.args(["node", "--seed", &seed.to_string(), "--seconds", &(asked.minutes * 60).to_string()]);
        return step(kills.arg("--knarr").arg(torture.with_file_name("knarr")));
    }
    let (seconds, seed_text) = ((asked.minutes * 40).to_string(), seed.to_string());
    step(Command::new(torture).args(["run", "--seconds", &seconds, "--seed", &seed_text]))?;
    simulate(&root, profile, (seed, Duration::from_secs(asked.minutes * 20)))?;
    // The kills of nodes are the other subject.
    let kills = ["-p", "knarr", "--test", "cluster", "kills", "--", "--skip", "kills::node"];
    test(&root, profile, &kills, seed)
}

/// The API server and the control plane in simulation, from one seed after the other.
fn simulate(root: &Path, profile: &str, (first, time): (u64, Duration)) -> Result<()> {
    const SIMULATION: &[&str] =
        &["-p", "apiserver", "--test", "api", "--", "simulation::what_clients", "workloads::workloads"];
    // Building takes none of the time.
    test(root, profile, SIMULATION, first)?;
    let started = Instant::now();
    let mut count = 1;
    while started.elapsed() < time {
        test(root, profile, SIMULATION, first + count)?;
        count += 1;
    }
    eprintln!("torture: {count} API servers were simulated");
    Ok(())
}

fn test(root: &Path, profile: &str, which: &[&str], seed: u64) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--quiet", "--profile", profile]).args(which);
    step(command.env("KNARR_TEST_SEED", seed.to_string()).current_dir(root))
        .with_context(|| format!("torture: KNARR_TEST_SEED={seed}"))
}

impl Asked {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut asked = Self { what: What::Store, minutes: 10, seed: None, is_release: true };
        while let Some(arg) = args.next() {
            if arg == "--what" {
                asked.what = match args.next().as_deref() {
                    Some("store") => What::Store,
                    Some("node") => What::Node,
                    _ => bail!("--what must be store or node"),
                };
                continue;
            }
            let mut number = || -> Result<u64> {
                let text = args.next().with_context(|| format!("{arg} needs a number"))?;
                text.parse().with_context(|| format!("{arg} {text}"))
            };
            match arg.as_str() {
                "--minutes" => asked.minutes = number()?,
                "--seed" => asked.seed = Some(number()?),
                "--debug" => asked.is_release = false,
                other => {
                    bail!(
                        "cargo xtask torture does not know {other}: use --what store|node, --minutes N, --seed S, --debug"
                    )
                }
            }
        }
        Ok(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_and_seed_are_read() {
        let parse = |text: &str| Asked::parse(text.split_whitespace().map(str::to_owned));
        let asked = Asked { what: What::Store, minutes: 10, seed: None, is_release: true };
        assert_eq!(parse("").unwrap(), asked);
        let all = Asked { what: What::Node, minutes: 3, seed: Some(7), is_release: false };
        assert_eq!(parse("--debug --minutes 3 --what node --seed 7").unwrap(), all);
        assert!(
            parse("--minutes").is_err()
                && parse("--what").is_err()
                && parse("--what x").is_err()
                && parse("--hours 3").is_err()
        );
    }
}
