//! The Nodes on which a DaemonSet wants a Pod. Source: upstream's `NodeShouldRunDaemonPod`.

use controller::metadata::name;
use controller::placement::{allows, tolerates};
use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::core::v1::{Node, Taint};

use super::pod::tolerations;

/// What a set wants of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A Pod is to be there.
    Run,
    /// A Pod that is there may stay; none is made.
    Stay,
    /// No Pod may be there.
    Leave,
}

pub(super) fn judge(spec: &DaemonSetSpec, node: &Node) -> Verdict {
    let pod = spec.template.spec.clone().unwrap_or_default();
    let is_named =
        pod.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == name(&node.metadata));
    if !is_named || !allows(pod.node_selector.as_ref(), pod.affinity.as_ref(), &node.metadata) {
        return Verdict::Leave;
    }
    let tolerations = tolerations(&pod);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let keeps_away = |effect: &str| {
        let mut hard = taints.iter().filter(|taint: &&Taint| taint.effect == effect);
        hard.any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
    };
    match (keeps_away("NoExecute"), keeps_away("NoSchedule")) {
        (true, _) => Verdict::Leave,
        (false, true) => Verdict::Stay,
        (false, false) => Verdict::Run,
    }
}
