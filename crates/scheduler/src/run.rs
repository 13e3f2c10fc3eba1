//! The loop: changes in, one decision at a time, bindings out concurrently.
//!
//! A chosen Pod is *assumed* on its Node at once, so that the next decision counts it in, and bound in the
//! background; if the binding fails, the assumption is taken back and the Pod is tried again. What changes is taken in
//! between decisions, after a bounded number of them.

mod binding;
mod changes;
mod explaining;
mod permits;
mod preempting;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::informer::Changes;
use controller::pod::Pod;
use controller::trace::{Reporter, Span};
use controller::{ActionExecutor, AfterBurst, Informer, Informers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use machinery::features::Feature;
use tokio::sync::mpsc;

use crate::configuration::Configuration;
use crate::decide::{Decision, decide, explain};
use crate::default_selector::DefaultSelectors;
use crate::devices::changes::DeviceChanges;
use crate::diagnosis::Diagnosis;
use crate::extender;
use crate::extender::asking::{decide_with, interested, preempt_with};
use crate::gangs::GangKey;
use crate::metrics::{self, SchedulerMetrics};
use crate::node_info::Snapshot;
use crate::nominations::Nominations;
use crate::pending_preemptions::PendingPreemptions;
use crate::plugins::Candidate;
use crate::preemption::{Preemption, preempt};
use crate::profile::{Point, scheduler_name};
use crate::queue::Queue;
use crate::storage::PodVolumes;
use crate::storage::changes::StorageChanges;
use crate::timings::{Code, Timings};
use crate::transform;
use crate::volumes::Waiting;
use binding::{Job, Progress};
use explaining::{Explaining, Explanation};
use permits::Permits;

/// Bindings, preemptions and explanations at work at once; deciding waits when there are more. Those that wait for volumes
/// are not at work.
const BINDINGS_MAX: usize = 256;
/// Decisions before changes are taken in.
const DECISIONS_MAX: usize = 128;
/// Bindings without a break after which the process does what it does [`AfterBurst`].
const BURST_BINDINGS: usize = 1_000;

/// Runs a scheduler until its task is dropped.
pub async fn run(configuration: Configuration, informers: Informers, reporter: Reporter, tasks: Tasks) {
    if configuration.extenders.is_empty() {
        informers.set_transform::<Pod>(transform::of_pods());
    }
    let (pods, nodes) = (informers.informer::<Pod>(), informers.informer::<Node>());
    let namespaces = informers.informer::<Namespace>();
    let budgets = informers.informer::<PodDisruptionBudget>();
    let (mut pod_changes, mut node_changes, mut namespace_changes) =
        (pods.subscribe(), nodes.subscribe(), namespaces.subscribe());
    tokio::join!(pods.synced(), nodes.synced(), namespaces.synced(), budgets.synced());
    let mut storage = StorageChanges::synced(&informers).await;
    let mut devices = DeviceChanges::new(&informers).await;
    let mut workloads = Feature::GangScheduling.is_on().then(|| informers.informer().subscribe());
    let default_selectors = DefaultSelectors::new(&informers);
    default_selectors.synced().await;
    let (finished, mut outcomes) = mpsc::channel(BINDINGS_MAX);
    let mut scheduler = Scheduler {
        metrics: informers.metrics().registry().part(SchedulerMetrics::new),
        extenders: extender::clients(configuration.extenders, &informers).await,
        executor: ActionExecutor::new(informers.clone(), informers.recorder("default-scheduler")),
        client: informers.client().clone(),
        clock: informers.clock().clone(),
        random: informers.random().clone(),
        reporter,
        tasks,
        snapshot: Snapshot::new(configuration.profiles),
        queue: Queue::new(configuration.backoff),
        pods: HashMap::new(),
        binding: BTreeMap::new(),
        gated: BTreeSet::new(),
        claimless: BTreeSet::new(),
        incomplete: BTreeMap::new(),
        permits: Permits::default(),
        nominations: Nominations::default(),
        pending_preemptions: PendingPreemptions::default(),
        budgets,
        default_selectors,
        waiting: Waiting::default(),
        ready: VecDeque::new(),
        explaining: Explaining::default(),
        at_work: 0,
        ended: 0,
        after_burst: informers.setting(),
        unschedulable: 0,
        finished,
    };
    while let Some(change) = now_or_never(storage.next()) {
        scheduler.storage_changed(change);
    }
    while let Some(change) = now_or_never(devices.next()) {
        scheduler.devices_changed(change);
    }
    take_in(&mut scheduler, &mut namespace_changes, &mut node_changes, &mut pod_changes).await;
    loop {
        scheduler.schedule_all(&mut outcomes).await;
        scheduler.count();
        let due = scheduler.due();
        tokio::select! {
            biased;
            changes = node_changes.next() => scheduler.nodes_changed(changes),
            changes = namespace_changes.next() => scheduler.namespaces_changed(changes),
            change = storage.next() => scheduler.storage_changed(change),
            change = devices.next() => scheduler.devices_changed(change),
            changes = permits::next(&mut workloads) => scheduler.workloads_changed(changes),
            changes = pod_changes.next() => scheduler.pods_changed(changes),
            Some(progress) = outcomes.recv() => scheduler.went_on(progress),
            () = sleep_until(due, &scheduler.clock) => scheduler.waited_too_long(),
        }
    }
}

/// Nodes before Pods, so that Pods that are bound already find theirs.
async fn take_in(
    scheduler: &mut Scheduler,
    namespaces: &mut Changes<Namespace>,
    nodes: &mut Changes<Node>,
    pods: &mut Changes<Pod>,
) {
    let now = std::future::ready(());
    tokio::select! { biased; changes = namespaces.next() => scheduler.namespaces_changed(changes), () = now => {} }
    let now = std::future::ready(());
    tokio::select! { biased; changes = nodes.next() => scheduler.nodes_changed(changes), () = now => {} }
    let now = std::future::ready(());
    tokio::select! { biased; changes = pods.next() => scheduler.pods_changed(changes), () = now => {} }
}

async fn sleep_until(due: Option<Timestamp>, clock: &Clock) {
    match due {
        None => std::future::pending().await,
        Some(due) => {
            let wait = due.duration_since(clock.now());
            tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
        }
    }
}

struct Scheduler {
    extenders: Vec<extender::Client>,
    metrics: Arc<SchedulerMetrics>,
    executor: ActionExecutor,
    client: kube::Client,
    clock: Clock,
    random: Random,
    reporter: Reporter,
    tasks: Tasks,
    snapshot: Snapshot,
    queue: Queue,
    /// Pods that want a Node, with the revision that we saw them at.
    pods: HashMap<String, (Arc<Pod>, u64)>,
    /// Pods that are assumed and being bound: key to uid.
    binding: BTreeMap<String, String>,
    /// Pods that nobody may schedule yet.
    gated: BTreeSet<String>,
    /// Pods whose claims are not there yet: nobody is told, it is a matter of moments. Source: `PreEnqueue`.
    claimless: BTreeSet<String>,
    /// Pods of gangs of which there are not enough yet.
    incomplete: BTreeMap<GangKey, BTreeSet<String>>,
    /// Pods that are assumed and wait for others of their gang.
    permits: Permits,
    /// Pods that wait for a certain Node.
    nominations: Nominations,
    /// Pods for which others are being made to go.
    pending_preemptions: PendingPreemptions,
    budgets: Informer<PodDisruptionBudget>,
    default_selectors: DefaultSelectors,
    /// Pods that are assumed and whose volumes are on their way.
    waiting: Waiting<Job>,
    /// Pods that need not wait any more, and go on as soon as one may: their volumes are settled, or are still to be written.
    ready: VecDeque<(Job, Option<PodVolumes>)>,
    /// Pods that are being told why they have no Node.
    explaining: Explaining<(Job, Option<PodVolumes>)>,
    /// How many bindings are at work.
    at_work: usize,
    /// How many have ended since none was.
    ended: usize,
    after_burst: Option<Arc<AfterBurst>>,
    /// How many Pods were unschedulable when they were last counted.
    unschedulable: usize,
    finished: mpsc::Sender<Progress>,
}

impl Scheduler {
    async fn schedule_all(&mut self, outcomes: &mut mpsc::Receiver<Progress>) {
        for _ in 0..DECISIONS_MAX {
            let Some(key) = self.queue.pop(self.clock.now()) else { return };
            while self.at_work >= BINDINGS_MAX {
                let Some(progress) = outcomes.recv().await else { return };
                self.went_on(progress);
            }
            self.schedule(&key).await;
        }
    }

    /// When there is something to do even if nothing happens.
    fn due(&self) -> Option<Timestamp> {
        if self.queue.depths().active > 0 {
            return Some(self.clock.now());
        }
        // Who has waited for too long is told so, which is work.
        let permits = self.permits.next_due().filter(|_| self.at_work < BINDINGS_MAX);
        [self.queue.next_due(), self.waiting.next_due(), permits].into_iter().flatten().min()
    }

    async fn schedule(&mut self, key: &str) {
        let Some((pod, revision)) = self.pods.get(key).cloned() else { return };
        if self.holds_back(key, &pod, revision) {
            return;
        }
        let start = self.clock.now();
        let aside = self.nominations.step_aside(key, &pod, &mut self.snapshot);
        let chance = self.random.below(u64::MAX);
        let default_selector = self.default_selectors.of(&pod);
        let mut told = Diagnosis::timed(Timings::by(&self.clock, chance));
        let extenders = interested(&self.extenders, &pod);
        let mut decision = match extenders.as_slice() {
            [] => decide(&pod, default_selector.as_ref(), &self.snapshot, chance, &mut told),
            some => {
                decide_with(some, &pod, default_selector.as_ref(), &self.snapshot, chance, &mut told).await
            }
        };
        let mut preempted = None;
        if let Decision::Unschedulable(why) = &mut decision {
            let about = Candidate::new(&pod, None, &self.snapshot).after_refusal(&self.snapshot);
            self.metrics.preempting();
            let start = told.timings.start();
            let budgets = self.budgets.list();
            let preemption = match extenders.as_slice() {
                [] => Ok(preempt(&pod, &mut self.snapshot, &budgets, chance)),
                some => preempt_with(some, &pod, &mut self.snapshot, &budgets, chance).await,
            };
            *why = match &preemption {
                Ok(preemption) => explain(why, &about, preemption, self.snapshot.len()),
                Err(unheard) => format!("{why} {unheard}"),
            };
            told.timings.point(Point::PostFilter, code_of(&preemption), start);
            preempted = preemption.ok();
            self.give_back(&about, revision);
        }
        self.nominations.come_back(&aside, &mut self.snapshot);
        let end = self.clock.now();
        self.metrics.decided(start, end);
        self.metrics.timed(&pod, std::mem::take(&mut told.timings));
        let detail = match &decision {
            Decision::Failed(why) | Decision::Unheard(why) => why.clone(),
            Decision::Bind(_) | Decision::Unschedulable(_) => told.text(),
        };
        let (start_us, end_us) = (start.as_microsecond(), end.as_microsecond());
        self.reporter.span(Span { start_us, end_us, detail, ..span("decide", key, revision) });
        match decision {
            Decision::Bind(choice) => self.bind(key, &pod, revision, choice, start),
            Decision::Unheard(why) => {
                self.metrics.attempted(&pod, metrics::Outcome::error, start, end);
                self.queue.back_off(key, end);
                self.say_why(Explanation { pod, revision, why: ("SchedulerError", why), node: None });
            }
            Decision::Failed(why) => {
                self.metrics.attempted(&pod, metrics::Outcome::error, start, end);
                // Whoever mends what is broken changes it, which wakes the Pod.
                self.queue.unschedulable(key, told.rejectors(), start);
                self.say_why(Explanation { pod, revision, why: ("SchedulerError", why), node: None });
            }
            Decision::Unschedulable(why) => {
                self.metrics.attempted(&pod, metrics::Outcome::unschedulable, start, end);
                self.queue.unschedulable(key, told.rejectors(), start);
                let node = self.nominate(key, &pod, preempted.as_ref());
                let told = pod.clone();
                self.say_why(Explanation { pod: told, revision, why: ("Unschedulable", why), node });
                if let Some(Preemption::Possible(candidate)) = preempted {
                    self.evict_victims(key, &pod, revision, candidate, start);
                }
            }
        }
    }

    fn count(&mut self) {
        let (depths, incoming) = (self.queue.depths(), self.queue.take_incoming());
        self.metrics.waiting(depths, self.gated.len() + self.held_back());
        if !incoming.is_empty() || depths.unschedulable != self.unschedulable {
            self.unschedulable = depths.unschedulable;
            let profile = |key: &str| self.pods.get(key).map(|(pod, _)| scheduler_name(pod));
            let refusals = self
                .queue
                .refusals()
                .flat_map(|(plugin, keys)| keys.filter_map(move |key| Some((profile(key)?, plugin))));
            self.metrics.refused(refusals);
        }
        self.metrics.incoming(incoming);
        let placed = self.snapshot.placed().saturating_sub(self.nominations.len());
        self.metrics.cached(self.snapshot.len(), placed, self.binding.len());
    }
}

/// A step for a Pod, which takes no time yet.
fn span(name: &str, key: &str, revision: u64) -> Span {
    Span {
        cause: revision,
        component: "scheduler".to_owned(),
        name: name.to_owned(),
        object: format!("pods/{key}"),
        ..Span::default()
    }
}

/// The result of `PostFilter`.
fn code_of<E>(preemption: &Result<Preemption, E>) -> Code {
    match preemption {
        Ok(Preemption::Possible(_)) => Code::Success,
        Ok(_) => Code::Unschedulable,
        Err(_) => Code::Error,
    }
}

/// What is there already.
fn now_or_never<T>(next: impl Future<Output = T>) -> Option<T> {
    let mut next = std::pin::pin!(next);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match next.as_mut().poll(&mut context) {
        std::task::Poll::Ready(found) => Some(found),
        std::task::Poll::Pending => None,
    }
}
