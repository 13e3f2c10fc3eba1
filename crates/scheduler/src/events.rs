//! The events of the cluster, as far as a Pod that found no Node may gain by them.
//!
//! Source: `ClusterEvent` of `k8s.io/kube-scheduler/framework`, and the extractors of `framework/events.go`.

use std::sync::Arc;

use controller::informer::Change;
use controller::pod::{Pairs, Pod, ResourceRequirements};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodResourceClaimStatus,
};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::scheduling::v1alpha1::Workload;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::resource::pod_requests;

/// An object before and after.
#[derive(Clone, Debug)]
pub struct Turn<K> {
    /// The object before; none if it is new.
    pub old: Option<Arc<K>>,
    /// The object now; none if it is gone.
    pub new: Option<Arc<K>>,
}

impl<K> Turn<K> {
    /// Both, if it was there and is.
    pub fn both(&self) -> Option<(&K, &K)> {
        self.old.as_deref().zip(self.new.as_deref())
    }

    /// The object if it is there now.
    pub fn now(&self) -> Option<&K> {
        self.new.as_deref()
    }

    /// The object as it is, or as it last was.
    pub fn object(&self) -> Option<&K> {
        self.new.as_deref().or(self.old.as_deref())
    }

    /// `true` if it has come.
    pub fn is_new(&self) -> bool {
        self.old.is_none() && self.new.is_some()
    }

    fn label(&self, [add, update, delete]: [&'static str; 3]) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => add,
            (Some(_), Some(_)) => update,
            (Some(_), None) => delete,
        }
    }
}

impl<K> From<&Change<K>> for Turn<K> {
    fn from(change: &Change<K>) -> Self {
        Self { old: change.old.clone(), new: change.new.clone() }
    }
}

/// Something that has happened.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is what has happened to an object of that kind")]
pub enum Event {
    Node(Turn<Node>),
    /// A Pod on a Node, or soon on one, has come, changed or gone.
    Pod(Turn<Pod>),
    /// A Pod that waits for a Node asks for something else than before.
    Wish(Turn<Pod>),
    /// A Pod that names a Workload has come, and waits for a Node.
    Newcomer(Arc<Pod>),
    Namespace(Turn<Namespace>),
    Claim(Turn<PersistentVolumeClaim>),
    Volume(Turn<PersistentVolume>),
    StorageClass(Turn<StorageClass>),
    CsiNode(Turn<CSINode>),
    CsiDriver(Turn<CSIDriver>),
    Capacity(Turn<CSIStorageCapacity>),
    Attachment(Turn<VolumeAttachment>),
    DeviceClaim(Turn<ResourceClaim>),
    DeviceClass(Turn<DeviceClass>),
    DeviceSlice(Turn<ResourceSlice>),
    Workload(Turn<Workload>),
}

