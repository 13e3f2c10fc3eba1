//! A Pod that names its Node goes nowhere else.

use super::{Candidate, Refusal};
use crate::node_info::NodeInfo;

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    wanted(candidate).is_some()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let is_another = wanted(candidate)? != node.name();
    is_another.then(|| Refusal::lasting("node(s) didn't match the requested node name"))
}

fn wanted<'a>(candidate: &Candidate<'a>) -> Option<&'a str> {
    candidate.pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
