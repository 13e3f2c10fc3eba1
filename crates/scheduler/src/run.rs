//! The loop: changes in, one decision at a time, bindings out concurrently.
//!
//! A chosen Pod is *assumed* on its Node at once, so that the next decision counts it in, and bound in the
//! background; if the binding fails, the assumption is taken back and the Pod is tried again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use base::{Clock, Random, Tasks};
use controller::informer::{Change, Changes};
use controller::trace::Reporter;
use controller::{Action, EventType, Hands, Informer, Informers, Patch, Propagation, Recorder, cause};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use serde_json::json;
use tokio::sync::mpsc;

use crate::decide::{Decision, decide, explain};
use crate::kin::Groups;
use crate::metrics::{self, SchedulerMetrics};
use crate::node_info::Snapshot;
use crate::plugins::Candidate;
use crate::preemption::{Preemption, REASON, Room, nominated, preempt, priority};
use crate::queue::Queue;
use crate::storage::{Storage, apply};
use crate::volumes::{self, Volumes};

/// Bindings under way at once; deciding waits when there are more.
const BINDINGS_MAX: usize = 256;

/// How a scheduler is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which Pods are ours: those whose `spec.schedulerName` is this.
    pub name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { name: "default-scheduler".to_owned() }
    }
}

/// Runs a scheduler until its task is dropped.
pub async fn run(config: Config, informers: Informers, reporter: Reporter, tasks: Tasks) {
    let (pods, nodes) = (informers.informer::<Pod>(), informers.informer::<Node>());
    let namespaces = informers.informer::<Namespace>();
    let budgets = informers.informer::<PodDisruptionBudget>();
    let (mut pod_changes, mut node_changes) = (pods.subscribe(), nodes.subscribe());
    let mut namespace_changes = namespaces.subscribe();
    pods.synced().await;
    nodes.synced().await;
    namespaces.synced().await;
    budgets.synced().await;
    let mut storage = StorageChanges::synced(&informers).await;
    let groups = Groups::new(&informers);
    groups.synced().await;
    let (finished, mut outcomes) = mpsc::channel(BINDINGS_MAX);
    let recorder = Recorder::start(&informers, "default-scheduler");
    let mut scheduler = Scheduler {
        metrics: informers.metrics().registry().part(|all| SchedulerMetrics::new(all, &config.name)),
        config,
        hands: Hands::new(informers.clone(), recorder),
        clock: informers.clock().clone(),
        random: informers.random().clone(),
        reporter,
        tasks,
        snapshot: Snapshot::default(),
        queue: Queue::default(),
        pods: HashMap::new(),
        binding: BTreeMap::new(),
        sociable: BTreeSet::new(),
        gated: BTreeSet::new(),
        nominated: BTreeMap::new(),
        budgets,
        groups,
        volumes: Volumes::new(&informers),
        finished,
    };
    while let Some(change) = now_or_never(storage.next()) {
        scheduler.storage_changed(change);
    }
    take_in(&mut scheduler, &mut namespace_changes, &mut node_changes, &mut pod_changes).await;
    loop {
        scheduler.schedule_all(&mut outcomes).await;
        scheduler.count();
        let due = scheduler.queue.next_due();
        tokio::select! {
            biased;
            changes = node_changes.next() => scheduler.nodes_changed(changes),
            changes = namespace_changes.next() => scheduler.namespaces_changed(changes),
            change = storage.next() => scheduler.storage_changed(change),
            changes = pod_changes.next() => scheduler.pods_changed(changes),
            Some(outcome) = outcomes.recv() => scheduler.bound(outcome),
            () = sleep_until(due, &scheduler.clock) => {}
        }
    }
}

/// Changes of everything that volume plugins look at.
struct StorageChanges {
    claims: Changes<PersistentVolumeClaim>,
    volumes: Changes<PersistentVolume>,
    classes: Changes<StorageClass>,
    csi_nodes: Changes<CSINode>,
    drivers: Changes<CSIDriver>,
    capacities: Changes<CSIStorageCapacity>,
}

/// Takes changes of one kind into what is known.
type StorageChange = Box<dyn FnOnce(&mut Storage) + Send>;