impl Event {
    /// The value of the metric's label. Source: `ClusterEvent.Label`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Node(turn) => match turn.both() {
                Some((old, new)) => of_node(old, new),
                None => turn.label(["NodeAdd", "NodeUpdate", "NodeDelete"]),
            },
            Self::Pod(turn) => match turn.both() {
                Some((old, new)) if old.metadata.labels != new.metadata.labels => "AssignedPodUpdatePodLabel",
                Some((old, new)) if is_scaled_down(old, new) => "AssignedPodUpdatePodScaleDown",
                _ => turn.label(["AssignedPodAdd", "AssignedPodUpdate", "AssignedPodDelete"]),
            },
            Self::Wish(turn) => turn.both().map_or("UnschedulablePodUpdate", |(old, new)| of_wish(old, new)),
            Self::Newcomer(_) => "UnschedulablePodAdd",
            Self::Namespace(turn) => turn.label(["NamespaceAdd", "NamespaceUpdate", "NamespaceDelete"]),
            Self::Claim(turn) => turn.label([
                "PersistentVolumeClaimAdd",
                "PersistentVolumeClaimUpdate",
                "PersistentVolumeClaimDelete",
            ]),
            Self::Volume(turn) => {
                turn.label(["PersistentVolumeAdd", "PersistentVolumeUpdate", "PersistentVolumeDelete"])
            }
            Self::StorageClass(turn) => turn.label([
                "storage.k8s.io/StorageClassAdd",
                "storage.k8s.io/StorageClassUpdate",
                "storage.k8s.io/StorageClassDelete",
            ]),
            Self::CsiNode(turn) => turn.label([
                "storage.k8s.io/CSINodeAdd",
                "storage.k8s.io/CSINodeUpdate",
                "storage.k8s.io/CSINodeDelete",
            ]),
            Self::CsiDriver(turn) => turn.label([
                "storage.k8s.io/CSIDriverAdd",
                "storage.k8s.io/CSIDriverUpdate",
                "storage.k8s.io/CSIDriverDelete",
            ]),
            Self::Capacity(turn) => turn.label([
                "storage.k8s.io/CSIStorageCapacityAdd",
                "storage.k8s.io/CSIStorageCapacityUpdate",
                "storage.k8s.io/CSIStorageCapacityDelete",
            ]),
            Self::Attachment(turn) => turn.label([
                "storage.k8s.io/VolumeAttachmentAdd",
                "storage.k8s.io/VolumeAttachmentUpdate",
                "storage.k8s.io/VolumeAttachmentDelete",
            ]),
            Self::DeviceClaim(turn) => turn.label([
                "resource.k8s.io/ResourceClaimAdd",
                "resource.k8s.io/ResourceClaimUpdate",
                "resource.k8s.io/ResourceClaimDelete",
            ]),
            Self::DeviceClass(turn) => turn.label([
                "resource.k8s.io/DeviceClassAdd",
                "resource.k8s.io/DeviceClassUpdate",
                "resource.k8s.io/DeviceClassDelete",
            ]),
            Self::DeviceSlice(turn) => turn.label([
                "resource.k8s.io/ResourceSliceAdd",
                "resource.k8s.io/ResourceSliceUpdate",
                "resource.k8s.io/ResourceSliceDelete",
            ]),
            Self::Workload(turn) => turn.label([
                "scheduling.k8s.io/WorkloadAdd",
                "scheduling.k8s.io/WorkloadUpdate",
                "scheduling.k8s.io/WorkloadDelete",
            ]),
        }
    }
}

fn of_node(old: &Node, new: &Node) -> &'static str {
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    if allocatable(old) != allocatable(new) {
        return "NodeUpdateNodeAllocatable";
    }
    if old.metadata.labels != new.metadata.labels {
        return "NodeUpdateNodeLabel";
    }
    // Source: a change of `spec.unschedulable` is reported as one of taints.
    if old.spec != new.spec { "NodeUpdateNodeTaint" } else { "NodeUpdate" }
}

fn of_wish(old: &Pod, new: &Pod) -> &'static str {
    if old.metadata.labels != new.metadata.labels {
        return "UnschedulablePodUpdatePodLabel";
    }
    if is_scaled_down(old, new) {
        return "UnschedulablePodUpdatePodScaleDown";
    }
    if gains_toleration(old, new) {
        return "UnschedulablePodUpdatePodToleration";
    }
    if claims_of(old) != claims_of(new) {
        return "UnschedulablePodUpdatePodGeneratedResourceClaim";
    }
    "UnschedulablePodUpdate"
}

/// `true` if the Pod asks for less of anything than before.
pub fn is_scaled_down(old: &Pod, new: &Pod) -> bool {
    let (Some(before), Some(after)) = (&old.spec, &new.spec) else { return false };
    if before.containers == after.containers && before.resources == after.resources && has_same(old, new) {
        return false;
    }
    let (before, after) = (pod_requests(old), pod_requests(new));
    let left = |name: &String| after.scalar.get(name).copied().unwrap_or(0);
    before.milli_cpu > after.milli_cpu
        || before.memory > after.memory
        || before.ephemeral_storage > after.ephemeral_storage
        || before.scalar.iter().any(|(name, amount)| *amount > left(name))
}

/// Whether the containers have, and were allocated, what they had before.
fn has_same(old: &Pod, new: &Pod) -> bool {
    fn of(pod: &Pod) -> impl Iterator<Item = (Option<&ResourceRequirements>, Option<&Pairs<Quantity>>)> {
        let status = pod.status.iter();
        let all =
            status.flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses));
        all.flatten().map(|one| (one.resources.as_ref(), one.allocated_resources.as_ref()))
    }
    of(old).eq(of(new))
}

/// `true` if the Pod tolerates something else than before: tolerations are only ever added.
pub fn gains_toleration(old: &Pod, new: &Pod) -> bool {
    let count =
        |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref()).map_or(0, |all| all.len());
    count(old) != count(new)
}

/// The claims of devices that were made for the Pod.
pub fn claims_of(pod: &Pod) -> Option<&Vec<PodResourceClaimStatus>> {
    pod.status.as_ref()?.resource_claim_statuses.as_ref()
}

#[cfg(test)]
mod tests;
