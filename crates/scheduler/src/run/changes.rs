//! The meaning of the cluster's changes to the scheduler: who waits for a Node, who has one, and for whom it is worth
//! another try.

use std::sync::Arc;

use controller::informer::Change;
use controller::pod::{Pod, PodSpec};
use k8s_openapi::api::core::v1::{Namespace, Node};

use super::Scheduler;
use crate::devices::changes::DeviceChange;
use crate::events::{Event, Turn};
use crate::gangs::GangKey;
use crate::hints::helps;
use crate::pod::uid;
use crate::preemption::{nominated, priority};
use crate::profile::Point;
use crate::storage::changes::{News, StorageChange};

/// Source: `EventUnscheduledPodAdd`.
pub(super) const POD_ADD: &str = "UnschedulablePodAdd";
/// Source: `UpdatePodSchedulingGatesEliminated`.
const GATES_GONE: &str = "UnschedulablePodUpdatePodSchedulingGatesEliminated";
/// Source: `UpdatePodGeneratedResourceClaim`.
const CLAIM_MADE: &str = "UnschedulablePodUpdatePodGeneratedResourceClaim";

impl Scheduler {
    /// Tries those again whom it may help; they are asked for by the plugins that refused them.
    pub(super) fn happened(&mut self, events: &[Event]) {
        for event in events {
            if self.queue.depths().unschedulable == 0 {
                return;
            }
            let (label, mut helped) = (event.label(), Vec::new());
            for (plugin, keys) in self.queue.refusals() {
                for key in keys {
                    let Some((pod, _)) = self.pods.get(key) else { continue };
                    let start = self.clock.now();
                    let is_helped = helps(plugin, event, pod, &self.snapshot);
                    self.metrics.hinted(plugin, label, is_helped, start, self.clock.now());
                    if is_helped {
                        helped.push(key.to_owned());
                    }
                }
            }
            let now = self.clock.now();
            helped.iter().for_each(|key| self.queue.wake(key, label, now));
        }
    }

    pub(super) fn nodes_changed(&mut self, changes: Vec<Change<Node>>) {
        let is_news = |change: &&Change<Node>| match (&change.old, &change.new) {
            (Some(old), Some(new)) => matters(old, new),
            _ => true,
        };
        let events: Vec<_> =
            changes.iter().filter(is_news).map(|change| Event::Node(change.into())).collect();
        for change in changes {
            match change.new {
                Some(node) => self.snapshot.set_node(node),
                None => self.snapshot.remove_node(&change.key),
            }
        }
        self.happened(&events);
    }

    pub(super) fn namespaces_changed(&mut self, changes: Vec<Change<Namespace>>) {
        let events: Vec<_> = changes.iter().map(|change| Event::Namespace(change.into())).collect();
        for change in changes {
            let labels = change.new.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
            self.snapshot.set_namespace(&change.key, labels);
        }
        self.happened(&events);
    }

    pub(super) fn storage_changed(&mut self, change: StorageChange) {
        let News { events, claims } = change(&mut self.snapshot.storage);
        self.happened(&events);
        for over in self.waiting.over(&self.snapshot.storage, &claims) {
            self.waited(over);
        }
        self.bind_ready();
    }

    pub(super) fn devices_changed(&mut self, change: DeviceChange) {
        let events = change(&mut self.snapshot.devices);
        if events.is_empty() {
            return;
        }
        let now = self.clock.now();
        let devices = &self.snapshot.devices;
        let (pods, queue) = (&self.pods, &mut self.queue);
        self.claimless.retain(|key| {
            let Some((pod, _)) = pods.get(key) else { return false };
            let is_waiting = devices.claims_of(pod).is_err();
            if !is_waiting {
                queue.add(key, priority(pod), (CLAIM_MADE, now));
            }
            is_waiting
        });
        self.happened(&events);
    }

    pub(super) fn pods_changed(&mut self, changes: Vec<Change<Pod>>) {
        let mut events = Vec::new();
        for change in changes {
            events.extend(self.pod_changed(change));
        }
        self.happened(&events);
    }

    /// Gives what others may gain by.
    fn pod_changed(&mut self, change: Change<Pod>) -> Vec<Event> {
        let mut events = Vec::new();
        let is_same =
            |old: &Arc<Pod>| change.new.as_ref().is_some_and(|new| new.metadata.uid == old.metadata.uid);
        let (old, replaced) = match change.old {
            Some(old) if is_same(&old) => (Some(old), None),
            other => (None, other),
        };
        if let Some(replaced) = replaced {
            events.extend(self.gone(&change.key, replaced));
        }
        let Some(pod) = change.new else { return events };
        if is_finished(&pod) {
            events.extend(self.gone(&change.key, pod));
            return events;
        }
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        if is_leaving {
            self.leaves(&pod);
        }
        let Some(node) = node_name(&pod) else {
            self.wants_node(change.key.to_string(), old.as_ref(), pod, change.revision);
            return events;
        };
        events.extend(self.forget(&change.key));
        if let Some(gang) = GangKey::of(&pod) {
            self.snapshot.gangs.has(&gang, &pod);
        }
        let is_news = self.snapshot.place(&pod, node);
        let old = old.filter(|old| node_name(old).is_some());
        let is_first = old.is_none();
        let was_leaving = old.as_ref().is_some_and(|old| old.metadata.deletion_timestamp.is_some());
        if is_first || is_news || is_leaving != was_leaving {
            events.push(Event::Pod(Turn { old, new: Some(pod) }));
        }
        events
    }

