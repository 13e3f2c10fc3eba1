//! A whole control plane in virtual time, from a seed: controllers and schedulers are killed or cut off at one write after the
//! other, two candidates of each take turns by their Leases, and the API server crashes with all of them. Who is cut off goes on
//! by what it knew, and some of what it sends arrives late. Meanwhile workloads of every kind, a gang among them, run, change and
//! go. What all of it made of them is judged by what the store has had (`torture::workloads`), and by what is left when it has
//! come to rest.

mod nodes;
mod parts;
mod user;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base::{Clock, Random, Tasks};
use jiff::Timestamp;
use machinery::features;
use parking_lot::Mutex;
use store::Store;
use store::embedded::{Embedded, Options, Threads};
use tempfile::TempDir;
use torture::simulation;
use torture::workloads::{Judge, Rule, Taken};

use crate::server::{self, TestServer};
use parts::Lie;

/// Seeds that always run; one more is new.
const SEEDS: [u64; 2] = [0, 1];
/// A lie is told by chance; it gets this many to be told.
const LIES: std::ops::Range<u64> = 0..16;
/// How often the API server is started; each life but the last ends in a crash.
const LIVES: usize = 3;
/// How long it lives before it crashes, at most, in virtual time.
const LIFE_MAX_MILLIS: u64 = 90_000;
/// How long its last life is full of kills.
const LAST: Duration = Duration::from_secs(100);
/// How long it may take to come to rest then.
const REST_MAX: Duration = Duration::from_secs(1200);
const START: &str = "2026-01-01T00:00:30Z";

/// What all who work in a run share.
#[derive(Clone)]
struct Shared {
    random: Random,
    clock: Clock,
    judge: Arc<Mutex<Judge>>,
    /// Nobody is killed any more, and users ask for nothing new.
    is_calm: Arc<AtomicBool>,
    kills: Arc<AtomicUsize>,
    cuts: Arc<AtomicUsize>,
    schedulers: Schedulers,
    lie: Option<Lie>,
}

/// Which of the two schedulers works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schedulers {
    /// Whoever holds the Lease.
    InTurns,
    /// Both, all the time, as if there were no Lease: each knows of the other by what that has bound.
    AtOnce,
}

/// How a run went.
struct Run {
    judge: Judge,
    kills: usize,
    cuts: usize,
    /// Whether everything came to what it is for, and then went.
    has_rested: Result<(), String>,
}

fn run(seed: u64, schedulers: Schedulers, lie: Option<Lie>) -> Run {
    let gates = ["GenericWorkload=true", "GangScheduling=true"].map(|gate| gate.parse().unwrap());
    // Somebody in the same process may have done it before.
    features::turn_on(&gates).unwrap_or_else(drop);
    let random = Random::seeded(seed);
    let taken = match schedulers {
        Schedulers::InTurns => Taken::ByBound,
        Schedulers::AtOnce => Taken::ByAdmitted,
    };
    let judge = Arc::new(Mutex::new(Judge::by(taken)));
    let (kills, cuts) = (Arc::default(), Arc::default());
    let (mut dir, mut now) = (torture::folder().unwrap(), START.parse().unwrap());
    let mut has_rested = Ok(());
    for life in 1..=LIVES {
        if !judge.lock().breaches.is_empty() {
            break;
        }
        // What is left in the runtime when a life ends goes with it, without being written out: a crash.
        let runtime = simulation::runtime().unwrap();
        (dir, now, has_rested) = runtime.block_on(async {
            let clock = Clock::simulated(now);
            let shared = Shared {
                random: random.clone(),
                clock,
                judge: Arc::clone(&judge),
                is_calm: Arc::default(),
                kills: Arc::clone(&kills),
                cuts: Arc::clone(&cuts),
                schedulers,
                lie,
            };
            live(shared, dir, life == LIVES).await
        });
    }
    let judge = std::mem::take(&mut *judge.lock());
    Run { judge, kills: kills.load(Ordering::Relaxed), cuts: cuts.load(Ordering::Relaxed), has_rested }
}

