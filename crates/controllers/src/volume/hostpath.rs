//! Makes, grows and removes volumes of our own driver, as the provisioner and the resizer beside other drivers do.
//!
//! The driver runs on every node and its volumes stay on theirs, so that its calls are made where the volume is: through
//! the API server to the node's kubelet, and from there over the driver's socket. Nodes need no rights for it.
//! Source: `sig-storage-lib-external-provisioner`, `external-provisioner` and `external-resizer` for annotations, events
//! and what a volume looks like.

mod grow;
mod provision;
mod reclaim;

use std::sync::Arc;

use controller::plan::{ApiRequest, Verb};
use controller::volume::{SELECTED_NODE, annotation, csi, volume_name};
use controller::{Action, Change, Controller, Informers, Plan, ResourceRef, Source};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use serde_json::Value;

use super::claim_key;
use crate::object::key;

/// The driver's name.
pub const DRIVER: &str = "hostpath.csi.knarr.io";
/// The label of a Node that says which one it is to the driver.
const TOPOLOGY_KEY: &str = "topology.hostpath.csi.knarr.io/node";
/// Holds a volume object until its files are gone. Source: KEP-2644.
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The controller's row. Keys are claims and volumes.
pub const CONTROLLER: Controller = Controller {
    name: "csi-hostpath-controller",
    queue: "csi_hostpath",
    sources: |_| {
        vec![
            Source::of::<PersistentVolumeClaim>(|change, _| vec![change.key.clone()]),
            Source::of::<PersistentVolume>(volume_and_claim),
            Source::of::<CSINode>(|change, informers| waiting_for(&change.key, informers)),
            Source::of::<Node>(|change, informers| match (&change.old, &change.new) {
                (Some(_), Some(_)) => Vec::new(),
                _ => waiting_for(&change.key, informers),
            }),
            Source::itself::<StorageClass>(),
        ]
    },
    reconcile: |informers, key, _| {
        if key.contains('/') {
            let Some(claim) = informers.informer::<PersistentVolumeClaim>().get(key) else {
                return Plan::nothing();
            };
            let snapshot = claim_snapshot(informers, claim);
            let plan = provision::plan(&snapshot);
            return if plan.is_empty() { grow::plan(&snapshot) } else { plan };
        }
        let Some(volume) = informers.informer::<PersistentVolume>().get(key) else { return Plan::nothing() };
        let has_node = node_of(&volume).is_some_and(|node| informers.informer::<Node>().get(node).is_some());
        reclaim::plan(&volume, has_node)
    },
};

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
}

fn claim_snapshot(informers: &Informers, claim: Arc<PersistentVolumeClaim>) -> ClaimSnapshot {
    let class = controller::volume::claim_class(&claim).unwrap_or_default();
    let volume = match volume_name(&claim) {
        "" => provision::name(&claim),
        named => named.to_owned(),
    };
    let nodes = informers.informer::<CSINode>().list();
    let has = |node: &&Arc<CSINode>| node.spec.drivers.iter().any(|driver| driver.name == DRIVER);
    let selected = annotation(&claim.metadata, SELECTED_NODE);
    ClaimSnapshot {
        class: informers.informer::<StorageClass>().get(class),
        volume: informers.informer::<PersistentVolume>().get(&volume),
        nodes: nodes.iter().filter(has).map(|node| key(&node.metadata)).collect(),
        has_selected: selected.is_some_and(|node| informers.informer::<Node>().get(node).is_some()),
        claim,
    }
}

fn volume_and_claim(change: &Change<PersistentVolume>, _: &Informers) -> Vec<String> {
    let Some(volume) = change.new.as_ref().filter(|volume| is_ours(volume)) else { return Vec::new() };
    std::iter::once(change.key.clone()).chain(claim_key(volume)).collect()
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
        subresource: "proxy/csi",
        body,
    }))
}

#[cfg(test)]
mod tests;
