//! The checker's own negative controls: of an honest history one line is changed, and the rule that is broken then must
//! say so. Each row is a mistake that a store, a watch cache or their client could make; nothing here is left to chance.

#![allow(clippy::unit_arg, reason = "a row changes one thing, and says in one line what")]

use torture::History;
use torture::check::{Guarantees, Rule, check};
use torture::history::{Call, Event, Line, Outcome, State};
use torture::simulation::Simulation;

/// Lines that each row changes, one after the other, in histories of their own.
const PLACES: usize = 6;

/// Changes a line, if it is one that the mistake could be in.
type Spoil = fn(&History, &Line) -> Option<Vec<Line>>;

/// An honest history with a crash in it.
fn honest() -> History {
    let history = Simulation { lives: 2, ..Simulation::new(5) }.run().unwrap();
    assert_eq!(check(&history, Guarantees::Store), []);
    history
}

fn event(line: &Line, change: impl Fn(&mut Event) -> Option<()>) -> Option<Vec<Line>> {
    let Line::Event(watch, event) = line else { return None };
    let mut event = event.clone();
    change(&mut event)?;
    Some(vec![Line::Event(*watch, event)])
}

fn answer(line: &Line, change: impl Fn(&Outcome) -> Option<Outcome>) -> Option<Vec<Line>> {
    let Line::Return(id, outcome) = line else { return None };
    Some(vec![Line::Return(*id, change(outcome)?)])
}

type Rows = Vec<(String, State)>;

fn list(
    line: &Line,
    change: impl Fn(&mut u64, &mut Rows, &mut Option<u64>) -> Option<()>,
) -> Option<Vec<Line>> {
    answer(line, |outcome| {
        let Outcome::Listed { mut revision, mut states, mut remaining } = outcome.clone() else {
            return None;
        };
        change(&mut revision, &mut states, &mut remaining)?;
        Some(Outcome::Listed { revision, states, remaining })
    })
}

/// What this line answers.
fn call<'h>(history: &'h History, line: &Line) -> Option<&'h Call> {
    let Line::Return(id, _) = line else { return None };
    history.lines.iter().find_map(|line| match line {
        Line::Invoke(invoked, call) if invoked == id => Some(call),
        _ => None,
    })
}

fn is_of_now(history: &History, line: &Line) -> bool {
    matches!(call(history, line), Some(Call::List { at: None, .. }))
}

