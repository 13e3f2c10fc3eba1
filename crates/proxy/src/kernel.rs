//! What this process has made of the kernel's rules, flows and addresses: each change of it is what is different.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::metrics::Metrics;
use machinery::net::Family;
use sys::nftables::{Flushes, Table};

use crate::backend::{self, Backend, Tended};
use crate::health::{Check, CheckKey};
use crate::metrics::{ProxyMetrics, Sync};
use crate::services::{Changed, Difference, Services};
use crate::{Config, announce, prepare, render, stale};

pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// The tables for these objects alone, one of each family.
pub fn tables(config: Config, objects: Changed) -> Vec<Table> {
    let config = Arc::new(config);
    let mut services = Services::new(config.clone());
    services.update(objects);
    render::whole(&services.whole(), &config)
}

/// The duration of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Until it was known what to tell the kernel; of a difference, not of the whole.
    pub deciding: Duration,
    /// Until the kernel had done it.
    pub all: Duration,
}

/// The kernel's side of Services; it works in the calling thread's network namespace.
#[derive(Debug)]
pub struct Kernel {
    config: Arc<Config>,
    families: Vec<Family>,
    metrics: Arc<ProxyMetrics>,
    services: Services,
    backend: Box<dyn Backend>,
    /// Whether the kernel has what `services` knew last.
    is_current: bool,
    announced: Option<BTreeSet<IpAddr>>,
}

impl Kernel {
    /// One that knows of no Service, and has not looked at the kernel.
    pub fn new(config: Config, metrics: &Metrics) -> Self {
        let (config, metrics) = (Arc::new(config), metrics.part(ProxyMetrics::new));
        let (services, backend) = (Services::new(config.clone()), backend::of(&config));
        let families = config.families();
        Self { config, families, metrics, services, backend, is_current: false, announced: None }
    }

    /// See [`Services::checks`].
    pub(crate) fn checks(&self) -> &BTreeMap<CheckKey, Check> {
        self.services.checks()
    }

    /// Takes changes in and brings the kernel up to date. After a failure everything is made anew.
    ///
    /// # Errors
    /// The kernel refuses. The changes are known, and come with the next.
    pub fn program(&mut self, changed: Changed) -> sys::Result<Took> {
        let start = Instant::now();
        let difference = self.services.update(changed);
        warn_of_refused(&difference);
        let decided = std::mem::take(&mut self.is_current).then(|| self.change(&difference)).flatten();
        let (difference, sync) = if decided.is_some() {
            (difference, Sync::Partial)
        } else {
            prepare(&self.config)?;
            let after = self.services.whole();
            self.backend.replace(&after)?;
            backend::cleanup_others(&self.config)?;
            // The whole as the kernel has it, which was many times what is remembered.
            sys::process::give_memory_back();
            (Difference { after, ..Difference::default() }, Sync::Full)
        };
        let took = start.elapsed();
        for family in &self.families {
            self.metrics.synced((sync, *family), took, self.services.without_local(*family));
            let began = Instant::now();
            // Flows that stay too long are no reason to make all rules anew.
            let deleted = stale::flush(&difference, *family).unwrap_or_else(|error| {
                tracing::warn!(error = %describe(&error), "cannot forget stale flows");
                0
            });
            if deleted > 0 {
                self.metrics.flows(*family, began.elapsed(), deleted);
            }
        }
        self.announce()?;
        self.is_current = true;
        let deciding = decided.map_or(Duration::ZERO, |decided| decided.duration_since(start));
        Ok(Took { deciding, all: start.elapsed() })
    }

    /// How long after the last change [`Self::tend`] is due.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.backend.due()
    }

    /// Looks after what time brings; brings back what somebody else has taken from the kernel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn tend(&mut self) -> sys::Result<Tended> {
        let tended = self.backend.tend()?;
        self.repair(tended)
    }

    /// Tells when somebody else has taken something from the kernel: then [`Self::after_flush`] is due.
    pub(crate) fn flushes(&self) -> Flushes {
        self.backend.flushes()
    }

    /// Brings back what somebody else has taken from the kernel.
    ///
    /// # Errors
    /// The kernel refuses; the next change makes everything anew.
    pub(crate) fn after_flush(&mut self) -> sys::Result<Tended> {
        let tended = self.backend.after_flush()?;
        self.repair(tended)
    }

    fn repair(&mut self, tended: Tended) -> sys::Result<Tended> {
        if tended != Tended::Fine {
            self.is_current = false;
            self.program(Changed::default())?;
        }
        Ok(tended)
    }

    /// When it was known what to tell the kernel, if that took the difference.
    fn change(&mut self, difference: &Difference) -> Option<Instant> {
        match self.backend.change(difference) {
            Ok(decided) => Some(decided),
            Err(error) => {
                self.metrics.failed(&self.families);
                tracing::warn!(error = %describe(&error), "cannot change the rules of services, replacing them");
                None
            }
        }
    }

    fn announce(&mut self) -> sys::Result<()> {
        let own = announce::own(self.services.pool(), self.services.nodes(), &self.config.node_name);
        if self.announced.as_ref() != Some(&own) {
            announce::apply(&self.config, &own)?;
            self.announced = Some(own);
        }
        Ok(())
    }
}

fn warn_of_refused(difference: &Difference) {
    for row in &difference.after.rows {
        for ip in &row.leads.refused {
            let service = &row.port.name;
            tracing::warn!(service, %ip, "an external address of a service belongs to the cluster and leads nowhere");
        }
    }
}
