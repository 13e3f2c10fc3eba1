//! API servers on a real etcd, all of which die, while objects of a kind that comes and goes are written and watched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::{Clock, Random};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use store::Store;
use store::etcd::{ConnectError, Etcd, Options};
use testkit::etcd::{Etcd as Member, Security};
use torture::api::definition::{self, Course, Definition, Servers};
use torture::api::{self, Body, Client, Failure, Server};
use torture::check::Guarantees;
use torture::workload::Plan;
use torture::{Recorder, check};

use crate::server::{self, TestServer};
use crate::simulation::Inside;

/// A seed that runs unless the environment gives another.
const SEED: u64 = 20_260_101;
/// How often servers are started; each life but the last ends in a crash.
const LIVES: usize = 3;
const LIFE_MAX_MILLIS: u64 = 2500;
/// How often etcd dies in the last life.
const DEATHS: usize = 2;
/// For how long.
const DEAD: Duration = Duration::from_millis(300);
const AGAIN_AFTER: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Every request goes to the next server.
struct Spread(Vec<Inside>, AtomicUsize);

impl Server for Spread {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, Failure>> {
        self.0[self.1.fetch_add(1, Ordering::Relaxed) % self.0.len()].send(request)
    }
}

async fn connect(member: &Member<'_>) -> Arc<dyn Store> {
    let options = || Options {
        endpoints: member.urls(),
        authority_pem: None,
        identity_pem: None,
        random: Random::from_system(),
    };
    let connected = async {
        loop {
            match Etcd::connect(options()).await {
                Ok(store) => return store,
                // It has just been started.
                Err(ConnectError::Unreachable(_)) => tokio::time::sleep(AGAIN_AFTER).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    Arc::new(tokio::time::timeout(TIMEOUT, connected).await.unwrap())
}

async fn start(member: &Member<'_>) -> TestServer {
    let (clock, random, dir) = (Clock::system(), Random::from_system(), tempfile::tempdir().unwrap());
    let fair = |config: &mut apiserver::Config| config.options.is_fair = false;
    server::start_at(clock, random, connect(member).await, dir, None, fair).await
}

/// Kills etcd now and then.
async fn trouble(member: &mut Member<'_>, random: &Random) {
    for _ in 0..DEATHS {
        tokio::time::sleep(Duration::from_millis(300 + random.below(1000))).await;
        tokio::task::block_in_place(|| member.kill(0)).unwrap();
        tokio::time::sleep(DEAD).await;
        tokio::task::block_in_place(|| member.start(0)).unwrap();
    }
    std::future::pending().await
}

/// One life of so many servers.
async fn live(
    count: usize,
    is_last: bool,
    member: &mut Member<'_>,
    definition: &Arc<Definition>,
    plan: Plan,
    random: &Random,
    recorder: &Recorder,
) {
    let mut servers = Vec::new();
    for _ in 0..count {
        servers.push(start(member).await);
    }
    let spread = servers.iter().map(|server| Inside(server.server.service())).collect();
    let client =
        Client::of_custom_kind(Arc::new(Spread(spread, AtomicUsize::new(0))), Arc::clone(definition));
    client.prepare(recorder).await.unwrap();
    let plan = Plan { world: client.world(), ..plan };
    let life = Duration::from_millis(random.below(LIFE_MAX_MILLIS));
    let end = if is_last { 10 * TIMEOUT } else { life };
    tokio::select! {
        ran = api::run(&client, &plan, recorder) => ran.unwrap(),
        () = trouble(member, random), if is_last => {}
        () = tokio::time::sleep(end) => assert!(!is_last, "it never ends"),
    }
    if is_last {
        definition::take_stock(&*connect(member).await, recorder).await.unwrap();
    }
}

fn check_all(count: usize, servers: Servers) {
    let [seed] = torture::seeds(&[SEED], 0)[..] else { panic!("one seed") };
    let (random, recorder) = (Random::seeded(seed), Recorder::in_memory());
    let definition = Arc::new(Definition::new(Course::ComesAndGoes, servers));
    let mut member = Member::on_loopback(1, Security::Plain, &[]).unwrap();
    for life in 1..=LIVES {
        let plan = Plan {
            name: format!("l{life}"),
            operations: 80,
            watchers: 3,
            pause: Duration::from_millis(60),
            timeout: TIMEOUT,
            ..Plan::new(random.below(u64::MAX))
        };
        // What is left in the runtime when a life ends goes with it: a crash.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let is_last = life == LIVES;
        runtime.block_on(live(count, is_last, &mut member, &definition, plan, &random, &recorder));
    }
    let history = recorder.history();
    let breaches = check(&history, Guarantees::Api);
    assert!(breaches.is_empty(), "KNARR_TEST_SEED={seed}: {} (and {} more)", breaches[0], breaches.len() - 1);
    eprintln!("{} acknowledged writes, {} ends of the kind", history.acknowledged(), history.ends());
    assert!(history.acknowledged() > 50 && history.ends() > 0);
}

#[test]
fn a_kind_that_comes_and_goes_fits_together_whatever_dies() {
    check_all(1, Servers::One);
}

#[test]
fn a_kind_that_comes_and_goes_fits_together_over_several_servers() {
    check_all(2, Servers::Several);
}
