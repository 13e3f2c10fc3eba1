//! News of claims, volumes and what they are made by, as the scheduler's loop takes them in.

use controller::Informers;
use controller::informer::{Change, Changes};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};

use super::{ByKey, Storage, apply};

/// Changes of everything that volume plugins look at.
pub(crate) struct StorageChanges {
    claims: Changes<PersistentVolumeClaim>,
    volumes: Changes<PersistentVolume>,
    classes: Changes<StorageClass>,
    csi_nodes: Changes<CSINode>,
    drivers: Changes<CSIDriver>,
    capacities: Changes<CSIStorageCapacity>,
}

/// Takes changes of one kind into what is known; gives the claims that have changed.
pub(crate) type StorageChange = Box<dyn FnOnce(&mut Storage) -> Vec<String> + Send>;

/// Changes of one kind, other than claims.
fn other<K: controller::Kind>(
    changes: Vec<Change<K>>,
    of: impl FnOnce(&mut Storage) -> &mut ByKey<K> + Send + 'static,
) -> StorageChange {
    Box::new(move |storage| {
        apply(of(storage), changes);
        Vec::new()
    })
}

fn claims(changes: Vec<Change<PersistentVolumeClaim>>) -> StorageChange {
    Box::new(move |storage| {
        let keys = changes.iter().map(|change| change.key.clone()).collect();
        apply(&mut storage.claims, changes);
        keys
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
        };
        informers.informer::<PersistentVolumeClaim>().synced().await;
        informers.informer::<PersistentVolume>().synced().await;
        informers.informer::<StorageClass>().synced().await;
        informers.informer::<CSINode>().synced().await;
        informers.informer::<CSIDriver>().synced().await;
        informers.informer::<CSIStorageCapacity>().synced().await;
        changes
    }

    /// The next change, once there is one.
    pub(crate) async fn next(&mut self) -> StorageChange {
        tokio::select! {
            biased;
            changes = self.claims.next() => claims(changes),
            changes = self.volumes.next() => other(changes, |storage| &mut storage.volumes),
            changes = self.classes.next() => other(changes, |storage| &mut storage.classes),
            changes = self.csi_nodes.next() => other(changes, |storage| &mut storage.csi_nodes),
            changes = self.drivers.next() => other(changes, |storage| &mut storage.drivers),
            changes = self.capacities.next() => other(changes, |storage| &mut storage.capacities),
        }
    }
}
