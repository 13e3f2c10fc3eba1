//! Of equally empty Nodes, the one whose CPU and memory would be used in like shares is better.
//!
//! Source: `plugins/noderesources/balanced_allocation.go`.

use super::{Candidate, SCORE_MAX};
use crate::node_info::NodeInfo;

fn resources<'a>(candidate: &Candidate<'a>) -> &'a [String] {
    &candidate.profile.arguments.balance.resources
}

/// A Pod that asks for nothing changes no Node's balance.
pub(super) fn concerns(candidate: &Candidate<'_>) -> bool {
    resources(candidate).iter().any(|name| candidate.need.requests.amount(name) != 0)
}

pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let (need, used, all) = (&candidate.need.requests, &node.requested, &node.allocatable);
    let mut shares = Vec::with_capacity(resources(candidate).len());
    for name in resources(candidate) {
        let is_basic = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if is_basic || need.amount(name) != 0 {
            shares.extend(used_share(used.amount(name).saturating_add(need.amount(name)), all.amount(name)));
        }
    }
    percent(1.0 - deviation(&shares))
}

/// The standard deviation; that of two values is half their distance.
#[expect(clippy::cast_precision_loss, reason = "there are few resources")]
fn deviation(shares: &[f64]) -> f64 {
    match shares {
        [] | [_] => 0.0,
        [a, b] => (a - b).abs() / 2.0,
        many => {
            let count = many.len() as f64;
            let mean = many.iter().sum::<f64>() / count;
            (many.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / count).sqrt()
        }
    }
}

fn used_share(used: i64, all: i64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
    (all > 0).then(|| (used as f64 / all as f64).min(1.0))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "between 0 and SCORE_MAX")]
fn percent(share: f64) -> i64 {
    (share * SCORE_MAX as f64) as i64
}

#[cfg(test)]
mod tests;
