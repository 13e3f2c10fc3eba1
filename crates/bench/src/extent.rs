//! How much is done for each measurement.

/// How much is done for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Enough for a record.
    Full,
    /// Enough to see whether it works and of which order it is: `--quick`.
    Quick,
}

impl Extent {
    /// `full`, or a smaller number.
    pub(crate) fn of(self, full: usize, quick: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}
