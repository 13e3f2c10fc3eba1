//! Brings news to the workers: changes of this node's Pods from the API and from files, events from the runtime.
//!
//! At start the runtime is asked once what it has; after that it reports by itself. What belongs to no Pod any more is
//! taken down by a worker like any other. Static Pods run before the API answers, and without it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use controller::{Change, EventType, Informer, Scope};
use cri::{CriError, v1};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::admission::{self, Question, Rejection};
use crate::context::Context;
use crate::inbox::Inbox;
use crate::labels;
use crate::snapshot::{self, Ending, PodSnapshot};
use crate::static_pods::{self, StaticPods, is_mirror};
use crate::worker::{Worker, carry_out};

/// The workers' inboxes by Pod uid. Cloning shares them.
#[derive(Clone, Default)]
pub(crate) struct Inboxes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inboxes: Mutex<HashMap<String, Arc<Inbox>>>,
    mirrors: Notify,
    desk: Notify,
}

impl Inboxes {
    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Inbox>> {
        self.0.inboxes.lock().get(uid).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Inbox>> {
        self.0.inboxes.lock().values().cloned().collect()
    }

    /// The Pods that have a worker.
    pub(crate) fn uids(&self) -> BTreeSet<String> {
        self.0.inboxes.lock().keys().cloned().collect()
    }

    /// Waits until a worker has ended; for mirrors.
    pub(crate) async fn ended(&self) {
        self.0.mirrors.notified().await;
    }

    fn remove(&self, uid: &str) {
        self.0.inboxes.lock().remove(uid);
        self.0.mirrors.notify_one();
        self.0.desk.notify_one();
    }
}

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
    context: Arc<Context>,
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
    context: Arc<Context>,
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
    desk.take_statics(&first);
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
                    desk.take_statics(&now);
                }
                // Everything stops.
                Err(_) => return,
            },
            () = inboxes.0.desk.notified() => desk.start_waiting(),
            changed = changes.next(), if is_synced => desk.take_changes(changed),
        }
    }
}

impl Desk {
    fn take_changes(&mut self, mut changes: Vec<Change<Pod>>) {
        // Who was there first has its room first.
        let age = |change: &Change<Pod>| {
            let pod = change.new.as_ref()?;
            pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
        };
        changes.sort_by_key(age);
        for change in changes {
            let shown = change.new.as_ref().or(change.old.as_ref()).filter(|pod| is_mirror(pod));
            if let Some(mirror) = shown {
                self.take_mirror(&static_pods::key(mirror), change.new.clone());
                continue;
            }
            let uid = |pod: &Option<Arc<Pod>>| pod.as_ref().and_then(|p| p.metadata.uid.clone());
            let (old, new) = (uid(&change.old), uid(&change.new));
            let replaced = old.filter(|old| Some(old) != new.as_ref()).and_then(|uid| self.inboxes.get(&uid));
            if let Some(inbox) = replaced {
                inbox.removed();
            }
            let (Some(uid), Some(pod)) = (new, change.new) else { continue };
            match self.inboxes.get(&uid) {
                Some(inbox) => inbox.pod(pod, change.revision),
                None => self.start(uid, pod, change.revision),
            }
        }
    }

    fn take_mirror(&self, key: &str, mirror: Option<Arc<Pod>>) {
        let uid = self.statics.get(key).and_then(|pod| pod.metadata.uid.clone());
        if let Some(inbox) = uid.and_then(|uid| self.inboxes.get(&uid)) {
            inbox.mirror(mirror);
        }
    }

    /// Starts what is new, ends what is gone; what is another Pod now waits for the one before.
    fn take_statics(&mut self, now: &StaticPods) {
        let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
        for (key, old) in std::mem::take(&mut self.statics) {
            if now.get(&key).is_some_and(|new| new.metadata.uid == old.metadata.uid) {
                self.statics.insert(key, old);
            } else if let Some(inbox) = self.inboxes.get(&uid(&old)) {
                inbox.removed();
                self.leaving.insert(key, uid(&old));
            }
        }
        let is_new = |key: &&String| !self.statics.contains_key(*key);
        self.waiting =
            now.keys().filter(is_new).filter_map(|key| Some((key.clone(), now.get(key)?.clone()))).collect();
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        for (key, pod) in std::mem::take(&mut self.waiting) {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            self.take_old_namesake_down(&key, &uid);
            if self.leaving.get(&key).is_some_and(|old| self.inboxes.get(old).is_some()) {
                self.waiting.insert(key, pod);
                continue;
            }
            self.leaving.remove(&key);
            self.statics.insert(key.clone(), pod.clone());
            self.start(uid, pod, 0);
            let mirror = self.pods.get(&key).filter(|mirror| is_mirror(mirror));
            self.take_mirror(&key, mirror);
        }
    }

    /// What an earlier kubelet has left of another Pod of that name.
    fn take_old_namesake_down(&mut self, key: &str, uid: &str) {
        let is_old =
            |(other, found): &(&String, &PodSnapshot)| *other != uid && static_pods::key(&found.pod) == key;
        let old = self.found.iter().find(is_old).map(|(uid, _)| uid.clone());
        let Some((old, mut snapshot)) = old.and_then(|uid| self.found.remove_entry(&uid)) else { return };
        snapshot.removed_from_api = true;
        spawn_worker(&self.context, &self.inboxes, old.clone(), snapshot, 0);
        self.leaving.insert(key.to_owned(), old);
    }

