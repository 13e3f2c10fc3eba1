//! A store's process is killed, stopped, refused and cut off from its power, and never loses what it acknowledged;
//! and each way of losing is caught.

use std::path::Path;

use torture::check::Rule;
use torture::disk::Power;
use torture::mutants::Lie;
use torture::scenario::{self, Camera, Cheat, DISK_CALLS, ERRORS, Report, Setup};

/// A seed that always runs; the other is new.
const SEED: u64 = 20_260_101;

fn setup(seed: u64, lie: Lie) -> Setup<'static> {
    Setup { binary: Path::new(env!("CARGO_BIN_EXE_torture")), seed, lie }
}

fn check(scenario: impl Fn(&Setup<'_>) -> anyhow::Result<Report>) -> Report {
    let mut all = Report::default();
    for seed in torture::seeds(&[SEED], 1) {
        let report = scenario(&setup(seed, Lie::None)).unwrap();
        if let Some((place, breach)) = report.breaches.first() {
            panic!("{place}: {breach} (and {} more)", report.breaches.len() - 1);
        }
        all.add(report);
    }
    eprintln!(
        "{} kills, {} system calls, {} stops, {} images, {} acknowledged writes, {} compactions",
        all.kills, all.positions, all.stops, all.images, all.acknowledged, all.compactions
    );
    all
}

fn check_caught(lie: Lie, rules: &[Rule], scenario: impl Fn(&Setup<'_>) -> anyhow::Result<Report>) {
    let report = scenario(&setup(SEED, lie)).unwrap();
    let caught = report.breaches.iter().filter(|(_, breach)| rules.contains(&breach.rule)).count();
    assert!(caught > 0, "not caught as {rules:?}: {:?}", report.breaches);
}

#[test]
fn kills_at_random_moments_lose_nothing() {
    let report = check(|setup| scenario::random_kills(setup, 8));
    assert!(report.kills > 5, "only {} kills", report.kills);
}

#[test]
fn a_write_that_does_not_wait_for_the_disk_is_caught_by_random_kills() {
    check_caught(Lie::NotFlushed, &[Rule::NothingLost], |setup| scenario::random_kills(setup, 8));
}

#[test]
fn kills_at_calls_to_the_disk_lose_nothing() {
    for call in DISK_CALLS {
        let report = check(|setup| scenario::kills_at_calls(setup, call, Some(10)));
        // Space is given back now and then.
        let enough = if call == "fallocate" { 1 } else { 5 };
        assert!(report.kills > enough, "{call} is no longer what the store calls: {} kills", report.kills);
        assert!(report.compactions > 0, "the scenario has a compaction in it");
    }
}

#[test]
fn a_write_that_does_not_wait_for_the_disk_is_caught_by_a_kill_at_a_flush() {
    check_caught(Lie::NotFlushed, &[Rule::NothingLost], |setup| {
        scenario::kills_at_calls(setup, "fdatasync", Some(6))
    });
}

#[test]
fn errors_of_the_disk_lose_nothing() {
    for error in ERRORS {
        check(|setup| scenario::errors_at_calls(setup, error, Some(3)));
    }
}

#[test]
fn an_error_that_is_swallowed_is_caught() {
    for error in [("fdatasync", "EIO"), ("pwrite64", "ENOSPC"), ("writev", "EROFS")] {
        let rules = [Rule::NothingLost, Rule::OneChangePerRevision, Rule::Linearizable, Rule::ListsAreFresh];
        check_caught(Lie::ErrorsSwallowed, &rules, |setup| scenario::errors_at_calls(setup, error, Some(6)));
    }
}

#[test]
fn a_process_that_is_stopped_goes_on_where_it_was() {
    let report = check(|setup| scenario::stops(setup, 4));
    assert!(report.stops > 2, "only {} stops", report.stops);
}

#[test]
fn a_watch_that_sleeps_through_events_is_caught_by_stops() {
    check_caught(Lie::SleepsThroughEvents, &[Rule::WatchesAreWhole], |setup| scenario::stops(setup, 6));
}

#[test]
fn a_clock_that_leaps_forwards_and_back_changes_nothing_of_what_is_promised() {
    let report = check(|setup| scenario::leaps(setup, 12));
    assert!(report.leaps > 10, "only {} leaps", report.leaps);
}

#[test]
fn a_backup_of_a_busy_store_is_of_one_revision() {
    let report = check(|setup| scenario::pictures(setup, Camera::Steady));
    assert!(report.pictures > 4, "only {} pictures", report.pictures);
}

#[test]
fn a_backup_of_two_revisions_is_caught() {
    check_caught(Lie::None, &[Rule::ListsAreWhole], |setup| scenario::pictures(setup, Camera::Moved));
}

#[test]
fn power_losses_lose_nothing() {
    let report = check(|setup| scenario::power_losses(setup, 60, Cheat::None));
    assert!(
        report.images > 0 && report.images.is_multiple_of(60) && report.acknowledged > 50,
        "{} writes",
        report.acknowledged
    );
    assert!(report.holes > 10, "space is no longer given back: {} holes", report.holes);
}

#[test]
fn a_hole_where_something_is_is_caught() {
    let cheat = Cheat::HolesElsewhere;
    check_caught(Lie::None, &[Rule::NothingLost], |setup| scenario::power_losses(setup, 30, cheat));
}

#[test]
fn a_hole_before_its_time_is_caught() {
    let cheat = Cheat::HolesEarly(20);
    check_caught(Lie::None, &[Rule::NothingLost], |setup| scenario::power_losses(setup, 60, cheat));
}

#[test]
fn a_flush_that_is_left_out_is_caught() {
    let cheat = Cheat::Disk(Power::FlushesIgnored);
    check_caught(Lie::None, &[Rule::NothingLost], |setup| scenario::power_losses(setup, 30, cheat));
}

#[test]
fn a_commit_that_is_not_on_disk_is_caught() {
    let cheat = Cheat::Disk(Power::SyncedWritesIgnored);
    check_caught(Lie::None, &[Rule::NothingLost], |setup| scenario::power_losses(setup, 30, cheat));
}

#[test]
fn a_write_that_is_acknowledged_before_it_is_durable_is_caught() {
    let cheat = Cheat::AcknowledgedEarly;
    check_caught(Lie::None, &[Rule::NothingLost], |setup| scenario::power_losses(setup, 120, cheat));
}

#[test]
fn a_disk_that_goes_back_in_time_is_caught() {
    check_caught(Lie::None, &[Rule::NothingLost, Rule::RevisionsRise], scenario::back_in_time);
}
