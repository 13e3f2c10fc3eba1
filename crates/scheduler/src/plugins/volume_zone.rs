//! A volume with a zone's labels is used in that zone. Source: `plugins/volumezone`.

use controller::volume::{is_claim_bound, volume_name};

use controller::pod::Pod;

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;
use crate::storage::Storage;

/// Labels of volumes and Nodes; a volume's may name several zones, with `__` between.
const LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// The zones of the Pod's volumes: label and value.
#[derive(Clone, Debug, Default)]
pub(super) struct State(Vec<(String, String)>);

impl State {
    pub(super) fn new(pod: &Pod, storage: &Storage) -> Self {
        let claims = storage.claims_of(pod).into_iter();
        let bound = claims.filter_map(|(_, claim)| claim.filter(|claim| is_claim_bound(claim)));
        let volumes = bound.filter_map(|claim| storage.volumes.get(volume_name(claim)));
        let labels = volumes.flat_map(|volume| volume.metadata.labels.iter().flatten());
        let zones = labels.filter(|(label, _)| LABELS.contains(&label.as_str()));
        Self(zones.map(|(label, zones)| (label.clone(), zones.clone())).collect())
    }
}

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    !candidate.zones.0.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    // A Node that is in no zone can reach them all.
    if !LABELS.iter().any(|label| node.label(label).is_some()) {
        return None;
    }
    let is_here = |(label, zones): &(String, String)| {
        let own = node.label(label).or_else(|| node.label(newer(label)));
        own.is_some_and(|own| zones.split("__").any(|zone| zone == own))
    };
    let is_elsewhere = !candidate.zones.0.iter().all(is_here);
    is_elsewhere.then(|| Refusal::lasting("node(s) had no available volume zone"))
}

/// What a label of old volumes is called on today's Nodes. Source: `translateToGALabel`.
fn newer(label: &str) -> &str {
    let [zone, region, old_zone, old_region] = LABELS;
    match label {
        _ if label == old_zone => zone,
        _ if label == old_region => region,
        same => same,
    }
}

#[cfg(test)]
mod tests;
