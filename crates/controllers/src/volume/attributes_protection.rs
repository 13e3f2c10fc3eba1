//! Lets VolumeAttributesClasses go that somebody wants removed, once no claim and no volume names them.
//!
//! Source: `pkg/controller/volume/vacprotection`, KEP-3751.

use std::sync::Arc;

use controller::metadata::is_deleting;
use controller::{Action, Change, Controller, Informers, Plan, Source};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;

use super::{drop_finalizer, has_finalizer};

const FINALIZER: &str = "kubernetes.io/vac-protection";

/// The controller's row. Keys are classes.
pub const CONTROLLER: Controller = Controller {
    name: "volumeattributesclass-protection-controller",
    queue: "vacprotection",
    sources: |_| {
        vec![
            Source::itself::<VolumeAttributesClass>(),
            Source::of::<PersistentVolumeClaim>(|change, informers| {
                let both = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
                going(both.flat_map(of_claim), informers)
            }),
            Source::of::<PersistentVolume>(|change: &Change<PersistentVolume>, informers| {
                let both = [change.old.as_deref(), change.new.as_deref()].into_iter().flatten();
                going(both.filter_map(of_volume), informers)
            }),
        ]
    },
    reconcile: |informers, key, _| {
        let Some(class) = informers.informer::<VolumeAttributesClass>().get(key) else {
            return Plan::nothing();
        };
        if !is_deleting(&class.metadata) {
            return Plan::nothing();
        }
        let claims = informers.informer::<PersistentVolumeClaim>().list();
        plan(&class, key, &claims, &informers.informer::<PersistentVolume>().list())
    },
};

/// The classes that a claim asks for, has, or is on its way to.
fn of_claim(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let status = claim.status.as_ref();
    let target = status.and_then(|status| status.modify_volume_status.as_ref());
    [
        claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()),
        status.and_then(|status| status.current_volume_attributes_class_name.as_deref()),
        target.and_then(|target| target.target_volume_attributes_class_name.as_deref()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn of_volume(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.volume_attributes_class_name.as_deref()
}

/// Those of the classes that somebody wants removed.
fn going<'a>(classes: impl Iterator<Item = &'a str>, informers: &Informers) -> Vec<String> {
    let known = informers.informer::<VolumeAttributesClass>();
    let mut keys: Vec<String> = classes
        .filter(|name| known.get(name).is_some_and(|c| is_deleting(&c.metadata)))
        .map(str::to_owned)
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

fn plan(
    class: &VolumeAttributesClass,
    key: &str,
    claims: &[Arc<PersistentVolumeClaim>],
    volumes: &[Arc<PersistentVolume>],
) -> Plan {
    let mut plan = Plan::nothing();
    let is_used = claims.iter().any(|claim| of_claim(claim).contains(&key))
        || volumes.iter().any(|volume| of_volume(volume) == Some(key));
    if !has_finalizer(&class.metadata, FINALIZER) || is_used {
        return plan;
    }
    let mut new = class.clone();
    drop_finalizer(&mut new.metadata, FINALIZER);
    plan.push(Action::update(&new));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{list, parse};

    fn check(claims: &str, volumes: &str, is_let_go: bool) {
        let class = "{metadata: {name: gold, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [kubernetes.io/vac-protection]}, driverName: d}";
        let plan = plan(&parse(class), "gold", &list(claims), &list(volumes));
        assert_eq!(!plan.is_empty(), is_let_go, "{claims} {volumes}");
    }

    #[test]
    fn a_class_stays_while_a_claim_or_a_volume_names_it() {
        check("[]", "[]", true);
        check("[{spec: {volumeAttributesClassName: gold}}]", "[]", false);
        check(
            "[{spec: {volumeAttributesClassName: silver}, status: {currentVolumeAttributesClassName: gold}}]",
            "[]",
            false,
        );
        check(
            "[{status: {modifyVolumeStatus: {status: Pending, targetVolumeAttributesClassName: gold}}}]",
            "[]",
            false,
        );
        check("[]", "[{spec: {volumeAttributesClassName: gold}}]", false);
        check("[{spec: {volumeAttributesClassName: silver}}]", "[]", true);
    }
}
