//! The other kinds of the core group.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::{Row, absent, fill_resources, object, objects, quantities, text, unset};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.core.v1.Namespace", namespace),
    ("io.k8s.api.core.v1.NamespaceStatus", |m| unset(m, "phase", "Active")),
    ("io.k8s.api.core.v1.Secret", secret),
    ("io.k8s.api.core.v1.Endpoints", endpoints),
    ("io.k8s.api.core.v1.LoadBalancerIngress", load_balancer_ingress),
    ("io.k8s.api.core.v1.NodeStatus", node_status),
    ("io.k8s.api.core.v1.PersistentVolume", persistent_volume),
    ("io.k8s.api.core.v1.PersistentVolumeSpec", |m| quantities(m, "capacity")),
    ("io.k8s.api.core.v1.PersistentVolumeClaim", persistent_volume_claim),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", |m| absent(m, "volumeMode", "Filesystem")),
    ("io.k8s.api.core.v1.PersistentVolumeClaimStatus", |m| {
        ["allocatedResources", "capacity"].iter().for_each(|name| quantities(m, name));
    }),
    ("io.k8s.api.core.v1.ReplicationController", replication_controller),
    ("io.k8s.api.core.v1.ResourceQuotaSpec", |m| quantities(m, "hard")),
    ("io.k8s.api.core.v1.ResourceQuotaStatus", resource_quota_status),
    ("io.k8s.api.core.v1.LimitRangeItem", limit_range_item),
];

/// Every namespace can be selected by its name.
fn namespace(namespace: &mut Map<String, Value>) {
    let Some(metadata) = object(namespace, "metadata") else { return };
    let name = text(metadata, "name").to_owned();
    if name.is_empty() {
        return;
    }
    if let Some(labels) = object(metadata, "labels") {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
}

/// `stringData` is write-only: it ends up in `data`.
fn secret(secret: &mut Map<String, Value>) {
    unset(secret, "type", "Opaque");
    let Some(Value::Object(plain)) = secret.remove("stringData") else { return };
    let Some(data) = object(secret, "data") else { return };
    for (key, value) in plain {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
    }
}

fn endpoints(endpoints: &mut Map<String, Value>) {
    for subset in objects(endpoints, "subsets") {
        objects(subset, "ports").for_each(|port| unset(port, "protocol", "TCP"));
    }
}

fn load_balancer_ingress(ingress: &mut Map<String, Value>) {
    if !text(ingress, "ip").is_empty() {
        absent(ingress, "ipMode", "VIP");
    }
}

fn node_status(status: &mut Map<String, Value>) {
    quantities(status, "capacity");
    quantities(status, "allocatable");
    if let Some(capacity) = status.get("capacity").cloned() {
        absent(status, "allocatable", capacity);
    }
}

fn persistent_volume(volume: &mut Map<String, Value>) {
    if let Some(spec) = object(volume, "spec") {
        unset(spec, "persistentVolumeReclaimPolicy", "Retain");
        absent(spec, "volumeMode", "Filesystem");
    }
    if let Some(status) = object(volume, "status") {
        unset(status, "phase", "Pending");
    }
}

fn persistent_volume_claim(claim: &mut Map<String, Value>) {
    if let Some(status) = object(claim, "status") {
        unset(status, "phase", "Pending");
    }
}

/// Selector and labels come from the template.
fn replication_controller(controller: &mut Map<String, Value>) {
    let template_labels =
        controller.get("spec").and_then(|s| s.pointer("/template/metadata/labels")).cloned();
    if let Some(spec) = object(controller, "spec") {
        absent(spec, "replicas", 1);
        if let Some(labels) = template_labels.clone() {
            absent(spec, "selector", labels);
        }
    }
    if let Some(labels) = template_labels
        && let Some(metadata) = object(controller, "metadata")
    {
        absent(metadata, "labels", labels);
    }
}

fn resource_quota_status(status: &mut Map<String, Value>) {
    quantities(status, "hard");
    quantities(status, "used");
}

fn limit_range_item(item: &mut Map<String, Value>) {
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        quantities(item, list);
    }
    if text(item, "type") == "Container" {
        fill_resources(item, "max", "default");
        fill_resources(item, "default", "defaultRequest");
        fill_resources(item, "min", "defaultRequest");
    }
}
