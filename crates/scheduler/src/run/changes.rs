//! What changes of the cluster mean to the scheduler: who waits for a Node, who has one, and for whom it is worth another
//! try.

use std::sync::Arc;

use controller::informer::Change;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};

use super::{Scheduler, uid};
use crate::devices::changes::DeviceChange;
use crate::preemption::{nominated, priority};
use crate::storage::changes::StorageChange;

impl Scheduler {
    pub(super) fn nodes_changed(&mut self, changes: Vec<Change<Node>>) {
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

    pub(super) fn namespaces_changed(&mut self, changes: Vec<Change<Namespace>>) {
        for change in changes {
            let labels = change.new.map(|namespace| namespace.metadata.labels.clone().unwrap_or_default());
            self.snapshot.set_namespace(&change.key, labels);
        }
        self.queue.cluster_changed(self.clock.now());
    }

    pub(super) fn storage_changed(&mut self, change: StorageChange) {
        let claims = change(&mut self.snapshot.storage);
        self.queue.cluster_changed(self.clock.now());
        for over in self.waiting.over(&self.snapshot.storage, &claims) {
            self.waited(over);
        }
        self.bind_ready();
    }

    pub(super) fn devices_changed(&mut self, change: DeviceChange) {
        if !change(&mut self.snapshot.devices) {
            return;
        }
        let now = self.clock.now();
        let devices = &self.snapshot.devices;
        let (pods, queue) = (&self.pods, &mut self.queue);
        self.claimless.retain(|key| {
            let Some((pod, _)) = pods.get(key) else { return false };
            let is_waiting = devices.claims_of(pod).is_err();
            if !is_waiting {
                queue.add(key, priority(pod), now);
            }
            is_waiting
        });
        self.queue.cluster_changed(now);
    }

    pub(super) fn pods_changed(&mut self, changes: Vec<Change<Pod>>) {
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
        let is_news = old.is_none_or(|old| is_otherwise(old, &pod));
        let is_claimless = self.snapshot.devices.claims_of(&pod).is_err();
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
        if is_claimless && !self.binding.contains_key(&key) {
            self.queue.remove(&key);
            self.claimless.insert(key);
            return;
        }
        self.claimless.remove(&key);
        let is_known = self.queue.contains(&key) || self.binding.contains_key(&key);
        if (is_news || !is_known) && !self.binding.contains_key(&key) {
            self.queue.add(&key, priority, self.clock.now());
        }
    }

    fn forget(&mut self, key: &str) {
        if let Some(job) = self.waiting.remove(key) {
            self.binding.remove(key);
            self.snapshot.storage.settle(uid(&job.pod));
            self.snapshot.remove(uid(&job.pod));
        }
        self.queue.remove(key);
        self.pods.remove(key);
        self.gated.remove(key);
        self.claimless.remove(key);
        self.sociable.remove(key);
        self.nominated.remove(key);
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
