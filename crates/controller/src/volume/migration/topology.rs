//! The topology of in-tree volumes, in the words of their drivers: labels of Nodes that a driver sets itself.
//!
//! Source: `plugins/in_tree_volume.go`, `vsphere_volume.go` of `csi-translation-lib`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
const REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";
/// Between the zones in a volume's label.
const SEVERAL: &str = "__";

/// What a driver calls its places.
#[derive(Clone, Copy, Debug)]
pub(super) enum Topology {
    /// It takes the usual labels.
    AsItIs,
    /// It has a label of its own for zones.
    Zone(&'static str),
    /// It has labels of its own for zones and regions; volumes are in one of each.
    ZoneAndRegion(&'static str, &'static str),
}

impl Topology {
    /// Has the volume ask for the driver's labels.
    pub(super) fn translate(self, volume: &mut PersistentVolume) {
        let (zone, region) = labels(volume);
        match self {
            Self::AsItIs => {}
            Self::Zone(own) => {
                take_over(volume, zone, own, |label| label.split(SEVERAL).collect());
                if region == REGION_BETA {
                    rename(volume, region, REGION);
                }
            }
            Self::ZoneAndRegion(own_zone, own_region) => {
                take_over(volume, zone, own_zone, |label| vec![label]);
                take_over(volume, region, own_region, |label| vec![label]);
            }
        }
    }
}

/// The zones in the volume's label, as somebody wrote them.
pub(super) fn zones(volume: &PersistentVolume) -> Vec<&str> {
    let label =
        [ZONE_BETA, ZONE].into_iter().filter_map(|key| label(volume, key)).find(|text| !text.is_empty());
    label.unwrap_or_default().split(SEVERAL).filter(|zone| !zone.is_empty()).collect()
}

fn label<'a>(volume: &'a PersistentVolume, key: &str) -> Option<&'a str> {
    volume.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn terms(volume: &mut PersistentVolume) -> &mut [NodeSelectorTerm] {
    let affinity = volume.spec.as_mut().and_then(|spec| spec.node_affinity.as_mut());
    affinity
        .and_then(|affinity| affinity.required.as_mut())
        .map_or(&mut [], |all| &mut all.node_selector_terms)
}

fn asks_for(volume: &PersistentVolume, key: &str) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    let terms = affinity.into_iter().flat_map(|all| &all.node_selector_terms);
    terms.flat_map(|term| term.match_expressions.iter().flatten()).any(|one| one.key == key)
}

/// The labels for zone and region that the volume goes by: those of its affinity, then its own.
fn labels(volume: &PersistentVolume) -> (&'static str, &'static str) {
    let all = [(ZONE, REGION), (ZONE_BETA, REGION_BETA)];
    let by_affinity = all.into_iter().find(|(zone, _)| asks_for(volume, zone));
    let by_label = || all.into_iter().find(|(zone, _)| label(volume, zone).is_some());
    by_affinity.or_else(by_label).unwrap_or((ZONE, REGION))
}

fn rename(volume: &mut PersistentVolume, from: &str, to: &str) {
    let expressions = terms(volume).iter_mut().flat_map(|term| term.match_expressions.iter_mut().flatten());
    for one in expressions.filter(|one| one.key == from) {
        to.clone_into(&mut one.key);
    }
}

/// Has the affinity ask for `own` where it asks for `usual`; if it does not, for what the volume's label says.
fn take_over(volume: &mut PersistentVolume, usual: &str, own: &str, values: impl Fn(&str) -> Vec<&str>) {
    if asks_for(volume, usual) {
        return rename(volume, usual, own);
    }
    let text = label(volume, usual).unwrap_or_default().to_owned();
    let values: BTreeSet<&str> =
        values(&text).into_iter().map(str::trim).filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    let wanted = NodeSelectorRequirement {
        key: own.to_owned(),
        operator: "In".to_owned(),
        values: Some(values.into_iter().map(str::to_owned).collect()),
    };
    let spec = volume.spec.get_or_insert_default();
    let all = spec.node_affinity.get_or_insert_default().required.get_or_insert_default();
    if all.node_selector_terms.is_empty() {
        all.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut all.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(wanted.clone());
    }
}
