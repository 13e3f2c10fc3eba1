//! Events of a runtime that has none to give: it is listed every second, and what has changed are the events.
//!
//! The one place where something is asked again and again: CRI has no other way with runtimes older than its
//! `GetContainerEvents` (containerd before 1.7), and upstream's kubelet does the same. An event has the statuses of all
//! of its Pod's containers, as the call's own. Source: `pkg/kubelet/pleg/generic.go`, KEP-3386.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Clock, Tasks};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::Client;
use crate::{CriError, CriResult, RuntimeService, v1};

/// How often the runtime is listed, as upstream.
const PERIOD: Duration = Duration::from_secs(1);
/// Events that wait for a slow listener; lists wait meanwhile.
const EVENTS_MAX: usize = 256;

type Event = CriResult<v1::ContainerEventResponse>;

/// What a list says of a container or, under its own id, of a sandbox: its sandbox and state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    sandbox: String,
    is_sandbox: bool,
    state: i32,
}

/// By id.
type List = BTreeMap<String, Seen>;

/// Events from now on: what there is already is nobody's news.
pub(super) async fn events(
    client: Client,
    tasks: &Tasks,
    clock: Clock,
) -> CriResult<BoxStream<'static, Event>> {
    let mut known = list(&client).await?;
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    tasks.spawn("list the container runtime", async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = sender.closed() => return,
            }
            if let Err(error) = once(&client, &mut known, &sender, &clock).await {
                // The listener listens anew, and asks for everything.
                sender.send(Err(error)).await.unwrap_or(());
                return;
            }
        }
    });
    let stream = futures::stream::unfold(events, async |mut events| Some((events.recv().await?, events)));
    Ok(stream.boxed())
}

async fn once(
    client: &Client,
    known: &mut List,
    sender: &mpsc::Sender<Event>,
    clock: &Clock,
) -> CriResult<()> {
    let new = list(client).await?;
    let changes = changes(known, &new);
    let sandboxes: BTreeSet<&str> = changes.iter().map(|change| change.sandbox.as_str()).collect();
    let mut pods = BTreeMap::new();
    for sandbox in sandboxes {
        pods.insert(sandbox.to_owned(), pod(client, &new, sandbox).await?);
    }
    for change in changes {
        let (status, containers) = pods.get(&change.sandbox).cloned().unwrap_or_default();
        let event = v1::ContainerEventResponse {
            container_id: change.id,
            container_event_type: change.kind.into(),
            created_at: i64::try_from(clock.now().as_nanosecond()).unwrap_or(i64::MAX),
            pod_sandbox_status: status,
            containers_statuses: containers,
        };
        if sender.send(Ok(event)).await.is_err() {
            break;
        }
    }
    *known = new;
    Ok(())
}

async fn list(client: &Client) -> CriResult<List> {
    let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
    let containers = client.list_containers(v1::ListContainersRequest::default()).await?.containers;
    let sandboxes = sandboxes
        .into_iter()
        .map(|item| (item.id.clone(), Seen { sandbox: item.id, is_sandbox: true, state: item.state }));
    let containers = containers
        .into_iter()
        .map(|item| (item.id, Seen { sandbox: item.pod_sandbox_id, is_sandbox: false, state: item.state }));
    Ok(sandboxes.chain(containers).collect())
}

#[derive(Debug, PartialEq, Eq)]
struct Change {
    id: String,
    sandbox: String,
    kind: v1::ContainerEventType,
}

/// What has happened between two lists, by id.
fn changes(old: &List, new: &List) -> Vec<Change> {
    let ids: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |id: &String| {
        let (before, after) = (old.get(id), new.get(id));
        if before == after {
            return None;
        }
        let kind = after.map_or(v1::ContainerEventType::ContainerDeletedEvent, kind);
        let sandbox = after.or(before)?.sandbox.clone();
        Some(Change { id: id.clone(), sandbox, kind })
    };
    ids.into_iter().filter_map(change).collect()
}

fn kind(seen: &Seen) -> v1::ContainerEventType {
    use v1::ContainerEventType::{ContainerCreatedEvent, ContainerStartedEvent, ContainerStoppedEvent};
    if seen.is_sandbox {
        let is_ready = seen.state == i32::from(v1::PodSandboxState::SandboxReady);
        return if is_ready { ContainerStartedEvent } else { ContainerStoppedEvent };
    }
    match v1::ContainerState::try_from(seen.state) {
        Ok(v1::ContainerState::ContainerCreated) => ContainerCreatedEvent,
        Ok(v1::ContainerState::ContainerRunning) => ContainerStartedEvent,
        _ => ContainerStoppedEvent,
    }
}

type Pod = (Option<v1::PodSandboxStatus>, Vec<v1::ContainerStatus>);

async fn pod(client: &Client, list: &List, sandbox: &str) -> CriResult<Pod> {
    let request = v1::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
    let status = match client.pod_sandbox_status(request).await {
        Err(CriError::NotFound(_)) => None,
        other => other?.status,
    };
    let mut containers = Vec::new();
    for id in list.iter().filter(|(_, seen)| !seen.is_sandbox && seen.sandbox == sandbox).map(|(id, _)| id) {
        let request = v1::ContainerStatusRequest { container_id: id.clone(), verbose: false };
        match client.container_status(request).await {
            Err(CriError::NotFound(_)) => {}
            other => containers.extend(other?.status),
        }
    }
    Ok((status, containers))
}

#[cfg(test)]
mod tests;
