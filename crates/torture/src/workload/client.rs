//! One client: it chooses, asks, and learns from the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Random;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use store::{Change, Durability, Entry, Expect, Revision, Store, StoreError, Write};

use super::{Plan, Target, key};
use crate::history::{Call, Keep, Line, Outcome, Recorder, State};
use crate::value;

/// What a client believes.
#[derive(Default)]
struct Known {
    /// The last change of keys; 0 for those that are not there.
    keys: BTreeMap<String, Revision>,
    /// Some revision of the past.
    past: Revision,
    newest: Revision,
}

/// The work of one client of a plan.
pub async fn work(target: &dyn Target, plan: &Plan, number: u64, recorder: &Recorder) {
    let random = Random::seeded(plan.seed.wrapping_mul(1_000_003).wrapping_add(number));
    let mut known = Known::default();
    for step in 0..plan.operations {
        if plan.is_over.load(Ordering::Relaxed) {
            return;
        }
        let tag = format!("{}.{number}.{step}", plan.name);
        let call = choose(&random, plan, &known, tag);
        let outcome = ask(target, recorder, call.clone()).await;
        known.learn(&call, &outcome, &random);
        let pause = u64::try_from(plan.pause.as_micros()).unwrap_or(0);
        if pause > 0 {
            tokio::time::sleep(Duration::from_micros(random.below(pause))).await;
        }
        // Others get their turn at moments that the seed chooses.
        for _ in 0..random.below(3) {
            tokio::task::yield_now().await;
        }
    }
}

fn choose(random: &Random, plan: &Plan, known: &Known, tag: String) -> Call {
    let (key, keep) = key(random, plan);
    match random.below(100) {
        dice if dice >= 100 - plan.compact_percent && known.past > 0 => {
            Call::Compact { revision: known.past }
        }
        0..55 => write(random, known, (key, keep), tag),
        55..75 => Call::Get { key },
        75..95 => {
            let ranges = plan.world.ranges;
            let range = usize::try_from(random.below(ranges.len() as u64)).unwrap_or(0);
            let (start, end) = ranges.get(range).copied().unwrap_or_default();
            let at = (random.below(2) == 0 && known.past > 0).then_some(known.past);
            let limit = if random.below(4) == 0 { 3 } else { 0 };
            Call::List { start: start.to_owned(), end: end.to_owned(), at, limit }
        }
        _ => Call::Newest,
    }
}

fn write(random: &Random, known: &Known, (key, keep): (String, Keep), value: String) -> Call {
    let there = known.keys.get(&key).copied().unwrap_or(0);
    // Now and then a condition that cannot hold any more.
    let expect = if random.below(12) == 0 { known.past } else { there };
    match (expect, random.below(4)) {
        (0, _) => Call::Create { key, value, keep },
        (_, 0) => Call::Delete { key, expect, keep },
        (_, 1) if random.below(5) == 0 => Call::Create { key, value, keep },
        _ => Call::Update { key, value, expect, keep },
    }
}

impl Known {
    fn learn(&mut self, call: &Call, outcome: &Outcome, random: &Random) {
        let revision = |state: &Option<State>| state.as_ref().map_or(0, |state| state.revision);
        match (call.key(), outcome) {
            (Some(key), Outcome::Wrote(revision)) => {
                self.see(*revision, random);
                let there = if call.value().is_some() { *revision } else { 0 };
                self.keys.insert(key.to_owned(), there);
            }
            (Some(key), Outcome::Refused(state) | Outcome::Got(state)) => {
                self.keys.insert(key.to_owned(), revision(state));
            }
            (_, Outcome::Listed { revision, states, .. }) => {
                self.see(*revision, random);
                self.keys.extend(states.iter().map(|(key, state)| (key.clone(), state.revision)));
            }
            (Some(key), Outcome::Done) => drop(self.keys.insert(key.to_owned(), 0)),
            (_, Outcome::Newest(revision)) => self.see(*revision, random),
            (_, Outcome::Gone) => self.past = self.newest,
            _ => {}
        }
    }

    fn see(&mut self, revision: Revision, random: &Random) {
        self.newest = self.newest.max(revision);
        if random.below(8) == 0 {
            self.past = revision;
        }
    }
}

/// Asks for one thing and writes down call and answer.
pub async fn ask(target: &dyn Target, recorder: &Recorder, call: Call) -> Outcome {
    let id = recorder.id();
    recorder.note(Line::Invoke(id, call.clone()));
    let outcome = target.call(call, recorder).await;
    recorder.note(Line::Return(id, outcome.clone()));
    outcome
}

impl Target for Arc<dyn Store> {
    fn call<'a>(&'a self, call: Call, _: &'a Recorder) -> BoxFuture<'a, Outcome> {
        call_of(self, call).boxed()
    }
}

async fn call_of(store: &Arc<dyn Store>, call: Call) -> Outcome {
    let done = match call {
        Call::Get { key } => store.get(&key).await.map(|entry| Outcome::Got(entry.as_ref().map(state))),
        Call::List { start, end, at, limit } => store.range(&start, &end, at, limit).await.map(|page| {
            let states = page.entries.iter().map(|entry| (entry.key.clone(), state(entry))).collect();
            Outcome::Listed { revision: page.revision, states, remaining: Some(page.remaining) }
        }),
        Call::Newest => store.newest().await.map(Outcome::Newest),
        Call::Compact { revision } => store.compact(revision).await.map(|()| Outcome::Done),
        write => match write_of(&write) {
            Some(write) => store.commit(write).await.map(Outcome::Wrote),
            None => return Outcome::NotDone("it is no write".to_owned()),
        },
    };
    done.unwrap_or_else(|error| match error {
        StoreError::Conflict { current } => Outcome::Refused(current.as_ref().map(state)),
        StoreError::Compacted { .. } => Outcome::Gone,
        StoreError::Future { .. } | StoreError::TooLarge | StoreError::NoSpace => {
            Outcome::NotDone(error.to_string())
        }
        other => Outcome::Unknown(other.to_string()),
    })
}

fn write_of(call: &Call) -> Option<Write> {
    let keep = call.keep()?;
    let expect = match call {
        Call::Update { expect, .. } | Call::Delete { expect, .. } => Expect::Revision(*expect),
        _ => Expect::Absent,
    };
    let change = match call.value() {
        Some(tag) => Change::Put {
            value: Bytes::from(value::encode(tag)),
            ttl_seconds: (keep == Keep::ForAWhile).then_some(1),
        },
        None => Change::Delete,
    };
    let durability = if keep == Keep::Durably { Durability::Synced } else { Durability::Relaxed };
    let (key, cause) = (call.key()?.to_owned(), Bytes::from_static(b"{}"));
    Some(Write { key, expect, change, durability, cause, only_while: None })
}

/// What an entry says.
pub(super) fn state(entry: &Entry) -> State {
    State {
        value: value::decode(&entry.value),
        revision: entry.revision,
        created: Some(entry.create_revision),
    }
}
