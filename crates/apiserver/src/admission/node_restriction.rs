//! A kubelet changes its own node and the Pods on it, nothing else.
//!
//! Source: `plugin/pkg/admission/noderestriction`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation, text};
use crate::status::Result;

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const PROTECTED_LABEL: &str = "node-restriction.kubernetes.io/";

/// Refuses what is none of the node's business.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let user = &context.request.user;
    let Some(node) = user.name.strip_prefix(USER_PREFIX) else { return Ok(()) };
    if !user.groups.iter().any(|group| group == GROUP) {
        return Ok(());
    }
    let kind = &context.request.kind;
    match (kind.group(), kind.resource()) {
        ("", "pods") => pod(context, object, node),
        ("", "nodes") => node_object(context, object, node),
        ("coordination.k8s.io", "leases") => lease(context, object, node),
        _ => Ok(()),
    }
}

fn pod(context: &Context<'_>, pod: &Value, node: &str) -> Result<()> {
    let name = Metadata::of(pod).name();
    let bound = text(context.old.unwrap_or(pod), "/spec/nodeName");
    if context.operation == Operation::Create {
        if Metadata::of(pod).annotation("kubernetes.io/config.mirror").is_none() {
            let why = format!(
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
            );
            return Err(context.forbidden(name, &why));
        }
    }
    if bound != node {
        let why = format!("node {node:?} can only change pods with spec.nodeName set to itself");
        return Err(context.forbidden(name, &why));
    }
    Ok(())
}

fn node_object(context: &Context<'_>, object: &Value, node: &str) -> Result<()> {
    let name = Metadata::of(object).name();
    if name != node {
        return Err(context.forbidden(name, &format!("node {node:?} is not allowed to modify node {name:?}")));
    }
    if context.operation == Operation::Delete {
        return Err(context.forbidden(name, &format!("node {node:?} is not allowed to delete itself")));
    }
    let label = |object: &Value, key: &str| Metadata::of(object).label(key).map(str::to_owned);
    let changed = Metadata::of(object).labels().into_iter().flat_map(|labels| labels.keys()).find(|key| {
        key.contains(PROTECTED_LABEL) && context.old.is_none_or(|old| label(old, key) != label(object, key))
    });
    if let Some(key) = changed {
        let why = format!("is not allowed to set the following labels: {key}");
        return Err(context.forbidden(name, &why));
    }
    if let Some(old) = context.old
        && old.pointer("/spec/taints") != object.pointer("/spec/taints")
    {
        return Err(context.forbidden(name, &format!("node {node:?} is not allowed to modify taints")));
    }
    Ok(())
}

fn lease(context: &Context<'_>, lease: &Value, node: &str) -> Result<()> {
    let metadata = Metadata::of(lease);
    if metadata.namespace() != "kube-node-lease" {
        let why = "can only access leases in the \"kube-node-lease\" system namespace";
        return Err(context.forbidden(metadata.name(), why));
    }
    if metadata.name() != node {
        return Err(context.forbidden(
            metadata.name(),
            "can only access node lease with the same name as the requesting node",
        ));
    }
    Ok(())
}
