//! What is done to a store's process, and what came of it.
//!
//! Each scenario makes a folder, has a process work in it under faults, opens the folder again and checks the whole
//! history. Everything that is chosen follows from a seed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base::Random;
use store::embedded::Threads;

use crate::check::{Breach, Promise, Rule};
use crate::disk::{Disk, Power, Step, Trace};
use crate::history::History;
use crate::process::{self, DATA, Fault, Job, append, printed};

/// The system calls by which a store reaches the disk.
pub const DISK_CALLS: [&str; 3] = ["fdatasync", "pwrite64", "writev"];
/// Errors of a disk or a kernel, and a call that may get each.
pub const ERRORS: [(&str, &str); 8] = [
    ("fdatasync", "EIO"),
    ("fdatasync", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("writev", "EIO"),
    ("writev", "ENOSPC"),
    ("openat", "EMFILE"),
    ("mmap", "ENOMEM"),
];
/// Operations per client of a scenario that is repeated for each system call.
const SHORT: u64 = 12;
const LONG: u64 = 60;

/// What was tried and what came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Processes that were killed.
    pub kills: usize,
    /// System calls at which something happened.
    pub positions: usize,
    /// Disk images that were opened.
    pub images: usize,
    /// Durable writes that were acknowledged.
    pub acknowledged: usize,
    /// From the start of a process after a crash until its store was open.
    pub recoveries: Vec<Duration>,
    /// Promises that were not kept, with the seed and the place.
    pub breaches: Vec<(String, Breach)>,
}

impl Report {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.positions += other.positions;
        self.images += other.images;
        self.acknowledged += other.acknowledged;
        self.recoveries.extend(other.recoveries);
        self.breaches.extend(other.breaches);
    }

    /// Checks a history and takes note of what is wrong with it.
    fn judge(&mut self, place: &str, history: &History) {
        self.acknowledged += history.acknowledged();
        let found = crate::check(history, Promise::Store);
        self.breaches.extend(found.into_iter().map(|breach| (place.to_owned(), breach)));
    }

    /// Takes stock of a folder and judges the whole history.
    fn open(&mut self, place: &str, (binary, folder): (&Path, &Path), mut history: History) {
        match process::take_stock(binary, folder, &history) {
            Ok((stock, took)) => {
                append(&mut history, &stock);
                self.recoveries.push(took);
                self.judge(place, &history);
            }
            Err(why) => {
                let breach = Breach { rule: Rule::NothingLost, what: format!("{why:#}") };
                self.breaches.push((place.to_owned(), breach));
            }
        }
    }
}

/// Kills at random moments, one after the other in one folder; also stops the process now and then.
///
/// # Errors
/// If a process cannot be started.
pub fn random_kills(binary: &Path, seed: u64, rounds: usize) -> Result<Report> {
    let (random, folder) = (Random::seeded(seed), tempfile::tempdir()?);
    let (mut report, mut history) = (Report::default(), History::default());
    for round in 0..rounds {
        let seed = random.below(u64::MAX);
        let job = job(binary, folder.path(), seed, LONG, Threads::Own);
        let lines = usize::try_from(random.below(1500)).unwrap_or(0) + 20;
        let fault = if round % 5 == 4 { Fault::StopAndGo(2) } else { Fault::KillAfterLines(lines) };
        let ran = job.run(&history, &fault)?;
        report.kills += usize::from(!ran.is_clean);
        report.recoveries.extend(ran.until_open);
        append(&mut history, &ran.history);
    }
    report.open(&format!("kills, seed {seed}"), (binary, folder.path()), history);
    Ok(report)
}

/// Kills at the n-th call of a name, for every n that a scenario with compaction has, or for some of them.
///
/// # Errors
/// If a process cannot be started.
pub fn kills_at_calls(binary: &Path, seed: u64, call: &'static str, some: Option<u64>) -> Result<Report> {
    let all = count(binary, seed, call)?;
    let mut report = Report::default();
    for nth in sample(all, some, &Random::seeded(seed)) {
        let folder = tempfile::tempdir()?;
        let place = format!("killed at {call} number {nth}, seed {seed}");
        let ran = job(binary, folder.path(), seed, SHORT, Threads::None)
            .run(&History::default(), &Fault::KillAt(call, nth))?;
        report.kills += usize::from(!ran.is_clean);
        report.positions += 1;
        report.open(&place, (binary, folder.path()), ran.history);
    }
    Ok(report)
}

/// Has the n-th call of a name fail, alone or with all that follow.
///
/// # Errors
/// If a process cannot be started.
pub fn errors_at_calls(
    binary: &Path,
    seed: u64,
    (call, error): (&'static str, &'static str),
    some: Option<u64>,
) -> Result<Report> {
    let all = count(binary, seed, call)?;
    let random = Random::seeded(seed);
    let mut report = Report::default();
    for nth in sample(all, some, &random) {
        let folder = tempfile::tempdir()?;
        let count = if random.below(2) == 0 { 1 } else { 0 };
        let fault = Fault::Error { call, nth, count, error };
        let place = format!("{fault:?}, seed {seed}");
        let ran = job(binary, folder.path(), seed, SHORT, Threads::None).run(&History::default(), &fault)?;
        report.positions += 1;
        report.open(&place, (binary, folder.path()), ran.history);
    }
    Ok(report)
}

