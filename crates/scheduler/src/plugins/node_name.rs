//! A Pod that names its Node goes nowhere else.

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let wanted = candidate.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if wanted.is_empty() || wanted == node.name() {
        return None;
    }
    Some(Refusal::lasting("node(s) didn't match the requested node name"))
}
