//! Gauges of what informers hold, as rows: they are counted when somebody reads them.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Factory, Informers};
use crate::counter::Labels;

type Family64 = Family<Labels, Gauge<f64, AtomicU64>>;

/// Gauges as a row.
#[derive(Debug)]
pub struct GaugeRow {
    /// As it is exposed.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The current values, with their labels.
    pub values: fn(&Informers) -> Vec<(Labels, f64)>,
}

/// Whose objects each row counts: those of the informers that came last.
#[derive(Default)]
struct Shown(Mutex<HashMap<&'static str, Weak<Factory>>>);

impl Informers {
    /// Shows gauges of what these informers hold, in place of those of informers before them, and as long as they are
    /// there.
    pub fn show(&self, rows: &'static [GaugeRow]) {
        let registry = self.metrics().registry();
        let shown = registry.part(|_| Shown::default());
        for row in rows {
            if shown.0.lock().insert(row.name, Arc::downgrade(&self.0)).is_some() {
                continue;
            }
            let (family, shown) = (Family64::default(), Arc::downgrade(&shown));
            registry.register(row.name, row.help, &family);
            registry.before_render(move || {
                family.clear();
                let factory = shown.upgrade().and_then(|shown| shown.0.lock().get(row.name)?.upgrade());
                let Some(informers) = factory.map(Informers) else { return };
                for (labels, value) in (row.values)(&informers) {
                    family.get_or_create(&labels).set(value);
                }
            });
        }
    }
}
