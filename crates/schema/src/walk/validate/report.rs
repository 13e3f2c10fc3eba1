//! The violations found so far, and the amount that was looked at.

use serde_json::Value;

use crate::rules::violation::Violation;

/// How many violations are kept.
const VIOLATIONS_MAX: usize = 1000;
/// How much of the value and of the schema they may repeat.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Violations, each once.
#[derive(Default)]
pub(crate) struct Report {
    kept: Vec<Violation>,
    bytes: usize,
    left_out: usize,
    /// How many checks were made: of several ways in which a value is wrong, the one with most of them is shown.
    matches: usize,
}

/// How far a report had got.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    kept: usize,
    bytes: usize,
    left_out: usize,
}

impl Report {
    pub(crate) fn mark(&self) -> Mark {
        Mark { kept: self.kept.len(), bytes: self.bytes, left_out: self.left_out }
    }

    /// Whether something wrong was found since.
    pub(crate) fn has_more_than(&self, mark: Mark) -> bool {
        self.mark() != mark
    }

    /// Forgets what was found since; that it was looked at counts.
    pub(crate) fn go_back_to(&mut self, mark: Mark) {
        self.kept.truncate(mark.kept);
        (self.bytes, self.left_out) = (mark.bytes, mark.left_out);
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.kept.is_empty() && self.left_out == 0
    }

    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Counts what nobody will read.
    pub(crate) fn leave_out(&mut self, violations: usize) {
        self.left_out += violations;
    }

    pub(crate) fn matches(&self) -> usize {
        self.matches
    }

    pub(crate) fn matched(&mut self, checks: usize) {
        self.matches += checks;
    }

    /// Adds a violation; it is not even made if there is no room for it.
    pub(crate) fn push(&mut self, violation: impl FnOnce() -> Violation) {
        if self.kept.len() >= VIOLATIONS_MAX || self.bytes >= BYTES_MAX {
            self.left_out += 1;
            return;
        }
        let violation = violation();
        if !self.kept.contains(&violation) {
            self.bytes += size(&violation);
            self.kept.push(violation);
        }
    }

    /// Adds what another report has.
    pub(crate) fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        self.left_out += other.left_out;
        other.kept.into_iter().for_each(|violation| self.push(|| violation));
    }

    pub(crate) fn into_violations(self) -> Vec<Violation> {
        self.kept
    }
}

fn size(violation: &Violation) -> usize {
    let supported: usize = violation.supported.iter().map(String::len).sum();
    violation.path.len() + violation.detail.len() + supported + weight(&violation.value)
}

fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 16 + weight(item)).sum(),
        Value::Object(object) => object.iter().map(|(name, value)| name.len() + 64 + weight(value)).sum(),
        _ => 8,
    }
}
