//! The whole API server on a store that is hard to reach and crashes, in virtual time, from a seed: what clients and
//! watchers are told must fit together, whatever breaks below.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test")]

mod server;

use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Random};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use store::Store;
use store::embedded::{Embedded, Options, Threads};
use torture::api::{self, Body, Client, Failure, Server};
use torture::check::{Breach, Promise, Rule};
use torture::flaky::Flaky;
use torture::mutants::{Liar, Lie};
use torture::workload::{OBJECTS, Plan};
use torture::{Recorder, check, simulation};
use tower::ServiceExt;

/// Seeds that always run; so many more are new each time, unless `KNARR_TEST_SEED` gives one.
const SEEDS: std::ops::Range<u64> = 0..6;
/// In virtual time.
const RUN_MAX: Duration = Duration::from_secs(7200);
const START: &str = "2026-01-01T00:00:00Z";

fn seeds() -> Vec<u64> {
    match std::env::var("KNARR_TEST_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => SEEDS.chain(SEEDS.map(|_| Random::from_system().below(1 << 32))).collect(),
    }
}

/// The server in this process.
struct Inside(apiserver::ApiService);

impl Server for Inside {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>> {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(server::admin());
        let answer = self.0.clone().oneshot(Request::from_parts(parts, Full::new(body)));
        async move { Ok(answer.await?.map(|body| body.map_err(Into::into).boxed_unsync())) }.boxed()
    }
}

/// What is wrong with a server on a store that tells a lie and loses so many of a hundred requests.
fn breaches(seed: u64, lie: Lie, percent: u64) -> (Vec<Breach>, usize) {
    let dir = torture::folder().unwrap();
    let recorder = Recorder::in_memory();
    simulation::runtime().unwrap().block_on(async {
        let clock = Clock::simulated(START.parse().unwrap());
        let random = Random::seeded(seed);
        let options = Options { clock: clock.clone(), threads: Threads::None, ..Options::default() };
        let embedded = Arc::new(Embedded::open(&dir.path().join("db"), options).unwrap());
        let liar = Arc::new(Liar::new(embedded, lie).honest_at_first());
        let flaky = Arc::new(Flaky::new(liar.clone(), Random::seeded(random.below(u64::MAX)), 0));
        let store: Arc<dyn Store> = flaky.clone();
        let server = server::start_at((clock, random.clone()), store, dir, (None, |_| {})).await;
        let client = Client::new(Arc::new(Inside(server.server.service())));
        client.prepare().await.unwrap();
        flaky.set(percent);
        liar.begin();
        let plan = Plan {
            world: &OBJECTS,
            watchers: 6,
            pause: Duration::from_millis(60),
            patience: Duration::from_secs(200),
            ..Plan::new(random.below(u64::MAX))
        };
        let run = tokio::time::timeout(RUN_MAX, api::run(&client, &plan, &recorder)).await;
        run.unwrap_or_else(|_| panic!("KNARR_TEST_SEED={seed}: it never ends")).unwrap();
        server.stop().await;
    });
    let history = recorder.history();
    (check(&history, Promise::Api), history.acknowledged())
}

#[test]
fn what_clients_and_watchers_are_told_fits_together() {
    let mut acknowledged = 0;
    for seed in seeds() {
        let percent = [0, 2, 10][usize::try_from(seed % 3).unwrap()];
        let (breaches, count) = breaches(seed, Lie::None, percent);
        assert!(breaches.is_empty(), "KNARR_TEST_SEED={seed}, {percent} %: {}", breaches[0]);
        acknowledged += count;
    }
    eprintln!("{acknowledged} acknowledged writes");
    assert!(acknowledged > 100);
}

/// Lies of the store that the API server hands on, as seen over the API.
#[test]
fn lies_from_below_are_caught_over_the_api() {
    let rows = [
        (Lie::RevisionTwice, Rule::OneChangePerRevision),
        (Lie::DroppedEvent, Rule::ListsAreWhole),
        (Lie::ReorderedEvents, Rule::ListsAreWhole),
        (Lie::ProgressAhead, Rule::ListsAreWhole),
        (Lie::WrongValue, Rule::OneChangePerRevision),
    ];
    let missed = rows.iter().filter(|(lie, rule)| {
        let (found, _) = breaches(1, *lie, 0);
        let is_caught = found.iter().any(|breach| breach.rule == *rule);
        if !is_caught {
            eprintln!("{lie:?} as {rule:?}: {found:?}");
        }
        !is_caught
    });
    assert_eq!(missed.count(), 0);
}
