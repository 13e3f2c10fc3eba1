//! The node's processes are killed at every stage of starts and stops of Pods; what must hold, and what is done, is
//! said in `torture::node`.

use torture::node::{self, Report, Setup};

use super::SEED;

/// Of each cluster.
const KILLS: usize = 100;
const WORKERS: u64 = 6;

fn survives_kills(seed: u64) -> Report {
    eprintln!("kills: node, seed {seed}");
    let kills = std::env::var("KNARR_TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let setup = Setup { knarr: env!("CARGO_BIN_EXE_knarr"), seed, kills, workers: WORKERS };
    let report = node::run(&setup).unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    eprintln!("kills: {report}");
    let wrong: Vec<&String> = report.breaches.iter().chain(&report.leaks).collect();
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    report
}

#[test]
fn kills_at_every_stage_of_a_pods_life_leave_no_trace() {
    let reports = torture::seeds(&[SEED], 1).into_iter().map(survives_kills);
    let report = reports.reduce(|mut all, report| {
        all.add(report);
        all
    });
    let report = report.unwrap();
    let hit = |wanted: fn(&node::Kill) -> bool| report.kills.iter().filter(|kill| wanted(kill)).count();
    assert!(hit(|kill| kill.stage.starting > 0) > 10 && hit(|kill| kill.stage.stopping > 0) > 10, "{report}");
    assert!(hit(|kill| kill.how != "at random") > 5, "calls are no longer hit: {report}");
}