/// Name, mistake, and the rules of which one must find it.
const ROWS: &[(&str, Spoil, &[Rule])] = &[
    (
        "an event is dropped",
        |_, line| event(line, |_| Some(())).map(|_| Vec::new()),
        &[Rule::WatchesAreWhole],
    ),
    (
        "an event comes twice",
        |_, line| event(line, |_| Some(())).map(|one| [one.clone(), one].concat()),
        &[Rule::WatchesAreWhole],
    ),
    (
        "an event has the revision after its own",
        |_, line| event(line, |event| Some(event.revision += 1)),
        &[Rule::OneChangePerRevision, Rule::WatchesAreWhole],
    ),
    (
        "an event is of another key",
        |_, line| event(line, |event| Some(event.key.push('x'))),
        &[Rule::OneChangePerRevision],
    ),
    (
        "an event shows a value that nobody wrote",
        |_, line| event(line, |event| Some(event.state.as_mut()?.value = "broken".to_owned())),
        &[Rule::OneChangePerRevision, Rule::NothingInvented],
    ),
    (
        "a change looks like a removal",
        |_, line| event(line, |event| event.state.take().map(drop)),
        &[Rule::OneChangePerRevision],
    ),
    (
        "an event forgets what was before",
        |_, line| event(line, |event| event.previous.as_mut()?.take().map(drop)),
        &[Rule::EventsTellThePast],
    ),
    (
        "an event invents what was before",
        |_, line| {
            event(line, |event| {
                let state = event.state.clone()?;
                let is_new = event.previous.as_ref()?.is_none();
                is_new.then(|| event.previous = Some(Some(State { revision: event.revision - 1, ..state })))
            })
        },
        &[Rule::EventsTellThePast, Rule::OneChangePerRevision],
    ),
    (
        "an update looks like a creation",
        |_, line| {
            event(line, |event| {
                let state = event.state.as_mut()?;
                (state.created != Some(state.revision)).then(|| state.created = Some(state.revision))
            })
        },
        &[Rule::WatchesAreWhole],
    ),
    (
        "a watcher is told that it has seen what is to come",
        |history, line| match line {
            Line::Upto(watch, upto) if has_event(history, *watch, upto + 1) => {
                Some(vec![Line::Upto(*watch, upto + 1)])
            }
            _ => None,
        },
        &[Rule::WatchesAreWhole],
    ),
    (
        "a watcher is told that it is where it was",
        |_, line| match line {
            Line::Upto(watch, upto) => Some(vec![line.clone(), Line::Upto(*watch, upto - 1)]),
            _ => None,
        },
        &[Rule::WatchesAreWhole],
    ),
    (
        "a watch is cut although nothing was compacted",
        |history, line| match line {
            Line::Upto(watch, _) if !history.lines.iter().any(is_compaction) => {
                Some(vec![line.clone(), Line::Cut(*watch)])
            }
            _ => None,
        },
        &[Rule::HistoryIsKept],
    ),
    (
        "a watch never gets there",
        |_, line| match line {
            Line::Upto(watch, upto) => Some(vec![line.clone(), Line::Due(*watch, upto + 1)]),
            _ => None,
        },
        &[Rule::Progress],
    ),
    (
        "two writes get one revision",
        |history, line| {
            let first = history.lines.iter().find_map(|line| match line {
                Line::Return(_, Outcome::Wrote(revision)) => Some(*revision),
                _ => None,
            })?;
            answer(line, |outcome| match outcome {
                Outcome::Wrote(revision) if *revision != first => Some(Outcome::Wrote(first)),
                _ => None,
            })
        },
        &[Rule::OneChangePerRevision],
    ),
    (
        "a write that was made is said never to have been",
        |history, line| {
            let is_put = call(history, line)?.value().is_some();
            answer(line, |outcome| match outcome {
                Outcome::Wrote(_) if is_put => Some(Outcome::NotDone("no".to_owned())),
                _ => None,
            })
        },
        &[Rule::NothingInvented],
    ),
    (
        "a write that was refused is said to have been made",
        |_, line| {
            answer(line, |outcome| match outcome {
                Outcome::Refused(Some(state)) => Some(Outcome::Wrote(state.revision + 100_000)),
                _ => None,
            })
        },
        &[Rule::Linearizable, Rule::RevisionsRise, Rule::WatchesAreWhole],
    ),
    (
        "a read finds nothing",
        |history, line| {
            let key = call(history, line)?.key()?;
            let is_durable = !key.contains("/leases/") && !key.contains("/events/");
            answer(line, |outcome| match outcome {
                Outcome::Got(Some(_)) if is_durable => Some(Outcome::Got(None)),
                _ => None,
            })
        },
        &[Rule::Linearizable],
    ),
    (
        "a read is torn",
        |_, line| {
            answer(line, |outcome| match outcome {
                Outcome::Got(Some(state)) => {
                    Some(Outcome::Got(Some(State { value: "broken: ".to_owned(), ..state.clone() })))
                }
                _ => None,
            })
        },
        &[Rule::OneChangePerRevision, Rule::NothingInvented],
    ),
    (
        "a list misses a key",
        |_, line| list(line, |_, states, _| states.pop().map(drop)),
        &[Rule::ListsAreWhole],
    ),
    (
        "a list is out of order",
        |_, line| list(line, |_, states, _| (states.len() > 1).then(|| states.reverse())),
        &[Rule::ListsAreWhole],
    ),
    (
        "a list counts what remains wrong",
        |_, line| list(line, |_, _, remaining| Some(*remaining.as_mut()? += 1)),
        &[Rule::ListsAreWhole],
    ),
    (
        "a list is older than what was acknowledged before it",
        |history, line| {
            let is_of_now = is_of_now(history, line);
            list(line, |revision, states, _| {
                let oldest = states.iter().map(|(_, state)| state.revision).min()?;
                (is_of_now && *revision > oldest + 10).then(|| *revision = oldest)
            })
        },
        &[Rule::ListsAreFresh],
    ),
    (
        "the newest revision is an old one",
        |_, line| {
            answer(line, |outcome| match outcome {
                Outcome::Newest(revision) if *revision > 100 => Some(Outcome::Newest(1)),
                _ => None,
            })
        },
        &[Rule::ListsAreFresh],
    ),
    (
        "a list of the past is refused although nothing was compacted",
        |history, line| {
            let is_first = matches!(call(history, line), Some(Call::List { at: Some(_), .. }))
                && !history.lines.iter().any(is_compaction);
            answer(line, |outcome| match outcome {
                Outcome::Listed { .. } if is_first => Some(Outcome::Gone),
                _ => None,
            })
        },
        &[Rule::HistoryIsKept],
    ),
    (
        "a restart loses what was acknowledged",
        |_, line| match line {
            Line::Restart { newest, kept } if *kept > 10 => {
                Some(vec![Line::Restart { newest: *newest, kept: 1 }])
            }
            _ => None,
        },
        &[Rule::NothingLost],
    ),
    (
        "a restart counts from what was seen before",
        |_, line| match line {
            Line::Restart { kept, .. } if *kept > 10 => Some(vec![Line::Restart { newest: 1, kept: *kept }]),
            _ => None,
        },
        &[Rule::RevisionsRise],
    ),
];

