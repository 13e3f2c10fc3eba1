//! What suits all who give something away. Pure.
//!
//! Source: `topologymanager/policy*.go` of upstream.

use std::cmp::Ordering;

use super::{Hint, Hints, Nodes, Order, Policy};

impl Policy {
    /// The best of what is possible; `None` if the Pod is to be refused.
    pub(super) fn merge(self, all: Nodes, providers: &[Hints], order: Order<'_>) -> Option<Hint> {
        let resources = flatten(providers);
        let best = match self {
            Self::None => return Some(Hint::ANY),
            Self::BestEffort | Self::Restricted => best(all, &resources, order),
            Self::SingleNumaNode => {
                let best = best(all, &on_one_node(&resources), order);
                // All nodes are as good as none.
                Hint { nodes: best.nodes.filter(|nodes| *nodes != all || nodes.len() == 1), ..best }
            }
        };
        (best.is_preferred || self == Self::BestEffort).then_some(best)
    }
}

/// One list per provider and resource.
fn flatten(providers: &[Hints]) -> Vec<Vec<Hint>> {
    let mut all = Vec::new();
    for hints in providers {
        if hints.is_empty() {
            all.push(vec![Hint::ANY]);
        }
        all.extend(hints.values().map(|list| match list.as_deref() {
            None => vec![Hint::ANY],
            Some([]) => vec![Hint { nodes: None, is_preferred: false }],
            Some(list) => list.to_vec(),
        }));
    }
    all
}

fn on_one_node(resources: &[Vec<Hint>]) -> Vec<Vec<Hint>> {
    let is_one = |hint: &Hint| hint.is_preferred && hint.nodes.is_none_or(|nodes| nodes.len() == 1);
    resources.iter().map(|hints| hints.iter().copied().filter(is_one).collect()).collect()
}

/// The best combination of one hint of each list.
fn best(all: Nodes, resources: &[Vec<Hint>], order: Order<'_>) -> Hint {
    let aim = aim(resources);
    let mut best: Option<(Nodes, bool)> = None;
    let mut choice = vec![0; resources.len()];
    if resources.iter().any(Vec::is_empty) {
        return Hint { nodes: Some(all), is_preferred: false };
    }
    loop {
        let hints = choice.iter().zip(resources).filter_map(|(index, list)| list.get(*index).copied());
        let candidate = combine(all, hints);
        if !candidate.0.is_empty() && best.is_none_or(|current| is_better(current, candidate, aim, order)) {
            best = Some(candidate);
        }
        if !advance(&mut choice, resources) {
            break;
        }
    }
    let (nodes, is_preferred) = best.unwrap_or((all, false));
    Hint { nodes: Some(nodes), is_preferred }
}

/// Counts through all combinations. Whether there is another.
fn advance(choice: &mut [usize], resources: &[Vec<Hint>]) -> bool {
    for (index, list) in choice.iter_mut().zip(resources).rev() {
        *index += 1;
        if *index < list.len() {
            return true;
        }
        *index = 0;
    }
    false
}

/// The nodes that all of them have; preferred only if all are, and are the same.
fn combine(all: Nodes, hints: impl Iterator<Item = Hint>) -> (Nodes, bool) {
    let (mut nodes, mut first, mut is_preferred) = (all, None, true);
    for hint in hints {
        is_preferred &= hint.is_preferred;
        let Some(own) = hint.nodes else { continue };
        is_preferred &= *first.get_or_insert(own) == own;
        nodes = nodes.and(own);
    }
    (nodes, is_preferred)
}

/// How many nodes the resource needs that needs most: what is not preferred should come near that.
fn aim(resources: &[Vec<Hint>]) -> usize {
    let least = |list: &Vec<Hint>| list.iter().filter_map(|hint| hint.nodes).map(Nodes::len).min();
    resources.iter().filter_map(least).max().unwrap_or(0)
}

fn is_better(current: (Nodes, bool), candidate: (Nodes, bool), aim: usize, order: Order<'_>) -> bool {
    let is_narrower = order.prefers(candidate.0, current.0);
    match (current.1, candidate.1) {
        (false, true) => return true,
        (true, false) => return false,
        (true, true) => return is_narrower,
        (false, false) => {}
    }
    let (has, would) = (current.0.len(), candidate.0.len());
    match (has.cmp(&aim), would.cmp(&aim)) {
        (Ordering::Greater, _) => is_narrower,
        (Ordering::Equal, Ordering::Equal) => is_narrower,
        (Ordering::Equal, _) | (Ordering::Less, Ordering::Greater) => false,
        (Ordering::Less, Ordering::Equal) => true,
        (Ordering::Less, Ordering::Less) => would > has || (would == has && is_narrower),
    }
}

#[cfg(test)]
mod tests;
