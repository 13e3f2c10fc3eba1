//! A claim for one Pod (ReadWriteOncePod) is not for a second. Source: `plugins/volumerestrictions`, KEP-2485.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::{Candidate, Refusal};
use crate::node_info::{NodeInfo, Snapshot};

const TAKEN: &str =
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";

/// Whether another Pod has a claim that this one must have alone.
pub(super) fn is_taken(pod: &Pod, snapshot: &Snapshot) -> bool {
    let is_for_one = |claim: &PersistentVolumeClaim| {
        let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        modes.iter().any(|mode| mode == "ReadWriteOncePod")
    };
    let claims = snapshot.storage.claims_of(pod);
    let alone: Vec<String> = claims
        .into_iter()
        .filter(|(_, claim)| claim.is_some_and(|c| is_for_one(c)))
        .map(|(key, _)| key)
        .collect();
    if alone.is_empty() {
        return false;
    }
    let others = snapshot.nodes().flat_map(|node| node.pods.values());
    let mut others = others.filter(|other| other.metadata.uid != pod.metadata.uid);
    others.any(|other| controller::volume::claims_of(other).iter().any(|key| alone.contains(key)))
}

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    candidate.is_claim_taken
}

pub(super) fn filter(candidate: &Candidate<'_>, _: &NodeInfo) -> Option<Refusal> {
    candidate.is_claim_taken.then(|| Refusal::passing(TAKEN))
}
