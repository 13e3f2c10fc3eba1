//! Volumes have to be where the Pod goes: bound ones are reached from there, others are found or can be made there.
//!
//! Source: `plugins/volumebinding` of kube-scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::pod::Pod;
use controller::volume::{
    NO_PROVISIONER, SELECTED_NODE, affinity, annotation, capacity, is_claim_bound, is_claim_of_pod,
    migration, requested, volume_class, volume_name, waits_for_consumer,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use machinery::quantity::Quantity;

use super::node_resources_fit::on_line;
use super::{Candidate, Refusal, Remedy, SCORE_MAX};
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
        if room(storage, class, requested(claim), node) == Room::None {
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

/// The room that a driver has for a new volume at a Node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Room<'a> {
    /// The driver does not say.
    Unknown,
    None,
    /// Enough, by what the driver says.
    Of(&'a CSIStorageCapacity),
}

/// Source: KEP-1472.
fn room<'a>(storage: &'a Storage, class: &StorageClass, size: Quantity, node: &NodeInfo) -> Room<'a> {
    let driver = storage.drivers.get(&class.provisioner);
    if driver.is_none_or(|driver| driver.spec.storage_capacity != Some(true)) {
        return Room::Unknown;
    }
    let found = storage.capacities.values().find(|capacity| {
        let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        let fits =
            limit.and_then(|limit| limit.0.parse::<Quantity>().ok()).is_some_and(|limit| limit >= size);
        let topology = capacity.node_topology.as_ref();
        fits && Some(capacity.storage_class_name.as_str()) == class.metadata.name.as_deref()
            && topology.is_some_and(|wanted| {
                controller::selector::selects(wanted, node.node.metadata.labels.as_ref())
            })
    });
    found.map_or(Room::None, |found| Room::Of(found))
}

pub(super) fn prefers(candidate: &Candidate<'_>) -> bool {
    !candidate.profile.arguments.volumes.shape.is_empty() && !candidate.volumes.unbound.is_empty()
}

/// The mean over the storage classes of what the shape says of the share that the Pod's volumes take of what is there: of the
/// volumes that they are bound to, or, where all are to be made, of the capacity at the Node.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let storage = candidate.storage;
    let Ok(pod_volumes) = settle(&candidate.volumes, storage, node) else { return 0 };
    // Requested and there, in bytes, by class.
    let mut shares: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for (volume, claim) in &pod_volumes.bind {
        let (asked, there) = shares.entry(volume_class(volume)).or_default();
        *asked = asked.saturating_add(requested(claim).value());
        *there = there.saturating_add(capacity(volume).value());
    }
    for claim in pod_volumes.provision.iter().filter(|_| pod_volumes.bind.is_empty()) {
        let Some(class) = storage.class_of(claim) else { continue };
        let Room::Of(found) = room(storage, class, requested(claim), node) else { continue };
        let (asked, there) = shares.entry(&found.storage_class_name).or_default();
        *asked = asked.saturating_add(requested(claim).value());
        // Of one class all volumes come out of the same capacity.
        let all = found.capacity.as_ref().and_then(|all| all.0.parse::<Quantity>().ok());
        *there = all.unwrap_or_default().value();
    }
    let shape = &candidate.profile.arguments.volumes.shape;
    let worth = shares.values().map(|(asked, there)| on_line(shape, percent(*asked, *there)));
    let (sum, classes) = worth.fold((0, 0), |(sum, count), one| (sum + one, count + 1));
    (sum + classes / 2).checked_div(classes).unwrap_or(0)
}

/// A part of the whole in percent: all of it where the part is larger.
fn percent(part: i64, whole: i64) -> i64 {
    if whole == 0 || part > whole {
        return SCORE_MAX;
    }
    i64::try_from(i128::from(part) * i128::from(SCORE_MAX) / i128::from(whole)).unwrap_or(SCORE_MAX)
}

#[cfg(test)]
mod tests;
