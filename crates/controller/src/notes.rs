//! The notes of requests that have been made.

use std::time::Duration;

use jiff::Timestamp;

use crate::plan::ApiRequest;
use crate::tally::{SecondsRow, Tally};

/// A note of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Noted {
    /// It counts.
    Counts(Tally),
    /// It came so late, or took so long.
    Took(&'static SecondsRow, Duration),
}

/// Says what is noted of a request of a controller that has been done (`true`) or refused at a time.
pub type Notes = fn(&'static str, &ApiRequest, bool, Timestamp) -> Vec<Noted>;
