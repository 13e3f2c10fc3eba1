//! The whole API server on a store that is hard to reach and crashes, in virtual time, from a seed: what clients and
//! watchers are told must fit together, whatever breaks below.

use std::sync::Arc;
use std::time::Duration;

use crate::server;
use base::{Clock, Random};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use store::Store;
use store::embedded::{Embedded, Options, Threads};
use tempfile::TempDir;
use torture::api::definition::{self, Course, Definition, Servers};
use torture::api::liar::{self, Liar};
use torture::api::{self, Body, Client, Failure, Server};
use torture::check::{Breach, Guarantees, Rule};
use torture::flaky::Flaky;
use torture::mutants;
use torture::workload::{self, Plan};
use torture::{Recorder, check, simulation};
use tower::ServiceExt;

/// Seeds that always run; two more are new.
const SEEDS: [u64; 6] = [0, 1, 2, 3, 4, 5];
/// The same where a kind changes, which costs more; one more is new.
const CUSTOM_SEEDS: [u64; 4] = [0, 1, 2, 3];
/// A lie is told by chance; it gets this many to be told.
const LIES: std::ops::Range<u64> = 0..3;
/// In virtual time.
const RUN_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long a server lives before it crashes, at most, in virtual time.
const LIFE_MAX_MILLIS: u64 = 6000;
const START: &str = "2026-01-01T00:00:00Z";

/// The server in this process.
pub(crate) struct Inside(pub(crate) apiserver::ApiService);

impl Server for Inside {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>> {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(server::admin());
        let answer = self.0.clone().oneshot(Request::from_parts(parts, Full::new(body)));
        async move { Ok(answer.await?.map(|body| body.map_err(Into::into).boxed_unsync())) }.boxed()
    }
}

/// What is wrong with the world of a server.
#[derive(Clone, Copy)]
struct Trouble {
    seed: u64,
    /// How often it is started; each life but the last ends in a crash.
    lives: usize,
    /// Of a hundred requests to the store, how many are not answered.
    lost_percent: u64,
    /// What the store lies about.
    store: mutants::Lie,
    /// What the server lies about.
    server: Option<liar::Lie>,
    /// What happens to the definition of the objects' kind, if that is a custom one.
    course: Option<Course>,
}

impl Trouble {
    fn none(seed: u64) -> Self {
        Self { seed, lives: 1, lost_percent: 0, store: mutants::Lie::None, server: None, course: None }
    }
}

/// What clients and watchers were told.
#[derive(Debug, PartialEq)]
struct Told {
    /// What is wrong with it.
    breaches: Vec<Breach>,
    /// How many writes were acknowledged.
    acknowledged: usize,
    /// How often the kind was to end.
    ends: usize,
}

fn told(trouble: Trouble) -> Told {
    let (random, recorder) = (Random::seeded(trouble.seed), Recorder::in_memory());
    // A server whose store hardly answers follows later than it says.
    let servers = if trouble.lost_percent == 0 { Servers::One } else { Servers::Several };
    let definition = trouble.course.map(|course| Arc::new(Definition::new(course, servers)));
    let (mut dir, mut now) = (torture::folder().unwrap(), START.parse().unwrap());
    for life in 1..=trouble.lives {
        // What is left in the runtime when a life ends goes with it, without being written out: a crash.
        let runtime = simulation::runtime().unwrap();
        (dir, now) =
            runtime.block_on(live(&trouble, definition.as_ref(), &random, life, now, dir, &recorder));
    }
    let history = recorder.history();
    let (acknowledged, ends) = (history.acknowledged(), history.ends());
    Told { breaches: check(&history, Guarantees::Api), acknowledged, ends }
}

