//! The metrics of requests that controllers have made.

use std::time::Duration;

use jiff::Timestamp;

use crate::counter::{Increment, SecondsRow};
use crate::request::ApiRequest;

/// A value that a request adds to a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestMetric {
    /// One more of a counter.
    Count(Increment),
    /// An observation of a histogram of seconds: it came so late, or took so long.
    Seconds(&'static SecondsRow, Duration),
}

/// The metrics of a controller's request, by its name, the request, whether it was done (or refused), and when.
pub type RequestMetrics = fn(&'static str, &ApiRequest, bool, Timestamp) -> Vec<RequestMetric>;
