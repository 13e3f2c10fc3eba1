//! Makes the claims of generic ephemeral volumes: each is its Pod's own, and goes with it.
//!
//! Source: `pkg/controller/volume/ephemeral`, KEP-1698.

use std::sync::Arc;

use controller::metadata::{controller_reference, is_deleting, name, namespace};
use controller::pod::Pod;
use controller::volume::{claim_of, is_claim_of_pod};
use controller::{Action, Change, Controller, EventType, Informers, Plan, Source};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::pod::is_finished;

/// The controller's row. Keys are Pods.
pub const CONTROLLER: Controller = Controller {
    name: "ephemeral-volume-controller",
    queue: "ephemeral_volume",
    sources: |_| {
        vec![
            Source::of::<Pod>(|change, _| {
                let has = change.new.as_ref().is_some_and(|pod| ephemeral(pod).next().is_some());
                if has { vec![change.key.to_string()] } else { Vec::new() }
            }),
            Source::of::<PersistentVolumeClaim>(pod_of_gone_claim),
        ]
    },
    reconcile: |informers, key, _| {
        let Some(pod) = informers.informer::<Pod>().get(key) else { return Plan::nothing() };
        plan(&pod, &informers.informer::<PersistentVolumeClaim>().in_namespace(namespace(&pod.metadata)))
    },
};

fn ephemeral(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(|volume| volume.ephemeral.is_some())
}

fn pod_of_gone_claim(change: &Change<PersistentVolumeClaim>, _: &Informers) -> Vec<String> {
    let Some(old) = change.old.as_ref().filter(|_| change.new.is_none()) else { return Vec::new() };
    controller::engine::owner_key::<Pod>(&old.metadata).into_iter().collect()
}

/// Decides which claims the Pod lacks.
fn plan(pod: &Pod, claims: &[Arc<PersistentVolumeClaim>]) -> Plan {
    let mut plan = Plan::nothing();
    if is_deleting(&pod.metadata) || is_finished(pod) {
        return plan;
    }
    let mut missing = Vec::new();
    for volume in ephemeral(pod) {
        let Some(wanted) = claim_of(pod, volume) else { continue };
        let found = claims.iter().find(|claim| name(&claim.metadata) == wanted);
        match found {
            Some(claim) if is_claim_of_pod(claim, pod) => {}
            Some(_) => {
                let (space, pod_name) = (namespace(&pod.metadata), name(&pod.metadata));
                let message = format!(
                    "ephemeral volume {}: PVC {space}/{wanted} was not created for pod {space}/{pod_name} (pod is not owner)",
                    volume.name
                );
                missing.push(Action::event(pod, EventType::Warning, "FailedBinding", message));
            }
            None => missing.extend(claim_for(pod, volume, wanted).map(|claim| Action::create(&claim))),
        }
    }
    plan.push_step(missing);
    plan.on_failure = vec![Action::event(
        pod,
        EventType::Warning,
        "FailedBinding",
        format!("ephemeral volume: create PVC: {}", controller::plan::FAILURE),
    )];
    plan
}

fn claim_for(pod: &Pod, volume: &Volume, wanted: String) -> Option<PersistentVolumeClaim> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let meta = template.metadata.clone().unwrap_or_default();
    Some(PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(wanted),
            namespace: pod.metadata.namespace.clone(),
            owner_references: Some(vec![controller_reference(pod)]),
            annotations: meta.annotations,
            labels: meta.labels,
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{list, parse, render};
    use expect_test::{Expect, expect};

    const POD: &str = "{metadata: {name: p, namespace: d, uid: u}, spec: {containers: [], volumes: [
        {name: data, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce]}}}}]}}";

    fn check(claims: &str, expect: Expect) {
        expect.assert_eq(&render(&plan(&parse(POD), &list(claims))));
    }

    #[test]
    fn each_volume_gets_a_claim_of_its_own() {
        check(
            "[]",
            expect![[r#"
            step
              create persistentvolumeclaims p-data
        "#]],
        );
        check(
            "[{metadata: {name: p-data, namespace: d, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u, controller: true}]}}]",
            expect![""],
        );
        check(
            "[{metadata: {name: p-data, namespace: d}}]",
            expect![[r#"
            step
              Warning FailedBinding: ephemeral volume data: PVC d/p-data was not created for pod d/p (pod is not owner)
        "#]],
        );
    }
}
