//! The volume that a claim gets: of those that fit, one that was made for it, or else the smallest. A binder takes one with
//! fewer access modes first, even before one that was made for the claim.
//!
//! Source: `FindMatchingVolume`, `component-helpers/storage/volume`; `persistentVolumeOrderedIndex`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use machinery::quantity::Quantity;

use super::{
    affinity, capacity, claim_class, claim_mode, claim_ref, is_for, requested, volume_class, volume_mode,
};
use crate::selector;

/// The volumes that are looked for.
#[derive(Clone, Copy, Debug)]
pub enum Search<'a> {
    /// Any that is free.
    All,
    /// Only those that a person has set aside for the claim: the scheduler decides about the rest.
    SetAside,
    /// Those that a node with these labels can reach.
    On(Option<&'a BTreeMap<String, String>>),
}

/// The volume for `claim` out of `volumes`, which are looked at in order.
pub fn find<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a Arc<PersistentVolume>>,
    search: Search<'_>,
) -> Option<&'a Arc<PersistentVolume>> {
    let wanted = requested(claim);
    let is_near = |volume: &PersistentVolume| match search {
        Search::On(labels) => affinity::reaches(volume, labels),
        // A binder knows volumes by their modes.
        Search::All | Search::SetAside => has_modes(claim, volume),
    };
    let rank_of = |volume: &PersistentVolume, is_own: bool| {
        let modes = if matches!(search, Search::On(_)) { 0 } else { modes(volume).len() };
        (modes, !is_own, if is_own { Quantity::default() } else { capacity(volume) })
    };
    let mut best = None;
    for volume in volumes {
        let is_gone = volume.metadata.deletion_timestamp.is_some();
        let is_small = capacity(volume) < wanted;
        let is_other = volume_mode(volume) != claim_mode(claim) || !has_same_attributes(claim, volume);
        if is_gone || is_small || is_other {
            continue;
        }
        let is_own = is_for(volume, claim);
        if is_own && matches!(search, Search::On(_)) {
            // One that the Node cannot reach is no reason to take another.
            return is_near(volume).then_some(volume);
        }
        let is_free = || claim_ref(volume).is_none() && phase(volume) == "Available";
        let is_open = || !matches!(search, Search::SetAside) && is_free();
        let fits = || why_not(claim, volume).is_none() && is_selected(claim, volume);
        if (is_own || is_open() && fits()) && is_near(volume) {
            let rank = rank_of(volume, is_own);
            if best.as_ref().is_none_or(|(found, _)| rank < *found) {
                best = Some((rank, volume));
            }
        }
    }
    best.map(|(_, volume)| volume)
}

/// The reason why a claim cannot have the volume that it names; `None` if it can.
pub fn why_not(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<&'static str> {
    if capacity(volume) < requested(claim) {
        return Some("requested PV is too small");
    }
    if volume_class(volume) != claim_class(claim).unwrap_or_default() {
        return Some("storageClassName does not match");
    }
    if volume_mode(volume) != claim_mode(claim) {
        return Some("incompatible volumeMode");
    }
    if !has_modes(claim, volume) {
        return Some("incompatible accessMode");
    }
    None
}

fn is_selected(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    wanted.is_none_or(|wanted| {
        selector::is_empty(wanted) || selector::selects(wanted, volume.metadata.labels.as_ref())
    })
}

fn has_modes(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| modes(volume).contains(mode))
}

fn modes(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

fn has_same_attributes(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let given = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    wanted.unwrap_or_default() == given.unwrap_or_default()
}

/// The phase, empty when there is no status yet.
pub fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
