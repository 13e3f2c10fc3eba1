//! A Pod that names its Node goes nowhere else.

use super::{Candidate, Reasons};
use crate::node_info::NodeInfo;

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Reasons {
    let wanted = candidate.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    if wanted.is_empty() || wanted == node.name() {
        return Vec::new();
    }
    vec!["node(s) didn't match the requested node name".to_owned()]
}
