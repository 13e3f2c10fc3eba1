//! The workload and its checker on three real members of etcd, which die, hang, are cut off and have slow disks.

use torture::check::Rule;
use torture::members::{self, Trouble};
use torture::mutants::Lie;

/// What runs where seeds are fixed; elsewhere a new one does.
const SEED: u64 = 20_260_101;

#[test]
fn what_clients_of_etcd_are_told_fits_together_whatever_happens_to_members() {
    let seed = *torture::seeds(&[SEED], 1).last().unwrap();
    let report = members::run(seed, Lie::None, &Trouble::ALL).unwrap();
    if let Some((place, breach)) = report.breaches.first() {
        panic!("KNARR_TEST_SEED={seed}: {place}: {breach} (and {} more)", report.breaches.len() - 1);
    }
    eprintln!("{} troubles, {} acknowledged writes", report.troubles, report.acknowledged);
    assert!(report.troubles == Trouble::ALL.len() && report.acknowledged > 300);
    assert!(report.compactions > 5, "{} compactions", report.compactions);
}

/// One wire and its members for each, so these are few: what the checker finds is not etcd's affair.
#[test]
fn a_server_that_reads_what_its_member_has_told_so_far_is_caught_by_a_partition() {
    let report = members::run(1, Lie::CachedReads, &[Trouble::LeaderCutOff]).unwrap();
    let is_caught = |rule| report.breaches.iter().any(|(_, breach)| breach.rule == rule);
    assert!(is_caught(Rule::Linearizable) || is_caught(Rule::ListsAreFresh), "{:?}", report.breaches);
}

#[test]
fn an_event_that_is_lost_with_a_member_is_caught() {
    let report = members::run(2, Lie::DroppedEvent, &[Trouble::FollowerKilled]).unwrap();
    let is_caught = report.breaches.iter().any(|(_, breach)| breach.rule == Rule::WatchesAreWhole);
    assert!(is_caught, "{:?}", report.breaches);
}
