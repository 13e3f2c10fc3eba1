//! Brings news to the workers: changes of this node's Pods from the API and from files, events from the runtime.
//!
//! At start the runtime is asked once what it has; after that it reports by itself. What belongs to no Pod any more is
//! taken down by a worker like any other. Static Pods run before the API answers, and without it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Backoff;
use controller::{Change, EventType, Informer, Scope, request};
use cri::{CriError, v1};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::watch;

use crate::context::Context;
use crate::inbox::Inbox;
use crate::inbox::Inboxes;
use crate::kubelet::Kubelet;
use crate::kubelet::orphans;
use crate::kubelet::static_pods::StaticPods;
use crate::kubelet::termination_reasons;
use crate::kubelet::worker::{Worker, carry_out};
use crate::metrics::{Count, Level, Measure};
use crate::pod::admission::{self, Misfit, Question, Rejection};
use crate::pod::identity::is_critical;
use crate::pod::identity::is_mirror;
use crate::pod::identity::namespaced_name;
use crate::pod::labels;
use crate::pod::preemption;
use crate::pod::snapshot::rejected;
use crate::pod::snapshot::{self, Ending, PodSnapshot};
use crate::pod::time::nanos;

/// How long a Pod, and all that come after it, wait for the API server to say how the node is labelled.
const FRESH_NODE_MAX: Duration = Duration::from_secs(5);

/// The informer of this node's Pods.
pub(crate) fn informer(context: &Context) -> Informer<Pod> {
    context.informers.scoped(Scope {
        namespace: None,
        field_selector: Some(format!("spec.nodeName={}", context.config.node_name)),
        label_selector: None,
    })
}

/// Where news come in and workers go out.
struct Desk {
    context: Arc<Kubelet>,
    pods: Informer<Pod>,
    inboxes: Inboxes,
    /// What the runtime had at start, of Pods that nobody has named yet.
    found: BTreeMap<String, PodSnapshot>,
    /// Those that have been given to workers.
    statics: StaticPods,
    /// Static Pods whose namesake is still on its way down.
    waiting: StaticPods,
    /// Uids of those namesakes.
    leaving: BTreeMap<String, String>,
}

/// Runs until the group of tasks stops.
pub(crate) async fn run(
    context: Arc<Kubelet>,
    pods: Informer<Pod>,
    mut statics: watch::Receiver<Arc<StaticPods>>,
    inboxes: Inboxes,
) {
    spawn_events(&context, &inboxes);
    let found = found_in_runtime(&context).await;
    let (waiting, given) = (StaticPods::new(), StaticPods::new());
    let leaving = BTreeMap::new();
    let (pods_of_desk, inboxes_of_desk) = (pods.clone(), inboxes.clone());
    let mut desk = Desk {
        context,
        pods: pods_of_desk,
        inboxes: inboxes_of_desk,
        found,
        statics: given,
        waiting,
        leaving,
    };
    let first = statics.borrow_and_update().clone();
    desk.take_statics(&first).await;
    let mut is_synced = false;
    let mut changes = pods.subscribe();
    loop {
        tokio::select! {
            () = pods.synced(), if !is_synced => {
                is_synced = true;
                desk.take_orphans_down().await;
            }
            changed = statics.changed() => match changed {
                Ok(()) => {
                    let now = statics.borrow_and_update().clone();
                    desk.take_statics(&now).await;
                }
                // Everything stops.
                Err(_) => return,
            },
            () = inboxes.one_ended() => desk.start_waiting().await,
            changed = changes.next(), if is_synced => desk.take_changes(changed).await,
        }
    }
}

