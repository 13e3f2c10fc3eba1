//! The ReplicationController controller: the ReplicaSet controller over an elder kind.
//!
//! Its spec has a plain map for a selector, its status does not count terminating Pods; all else is the same.
//! Source: `pkg/controller/replication`.

use std::borrow::Cow;

use controller::pod::Pod;
use controller::{Controller, Source};
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::replica_set::{Set, reconcile, sets_of_pod};

/// The controller's row.
pub const CONTROLLER: Controller = Controller {
    name: "replicationcontroller-controller",
    queue: "replicationmanager",
    sources: |_| {
        vec![
            Source::itself::<ReplicationController>(),
            Source::of::<Pod>(sets_of_pod::<ReplicationController>),
        ]
    },
    reconcile: reconcile::<ReplicationController>,
};

impl Set for ReplicationController {
    fn spec(&self) -> Option<Cow<'_, ReplicaSetSpec>> {
        let spec = self.spec.as_ref()?;
        Some(Cow::Owned(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: spec.replicas,
            selector: LabelSelector { match_labels: spec.selector.clone(), match_expressions: None },
            template: spec.template.clone(),
        }))
    }

    fn status(&self) -> Option<ReplicaSetStatus> {
        let status = self.status.clone()?;
        let condition = |one: ReplicationControllerCondition| ReplicaSetCondition {
            last_transition_time: one.last_transition_time,
            message: one.message,
            reason: one.reason,
            status: one.status,
            type_: one.type_,
        };
        Some(ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        })
    }

    fn with_status(&self, status: &ReplicaSetStatus) -> Self {
        let condition = |one: ReplicaSetCondition| ReplicationControllerCondition {
            last_transition_time: one.last_transition_time,
            message: one.message,
            reason: one.reason,
            status: one.status,
            type_: one.type_,
        };
        let status = status.clone();
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        Self { status: Some(status), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};

    use crate::fixture::{list, noon, parse, render};
    use crate::replica_set::{Snapshot, plan};

    use super::*;

    fn check(spec: &str, pods: &str, expect: &Expect) {
        let controller = format!(
            "{{metadata: {{name: web, namespace: default, uid: c1, generation: 2}}, spec: {{selector: {{app: web}}, \
             template: {{metadata: {{labels: {{app: web}}}}}}, {spec}}}}}"
        );
        let (replica_set, pods): (Arc<ReplicationController>, Vec<Arc<Pod>>) =
            (Arc::new(parse(&controller)), list(pods));
        let snapshot = Snapshot { replica_set, related: pods.clone(), pods, revision: 9 };
        expect.assert_eq(&render(&plan(&snapshot, noon())));
    }

    const OWN: &str = "{metadata: {name: a, namespace: default, uid: p1, labels: {app: web}, ownerReferences: [{\
        apiVersion: v1, kind: ReplicationController, name: web, uid: c1, controller: true}]}, \
        status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}";

    #[test]
    fn pods_are_made_adopted_and_counted_as_those_of_replica_sets() {
        let orphan = "{metadata: {name: b, namespace: default, uid: p2, labels: {app: web}}, status: {phase: Running}}";
        let other =
            "{metadata: {name: c, namespace: default, uid: p3, labels: {app: db}}, status: {phase: Running}}";
        check(
            "replicas: 2",
            &format!("[{OWN}]"),
            &expect![[r#"
            step
              create pods web-nxdbd
            step
              Normal SuccessfulCreate: Created pod: web-nxdbd
        "#]],
        );
        check(
            "replicas: 2",
            &format!("[{OWN}, {orphan}, {other}]"),
            &expect![[r#"
            step
              patch pods b {"metadata":{"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicationController","name":"web","uid":"c1"}],"uid":"p2"}}
            step
              update replicationcontrollers/status web {"availableReplicas":1,"fullyLabeledReplicas":2,"observedGeneration":2,"readyReplicas":1,"replicas":2}
        "#]],
        );
        check(
            "replicas: 0",
            &format!("[{OWN}]"),
            &expect![[r#"
            step
              delete pods a
            step
              Normal SuccessfulDelete: Deleted pod: a
        "#]],
        );
    }

    #[test]
    fn one_without_a_selector_selects_nothing() {
        let nothing: ReplicationController = parse("{metadata: {name: web, uid: c1}, spec: {replicas: 2}}");
        let snapshot =
            Snapshot { replica_set: Arc::new(nothing), related: Vec::new(), pods: Vec::new(), revision: 9 };
        assert!(plan(&snapshot, noon()).is_empty());
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written_again() {
        let plain: ReplicationController = parse("{metadata: {name: web}}");
        let status = ReplicaSetStatus { replicas: 1, terminating_replicas: Some(3), ..Default::default() };
        let once = plain.with_status(&status);
        assert_eq!(once.with_status(&status), once);
        assert_eq!(once.status().map(|status| status.terminating_replicas), Some(None));
    }
}
