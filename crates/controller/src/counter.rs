//! The counts that controllers keep of their plans, as data: a plan says what to count, and who carries it out counts.

/// Names and values.
pub type Labels = Vec<(&'static str, String)>;

/// A counter as a row.
#[derive(Debug, PartialEq, Eq)]
pub struct CounterRow {
    /// Without `_total`.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
}

/// A histogram of seconds as a row.
#[derive(Debug, PartialEq)]
pub struct SecondsRow {
    /// As it is exposed.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The upper bounds of its buckets.
    pub buckets: Buckets,
}

/// The upper bounds of a histogram's buckets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buckets {
    /// The first bucket, the factor from each to the next, and how many there are.
    Exponential(f64, f64, u16),
    /// These.
    Listed(&'static [f64]),
}

/// The amount that a counter grows by.
#[derive(Clone, Debug, PartialEq)]
pub struct Increment {
    /// The counter.
    pub counter: &'static CounterRow,
    /// Under these labels.
    pub labels: Labels,
    /// The amount.
    pub by: u64,
}

/// The counts of each plan: their number and their duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The number of plans.
    pub counter: &'static CounterRow,
    /// The duration of plans.
    pub seconds: &'static SecondsRow,
    /// Under these labels if all of it was done.
    pub done: Labels,
    /// Under these if not.
    pub failed: Labels,
}
