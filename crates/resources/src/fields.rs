//! The fields that selectors may name, per kind.
//!
//! `metadata.name` and (for namespaced kinds) `metadata.namespace` are offered by every kind and stand in no row.

use crate::row_values::Text;

/// A field that a selector may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectableField {
    /// The field's label in a selector.
    pub label: Text,
    /// The place of its value, as a JSON pointer.
    pub pointer: Text,
    /// The place of its value if it is not there, empty for nowhere else.
    pub fallback: Text,
    /// The value of an object that has none.
    pub absent: Text,
}

const fn field(label: &'static str, pointer: &'static str) -> SelectableField {
    or(label, pointer, "")
}

const fn or(label: &'static str, pointer: &'static str, absent: &'static str) -> SelectableField {
    either(label, [pointer, ""], absent)
}

const fn either(
    label: &'static str,
    [pointer, fallback]: [&'static str; 2],
    absent: &'static str,
) -> SelectableField {
    SelectableField {
        label: Text::Static(label),
        pointer: Text::Static(pointer),
        fallback: Text::Static(fallback),
        absent: Text::Static(absent),
    }
}

/// Source: `ToSelectableFields` of `pkg/registry/core/event/strategy.go`.
const SOURCE: SelectableField = either("source", ["/source/component", "/reportingComponent"], "");

impl SelectableField {
    /// The places where its value may be.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        [&*self.pointer, &*self.fallback].into_iter().filter(|pointer| !pointer.is_empty())
    }
}

/// Pods.
pub const POD: &[SelectableField] = &[
    field("spec.nodeName", "/spec/nodeName"),
    field("spec.restartPolicy", "/spec/restartPolicy"),
    field("spec.schedulerName", "/spec/schedulerName"),
    field("spec.serviceAccountName", "/spec/serviceAccountName"),
    or("spec.hostNetwork", "/spec/hostNetwork", "false"),
    field("status.phase", "/status/phase"),
    field("status.podIP", "/status/podIP"),
    field("status.podIPs", "/status/podIP"),
    field("status.nominatedNodeName", "/status/nominatedNodeName"),
];

/// Nodes.
pub const NODE: &[SelectableField] = &[or("spec.unschedulable", "/spec/unschedulable", "false")];

/// Namespaces.
pub const NAMESPACE: &[SelectableField] =
    &[field("status.phase", "/status/phase"), field("name", "/metadata/name")];

/// Secrets.
pub const SECRET: &[SelectableField] = &[field("type", "/type")];

/// Services.
pub const SERVICE: &[SelectableField] =
    &[field("spec.clusterIP", "/spec/clusterIP"), field("spec.type", "/spec/type")];

/// ReplicaSets and ReplicationControllers.
pub const REPLICAS: &[SelectableField] = &[or("status.replicas", "/status/replicas", "0")];

/// Jobs.
pub const JOB: &[SelectableField] = &[or("status.successful", "/status/succeeded", "0")];

/// CertificateSigningRequests.
pub const CERTIFICATE_SIGNING_REQUEST: &[SelectableField] = &[field("spec.signerName", "/spec/signerName")];

/// ClusterTrustBundles.
pub const CLUSTER_TRUST_BUNDLE: &[SelectableField] = &[field("spec.signerName", "/spec/signerName")];

/// PodCertificateRequests.
pub const POD_CERTIFICATE_REQUEST: &[SelectableField] = &[
    field("spec.signerName", "/spec/signerName"),
    field("spec.podName", "/spec/podName"),
    field("spec.nodeName", "/spec/nodeName"),
];

/// ResourceSlices.
pub const RESOURCE_SLICE: &[SelectableField] =
    &[field("spec.nodeName", "/spec/nodeName"), field("spec.driver", "/spec/driver")];

/// core/v1 Events.
pub const EVENT: &[SelectableField] = &[
    field("involvedObject.kind", "/involvedObject/kind"),
    field("involvedObject.namespace", "/involvedObject/namespace"),
    field("involvedObject.name", "/involvedObject/name"),
    field("involvedObject.uid", "/involvedObject/uid"),
    field("involvedObject.apiVersion", "/involvedObject/apiVersion"),
    field("involvedObject.resourceVersion", "/involvedObject/resourceVersion"),
    field("involvedObject.fieldPath", "/involvedObject/fieldPath"),
    field("reason", "/reason"),
    field("reportingComponent", "/reportingComponent"),
    SOURCE,
    field("type", "/type"),
];

/// events.k8s.io/v1 Events.
pub const EVENT_V1: &[SelectableField] = &[
    field("regarding.kind", "/regarding/kind"),
    field("regarding.namespace", "/regarding/namespace"),
    field("regarding.name", "/regarding/name"),
    field("regarding.uid", "/regarding/uid"),
    field("regarding.apiVersion", "/regarding/apiVersion"),
    field("regarding.resourceVersion", "/regarding/resourceVersion"),
    field("regarding.fieldPath", "/regarding/fieldPath"),
    field("reason", "/reason"),
    field("reportingController", "/reportingController"),
    field("type", "/type"),
];
