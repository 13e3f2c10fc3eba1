//! Taints keep Pods away that do not tolerate them. Source: `core/v1.Toleration`.

use controller::placement;
use controller::pod::Pod;
use k8s_openapi::api::core::v1::Taint;

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    (!tolerates_all(candidate.pod, node)).then(|| Refusal::lasting("node(s) had untolerated taint(s)"))
}

/// Whether no taint keeps the Pod away.
pub(super) fn tolerates_all(pod: &Pod, node: &NodeInfo) -> bool {
    let mut hard = taints(node).filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.all(|taint| tolerates(pod, taint))
}

/// How many soft taints the Pod does not tolerate.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let soft = taints(node).filter(|taint| taint.effect == "PreferNoSchedule");
    soft.filter(|taint| !tolerates(candidate.pod, taint)).count().try_into().unwrap_or(i64::MAX)
}

fn taints(node: &NodeInfo) -> impl Iterator<Item = &Taint> {
    node.node.spec.iter().flat_map(|spec| spec.taints.iter().flatten())
}

/// Whether any toleration of the Pod covers the taint.
pub(super) fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.into_iter().any(|toleration| placement::tolerates(toleration, taint))
}

#[cfg(test)]
mod tests;