    /// Takes a Pod that is new here, unless the node cannot.
    fn start(&mut self, uid: String, pod: Arc<Pod>, cause: u64) {
        let state = self.found.remove(&uid).unwrap_or_default();
        let mut snapshot = PodSnapshot { pod, ..state };
        // What runs already was taken before.
        let is_over = matches!(snapshot.recorded_phase(), "Succeeded" | "Failed");
        let is_new = snapshot.sandboxes.is_empty() && !is_over && !snapshot.is_terminating();
        if is_new && let Err(rejection) = self.admit(&uid, &snapshot.pod) {
            let Rejection { reason, message } = rejection;
            tracing::info!(uid, reason, message, "a pod was not taken");
            self.context.event(&snapshot.pod, None, EventType::Warning, &reason, message.clone());
            self.context.metrics.rejected(&reason);
            let message = format!("Pod was rejected: {message}");
            snapshot.ending = Some(Ending { reason, message, is_rejection: true, ..Ending::default() });
        }
        spawn_worker(&self.context, &self.inboxes, uid, snapshot, cause);
    }

    fn admit(&self, uid: &str, pod: &Pod) -> Result<(), Rejection> {
        let context = &self.context;
        admission::admit(&Question {
            pod,
            node: &context.node(),
            room: &context.allocations.room(context.allocatable_now()),
            pressure: &context.node_state.pressure(),
            unsafe_sysctls: &context.config.allowed_unsafe_sysctls,
        })?;
        let Some(spec) = &pod.spec else { return Ok(()) };
        let unexpected = |error| Rejection {
            reason: "UnexpectedAdmissionError".into(),
            message: format!("Allocate failed due to {error}, which is unexpected"),
        };
        context.devices.allocate(uid, spec).map_err(unexpected)?;
        let Some(cpus) = &context.cpus else { return Ok(()) };
        cpus.allocate(uid, spec).map_err(unexpected)?;
        self.inboxes.all().iter().for_each(|inbox| inbox.cpus_changed());
        Ok(())
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
                snapshot.removed_from_api = true;
                spawn_worker(&self.context, &self.inboxes, uid, snapshot, 0);
            }
        }
        let mut kept = known;
        kept.extend(self.inboxes.uids());
        if let Some(cpus) = &self.context.cpus {
            cpus.keep_only(&kept);
        }
        self.context.devices.keep_only(&kept);
        remove_stray_directories(&self.context, &kept);
    }
}

fn spawn_worker(context: &Arc<Context>, inboxes: &Inboxes, uid: String, snapshot: PodSnapshot, cause: u64) {
    let inbox = Arc::new(Inbox::default());
    if !snapshot.sandboxes.is_empty() {
        // What has happened since the runtime was asked was told to nobody.
        inbox.runtime_event(v1::ContainerEventResponse::default());
    }
    inboxes.0.inboxes.lock().insert(uid.clone(), inbox.clone());
    let worker = Worker::new(context.clone(), inbox, snapshot, cause);
    let (inboxes, owner) = (inboxes.clone(), context.clone());
    context.tasks.spawn("pod worker", async move {
        worker.run().await;
        inboxes.remove(&uid);
        owner.devices.release(&uid);
        if owner.cpus.as_ref().is_some_and(|cpus| cpus.release(&uid)) {
            inboxes.all().iter().for_each(|inbox| inbox.cpus_changed());
        }
    });
}

/// What the runtime has, by Pod uid; asked again until it answers.
async fn found_in_runtime(context: &Context) -> BTreeMap<String, PodSnapshot> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0.1);
    loop {
        match try_found_in_runtime(context).await {
            Ok(found) => return found,
            Err(error) => tracing::warn!(%error, "the runtime did not say what it has"),
        }
        tokio::time::sleep(backoff.next(&context.random)).await;
    }
}

async fn try_found_in_runtime(context: &Context) -> Result<BTreeMap<String, PodSnapshot>, CriError> {
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

/// Directories of Pods of which neither the API nor the runtime knows. Drivers that are to take something back may come
/// a little later.
fn remove_stray_directories(context: &Arc<Context>, known: &BTreeSet<String>) {
    for entry in std::fs::read_dir(context.config.root_dir.join("pods")).into_iter().flatten().flatten() {
        if !known.contains(entry.file_name().to_string_lossy().as_ref()) {
            context.tasks.spawn("stray directory", remove_stray(context.clone(), entry.path()));
        }
    }
}

async fn remove_stray(context: Arc<Context>, pod_dir: PathBuf) {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60), 0.1);
    loop {
        let removed = match crate::volumes::persistent::tear_down(&context, &pod_dir).await {
            Ok(()) => {
                let pod_dir = pod_dir.clone();
                let removing = tokio::task::spawn_blocking(move || crate::volumes::tear_down(&pod_dir));
                removing.await.unwrap_or_else(|error| Err(error.to_string()))
            }
            Err(error) => Err(error),
        };
        let Err(error) = removed else { return };
        tracing::warn!(error, "a directory of a pod that is gone was not removed");
        tokio::time::sleep(backoff.next(&context.random)).await;
    }
}

/// Forwards the runtime's events; when the stream breaks, every worker asks for everything once.
fn spawn_events(context: &Arc<Context>, inboxes: &Inboxes) {
    let (context, inboxes) = (context.clone(), inboxes.clone());
    context.tasks.clone().spawn("runtime events", async move {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0.1);
        loop {
            match context.runtime.get_container_events(v1::GetEventsRequest {}).await {
                Ok(mut events) => {
                    for inbox in inboxes.all() {
                        inbox.runtime_event(v1::ContainerEventResponse::default());
                    }
                    while let Some(Ok(event)) = events.next().await {
                        backoff.reset();
                        forward(&inboxes, event);
                    }
                    tracing::debug!("the stream of runtime events has ended");
                }
                Err(error) => tracing::warn!(%error, "the runtime gives no events"),
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