impl StorageChanges {
    async fn synced(informers: &Informers) -> Self {
        let changes = Self {
            claims: informers.informer().subscribe(),
            volumes: informers.informer().subscribe(),
            classes: informers.informer().subscribe(),
            csi_nodes: informers.informer().subscribe(),
            drivers: informers.informer().subscribe(),
            capacities: informers.informer().subscribe(),
        };
        informers.informer::<PersistentVolumeClaim>().synced().await;
        informers.informer::<PersistentVolume>().synced().await;
        informers.informer::<StorageClass>().synced().await;
        informers.informer::<CSINode>().synced().await;
        informers.informer::<CSIDriver>().synced().await;
        informers.informer::<CSIStorageCapacity>().synced().await;
        changes
    }

    async fn next(&mut self) -> StorageChange {
        tokio::select! {
            biased;
            changes = self.claims.next() => Box::new(|storage| apply(&mut storage.claims, changes)),
            changes = self.volumes.next() => Box::new(|storage| apply(&mut storage.volumes, changes)),
            changes = self.classes.next() => Box::new(|storage| apply(&mut storage.classes, changes)),
            changes = self.csi_nodes.next() => Box::new(|storage| apply(&mut storage.csi_nodes, changes)),
            changes = self.drivers.next() => Box::new(|storage| apply(&mut storage.drivers, changes)),
            changes = self.capacities.next() => Box::new(|storage| apply(&mut storage.capacities, changes)),
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
    config: Config,
    metrics: Arc<SchedulerMetrics>,
    hands: Hands,
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
    /// Pods that may go when others have come: they wait for company, or for an even spread.
    sociable: BTreeSet<String>,
    /// Pods that nobody may schedule yet.
    gated: BTreeSet<String>,
    /// Pods for which others were made to go: key to Node.
    nominated: BTreeMap<String, String>,
    budgets: Informer<PodDisruptionBudget>,
    groups: Groups,
    volumes: Volumes,
    finished: mpsc::Sender<Outcome>,
}

struct Outcome {
    key: String,
    uid: String,
    /// When the attempt began.
    start: Timestamp,
    /// How often the Pod was tried, and since when it waits.
    history: Option<(u32, Timestamp)>,
    failure: Option<String>,
}

impl Scheduler {
    fn nodes_changed(&mut self, changes: Vec<Change<Node>>) {
        let mut helps = false;
        for change in changes {
            match change.new {
                Some(node) => {
                    helps |= change.old.is_none_or(|old| matters(&old, &node));
                    self.snapshot.set_node(node);
                }
                None => self.snapshot.remove_node(&change.key),
            }
        }
        if helps {
            self.queue.cluster_changed(self.clock.now());
        }
    }

    fn namespaces_changed(&mut self, changes: Vec<Change<Namespace>>) {
        for change in changes {
            let labels = change.new.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
            self.snapshot.set_namespace(&change.key, labels);
        }
        self.queue.cluster_changed(self.clock.now());
    }

    fn storage_changed(&mut self, change: StorageChange) {
        change(&mut self.snapshot.storage);
        self.queue.cluster_changed(self.clock.now());
    }

    fn pods_changed(&mut self, changes: Vec<Change<Pod>>) {
        let mut freed = false;
        for change in changes {
            freed |= self.pod_changed(change);
        }
        if freed {
            self.queue.cluster_changed(self.clock.now());
        }
    }

    /// Returns whether room was made on a Node.
    fn pod_changed(&mut self, change: Change<Pod>) -> bool {
        let mut freed = false;
        let replaced = change
            .old
            .as_ref()
            .filter(|old| change.new.as_ref().is_none_or(|new| new.metadata.uid != old.metadata.uid));
        if let Some(old) = replaced {
            freed |= self.snapshot.remove(uid(old));
            self.forget(&change.key);
        }
        let Some(pod) = change.new else { return freed };
        if is_finished(&pod) {
            self.forget(&change.key);
            return self.snapshot.remove(uid(&pod)) || freed;
        }
        match node_name(&pod) {
            Some(node) => {
                self.forget(&change.key);
                freed |= self.snapshot.place(&pod, node) && !self.sociable.is_empty();
            }
            None => self.wants_node(change.key, change.old.as_deref(), pod, change.revision),
        }
        freed
    }

    fn wants_node(&mut self, key: String, old: Option<&Pod>, pod: Arc<Pod>, revision: u64) {
        let spec = pod.spec.as_ref();
        let is_ours = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or("default-scheduler")
            == self.config.name;
        let is_gated =
            spec.is_some_and(|spec| spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()));
        if !is_ours || is_gated || pod.metadata.deletion_timestamp.is_some() {
            self.forget(&key);
            if is_ours && is_gated {
                self.gated.insert(key);
            }
            return;
        }
        self.gated.remove(&key);
        let is_news =
            old.is_none_or(|old| old.spec != pod.spec || old.metadata.labels != pod.metadata.labels);
        let priority = spec.and_then(|spec| spec.priority).unwrap_or(0);
        if is_sociable(&pod) {
            self.sociable.insert(key.clone());
        }
        // Whoever wrote the nomination, it counts; ours are known before they are written.
        match (nominated(&pod), old.and_then(nominated)) {
            (Some(node), _) => drop(self.nominated.insert(key.clone(), node.to_owned())),
            (None, Some(_)) => drop(self.nominated.remove(&key)),
            (None, None) => {}
        }
        self.pods.insert(key.clone(), (pod, revision));
        let is_known = self.queue.contains(&key) || self.binding.contains_key(&key);
        if (is_news || !is_known) && !self.binding.contains_key(&key) {
            self.queue.add(&key, priority, self.clock.now());
        }
    }

    fn forget(&mut self, key: &str) {
        self.queue.remove(key);
        self.pods.remove(key);
        self.gated.remove(key);
        self.sociable.remove(key);
        self.nominated.remove(key);
    }

    async fn schedule_all(&mut self, outcomes: &mut mpsc::Receiver<Outcome>) {
        while let Some(key) = self.queue.pop(self.clock.now()) {
            while self.binding.len() >= BINDINGS_MAX {
                let Some(outcome) = outcomes.recv().await else { return };
                self.bound(outcome);
            }
            self.schedule(&key);
        }
    }

    fn schedule(&mut self, key: &str) {
        let Some((pod, revision)) = self.pods.get(key).cloned() else { return };
        let start = self.clock.now();
        let promised = self.keep_promises(key, &pod);
        let chance = self.random.below(u64::MAX);
        let kin = self.groups.kin(&pod);
        let mut decision = decide(&pod, kin.as_ref(), &self.snapshot, chance);
        let mut room = None;
        if let Decision::Unschedulable(why) = &mut decision {
            let preemption = preempt(&pod, &mut self.snapshot, &self.budgets.list(), chance);
            *why = explain(why, &preemption, self.snapshot.len());
            room = Some(preemption);
        }
        for uid in promised {
            self.snapshot.remove(&uid);
        }
        let end = self.clock.now();
        self.metrics.decided(start, end);
        let detail = match &decision {
            Decision::Bind(node) => node,
            Decision::Unschedulable(why) => why,
        };
        let object = format!("pods/{key}");
        self.reporter.span(revision, ("scheduler", "decide"), &object, (start, end), detail);
        match decision {
            Decision::Bind(node) => self.bind(key, &pod, revision, (node, start)),
            Decision::Unschedulable(why) => {
                self.metrics.attempted(metrics::Outcome::unschedulable, start, end);
                self.queue.unschedulable(key, start);
                let node = self.nominate(key, &pod, room.as_ref());
                self.say_why(&pod, revision, why, node);
                if let Some(Preemption::Possible(room)) = room {
                    self.make_room(key, &pod, revision, (room, start));
                }
            }
        }
    }

    /// Others have gone for Pods that are at least as important as `pod`: their room is not free. Gives the uids of
    /// whoever is counted in for the decision's time.
    fn keep_promises(&mut self, key: &str, pod: &Pod) -> Vec<String> {
        let mut promised = Vec::new();
        for (other, node) in self.nominated.iter().filter(|(other, _)| *other != key) {
            let Some((waiting, _)) = self.pods.get(other) else { continue };
            let is_waiting = !self.binding.contains_key(other);
            if is_waiting && priority(waiting) >= priority(pod) && self.snapshot.place(waiting, node) {
                promised.push(uid(waiting).to_owned());
            }
        }
        promised
    }

    /// Notes which Node the Pod waits for from now on; says what its status is to say, if that is news.
    fn nominate(&mut self, key: &str, pod: &Pod, preemption: Option<&Preemption>) -> Option<Option<String>> {
        let node = match preemption {
            Some(Preemption::Possible(room)) => Some(room.node.clone()),
            Some(Preemption::Useless(_)) => None,
            Some(Preemption::NotEligible(_)) | None => return None,
        };
        match &node {
            Some(node) => self.nominated.insert(key.to_owned(), node.clone()),
            None => self.nominated.remove(key),
        };
        (node.as_deref() != nominated(pod)).then_some(node)
    }

    /// Sends the victims away; whoever waited for the same Node and is less important waits no longer.
    fn make_room(&mut self, key: &str, pod: &Arc<Pod>, revision: u64, (room, start): (Room, Timestamp)) {
        let lesser: Vec<String> = self
            .nominated
            .iter()
            .filter(|(other, node)| *other != key && **node == room.node)
            .filter(|(other, _)| {
                self.pods.get(*other).is_some_and(|(other, _)| priority(other) < priority(pod))
            })
            .map(|(other, _)| other.clone())
            .collect();
        let mut actions = Vec::new();
        for other in lesser {
            self.nominated.remove(&other);
            if let Some((waiting, _)) = self.pods.get(&other) {
                actions.push(nominating(waiting, None));
            }
        }
        let leaving = |victim: &&Arc<Pod>| victim.metadata.deletion_timestamp.is_none();
        for victim in room.victims.iter().filter(leaving) {
            actions.extend(eviction(victim, pod, &room.node, self.clock.now()));
        }
        let (hands, finished) = (self.hands.clone(), self.finished.clone());
        let history = self.queue.history(key);
        let (key, uid) = (key.to_owned(), uid(pod).to_owned());
        self.tasks.spawn("preempt", async move {
            for action in actions {
                let Err(failure) = cause::with(revision, hands.carry_out(action)).await else { continue };
                // Then the Pod is tried again soon, with whatever room there is.
                let outcome = Outcome { key, uid, start, history, failure: Some(failure) };
                if finished.send(outcome).await.is_err() {
                    tracing::debug!("the scheduler stopped during a preemption");
                }
                return;
            }
        });
    }

    fn bind(&mut self, key: &str, pod: &Arc<Pod>, revision: u64, (node, start): (String, Timestamp)) {
        let promise = self
            .snapshot
            .node(&node)
            .and_then(|info| Candidate::new(pod, None, &self.snapshot).promise(info));
        self.snapshot.place(pod, &node);
        self.binding.insert(key.to_owned(), uid(pod).to_owned());
        if let Some(promise) = &promise {
            self.snapshot.storage.promise(uid(pod), promise.clone());
        }
        let (volumes, waiting) = (self.volumes.clone(), pod.clone());
        let (binding, event) = (binding(pod, &node), scheduled_event(pod, key, &node));
        let (hands, finished) = (self.hands.clone(), self.finished.clone());
        let history = self.queue.history(key);
        let (key, uid) = (key.to_owned(), uid(pod).to_owned());
        self.tasks.spawn("bind", async move {
            let bound = async {
                if let Some(promise) = promise {
                    volumes::bind(&hands, &volumes, &waiting, &promise).await?;
                }
                hands.carry_out(binding).await
            };
            let failure = cause::with(revision, bound).await.err();
            if failure.is_none()
                && let Err(error) = cause::with(revision, hands.carry_out(event)).await
            {
                tracing::debug!(error, "the Scheduled event was not recorded");
            }
            if finished.send(Outcome { key, uid, start, history, failure }).await.is_err() {
                tracing::debug!("the scheduler stopped during a binding");
            }
        });
    }

    fn bound(&mut self, outcome: Outcome) {
        self.binding.remove(&outcome.key);
        self.snapshot.storage.settle(&outcome.uid);
        let now = self.clock.now();
        let Some(failure) = outcome.failure else {
            self.metrics.attempted(metrics::Outcome::scheduled, outcome.start, now);
            if !self.sociable.is_empty() {
                self.queue.cluster_changed(now);
            }
            if let Some((attempts, since)) = outcome.history {
                self.metrics.scheduled(attempts, since, now);
            }
            return;
        };
        self.metrics.attempted(metrics::Outcome::error, outcome.start, now);
        tracing::info!(pod = outcome.key, error = failure, "binding or preemption failed");
        let is_waiting = self.pods.get(&outcome.key).is_some_and(|(pod, _)| uid(pod) == outcome.uid);
        if is_waiting {
            self.snapshot.remove(&outcome.uid);
            self.queue.back_off(&outcome.key, now);
        }
    }

    fn count(&self) {
        self.metrics.waiting(self.queue.depths(), self.gated.len());
        self.metrics.cached(self.snapshot.len(), self.snapshot.placed(), self.binding.len());
    }

    /// `node` is what the Pod's status is to say about the Node that it waits for, if that changes.
    fn say_why(&self, pod: &Arc<Pod>, revision: u64, why: String, node: Option<Option<String>>) {
        let (hands, pod, now) = (self.hands.clone(), pod.clone(), self.clock.now());
        self.tasks.spawn("explain", async move {
            let mut actions = explanations(&pod, why, now);
            actions.extend(node.map(|node| nominating(&pod, node.as_deref())));
            for action in actions {
                if let Err(error) = cause::with(revision, hands.carry_out(action)).await {
                    tracing::info!(error, "could not say why a pod is unschedulable");
                }
            }
        });
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

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn is_sociable(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let affinity = spec.and_then(|spec| spec.affinity.as_ref());
    affinity.is_some_and(|affinity| affinity.pod_affinity.is_some())
        || spec.is_some_and(|spec| spec.topology_spread_constraints.is_some())
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a Node's change can make room; heartbeats cannot.
fn matters(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    old.spec != new.spec || old.metadata.labels != new.metadata.labels || allocatable(old) != allocatable(new)
}

fn binding(pod: &Pod, node: &str) -> Action {
    let (namespace, name) = names(pod);
    let body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name, "namespace": namespace, "uid": uid(pod) },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    Action::create_subresource::<Pod>(namespace, name, "binding", body)
}

fn scheduled_event(pod: &Pod, key: &str, node: &str) -> Action {
    Action::event(pod, EventType::Normal, "Scheduled", format!("Successfully assigned {key} to {node}"))
}

/// Says which Node the Pod waits for, or that it waits for none.
fn nominating(pod: &Pod, node: Option<&str>) -> Action {
    let (namespace, name) = names(pod);
    let patch = Patch::Strategic(json!({ "status": { "nominatedNodeName": node } }));
    Action::patch_status::<Pod>(namespace, name, patch)
}

/// What happens to a victim: its status says why, it is deleted, and an event tells who came.
fn eviction(victim: &Pod, pod: &Pod, node: &str, now: Timestamp) -> [Action; 3] {
    let (namespace, name) = names(victim);
    let scheduler = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": REASON,
        "message": format!("{scheduler}: preempting to accommodate a higher priority pod"),
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let patch = Patch::Strategic(json!({
        "metadata": { "uid": uid(victim) },
        "status": { "conditions": [condition] },
    }));
    let message = format!("Preempted by pod {} on node {node}", uid(pod));
    let background = Propagation::Background;
    [
        Action::patch_status::<Pod>(namespace, name, patch),
        Action::delete::<Pod>(namespace, name, Some(uid(victim)), background, None),
        Action::event(victim, EventType::Normal, "Preempted", message),
    ]
}

/// The event and the condition; the condition only if it says something new.
fn explanations(pod: &Pod, why: String, now: Timestamp) -> Vec<Action> {
    let mut actions = vec![Action::event(pod, EventType::Warning, "FailedScheduling", why.clone())];
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let known = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    if known.is_some_and(|known| known.status == "False" && known.message.as_deref() == Some(&why)) {
        return actions;
    }
    let since =
        known.filter(|known| known.status == "False").and_then(|known| known.last_transition_time.clone());
    let since = since.map_or(now, |time| time.0).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastTransitionTime": since,
    });
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let (namespace, name) = names(pod);
    actions.push(Action::patch_status::<Pod>(namespace, name, patch));
    actions
}

fn names(pod: &Pod) -> (&str, &str) {
    (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default())
}
