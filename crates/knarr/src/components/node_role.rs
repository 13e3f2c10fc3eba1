//! The role that `kubectl get nodes` shows: the Node of a server's own host is one of the control plane.
//!
//! Kubelets may not give themselves roles, so the server does, when the Node is registered. As with kubeadm the label is
//! given once: who takes it off has their way, which an annotation remembers, until the Node is made anew. There is no
//! taint beside it: Pods run here.
//!
//! Source: kubeadm's `mark-control-plane`; `NodeRestriction`.

use std::time::Duration;

use base::Backoff;
use controller::{Informers, Scope};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

/// Source: `kubeadm/constants.LabelNodeRoleControlPlane`.
const ROLE: &str = "node-role.kubernetes.io/control-plane";
/// Says that the label was given.
const GIVEN: &str = "knarr.io/role-given";

/// What is missing on a server's Node, as a merge patch.
fn plan(node: &Node) -> Option<Value> {
    let is_given = node.metadata.annotations.iter().any(|annotations| annotations.contains_key(GIVEN));
    if is_given || node.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let has_role = node.metadata.labels.iter().any(|labels| labels.contains_key(ROLE));
    // What somebody else has written there stays as it is.
    let labels = if has_role { json!({}) } else { json!({ ROLE: "" }) };
    let uid = &node.metadata.uid;
    Some(json!({ "metadata": { "uid": uid, "annotations": { GIVEN: "control-plane" }, "labels": labels } }))
}

/// Follows the Node of that name for ever.
pub(super) async fn follow(informers: Informers, name: String) {
    let scope = Scope { field_selector: Some(format!("metadata.name={name}")), ..Scope::default() };
    let nodes = informers.scoped::<Node>(scope);
    let mut changes = nodes.subscribe();
    let api: Api<Node> = Api::all(informers.client().clone());
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30), 0.2);
    loop {
        let Some(patch) = nodes.get(&name).and_then(|node| plan(&node)) else {
            changes.next().await;
            continue;
        };
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {
                backoff.reset();
                changes.next().await;
            }
            Err(error) => {
                tracing::debug!(%error, "the Node has not got its role");
                tokio::time::sleep(backoff.next(informers.random())).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_given_once() {
        let rows = [
            ("a new Node", json!({"uid": "u"}), Some(json!({ROLE: ""}))),
            ("labels of others", json!({"uid": "u", "labels": {"a": "b"}}), Some(json!({ROLE: ""}))),
            ("somebody was quicker", json!({"uid": "u", "labels": {ROLE: "true"}}), Some(json!({}))),
            (
                "it was given",
                json!({"uid": "u", "labels": {ROLE: ""}, "annotations": {GIVEN: "control-plane"}}),
                None,
            ),
            ("it was taken off", json!({"uid": "u", "annotations": {GIVEN: "control-plane"}}), None),
            ("it goes", json!({"uid": "u", "deletionTimestamp": "2026-01-01T10:00:00Z"}), None),
        ];
        for (case, metadata, labels) in rows {
            let node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            let expected = labels.map(|labels| {
                json!({"metadata": {"uid": "u", "annotations": {GIVEN: "control-plane"}, "labels": labels}})
            });
            assert_eq!(plan(&node), expected, "{case}");
        }
    }
}
