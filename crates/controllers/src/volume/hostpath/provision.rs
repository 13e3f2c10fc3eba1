//! A claim that waits for our driver gets a volume.

use std::collections::BTreeMap;

use controller::plan::FAILURE;
use controller::volume::{
    PROVISIONED_BY, PROVISIONER, SELECTED_NODE, annotation, claim_mode, requested, volume_name,
    waits_for_consumer,
};
use controller::{Action, EventType, Plan};
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::{ClaimSnapshot, DRIVER, FINALIZER, TOPOLOGY_KEY, call};
use crate::object::{is_deleting, key, uid};

/// The name of the volume that is made for a claim.
pub(super) fn name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", uid(&claim.metadata))
}

/// Decides whether the claim gets a volume, and where.
pub(super) fn plan(snapshot: &ClaimSnapshot) -> Plan {
    let claim = &*snapshot.claim;
    let mut plan = Plan::nothing();
    let is_ours = annotation(&claim.metadata, PROVISIONER) == Some(DRIVER);
    let is_done = !volume_name(claim).is_empty() || snapshot.volume.is_some();
    if !is_ours || is_done || is_deleting(&claim.metadata) {
        return plan;
    }
    let Some(class) = snapshot.class.as_deref().filter(|class| class.provisioner == DRIVER) else {
        return plan;
    };
    let selected = annotation(&claim.metadata, SELECTED_NODE);
    let node = match selected {
        Some(_) if !snapshot.has_selected => {
            // The scheduler is to choose again: that Node is gone.
            let mut new = claim.clone();
            new.metadata.annotations.get_or_insert_default().remove(SELECTED_NODE);
            plan.push(Action::update(&new));
            return plan;
        }
        Some(node) => Some(node),
        None if waits_for_consumer(class) => None,
        None => allowed(snapshot, class),
    };
    // A Node whose driver is not there yet is waited for.
    let Some(node) = node.filter(|node| snapshot.nodes.iter().any(|one| one == node)) else { return plan };
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    let event = |event_type, reason: &str, message: String| Action::event(claim, event_type, reason, message);
    let volume = volume(claim, class, node);
    let message =
        format!("External provisioner is provisioning volume for claim \"{}\"", key(&claim.metadata));
    plan.push(event(EventType::Normal, "Provisioning", message));
    plan.push(call(node, request(claim, class, node)));
    plan.push(Action::create(&volume));
    let message = format!("Successfully provisioned volume {}", name(claim));
    plan.push(event(EventType::Normal, "ProvisioningSucceeded", message));
    let message = format!("failed to provision volume with StorageClass \"{class_name}\": {FAILURE}");
    plan.on_failure = vec![event(EventType::Warning, "ProvisioningFailed", message)];
    plan
}

/// A Node for a volume that waits for nobody: one that the class allows, always the same for the same claim.
fn allowed<'a>(snapshot: &'a ClaimSnapshot, class: &StorageClass) -> Option<&'a str> {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let is_allowed = |node: &&String| {
        let holds = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| {
            let expressions = term.match_label_expressions.iter().flatten();
            expressions.into_iter().all(|one| one.key == TOPOLOGY_KEY && one.values.contains(node))
        };
        terms.is_empty() || terms.iter().any(holds)
    };
    let nodes: Vec<&String> = snapshot.nodes.iter().filter(is_allowed).collect();
    let sum = uid(&snapshot.claim.metadata).bytes().map(usize::from).sum::<usize>();
    nodes.get(sum % nodes.len().max(1)).map(|node| node.as_str())
}

fn request(claim: &PersistentVolumeClaim, class: &StorageClass, node: &str) -> serde_json::Value {
    let spec = claim.spec.as_ref();
    let is_copy = spec.is_some_and(|spec| spec.data_source.is_some() || spec.data_source_ref.is_some());
    let limits = spec.and_then(|spec| spec.resources.as_ref()?.limits.as_ref()?.get("storage"));
    let limit: machinery::quantity::Quantity =
        limits.and_then(|text| text.0.parse().ok()).unwrap_or_default();
    json!({
        "driver": DRIVER,
        "call": "CreateVolume",
        "name": name(claim),
        "requiredBytes": requested(claim).value(),
        "limitBytes": limit.value(),
        "volumeMode": claim_mode(claim),
        "accessModes": spec.and_then(|spec| spec.access_modes.clone()).unwrap_or_default(),
        "parameters": class.parameters.clone().unwrap_or_default(),
        "topology": {TOPOLOGY_KEY: node},
        "hasSource": is_copy,
    })
}

fn volume(claim: &PersistentVolumeClaim, class: &StorageClass, node: &str) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let capacity =
        requests.into_iter().filter(|(resource, _)| resource == "storage").collect::<BTreeMap<_, _>>();
    let expression = NodeSelectorRequirement {
        key: TOPOLOGY_KEY.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![expression]), ..NodeSelectorTerm::default() };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name(claim)),
            annotations: Some(BTreeMap::from([
                (PROVISIONED_BY.to_owned(), DRIVER.to_owned()),
                ("volume.kubernetes.io/provisioner-deletion-secret-name".to_owned(), String::new()),
                ("volume.kubernetes.io/provisioner-deletion-secret-namespace".to_owned(), String::new()),
            ])),
            finalizers: (policy == "Delete").then(|| vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some(capacity),
            claim_ref: Some(controller::volume::reference_to_claim(claim)),
            csi: Some(CSIPersistentVolumeSource {
                driver: DRIVER.to_owned(),
                volume_handle: name(claim),
                ..CSIPersistentVolumeSource::default()
            }),
            mount_options: class.mount_options.clone(),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: class.metadata.name.clone(),
            volume_attributes_class_name: spec.volume_attributes_class_name,
            volume_mode: Some(claim_mode(claim).to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
