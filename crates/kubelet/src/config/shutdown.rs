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

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: `Test_migrateConfig` of upstream's `pkg/kubelet/nodeshutdown`, and its validation.
    #[test]
    fn periods_are_for_all_and_for_those_that_matter_or_by_priority() {
        let check = |text: &str, expect: Result<&[(i64, i64)], &str>| {
            let mut config = Config::default();
            let applied = config.apply(&serde_saphyr::from_str(text).unwrap());
            let found: Vec<_> =
                config.shutdown.iter().map(|period| (period.priority, period.seconds)).collect();
            match (applied, expect) {
                (Ok(()), Ok(expect)) => assert_eq!(found, expect, "{text}"),
                (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{text}: {error}"),
                (applied, _) => panic!("{text}: {applied:?}"),
            }
        };
        check(
            "{shutdownGracePeriod: 300s, shutdownGracePeriodCriticalPods: 120s}",
            Ok(&[(0, 180), (CRITICAL_PRIORITY, 120)]),
        );
        check("{shutdownGracePeriod: 100s}", Ok(&[(0, 100), (CRITICAL_PRIORITY, 0)]));
        check(
            "{shutdownGracePeriod: 10s, shutdownGracePeriodCriticalPods: 10s}",
            Ok(&[(0, 0), (CRITICAL_PRIORITY, 10)]),
        );
        check("{}", Ok(&[]));
        check("{shutdownGracePeriod: 0s, shutdownGracePeriodCriticalPods: 0s}", Ok(&[]));
        check(
            "{shutdownGracePeriod: 1s, shutdownGracePeriodCriticalPods: 100s}",
            Err("must be <= shutdownGracePeriod"),
        );
        check("{shutdownGracePeriod: 500ms}", Err("must be either zero or otherwise >= 1 sec"));
        const THREE: &str = "shutdownGracePeriodByPodPriority: [{priority: 100, shutdownGracePeriodSeconds: 2}, {shutdownGracePeriodSeconds: 1}, \
                             {priority: 1000}]";
        check(&format!("{{{THREE}}}"), Ok(&[(0, 1), (100, 2), (1000, 0)]));
        check(&format!("{{{THREE}, shutdownGracePeriod: 3s}}"), Err("Cannot specify both"));
        check(
            "{shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]}",
            Err("shutdownGracePeriodByPodPriority"),
        );
    }
}
