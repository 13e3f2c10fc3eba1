//! News of claims, volumes and what they are made by, as the scheduler's loop takes them in.

use controller::Informers;
use controller::informer::{Change, Changes};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};

use super::{ByKey, Storage, apply};
use crate::events::{Event, Turn};

/// Changes of everything that volume plugins look at.
pub(crate) struct StorageChanges {
    claims: Changes<PersistentVolumeClaim>,
    volumes: Changes<PersistentVolume>,
    classes: Changes<StorageClass>,
    csi_nodes: Changes<CSINode>,
    drivers: Changes<CSIDriver>,
    capacities: Changes<CSIStorageCapacity>,
    attachments: Changes<VolumeAttachment>,
}

/// What has happened, and to which claims.
pub(crate) struct News {
    pub(crate) events: Vec<Event>,
    /// Keys of claims that have changed.
    pub(crate) claims: Vec<String>,
}

/// Takes changes of one kind into what is known.
pub(crate) type StorageChange = Box<dyn FnOnce(&mut Storage) -> News + Send>;

/// Changes of one kind, other than claims.
fn other<K: controller::Kind>(
    changes: Vec<Change<K>>,
    of: impl FnOnce(&mut Storage) -> &mut ByKey<K> + Send + 'static,
    event: fn(Turn<K>) -> Event,
) -> StorageChange {
    Box::new(move |storage| {
        let events = changes.iter().map(|change| event(change.into())).collect();
        apply(of(storage), changes);
        News { events, claims: Vec::new() }
    })
}

fn claims(changes: Vec<Change<PersistentVolumeClaim>>) -> StorageChange {
    Box::new(move |storage| {
        let events = changes.iter().map(|change| Event::Claim(change.into())).collect();
        let claims = changes.iter().map(|change| change.key.to_string()).collect();
        apply(&mut storage.claims, changes);
        News { events, claims }
    })
}

impl StorageChanges {
    /// Follows them, once all is known.
    pub(crate) async fn synced(informers: &Informers) -> Self {
        let changes = Self {
            claims: informers.informer().subscribe(),
            volumes: informers.informer().subscribe(),
            classes: informers.informer().subscribe(),
            csi_nodes: informers.informer().subscribe(),
            drivers: informers.informer().subscribe(),
            capacities: informers.informer().subscribe(),
            attachments: informers.informer().subscribe(),
        };
        informers.informer::<PersistentVolumeClaim>().synced().await;
        informers.informer::<PersistentVolume>().synced().await;
        informers.informer::<StorageClass>().synced().await;
        informers.informer::<CSINode>().synced().await;
        informers.informer::<CSIDriver>().synced().await;
        informers.informer::<CSIStorageCapacity>().synced().await;
        informers.informer::<VolumeAttachment>().synced().await;
        changes
    }

    /// The next change, once there is one.
    pub(crate) async fn next(&mut self) -> StorageChange {
        tokio::select! {
            biased;
            changes = self.claims.next() => claims(changes),
            changes = self.volumes.next() => other(changes, |storage| &mut storage.volumes, Event::Volume),
            changes = self.classes.next() => other(changes, |storage| &mut storage.classes, Event::StorageClass),
            changes = self.csi_nodes.next() => other(changes, |storage| &mut storage.csi_nodes, Event::CsiNode),
            changes = self.drivers.next() => other(changes, |storage| &mut storage.drivers, Event::CsiDriver),
            changes = self.capacities.next() => other(changes, |storage| &mut storage.capacities, Event::Capacity),
            changes = self.attachments.next() => other(changes, |storage| &mut storage.attachments, Event::Attachment),
        }
    }
}
