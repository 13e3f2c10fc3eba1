//! A list at a revision is the state of that revision: no key more, none less, in order.

use std::ops::RangeInclusive;

use store::Revision;

use super::log::Log;
use super::{Breaches, Guarantees, Rule};
use crate::history::{Call, Operation, Outcome, State};

pub(super) fn check(log: &Log, operations: &[Operation], guarantees: Guarantees, breaches: &mut Breaches) {
    for operation in operations {
        let Call::List { start, end, at, limit } = &operation.call else { continue };
        match &operation.outcome {
            Outcome::Listed { revision, states, remaining } => {
                if at.is_some_and(|at| at != *revision) {
                    let what = format!("a list at {at:?} says that it is of {revision}");
                    breaches.add(Rule::ListsAreWhole, what);
                }
                let all = expected(log, (start, end), *revision, operation.returned.unwrap_or(usize::MAX));
                let (wanted, rest) = wanted(log, all, (states, *revision), *limit);
                if let Some(difference) = difference(&wanted, states) {
                    let what = format!("{start}..{end} at {revision}: {difference}");
                    breaches.add(Rule::ListsAreWhole, what);
                }
                if remaining.is_some_and(|remaining| !rest.contains(&remaining)) {
                    let what =
                        format!("{start}..{end} at {revision}: {rest:?} come after it, not {remaining:?}");
                    breaches.add(Rule::ListsAreWhole, what);
                }
            }
            Outcome::Gone if guarantees == Guarantees::Store => {
                let now = operation.returned.unwrap_or(usize::MAX);
                if at.is_none_or(|at| !may_be_gone(log, operations, at, now)) {
                    let what = format!("a list at {at:?} was refused, and nobody had compacted");
                    breaches.add(Rule::HistoryIsKept, what);
                }
            }
            _ => {}
        }
    }
}

/// Whether somebody had asked to forget what is at `revision`, or a crash may have done so.
pub(super) fn may_be_gone(log: &Log, operations: &[Operation], revision: Revision, now: usize) -> bool {
    let compacts = |operation: &Operation| {
        operation.invoked < now && matches!(operation.call, Call::Compact { revision: to } if to > revision)
    };
    log.is_in_gap(revision, now) || operations.iter().any(compacts)
}

fn expected(log: &Log, (start, end): (&str, &str), revision: Revision, now: usize) -> Vec<(String, State)> {
    let there = |key: &str| log.state(key, revision, now).map(|state| (key.to_owned(), state));
    log.keys(start, end).filter_map(there).collect()
}

/// The rows that should be listed, and how many may come after them. What may have been removed unseen may be missing,
/// in the list and behind it.
fn wanted(
    log: &Log,
    all: Vec<(String, State)>,
    (states, at): (&[(String, State)], Revision),
    limit: usize,
) -> (Vec<(String, State)>, RangeInclusive<u64>) {
    let is_listed = |key: &str| states.iter().any(|(listed, _)| listed == key);
    let is_certain =
        |(key, state): &(String, State)| is_listed(key) || !log.may_be_removed(key, state.revision, at);
    let (mut certain, doubtful): (Vec<_>, Vec<_>) = all.into_iter().partition(is_certain);
    let rest = if limit == 0 { Vec::new() } else { certain.split_off(limit.min(certain.len())) };
    let last = states.last().map(|(key, _)| key);
    let behind = |key: &String| limit > 0 && certain.len() == limit && last.is_none_or(|last| key > last);
    let more = doubtful.iter().filter(|(key, _)| behind(key)).count();
    (certain, rest.len() as u64..=(rest.len() + more) as u64)
}

/// The first row that is not as it should be.
fn difference(expected: &[(String, State)], found: &[(String, State)]) -> Option<String> {
    let rows = expected.len().max(found.len());
    (0..rows).find_map(|row| match (expected.get(row), found.get(row)) {
        (Some(wanted), Some(found)) if wanted.0 == found.0 && is_same(&wanted.1, &found.1) => None,
        (wanted, found) => Some(format!("row {row} is {found:?} and should be {wanted:?}")),
    })
}

/// Whether what was told is so; when a key came to be is not always told.
pub(super) fn is_same(wanted: &State, told: &State) -> bool {
    wanted.value == told.value
        && wanted.revision == told.revision
        && told.created.is_none_or(|created| Some(created) == wanted.created)
}
