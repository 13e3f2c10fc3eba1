//! The embedded store in virtual time, from a seed.

#![allow(clippy::unwrap_used, reason = "tests")]

use base::Random;
use torture::check::Promise;
use torture::{check, simulation};

/// Seeds that always run; so many more are new each time and printed, unless `KNARR_TEST_SEED` gives one.
const SEEDS: std::ops::Range<u64> = 0..6;
const LIVES: usize = 4;

fn seeds() -> Vec<u64> {
    match std::env::var("KNARR_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => SEEDS.chain(SEEDS.map(|_| Random::from_system().below(1 << 32))).collect(),
    }
}

#[test]
fn a_store_that_crashes_again_and_again_keeps_its_promises() {
    let (mut acknowledged, mut cut_off) = (0, 0);
    for seed in seeds() {
        let history = simulation::run(seed, LIVES).unwrap();
        let breaches = check(&history, Promise::Store);
        assert!(breaches.is_empty(), "KNARR_TEST_SEED={seed}: {}", breaches[0]);
        acknowledged += history.acknowledged();
        cut_off += history.cut_off();
    }
    eprintln!("{acknowledged} durable writes were acknowledged, {cut_off} others were cut off");
    assert!(acknowledged > 100 && cut_off > 0, "nothing was at stake");
}

#[test]
fn a_seed_gives_the_same_history_twice() {
    for seed in 0..3 {
        let (one, two) = (simulation::run(seed, 2).unwrap(), simulation::run(seed, 2).unwrap());
        let difference = one.lines.iter().zip(&two.lines).position(|(one, two)| one != two);
        assert_eq!(difference, None, "seed {seed}: the line");
        assert_eq!(one.lines.len(), two.lines.len(), "seed {seed}");
    }
}
