//! The nodes that can reach a volume. Source: `core/v1.VolumeNodeAffinity`.

use k8s_openapi::api::core::v1::{NodeSelector, PersistentVolume};

use crate::placement::{self, Target};
use crate::selector::Labels;

/// `true` if the node's labels are among those that the volume asks for; a volume that asks for none is everywhere.
pub fn reaches(volume: &PersistentVolume, labels: Option<&Labels>) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity.and_then(|affinity| affinity.required.as_ref()).is_none_or(|wanted| selects(wanted, labels))
}

/// `true` if one of the selector's terms holds.
pub fn selects(selector: &NodeSelector, labels: Option<&Labels>) -> bool {
    placement::selects(selector, Target { labels, name: None })
}
