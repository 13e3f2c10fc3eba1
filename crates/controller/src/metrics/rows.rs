//! Counters and histograms that plans name as rows: each is made when it is first needed.

use std::collections::HashMap;
use std::time::Duration;

use base::metrics::Metrics;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::ClientMetrics;
use crate::counter::{Buckets, CounterRow, Increment, Labels, Measured, SecondsRow};

type Histograms = Family<Labels, Histogram, Buckets>;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        match *self {
            Self::Exponential(first, factor, count) => {
                Histogram::new(exponential_buckets(first, factor, count))
            }
            Self::Listed(bounds) => Histogram::new(bounds.iter().copied()),
        }
    }
}

/// What has been counted in a process.
#[derive(Default)]
struct Counted {
    counters: Mutex<HashMap<&'static str, Family<Labels, Counter>>>,
    seconds: Mutex<HashMap<&'static str, Histograms>>,
}

impl ClientMetrics {
    /// Counts.
    pub fn count(&self, increment: &Increment) {
        let all = self.registry().part(|_| Counted::default());
        let counter = increment.counter;
        let mut counters = all.counters.lock();
        let family = counters.entry(counter.name).or_insert_with(|| register(self.registry(), counter));
        family.get_or_create(&increment.labels).inc_by(increment.by);
    }

    /// Counts a plan that took so long.
    pub fn measure(&self, measured: Measured, took: Duration, succeeded: bool) {
        let Measured { counter, seconds, done, failed } = measured;
        let labels = if succeeded { done } else { failed };
        self.observe(seconds, &labels, took);
        self.count(&Increment { counter, labels, by: 1 });
    }

    /// Notes how long something took.
    pub fn observe(&self, seconds: &'static SecondsRow, labels: &Labels, took: Duration) {
        let all = self.registry().part(|_| Counted::default());
        let mut histograms = all.seconds.lock();
        let family =
            histograms.entry(seconds.name).or_insert_with(|| register_seconds(self.registry(), seconds));
        family.get_or_create(labels).observe(took.as_secs_f64());
    }
}

fn register(metrics: &Metrics, row: &CounterRow) -> Family<Labels, Counter> {
    let family = Family::default();
    metrics.register(row.name, row.help, &family);
    family
}

fn register_seconds(metrics: &Metrics, row: &SecondsRow) -> Histograms {
    let family = Histograms::new_with_constructor(row.buckets);
    metrics.register(row.name, row.help, &family);
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLANS: CounterRow = CounterRow { name: "plans", help: "Plans" };
    static SECONDS: SecondsRow =
        SecondsRow { name: "plan_seconds", help: "Seconds", buckets: Buckets::Exponential(1.0, 2.0, 2) };
    static LATE: SecondsRow =
        SecondsRow { name: "late_seconds", help: "Seconds", buckets: Buckets::Listed(&[0.5, 10.0]) };

    #[test]
    fn plans_are_counted_by_how_they_ended() {
        let metrics = ClientMetrics::default();
        let labels = |result: &str| vec![("mode", "a".to_owned()), ("result", result.to_owned())];
        let (done, failed) = (labels("success"), labels("error"));
        let measured = Measured { counter: &PLANS, seconds: &SECONDS, done, failed };
        metrics.measure(measured.clone(), Duration::from_secs(1), true);
        metrics.measure(measured.clone(), Duration::from_secs(3), true);
        metrics.measure(measured, Duration::ZERO, false);
        metrics.observe(&LATE, &Vec::new(), Duration::from_secs(3));
        let text = metrics.registry().render();
        for line in [
            r#"late_seconds_bucket{le="0.5"} 0"#,
            r#"late_seconds_bucket{le="10"} 1"#,
            r#"plans_total{mode="a",result="success"} 2"#,
            r#"plans_total{mode="a",result="error"} 1"#,
            r#"plan_seconds_sum{mode="a",result="success"} 4"#,
            r#"plan_seconds_bucket{le="2",mode="a",result="success"} 1"#,
        ] {
            assert!(text.lines().any(|told| told == line), "{line} in {text}");
        }
    }
}
