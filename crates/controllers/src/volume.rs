//! Persistent storage: claims get volumes, volumes get to nodes, and both go when nobody needs them.
//!
//! The parts meet in the API only: the binder brings claims and volumes together, provisioners make volumes (our own
//! driver's is [`hostpath`]; others run beside their drivers), the attacher keeps VolumeAttachments, and the
//! protection controllers let go of what is not used. [`selinux_warning`] only watches.

pub mod attachment;
pub mod attributes_protection;
pub mod binder;
pub mod ephemeral;
pub mod expansion;
pub mod hostpath;
pub mod protection;
pub mod selinux_warning;

use std::sync::Arc;

use controller::pod::Pod;
use controller::volume::claims_of;
use controller::volume::migration::{self, MIGRATED_TO};
use controller::{Change, Informers};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// On a volume: its provisioner, which was part of the controller manager, has yet to remove the disk.
const IN_TREE_FINALIZER: &str = "kubernetes.io/pv-controller";

/// The key of the claim that a volume is for; empty if it is for none.
fn claim_key(volume: &PersistentVolume) -> Option<String> {
    let reference = controller::volume::claim_ref(volume)?;
    Some(format!("{}/{}", reference.namespace.as_deref()?, reference.name.as_deref()?))
}

/// Sets an annotation; says whether that is news.
fn annotate(meta: &mut ObjectMeta, key: &str, value: &str) -> bool {
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned()).is_none_or(|old| old != value)
}

/// Says which driver has taken over from a provisioner of old, or that none has; says whether that is news. A finalizer that
/// the old one would have taken away goes too. Source: `updateMigrationAnnotations`, `modifyDeletionFinalizers`.
fn note_migrated(meta: &mut ObjectMeta, provisioner: Option<&str>) -> bool {
    let Some(provisioner) = provisioner else { return false };
    match migration::driver_of(provisioner) {
        Some(driver) => annotate(meta, MIGRATED_TO, driver) | drop_finalizer(meta, IN_TREE_FINALIZER),
        None => meta.annotations.as_mut().is_some_and(|all| all.remove(MIGRATED_TO).is_some()),
    }
}

/// Takes a finalizer away; says whether it was there.
fn drop_finalizer(meta: &mut ObjectMeta, finalizer: &str) -> bool {
    let Some(all) = &mut meta.finalizers else { return false };
    let before = all.len();
    all.retain(|one| one != finalizer);
    all.len() != before
}

fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|one| one == finalizer)
}

/// A claim's change wakes it, and the volumes that it has or had.
fn claim_and_volumes(change: &Change<PersistentVolumeClaim>, informers: &Informers) -> Vec<String> {
    let mut keys = vec![change.key.to_string()];
    for claim in [change.old.as_deref(), change.new.as_deref()].into_iter().flatten() {
        let name = controller::volume::volume_name(claim);
        if !name.is_empty() {
            keys.push(name.to_owned());
        }
    }
    // One that is gone may be named by a volume that it never knew of.
    if change.new.is_none() {
        let volumes = informers.informer::<PersistentVolume>().list();
        let mine = volumes.iter().filter(|volume| claim_key(volume).as_deref() == Some(&change.key));
        keys.extend(mine.filter_map(|volume| volume.metadata.name.clone()));
    }
    keys.sort();
    keys.dedup();
    keys
}

/// The claims of a Pod that came, changed or went.
fn claims_of_pod(change: &Change<Pod>, _: &Informers) -> Vec<String> {
    let both: [Option<&Arc<Pod>>; 2] = [change.old.as_ref(), change.new.as_ref()];
    let mut keys: Vec<String> = both.into_iter().flatten().flat_map(|pod| claims_of(pod)).collect();
    keys.sort();
    keys.dedup();
    keys
}
