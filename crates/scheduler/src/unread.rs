//! The parts of Pods that scheduling does not depend on: they are not kept, and are most of a Pod. Extenders are sent
//! whole Pods; where there are some, all is kept.
//!
//! Whoever comes to read one of these fields takes it from the list; until then tests see Pods without them.

use controller::informer::Unread;

/// Of containers and init containers.
const CONTAINER: [&str; 20] = [
    "args",
    "command",
    "env",
    "envFrom",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "resizePolicy",
    "resources.limits",
    "restartPolicyRules",
    "securityContext",
    "startupProbe",
    "stdin",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
];
/// Of their statuses: what they have, and were promised, counts.
const STATUS: [&str; 12] = [
    "allocatedResourcesStatus",
    "containerID",
    "image",
    "imageID",
    "lastState",
    "ready",
    "resources.limits",
    "started",
    "state",
    "stopSignal",
    "user",
    "volumeMounts",
];
/// Elsewhere. Volumes count that have claims, that drivers have taken over, or that one Node has at a time.
const OTHERS: [&str; 27] = [
    "metadata.annotations",
    "metadata.finalizers",
    "spec.automountServiceAccountToken",
    "spec.dnsConfig",
    "spec.dnsPolicy",
    "spec.enableServiceLinks",
    "spec.ephemeralContainers",
    "spec.hostAliases",
    "spec.hostname",
    "spec.imagePullSecrets",
    "spec.readinessGates",
    "spec.restartPolicy",
    "spec.securityContext",
    "spec.serviceAccount",
    "spec.serviceAccountName",
    "spec.setHostnameAsFQDN",
    "spec.subdomain",
    "spec.terminationGracePeriodSeconds",
    "spec.volumes[persistentVolumeClaim|ephemeral|awsElasticBlockStore|azureDisk|azureFile|cinder|gcePersistentDisk|iscsi|\
     portworxVolume|rbd|vsphereVolume]",
    "status.ephemeralContainerStatuses",
    "status.hostIP",
    "status.hostIPs",
    "status.message",
    "status.podIP",
    "status.podIPs",
    "status.qosClass",
    "status.reason",
];

/// What is left out of Pods.
pub(crate) fn of_pods() -> Unread {
    let in_all = |lists: [&'static str; 2], fields: &'static [&'static str]| {
        lists.into_iter().flat_map(move |list| fields.iter().map(move |field| (list, *field)))
    };
    let containers = in_all(["spec.containers", "spec.initContainers"], &CONTAINER);
    let statuses = in_all(["status.containerStatuses", "status.initContainerStatuses"], &STATUS);
    let others = OTHERS.iter().map(|path| ("", *path));
    Unread::new(containers.chain(statuses).chain(others))
}

/// Reads YAML; of Pods what the scheduler knows of them.
#[cfg(test)]
pub(crate) fn parse<T: serde::de::DeserializeOwned + 'static>(yaml: &str) -> T {
    use k8s_openapi::api::core::v1::Pod;

    let read: T = serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
    match (&read as &dyn std::any::Any).downcast_ref::<Pod>() {
        Some(pod) => {
            controller::informer::known(&serde_json::json!(pod).to_string(), &of_pods()).expect("a Pod")
        }
        None => read,
    }
}
