//! The persistent volume binder: claims and volumes find each other, one change at a time.
//!
//! A binding is four writes: the volume names the claim, is Bound, the claim names the volume, is Bound. Each run makes
//! the next one; what it wrote wakes the key again. So a crash at any point leaves a picture that the next run goes
//! on from. A key with a namespace is a claim, one without is a volume.
//! Source: `pkg/controller/volume/persistentvolume`.

mod claims;
mod volumes;

use std::sync::Arc;

use controller::metadata::key;
use controller::pod::Pod;
use controller::volume::{claim_class, volume_name};
use controller::{Change, Controller, Informers, Plan, Source};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::{claim_and_volumes, claim_key};
use crate::options::Options;

pub use claims::{ClaimSnapshot, plan_claim};
pub use volumes::{VolumeSnapshot, plan_volume};

/// The controller's row. Keys are claims and volumes.
pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-binder-controller",
    queue: "persistentvolume_binder",
    sources: |_| {
        vec![
            Source::of::<PersistentVolumeClaim>(claim_and_volumes),
            Source::of::<PersistentVolume>(volume_and_claims),
            Source::of::<StorageClass>(claims_of_class),
            Source::of::<Pod>(claims_that_wait),
        ]
    },
    reconcile: |informers, key, _| match key.contains('/') {
        true => claim_snapshot(informers, key).map_or_else(Plan::nothing, |snapshot| plan_claim(&snapshot)),
        false => {
            volume_snapshot(informers, key).map_or_else(Plan::nothing, |snapshot| plan_volume(&snapshot))
        }
    },
};

fn claim_snapshot(informers: &Informers, key: &str) -> Option<ClaimSnapshot> {
    let claim = informers.informer::<PersistentVolumeClaim>().get(key)?;
    let class = claim_class(&claim).filter(|name| !name.is_empty());
    let pods = informers.informer::<Pod>().in_namespace(claim.metadata.namespace.as_deref()?);
    let waiting = pods.iter().filter(|pod| controller::volume::claims_of(pod).iter().any(|one| one == key));
    Some(ClaimSnapshot {
        volumes: informers.informer::<PersistentVolume>().list(),
        class: class.and_then(|name| informers.informer::<StorageClass>().get(name)),
        classes: informers.informer::<StorageClass>().list(),
        pods: waiting.filter_map(|pod| pod.metadata.name.clone()).collect(),
        is_provisioned: Options::of(informers).enable_dynamic_provisioning,
        claim,
    })
}

fn volume_snapshot(informers: &Informers, key: &str) -> Option<VolumeSnapshot> {
    let volume = informers.informer::<PersistentVolume>().get(key)?;
    let claim = claim_key(&volume).and_then(|key| informers.informer::<PersistentVolumeClaim>().get(&key));
    Some(VolumeSnapshot { volume, claim })
}

/// A volume wakes itself, the claim that it is for, and if it is free, those that wait for one.
fn volume_and_claims(change: &Change<PersistentVolume>, informers: &Informers) -> Vec<String> {
    let mut keys = vec![change.key.to_string()];
    keys.extend([change.old.as_deref(), change.new.as_deref()].into_iter().flatten().filter_map(claim_key));
    let claims = informers.informer::<PersistentVolumeClaim>().list();
    let is_free = change.new.as_ref().is_some_and(|volume| controller::volume::claim_ref(volume).is_none());
    let concerns = |claim: &&Arc<PersistentVolumeClaim>| {
        let name = volume_name(claim);
        *name == *change.key || (is_free && name.is_empty())
    };
    keys.extend(claims.iter().filter(concerns).map(|claim| key(&claim.metadata)));
    keys.sort();
    keys.dedup();
    keys
}

fn claims_of_class(change: &Change<StorageClass>, informers: &Informers) -> Vec<String> {
    let claims = informers.informer::<PersistentVolumeClaim>().list();
    let concerns = |claim: &&Arc<PersistentVolumeClaim>| {
        let class = claim_class(claim);
        volume_name(claim).is_empty() && class.is_none_or(|class| *class == *change.key)
    };
    claims.iter().filter(concerns).map(|claim| key(&claim.metadata)).collect()
}

/// Which Pods there are is told of a claim that waits for its first consumer.
fn claims_that_wait(change: &Change<Pod>, informers: &Informers) -> Vec<String> {
    if change.old.is_some() && change.new.is_some() {
        return Vec::new();
    }
    let claims = informers.informer::<PersistentVolumeClaim>();
    let mut keys = super::claims_of_pod(change, informers);
    keys.retain(|key| claims.get(key).is_some_and(|claim| volume_name(&claim).is_empty()));
    keys
}

#[cfg(test)]
mod tests;
