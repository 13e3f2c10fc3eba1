//! The scheduler's knowledge of persistent storage: claims, volumes, classes, drivers of nodes, and the volumes that are
//! assumed for Pods whose binding is under way.

pub(crate) mod changes;

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::Kind;
use controller::informer::Change;
use controller::pod::Pod;
use controller::volume::{self, matching};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};

/// Objects by key, in key order.
pub type ByKey<K> = BTreeMap<String, Arc<K>>;

/// Everything that volume plugins look at.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// Claims by `namespace/name`.
    pub claims: ByKey<PersistentVolumeClaim>,
    /// Volumes.
    pub volumes: ByKey<PersistentVolume>,
    /// Classes.
    pub classes: ByKey<StorageClass>,
    /// The drivers of each node.
    pub csi_nodes: ByKey<CSINode>,
    /// The drivers' settings.
    pub drivers: ByKey<CSIDriver>,
    /// The room that drivers have, for those that say so.
    pub capacities: ByKey<CSIStorageCapacity>,
    /// The volumes that are attached to Nodes, or on their way there or back.
    pub attachments: ByKey<VolumeAttachment>,
    /// By the Pod's uid: what its binding will take.
    assumed: BTreeMap<String, PodVolumes>,
}

/// The volumes that a Pod will have once it is bound. Source: `PodVolumes` of the VolumeBinding plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodVolumes {
    /// The Node.
    pub node: String,
    /// Volume and claim that are to be bound.
    pub bind: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    /// Claims that a volume is to be made for.
    pub provision: Vec<Arc<PersistentVolumeClaim>>,
}

impl PodVolumes {
    /// `true` if nothing has to be done before the Pod is bound.
    pub fn is_empty(&self) -> bool {
        self.bind.is_empty() && self.provision.is_empty()
    }
}

/// Takes changes of one kind in.
pub fn apply<K: Kind>(map: &mut ByKey<K>, changes: Vec<Change<K>>) {
    for change in changes {
        match change.new {
            Some(new) => map.insert(change.key.to_string(), new),
            None => map.remove(&*change.key),
        };
    }
}

/// The key of a claim.
pub fn claim_key(claim: &PersistentVolumeClaim) -> String {
    let meta = &claim.metadata;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&meta.namespace), text(&meta.name))
}

impl Storage {
    /// The class of a claim, if it has one and that is there.
    pub fn class_of(&self, claim: &PersistentVolumeClaim) -> Option<&Arc<StorageClass>> {
        self.classes.get(volume::claim_class(claim)?)
    }

    /// Keeps what a Pod will have from others.
    pub fn assume(&mut self, uid: &str, pod_volumes: PodVolumes) {
        self.assumed.insert(uid.to_owned(), pod_volumes);
    }

    /// The binding has come to an end: what became of it is in the objects.
    pub fn settle(&mut self, uid: &str) {
        self.assumed.remove(uid);
    }

    /// The binding that a claim will have because of another Pod: the Node, and the volume unless one is to be made.
    pub fn assumed(&self, claim: &str) -> Option<(&str, Option<&Arc<PersistentVolume>>)> {
        self.assumed.values().find_map(|pod_volumes| {
            let bound = pod_volumes.bind.iter().find(|(_, one)| claim_key(one) == claim);
            let bound = bound.map(|(volume, _)| Some(volume));
            let made = || pod_volumes.provision.iter().any(|one| claim_key(one) == claim).then_some(None);
            bound.or_else(made).map(|volume| (pod_volumes.node.as_str(), volume))
        })
    }

    fn is_assumed(&self, name: Option<&str>) -> bool {
        let mut bound = self.assumed.values().flat_map(|one| one.bind.iter());
        bound.any(|(volume, _)| volume.metadata.name.as_deref() == name)
    }

    /// The volume for a claim on a node with these labels, none of `taken`.
    pub fn find(
        &self,
        claim: &PersistentVolumeClaim,
        labels: Option<&BTreeMap<String, String>>,
        taken: &[Arc<PersistentVolume>],
    ) -> Option<&Arc<PersistentVolume>> {
        let name = |volume: &Arc<PersistentVolume>| volume.metadata.name.clone();
        let is_free = |volume: &&Arc<PersistentVolume>| {
            !taken.iter().any(|other| name(other) == name(volume))
                && !self.is_assumed(volume.metadata.name.as_deref())
        };
        matching::find(claim, self.volumes.values().filter(is_free), matching::Search::On(labels))
    }

    /// The claims that a Pod names, with their keys; `None` for those that are not there.
    pub fn claims_of(&self, pod: &Pod) -> Vec<(String, Option<&Arc<PersistentVolumeClaim>>)> {
        volume::claims_of(pod).into_iter().map(|key| (key.clone(), self.claims.get(&key))).collect()
    }
}
