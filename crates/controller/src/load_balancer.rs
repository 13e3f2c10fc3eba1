//! The names that the built-in load balancer's controller writes and proxies read: the class of Services that it
//! serves, and the condition in their status by which it knows what is its own.
//!
//! The condition is in the status, which whoever may write Services may not write.

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// `spec.loadBalancerClass` of Services that are ours; those without a class are, too.
pub const CLASS: &str = "knarr.io/servicelb";
/// The condition's type.
pub const CONDITION: &str = "knarr.io/LoadBalancer";
/// The Service is reached at addresses of Nodes.
pub const NODE_ADDRESSES: &str = "NodeAddresses";
/// It is reached at an address of the pool, which one Node has at a time.
pub const POOL_ADDRESS: &str = "PoolAddress";
/// It cannot be reached yet; the message says why.
pub const WAITING: &str = "Waiting";
/// Keeps a Node out of all load balancers. Source: `v1.LabelNodeExcludeBalancers`.
const EXCLUDED_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The cluster autoscaler is about to delete the Node. Source: `ToBeDeletedTaint` of the service controller.
const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// The condition of a Service, if our controller has looked at it.
pub fn condition(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref()?.conditions.iter().flatten();
    conditions.into_iter().find(|condition| condition.type_ == CONDITION)
}

/// `true` if our controller has given the Service an address of the pool.
pub fn has_pool_address(service: &Service) -> bool {
    condition(service).is_some_and(|condition| condition.status == "True" && condition.reason == POOL_ADDRESS)
}

/// `true` if a Node may be behind load balancers at all. Source: `stableNodeSetPredicates` of the service controller.
pub fn is_candidate(node: &Node) -> bool {
    !is_going(node) && is_included(node)
}

/// `true` unless a Node is kept out of load balancers by its label. Source: `nodeIncludedPredicate`.
pub fn is_included(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    !labels.is_some_and(|labels| labels.contains_key(EXCLUDED_LABEL))
}

/// `true` if a Node is deleted, or is about to be.
pub fn is_going(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    node.metadata.deletion_timestamp.is_some()
        || taints.into_iter().any(|taint| taint.key == TO_BE_DELETED_TAINT)
}

/// `true` if a Node says that it is ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests;