impl Desk {
    async fn take_changes(&mut self, mut changes: Vec<Change<Pod>>) {
        // Who was there first has its room first.
        let age = |change: &Change<Pod>| {
            let pod = change.new.as_ref()?;
            pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
        };
        changes.sort_by_key(age);
        for change in changes {
            let shown = change.new.as_ref().or(change.old.as_ref()).filter(|pod| is_mirror(pod));
            if let Some(mirror) = shown {
                self.take_mirror(&namespaced_name(mirror), change.new.clone());
                continue;
            }
            let uid = |pod: &Option<Arc<Pod>>| pod.as_ref().and_then(|p| p.metadata.uid.clone());
            let (old, new) = (uid(&change.old), uid(&change.new));
            if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
                self.remove(&old);
            }
            let (Some(uid), Some(pod)) = (new, change.new) else { continue };
            match self.inboxes.get(&uid) {
                Some(inbox) => inbox.pod(pod, change.revision),
                None => self.start(uid, pod, change.revision).await,
            }
        }
    }

    /// Nobody wants the Pod any more. What it has is not counted from now on, for who comes next. Whether it was here.
    fn remove(&self, uid: &str) -> bool {
        let inbox = self.inboxes.get(uid);
        if let Some(inbox) = &inbox {
            inbox.removed();
            self.context.resources.allocations.remove(uid);
        }
        inbox.is_some()
    }

    fn take_mirror(&self, key: &str, mirror: Option<Arc<Pod>>) {
        let uid = self.statics.get(key).and_then(|pod| pod.metadata.uid.clone());
        if let Some(inbox) = uid.and_then(|uid| self.inboxes.get(&uid)) {
            inbox.mirror(mirror);
        }
    }

    /// Starts what is new, ends what is gone; what is another Pod now waits for the one before.
    async fn take_statics(&mut self, now: &StaticPods) {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        for (key, old) in std::mem::take(&mut self.statics) {
            if now.get(&key).is_some_and(|new| new.metadata.uid == old.metadata.uid) {
                self.statics.insert(key, old);
            } else if self.remove(&uid(&old)) {
                self.leaving.insert(key, uid(&old));
            }
        }
        let is_new = |key: &&String| !self.statics.contains_key(*key);
        self.waiting =
            now.keys().filter(is_new).filter_map(|key| Some((key.clone(), now.get(key)?.clone()))).collect();
        self.start_waiting().await;
    }

    async fn start_waiting(&mut self) {
        for (key, pod) in std::mem::take(&mut self.waiting) {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            self.take_old_namesake_down(&key, &uid);
            if self.leaving.get(&key).is_some_and(|old| self.inboxes.get(old).is_some()) {
                self.waiting.insert(key, pod);
                continue;
            }
            if self.leaving.remove(&key).as_ref() == Some(&uid) {
                self.context.metrics.count(Count::RestartedPods, &["true"]);
            }
            self.statics.insert(key.clone(), pod.clone());
            self.start(uid, pod, 0).await;
            let mirror = self.pods.get(&key).filter(|mirror| is_mirror(mirror));
            self.take_mirror(&key, mirror);
        }
    }

    /// What an earlier kubelet has left of another Pod of that name.
    fn take_old_namesake_down(&mut self, key: &str, uid: &str) {
        let is_old =
            |(other, found): &(&String, &PodSnapshot)| *other != uid && namespaced_name(&found.pod) == key;
        let old = self.found.iter().find(is_old).map(|(uid, _)| uid.clone());
        let Some((old, mut snapshot)) = old.and_then(|uid| self.found.remove_entry(&uid)) else { return };
        snapshot.removed_from_api = true;
        spawn_worker(&self.context, &self.inboxes, old.clone(), snapshot, 0, None);
        self.leaving.insert(key.to_owned(), old);
    }

    /// Takes a Pod that is new here, unless the node cannot.
    async fn start(&mut self, uid: String, pod: Arc<Pod>, cause: u64) {
        let state = self.found.remove(&uid).unwrap_or_default();
        let mut snapshot = PodSnapshot { pod, ..state };
        snapshot.ending = termination_reasons::of(&self.context.config, &snapshot);
        // What runs already was taken before.
        let is_over =
            matches!(snapshot.recorded_phase(), "Succeeded" | "Failed") || snapshot.ending.is_some();
        let is_new = snapshot.sandboxes.is_empty() && !is_over && !snapshot.is_terminating();
        let mut before = None;
        let admitted = match is_new {
            true => self.admit(&uid, &snapshot.pod).await.map(Some),
            false => Ok(None),
        };
        match admitted {
            Ok(victims) => before = victims,
            Err(Rejection { reason, message }) => {
                give_back(&self.context, &self.inboxes, &uid);
                tracing::info!(uid, reason, message, "a pod was not taken");
                self.context.event(&snapshot.pod, None, EventType::Warning, &reason, message.clone());
                self.context.metrics.rejected(&reason);
                snapshot.ending = Some(rejected(reason, message));
            }
        }
        spawn_worker(&self.context, &self.inboxes, uid, snapshot, cause, before);
    }

    /// Takes the Pod. Gives those that must go before it runs.
    async fn admit(&self, uid: &str, pod: &Pod) -> Result<Vec<Arc<Inbox>>, Rejection> {
        let context = &self.context;
        if context.node_state.is_shutting_down() {
            return Err(admission::shutting_down());
        }
        let (node, pressure) = (context.node(), context.node_state.pressure());
        let room = context.resources.allocations.room(context.resources.allocatable_now());
        let unsafe_sysctls = &context.config.allowed_unsafe_sysctls;
        let question = Question { pod, node: &node, room: &room, pressure: &pressure, unsafe_sysctls };
        admission::welcome(&question)?;
        if let Some(spec) = &pod.spec {
            context.resources.allocate(uid, spec)?;
        }
        let fits = match admission::fits(&question) {
            Err(Misfit::Labels(rejection)) => match self.fresh_node().await {
                Some(fresh) => admission::fits(&Question { node: &fresh, ..question }),
                None => Err(Misfit::Labels(rejection)),
            },
            known => known,
        };
        let victims = match fits {
            Ok(()) => Vec::new(),
            Err(Misfit::Room(_, lacking)) if is_critical(pod) => self.preempt(pod, &lacking)?,
            Err(misfit) => return Err(misfit.into_rejection()),
        };
        if context.resources.cpus.is_some() {
            self.inboxes.all().iter().for_each(|inbox| inbox.cpus_changed());
        }
        Ok(victims)
    }

    /// The node as the API server has it now: the informer may not have been told yet.
    async fn fresh_node(&self) -> Option<Node> {
        let context = &self.context;
        let node = request::get::<Node>(&context.client, "", &context.config.node_name);
        match tokio::time::timeout(FRESH_NODE_MAX, node).await {
            Ok(Ok(node)) => Some(node),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the node was not looked up");
                None
            }
            Err(_) => {
                tracing::warn!("the API server did not say in time how the node is labelled");
                None
            }
        }
    }

    /// Lets Pods go that matter less than this one. Source: `pkg/kubelet/preemption`.
    fn preempt(&self, pod: &Pod, lacking: &[(String, i64)]) -> Result<Vec<Arc<Inbox>>, Rejection> {
        let context = &self.context;
        let victims =
            preemption::victims(pod, &context.resources.allocations.holders(), lacking).map_err(|error| {
                let error = format!("preemption: error finding a set of pods to preempt: {error}");
                let message =
                    format!("Unexpected error while attempting to recover from admission failure: {error}");
                Rejection::new("UnexpectedAdmissionError", message)
            })?;
        let mut inboxes = Vec::new();
        for victim in victims {
            let uid = victim.metadata.uid.as_deref().unwrap_or_default();
            let Some(inbox) = self.inboxes.get(uid) else { continue };
            let message = preemption::MESSAGE.to_owned();
            tracing::info!(pod = uid, "a pod goes for a critical one");
            context.event(&victim, None, EventType::Warning, preemption::REASON, message.clone());
            // One, however much is lacking: all of them together are the Pods that had to go.
            let resource = lacking.first().map_or("", |(resource, _)| resource);
            context.metrics.count(Count::Preemptions, &[resource]);
            let reason = preemption::REASON.into();
            inbox.end(Ending { reason, message, is_disruption: true, ..Ending::default() });
            inboxes.push(inbox);
        }
        Ok(inboxes)
    }

    /// What the runtime has of Pods that neither the API nor a file names, and their directories.
    async fn take_orphans_down(&mut self) {
        let of_api = self.pods.list().into_iter().filter(|pod| !is_mirror(pod));
        let all = of_api.chain(self.statics.values().chain(self.waiting.values()).cloned());
        let known: BTreeSet<String> = all.filter_map(|pod| pod.metadata.uid.clone()).collect();
        let orphans: Vec<String> = self.found.keys().filter(|uid| !known.contains(*uid)).cloned().collect();
        for uid in orphans {
            if let Some(mut snapshot) = self.found.remove(&uid) {
                tracing::info!(uid, "a pod's containers run although the pod is gone");
                self.context.metrics.count(Count::OrphanedPods, &[]);
                snapshot.removed_from_api = true;
                spawn_worker(&self.context, &self.inboxes, uid, snapshot, 0, None);
            }
        }
        let mut kept = known;
        kept.extend(self.inboxes.uids());
        self.context.resources.keep_only(&kept);
        crate::node_resources::dra::take_back(&self.context.resources, &kept);
        orphans::remove(&self.context, &kept);
    }
}