    /// A Pod takes no room any more.
    fn gone(&mut self, key: &str, pod: Arc<Pod>) -> Vec<Event> {
        self.leaves(&pod);
        let mut events = self.forget(key);
        self.snapshot.gangs.remove(&pod);
        if self.snapshot.remove(uid(&pod)) {
            events.push(Event::Pod(Turn { old: Some(pod), new: None }));
        }
        events
    }

    fn wants_node(&mut self, key: String, old: Option<&Arc<Pod>>, pod: Arc<Pod>, revision: u64) {
        let spec = pod.spec.as_ref();
        let profile = self.snapshot.profiles.named_by(&pod).cloned();
        let is_ours = profile.is_some();
        let heeds =
            |name: &str| profile.as_ref().is_some_and(|profile| profile.asks(name, Point::PreEnqueue));
        let has_gates =
            |spec: &PodSpec| spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
        let is_gated = heeds("SchedulingGates") && spec.is_some_and(has_gates);
        if !is_ours || is_gated || pod.metadata.deletion_timestamp.is_some() {
            let events = self.forget(&key);
            self.happened(&events);
            if is_ours && is_gated {
                self.joins(&key, &pod);
                self.gated.insert(key);
            } else {
                self.snapshot.gangs.remove(&pod);
            }
            return;
        }
        let event = if self.gated.remove(&key) { GATES_GONE } else { POD_ADD };
        let now = self.clock.now();
        let is_claimless = heeds("DynamicResources") && self.snapshot.devices.claims_of(&pod).is_err();
        self.pods.insert(key.clone(), (pod.clone(), revision));
        self.joins(&key, &pod);
        if self.binding.contains_key(&key) {
            return;
        }
        self.follow_nomination(&key, old.map(|old| &**old), &pod);
        if is_claimless {
            self.queue.remove(&key);
            self.claimless.insert(key);
            return;
        }
        let event = if self.claimless.remove(&key) { CLAIM_MADE } else { event };
        if self.holds_back(&key, &pod, revision) {
            return;
        }
        if !self.queue.contains(&key) {
            return self.queue.add(&key, priority(&pod), (event, now));
        }
        if let Some(old) = old.filter(|old| is_otherwise(old, &pod)) {
            let event = Event::Wish(Turn { old: Some(old.clone()), new: Some(pod.clone()) });
            let is_helped = |plugin: &&'static str| helps(plugin, &event, &pod, &self.snapshot);
            if self.queue.rejectors(&key).iter().any(is_helped) {
                self.queue.wake(&key, event.label(), now);
            }
        }
    }

    /// Whoever wrote a nomination, it counts; ours are known before they are written.
    fn follow_nomination(&mut self, key: &str, old: Option<&Pod>, pod: &Arc<Pod>) {
        match (nominated(pod), old.and_then(nominated)) {
            (Some(node), _) => self.nominations.add(key, pod, node, &mut self.snapshot),
            (None, Some(_)) => {
                let freed = self.nominations.remove(key, &mut self.snapshot);
                let freed = freed.map(|pod| Event::Pod(Turn { old: Some(pod), new: None }));
                self.happened(freed.as_slice());
            }
            (None, None) => {}
        }
    }

    /// The Pod waits for nothing any more; gives what others gain if room was kept for it.
    fn forget(&mut self, key: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(job) = self.waiting.remove(key).or_else(|| self.permits.end(key)) {
            self.binding.remove(key);
            self.snapshot.storage.settle(uid(&job.pod));
            self.snapshot.devices.settle(uid(&job.pod));
            self.snapshot.remove(uid(&job.pod));
            events.push(Event::Pod(Turn { old: Some(job.pod), new: None }));
        }
        self.queue.remove(key);
        if let Some((pod, _)) = self.pods.remove(key) {
            self.leaves_gang(key, &pod);
        }
        self.gated.remove(key);
        self.claimless.remove(key);
        self.pending_preemptions.end(key);
        let freed = self.nominations.remove(key, &mut self.snapshot);
        events.extend(freed.map(|pod| Event::Pod(Turn { old: Some(pod), new: None })));
        events
    }
}

/// Whether the Pod asks for something else than before, or got a claim.
fn is_otherwise(old: &Pod, new: &Pod) -> bool {
    let claims = |pod: &Pod| pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
    old.spec != new.spec || old.metadata.labels != new.metadata.labels || claims(old) != claims(new)
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether a Node's change can help anybody; heartbeats cannot.
fn matters(old: &Node, new: &Node) -> bool {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    old.spec != new.spec || old.metadata.labels != new.metadata.labels || allocatable(old) != allocatable(new)
}