/// One life: answers the folder, and what the clock said at its end.
async fn live(
    trouble: &Trouble,
    definition: Option<&Arc<Definition>>,
    random: &Random,
    life: usize,
    start: Timestamp,
    dir: TempDir,
    recorder: &Recorder,
) -> (TempDir, Timestamp) {
    let clock = Clock::simulated(start);
    let options = Options { clock: clock.clone(), threads: Threads::None, ..Options::default() };
    let embedded: Arc<dyn Store> = Arc::new(Embedded::open(&dir.path().join("db"), options).unwrap());
    workload::note_restart(&embedded, recorder).await.unwrap();
    definition::take_stock(&*embedded, recorder).await.unwrap();
    let liar = Arc::new(mutants::Liar::new(Arc::clone(&embedded), trouble.store).honest_at_first());
    let flaky = Arc::new(Flaky::new(liar.clone(), Random::seeded(random.below(u64::MAX)), 0));
    let store: Arc<dyn Store> = flaky.clone();
    let server = server::start_at(clock.clone(), random.clone(), store, dir, None, |_| {}).await;
    let inside: Arc<dyn Server> = Arc::new(Inside(server.server.service()));
    let inside = match trouble.server {
        Some(lie) => Arc::new(Liar::new(inside, lie)),
        None => inside,
    };
    let client = match definition {
        Some(definition) => Client::of_custom_kind(inside, Arc::clone(definition)),
        None => Client::new(inside),
    };
    client.prepare(recorder).await.unwrap();
    flaky.set(trouble.lost_percent);
    liar.begin();
    let plan = Plan {
        name: format!("l{life}"),
        world: client.world(),
        watchers: 6,
        pause: Duration::from_millis(60),
        timeout: Duration::from_secs(200),
        ..Plan::new(random.below(u64::MAX))
    };
    let end = match life == trouble.lives {
        true => RUN_MAX,
        false => Duration::from_millis(random.below(LIFE_MAX_MILLIS)),
    };
    tokio::select! {
        biased;
        ran = api::run(&client, &plan, recorder) => ran.unwrap(),
        () = simulation::leap(&clock, random) => {}
        () = tokio::time::sleep(end) => {
            assert!(life < trouble.lives, "KNARR_TEST_SEED={}: it never ends", trouble.seed);
        }
    }
    definition::take_stock(&*embedded, recorder).await.unwrap();
    (server.dir, clock.now())
}

fn check_honest(seeds: Vec<u64>, trouble: impl Fn(u64) -> Trouble) -> (usize, usize) {
    let (mut acknowledged, mut ends) = (0, 0);
    for seed in seeds {
        let lost_percent = [0, 2, 10][usize::try_from(seed % 3).unwrap()];
        let told = told(Trouble { lives: 3, lost_percent, ..trouble(seed) });
        assert!(
            told.breaches.is_empty(),
            "KNARR_TEST_SEED={seed}, {lost_percent} %: {} (and {} more)",
            told.breaches[0],
            told.breaches.len() - 1
        );
        acknowledged += told.acknowledged;
        ends += told.ends;
    }
    eprintln!("{acknowledged} acknowledged writes, {ends} ends of kinds");
    (acknowledged, ends)
}

fn check_custom(course: Course) -> (usize, usize) {
    let seeds = torture::seeds(&CUSTOM_SEEDS, 1);
    check_honest(seeds, |seed| Trouble { course: Some(course), ..Trouble::none(seed) })
}

#[test]
fn what_clients_and_watchers_are_told_fits_together() {
    let (acknowledged, _) = check_honest(torture::seeds(&SEEDS, 2), Trouble::none);
    assert!(acknowledged > 100);
}

#[test]
fn what_clients_are_told_of_a_kind_whose_definition_changes_fits_together() {
    let (acknowledged, _) = check_custom(Course::Changes);
    assert!(acknowledged > 20);
}

#[test]
fn what_clients_are_told_of_a_kind_that_comes_and_goes_fits_together() {
    let (acknowledged, ends) = check_custom(Course::ComesAndGoes);
    assert!(acknowledged > 20 && ends > 0);
}

#[test]
fn a_seed_gives_the_same_answers_twice() {
    let trouble = Trouble { lives: 2, lost_percent: 5, ..Trouble::none(1) };
    assert_eq!(told(trouble), told(trouble));
}

