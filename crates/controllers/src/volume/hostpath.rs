//! Makes, grows, changes and removes volumes of our own driver, as the provisioner and the resizer beside other drivers do.
//!
//! The driver runs on every node and its volumes stay on theirs, so that its calls are made where the volume is: through
//! the API server to the node's kubelet (`nodes/csi`, which leads to nothing else), and from there over the driver's
//! socket. Nodes need no rights for it.
//! Source: `sig-storage-lib-external-provisioner`, `external-provisioner` and `external-resizer` for annotations, events
//! and what a volume looks like.

pub mod capacity;
mod conditions;
mod grow;
mod modify;
mod note;
mod provision;
mod reclaim;

use std::sync::Arc;

use controller::metadata::{key, namespace, uid};
use controller::request::{ApiRequest, Verb};
use controller::volume::{SELECTED_NODE, annotation, csi, volume_name};
use controller::{Action, Change, Controller, Informers, Plan, ResourceRef, Source};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttributesClass};
use serde_json::Value;

use super::claim_key;

/// The driver's name.
pub const DRIVER: &str = "hostpath.csi.knarr.io";
/// Whose events are those of volumes that are made and removed, as external-provisioner's begin.
const PROVISIONER_COMPONENT: &str = DRIVER;
/// Whose events are those of volumes that change. Source: `NewResizeController` of external-resizer.
const RESIZER_COMPONENT: &str = "external-resizer hostpath.csi.knarr.io";
/// The label of a Node that says which one it is to the driver.
const TOPOLOGY_KEY: &str = "topology.hostpath.csi.knarr.io/node";
/// Holds a volume object until its files are gone. Source: KEP-2644.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The name of the volume that is made for a claim.
fn name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", uid(&claim.metadata))
}

/// The controller's row. Keys are claims and volumes.
pub const CONTROLLER: Controller = Controller {
    name: "csi-hostpath-controller",
    queue: "csi_hostpath",
    sources: |_| {
        vec![
            Source::of::<PersistentVolumeClaim>(claim_and_relatives),
            Source::of::<PersistentVolume>(volume_and_claim),
            Source::of::<CSINode>(|change, informers| waiting_for(&change.key, informers)),
            Source::of::<Node>(|change, informers| match (&change.old, &change.new) {
                (Some(_), Some(_)) => Vec::new(),
                _ => waiting_for(&change.key, informers),
            }),
            Source::of::<StorageClass>(|change, informers| {
                claims_where(informers, |claim| controller::volume::claim_class(claim) == Some(&change.key))
            }),
            Source::of::<VolumeAttributesClass>(|change, informers| {
                claims_where(informers, |claim| wanted_attributes(claim) == &*change.key)
            }),
        ]
    },
    reconcile: |informers, key, now| {
        if key.contains('/') {
            let Some(claim) = informers.informer::<PersistentVolumeClaim>().get(key) else {
                return Plan::nothing();
            };
            return plan_claim(&claim_snapshot(informers, claim), now);
        }
        let Some(volume) = informers.informer::<PersistentVolume>().get(key) else { return Plan::nothing() };
        let has_node = node_of(&volume).is_some_and(|node| informers.informer::<Node>().get(node).is_some());
        reclaim::plan(&volume, has_node)
    },
};

/// The first of the decisions that has something to do: what it writes wakes the claim for the next.
fn plan_claim(snapshot: &ClaimSnapshot, now: Timestamp) -> Plan {
    let decisions: [fn(&ClaimSnapshot, Timestamp) -> Plan; 5] =
        [provision::plan, note::plan, provision::let_go, grow::plan, modify::plan];
    let mut plans = decisions.iter().map(|decide| decide(snapshot, now));
    plans.find(|plan| *plan != Plan::nothing()).unwrap_or_default()
}

/// What a decision about one claim is made from.
struct ClaimSnapshot {
    claim: Arc<PersistentVolumeClaim>,
    class: Option<Arc<StorageClass>>,
    /// The volume that the claim has, or that was made for it.
    volume: Option<Arc<PersistentVolume>>,
    /// The Nodes with the driver, in name order.
    nodes: Vec<String>,
    /// Whether the Node that the scheduler has chosen is there.
    has_selected: bool,
    /// Whether the Node is there whose driver has been asked for a volume.
    has_noted: bool,
    /// The attributes that the claim asks for, and those that its volume has.
    attributes: Option<Arc<VolumeAttributesClass>>,
    current_attributes: Option<Arc<VolumeAttributesClass>>,
    /// The claim that this one is to be a copy of, with its volume.
    original: Option<(Arc<PersistentVolumeClaim>, Option<Arc<PersistentVolume>>)>,
    /// Whether a claim that has no volume yet is to be a copy of this one.
    is_copied: bool,
}