/// How a power loss is told wrongly: the negative controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cheat {
    /// Not at all.
    None,
    /// The disk does not keep what it should.
    Disk(Power),
    /// The process says that a write is done before it is.
    AcknowledgedEarly,
}

/// Cuts the power at random moments of a recorded run.
///
/// # Errors
/// If a process cannot be started.
pub fn power_losses(binary: &Path, seed: u64, images: usize, cheat: Cheat) -> Result<Report> {
    let recorded = tempfile::tempdir()?;
    let job = job(binary, recorded.path(), seed, LONG, Threads::Own);
    let mut trace = job.run(&History::default(), &Fault::Record)?.trace.context("nothing was recorded")?;
    if cheat == Cheat::AcknowledgedEarly {
        trace = trace.acknowledged_early();
    }
    let power = if let Cheat::Disk(power) = cheat { power } else { Power::Honest };
    let random = Random::seeded(seed);
    let mut report = Report::default();
    let (mut disk, mut done) = (Disk::new(power), 0);
    for cut in moments(&trace, images, &random) {
        for step in trace.steps.get(done..cut).unwrap_or_default() {
            disk.step(step, &trace.calls);
        }
        done = cut;
        let folder = tempfile::tempdir()?;
        // A new file may not be there at all, as long as its folder was not flushed.
        if disk.is_named() || random.below(4) > 0 {
            std::fs::write(folder.path().join(DATA), disk.image(&random))?;
        }
        report.images += 1;
        let place = format!("power lost after step {cut} of {}, seed {seed}", trace.steps.len());
        report.open(&place, (binary, folder.path()), printed(&trace, cut));
    }
    // Writes are counted once, not once for each image of them.
    report.acknowledged = printed(&trace, trace.steps.len()).acknowledged();
    Ok(report)
}

/// Copies the folder, goes on, and puts the copy back: a disk that goes back in time. The negative control of restarts.
///
/// # Errors
/// If a process cannot be started.
pub fn back_in_time(binary: &Path, seed: u64) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join(DATA);
    let mut history =
        job(binary, folder.path(), seed, SHORT, Threads::Own).run(&History::default(), &Fault::None)?.history;
    let copy = std::fs::read(&data)?;
    let more = job(binary, folder.path(), seed + 1, SHORT, Threads::Own).run(&history, &Fault::None)?;
    append(&mut history, &more.history);
    std::fs::write(&data, copy)?;
    let mut report = Report::default();
    report.open(&format!("back in time, seed {seed}"), (binary, folder.path()), history);
    Ok(report)
}

fn job(binary: &Path, folder: &Path, seed: u64, operations: u64, threads: Threads) -> Job {
    let (binary, folder): (PathBuf, PathBuf) = (binary.to_owned(), folder.to_owned());
    Job { binary, folder, seed, operations, threads }
}

/// How many calls of a name the short scenario makes.
fn count(binary: &Path, seed: u64, call: &str) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let job = job(binary, folder.path(), seed, SHORT, Threads::None);
    job.count(call)
}

/// All of `1..=all`, or some of them: spread evenly, each moved at random within its part.
fn sample(all: usize, some: Option<u64>, random: &Random) -> Vec<usize> {
    let all = all as u64;
    let some = some.map_or(all, |some| some.min(all));
    let within = |part: u64| {
        let (from, to) = (part * all / some, (part + 1) * all / some);
        usize::try_from(1 + from + random.below(to - from)).unwrap_or(1)
    };
    (0..some).map(within).collect()
}

/// Moments of a trace, in order: half of them right at a flush, where most is at stake.
fn moments(trace: &Trace, count: usize, random: &Random) -> Vec<usize> {
    let is_end = |step: &Step| matches!(step, Step::End(..));
    let ends: Vec<usize> =
        trace.steps.iter().enumerate().filter(|(_, step)| is_end(step)).map(|(at, _)| at).collect();
    let pick = |number: usize| {
        let any = usize::try_from(random.below(trace.steps.len() as u64 + 1)).unwrap_or(0);
        let end = usize::try_from(random.below(ends.len() as u64)).unwrap_or(0);
        let after = usize::try_from(random.below(3)).unwrap_or(0);
        let near = ends.get(end).map_or(any, |end| (end + after).min(trace.steps.len()));
        if number.is_multiple_of(2) { any } else { near }
    };
    let mut moments: Vec<usize> = (0..count).map(pick).collect();
    moments.sort_unstable();
    moments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_everything() {
        let random = Random::seeded(1);
        assert_eq!(sample(4, None, &random), [1, 2, 3, 4]);
        assert_eq!(sample(3, Some(10), &random), [1, 2, 3]);
        let some = sample(100, Some(10), &random);
        assert!(
            some.iter().zip(0..).all(|(nth, part)| (1 + part * 10..=10 + part * 10).contains(nth)),
            "{some:?}"
        );
    }
}
