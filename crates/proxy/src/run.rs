//! Watches Services, EndpointSlices and Nodes, and keeps the kernel equal to what they say.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Backoff, Tasks};
use controller::trace::{Reporter, Span};
use controller::{Change, FlushedRules, Informers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backend::Tended;
use crate::health::{CheckServers, Health, Port, serve};
use crate::kernel::describe;
use crate::metrics::ProxyMetrics;
use crate::{Changed, Config, Kernel, Nodes};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Changed objects named in the trace of one commit; the others of a larger batch are not.
const SPANS_PER_COMMIT_MAX: usize = 64;
/// When a slice's endpoints changed. Source: `v1.EndpointsLastChangeTriggerTime`.
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Starts the proxy. The receiver tells how many commits the kernel has taken: 1 and more is ready.
pub fn run(informers: &Informers, config: Config, reporter: Reporter, tasks: &Tasks) -> watch::Receiver<u64> {
    let (commits, ready) = watch::channel(0);
    let (informers, tasks_of_ports) = (informers.clone(), tasks.clone());
    tasks.spawn("proxy", async move {
        let registry = informers.metrics().registry();
        let metrics = registry.part(ProxyMetrics::new);
        let health = Health::new(informers.clock().clone(), metrics.clone(), config.families());
        let of_metrics = Port::Metrics { mode: config.mode.as_str() };
        for (port, address) in [(Port::Health, config.healthz_address), (of_metrics, config.metrics_address)]
        {
            if let Some(address) = address {
                serve(port, address, health.clone(), registry.clone(), &tasks_of_ports).await;
            }
        }
        let recorder = informers.recorder_on("kube-proxy", &config.node_name);
        let flushed = FlushedRules::new(&informers, recorder.clone(), &config.node_name, "of Services");
        let at = (config.node_name.clone(), config.check_addresses());
        let proxy = Proxy {
            checks: CheckServers::new(health.clone(), at, recorder, tasks_of_ports),
            own: config.node_name.clone(),
            kernel: Arc::new(Mutex::new(Kernel::new(config, registry))),
            informers,
            reporter,
            health,
            metrics,
            flushed,
        };
        proxy.run(commits).await;
    });
    ready
}

struct Proxy {
    informers: Informers,
    reporter: Reporter,
    own: String,
    kernel: Arc<Mutex<Kernel>>,
    health: Health,
    metrics: Arc<ProxyMetrics>,
    checks: CheckServers,
    flushed: FlushedRules,
}

/// What has changed since the last commit.
#[derive(Default)]
struct Pending {
    changed: Changed,
    /// For the trace.
    objects: Vec<(u64, String)>,
    triggers: Vec<Timestamp>,
}

impl Pending {
    fn services(&mut self, changes: Vec<Change<Service>>) {
        self.note("services", &changes);
        self.changed.services.extend(changes.into_iter().map(|one| (one.key.to_string(), one.old, one.new)));
    }

    fn slices(&mut self, changes: Vec<Change<EndpointSlice>>) {
        self.note("endpointslices", &changes);
        let trigger = |slice: &Option<Arc<EndpointSlice>>| {
            slice.as_ref()?.metadata.annotations.as_ref()?.get(TRIGGER_TIME)?.parse::<Timestamp>().ok()
        };
        // What was there before us was programmed by somebody else.
        let known = changes.iter().filter(|one| one.old.is_some());
        let news = known.filter(|one| trigger(&one.old) != trigger(&one.new));
        self.triggers.extend(news.filter_map(|one| trigger(&one.new)));
        self.changed.slices.extend(changes.into_iter().map(|one| (one.key.to_string(), one.old, one.new)));
    }

    fn note<K>(&mut self, resource: &str, changes: &[Change<K>]) {
        let room = SPANS_PER_COMMIT_MAX.saturating_sub(self.objects.len());
        let named = changes.iter().take(room).map(|one| (one.revision, format!("{resource}/{}", one.key)));
        self.objects.extend(named);
    }
}

impl Proxy {
    async fn run(mut self, commits: watch::Sender<u64>) {
        let services = self.informers.informer::<Service>();
        let slices = self.informers.informer::<EndpointSlice>();
        // Not waited for: the own Node's address is known, and Services need no others. Traffic is kept in the zone when
        // that is known.
        let nodes = self.informers.informer::<Node>();
        let mut node_changes = nodes.subscribe();
        services.synced().await;
        slices.synced().await;
        let (mut service_changes, mut slice_changes) = (services.subscribe(), slices.subscribe());
        let mut known = Nodes::of(&nodes.list(), &self.own);
        let mut pending = Pending::default();
        pending.changed.nodes = Some(known.clone());
        // What was there before is no change that anybody waits for.
        pending.services(service_changes.take());
        pending.slices(slice_changes.take());
        pending.objects.clear();
        let mut tended = Instant::now();
        let (mut flushes, random) = (self.locked().flushes(), self.informers.random().clone());
        loop {
            self.commit(std::mem::take(&mut pending), &known).await;
            commits.send_modify(|count| *count += 1);
            loop {
                let due = self.locked().due().map(|due| tended + due);
                tokio::select! {
                    () = at(due) => {
                        self.tend(Kernel::tend).await;
                        tended = Instant::now();
                        continue;
                    }
                    () = flushes.next(&random) => {
                        if self.tend(Kernel::after_flush).await {
                            continue;
                        }
                        // As after a commit that has failed: all of it is tried again.
                    }
                    changes = service_changes.next() => pending.services(changes),
                    changes = slice_changes.next() => pending.slices(changes),
                    _ = node_changes.next() => {
                        let now = Nodes::of(&nodes.list(), &self.own);
                        if now == known {
                            continue;
                        }
                        known = now.clone();
                        pending.changed.nodes = Some(now);
                    }
                }
                break;
            }
            // What changes while the kernel works is in the next round, all of it at once.
            pending.services(service_changes.take());
            pending.slices(slice_changes.take());
            self.health.queue();
        }
    }

    async fn commit(&mut self, pending: Pending, nodes: &Nodes) {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY, 0.1);
        let start = self.informers.clock().now();
        self.metrics.changes(pending.changed.services.len(), pending.changed.slices.len());
        let mut changed = pending.changed;
        while let Err(error) = self.program(std::mem::take(&mut changed)).await {
            self.metrics.failed(self.health.families());
            let delay = backoff.next(self.informers.random());
            tracing::error!(error = %describe(&error), ?delay, "cannot program services, will try again");
            tokio::time::sleep(delay).await;
        }
        let checks = self.locked().checks().clone();
        self.health.update(nodes.is_own_eligible, &checks);
        self.checks.sync(&checks);
        let end = self.informers.clock().now();
        let families = self.health.families();
        pending.triggers.into_iter().for_each(|since| self.metrics.in_force(families, since, end));
        for (revision, object) in pending.objects {
            self.reporter.span(Span {
                cause: revision,
                component: "proxy".to_owned(),
                name: "rules programmed".to_owned(),
                object,
                start_us: start.as_microsecond(),
                end_us: end.as_microsecond(),
                detail: String::new(),
            });
        }
    }

    fn locked(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn program(&self, changed: Changed) -> sys::Result<()> {
        self.blocking(|kernel| kernel.program(changed).map(drop)).await
    }

    /// Says whether the kernel has what it was told.
    async fn tend(&self, tend: fn(&mut Kernel) -> sys::Result<Tended>) -> bool {
        match self.blocking(tend).await {
            Ok(Tended::Fine | Tended::Moved) => {}
            Ok(Tended::Lost) => self.flushed.tell(),
            Err(error) => {
                self.metrics.failed(self.health.families());
                tracing::warn!(error = %describe(&error), "cannot look after the rules of services");
                return false;
            }
        }
        true
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Kernel) -> sys::Result<T> + Send + 'static,
    ) -> sys::Result<T> {
        let kernel = self.kernel.clone();
        let work = move || work(&mut kernel.lock().unwrap_or_else(PoisonError::into_inner));
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| sys::Error::new("program services", std::io::Error::other(error)))?
    }
}

/// Ends at this time, or never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
