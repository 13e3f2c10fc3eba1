//! Volumes have to be where the Pod goes: bound ones are reached from there, others are found or can be made there.
//!
//! Source: `plugins/volumebinding` of kube-scheduler.

use std::sync::Arc;

use controller::pod::Pod;
use controller::volume::{
    NO_PROVISIONER, SELECTED_NODE, affinity, annotation, is_claim_bound, is_claim_of_pod, migration,
    requested, volume_name, waits_for_consumer,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery::quantity::Quantity;

use super::{Candidate, Refusal, Remedy};
use crate::node_info::{NodeInfo, Snapshot};
use crate::storage::{PodVolumes, Storage, claim_key};

const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";
const AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";
const NOTHING_FOUND: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
const NOT_THERE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// What a Pod's volumes ask of a Node.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Why no Node will do, whatever it is like.
    pub(super) refused: Option<Refusal>,
    /// What the claims in the Pod's order are bound to; `None` for what is not there.
    bound: Vec<Option<Arc<PersistentVolume>>>,
    /// Claims that are bound once the Pod has a Node, the smallest first.
    unbound: Vec<Arc<PersistentVolumeClaim>>,
}

impl State {
    pub(super) fn new(pod: &Pod, snapshot: &Snapshot) -> Self {
        let mut state = Self::default();
        state.refused = state.read(pod, &snapshot.storage).err();
        state
            .unbound
            .sort_by(|a, b| requested(a).cmp(&requested(b)).then_with(|| claim_key(a).cmp(&claim_key(b))));
        state
    }

    fn read(&mut self, pod: &Pod, storage: &Storage) -> Result<(), Refusal> {
        let own: Vec<bool> = pod
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten())
            .filter(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
            .map(|volume| volume.ephemeral.is_some())
            .collect();
        let mut is_waiting = false;
        for ((key, claim), is_ephemeral) in storage.claims_of(pod).into_iter().zip(own) {
            let name = key.split('/').nth(1).unwrap_or_default();
            let Some(claim) = claim else {
                return Err(Refusal::lasting(match is_ephemeral {
                    true => format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                    ),
                    false => format!("persistentvolumeclaim \"{name}\" not found"),
                }));
            };
            if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
                let volume = volume_name(claim);
                return Err(Refusal::lasting(format!(
                    "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
                )));
            }
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(Refusal::lasting(format!("persistentvolumeclaim \"{name}\" is being deleted")));
            }
            if is_ephemeral && !is_claim_of_pod(claim, pod) {
                return Err(Refusal::lasting(format!(
                    "PVC {key} was not created for pod (pod is not owner)"
                )));
            }
            if is_claim_bound(claim) {
                self.bound.push(storage.volumes.get(volume_name(claim)).map(migration::translated));
            } else if volume_name(claim).is_empty()
                && storage.class_of(claim).is_some_and(|class| waits_for_consumer(class))
            {
                self.unbound.push(claim.clone());
            } else {
                is_waiting = true;
            }
        }
        if is_waiting { Err(Refusal::lasting(UNBOUND)) } else { Ok(()) }
    }
}

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    let State { refused, bound, unbound } = &candidate.volumes;
    refused.is_some() || !bound.is_empty() || !unbound.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let state = &candidate.volumes;
    if state.refused.is_some() {
        return state.refused.clone();
    }
    let labels = node.node.metadata.labels.as_ref();
    let mut bound = state.bound.iter().map(|volume| match volume {
        None => Some(NOT_THERE),
        Some(volume) => (!affinity::reaches(volume, labels)).then_some(AFFINITY),
    });
    let bound = bound.find_map(|why| why);
    let unbound = settle(state, candidate.storage, node).err();
    // In upstream's order.
    let all = [bound.filter(|why| *why == AFFINITY), unbound, bound.filter(|why| *why == NOT_THERE)];
    let reasons: Vec<String> = all.into_iter().flatten().map(str::to_owned).collect();
    (!reasons.is_empty()).then_some(Refusal { reasons, remedy: Remedy::None })
}

/// What has to be done so that the Pod finds its volumes on the Node.
pub(super) fn settle(state: &State, storage: &Storage, node: &NodeInfo) -> Result<PodVolumes, &'static str> {
    let labels = node.node.metadata.labels.as_ref();
    let mut pod_volumes = PodVolumes { node: node.name().to_owned(), ..PodVolumes::default() };
    let mut taken = Vec::new();
    for claim in &state.unbound {
        let selected = annotation(&claim.metadata, SELECTED_NODE);
        let assumed = storage.assumed(&claim_key(claim));
        let elsewhere = assumed.map(|(node, _)| node).or(selected);
        if elsewhere.is_some_and(|other| other != node.name()) {
            return Err(NOTHING_FOUND);
        }
        // A Pod that shares the claim has what the other has.
        match assumed {
            Some((_, Some(volume))) => {
                pod_volumes.bind.push((volume.clone(), claim.clone()));
                continue;
            }
            Some((_, None)) => {
                pod_volumes.provision.push(claim.clone());
                continue;
            }
            None => {}
        }
        if selected.is_none()
            && let Some(volume) = storage.find(claim, labels, &taken)
        {
            taken.push(volume.clone());
            pod_volumes.bind.push((volume.clone(), claim.clone()));
            continue;
        }
        let Some(class) = storage.class_of(claim) else { return Err(NOTHING_FOUND) };
        let terms = class.allowed_topologies.as_deref().unwrap_or_default();
        let is_allowed = terms.is_empty() || terms.iter().any(|term| holds(term, node));
        if class.provisioner == NO_PROVISIONER || !is_allowed {
            return Err(NOTHING_FOUND);
        }
        if !has_capacity(storage, class, requested(claim), node) {
            return Err(NOT_ENOUGH_SPACE);
        }
        pod_volumes.provision.push(claim.clone());
    }
    Ok(pod_volumes)
}

fn holds(term: &TopologySelectorTerm, node: &NodeInfo) -> bool {
    let mut expressions = term.match_label_expressions.iter().flatten();
    expressions
        .all(|one| node.label(&one.key).is_some_and(|value| one.values.iter().any(|wanted| wanted == value)))
}

/// Whether the driver says that it has capacity, if it says anything. Source: KEP-1472.
fn has_capacity(storage: &Storage, class: &StorageClass, size: Quantity, node: &NodeInfo) -> bool {
    let driver = storage.drivers.get(&class.provisioner);
    if driver.is_none_or(|driver| driver.spec.storage_capacity != Some(true)) {
        return true;
    }
    storage.capacities.values().any(|capacity| {
        let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        let fits =
            limit.and_then(|limit| limit.0.parse::<Quantity>().ok()).is_some_and(|limit| limit >= size);
        let topology = capacity.node_topology.as_ref();
        fits && Some(capacity.storage_class_name.as_str()) == class.metadata.name.as_deref()
            && topology.is_some_and(|wanted| {
                controller::selector::selects(wanted, node.node.metadata.labels.as_ref())
            })
    })
}

#[cfg(test)]
mod tests;
