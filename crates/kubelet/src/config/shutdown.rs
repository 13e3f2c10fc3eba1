//! How long Pods may take to end when the machine goes down.
//!
//! Source: `shutdownGracePeriod`, `shutdownGracePeriodCriticalPods`, `shutdownGracePeriodByPodPriority` (KEP-2000,
//! KEP-2712).

use std::time::Duration;

use serde_json::Value;

use super::Config;
use super::configuration::Fields;
use crate::config::CRITICAL_PRIORITY;

/// What Pods of a priority, up to the next period's, have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownPeriod {
    /// The least priority.
    pub priority: i64,
    /// Seconds.
    pub seconds: i64,
}

impl Config {
    pub(super) fn apply_shutdown(&mut self, fields: &mut Fields<'_>) {
        let total = fields.duration("shutdownGracePeriod").unwrap_or_default();
        let critical = fields.duration("shutdownGracePeriodCriticalPods").unwrap_or_default();
        let is_short = |period: Duration| !period.is_zero() && period < Duration::from_secs(1);
        if is_short(total) {
            let why = format!("Invalid value: {total:?}: must be either zero or otherwise >= 1 sec");
            fields.error("shutdownGracePeriod", &why);
        }
        if is_short(critical) {
            let why = format!("Invalid value: {critical:?}: must be either zero or otherwise >= 1 sec");
            fields.error("shutdownGracePeriodCriticalPods", &why);
        }
        if critical > total {
            let why = format!("{critical:?} must be <= shutdownGracePeriod ({total:?})");
            fields.error("shutdownGracePeriodCriticalPods", &why);
        }
        let periods = by_priority(fields);
        let is_in_two = !total.is_zero() || !critical.is_zero();
        if is_in_two && !periods.is_empty() {
            let why = "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time";
            fields.error("shutdownGracePeriodByPodPriority", why);
        }
        self.shutdown = if periods.is_empty() { in_two(total, critical) } else { periods };
        self.shutdown.sort_by_key(|period| period.priority);
    }
}

/// All others first, then those that are critical.
fn in_two(total: Duration, critical: Duration) -> Vec<ShutdownPeriod> {
    if total.is_zero() {
        return Vec::new();
    }
    let seconds = |period: Duration| i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
    vec![
        ShutdownPeriod { priority: 0, seconds: seconds(total.saturating_sub(critical)) },
        ShutdownPeriod { priority: CRITICAL_PRIORITY, seconds: seconds(critical) },
    ]
}

fn by_priority(fields: &mut Fields<'_>) -> Vec<ShutdownPeriod> {
    const FIELD: &str = "shutdownGracePeriodByPodPriority";
    let Some(value) = fields.value(FIELD) else { return Vec::new() };
    let number = |item: &Value, name: &str| match item.get(name) {
        None => Some(0),
        Some(value) => value.as_i64(),
    };
    let period = |item: &Value| {
        let (priority, seconds) = (number(item, "priority")?, number(item, "shutdownGracePeriodSeconds")?);
        (item.is_object() && seconds >= 0).then_some(ShutdownPeriod { priority, seconds })
    };
    let periods = value.as_array().and_then(|items| items.iter().map(period).collect::<Option<Vec<_>>>());
    if periods.is_none() {
        fields.wrong(FIELD, "a list of objects with priority and shutdownGracePeriodSeconds");
    }
    periods.unwrap_or_default()
}