/// One life of the API server: answers the folder, what the clock said at its end, and how it ended.
async fn live(shared: Shared, dir: TempDir, is_last: bool) -> (TempDir, Timestamp, Result<(), String>) {
    let options = Options { clock: shared.clock.clone(), threads: Threads::None, ..Options::default() };
    let embedded: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), options).unwrap());
    let watched = Tasks::new();
    watched.spawn("judge", follow(Arc::clone(&embedded), Arc::clone(&shared.judge)));
    let (clock, random) = (shared.clock.clone(), shared.random.clone());
    let fair = |config: &mut apiserver::Config| config.options.is_fair = false;
    let server = server::start_at(clock, random, embedded, dir, None, fair).await;
    let server = Arc::new(server);
    user::prepare(&server).await;
    let parts = parts::start(&shared, &server);
    watched.spawn("nodes", nodes::run(shared.clone(), Arc::clone(&server)));
    let end = match is_last {
        true => LAST,
        false => Duration::from_millis(shared.random.below(LIFE_MAX_MILLIS)),
    };
    tokio::select! {
        biased;
        () = user::work(&shared, &server) => {}
        () = tokio::time::sleep(end) => {}
    }
    let mut has_rested = Ok(());
    if is_last {
        shared.is_calm.store(true, Ordering::Relaxed);
        has_rested = rest(&shared, &server).await;
    }
    parts.stop();
    watched.stop_and_wait().await;
    let now = shared.clock.now();
    let TestServer { dir, .. } = Arc::into_inner(server).expect("the Nodes have stopped");
    (dir, now, has_rested)
}

/// Shows the judge everything.
async fn follow(store: Arc<dyn Store>, judge: Arc<Mutex<Judge>>) {
    let page = store.range("/registry/", "/registry0", None, 0).await.unwrap();
    judge.lock().see_all(&page);
    let mut watch = store.watch(page.revision).await.unwrap();
    while let Some(batch) = watch.batches.recv().await {
        let batch = batch.unwrap();
        let mut judge = judge.lock();
        batch.events.iter().for_each(|event| judge.see(event));
        judge.upto = batch.upto;
    }
}

/// Waits until everything is as it was asked for; deletes it, and waits until nothing is left.
async fn rest(shared: &Shared, server: &TestServer) -> Result<(), String> {
    user::settle(server).await;
    until(shared, user::unsettled).await?;
    user::delete_all(shared, server).await;
    let left = |judge: &Judge| judge.left().into_iter().map(str::to_owned).collect();
    until(shared, left).await
}

/// Waits until there is nothing that is not as it should be.
async fn until(shared: &Shared, wrong: impl Fn(&Judge) -> Vec<String>) -> Result<(), String> {
    let seen = async {
        while {
            let judge = shared.judge.lock();
            judge.breaches.is_empty() && !wrong(&judge).is_empty()
        } {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let seen = tokio::time::timeout(REST_MAX, seen).await;
    seen.map_err(|_| {
        let judge = shared.judge.lock();
        let pods = judge.all("pods").map(|pod| {
            let (meta, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
            let end = &meta["deletionTimestamp"];
            format!(
                "\n  {} on {}: {} {end} {}",
                meta["name"], spec["nodeName"], status["phase"], status["conditions"]
            )
        });
        let pods: String = pods.collect();
        format!("it never rests: {:#?}\n{pods}", wrong(&judge))
    })
}

/// Runs every seed, and answers how many were killed and cut off.
fn check(schedulers: Schedulers) -> (usize, usize) {
    let (mut kills, mut cuts) = (0, 0);
    for seed in torture::seeds(&SEEDS, 1) {
        let run = run(seed, schedulers, None);
        assert!(
            run.judge.breaches.is_empty(),
            "KNARR_TEST_SEED={seed}: {} (and {} more)",
            run.judge.breaches[0],
            run.judge.breaches.len() - 1
        );
        run.has_rested.unwrap_or_else(|why| panic!("KNARR_TEST_SEED={seed}: {why}"));
        kills += run.kills;
        cuts += run.cuts;
    }
    eprintln!("{kills} kills of controllers and schedulers, who were cut off {cuts} times");
    (kills, cuts)
}

#[test]
fn workloads_come_out_right_whoever_of_the_control_plane_is_killed_or_cut_off() {
    let (kills, cuts) = check(Schedulers::InTurns);
    assert!(kills > 5 && cuts > 5, "{kills} {cuts}");
}

#[test]
fn two_schedulers_at_once_move_no_pod_and_nodes_take_in_no_more_than_they_have_room_for() {
    let (kills, cuts) = check(Schedulers::AtOnce);
    assert!(kills > 5 && cuts > 5, "{kills} {cuts}");
}

#[test]
fn what_a_control_plane_does_wrong_is_found() {
    for (schedulers, lie, rule) in [
        (Schedulers::InTurns, Lie::MadeTwice, Rule::NoSurplus),
        (Schedulers::InTurns, Lie::OneNodeForAll, Rule::NodesAreNotOverfull),
        (Schedulers::InTurns, Lie::LeadsOn, Rule::OnlyTheLeaderWrites),
        (Schedulers::AtOnce, Lie::TakesAllIn, Rule::NodesAreNotOverfull),
        (Schedulers::InTurns, Lie::CountForgotten, Rule::PodsAreCountedOnce),
    ] {
        let is_found =
            |seed| run(seed, schedulers, Some(lie)).judge.breaches.iter().any(|breach| breach.rule == rule);
        assert!(LIES.into_iter().any(is_found), "{lie:?} was not found as {rule:?}");
    }
}
