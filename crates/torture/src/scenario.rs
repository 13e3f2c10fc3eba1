//! What is done to a store's process, and what came of it.
//!
//! Each scenario makes a folder, has a process work in it under faults, opens the folder again and checks the whole
//! history. Everything that is chosen follows from a seed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base::Random;
use store::embedded::Threads;

use crate::check::{Breach, Guarantees, Rule};
use crate::disk::{Disk, NEW, Power, Step, Trace};
use crate::history::{Call, History, Line, Outcome};
use crate::mutants::Lie;
use crate::process::{self, DATA, Fault, Job, Picture, append, printed};
use crate::simulation::Simulation;

/// The system calls by which a store reaches the disk.
pub const DISK_CALLS: [&str; 4] = ["fdatasync", "pwrite64", "writev", "fallocate"];
/// Errors of a disk or a kernel, and a call that may get each.
pub const ERRORS: [(&str, &str); 13] = [
    ("fdatasync", "EIO"),
    ("fdatasync", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("writev", "EIO"),
    ("writev", "ENOSPC"),
    ("pwrite64", "EROFS"),
    ("writev", "EROFS"),
    ("fallocate", "EIO"),
    ("fallocate", "EOPNOTSUPP"),
    ("openat", "EROFS"),
    ("openat", "EMFILE"),
    ("mmap", "ENOMEM"),
];
/// Operations per client of a scenario that is repeated for each system call.
const SHORT: u64 = 12;
const LONG: u64 = 60;
/// A long run has a few thousand lines.
const LINES_PER_PICTURE: usize = 150;

/// The setup of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'b> {
    /// This binary: `torture`.
    pub binary: &'b Path,
    /// Everything that is chosen follows from it.
    pub seed: u64,
    /// The lie of the store: none, but in negative controls.
    pub lie: Lie,
}

/// The report on what was tried.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Processes that were killed.
    pub kills: usize,
    /// System calls at which something happened.
    pub positions: usize,
    /// Disk images that were opened.
    pub images: usize,
    /// Holes that were made in data files whose power was cut.
    pub holes: usize,
    /// Backups that were read while somebody wrote.
    pub pictures: usize,
    /// Times that a process was stopped and went on.
    pub stops: usize,
    /// Times that the clock of a process leapt.
    pub leaps: usize,
    /// Things that happened to members of etcd.
    pub troubles: usize,
    /// Lives of a simulated store.
    pub lives: usize,
    /// Durable writes that were acknowledged.
    pub acknowledged: usize,
    /// Compactions.
    pub compactions: usize,
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
        self.holes += other.holes;
        self.pictures += other.pictures;
        self.stops += other.stops;
        self.leaps += other.leaps;
        self.troubles += other.troubles;
        self.lives += other.lives;
        self.compactions += other.compactions;
        self.acknowledged += other.acknowledged;
        self.recoveries.extend(other.recoveries);
        self.breaches.extend(other.breaches);
    }

    /// Checks a history and takes note of what is wrong with it.
    pub(crate) fn judge(&mut self, place: &str, history: &History) {
        self.acknowledged += history.acknowledged();
        self.compactions += history.compactions();
        let found = crate::check(history, Guarantees::Store);
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

impl Setup<'_> {
    fn job(&self, folder: &Path, operations: u64, threads: Threads) -> Job {
        let (binary, folder): (PathBuf, PathBuf) = (self.binary.to_owned(), folder.to_owned());
        Job { binary, folder, seed: self.seed, operations, threads, lie: self.lie }
    }

    /// How many calls of a name the short scenario makes.
    fn count(&self, call: &str) -> Result<usize> {
        let folder = tempfile::tempdir()?;
        self.job(folder.path(), SHORT, Threads::None).count(call)
    }
}

/// Runs so many simulations of the store, each from a seed of its own.
///
/// # Errors
/// If one cannot be made.
pub fn simulated(setup: &Setup<'_>, count: u64) -> Result<Report> {
    let (random, mut report) = (Random::seeded(setup.seed), Report::default());
    for _ in 0..count {
        let simulation = Simulation { lie: setup.lie, ..Simulation::new(random.below(1 << 32)) };
        let history = simulation.run()?;
        report.lives += simulation.lives;
        report.judge(&format!("simulated, KNARR_TEST_SEED={}", simulation.seed), &history);
    }
    Ok(report)
}

