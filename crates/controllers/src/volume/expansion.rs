//! Says of claims that ask for more that somebody else makes their volumes larger: every driver has its own resizer.
//!
//! Source: `pkg/controller/volume/expand` for volumes with a CSI driver.

use controller::metadata::{name, namespace};
use controller::volume::{annotation, csi, migration, requested, volume_name};
use controller::{Action, Change, Controller, EventType, Informers, Patch, Plan, Source};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::hostpath::DRIVER;

/// On a claim: who is to make its volume larger.
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";

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
        vec![change.key.to_string()]
    } else {
        Vec::new()
    }
}

fn plan(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Plan {
    let mut plan = Plan::nothing();
    let is_ours = csi(volume).is_some_and(|source| source.driver == DRIVER);
    if is_ours || requested(claim) <= controller::volume::capacity(volume) {
        return plan;
    }
    let Some(plugin) = migration::plugin_of(volume) else {
        let message = "waiting for an external controller to expand this PVC";
        plan.push(Action::event(claim, EventType::Normal, "ExternalExpanding", message));
        return plan;
    };
    let message =
        format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc");
    plan.push(Action::event(claim, EventType::Normal, "ExternalExpanding", message));
    let driver =
        migration::driver_of(plugin).filter(|driver| annotation(&claim.metadata, RESIZER) != Some(*driver));
    if let Some(driver) = driver {
        let (namespace, name) = (namespace(&claim.metadata), name(&claim.metadata));
        let patch = Patch::Merge(json!({"metadata": {"annotations": {RESIZER: driver}}}));
        plan.push(Action::patch_status::<PersistentVolumeClaim>(namespace, name, patch));
    }
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::fixture::{parse, render};

    fn check(source: &str, size: &str, expect: Expect) {
        let claim =
            format!("{{metadata: {{name: c}}, spec: {{resources: {{requests: {{storage: {size}}}}}}}}}");
        let volume = format!("{{spec: {{{source}, capacity: {{storage: 1Gi}}}}}}");
        expect.assert_eq(&render(&plan(&parse(&claim), &parse(&volume))));
    }

    #[test]
    fn who_makes_a_volume_larger_is_told() {
        check(
            "csi: {driver: d, volumeHandle: h}",
            "2Gi",
            expect![[r#"
                step
                  Normal ExternalExpanding: waiting for an external controller to expand this PVC
            "#]],
        );
        check("csi: {driver: d, volumeHandle: h}", "1Gi", expect![""]);
        check("csi: {driver: hostpath.csi.knarr.io, volumeHandle: h}", "2Gi", expect![""]);
        check(
            "awsElasticBlockStore: {volumeID: v}",
            "2Gi",
            expect![[r#"
                step
                  Normal ExternalExpanding: CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to expand the pvc
                step
                  patch persistentvolumeclaims/status c {"metadata":{"annotations":{"volume.kubernetes.io/storage-resizer":"ebs.csi.aws.com"}}}
            "#]],
        );
    }
}