fn is_compaction(line: &Line) -> bool {
    matches!(line, Line::Invoke(_, Call::Compact { .. }))
}

fn has_event(history: &History, watch: u64, revision: u64) -> bool {
    history
        .lines
        .iter()
        .any(|line| matches!(line, Line::Event(of, event) if *of == watch && event.revision == revision))
}

/// Some mistakes are none after a compaction: those rows get a history without one.
fn history_for<'h>(rules: &[Rule], with: &'h History, without: &'h History) -> &'h History {
    if rules == [Rule::HistoryIsKept] { without } else { with }
}

#[test]
fn every_spoiled_line_is_found_by_the_rule_that_it_breaks() {
    let with = honest();
    let end = with.lines.iter().position(is_compaction).unwrap_or(with.lines.len());
    let without = History { lines: with.lines[..end].to_vec() };
    let mut missed = Vec::new();
    for (name, spoil, rules) in ROWS {
        let history = history_for(rules, &with, &without);
        let spoiled: Vec<(usize, Vec<Line>)> = history
            .lines
            .iter()
            .enumerate()
            .filter_map(|(at, line)| Some((at, spoil(history, line)?)))
            .collect();
        let every = spoiled.len().div_ceil(PLACES).max(1);
        let places: Vec<_> = spoiled.into_iter().step_by(every).collect();
        assert!(!places.is_empty(), "{name}: there is no such line");
        let count = places.len();
        let caught = places.into_iter().filter(|(at, lines)| {
            let mut spoiled = history.clone();
            spoiled.lines.splice(*at..=*at, lines.iter().cloned());
            check(&spoiled, Guarantees::Store).iter().any(|breach| rules.contains(&breach.rule))
        });
        let caught = caught.count();
        eprintln!("{name}: found in {caught} of {count} places");
        // Near the end of a history, or at a crash, nobody may have been there to notice.
        if caught * 2 <= count {
            missed.push(format!("{name}: {caught} of {count}"));
        }
    }
    assert_eq!(missed, Vec::<String>::new());
}
