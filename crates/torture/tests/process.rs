//! A store's process is killed, stopped, refused and cut off from its power, and never loses what it acknowledged;
//! and each way of losing is caught.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;

use base::Random;
use torture::check::Rule;
use torture::disk::Power;
use torture::scenario::{self, Cheat, DISK_CALLS, ERRORS, Report};

/// A seed that always runs; the other is new each time and printed, unless `KNARR_TEST_SEED` gives it.
const SEED: u64 = 20_260_101;

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_torture"))
}

fn seeds() -> [u64; 2] {
    let again = std::env::var("KNARR_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
    [SEED, again.unwrap_or_else(|| Random::from_system().below(1 << 32))]
}

fn check(scenario: impl Fn(u64) -> anyhow::Result<Report>) -> Report {
    let mut all = Report::default();
    for seed in seeds() {
        eprintln!("seed {seed}");
        let report = scenario(seed).unwrap();
        if let Some((place, breach)) = report.breaches.first() {
            panic!("{place}: {breach} (and {} more)", report.breaches.len() - 1);
        }
        all.add(report);
    }
    eprintln!(
        "{} kills, {} system calls, {} images, {} acknowledged writes",
        all.kills, all.positions, all.images, all.acknowledged
    );
    all
}

fn check_caught(scenario: impl Fn(u64) -> anyhow::Result<Report>, rules: &[Rule]) {
    let report = scenario(SEED).unwrap();
    let caught = report.breaches.iter().filter(|(_, breach)| rules.contains(&breach.rule)).count();
    assert!(caught > 0, "not caught as {rules:?}: {:?}", report.breaches);
}

#[test]
fn kills_at_random_moments_lose_nothing() {
    let report = check(|seed| scenario::random_kills(binary(), seed, 10));
    assert!(report.kills > 5, "only {} kills", report.kills);
}

#[test]
fn kills_at_calls_to_the_disk_lose_nothing() {
    for call in DISK_CALLS {
        let report = check(|seed| scenario::kills_at_calls(binary(), seed, call, Some(12)));
        assert!(report.kills > 10, "{call} is no longer what the store calls: {} kills", report.kills);
    }
}

#[test]
fn errors_of_the_disk_lose_nothing() {
    for error in ERRORS {
        check(|seed| scenario::errors_at_calls(binary(), seed, error, Some(4)));
    }
}

#[test]
fn power_losses_lose_nothing() {
    let report = check(|seed| scenario::power_losses(binary(), seed, 80, Cheat::None));
    assert!(report.images == 160 && report.acknowledged > 50, "{} writes", report.acknowledged);
}

#[test]
fn a_flush_that_is_left_out_is_caught() {
    let cheat = Cheat::Disk(Power::FlushesIgnored);
    check_caught(|seed| scenario::power_losses(binary(), seed, 40, cheat), &[Rule::NothingLost]);
}

#[test]
fn a_commit_that_is_not_on_disk_is_caught() {
    let cheat = Cheat::Disk(Power::SyncedWritesIgnored);
    check_caught(|seed| scenario::power_losses(binary(), seed, 40, cheat), &[Rule::NothingLost]);
}

#[test]
fn a_write_that_is_acknowledged_before_it_is_durable_is_caught() {
    let cheat = Cheat::AcknowledgedEarly;
    check_caught(|seed| scenario::power_losses(binary(), seed, 120, cheat), &[Rule::NothingLost]);
}

#[test]
fn a_disk_that_goes_back_in_time_is_caught() {
    check_caught(|seed| scenario::back_in_time(binary(), seed), &[Rule::NothingLost, Rule::RevisionsRise]);
}
