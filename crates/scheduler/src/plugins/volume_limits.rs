//! A node has no more volumes than its drivers can attach: those of its Pods, and those that are attached to it without one, or
//! not detached yet. Source: `plugins/nodevolumelimits` (CSI).
//!
//! Upstream counts a volume twice that is attached already and that the Pod wants; here it takes the one place that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controller::pod::Pod;
use controller::volume::{csi, migration, volume_name};
use k8s_openapi::api::core::v1::PersistentVolume;
use machinery::features::Feature;

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;
use crate::storage::Storage;

/// Driver and handle of a volume.
type Volume = (String, String);

/// What counts for a Pod.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Each volume that it needs.
    wanted: BTreeSet<Volume>,
    /// What is attached, by Node; if it needs any.
    attached: BTreeMap<String, BTreeSet<Volume>>,
}

impl State {
    pub(super) fn new(pod: &Pod, storage: &Storage) -> Self {
        let wanted = volumes(pod, storage);
        let attached = if wanted.is_empty() { BTreeMap::new() } else { attached(storage) };
        Self { wanted, attached }
    }
}

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    !candidate.attached.wanted.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let storage = candidate.storage;
    let drivers = storage.csi_nodes.get(node.name()).map_or(&[][..], |csi| &csi.spec.drivers);
    let State { wanted, attached } = &candidate.attached;
    if Feature::VolumeLimitScaling.is_on() {
        let is_missing = |name: &&String| {
            storage.drivers.contains_key(*name) && drivers.iter().all(|own| own.name != **name)
        };
        if let Some(missing) = wanted.iter().map(|(driver, _)| driver).find(is_missing) {
            return Some(Refusal::passing(format!("{missing} CSI driver is not installed on the node")));
        }
    }
    if drivers
        .iter()
        .all(|driver| driver.allocatable.as_ref().is_none_or(|allocatable| allocatable.count.is_none()))
    {
        return None;
    }
    let mut there: BTreeSet<_> = node.pods().flat_map(|pod| volumes(pod, storage)).collect();
    there.extend(attached.get(node.name()).into_iter().flatten().cloned());
    let is_full = drivers.iter().any(|driver| {
        let limit = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
        let of_driver = |one: &&(String, String)| one.0 == driver.name;
        let new = wanted.iter().filter(|one| !there.contains(*one)).filter(of_driver).count();
        let count = there.iter().filter(of_driver).count() + new;
        new > 0 && limit.is_some_and(|limit| count > usize::try_from(limit).unwrap_or(0))
    });
    is_full.then(|| Refusal::passing("node(s) exceed max volume count"))
}

/// What is attached to each Node, or on its way there or back.
fn attached(storage: &Storage) -> BTreeMap<String, BTreeSet<Volume>> {
    let mut all: BTreeMap<String, BTreeSet<Volume>> = BTreeMap::new();
    for attachment in storage.attachments.values() {
        let spec = &attachment.spec;
        let volume = spec.source.persistent_volume_name.as_ref().and_then(|name| storage.volumes.get(name));
        let Some(handle) = volume.and_then(handle).filter(|_| !spec.attacher.is_empty()) else {
            continue;
        };
        all.entry(spec.node_name.clone()).or_default().insert((spec.attacher.clone(), handle));
    }
    all
}

fn handle(volume: &Arc<PersistentVolume>) -> Option<String> {
    csi(&migration::translated(volume)).map(|source| source.volume_handle.clone())
}

/// Driver and handle of each volume of a Pod; one that is not made yet goes by its claim.
fn volumes(pod: &Pod, storage: &Storage) -> BTreeSet<Volume> {
    let mut all = BTreeSet::new();
    for (key, claim) in storage.claims_of(pod) {
        let Some(claim) = claim else { continue };
        let Some(volume) = storage.volumes.get(volume_name(claim)) else {
            let class = storage.class_of(claim).map(|class| class.provisioner.as_str());
            let driver = class.map(|own| migration::driver_of(own).unwrap_or(own).to_owned());
            all.extend(driver.map(|driver| (driver, key)));
            continue;
        };
        // One that no driver attaches does not count, whatever its class.
        let volume = migration::translated(volume);
        all.extend(csi(&volume).map(|source| (source.driver.clone(), source.volume_handle.clone())));
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let migrated = migration::inline(volume, namespace).and_then(Result::ok);
        if let Some(source) = migrated.as_ref().and_then(csi) {
            all.insert((source.driver.clone(), source.volume_handle.clone()));
        }
    }
    all
}

#[cfg(test)]
mod tests;
