//! Linearizability of one key: a register with compare-and-swap and removal.
//!
//! The search of Wing and Gong (1993) with Lowe's memory of what was tried (2017): put the operations in an order in
//! which each takes effect between its call and its answer and every answer is right. Keys do not depend on each
//! other, so each is searched alone. A write without an answer may take effect at any time after its call, or never.

use std::collections::HashSet;

use store::Revision;

use super::log::Log;
use super::{Breaches, Rule};
use crate::history::{Call, Operation, Outcome, State};

/// More states than this are not looked at; a correct history of our workloads takes a few per operation.
const STATES_MAX: usize = 100_000;

/// Above all revisions.
const UNSEEN: u64 = 1 << 63;

/// What a key holds: the revision of its value, or a number of its own for a write whose revision nobody knows.
type Held = Option<u64>;

/// An operation as the search sees it.
#[derive(Clone, Copy, Debug)]
struct Step {
    invoked: usize,
    /// `None`: it may take effect at any later time, or never.
    returned: Option<usize>,
    effect: Effect,
    index: usize,
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    /// The condition held, and this is there now.
    Write { expect: Held, held: Held },
    /// The condition did not hold; what is there was told.
    Refused { expect: Held, found: Held },
    /// The condition did not hold.
    RefusedBlindly { expect: Held },
    /// This was there.
    Read(Held),
    /// Whatever was there is gone, with its kind.
    End,
}

impl Effect {
    /// Whether it puts something there that nobody has ever seen.
    fn is_unseen(self) -> bool {
        matches!(self, Self::Write { held: Some(held), .. } if held >= UNSEEN)
    }

    /// What is there after it, if it can take effect.
    fn apply(self, now: Held) -> Option<Held> {
        match self {
            Self::Write { expect, held } => (now == expect).then_some(held),
            Self::Refused { expect, found } => (now != expect && now == found).then_some(now),
            Self::RefusedBlindly { expect } => (now != expect).then_some(now),
            Self::Read(found) => (now == found).then_some(now),
            Self::End => Some(None),
        }
    }
}

pub(super) fn check(key: &str, operations: &[&Operation], log: &Log, breaches: &mut Breaches) {
    let all = operations.iter().enumerate();
    let steps: Vec<Step> = all.filter_map(|(index, operation)| step(index, operation, log)).collect();
    // Most writes without an answer whose value nobody saw never took effect: an order without them is good enough.
    let is_seen = |step: &&Step| !step.effect.is_unseen();
    if search(&steps.iter().filter(is_seen).copied().collect::<Vec<_>>()).is_ok() {
        return;
    }
    if let Err(stuck) = search(&steps) {
        let around = stuck.into_iter().filter_map(|index| operations.get(index)).map(|operation| {
            let Operation { call, outcome, invoked, returned } = operation;
            format!("\n    {invoked}..{returned:?} {call:?} -> {outcome:?}")
        });
        let what = format!("{key}: no order explains these:{}", around.collect::<String>());
        breaches.add(Rule::Linearizable, what);
    }
}

fn step(index: usize, operation: &Operation, log: &Log) -> Option<Step> {
    let expect = match &operation.call {
        Call::Update { expect, .. } | Call::Delete { expect, .. } => Some(*expect),
        _ => None,
    };
    let revision = |state: &Option<State>| state.as_ref().map(|state| state.revision);
    let unseen = UNSEEN + index as u64;
    let held = |revision: Option<Revision>| {
        let value = operation.call.value()?;
        Some(revision.or_else(|| log.revision_of(value)).unwrap_or(unseen))
    };
    let is_write = operation.call.keep().is_some();
    let effect = match &operation.outcome {
        _ if matches!(operation.call, Call::End { .. }) => Effect::End,
        Outcome::Wrote(revision) => Effect::Write { expect, held: held(Some(*revision)) },
        Outcome::Done if is_write => Effect::Write { expect, held: held(None) },
        Outcome::Refused(found) => Effect::Refused { expect, found: revision(found) },
        Outcome::RefusedBlindly => Effect::RefusedBlindly { expect },
        Outcome::Got(found) => Effect::Read(revision(found)),
        Outcome::Unknown(_) if is_write => Effect::Write { expect, held: held(None) },
        _ => return None,
    };
    let is_known = !matches!(operation.outcome, Outcome::Unknown(_));
    let returned = operation.returned.filter(|_| is_known);
    Some(Step { invoked: operation.invoked, returned, effect, index })
}

/// The operations that have taken effect, as bits, and what is there then.
type SearchState = (Vec<u64>, Held);

/// Finds an order, or the operations at which the longest attempt got stuck.
fn search(steps: &[Step]) -> Result<(), Vec<usize>> {
    let known = steps.iter().filter(|step| step.returned.is_some()).count();
    let start: SearchState = (vec![0; steps.len().div_ceil(64)], None);
    let mut seen: HashSet<SearchState> = HashSet::from([start.clone()]);
    let mut open = vec![(start, 0)];
    let (mut best, mut stuck) = (0, Vec::new());
    while let Some(((done, held), count)) = open.pop() {
        if count == known {
            return Ok(());
        }
        if seen.len() > STATES_MAX {
            return Err(stuck);
        }
        let next = candidates(steps, &done);
        if count >= best {
            best = count;
            stuck = next.iter().filter_map(|at| steps.get(*at)).map(|step| step.index).collect();
        }
        // Those without an answer first, so that they are looked at last.
        let order = next.iter().filter(|at| !is_answered(steps, **at));
        for at in order.chain(next.iter().filter(|at| is_answered(steps, **at)).rev()) {
            let Some(step) = steps.get(*at) else { continue };
            let Some(after) = step.effect.apply(held) else { continue };
            let mut taken = done.clone();
            if let Some(word) = taken.get_mut(at / 64) {
                *word |= 1 << (at % 64);
            }
            let state = (taken, after);
            if seen.insert(state.clone()) {
                open.push((state, count + usize::from(step.returned.is_some())));
            }
        }
    }
    Err(stuck)
}

fn is_answered(steps: &[Step], at: usize) -> bool {
    steps.get(at).is_some_and(|step| step.returned.is_some())
}

/// What may come next: whatever was called before the first answer among what is left.
fn candidates(steps: &[Step], done: &[u64]) -> Vec<usize> {
    let is_done = |at: usize| done.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1);
    let first_word = done.iter().position(|word| *word != u64::MAX).unwrap_or(0);
    let mut answer = usize::MAX;
    let mut found = Vec::new();
    for (at, step) in steps.iter().enumerate().skip(first_word * 64) {
        if step.invoked > answer {
            break;
        }
        if !is_done(at) {
            answer = answer.min(step.returned.unwrap_or(usize::MAX));
            found.push(at);
        }
    }
    found.retain(|at| steps.get(*at).is_some_and(|step| step.invoked < answer));
    found
}
