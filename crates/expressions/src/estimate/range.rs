//! Ranges of sizes and costs; what is too large stays at the end.

use std::ops::Add;

use crate::charge::scaled;

/// A cost, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

/// A size, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeEstimate {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl CostEstimate {
    pub(crate) const fn fixed(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }
}

impl Add for CostEstimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }
}

impl SizeEstimate {
    pub(crate) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(crate) const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn times_cost(self, cost: CostEstimate) -> CostEstimate {
        CostEstimate { min: self.min.saturating_mul(cost.min), max: self.max.saturating_mul(cost.max) }
    }

    pub(crate) fn scaled(self, factor: f64) -> CostEstimate {
        CostEstimate { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }
}

impl Add for SizeEstimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }
}
