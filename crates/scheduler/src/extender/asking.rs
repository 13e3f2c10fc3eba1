//! A decision in which extenders have a say: Nodes that plugins let through are filtered by one after the other, and the
//! rest is ranked by plugins and extenders together. Source: `findNodesThatPassExtenders`, `prioritizeNodes`.

use std::sync::Arc;

use controller::pod::Pod;
use futures::future::join_all;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::wire::REFUSED;
use super::{Client, Unheard};
use crate::decide::{Decision, EXTENDER, Search};
use crate::diagnosis::Diagnosis;
use crate::node_info::Snapshot;
use crate::plugins::Refusal;
use crate::preemption::{self, Preemption};

/// Those who have a say about the Pod.
pub(crate) fn interested<'a>(extenders: &'a [Client], pod: &Pod) -> Vec<&'a Client> {
    extenders.iter().filter(|client| client.extender.is_interested(pod)).collect()
}

/// As [`crate::decide()`], with `extenders`.
pub(crate) async fn decide_with(
    extenders: &[&Client],
    pod: &Pod,
    default_selector: Option<&LabelSelector>,
    snapshot: &Snapshot,
    chance: u64,
    told: &mut Diagnosis,
) -> Decision {
    let mut search = match Search::begin(pod, default_selector, snapshot, chance, told) {
        Ok(search) => search,
        Err(decision) => return decision,
    };
    if search.look_at_nominated_node() {
        // What is said of this one counts only if all are asked about.
        let mut unsaid = Diagnosis::default();
        match filter(extenders, pod, &mut search, &mut unsaid).await {
            Err(unheard) => return Decision::Unheard(unheard.to_string()),
            Ok(()) if !search.feasible.is_empty() => return search.choose(&[], told),
            Ok(()) => {}
        }
    }
    if let Some(failed) = search.look_everywhere(told) {
        return failed;
    }
    if let Err(unheard) = filter(extenders, pod, &mut search, told).await {
        return Decision::Unheard(unheard.to_string());
    }
    let scores = prioritize(extenders, pod, &search).await;
    search.choose(&scores, told)
}

async fn filter(
    extenders: &[&Client],
    pod: &Pod,
    search: &mut Search<'_>,
    told: &mut Diagnosis,
) -> Result<(), Unheard> {
    for client in extenders {
        if search.feasible.is_empty() {
            return Ok(());
        }
        let filtered = match client.filter(pod, &search.feasible).await {
            Ok(filtered) => filtered,
            Err(unheard) if client.extender.is_ignorable => {
                tracing::info!(%unheard, "an extender is ignored");
                continue;
            }
            Err(unheard) => return Err(unheard),
        };
        let before = std::mem::take(&mut search.feasible);
        for (index, node) in before.into_iter().enumerate() {
            if filtered.good.contains(&index) {
                search.feasible.push(node);
            } else if !filtered.says_why(node.name()) {
                told.refuse(node.name(), EXTENDER, Refusal::passing(REFUSED));
            }
        }
        for (node, why) in filtered.failed {
            told.refuse(&node, EXTENDER, Refusal::passing(why));
        }
        for (node, why) in filtered.failed_for_good {
            told.refuse(&node, EXTENDER, Refusal::lasting(why));
        }
    }
    Ok(())
}

/// What is added to the scores of the Nodes, in their order. Who gives none is not waited for.
async fn prioritize(extenders: &[&Client], pod: &Pod, search: &Search<'_>) -> Vec<i64> {
    let asked = extenders.iter().map(|client| client.prioritize(pod, &search.feasible));
    let mut sums = vec![0_i64; search.feasible.len()];
    for scores in join_all(asked).await {
        match scores {
            Ok(scores) => {
                sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum = sum.saturating_add(score));
            }
            Err(unheard) => tracing::debug!(%unheard, "an extender gave no scores"),
        }
    }
    sums
}

/// As [`preemption::preempt`], with `extenders`: each leaves the candidates that it agrees with. Source: `callExtenders`.
///
/// # Errors
/// One that is needed gives no answer that counts.
pub(crate) async fn preempt_with(
    extenders: &[&Client],
    pod: &Pod,
    snapshot: &mut Snapshot,
    budgets: &[Arc<PodDisruptionBudget>],
    chance: u64,
) -> Result<Preemption, Unheard> {
    let (mut candidates, reasons) = match preemption::candidates(pod, snapshot, budgets, chance) {
        Ok(found) => found,
        Err(preemption) => return Ok(preemption),
    };
    for client in extenders.iter().filter(|client| client.extender.verbs.preempt.is_some()) {
        if candidates.is_empty() {
            break;
        }
        match client.preempt(pod, &candidates, snapshot).await {
            Ok(left) => candidates = left,
            Err(unheard) if client.extender.is_ignorable => {
                tracing::info!(%unheard, "an extender is ignored");
            }
            Err(unheard) => return Err(unheard),
        }
    }
    Ok(preemption::choose(candidates, reasons))
}

/// Has the extender bind the Pod that does so; says whether there was one. Source: `extendersBinding`.
///
/// # Errors
/// It did not, and nobody else may.
pub(crate) async fn bind(extenders: &[Client], pod: &Pod, node: &str) -> Result<bool, Unheard> {
    for client in interested(extenders, pod) {
        match client.bind(pod, node).await {
            None => {}
            Some(Err(unheard)) if client.extender.is_ignorable => {
                tracing::info!(%unheard, "an extender is ignored");
            }
            Some(bound) => return bound.map(|()| true),
        }
    }
    Ok(false)
}
