//! The metrics of one process: one registry, filled by the parts that run in it, read by whoever serves it.
//!
//! What is counted is counted where it happens. What is a state (how long something has been running) is looked up
//! when the registry is read, so that nothing has to keep it current.

mod exposition;
pub mod process;

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

/// The media type of [`Metrics::render`]: what components of Kubernetes answer, whatever is asked for.
///
/// Source: `k8s.io/component-base/metrics`; Prometheus' exposition format 0.0.4.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A process's registry. Cloning shares it.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<Registry>,
    updates: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    parts: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// Counters that are called so, without `_total`.
    plain: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metric under its name (a counter's without `_total`, which the exposition adds); each name once.
    pub fn register<M: Metric + Clone>(&self, name: &str, help: &str, metric: &M) {
        let mut registry = self.0.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register(name, help, metric.clone());
    }

    /// Adds a counter whose name has no `_total`, as older ones of upstream have none.
    pub fn register_plain<M: Metric + Clone>(&self, name: &str, help: &str, counter: &M) {
        self.0.plain.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.register(name, help, counter);
    }

    /// Adds a gauge that is 1 for ever, and says something by its labels.
    pub fn info(&self, name: &str, help: &str, labels: &[(&'static str, String)]) {
        let family = Family::<Vec<(&'static str, String)>, Gauge>::default();
        family.get_or_create(&labels.to_vec()).set(1);
        self.register(name, help, &family);
    }

    /// The metrics of a part, made when it is first asked for: a part that starts again counts on.
    pub fn part<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> T) -> Arc<T> {
        let known = |parts: &HashMap<TypeId, Arc<dyn Any + Send + Sync>>| {
            Arc::clone(parts.get(&TypeId::of::<T>())?).downcast().ok()
        };
        let mut parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        known(&parts).unwrap_or_else(|| {
            let made = Arc::new(make(self));
            parts.insert(TypeId::of::<T>(), Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
            made
        })
    }

    /// Calls `update` before each reading: for gauges that nobody changes while they grow.
    pub fn before_render(&self, update: impl Fn() + Send + Sync + 'static) {
        self.0.updates.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(update));
    }

    /// The text exposition.
    pub fn render(&self) -> String {
        for update in self.0.updates.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            update();
        }
        let mut text = String::new();
        match encode(&mut text, &self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)) {
            Ok(()) => {
                exposition::plain_text(&text, &self.0.plain.lock().unwrap_or_else(PoisonError::into_inner))
            }
            // Writing to a string cannot fail.
            Err(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::histogram::Histogram;

    #[test]
    fn a_gauge_is_brought_up_to_date_when_it_is_read() {
        let (metrics, adds, depth) = (Metrics::new(), Counter::<u64>::default(), Gauge::<i64>::default());
        metrics.register("workqueue_adds", "Adds", &adds);
        metrics.register("workqueue_depth", "Depth", &depth);
        let (old, seconds) = (Counter::<u64>::default(), Histogram::new([0.5, 1.0]));
        metrics.register_plain("kubelet_evictions", "Evictions", &old);
        metrics.register("work_seconds", "Seconds", &seconds);
        seconds.observe(2.0);
        metrics.info("build_info", "Build", &[("version", "v1".to_owned()), ("commit", String::new())]);
        let never = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
        never.set(f64::INFINITY);
        metrics.register("ttl_seconds", "Left", &never);
        metrics.before_render(move || {
            depth.set(7);
        });
        adds.inc();
        let part = |metrics: &Metrics| metrics.part(|_| Counter::<u64>::default());
        part(&metrics).inc();
        assert_eq!(part(&metrics).get(), 1, "it counts on");
        expect![[r#"
            # HELP workqueue_adds_total Adds.
            # TYPE workqueue_adds_total counter
            workqueue_adds_total 1
            # HELP workqueue_depth Depth.
            # TYPE workqueue_depth gauge
            workqueue_depth 7
            # HELP kubelet_evictions Evictions.
            # TYPE kubelet_evictions counter
            kubelet_evictions 0
            # HELP work_seconds Seconds.
            # TYPE work_seconds histogram
            work_seconds_sum 2
            work_seconds_count 1
            work_seconds_bucket{le="0.5"} 0
            work_seconds_bucket{le="1"} 0
            work_seconds_bucket{le="+Inf"} 1
            # HELP build_info Build.
            # TYPE build_info gauge
            build_info{version="v1",commit=""} 1
            # HELP ttl_seconds Left.
            # TYPE ttl_seconds gauge
            ttl_seconds +Inf
        "#]]
        .assert_eq(&metrics.render());
    }
}
