//! When unused images go.

use std::time::Duration;

/// When images are collected, under the names of upstream's `KubeletConfiguration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// `imageGCHighThresholdPercent`: from this use of the disk on, images go. 100 turns it off.
    pub high_threshold_percent: u8,
    /// `imageGCLowThresholdPercent`: until the use is down to this.
    pub low_threshold_percent: u8,
    /// `imageMinimumGCAge`: younger images stay.
    pub minimum_age: Duration,
    /// `imageMaximumGCAge`: images that were not used for so long go in any case; zero turns it off.
    pub maximum_age: Duration,
}

impl Default for ImageGcPolicy {
    fn default() -> Self {
        Self {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            minimum_age: Duration::from_secs(120),
            maximum_age: Duration::ZERO,
        }
    }
}
