//! The state that is served right now: the table with its endpoints, exchanged as a whole while requests are under way.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use base::Tasks;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use super::endpoint::Endpoint;
use super::entry::AccessLog;
use super::limits::{COPIES_MAX, Limits};
use super::live::Live;
use crate::certificates::{Certificates, Shown};
use crate::host::Host;
use crate::matching::When;
use crate::metrics::Metrics;
use crate::path::PathMatch;
use crate::router::{Found, Lead, Question, Router};
use crate::table::{Backend, Listener, Route, Row, Table, Target};

/// The options for carrying requests.
#[derive(Clone, Debug)]
pub struct Options {
    /// The choice whether they are logged.
    pub access_log: AccessLog,
    /// The port where clients find TLS, for redirects.
    pub https_port: u16,
    /// The limits of times and numbers.
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
    /// Copies of requests that are under way.
    pub(super) copies: Arc<Semaphore>,
    router: RwLock<Arc<Router<Live>>>,
    known: Mutex<Known>,
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane").finish_non_exhaustive()
    }
}

/// The key of a row: what it is for.
type RowKey = (Option<Listener>, Host, PathMatch, When);

/// What the next table goes on with.
#[derive(Default)]
struct Known {
    rows: HashMap<RowKey, Arc<Live>>,
    endpoints: HashMap<Target, Weak<Endpoint>>,
}

/// Where a request leads.
pub(super) enum Way {
    To(Arc<Live>),
    Nowhere,
    /// Its connection was made for somebody else.
    Misdirected,
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
            copies: Arc::new(Semaphore::new(COPIES_MAX)),
            router: RwLock::default(),
            known: Mutex::default(),
        })
    }

    /// Shows these certificates on connections that begin from now on.
    pub fn show(&self, certificates: &Shown) {
        self.certificates.replace(certificates);
    }

    /// Serves this table from the next request on. Requests under way keep theirs, and so do their connections; whoever is
    /// not in the table any more is asked nothing more.
    #[expect(clippy::mutable_key_type, reason = "an expression is compared by its text alone")]
    pub fn replace(&self, table: &Table) {
        let mut known = self.known.lock();
        let mut rows: HashMap<RowKey, Arc<Live>> = HashMap::new();
        // Rows of one rule share what they lead to.
        let mut made: HashMap<*const Route, Arc<Live>> = HashMap::new();
        let mut leads = Vec::with_capacity(table.rows.len());
        for row in &table.rows {
            let Row { listener, host, path, when, route } = row.clone();
            let key = (listener.clone(), host.clone(), path.clone(), when.clone());
            let live = made.entry(Arc::as_ptr(&row.route)).or_insert_with(|| {
                // Whoever's turn it was has it still.
                let same = known.rows.get(&key).filter(|live| live.route == route).cloned();
                same.unwrap_or_else(|| self.live(&mut known.endpoints, &route))
            });
            leads.push(Lead { listener, host, path, when, to: Arc::clone(live) });
            // The first is the one that is meant.
            rows.entry(key).or_insert_with(|| Arc::clone(live));
        }
        let names = |rows: &HashMap<_, Arc<Live>>| -> BTreeSet<String> {
            rows.values().map(|live| live.route.of.clone()).collect()
        };
        for gone in names(&known.rows).difference(&names(&rows)) {
            self.metrics.forget(gone);
        }
        *self.router.write() = Arc::new(Router::of(&table.listeners, leads));
        known.rows = rows;
        known.endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        self.metrics.table(table.rows.len());
    }

    fn live(&self, known: &mut HashMap<Target, Weak<Endpoint>>, route: &Arc<Route>) -> Arc<Live> {
        let mut endpoint = |target: &Target| {
            let endpoint = known.get(target).and_then(Weak::upgrade);
            endpoint.unwrap_or_else(|| {
                let made = Arc::new(Endpoint::new(target.clone(), self.limits.connect, &self.backends));
                known.insert(target.clone(), Arc::downgrade(&made));
                made
            })
        };
        Arc::new(Live::of(route, |backend: &Backend| backend.targets.iter().map(&mut endpoint).collect()))
    }

    /// Tasks that stop with the plane's, and can be stopped before: those of a port that may go.
    pub fn child_tasks(&self) -> Tasks {
        self.tasks.child()
    }

    /// There is a listener more.
    pub(super) fn begin_listening(&self) {
        self.listeners.fetch_add(1, Ordering::Relaxed);
    }

    /// A listener and all of its connections have ended; the last one's end is that of connections to backends.
    pub(super) fn end_listening(&self) {
        let is_last = self.listeners.fetch_sub(1, Ordering::Relaxed) == 1;
        // A Gateway's port may come again.
        if is_last && self.tasks.is_stopping() {
            self.backends.stop();
        }
    }

    pub(super) fn route(&self, asked: &Question<'_>) -> Way {
        let router = Arc::clone(&self.router.read());
        match router.route(asked) {
            Found::Row(live) => Way::To(Arc::clone(live)),
            Found::Nothing => Way::Nowhere,
            Found::Misdirected => Way::Misdirected,
        }
    }
}
