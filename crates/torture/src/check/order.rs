//! Revisions rise in real time: what is acknowledged later, and what comes after a restart, is newer.

use store::Revision;

use super::{Breaches, Rule};
use crate::history::{History, Line, Operation, Outcome};

pub(super) fn check(history: &History, operations: &[Operation], breaches: &mut Breaches) {
    real_time(operations, breaches);
    let mut seen: Revision = 0;
    let mut writes: std::collections::BTreeMap<Revision, &Operation> = std::collections::BTreeMap::new();
    for operation in operations {
        let Outcome::Wrote(revision) = operation.outcome else { continue };
        if let Some(other) = writes.insert(revision, operation) {
            let what = format!("{revision} was given to {:?} and to {:?}", other.call, operation.call);
            breaches.add(Rule::OneChangePerRevision, what);
        }
    }
    for line in &history.lines {
        match line {
            Line::Return(_, Outcome::Wrote(revision) | Outcome::Newest(revision)) => {
                seen = seen.max(*revision)
            }
            Line::Return(_, Outcome::Listed { revision, .. }) => seen = seen.max(*revision),
            Line::Event(_, event) => seen = seen.max(event.revision),
            Line::Restart { newest, .. } if *newest < seen => {
                let what = format!("{seen} was seen, and the store counts on from {newest}");
                breaches.add(Rule::RevisionsRise, what);
            }
            _ => {}
        }
    }
}

/// A write's revision is above whatever was told before it was asked for; a read that says how far it is, too.
fn real_time(operations: &[Operation], breaches: &mut Breaches) {
    let mut returned: Vec<&Operation> = operations.iter().filter(|it| it.returned.is_some()).collect();
    returned.sort_by_key(|operation| operation.returned);
    let mut returned = returned.into_iter().peekable();
    let (mut newest, mut whose) = (0, None);
    for operation in operations {
        while let Some(earlier) = returned.next_if(|it| it.returned < Some(operation.invoked)) {
            if let Some(told) = told(earlier).filter(|told| *told > newest) {
                (newest, whose) = (told, Some(&earlier.call));
            }
        }
        let (is_behind, rule) = match operation.outcome {
            Outcome::Wrote(revision) => (revision <= newest, Rule::RevisionsRise),
            _ => (told(operation).is_some_and(|told| told < newest), Rule::ListsAreFresh),
        };
        if is_behind {
            let what = format!("{operation:?} came after {whose:?} was told {newest}");
            breaches.add(rule, what);
        }
    }
}

/// How far the store had come at least, says an answer.
fn told(operation: &Operation) -> Option<Revision> {
    use crate::history::Call;
    match (&operation.call, &operation.outcome) {
        (_, Outcome::Wrote(revision) | Outcome::Newest(revision)) => Some(*revision),
        (Call::List { at: None, .. }, Outcome::Listed { revision, .. }) => Some(*revision),
        _ => None,
    }
}
