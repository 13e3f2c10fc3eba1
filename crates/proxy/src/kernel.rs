//! What this process has made of the kernel's tables, flows and addresses: each change of it is what is different.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::metrics::Metrics;
use machinery::net::Family;
use sys::nftables::{self, Table};

use crate::health::{Check, CheckKey};
use crate::host::table_family;
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

/// How long changes took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Until it was known what to tell the kernel; of a difference, not of the whole.
    pub deciding: Duration,
    /// Until the kernel had done it.
    pub all: Duration,
}

/// See the module. It works in the calling thread's network namespace.
#[derive(Debug)]
pub struct Kernel {
    config: Arc<Config>,
    families: Vec<Family>,
    metrics: Arc<ProxyMetrics>,
    services: Services,
    /// Whether the kernel has what `services` knew last.
    is_current: bool,
    announced: Option<BTreeSet<IpAddr>>,
}

impl Kernel {
    /// One that knows of no Service, and has not looked at the kernel.
    pub fn new(config: Config, metrics: &Metrics) -> Self {
        let (config, metrics) = (Arc::new(config), metrics.part(ProxyMetrics::new));
        let services = Services::new(config.clone());
        let families = config.families();
        Self { config, families, metrics, services, is_current: false, announced: None }
    }

    /// See [`Services::checks`].
    pub(crate) fn checks(&self) -> &BTreeMap<CheckKey, Check> {
        self.services.checks()
    }

    /// Takes changes in and brings the kernel up to date. After a failure the tables are replaced whole.
    ///
    /// # Errors
    /// The kernel refuses. The changes are known, and come with the next.
    pub fn program(&mut self, changed: Changed) -> sys::Result<Took> {
        let start = Instant::now();
        let difference = self.services.update(changed);
        let parts =
            render::part(&difference.before, &self.config)..render::part(&difference.after, &self.config);
        let deciding = start.elapsed();
        warn_of_refused(&difference);
        let (difference, sync) = if std::mem::take(&mut self.is_current) && self.change(&parts) {
            (difference, Sync::Partial)
        } else {
            drop(parts);
            prepare(&self.config)?;
            let after = self.services.whole();
            nftables::replace_all(&render::whole(&after, &self.config))?;
            self.delete_others()?;
            (Difference { after, ..Difference::default() }, Sync::Full)
        };
        let took = start.elapsed();
        for family in &self.families {
            self.metrics.synced((sync, *family), took, self.services.without_local(*family));
            let began = Instant::now();
            let deleted = stale::flush(&difference, *family)?;
            if deleted > 0 {
                self.metrics.flows(*family, began.elapsed(), deleted);
            }
        }
        self.announce()?;
        self.is_current = true;
        Ok(Took { deciding, all: start.elapsed() })
    }

    /// Whether the kernel took the difference.
    fn change(&self, parts: &Range<Vec<Table>>) -> bool {
        match nftables::change(&parts.start, &parts.end) {
            Ok(()) => true,
            Err(error) => {
                self.metrics.failed(&self.families);
                tracing::warn!(error = %describe(&error), "cannot change the rules of services, replacing them");
                false
            }
        }
    }

    /// Takes away what a proxy of more families has left.
    fn delete_others(&self) -> sys::Result<()> {
        let gone = [Family::V4, Family::V6].into_iter().filter(|family| !self.families.contains(family));
        gone.map(table_family)
            .try_for_each(|family| nftables::delete_table_of(family, &self.config.table_name()))
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
