//! A watcher sees every change of its keys once, in order and without gaps, with what was there before.

use std::collections::BTreeMap;

use store::Revision;

use super::lists::{is_same, may_be_gone};
use super::log::Log;
use super::{Breaches, Guarantees, Rule};
use crate::history::{Event, History, Id, Line, Operation};

/// Where a watcher is.
struct Watcher<'h> {
    keys: (&'h str, &'h str),
    /// Everything up to here was compared with the log.
    complete: Revision,
    /// The newest that it was told.
    told: Revision,
    /// Told since `complete`.
    events: Vec<Revision>,
    is_cut: bool,
}

pub(super) fn check(
    history: &History,
    log: &Log,
    operations: &[Operation],
    guarantees: Guarantees,
    breaches: &mut Breaches,
) {
    let mut watchers: BTreeMap<Id, Watcher<'_>> = BTreeMap::new();
    for (now, line) in history.lines.iter().enumerate() {
        match line {
            Line::Watch { watch, start, end, after } => {
                let (complete, told) = (*after, *after);
                let keys = (start.as_str(), end.as_str());
                watchers.insert(*watch, Watcher { keys, complete, told, events: Vec::new(), is_cut: false });
            }
            Line::Event(watch, event) => {
                if let Some(watcher) = watchers.get_mut(watch) {
                    watcher.see(*watch, event, log, now, breaches);
                }
            }
            Line::Upto(watch, upto) => {
                if let Some(watcher) = watchers.get_mut(watch) {
                    watcher.reach(*watch, *upto, log, now, breaches);
                }
            }
            Line::Cut(watch) => {
                let Some(watcher) = watchers.get_mut(watch) else { continue };
                watcher.is_cut = true;
                if guarantees == Guarantees::Store && !may_be_gone(log, operations, watcher.complete, now) {
                    let what =
                        format!("watch {watch} was cut at {}, and nobody had compacted", watcher.complete);
                    breaches.add(Rule::HistoryIsKept, what);
                }
            }
            Line::Due(watch, due) => {
                let late = watchers.get(watch).filter(|watcher| !watcher.is_cut && watcher.complete < *due);
                if let Some(watcher) = late {
                    let what = format!("watch {watch} is at {} and should be at {due}", watcher.complete);
                    breaches.add(Rule::Progress, what);
                }
            }
            _ => {}
        }
    }
}

impl Watcher<'_> {
    fn see(&mut self, watch: Id, event: &Event, log: &Log, now: usize, breaches: &mut Breaches) {
        if event.revision <= self.told {
            let what = format!("watch {watch} was told of {} after {}", event.revision, self.told);
            breaches.add(Rule::WatchesAreWhole, what);
        }
        if event.key.as_str() < self.keys.0 || event.key.as_str() >= self.keys.1 {
            let what = format!("watch {watch} of {:?} was told of {}", self.keys, event.key);
            breaches.add(Rule::WatchesAreWhole, what);
        }
        self.told = self.told.max(event.revision);
        self.events.push(event.revision);
        if let Some(told) = &event.state {
            let state = log.state(&event.key, event.revision, now);
            if told.revision != event.revision || !state.as_ref().is_some_and(|state| is_same(state, told)) {
                let what = format!("watch {watch} at {}: {told:?} should be {state:?}", event.revision);
                breaches.add(Rule::WatchesAreWhole, what);
            }
        }
        let Some(told) = &event.previous else { return };
        let before = log.state(&event.key, event.revision - 1, now);
        let is_so = match (&before, told) {
            (None, None) => true,
            (Some(before), None) => log.may_be_removed(&event.key, before.revision, event.revision),
            (Some(before), Some(told)) => is_same(before, told),
            _ => false,
        };
        if !is_so {
            let what = format!("watch {watch} at {}: before was {before:?}, told {told:?}", event.revision);
            breaches.add(Rule::EventsTellThePast, what);
        }
    }

    /// Compares what was told with the log, up to `upto`.
    fn reach(&mut self, watch: Id, upto: Revision, log: &Log, now: usize, breaches: &mut Breaches) {
        if upto < self.told {
            let what = format!("watch {watch} was told that it is at {upto} after {}", self.told);
            breaches.add(Rule::WatchesAreWhole, what);
        }
        let events = std::mem::take(&mut self.events);
        for (revision, change) in log.changes(self.complete, upto, self.keys, now) {
            if !events.contains(&revision) {
                let what =
                    format!("watch {watch} is at {upto} and was not told of {revision}: {}", change.key);
                breaches.add(Rule::WatchesAreWhole, what);
            }
        }
        self.complete = self.complete.max(upto);
        self.told = self.told.max(upto);
    }
}
