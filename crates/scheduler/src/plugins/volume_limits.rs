//! A node has no more volumes than its drivers can attach. Source: `plugins/nodevolumelimits` (CSI).

use std::collections::BTreeSet;

use controller::volume::{csi, migration, volume_name};
use k8s_openapi::api::core::v1::Pod;

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;
use crate::storage::Storage;

/// Driver and handle of each volume that the Pod needs.
#[derive(Clone, Debug, Default)]
pub(super) struct State(BTreeSet<(String, String)>);

impl State {
    pub(super) fn new(pod: &Pod, storage: &Storage) -> Self {
        Self(volumes(pod, storage))
    }
}

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    !candidate.attached.0.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let drivers = &candidate.storage.csi_nodes.get(node.name())?.spec.drivers;
    let State(wanted) = &candidate.attached;
    let there: BTreeSet<_> = node.pods.values().flat_map(|pod| volumes(pod, candidate.storage)).collect();
    let is_full = drivers.iter().any(|driver| {
        let limit = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
        let of_driver = |one: &&(String, String)| one.0 == driver.name;
        let new = wanted.iter().filter(|one| !there.contains(*one)).filter(of_driver).count();
        let count = there.iter().filter(of_driver).count() + new;
        new > 0 && limit.is_some_and(|limit| count > usize::try_from(limit).unwrap_or(0))
    });
    is_full.then(|| Refusal::passing("node(s) exceed max volume count"))
}

/// Driver and handle of each volume of a Pod; one that is not made yet goes by its claim.
fn volumes(pod: &Pod, storage: &Storage) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for (key, claim) in storage.claims_of(pod) {
        let Some(claim) = claim else { continue };
        let volume = storage.volumes.get(volume_name(claim)).map(migration::translated);
        if let Some(source) = volume.as_deref().and_then(csi) {
            all.insert((source.driver.clone(), source.volume_handle.clone()));
        } else if let Some(class) = storage.class_of(claim) {
            let driver = migration::driver_of(&class.provisioner).unwrap_or(&class.provisioner);
            all.insert((driver.to_owned(), key));
        }
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
