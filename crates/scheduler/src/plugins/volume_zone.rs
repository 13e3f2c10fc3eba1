//! A volume with a zone's labels is used in that zone. Source: `plugins/volumezone`.

use controller::volume::{is_claim_bound, volume_name};

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;

/// Labels of volumes and Nodes; a volume's may name several zones, with `__` between.
const LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let storage = candidate.storage;
    let claims = storage.claims_of(candidate.pod);
    let mut volumes = claims
        .into_iter()
        .filter_map(|(_, claim)| claim.filter(|claim| is_claim_bound(claim)))
        .filter_map(|claim| storage.volumes.get(volume_name(claim)));
    let has_zones = LABELS.iter().any(|label| node.label(label).is_some());
    let is_elsewhere = volumes.any(|volume| {
        let labels = volume.metadata.labels.iter().flatten();
        labels.filter(|(key, _)| LABELS.contains(&key.as_str())).any(|(key, zones)| {
            has_zones && !node.label(key).is_some_and(|own| zones.split("__").any(|zone| zone == own))
        })
    });
    is_elsewhere.then(|| Refusal::lasting("node(s) had no available volume zone"))
}
