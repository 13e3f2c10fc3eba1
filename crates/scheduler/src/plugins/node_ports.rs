//! A host port is taken once per address.

use super::{Candidate, Refusal};
use crate::node_info::{HostPort, NodeInfo};

const ANY: &str = "0.0.0.0";

pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    !candidate.need.ports.is_empty()
}

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let clash =
        candidate.need.ports.iter().any(|wanted| node.ports.iter().any(|used| conflicts(wanted, used)));
    if clash {
        Some(Refusal::passing("node(s) didn't have free ports for the requested pod ports"))
    } else {
        None
    }
}

/// Whether two ports are not to be had on one Node.
pub(crate) fn conflicts(a: &HostPort, b: &HostPort) -> bool {
    a.1 == b.1 && a.2 == b.2 && (a.0 == b.0 || a.0 == ANY || b.0 == ANY)
}

#[cfg(test)]
mod tests;