/// Kills at random moments, one after the other in one folder.
///
/// # Errors
/// If a process cannot be started.
pub fn random_kills(setup: &Setup<'_>, rounds: usize) -> Result<Report> {
    let (random, folder) = (Random::seeded(setup.seed), tempfile::tempdir()?);
    let (mut report, mut history) = (Report::default(), History::default());
    for _ in 0..rounds {
        let round = Setup { seed: random.below(u64::MAX), ..*setup };
        let lines = usize::try_from(random.below(1500)).unwrap_or(0) + 20;
        let job = round.job(folder.path(), LONG, Threads::Own);
        let ran = job.run(&history, &Fault::KillAfterLines(lines))?;
        report.kills += usize::from(!ran.is_clean);
        report.recoveries.extend(ran.until_open);
        append(&mut history, &ran.history);
    }
    report.open(&format!("kills, seed {}", setup.seed), (setup.binary, folder.path()), history);
    Ok(report)
}

/// Stops the process and has it go on, again and again.
///
/// # Errors
/// If a process cannot be started.
pub fn stops(setup: &Setup<'_>, times: usize) -> Result<Report> {
    let (folder, mut report) = (tempfile::tempdir()?, Report::default());
    let job = setup.job(folder.path(), LONG, Threads::Own);
    let ran = job.run(&History::default(), &Fault::StopAndGo(times))?;
    report.stops += ran.stops;
    report.open(&format!("stops, seed {}", setup.seed), (setup.binary, folder.path()), ran.history);
    Ok(report)
}

/// Has the clock of the process leap, again and again.
///
/// # Errors
/// If a process cannot be started.
pub fn leaps(setup: &Setup<'_>, times: usize) -> Result<Report> {
    let (folder, mut report) = (tempfile::tempdir()?, Report::default());
    let job = setup.job(folder.path(), LONG, Threads::Own);
    let ran = job.run(&History::default(), &Fault::Leaps(times))?;
    report.leaps += ran.leaps;
    report.open(&format!("leaps, seed {}", setup.seed), (setup.binary, folder.path()), ran.history);
    Ok(report)
}

/// The wrong ways to make a backup: the negative control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Camera {
    /// Not at all.
    Steady,
    /// Half of each picture is of the one before it.
    Moved,
}

/// Reads all data now and then while the process writes on, as backups do: each is a picture of one revision.
///
/// # Errors
/// If a process cannot be started, or its data cannot be read.
pub fn pictures(setup: &Setup<'_>, camera: Camera) -> Result<Report> {
    let (folder, mut report) = (tempfile::tempdir()?, Report::default());
    let job = setup.job(folder.path(), LONG, Threads::Own);
    let ran = job.run(&History::default(), &Fault::Pictures(LINES_PER_PICTURE))?;
    let (mut history, mut id) = (ran.history, 0);
    let mut last = None;
    for mut picture in ran.pictures {
        let whole = picture.clone();
        if let Some(Picture { states, .. }) = last.replace(whole).filter(|_| camera == Camera::Moved) {
            let half = picture.states.len() / 2;
            picture.states =
                states.into_iter().take(half).chain(picture.states.into_iter().skip(half)).collect();
        }
        id = id.max(history.last_id()) + 1;
        let (start, end) = ("/registry/".to_owned(), "/registry0".to_owned());
        let call = Call::List { start, end, at: Some(picture.revision), limit: 0 };
        let Picture { revision, states } = picture;
        history.lines.push(Line::Invoke(id, call));
        history.lines.push(Line::Return(id, Outcome::Listed { revision, states, remaining: None }));
        report.pictures += 1;
    }
    report.judge(&format!("pictures, seed {}", setup.seed), &history);
    Ok(report)
}

/// Kills at the n-th call of a name, for every n that a scenario with compaction has, or for some of them.
///
/// # Errors
/// If a process cannot be started.
pub fn kills_at_calls(setup: &Setup<'_>, call: &'static str, some: Option<u64>) -> Result<Report> {
    let all = setup.count(call)?;
    let mut report = Report::default();
    for nth in sample(all, some, &Random::seeded(setup.seed)) {
        let folder = tempfile::tempdir()?;
        let place = format!("killed at {call} number {nth}, seed {}", setup.seed);
        let ran = setup
            .job(folder.path(), SHORT, Threads::None)
            .run(&History::default(), &Fault::KillAt(call, nth))?;
        report.kills += usize::from(!ran.is_clean);
        report.positions += 1;
        report.open(&place, (setup.binary, folder.path()), ran.history);
    }
    Ok(report)
}

/// Has the n-th call of a name fail, alone or with all that follow.
///
/// # Errors
/// If a process cannot be started.
pub fn errors_at_calls(
    setup: &Setup<'_>,
    (call, error): (&'static str, &'static str),
    some: Option<u64>,
) -> Result<Report> {
    let all = setup.count(call)?;
    let random = Random::seeded(setup.seed);
    let mut report = Report::default();
    for nth in sample(all, some, &random) {
        let folder = tempfile::tempdir()?;
        let count = if random.below(2) == 0 { 1 } else { 0 };
        let fault = Fault::Error { call, nth, count, error };
        let place = format!("{fault:?}, seed {}", setup.seed);
        let ran = setup.job(folder.path(), SHORT, Threads::None).run(&History::default(), &fault)?;
        report.positions += 1;
        report.open(&place, (setup.binary, folder.path()), ran.history);
    }
    Ok(report)
}

