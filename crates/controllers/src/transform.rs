//! The transforms of controllers' informers. What no controller reads of the Pods that they share a type with the scheduler for
//! (`controller::pod`): it is not kept. Nor is anything kept twice.
//!
//! Whoever comes to read one of these fields takes it from the list; until then all tests see Pods without them.

use controller::Informers;
use controller::informer::Transform;
use controller::pod::Pod;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// Of containers and init containers. Names of Secrets in `env` and `envFrom` say which are used
/// (`legacy_token_cleaner.rs`).
const CONTAINER: [&str; 3] = ["env[secretKeyRef]", "envFrom[secretRef]", "image"];
/// Of their statuses.
const STATUS: [&str; 2] = ["allocatedResources", "resources"];
/// Elsewhere. Volumes count that have claims or Secrets, and those that drivers have taken over.
const OTHERS: [&str; 8] = [
    "spec.nodeSelector",
    "spec.preemptionPolicy",
    "spec.schedulerName",
    "spec.schedulingGates",
    "spec.topologySpreadConstraints",
    "spec.volumes[persistentVolumeClaim|ephemeral|secret|secretName|secretRef|nodePublishSecretRef|awsElasticBlockStore|\
     azureDisk|azureFile|cinder|csi|fc|gcePersistentDisk|iscsi|portworxVolume|rbd|vsphereVolume]",
    "spec.workloadRef",
    "status.nominatedNodeName",
];

/// What a kind is to informers that controllers stand on.
type Tell = fn(&Informers);

/// Kinds that some controller follows whole: who follows the metadata of all kinds sees these by them.
const WHOLE: [Tell; 16] = [
    Informers::show_metadata_of::<ControllerRevision>,
    Informers::show_metadata_of::<CronJob>,
    Informers::show_metadata_of::<DaemonSet>,
    Informers::show_metadata_of::<Deployment>,
    Informers::show_metadata_of::<EndpointSlice>,
    Informers::show_metadata_of::<Endpoints>,
    Informers::show_metadata_of::<Job>,
    Informers::show_metadata_of::<Namespace>,
    Informers::show_metadata_of::<Node>,
    Informers::show_metadata_of::<PersistentVolume>,
    Informers::show_metadata_of::<PersistentVolumeClaim>,
    Informers::show_metadata_of::<Pod>,
    Informers::show_metadata_of::<ReplicaSet>,
    Informers::show_metadata_of::<ReplicationController>,
    Informers::show_metadata_of::<Service>,
    Informers::show_metadata_of::<StatefulSet>,
];

/// Sets the transforms of the informers of all controllers, which leave out what none reads, and has nothing known twice; to be
/// called before they start.
pub fn set_transforms(informers: &Informers) {
    informers.set_transform::<Pod>(of_pods());
    WHOLE.iter().for_each(|tell| tell(informers));
}

/// The transform of Pods.
pub(crate) fn of_pods() -> Transform {
    let in_all = |lists: &'static [&'static str], fields: &'static [&'static str]| {
        lists.iter().flat_map(move |list| fields.iter().map(move |field| (*list, *field)))
    };
    let containers =
        in_all(&["spec.containers", "spec.initContainers", "spec.ephemeralContainers"], &CONTAINER);
    let statuses = in_all(&["status.containerStatuses", "status.initContainerStatuses"], &STATUS);
    let others = OTHERS.iter().map(|path| ("", *path));
    Transform::without(containers.chain(statuses).chain(others))
}

#[cfg(test)]
mod tests {
    use controller::ResourceRef;

    use super::*;
    use crate::kinds;

    #[test]
    fn kinds_that_are_known_whole_are_those_whose_metadata_are_followed() {
        for resource in [
            ResourceRef::of::<ControllerRevision>(),
            ResourceRef::of::<CronJob>(),
            ResourceRef::of::<DaemonSet>(),
            ResourceRef::of::<Deployment>(),
            ResourceRef::of::<EndpointSlice>(),
            ResourceRef::of::<Endpoints>(),
            ResourceRef::of::<Job>(),
            ResourceRef::of::<Namespace>(),
            ResourceRef::of::<Node>(),
            ResourceRef::of::<PersistentVolume>(),
            ResourceRef::of::<PersistentVolumeClaim>(),
            ResourceRef::of::<Pod>(),
            ResourceRef::of::<ReplicaSet>(),
            ResourceRef::of::<ReplicationController>(),
            ResourceRef::of::<Service>(),
            ResourceRef::of::<StatefulSet>(),
        ] {
            assert!(kinds::built_in().any(|followed| *followed == resource), "{resource:?}");
        }
    }
}
