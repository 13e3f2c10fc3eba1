//! Lets claims and volumes go that somebody wants removed, once nobody uses them.
//!
//! Source: `pkg/controller/volume/pvcprotection`, `pvprotection`; KEP-498.

use std::sync::Arc;

use controller::metadata::{is_deleting, namespace};
use controller::pod::Pod;
use controller::volume::{claims_of, matching};
use controller::{Action, Controller, Plan, Source};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{claims_of_pod, drop_finalizer, has_finalizer};
use crate::pod::node_name;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// The row of the controller for claims.
pub const CLAIMS: Controller = Controller {
    name: "persistentvolumeclaim-protection-controller",
    queue: "pvcprotection",
    sources: |_| vec![Source::itself::<PersistentVolumeClaim>(), Source::of::<Pod>(claims_of_pod)],
    reconcile: |informers, key, _| {
        let Some(claim) = informers.informer::<PersistentVolumeClaim>().get(key) else {
            return Plan::nothing();
        };
        if !is_deleting(&claim.metadata) {
            return Plan::nothing();
        }
        let pods = informers.informer::<Pod>().in_namespace(namespace(&claim.metadata));
        plan_claim(&claim, &pods, key)
    },
};

/// The row of the controller for volumes.
pub const VOLUMES: Controller = Controller {
    name: "persistentvolume-protection-controller",
    queue: "pvprotection",
    sources: |_| vec![Source::itself::<PersistentVolume>()],
    reconcile: |informers, key, _| {
        informers
            .informer::<PersistentVolume>()
            .get(key)
            .map_or_else(Plan::nothing, |volume| plan_volume(&volume))
    },
};

/// A claim is used by Pods that have a Node, finished ones too: their files are still there.
fn plan_claim(claim: &PersistentVolumeClaim, pods: &[Arc<Pod>], key: &str) -> Plan {
    let uses = |pod: &Arc<Pod>| !node_name(pod).is_empty() && claims_of(pod).iter().any(|one| one == key);
    let mut plan = Plan::nothing();
    if !has_finalizer(&claim.metadata, CLAIM_FINALIZER) || pods.iter().any(uses) {
        return plan;
    }
    let mut new = claim.clone();
    drop_finalizer(&mut new.metadata, CLAIM_FINALIZER);
    plan.push(Action::update(&new));
    plan
}

/// A volume is used while it is bound.
fn plan_volume(volume: &PersistentVolume) -> Plan {
    let mut plan = Plan::nothing();
    let mut new = volume.clone();
    let is_free = is_deleting(&volume.metadata) && matching::phase(volume) != "Bound";
    if is_free && drop_finalizer(&mut new.metadata, VOLUME_FINALIZER) {
        plan.push(Action::update(&new));
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{list, parse, render};

    const CLAIM: &str = "{metadata: {name: c, namespace: d, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [kubernetes.io/pvc-protection]}}";

    fn check(pods: &str, is_let_go: bool) {
        let plan = plan_claim(&parse(CLAIM), &list(pods), "d/c");
        assert_eq!(!plan.is_empty(), is_let_go, "{pods}: {}", render(&plan));
    }

    #[test]
    fn a_claim_stays_while_a_scheduled_pod_names_it() {
        let pod = |node: &str, claim: &str| {
            format!(
                "[{{metadata: {{name: p, namespace: d}}, spec: {{containers: [], nodeName: {node}, volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}}}}}]}}}}]"
            )
        };
        check("[]", true);
        check(&pod("one", "c"), false);
        check(&pod("one", "other"), true);
        check(&pod("''", "c"), true);
        let own = "[{metadata: {name: c, namespace: d}, spec: {containers: [], nodeName: one, volumes: [{name: v, ephemeral: {}}]}}]";
        check(own, true);
        check(&own.replace("{name: c,", "{name: x,"), true);
    }

    #[test]
    fn a_volume_stays_while_it_is_bound() {
        let volume = |phase: &str| -> PersistentVolume {
            parse(&format!(
                "{{metadata: {{name: v, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [kubernetes.io/pv-protection]}}, status: {{phase: {phase}}}}}"
            ))
        };
        assert!(plan_volume(&volume("Bound")).is_empty());
        assert!(!plan_volume(&volume("Released")).is_empty());
    }
}