fn claim_snapshot(informers: &Informers, claim: Arc<PersistentVolumeClaim>) -> ClaimSnapshot {
    let class = controller::volume::claim_class(&claim).unwrap_or_default();
    let volume = match volume_name(&claim) {
        "" => name(&claim),
        named => named.to_owned(),
    };
    let nodes = informers.informer::<CSINode>().list();
    let has = |node: &&Arc<CSINode>| node.spec.drivers.iter().any(|driver| driver.name == DRIVER);
    let is_there =
        |node: Option<&str>| node.is_some_and(|node| informers.informer::<Node>().get(node).is_some());
    let attributes = |name: &str| informers.informer::<VolumeAttributesClass>().get(name);
    let current =
        claim.status.as_ref().and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let claims = informers.informer::<PersistentVolumeClaim>();
    let original = provision::original(&claim).and_then(|name| {
        let original = claims.get(&format!("{}/{name}", namespace(&claim.metadata)))?;
        let volume = informers.informer::<PersistentVolume>().get(volume_name(&original));
        Some((original, volume))
    });
    let is_copy = |other: &Arc<PersistentVolumeClaim>| {
        volume_name(other).is_empty() && provision::original(other) == claim.metadata.name.as_deref()
    };
    ClaimSnapshot {
        attributes: attributes(wanted_attributes(&claim)),
        current_attributes: current.and_then(attributes),
        original,
        is_copied: provision::is_held(&claim)
            && claims.in_namespace(namespace(&claim.metadata)).iter().any(is_copy),
        class: informers.informer::<StorageClass>().get(class),
        volume: informers.informer::<PersistentVolume>().get(&volume),
        nodes: nodes.iter().filter(has).map(|node| key(&node.metadata)).collect(),
        has_selected: is_there(annotation(&claim.metadata, SELECTED_NODE)),
        has_noted: is_there(note::node(&claim)),
        claim,
    }
}

/// The attributes that a claim asks for; empty if it asks for none.
fn wanted_attributes(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
}

fn claims_where(informers: &Informers, holds: impl Fn(&PersistentVolumeClaim) -> bool) -> Vec<String> {
    let claims = informers.informer::<PersistentVolumeClaim>().list();
    claims.iter().filter(|claim| holds(claim)).map(|claim| key(&claim.metadata)).collect()
}

/// A claim's change wakes it, what it is a copy of, and what is to be a copy of it.
fn claim_and_relatives(change: &Change<PersistentVolumeClaim>, informers: &Informers) -> Vec<String> {
    let mut keys = vec![change.key.to_string()];
    let Some(claim) = change.new.as_ref().or(change.old.as_ref()) else { return keys };
    let space = namespace(&claim.metadata);
    keys.extend(provision::original(claim).map(|name| format!("{space}/{name}")));
    let others = informers.informer::<PersistentVolumeClaim>().in_namespace(space);
    let is_copy = |other: &&Arc<PersistentVolumeClaim>| {
        volume_name(other).is_empty() && provision::original(other) == claim.metadata.name.as_deref()
    };
    keys.extend(others.iter().filter(is_copy).map(|copy| key(&copy.metadata)));
    keys
}

fn volume_and_claim(change: &Change<PersistentVolume>, _: &Informers) -> Vec<String> {
    let Some(volume) = change.new.as_ref().filter(|volume| is_ours(volume)) else { return Vec::new() };
    std::iter::once(change.key.to_string()).chain(claim_key(volume)).collect()
}

/// Claims and volumes that a Node may help, when it comes or goes.
fn waiting_for(node: &str, informers: &Informers) -> Vec<String> {
    let claims = informers.informer::<PersistentVolumeClaim>().list();
    let waits = |claim: &&Arc<PersistentVolumeClaim>| {
        volume_name(claim).is_empty()
            && annotation(&claim.metadata, controller::volume::PROVISIONER) == Some(DRIVER)
    };
    let volumes = informers.informer::<PersistentVolume>().list();
    let here = |volume: &&Arc<PersistentVolume>| is_ours(volume) && node_of(volume) == Some(node);
    let claims = claims.iter().filter(waits).map(|claim| key(&claim.metadata));
    claims.chain(volumes.iter().filter(here).map(|volume| key(&volume.metadata))).collect()
}

fn is_ours(volume: &PersistentVolume) -> bool {
    csi(volume).is_some_and(|source| source.driver == DRIVER)
}

/// The Node that a volume is on.
fn node_of(volume: &PersistentVolume) -> Option<&str> {
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let expressions =
        required.node_selector_terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
    let own = expressions.into_iter().find(|expression| expression.key == TOPOLOGY_KEY)?;
    own.values.as_ref()?.first().map(String::as_str)
}

/// A call of the driver on `node`. The kubelet's answer is a failure unless the call succeeded.
fn call(node: &str, body: Value) -> Action {
    Action::Request(Box::new(ApiRequest {
        verb: Verb::Create,
        resource: ResourceRef::of::<Node>(),
        namespace: String::new(),
        name: node.to_owned(),
        subresource: "csi",
        body,
    }))
}

#[cfg(test)]
mod tests;