/// The wrong ways to tell of a power loss: the negative controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cheat {
    /// Not at all.
    None,
    /// The disk does not keep what it should.
    Disk(Power),
    /// The process says that a write is done before it is.
    AcknowledgedEarly,
    /// Space is given back where something is.
    HolesElsewhere,
    /// Space is given back so many flushes early.
    HolesEarly(usize),
}

/// Cuts the power at random moments of a recorded run.
///
/// # Errors
/// If a process cannot be started.
pub fn power_losses(setup: &Setup<'_>, images: usize, cheat: Cheat) -> Result<Report> {
    let (recorded, seed, mut report) = (tempfile::tempdir()?, setup.seed, Report::default());
    let job = setup.job(recorded.path(), LONG, Threads::Own);
    let mut trace = job.run(&History::default(), &Fault::Record)?.trace.context("nothing was recorded")?;
    report.holes = trace.holes();
    trace = match cheat {
        Cheat::AcknowledgedEarly => trace.acknowledged_early(),
        Cheat::HolesElsewhere => trace.holes_elsewhere(),
        Cheat::HolesEarly(flushes) => trace.holes_early(flushes),
        Cheat::None | Cheat::Disk(_) => trace,
    };
    let power = if let Cheat::Disk(power) = cheat { power } else { Power::Honest };
    let random = Random::seeded(seed);
    let (mut disk, mut done) = (Disk::new(power), 0);
    for cut in moments(&trace, images, &random) {
        for step in trace.steps.get(done..cut).unwrap_or_default() {
            disk.step(step, &trace.calls);
        }
        done = cut;
        let folder = tempfile::tempdir()?;
        // A new file may still be where it was made, as long as its folder was not flushed.
        let is_there = disk.is_named() || disk.may_be_named() && random.below(4) > 0;
        let place = if is_there { folder.path().to_owned() } else { folder.path().join(NEW) };
        std::fs::create_dir_all(&place)?;
        std::fs::write(place.join(DATA), disk.image(&random))?;
        report.images += 1;
        let place = format!("power lost after step {cut} of {}, seed {seed}", trace.steps.len());
        report.open(&place, (setup.binary, folder.path()), printed(&trace, cut));
    }
    // What was done is counted once, not once for each image of it.
    let whole = printed(&trace, trace.steps.len());
    (report.acknowledged, report.compactions) = (whole.acknowledged(), whole.compactions());
    Ok(report)
}

/// Copies the folder, goes on, and puts the copy back: a disk that goes back in time. The negative control of restarts.
///
/// # Errors
/// If a process cannot be started.
pub fn back_in_time(setup: &Setup<'_>) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join(DATA);
    let job = setup.job(folder.path(), SHORT, Threads::Own);
    let mut history = job.run(&History::default(), &Fault::None)?.history;
    let copy = std::fs::read(&data)?;
    let next = Setup { seed: setup.seed + 1, ..*setup };
    let more = next.job(folder.path(), SHORT, Threads::Own).run(&history, &Fault::None)?;
    append(&mut history, &more.history);
    std::fs::write(&data, copy)?;
    let mut report = Report::default();
    report.open(&format!("back in time, seed {}", setup.seed), (setup.binary, folder.path()), history);
    Ok(report)
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

/// Steps in which a store is made.
const FIRST_STEPS: u64 = 40;

/// Moments of a trace, in order: half of them right at a flush, where most is at stake, some at the very beginning.
fn moments(trace: &Trace, count: usize, random: &Random) -> Vec<usize> {
    let is_end = |step: &Step| matches!(step, Step::End(..));
    let ends: Vec<usize> =
        trace.steps.iter().enumerate().filter(|(_, step)| is_end(step)).map(|(at, _)| at).collect();
    let pick = |number: usize| {
        let any = usize::try_from(random.below(trace.steps.len() as u64 + 1)).unwrap_or(0);
        let end = usize::try_from(random.below(ends.len() as u64)).unwrap_or(0);
        let after = usize::try_from(random.below(3)).unwrap_or(0);
        let near = ends.get(end).map_or(any, |end| (end + after).min(trace.steps.len()));
        match number % 8 {
            7 => usize::try_from(random.below(FIRST_STEPS)).unwrap_or(0),
            even if even.is_multiple_of(2) => any,
            _ => near,
        }
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
