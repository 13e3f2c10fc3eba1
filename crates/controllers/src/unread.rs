//! What of Pods no controller reads: that is not kept, and is most of them.
//!
//! Whoever comes to read one of these fields takes it from the list; until then all tests see Pods without them.

use controller::Informers;
use controller::informer::Unread;
use k8s_openapi::api::core::v1::Pod;

/// Of containers and init containers. Names of Secrets in `env` and `envFrom` say which are used
/// (`legacy_token_cleaner.rs`).
const CONTAINER: [&str; 19] = [
    "args",
    "command",
    "env[secretKeyRef]",
    "envFrom[secretRef]",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "resizePolicy",
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
/// Of their statuses.
const STATUS: [&str; 11] = [
    "allocatedResources",
    "allocatedResourcesStatus",
    "containerID",
    "image",
    "imageID",
    "lastState",
    "resources",
    "started",
    "stopSignal",
    "user",
    "volumeMounts",
];
/// Elsewhere. Volumes count that have claims or Secrets, and those that drivers have taken over.
const OTHERS: [&str; 16] = [
    "spec.automountServiceAccountToken",
    "spec.dnsConfig",
    "spec.dnsPolicy",
    "spec.enableServiceLinks",
    "spec.hostAliases",
    "spec.readinessGates",
    "spec.schedulerName",
    "spec.securityContext",
    "spec.serviceAccount",
    "spec.serviceAccountName",
    "spec.topologySpreadConstraints",
    "spec.volumes[persistentVolumeClaim|ephemeral|secret|secretName|secretRef|nodePublishSecretRef|awsElasticBlockStore|\
     azureDisk|azureFile|cinder|csi|fc|gcePersistentDisk|iscsi|portworxVolume|rbd|vsphereVolume]",
    "status.ephemeralContainerStatuses",
    "status.hostIP",
    "status.hostIPs",
    "status.qosClass",
];

/// Has the informers of all controllers leave out what none reads; to be said before they start.
pub fn leave_out(informers: &Informers) {
    informers.leave_out::<Pod>(of_pods());
}

/// What is left out of Pods.
pub(crate) fn of_pods() -> Unread {
    let in_all = |lists: &'static [&'static str], fields: &'static [&'static str]| {
        lists.iter().flat_map(move |list| fields.iter().map(move |field| (*list, *field)))
    };
    let containers =
        in_all(&["spec.containers", "spec.initContainers", "spec.ephemeralContainers"], &CONTAINER);
    let statuses = in_all(&["status.containerStatuses", "status.initContainerStatuses"], &STATUS);
    let others = OTHERS.iter().map(|path| ("", *path));
    Unread::new(containers.chain(statuses).chain(others))
}
