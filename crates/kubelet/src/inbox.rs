//! What a worker is told from outside. Bounded by coalescing: per Pod, container and probe only the newest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use cri::v1;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::metrics::work;
use crate::pod::probe::ProbeKind;
use crate::pod::snapshot::{Ending, Sandbox};

/// News since the worker looked last.
#[derive(Default)]
pub(crate) struct Mail {
    /// The newest object and the revision that brought it.
    pub(crate) pod: Option<(Arc<Pod>, u64)>,
    /// The object is gone.
    pub(crate) is_removed: bool,
    /// Ask the runtime for everything.
    pub(crate) refresh: bool,
    /// By container id, with its sandbox's id.
    pub(crate) containers: BTreeMap<String, (v1::ContainerStatus, String)>,
    /// By sandbox id.
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    /// By container name and probe: the container's id and the result.
    pub(crate) probes: BTreeMap<(String, ProbeKind), (String, bool)>,
    /// A ConfigMap or Secret has changed.
    pub(crate) sources_changed: bool,
    /// There is room for a resize that waits: why.
    pub(crate) room: Option<&'static str>,
    /// The object that shows a static Pod; `Some(None)` when it is gone.
    pub(crate) mirror: Option<Option<Arc<Pod>>>,
    /// The Pod must go.
    pub(crate) ending: Option<Ending>,
    /// Which CPUs are shared has changed.
    pub(crate) cpus_changed: bool,
}

/// How far a Pod's way down is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Something of it runs, or may.
    #[default]
    Up,
    /// Nothing of it runs any more, and nothing will.
    Stopped,
    /// Nor has it volumes any more.
    Released,
}

/// See [`Mail`].
#[derive(Default)]
pub(crate) struct Inbox {
    mail: Mutex<Mail>,
    news: Notify,
    /// What the worker was at when it looked last.
    work: Mutex<Option<work::Work>>,
    stage: watch::Sender<Stage>,
}

impl Inbox {
    /// Waits until there is something.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Nothing of the Pod runs any more, and nothing will.
    pub(crate) fn set_stopped(&self) {
        self.reach(Stage::Stopped);
    }

    /// The Pod has given back what it had beside its containers' files and logs.
    pub(crate) fn set_released(&self) {
        self.reach(Stage::Released);
    }

    fn reach(&self, new: Stage) {
        self.stage.send_if_modified(|stage| {
            let is_later = *stage < new;
            *stage = new.max(*stage);
            is_later
        });
    }

    /// Waits until nothing of the Pod runs any more.
    pub(crate) async fn stopped(&self) {
        self.reached(Stage::Stopped).await;
    }

    /// Waits until the Pod has given back what it had.
    pub(crate) async fn released(&self) {
        self.reached(Stage::Released).await;
    }

    async fn reached(&self, wanted: Stage) {
        // The sender is our own.
        if self.stage.subscribe().wait_for(|stage| *stage >= wanted).await.is_err() {
            tracing::debug!("an inbox went while it was waited for");
        }
    }

    /// What the worker is at.
    pub(crate) fn set_work(&self, work: work::Work) {
        *self.work.lock() = Some(work);
    }

    /// See [`Inbox::set_work`].
    pub(crate) fn work(&self) -> work::Work {
        self.work.lock().unwrap_or(work::NEW)
    }

    /// Everything that has come.
    pub(crate) fn take(&self) -> Mail {
        std::mem::take(&mut *self.mail.lock())
    }

    fn put(&self, change: impl FnOnce(&mut Mail)) {
        change(&mut self.mail.lock());
        self.news.notify_one();
    }

    pub(crate) fn pod(&self, pod: Arc<Pod>, revision: u64) {
        self.put(|mail| mail.pod = Some((pod, revision)));
    }

    pub(crate) fn removed(&self) {
        self.put(|mail| mail.is_removed = true);
    }

    pub(crate) fn sources_changed(&self) {
        self.put(|mail| mail.sources_changed = true);
    }

    pub(crate) fn mirror(&self, mirror: Option<Arc<Pod>>) {
        self.put(|mail| mail.mirror = Some(mirror));
    }

    pub(crate) fn end(&self, ending: Ending) {
        self.put(|mail| mail.ending = Some(ending));
    }

    pub(crate) fn cpus_changed(&self) {
        self.put(|mail| mail.cpus_changed = true);
    }

    pub(crate) fn room(&self, why: &'static str) {
        self.put(|mail| mail.room = Some(why));
    }

    pub(crate) fn probe(&self, container: &str, kind: ProbeKind, container_id: &str, is_success: bool) {
        self.put(|mail| {
            mail.probes.insert((container.to_owned(), kind), (container_id.to_owned(), is_success));
        });
    }

    /// What the runtime reported; asks for everything if it reported no more than that something happened.
    pub(crate) fn runtime_event(&self, event: v1::ContainerEventResponse) {
        self.put(|mail| {
            let sandbox = event.pod_sandbox_status.unwrap_or_default();
            mail.refresh |= sandbox.id.is_empty()
                || (event.containers_statuses.is_empty() && event.container_id != sandbox.id);
            for status in event.containers_statuses {
                mail.containers.insert(status.id.clone(), (status, sandbox.id.clone()));
            }
            if !sandbox.id.is_empty() {
                mail.sandboxes.insert(sandbox.id.clone(), sandbox_from_cri(&sandbox));
            }
        });
    }
}

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

    /// A worker begins.
    pub(crate) fn insert(&self, uid: String, inbox: Arc<Inbox>) {
        self.0.inboxes.lock().insert(uid, inbox);
    }

    /// Waits until a worker has ended; for the desk.
    pub(crate) async fn one_ended(&self) {
        self.0.desk.notified().await;
    }

    pub(crate) fn remove(&self, uid: &str) {
        self.0.inboxes.lock().remove(uid);
        self.0.mirrors.notify_one();
        self.0.desk.notify_one();
    }
}

/// From the runtime's report.
pub(crate) fn sandbox_from_cri(status: &v1::PodSandboxStatus) -> Sandbox {
    let network = status.network.as_ref();
    Sandbox {
        id: status.id.clone(),
        attempt: status.metadata.as_ref().map_or(0, |m| m.attempt),
        is_ready: status.state == i32::from(v1::PodSandboxState::SandboxReady),
        ips: network.and_then(addresses).unwrap_or_default(),
        lacks_ip: network.is_some_and(|network| network.ip.is_empty()),
    }
}

/// All addresses, the main one first; none if one of them is no address, which the API server would not take. Source:
/// `determinePodSandboxIPs` of upstream's `pkg/kubelet/kuberuntime`.
fn addresses(network: &v1::PodSandboxNetworkStatus) -> Option<Vec<String>> {
    let main = Some(&network.ip).filter(|ip| !ip.is_empty());
    let all = main.into_iter().chain(network.additional_ips.iter().map(|ip| &ip.ip));
    let parsed: Option<Vec<String>> = all.map(|ip| ip.parse::<IpAddr>().ok().map(|_| ip.clone())).collect();
    if parsed.is_none() {
        tracing::warn!(?network, "the runtime gave a sandbox an address that is none");
    }
    parsed
}

#[cfg(test)]
mod tests;
