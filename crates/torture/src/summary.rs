//! What a long run says at its end.

use std::time::Duration;

use torture::scenario::Report;

/// Breaches that are printed.
const BREACHES_MAX: usize = 20;

/// The figures so far.
#[derive(Default)]
pub(crate) struct Summary(Report);

impl Summary {
    /// Adds a scenario; says at once what was broken.
    pub(crate) fn add(&mut self, report: Report) {
        for (place, breach) in report.breaches.iter().take(BREACHES_MAX) {
            eprintln!("torture: {place}: {breach}");
        }
        self.0.add(report);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.0.breaches.is_empty()
    }

    #[expect(clippy::print_stdout, reason = "it is the result")]
    pub(crate) fn print(&mut self, took: Duration) {
        let report = &mut self.0;
        report.recoveries.sort_unstable();
        let rows = [
            ("minutes", took.as_secs() / 60),
            ("kills", report.kills as u64),
            ("system calls", report.positions as u64),
            ("disk images", report.images as u64),
            ("holes in them", report.holes as u64),
            ("online backups", report.pictures as u64),
            ("stops", report.stops as u64),
            ("leaps of the clock", report.leaps as u64),
            ("simulated lives", report.lives as u64),
            ("troubles of etcd", report.troubles as u64),
            ("compactions", report.compactions as u64),
            ("acknowledged writes", report.acknowledged as u64),
            ("broken promises", report.breaches.len() as u64),
            ("recoveries", report.recoveries.len() as u64),
        ];
        for (what, count) in rows {
            println!("{what:<20} {count:>10}");
        }
        for (what, share) in [("recovery p50", 50), ("recovery p99", 99), ("recovery max", 100)] {
            println!("{what:<20} {:>8.1} ms", percentile(&report.recoveries, share).as_secs_f64() * 1e3);
        }
    }
}

/// Of durations in order.
fn percentile(sorted: &[Duration], share: usize) -> Duration {
    let at = (sorted.len() * share).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}
