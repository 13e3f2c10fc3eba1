//! The embedded store in virtual time, from a seed.

use torture::check::{Breach, Guarantees, Rule};
use torture::mutants::Lie;
use torture::simulation::Simulation;
use torture::{History, check};

/// Seeds that always run; two more are new.
const SEEDS: [u64; 6] = [0, 1, 2, 3, 4, 5];
/// A lie is told by chance; it gets this many to be told.
const LIES: std::ops::Range<u64> = 0..4;

fn breaches(simulation: Simulation) -> (History, Vec<Breach>) {
    let history = simulation.run().unwrap();
    let breaches = check(&history, Guarantees::Store);
    (history, breaches)
}

fn check_honest(simulation: Simulation) -> History {
    let (history, breaches) = breaches(simulation);
    assert!(breaches.is_empty(), "KNARR_TEST_SEED={}: {}", simulation.seed, breaches[0]);
    history
}

fn check_caught(simulation: impl Fn(u64) -> Simulation, rules: &[Rule]) {
    let found: Vec<Breach> = LIES.flat_map(|seed| breaches(simulation(seed)).1).collect();
    assert!(found.iter().any(|breach| rules.contains(&breach.rule)), "not caught as {rules:?}: {found:?}");
}

#[test]
fn a_store_that_crashes_again_and_again_keeps_its_promises() {
    let (mut acknowledged, mut cut_off) = (0, 0);
    for seed in torture::seeds(&SEEDS, 2) {
        let history = check_honest(Simulation::new(seed));
        acknowledged += history.acknowledged();
        cut_off += history.cut_off();
    }
    eprintln!("{acknowledged} durable writes were acknowledged, {cut_off} others were cut off");
    assert!(acknowledged > 100 && cut_off > 0, "nothing was at stake");
}

#[test]
fn a_seed_gives_the_same_history_twice() {
    for seed in 0..3 {
        let simulation = Simulation { lives: 2, ..Simulation::new(seed) };
        let (one, two) = (simulation.run().unwrap(), simulation.run().unwrap());
        let difference = one.lines.iter().zip(&two.lines).position(|(one, two)| one != two);
        assert_eq!(difference, None, "seed {seed}: the line");
        assert_eq!(one.lines.len(), two.lines.len(), "seed {seed}");
    }
}

#[test]
fn a_write_that_does_not_wait_for_the_disk_is_caught_by_a_crash() {
    check_caught(|seed| Simulation { lie: Lie::NotFlushed, ..Simulation::new(seed) }, &[Rule::NothingLost]);
}

/// A write whose answer was lost fails when it is sent again, and had been made all the same.
#[test]
fn a_write_that_is_blindly_sent_again_is_caught_by_lost_answers() {
    let blind = |lost_percent_max| {
        move |seed| Simulation { lie: Lie::RetriesBlindly, lost_percent_max, ..Simulation::new(seed) }
    };
    LIES.for_each(|seed| drop(check_honest(blind(1)(seed))));
    check_caught(blind(40), &[Rule::NothingInvented, Rule::Linearizable]);
}

#[test]
fn a_watch_that_believes_the_clock_is_caught_by_leaps() {
    let believer =
        |leaps| move |seed| Simulation { lie: Lie::BelievesTheClock, leaps, ..Simulation::new(seed) };
    LIES.for_each(|seed| drop(check_honest(believer(false)(seed))));
    check_caught(believer(true), &[Rule::WatchesAreWhole]);
}