#[test]
fn a_write_that_does_not_wait_for_the_disk_is_caught_by_a_crash() {
    check_caught(
        |seed| Trouble { lives: 3, store: mutants::Lie::NotFlushed, ..Trouble::none(seed) },
        &[Rule::NothingLost],
    );
}

fn check_caught(trouble: impl Fn(u64) -> Trouble, rules: &[Rule]) {
    let mut seen = Vec::new();
    for seed in LIES {
        let found = told(trouble(seed)).breaches;
        if found.iter().any(|breach| rules.contains(&breach.rule)) {
            return;
        }
        seen.extend(found);
    }
    panic!("not caught as {rules:?}: {seen:?}");
}

macro_rules! lies {
    ($($name:ident: $lie:ident => $($rule:ident)|+;)*) => {
        $(#[test]
        fn $name() {
            let lie = Some(liar::Lie::$lie);
            check_caught(|seed| Trouble { server: lie, ..Trouble::none(seed) }, &[$(Rule::$rule),+]);
        })*
    };
}

lies! {
    an_update_without_its_condition_is_caught: UpdateWithoutCondition => Linearizable;
    a_removal_without_its_condition_is_caught: RemovalWithoutCondition => Linearizable;
    an_update_that_was_not_made_is_caught: NotWritten => OneChangePerRevision | WatchesAreWhole | Linearizable;
    a_refusal_that_is_swallowed_is_caught: RefusalSwallowed => OneChangePerRevision | Linearizable;
    a_revision_that_is_handed_out_twice_is_caught: RevisionTwice => OneChangePerRevision;
    a_stale_read_is_caught: StaleGet => Linearizable;
    a_read_that_finds_nothing_is_caught: BlindGet => Linearizable;
    a_list_that_misses_an_object_is_caught: ListMissesItem => ListsAreWhole;
    a_stale_list_is_caught: StaleList => ListsAreFresh;
    a_list_whose_revision_is_ahead_is_caught: ListRevisionAhead => ListsAreWhole | ListsAreFresh;
    a_list_that_ignores_its_revision_is_caught: ListIgnoresItsRevision => ListsAreWhole;
    a_list_with_another_namespace_in_it_is_caught: WrongNamespace => ListsAreWhole;
    a_list_out_of_order_is_caught: ListUnsorted => ListsAreWhole;
    a_dropped_event_is_caught: DroppedEvent => WatchesAreWhole;
    a_doubled_event_is_caught: DoubledEvent => WatchesAreWhole;
    reordered_events_are_caught: ReorderedEvents => WatchesAreWhole;
    a_bookmark_ahead_of_events_is_caught: BookmarkAhead => WatchesAreWhole;
    a_change_that_looks_like_a_new_object_is_caught: ModifiedAsAdded => EventsTellThePast;
    a_removal_that_looks_like_a_change_is_caught: DeletedAsModified => OneChangePerRevision;
    an_event_with_another_value_is_caught: WrongValue => OneChangePerRevision;
    an_event_with_an_old_version_is_caught: OldVersion => WatchesAreWhole | OneChangePerRevision;
    an_initial_event_that_is_missing_is_caught: InitialEventMissing => ListsAreWhole;
    initial_events_that_end_early_are_caught: InitialEventsEndEarly => ListsAreWhole | WatchesAreWhole;
    a_watch_that_goes_to_sleep_is_caught: StuckWatch => Progress;
}

/// Lies of the store that the API server hands on, as seen over the API.
#[test]
fn lies_from_below_are_caught_over_the_api() {
    let rows = [
        (mutants::Lie::RevisionTwice, Rule::OneChangePerRevision),
        (mutants::Lie::DroppedEvent, Rule::ListsAreWhole),
        (mutants::Lie::ReorderedEvents, Rule::ListsAreWhole),
        (mutants::Lie::ProgressAhead, Rule::ListsAreWhole),
        (mutants::Lie::WrongValue, Rule::OneChangePerRevision),
    ];
    for (store, rule) in rows {
        check_caught(|seed| Trouble { store, ..Trouble::none(seed) }, &[rule]);
    }
}
