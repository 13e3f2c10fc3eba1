//! The embedded store in a simulation: one thread, virtual time, and everything that happens follows from a seed.
//!
//! The store crashes at moments that the seed chooses and is opened again from what is on disk; its clock leaps; its
//! watchers and clients go on. The same seed gives the same history, line by line.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use base::{Clock, Random};
use jiff::Timestamp;
use store::Store;
use store::embedded::{Embedded, Options, Threads};

use crate::flaky::Flaky;
use crate::history::{History, Recorder};
use crate::mutants::{Liar, Lie};
use crate::workload::{self, Plan};

/// How long the store lives before it crashes, at most, in virtual time.
const LIFE_MAX_MILLIS: u64 = 4000;
/// How far the clock leaps, at most, in either direction.
const LEAP_MAX_SECONDS: i64 = 7200;
/// Between two operations of a client.
const PAUSE: Duration = Duration::from_millis(40);

/// A runtime of one thread whose time stands still while anything can be done.
///
/// # Errors
/// If the machine refuses.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()
}

/// A simulation.
#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    /// Everything that is chosen follows from it.
    pub seed: u64,
    /// The number of times that the store is opened; each life but the last ends in a crash.
    pub lives: usize,
    /// `true` if the clock leaps.
    pub leaps: bool,
    /// Of a hundred requests, how many are not answered, at most.
    pub lost_percent_max: u64,
    /// The lie of the store: none, but in negative controls.
    pub lie: Lie,
}

impl Simulation {
    /// Everything that can happen to an honest store.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, lives: 4, leaps: true, lost_percent_max: 20, lie: Lie::None }
    }

    /// Runs a workload through all lives of one store.
    ///
    /// # Errors
    /// If the store does not open, or cannot be read.
    pub fn run(&self) -> Result<History> {
        let folder = crate::folder()?;
        let (random, recorder) = (Random::seeded(self.seed), Recorder::in_memory());
        let mut now = Timestamp::from_second(1_767_225_600)?;
        for life in 0..self.lives {
            // What is left in the runtime when a life ends goes with it, without being written out: a crash.
            let live = live(self, folder.path(), &random, life, now, &recorder);
            now = runtime()?.block_on(live)?;
        }
        Ok(recorder.history())
    }
}

/// One life: answers what the clock said at its end.
async fn live(
    simulation: &Simulation,
    folder: &Path,
    random: &Random,
    life: usize,
    start: Timestamp,
    recorder: &Recorder,
) -> Result<Timestamp> {
    let clock = Clock::simulated(start);
    let relaxed_flush = Duration::from_millis(1 + random.below(200));
    let options =
        Options { relaxed_flush, clock: clock.clone(), threads: Threads::None, ..Options::default() };
    let embedded: Arc<dyn Store> = Arc::new(Embedded::open(folder, options)?);
    let after = workload::take_stock(&embedded, recorder).await?;
    let percent = random.below(simulation.lost_percent_max);
    let flaky = Flaky::new(embedded, Random::seeded(random.below(u64::MAX)), percent);
    let liar = Liar::new(Arc::new(flaky), simulation.lie).with_clock(clock.clone());
    let store: Arc<dyn Store> = Arc::new(liar);
    let plan = Plan { name: format!("l{life}"), pause: PAUSE, ..Plan::new(random.below(u64::MAX)) };
    let end = Duration::from_millis(random.below(LIFE_MAX_MILLIS));
    tokio::select! {
        biased;
        () = workload::run(&store, &plan, after, recorder) => {}
        () = leap(&clock, random), if simulation.leaps => {}
        () = tokio::time::sleep(end) => {}
    }
    Ok(clock.now())
}

/// Moves the clock now and then, for ever.
pub async fn leap(clock: &Clock, random: &Random) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.below(1500))).await;
        let seconds = i64::try_from(random.below(2 * LEAP_MAX_SECONDS.unsigned_abs())).unwrap_or(0);
        let to = clock.now().as_second() + seconds - LEAP_MAX_SECONDS;
        clock.set(Timestamp::from_second(to).unwrap_or(clock.now()));
    }
}
