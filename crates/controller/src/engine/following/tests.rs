use std::collections::BTreeSet;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::*;
use crate::fake::{Server, State};
use crate::plan::Plan;
use crate::{ClientMetrics, Controller, Engine, Source};

/// The keys that were run, in order.
#[derive(Default)]
struct Run(Mutex<Vec<String>>);

const ROW: Controller = Controller {
    name: "tester",
    queue: "tester",
    sources: |_| {
        vec![Source::discovered(Following {
            wants: |found| found.allows(&["list", "watch"]),
            changed: |change, resource, _| vec![format!("{}/{}", resource.plural, change.key)],
            came: |resource, _| vec![format!("{} came", resource.plural)],
            went: |resource, left, _| vec![format!("{} went with {}", resource.plural, left.len())],
        })]
    },
    reconcile: |informers: &Informers, key: &str, _: Timestamp| {
        informers.setting_or(Run::default).0.lock().push(key.to_owned());
        Plan::nothing()
    },
};

fn start(state: State) -> (Server, Informers, ClientMetrics) {
    let (server, informers, metrics) = Server::start(state);
    Engine::new(informers.clone(), "tester").start(ROW);
    (server, informers, metrics)
}

/// What was run within some time, each key once.
async fn run(informers: &Informers, seconds: u64) -> BTreeSet<String> {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    std::mem::take(&mut *informers.setting_or(Run::default).0.lock()).into_iter().collect()
}

fn keys(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|&key| key.to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_comes_is_followed_and_one_that_goes_leaves_nothing_behind() {
    let mut state = State::default();
    state.serve("a.com/v1", &["apples"]);
    state.put("a.com/v1", "apples", "red");
    let (server, informers, _) = start(state);
    assert_eq!(run(&informers, 5).await, keys(&["apples came", "apples/red"]));

    server.change(|state| {
        state.serve("b.com/v1", &["pears", "plums"]);
        state.put("b.com/v1", "pears", "green");
    });
    assert_eq!(run(&informers, 40).await, keys(&["pears came", "plums came", "pears/green"]));
    server.change(|state| state.put("b.com/v1", "pears", "yellow"));
    assert_eq!(run(&informers, 5).await, keys(&["pears/yellow"]));
    let lists = server.requests("/apis/a.com/v1/apples");
    let (resource, pears) = {
        let pears = informers.all_held().into_iter().find(|held| held.resource().plural == "pears").unwrap();
        (pears.resource().clone(), Arc::downgrade(&pears))
    };
    assert_eq!((informers.all_held().len(), server.watches("pears")), (3, 1));

    server.change(|state| state.serve("b.com/v1", &["plums"]));
    assert_eq!(run(&informers, 40).await, keys(&["pears went with 2"]));
    assert!(pears.upgrade().is_none() && informers.find_held(&resource).is_none());
    assert_eq!((server.watches("pears"), server.watches("plums"), server.watches("apples")), (0, 1, 1));
    let asked = server.requests("/apis/b.com/v1/pears");
    assert_eq!(run(&informers, 600).await, keys(&[]));
    assert_eq!(server.requests("/apis/b.com/v1/pears"), asked, "nobody asks for it any more");

    server.change(|state| state.serve("b.com/v1", &["pears", "plums"]));
    assert_eq!(run(&informers, 40).await, keys(&["pears came", "pears/green", "pears/yellow"]));
    assert_eq!(server.requests("/apis/a.com/v1/apples"), lists, "others are not disturbed");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_discovered_is_followed_on() {
    let mut state = State::default();
    state.serve("a.com/v1", &["apples"]);
    state.serve("b.com/v1", &["pears"]);
    let (server, informers, _) = start(state);
    assert_eq!(run(&informers, 5).await, keys(&["apples came", "pears came"]));
    for _ in 0..5 {
        server.change(|state| drop(state.kinds.insert("b.com/v1".into(), None)));
        assert_eq!(run(&informers, 40).await, keys(&[]));
        server.change(|state| state.put("b.com/v1", "pears", "green"));
        assert_eq!(run(&informers, 5).await, keys(&["pears/green"]), "its objects are followed");
        server.change(|state| state.serve("b.com/v1", &["pears"]));
        assert_eq!(run(&informers, 40).await, keys(&[]));
    }
    server.change(|state| state.is_mute = true);
    assert_eq!(run(&informers, 100).await, keys(&[]));
    assert_eq!((server.watches("apples"), server.watches("pears")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_list_fails_for_ever_harms_nobody() {
    let mut state = State::default();
    state.serve("a.com/v1", &["apples", "worms"]);
    state.broken.insert("worms".to_owned());
    state.put("a.com/v1", "apples", "red");
    let (server, informers, metrics) = start(state);
    assert_eq!(run(&informers, 5).await, keys(&["apples came", "apples/red"]));
    assert_eq!(run(&informers, 600).await, keys(&[]));
    let asked = server.requests("/apis/a.com/v1/worms");
    assert!((30..120).contains(&asked), "it is asked for with a backoff: {asked}");
    let checks = base::health::Checks::of(metrics.registry()).all();
    let is_well = matches!(checks.as_slice(), [(name, Ok(()))] if name == "informer-sync/tester");
    assert!(is_well, "the part is well: {checks:?}");
    server.change(|state| state.put("a.com/v1", "apples", "green"));
    assert_eq!(run(&informers, 5).await, keys(&["apples/green"]));
    server.change(|state| state.broken.clear());
    assert_eq!(run(&informers, 15).await, keys(&["worms came"]));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_kinds_come_and_go() {
    const KINDS: usize = 1_000;
    let names: Vec<String> = (0..KINDS).map(|number| format!("kind{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut state = State::default();
    state.serve("a.com/v1", &["apples"]);
    let (server, informers, _) = start(state);
    assert_eq!(run(&informers, 5).await, keys(&["apples came"]));
    for _ in 0..2 {
        server.change(|state| state.serve("many.com/v1", &names));
        let came = run(&informers, 60).await;
        assert_eq!((came.len(), informers.all_held().len()), (KINDS, KINDS + 1));
        assert_eq!(server.seen.watches.lock().values().sum::<usize>(), KINDS + 1);
        server.change(|state| drop(state.kinds.remove("many.com/v1")));
        assert_eq!(run(&informers, 60).await.len(), KINDS);
        assert_eq!((informers.all_held().len(), server.seen.watches.lock().values().sum::<usize>()), (1, 1));
    }
}
