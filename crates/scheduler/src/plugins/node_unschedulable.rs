//! Cordoned Nodes take only Pods that tolerate it.

use k8s_openapi::api::core::v1::Taint;

use super::taint_toleration::tolerates;
use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    if node.node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true)) {
        return None;
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if tolerates(candidate.pod, &taint) {
        return None;
    }
    Some(Refusal::lasting("node(s) were unschedulable"))
}

#[cfg(test)]
mod tests;
