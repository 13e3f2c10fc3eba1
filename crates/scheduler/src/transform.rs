//! The transform of the scheduler's informer of Pods. What scheduling does not depend on of the Pods that it shares a type with
//! controllers for (`controller::pod`) is not kept. Extenders are sent whole Pods; where there are some, their informer has
//! all, and nothing is left out here.
//!
//! Whoever comes to read one of these fields takes it from the list; until then tests see Pods without them.

use controller::informer::Transform;
#[cfg(test)]
use controller::pod::Pod;

/// Of containers and init containers.
const CONTAINER: [&str; 3] = ["env", "envFrom", "resources.limits"];
/// Of their statuses: what they have, and were allocated, counts.
const STATUS: [&str; 2] = ["resources.limits", "state"];
/// Elsewhere. Volumes count that have claims, that drivers have taken over, or that one Node has at a time; conditions that
/// are not met, such as that the Pod has a Node, and two others.
const OTHERS: [&str; 15] = [
    "metadata.annotations",
    "metadata.finalizers",
    "metadata.generateName",
    "metadata.ownerReferences.uid",
    "spec.ephemeralContainers",
    "spec.hostname",
    "spec.imagePullSecrets",
    "spec.priorityClassName",
    "spec.restartPolicy",
    "spec.subdomain",
    "spec.volumes[persistentVolumeClaim|ephemeral|awsElasticBlockStore|azureDisk|azureFile|cinder|gcePersistentDisk|iscsi|\
     portworxVolume|rbd|vsphereVolume]",
    "status.conditions[False|DisruptionTarget|PodResizePending]",
    "status.podIP",
    "status.podIPs",
    "status.reason",
];

/// The transform of Pods.
pub(crate) fn of_pods() -> Transform {
    let in_all = |lists: [&'static str; 2], fields: &'static [&'static str]| {
        lists.into_iter().flat_map(move |list| fields.iter().map(move |field| (list, *field)))
    };
    let containers = in_all(["spec.containers", "spec.initContainers"], &CONTAINER);
    let statuses = in_all(["status.containerStatuses", "status.initContainerStatuses"], &STATUS);
    let others = OTHERS.iter().map(|path| ("", *path));
    Transform::without(containers.chain(statuses).chain(others))
}

/// Reads YAML; of Pods what the scheduler knows of them.
#[cfg(test)]
pub(crate) fn parse<T: serde::de::DeserializeOwned + 'static>(yaml: &str) -> T {
    let read: T = serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
    match (&read as &dyn std::any::Any).downcast_ref::<Pod>() {
        Some(Pod { metadata, spec, status }) => {
            let pod = serde_json::json!({ "metadata": metadata, "spec": spec, "status": status });
            controller::informer::known(&pod.to_string(), &of_pods()).expect("a Pod")
        }
        None => read,
    }
}
