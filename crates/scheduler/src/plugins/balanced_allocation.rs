//! Of equally empty Nodes, the one whose CPU and memory would be used in like shares is better.

use super::{Candidate, SCORE_MAX};
use crate::node_info::NodeInfo;

/// A Pod that asks for nothing changes no Node's balance.
pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    candidate.need.requests.milli_cpu != 0 || candidate.need.requests.memory != 0
}

pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let (need, used, all) = (&candidate.need.requests, &node.requested, &node.allocatable);
    let shares = [
        used_share(used.milli_cpu + need.milli_cpu, all.milli_cpu),
        used_share(used.memory + need.memory, all.memory),
    ];
    let [Some(cpu), Some(memory)] = shares else { return SCORE_MAX };
    // The standard deviation of two values is half their distance.
    let deviation = (cpu - memory).abs() / 2.0;
    percent(1.0 - deviation)
}

fn used_share(used: i64, all: i64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    (all > 0).then(|| (used as f64 / all as f64).min(1.0))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "between 0 and SCORE_MAX")]
fn percent(share: f64) -> i64 {
    (share * SCORE_MAX as f64) as i64
}
