//! A Node must have what the Pod asks for; of those that do, the emptier is better, or the fuller, or what a line says.
//!
//! Source: `plugins/noderesources/fit.go` and the scorers beside it.

use super::{Candidate, Refusal, Remedy, SCORE_MAX};
use crate::arguments::{Fit, Strategy};
use crate::node_info::NodeInfo;
use crate::resource::is_extended;

pub(super) fn filter(candidate: &Candidate<'_>, node: &NodeInfo) -> Option<Refusal> {
    let (need, used, all) = (&candidate.need.requests, &node.requested, &node.allocatable);
    let (mut reasons, mut remedy) = (Vec::new(), Remedy::Preemption);
    if used.pods + 1 > all.pods {
        reasons.push("Too many pods".to_owned());
    }
    let mut check = |name: &str, need: i64, used: i64, all: i64| {
        if need > 0 && need > all - used {
            reasons.push(format!("Insufficient {name}"));
            if need > all {
                remedy = Remedy::None;
            }
        }
    };
    check("cpu", need.milli_cpu, used.milli_cpu, all.milli_cpu);
    check("memory", need.memory, used.memory, all.memory);
    check("ephemeral-storage", need.ephemeral_storage, used.ephemeral_storage, all.ephemeral_storage);
    for (name, amount) in &need.scalar {
        if !is_ignored(&candidate.profile.arguments.fit, name) {
            check(name, *amount, used.amount(name), all.amount(name));
        }
    }
    (!reasons.is_empty()).then_some(Refusal { reasons, remedy })
}

/// Whether Nodes need not have it: somebody else sees to that.
fn is_ignored(fit: &Fit, name: &str) -> bool {
    if fit.ignored.is_empty() && fit.ignored_groups.is_empty() {
        return false;
    }
    let group = name.split('/').next().unwrap_or_default();
    is_extended(name) && (fit.ignored.contains(name) || fit.ignored_groups.contains(group))
}

/// The mean of what each resource's share in use is worth, by their weights.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let fit = &candidate.profile.arguments.fit;
    let (mut sum, mut weights) = (0, 0);
    for (name, weight) in &fit.resources {
        let Some((used, all)) = in_use(candidate, node, name) else { continue };
        let score = worth(&fit.strategy, used, all);
        // A line may say that nothing is known.
        if score > 0 || !matches!(fit.strategy, Strategy::RequestedToCapacityRatio(_)) {
            sum += score * weight;
            weights += weight;
        }
    }
    match fit.strategy {
        Strategy::RequestedToCapacityRatio(_) => (sum + weights / 2).checked_div(weights).unwrap_or(0),
        _ => sum.checked_div(weights).unwrap_or(0),
    }
}

/// How much of a resource would be in use, and how much the Node has; nothing if that is no matter.
fn in_use(candidate: &Candidate<'_>, node: &NodeInfo, name: &str) -> Option<(i64, i64)> {
    let all = node.allocatable.amount(name);
    let need = candidate.need.requests_non_zero.amount(name);
    let is_basic = matches!(name, "cpu" | "memory" | "ephemeral-storage");
    if all <= 0 || (need == 0 && !is_basic) {
        return None;
    }
    // Of other resources both sums are the same.
    Some((node.requested_non_zero.amount(name).saturating_add(need), all))
}

fn worth(strategy: &Strategy, used: i64, all: i64) -> i64 {
    let percent = |part: i64| part.saturating_mul(SCORE_MAX) / all;
    match strategy {
        Strategy::LeastAllocated => percent(all.saturating_sub(used).max(0)),
        Strategy::MostAllocated => percent(used.min(all)),
        Strategy::RequestedToCapacityRatio(line) => on_line(line, percent(used.min(all))),
    }
}

/// What a broken line says; beyond its ends it is level. Source: `BuildBrokenLinearFunction`.
pub(super) fn on_line(line: &[(i64, i64)], at: i64) -> i64 {
    let next = line.iter().position(|(x, _)| at <= *x);
    match next.map(|next| (line.get(next.wrapping_sub(1)), line.get(next))) {
        None => line.last().map_or(0, |(_, y)| *y),
        Some((Some((x0, y0)), Some((x1, y1)))) => y0 + (y1 - y0) * (at - x0) / (x1 - x0).max(1),
        Some((_, first)) => first.map_or(0, |(_, y)| *y),
    }
}

#[cfg(test)]
mod tests;
