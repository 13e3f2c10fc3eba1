//! What was tried and what came of it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The progress of Pods when something was killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Had been made and were not what they are for yet.
    pub starting: usize,
    /// Were what they are for.
    pub running: usize,
    /// Were on their way down.
    pub stopping: usize,
}

/// One kill.
#[derive(Clone, Debug)]
pub struct Kill {
    /// `node`, `shim`, ...
    pub victim: &'static str,
    /// `at random`, or the calls at one of which it came.
    pub how: &'static str,
    /// The stage that it hit.
    pub stage: Stage,
}

/// The figures.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Brings it back.
    pub seed: u64,
    /// In order.
    pub kills: Vec<Kill>,
    /// For how long was killed.
    pub killed_for: Duration,
    /// Pods that came and went.
    pub lived: usize,
    /// Promises that were not kept.
    pub breaches: Vec<String>,
    /// The things that were left.
    pub leaks: Vec<String>,
}

impl Report {
    /// `true` if nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.breaches.is_empty() && self.leaks.is_empty()
    }

    /// Adds another run.
    pub fn add(&mut self, other: Self) {
        self.kills.extend(other.kills);
        self.killed_for += other.killed_for;
        self.lived += other.lived;
        let place = |line: String| format!("seed {}: {line}", other.seed);
        self.breaches.extend(other.breaches.into_iter().map(place));
        self.leaks.extend(other.leaks.into_iter().map(place));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = BTreeMap::<(&str, &str), usize>::new();
        let mut stages = [0; 3];
        for kill in &self.kills {
            *rows.entry((kill.victim, kill.how)).or_default() += 1;
            let Stage { starting, running, stopping } = kill.stage;
            for (count, hit) in stages.iter_mut().zip([starting, running, stopping]) {
                *count += usize::from(hit > 0);
            }
        }
        writeln!(
            out,
            "{} kills in {:.0?}, {} Pods came and went",
            self.kills.len(),
            self.killed_for,
            self.lived
        )?;
        let [starting, running, stopping] = stages;
        writeln!(out, "  while Pods started {starting}, ran {running}, stopped {stopping}")?;
        for ((victim, how), count) in rows {
            writeln!(out, "  {victim:<14} {how:<12} {count:>6}")?;
        }
        writeln!(out, "  breaches {}, leaks {}", self.breaches.len(), self.leaks.len())
    }
}