/// What a Pod has alone is everybody's again.
fn give_back(context: &Kubelet, inboxes: &Inboxes, uid: &str) {
    if context.resources.release(uid) {
        inboxes.all().iter().for_each(|inbox| inbox.cpus_changed());
    }
}

/// The Pod's worker. That of a Pod which was just taken begins when all of `before` have stopped, and its plugins have
/// given its devices.
fn spawn_worker(
    context: &Arc<Kubelet>,
    inboxes: &Inboxes,
    uid: String,
    snapshot: PodSnapshot,
    cause: u64,
    before: Option<Vec<Arc<Inbox>>>,
) {
    let inbox = Arc::new(Inbox::default());
    if !snapshot.sandboxes.is_empty() {
        // What has happened since the runtime was asked was told to nobody.
        inbox.runtime_event(v1::ContainerEventResponse::default());
    }
    inboxes.insert(uid.clone(), inbox.clone());
    let pod = snapshot.pod.clone();
    let seen_at = std::time::Instant::now();
    let worker = Worker::new(context.clone(), inbox.clone(), snapshot, cause);
    let (inboxes, owner) = (inboxes.clone(), context.clone());
    context.tasks.spawn("pod worker", async move {
        let is_new = before.is_some();
        for other in before.into_iter().flatten() {
            other.stopped().await;
        }
        if is_new && let Err(Rejection { reason, message }) = owner.resources.devices.ask(&uid).await {
            owner.event(&pod, None, EventType::Warning, &reason, message.clone());
            owner.metrics.rejected(&reason);
            inbox.end(rejected(reason, message));
        }
        owner.metrics.measure(Measure::PodWorkerStart, &[], seen_at.elapsed());
        // A Pod that is over has nothing alone, however long its object stays.
        let over = async {
            inbox.stopped().await;
            give_back(&owner, &inboxes, &uid);
        };
        tokio::join!(worker.run(), over);
        inboxes.remove(&uid);
    });
}

