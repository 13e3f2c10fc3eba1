//! Brings news to the workers: changes of this node's Pods from the API, events from the runtime.
//!
//! At start the runtime is asked once what it has; after that it reports by itself. What belongs to no Pod of
//! the API any more is taken down by a worker like any other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use controller::{Informer, Scope};
use cri::{CriError, v1};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use crate::context::Context;
use crate::inbox::Inbox;
use crate::labels;
use crate::snapshot::{self, PodSnapshot};
use crate::worker::{Worker, carry_out};

/// The workers' inboxes by Pod uid. Cloning shares them.
#[derive(Clone, Default)]
pub(crate) struct Inboxes(Arc<Mutex<HashMap<String, Arc<Inbox>>>>);

impl Inboxes {
    fn get(&self, uid: &str) -> Option<Arc<Inbox>> {
        self.0.lock().get(uid).cloned()
    }

    fn all(&self) -> Vec<Arc<Inbox>> {
        self.0.lock().values().cloned().collect()
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

/// Runs until the group of tasks stops.
pub(crate) async fn run(context: Arc<Context>, pods: Informer<Pod>) {
    let inboxes = Inboxes::default();
    spawn_events(&context, &inboxes);
    pods.synced().await;
    let known: BTreeSet<String> = pods.list().iter().filter_map(|p| p.metadata.uid.clone()).collect();
    let mut found = found_in_runtime(&context).await;
    take_orphans_down(&context, &inboxes, &known, &mut found);
    remove_stray_directories(&context, &known);
    let mut changes = pods.subscribe();
    loop {
        for change in changes.next().await {
            let uid = |pod: &Option<Arc<Pod>>| pod.as_ref().and_then(|p| p.metadata.uid.clone());
            let (old, new) = (uid(&change.old), uid(&change.new));
            if let Some(inbox) = old.filter(|old| Some(old) != new.as_ref()).and_then(|uid| inboxes.get(&uid))
            {
                inbox.removed();
            }
            let (Some(uid), Some(pod)) = (new, change.new) else { continue };
            match inboxes.get(&uid) {
                Some(inbox) => inbox.pod(pod, change.revision),
                None => {
                    let state = found.remove(&uid).unwrap_or_default();
                    let snapshot = PodSnapshot { pod, ..state };
                    spawn_worker(&context, &inboxes, uid, snapshot, change.revision);
                }
            }
        }
    }
}

fn spawn_worker(context: &Arc<Context>, inboxes: &Inboxes, uid: String, snapshot: PodSnapshot, cause: u64) {
    let inbox = Arc::new(Inbox::default());
    inboxes.0.lock().insert(uid.clone(), inbox.clone());
    let worker = Worker::new(context.clone(), inbox, snapshot, cause);
    let inboxes = inboxes.clone();
    context.tasks.spawn("pod worker", async move {
        worker.run().await;
        inboxes.0.lock().remove(&uid);
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

fn take_orphans_down(
    context: &Arc<Context>,
    inboxes: &Inboxes,
    known: &BTreeSet<String>,
    found: &mut BTreeMap<String, PodSnapshot>,
) {
    let orphans: Vec<String> = found.keys().filter(|uid| !known.contains(*uid)).cloned().collect();
    for uid in orphans {
        if let Some(mut snapshot) = found.remove(&uid) {
            tracing::info!(uid, "a pod's containers run although the pod is gone");
            snapshot.removed_from_api = true;
            spawn_worker(context, inboxes, uid, snapshot, 0);
        }
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
