//! Hints of the plugins that look at volumes and devices.

use controller::pod::Pod;
use controller::resource_claim::{is_allocated, of_pod};
use controller::volume::{self, csi, migration};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::api::storage::v1::{CSINode, CSIStorageCapacity};
use machinery::quantity::Quantity;

use super::nodes::any_new;
use crate::events::{Event, Turn, claims_of};
use crate::node_info::Snapshot;
use crate::plugins::volume_restrictions::share_disk;
use crate::pod::uid;
use crate::storage::claim_key;

/// A Pod has gone that had the disk or the claim, or the claim is there.
pub(super) fn restrictions(event: &Event, pod: &Pod, all: &Snapshot) -> bool {
    match event {
        Event::Pod(Turn { old: Some(gone), new: None }) => {
            let has_volumes = |pod: &Pod| pod.spec.iter().any(|spec| spec.volumes.is_some());
            gone.metadata.namespace == pod.metadata.namespace && has_volumes(gone) || share_disk(gone, pod)
        }
        Event::Claim(turn) => turn.is_new() && is_own(turn, pod),
        _ => any_new(event, pod, all),
    }
}

/// A volume was detached, or a node can attach more.
pub(super) fn limits(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    match event {
        Event::Pod(Turn { old: Some(gone), new: None }) => {
            gone.spec.iter().any(|spec| spec.volumes.is_some())
        }
        Event::Claim(turn) => turn.is_new() && is_own(turn, pod),
        Event::CsiNode(turn) => turn.both().is_none_or(|(old, new)| attaches_more(old, new)),
        Event::Attachment(Turn { old: Some(gone), new: None }) => is_near(&gone.spec.attacher, pod),
        // What is attached and has no volume does not count.
        Event::Volume(Turn { old: Some(_), new: None }) => true,
        _ => false,
    }
}

/// Whether the Pod may want a volume of the driver. Source: `isSchedulableAfterVolumeAttachmentDeleted`.
fn is_near(driver: &str, pod: &Pod) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|one| {
        let migrated = migration::inline(one, namespace).and_then(Result::ok);
        let is_inline = migrated.as_ref().and_then(csi).is_some_and(|source| source.driver == driver);
        one.persistent_volume_claim.is_some() || one.ephemeral.is_some() || is_inline
    })
}

fn attaches_more(old: &CSINode, new: &CSINode) -> bool {
    let limit = |node: &CSINode, name: &str| {
        let driver = node.spec.drivers.iter().find(|driver| driver.name == name);
        driver.and_then(|driver| driver.allocatable.as_ref()?.count)
    };
    let names = old.spec.drivers.iter().chain(&new.spec.drivers).map(|driver| driver.name.as_str());
    // Whoever names no limit has none.
    names.into_iter().any(|name| match (limit(old, name), limit(new, name)) {
        (Some(before), Some(after)) => after > before,
        (Some(_), None) => true,
        (None, _) => false,
    })
}

/// Something that a claim could be bound to, or that says where.
pub(super) fn binding(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    match event {
        Event::Claim(turn) => turn.new.is_some() && is_own(turn, pod),
        Event::Volume(turn) => turn.new.is_some(),
        Event::StorageClass(turn) => {
            turn.both().map_or(turn.is_new(), |(old, new)| old.allowed_topologies != new.allowed_topologies)
        }
        Event::Node(turn) => {
            turn.both().map_or(turn.is_new(), |(old, new)| old.metadata.labels != new.metadata.labels)
        }
        Event::CsiNode(turn) => turn
            .both()
            .map_or(turn.is_new(), |(old, new)| old.metadata.annotations != new.metadata.annotations),
        Event::CsiDriver(turn) => turn.both().is_some_and(|(old, new)| {
            old.spec.storage_capacity == Some(true) && new.spec.storage_capacity != Some(true)
        }),
        Event::Capacity(turn) => turn.both().map_or(turn.is_new(), |(old, new)| {
            old.node_topology != new.node_topology
                || limit_of(new).is_some_and(|after| limit_of(old).is_none_or(|before| after > before))
        }),
        _ => false,
    }
}

fn limit_of(capacity: &CSIStorageCapacity) -> Option<Quantity> {
    capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref())?.0.parse().ok()
}

/// The volume, or a Node, is in another zone.
pub(super) fn zone(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    match event {
        Event::Claim(turn) => turn.new.is_some() && is_own(turn, pod),
        Event::Volume(turn) => {
            turn.both().map_or(turn.is_new(), |(old, new)| old.metadata.labels != new.metadata.labels)
        }
        Event::StorageClass(turn) => turn.is_new() && turn.now().is_some_and(volume::waits_for_consumer),
        Event::Node(turn) => {
            turn.both().map_or(turn.is_new(), |(old, new)| old.metadata.labels != new.metadata.labels)
        }
        _ => false,
    }
}

/// Whether the claim is one that the Pod names.
fn is_own(turn: &Turn<PersistentVolumeClaim>, pod: &Pod) -> bool {
    turn.object().is_some_and(|claim| volume::claims_of(pod).contains(&claim_key(claim)))
}

/// Devices were given back, or there are others; or the Pod's own claims are there.
pub(super) fn dynamic_resources(event: &Event, pod: &Pod, _: &Snapshot) -> bool {
    match event {
        Event::DeviceClaim(turn) => changes_claims(turn, pod),
        Event::DeviceClass(turn) => turn.new.is_some(),
        Event::DeviceSlice(turn) => turn.new.is_some(),
        Event::Wish(turn) => {
            turn.both().is_some_and(|(old, new)| uid(new) == uid(pod) && claims_of(old) != claims_of(new))
        }
        Event::Node(turn) => {
            let allocatable =
                |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
            turn.both().map_or(turn.is_new(), |(old, new)| {
                old.metadata.labels != new.metadata.labels || allocatable(old) != allocatable(new)
            })
        }
        _ => false,
    }
}

fn changes_claims(turn: &Turn<ResourceClaim>, pod: &Pod) -> bool {
    let was_allocated = turn.old.as_deref().is_some_and(is_allocated);
    if was_allocated && !turn.now().is_some_and(is_allocated) {
        return true;
    }
    let Some(new) = turn.now() else { return false };
    let is_news = turn.old.as_deref().is_none_or(|old| old.status != new.status);
    let is_near = new.metadata.namespace == pod.metadata.namespace;
    let is_own = of_pod(pod).iter().any(|claim| {
        let meant = controller::resource_claim::meant(pod, claim);
        meant.name().is_some() && meant.name() == new.metadata.name.as_deref()
    });
    is_news && is_near && is_own
}