/// What the runtime has, by Pod uid; asked again until it answers.
async fn found_in_runtime(context: &Kubelet) -> BTreeMap<String, PodSnapshot> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0.1);
    loop {
        let start = std::time::Instant::now();
        match try_found_in_runtime(context).await {
            Ok(found) => {
                context.metrics.measure(Measure::Relist, &[], start.elapsed());
                return found;
            }
            Err(error) => tracing::warn!(%error, "the runtime did not say what it has"),
        }
        tokio::time::sleep(backoff.next(&context.random)).await;
    }
}

async fn try_found_in_runtime(context: &Kubelet) -> Result<BTreeMap<String, PodSnapshot>, CriError> {
    let request = v1::ListPodSandboxRequest { filter: None };
    let mut found = BTreeMap::new();
    for sandbox in context.runtime.list_pod_sandbox(request).await?.items {
        let metadata = sandbox.metadata.unwrap_or_default();
        if metadata.uid.is_empty() || found.contains_key(&metadata.uid) {
            continue;
        }
        let (sandboxes, containers) = carry_out::runtime_state(context, &metadata.uid).await?;
        let containers: Vec<_> =
            containers.iter().map(|(status, id)| snapshot::Container::from_cri(status, id)).collect();
        let pod = Arc::new(stand_in(&metadata, &containers));
        found.insert(metadata.uid, PodSnapshot { pod, sandboxes, containers, ..PodSnapshot::default() });
    }
    Ok(found)
}

