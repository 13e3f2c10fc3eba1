//! The metrics of one process: one registry, filled by the parts that run in it, read by whoever serves it.
//!
//! What is counted is counted where it happens. What is a state (how long something has been running) is looked up
//! when the registry is read, so that nothing has to keep it current.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

/// The media type of [`Metrics::render`]. Source: OpenMetrics 1.0.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A process's registry. Cloning shares it.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Mutex<Registry>,
    updates: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    parts: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
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

    /// What a part counts, made when it is first asked for: a part that starts again counts on.
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
            Ok(()) => text,
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
    use prometheus_client::metrics::gauge::Gauge;

    #[test]
    fn a_gauge_is_brought_up_to_date_when_it_is_read() {
        let (metrics, adds, depth) = (Metrics::new(), Counter::<u64>::default(), Gauge::<i64>::default());
        metrics.register("workqueue_adds", "Adds", &adds);
        metrics.register("workqueue_depth", "Depth", &depth);
        metrics.before_render(move || {
            depth.set(7);
        });
        adds.inc();
        let part = |metrics: &Metrics| metrics.part(|_| Counter::<u64>::default());
        part(&metrics).inc();
        assert_eq!(part(&metrics).get(), 1, "it counts on");
        expect![[r#"
            # HELP workqueue_adds Adds.
            # TYPE workqueue_adds counter
            workqueue_adds_total 1
            # HELP workqueue_depth Depth.
            # TYPE workqueue_depth gauge
            workqueue_depth 7
            # EOF
        "#]]
        .assert_eq(&metrics.render());
    }
}
