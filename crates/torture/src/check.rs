//! The checker: everything that a history says about one store must be possible at once.
//!
//! Revisions put all writes in one order, so most rules compare with the log that acknowledgements, events and reads
//! make together; what cannot be known from revisions (who saw what when) is a search per key, in `register`.

mod forms;
mod lists;
mod log;
mod order;
mod register;
mod watches;

use std::fmt;

use crate::history::{Call, History, Operation};

/// The guarantees that a history is checked for: rules are wider where less is guaranteed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantees {
    /// What the store's trait says.
    Store,
    /// What the API says: it may forget history when it likes.
    Api,
}

/// A guarantee that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule.
    pub rule: Rule,
    /// The observation.
    pub what: String,
}

/// A rule that a history is held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A revision is one change.
    OneChangePerRevision,
    /// What is there was written by somebody, whole.
    NothingInvented,
    /// Revisions rise in real time, also over restarts.
    RevisionsRise,
    /// Reads and writes of a key are linearizable.
    Linearizable,
    /// A list shows the state of its revision.
    ListsAreWhole,
    /// A list is as new as whatever was acknowledged before it, and no newer than what came after it.
    ListsAreFresh,
    /// A watcher sees every change once and in order.
    WatchesAreWhole,
    /// An event tells what was before.
    EventsTellThePast,
    /// History is there until it is compacted.
    HistoryIsKept,
    /// What was acknowledged is still there.
    NothingLost,
    /// What must come, comes.
    Progress,
    /// After the answer to a change of a definition, objects are shown and judged by it.
    DefinitionsHold,
    /// No object is there without its definition.
    NoObjectOutlivesItsKind,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// The breaches found so far.
#[derive(Debug, Default)]
pub(crate) struct Breaches(Vec<Breach>);

impl Breaches {
    /// More say nothing more.
    const MAX: usize = 50;

    fn add(&mut self, rule: Rule, what: String) {
        if self.0.len() < Self::MAX {
            self.0.push(Breach { rule, what });
        }
    }
}

/// Everything that is wrong with a history; nothing, if it may have happened.
#[must_use]
pub fn check(history: &History, guarantees: Guarantees) -> Vec<Breach> {
    let operations = history.operations();
    let mut breaches = Breaches::default();
    let log = log::Log::of(history, &operations, &mut breaches);
    order::check(history, &operations, &mut breaches);
    forms::check(history, &mut breaches);
    lists::check(&log, &operations, guarantees, &mut breaches);
    watches::check(history, &log, &operations, guarantees, &mut breaches);
    for (key, operations) in by_key(&operations) {
        register::check(key, &operations, &log, &mut breaches);
    }
    breaches.0
}

/// The operations on each key of which nothing goes by itself or may be lost.
fn by_key(operations: &[Operation]) -> Vec<(&str, Vec<&Operation>)> {
    let mut keys: std::collections::BTreeMap<&str, Vec<&Operation>> = std::collections::BTreeMap::new();
    for operation in operations {
        if let Some(key) = operation.call.key() {
            keys.entry(key).or_default().push(operation);
        }
    }
    for operation in operations {
        let Call::End { start, end, .. } = &operation.call else { continue };
        for (_, operations) in keys.range_mut(start.as_str()..end.as_str()) {
            operations.push(operation);
        }
    }
    keys.values_mut().for_each(|operations| operations.sort_by_key(|operation| operation.invoked));
    let is_durable = |operation: &&Operation| {
        operation.call.keep().is_none_or(|keep| keep == crate::history::Keep::Durably)
    };
    keys.into_iter().filter(|(_, operations)| operations.iter().all(is_durable)).collect()
}

#[cfg(test)]
mod tests;
