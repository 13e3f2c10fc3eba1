//! Says of claims that ask for more that somebody else makes their volumes larger: every driver has its own resizer.
//!
//! Source: `pkg/controller/volume/expand` for volumes with a CSI driver.

use controller::volume::{csi, requested, volume_name};
use controller::{Action, Change, Controller, EventType, Informers, Plan, Source};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::hostpath::DRIVER;

/// The controller's row. Keys are claims.
pub const CONTROLLER: Controller = Controller {
    name: "persistentvolume-expander-controller",
    queue: "volume_expand",
    sources: |_| vec![Source::of::<PersistentVolumeClaim>(grown)],
    reconcile: |informers, key, _| {
        let Some(claim) = informers.informer::<PersistentVolumeClaim>().get(key) else {
            return Plan::nothing();
        };
        let volume = informers.informer::<PersistentVolume>().get(volume_name(&claim));
        volume.map_or_else(Plan::nothing, |volume| plan(&claim, &volume))
    },
};

fn grown(change: &Change<PersistentVolumeClaim>, _: &Informers) -> Vec<String> {
    let both = change.old.as_deref().zip(change.new.as_deref());
    if both.is_some_and(|(old, new)| requested(new) > requested(old)) {
        vec![change.key.clone()]
    } else {
        Vec::new()
    }
}

fn plan(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Plan {
    let mut plan = Plan::nothing();
    let is_ours = csi(volume).is_some_and(|source| source.driver == DRIVER);
    if !is_ours && requested(claim) > controller::volume::capacity(volume) {
        let message = "waiting for an external controller to expand this PVC";
        plan.push(Action::event(claim, EventType::Normal, "ExternalExpanding", message));
    }
    plan
}
