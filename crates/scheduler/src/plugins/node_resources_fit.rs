//! A Node must have what the Pod asks for; of those that do, the emptier is better (least allocated).

use super::{Candidate, Refusal, Remedy, SCORE_MAX};
use crate::node_info::NodeInfo;

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
        let of = |list: &std::collections::BTreeMap<String, i64>| list.get(name).copied().unwrap_or(0);
        check(name, *amount, of(&used.scalar), of(&all.scalar));
    }
    (!reasons.is_empty()).then_some(Refusal { reasons, remedy })
}

/// The mean share of CPU and memory that stays free, in percent.
pub(super) fn score(candidate: &Candidate<'_>, node: &NodeInfo) -> i64 {
    let (need, used) = (&candidate.need.requests_non_zero, &node.requested_non_zero);
    let shares = [
        free_share(used.milli_cpu + need.milli_cpu, node.allocatable.milli_cpu),
        free_share(used.memory + need.memory, node.allocatable.memory),
    ];
    let (count, sum) =
        shares.into_iter().flatten().fold((0, 0), |(count, sum), share| (count + 1, sum + share));
    sum / count.max(1)
}

fn free_share(used: i64, all: i64) -> Option<i64> {
    if all <= 0 {
        return None;
    }
    Some(if used > all { 0 } else { (all - used).saturating_mul(SCORE_MAX) / all })
}
