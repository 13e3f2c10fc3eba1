//! What is served right now: the table with its endpoints, exchanged as a whole while requests are under way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use base::Tasks;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use super::endpoint::Endpoint;
use super::entry::AccessLog;
use super::limits::Limits;
use crate::certificates::Certificates;
use crate::host::Host;
use crate::metrics::Metrics;
use crate::path::PathMatch;
use crate::router::Router;
use crate::table::{Route, Table, Target};

/// How requests are carried.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether they are logged.
    pub access_log: AccessLog,
    /// Where clients find TLS, for redirects.
    pub https_port: u16,
    /// How long and how many.
    pub limits: Limits,
}

/// The data plane.
pub struct Plane {
    pub(super) access_log: AccessLog,
    pub(super) https_port: u16,
    pub(super) limits: Limits,
    pub(super) certificates: Arc<Certificates>,
    pub(super) metrics: Metrics,
    pub(super) tasks: Tasks,
    /// Connections to backends, which outlast what is told to stop: requests under way need them.
    backends: Tasks,
    listeners: AtomicUsize,
    pub(super) requests: Arc<Semaphore>,
    router: RwLock<Arc<Router<Live>>>,
    known: Mutex<Known>,
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane").finish_non_exhaustive()
    }
}

/// What the next table goes on with.
#[derive(Default)]
struct Known {
    rows: BTreeMap<(Host, PathMatch), Arc<Live>>,
    endpoints: HashMap<Target, Weak<Endpoint>>,
}

/// A route with its endpoints.
pub(super) struct Live {
    pub(super) route: Arc<Route>,
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    turn: AtomicUsize,
}

impl Live {
    /// Whose turn it is.
    pub(super) fn next(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.endpoints.len().max(1)
    }
}

impl Plane {
    /// A plane without a row. What it starts runs in `tasks`.
    pub fn new(
        options: Options,
        certificates: Arc<Certificates>,
        metrics: Metrics,
        tasks: Tasks,
    ) -> Arc<Self> {
        let Options { access_log, https_port, limits } = options;
        Arc::new(Self {
            access_log,
            https_port,
            limits,
            certificates,
            metrics,
            backends: tasks.outlasting(),
            tasks,
            listeners: AtomicUsize::new(0),
            requests: Arc::new(Semaphore::new(limits.requests)),
            router: RwLock::default(),
            known: Mutex::default(),
        })
    }

    /// Shows these certificates on connections that begin from now on.
    pub fn show(&self, certificates: &BTreeMap<Host, Arc<Secret>>) {
        self.certificates.replace(certificates);
    }

    /// Serves this table from the next request on. Requests under way keep theirs, and so do their connections; whoever is
    /// not in the table any more is asked nothing more.
    pub fn replace(&self, table: &Table) {
        let mut known = self.known.lock();
        let mut rows = BTreeMap::new();
        for row in &table.rows {
            let place = (row.host.clone(), row.path.clone());
            // Whoever's turn it was has it still.
            let same = known.rows.get(&place).filter(|live| live.route == row.route).cloned();
            let live = same.unwrap_or_else(|| self.live(&mut known, &row.route));
            rows.insert(place, live);
        }
        let names = |rows: &BTreeMap<_, Arc<Live>>| -> BTreeSet<String> {
            rows.values().map(|live| live.route.of.clone()).collect()
        };
        for gone in names(&known.rows).difference(&names(&rows)) {
            self.metrics.forget(gone);
        }
        let all = rows.iter().map(|((host, path), live)| (host.clone(), path.clone(), Arc::clone(live)));
        *self.router.write() = Arc::new(Router::of(all));
        known.rows = rows;
        known.endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        self.metrics.table(table.rows.len());
    }

    fn live(&self, known: &mut Known, route: &Arc<Route>) -> Arc<Live> {
        let endpoint = |target: &Target| {
            let endpoint = known.endpoints.get(target).and_then(Weak::upgrade);
            endpoint.unwrap_or_else(|| {
                let made = Arc::new(Endpoint::new(target.clone(), self.limits.connect, &self.backends));
                known.endpoints.insert(target.clone(), Arc::downgrade(&made));
                made
            })
        };
        let endpoints = route.backend.targets.iter().map(endpoint).collect();
        Arc::new(Live { route: Arc::clone(route), endpoints, turn: AtomicUsize::new(0) })
    }

    /// There is a listener more.
    pub(super) fn begin_listening(&self) {
        self.listeners.fetch_add(1, Ordering::Relaxed);
    }

    /// A listener and all of its connections have ended; the last one's end is that of connections to backends.
    pub(super) fn end_listening(&self) {
        if self.listeners.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.backends.stop();
        }
    }

    pub(super) fn route(&self, host: &str, path: &str) -> Option<Arc<Live>> {
        let router = Arc::clone(&self.router.read());
        router.route(host, path).cloned()
    }
}