/// A Pod with no more than what taking it down needs.
fn stand_in(metadata: &v1::PodSandboxMetadata, containers: &[snapshot::Container]) -> Pod {
    let names: BTreeSet<&str> = containers.iter().map(|c| c.name.as_str()).collect();
    let containers = names.into_iter().map(|name| Container { name: name.into(), ..Container::default() });
    Pod {
        metadata: ObjectMeta {
            name: Some(metadata.name.clone()),
            namespace: Some(metadata.namespace.clone()),
            uid: Some(metadata.uid.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { containers: containers.collect(), ..PodSpec::default() }),
        status: None,
    }
}

/// Forwards the runtime's events; when the stream breaks, every worker asks for everything once.
fn spawn_events(context: &Arc<Kubelet>, inboxes: &Inboxes) {
    let (context, inboxes) = (context.clone(), inboxes.clone());
    context.tasks.clone().spawn("runtime events", async move {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0.1);
        loop {
            match context.runtime.get_container_events(v1::GetEventsRequest {}).await {
                Ok(mut events) => {
                    context.metrics.count(Count::EventConnections, &[]);
                    for inbox in inboxes.all() {
                        inbox.runtime_event(v1::ContainerEventResponse::default());
                    }
                    let now = || context.clock.now();
                    context.metrics.is_listening.store(true, Ordering::Relaxed);
                    while let Some(Ok(event)) = events.next().await {
                        backoff.reset();
                        let took = now().duration_since(nanos(event.created_at));
                        context.metrics.measure(
                            Measure::EventLatency,
                            &[],
                            Duration::try_from(took).unwrap_or_default(),
                        );
                        forward(&inboxes, event);
                    }
                    context.metrics.set(Level::EventsLastSeen, &[], now());
                    context.metrics.is_listening.store(false, Ordering::Relaxed);
                    tracing::debug!("the stream of runtime events has ended");
                }
                Err(error) => {
                    context.metrics.count(Count::EventConnectionErrors, &[]);
                    tracing::warn!(%error, "the runtime gives no events");
                }
            }
            tokio::time::sleep(backoff.next(&context.random)).await;
        }
    });
}

fn forward(inboxes: &Inboxes, event: v1::ContainerEventResponse) {
    let metadata = event.pod_sandbox_status.as_ref().and_then(|s| s.metadata.as_ref());
    let label = event
        .containers_statuses
        .iter()
        .find_map(|status| status.labels.get(labels::POD_UID).cloned())
        .or_else(|| metadata.map(|m| m.uid.clone()));
    match label.filter(|uid| !uid.is_empty()) {
        Some(uid) => {
            if let Some(inbox) = inboxes.get(&uid) {
                inbox.runtime_event(event);
            }
        }
        None => {
            for inbox in inboxes.all() {
                inbox.runtime_event(v1::ContainerEventResponse::default());
            }
        }
    }
}

#[cfg(test)]
mod tests;
