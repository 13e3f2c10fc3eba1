use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::fake::{Server, State};

const CRDS: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");

fn widgets() -> State {
    let mut state = State::default();
    state.serve("example.com/v1", &["widgets"]);
    state
}

/// How long it takes until what is served fulfils a condition.
async fn until(watcher: &Watcher, is_so: impl Fn(&Served) -> bool) -> Duration {
    let since = Instant::now();
    watcher.subscribe().wait_for(|served| is_so(served)).await.unwrap();
    since.elapsed()
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_nothing_is_asked_twice_a_minute_for_what_has_changed() {
    let (server, informers, _) = Server::start(widgets());
    let watcher = Watcher::of(&informers);
    until(&watcher, |served| served.by_plural("example.com", "widgets").is_some()).await;
    pass(600).await;
    assert_eq!(server.requests("/apis"), 1);
    let again = server.requests("/apis 304");
    assert!((20..=27).contains(&again), "{again}");
    server.change(|state| state.serve("example.com/v1", &["widgets", "gadgets"]));
    let took = until(&watcher, |served| served.by_plural("example.com", "gadgets").is_some()).await;
    assert!(took <= Duration::from_secs(33), "{took:?}");
    server.change(|state| drop(state.kinds.remove("example.com/v1")));
    server.change(|state| state.serve("other.com/v1", &["widgets"]));
    until(&watcher, |served| served.by_plural("example.com", "widgets").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_changes_makes_it_look_again_at_once_and_then_ever_less_often() {
    let mut state = widgets();
    state.serve(CRDS.0, &[CRDS.1]);
    let (server, informers, _) = Server::start(state);
    let watcher = Watcher::of(&informers);
    until(&watcher, |served| served.by_plural("example.com", "widgets").is_some()).await;
    pass(3_000).await;
    let asked = server.requests("/apis 304");
    assert!(asked < 25, "who is told does not ask: {asked}");

    server.change(|state| {
        state.serve("new.com/v1", &["things"]);
        state.put(CRDS.0, CRDS.1, "things.new.com");
    });
    let took = until(&watcher, |served| served.by_plural("new.com", "things").is_some()).await;
    assert!(took < Duration::from_secs(2), "{took:?}");

    // A definition is there before its kind is served.
    server.change(|state| state.put(CRDS.0, CRDS.1, "late.new.com"));
    pass(5).await;
    server.change(|state| state.serve("new.com/v1", &["things", "late"]));
    let took = until(&watcher, |served| served.by_plural("new.com", "late").is_some()).await;
    assert!(took < Duration::from_secs(10), "{took:?}");

    // However many change, it asks once a second.
    let before = server.requests("/apis 304");
    for number in 0..2_000 {
        server.change(|state| state.put(CRDS.0, CRDS.1, &format!("n{}", number % 7)));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = server.requests("/apis 304") - before;
    assert!((5..=22).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_discovered_is_known_as_such_and_takes_nothing_away() {
    let mut state = widgets();
    state.serve("other.com/v1", &["things"]);
    let (server, informers, metrics) = Server::start(state);
    let watcher = Watcher::of(&informers);
    until(&watcher, Served::has_answered).await;
    let has_both = |served: &Served| {
        ["widgets", "things"].iter().all(|plural| {
            served.by_plural("example.com", plural).or(served.by_plural("other.com", plural)).is_some()
        })
    };
    let failing = || {
        let text = metrics.registry().render();
        let line =
            text.lines().find(|line| line.starts_with("knarr_discovery_failed_group_versions{")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(failing(), "0");
    for _ in 0..3 {
        server.change(|state| drop(state.kinds.insert("other.com/v1".into(), None)));
        until(&watcher, |served| !served.failed().is_empty()).await;
        let served = watcher.served();
        assert!(has_both(&served));
        let told = "unable to retrieve the complete list of server APIs: other.com/v1: \
                    stale GroupVersion discovery: other.com/v1";
        assert_eq!((served.failure().as_deref(), failing()), (Some(told), "1".to_owned()));
        server.change(|state| state.serve("other.com/v1", &["things"]));
        until(&watcher, |served| served.failed().is_empty()).await;
    }
    server.change(|state| state.is_mute = true);
    until(&watcher, |served| served.failed().contains_key("*")).await;
    assert!(has_both(&watcher.served()));
    assert_eq!(watcher.served().failed()["*"], "etcd is away");
    pass(600).await;
    assert!(server.requests("/api") < 30, "{}", server.requests("/api"));
    server.change(|state| state.is_mute = false);
    until(&watcher, |served| served.failed().is_empty()).await;
    assert_eq!(failing(), "0");
}

#[tokio::test(start_paused = true)]
async fn of_several_versions_the_one_that_is_stored_is_meant() {
    let mut state = State::default();
    for version in ["example.com/v1", "example.com/v2"] {
        state.serve(version, &["widgets"]);
    }
    let (server, informers, _) = Server::start(state);
    let watcher = Watcher::of(&informers);
    let version = |served: &Served| {
        served.by_plural("example.com", "widgets").map(|found| found.resource.version.clone())
    };
    until(&watcher, Served::has_answered).await;
    assert_eq!(version(&watcher.served()).as_deref(), Some("v1"), "nobody says so: as the server prefers");
    // The document that names both does not change.
    for stored in ["v2", "v1", "v2"] {
        let resource = watcher.served().by_plural("example.com", "widgets").unwrap().resource.clone();
        let hash = storage::hash_of(&ResourceRef { version: stored.to_owned(), ..resource });
        server.change(|state| drop(state.hashes.insert("widgets".to_owned(), hash)));
        until(&watcher, |served| version(served).as_deref() == Some(stored)).await;
    }
    assert_eq!(server.requests("/apis"), 1);
    server.change(|state| drop(state.hashes.insert("widgets".to_owned(), "of v3".to_owned())));
    until(&watcher, |served| version(served).as_deref() == Some("v1")).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_asks_is_answered_of_now_and_all_others_learn_of_it() {
    let (server, informers, _) = Server::start(widgets());
    let watcher = Watcher::of(&informers);
    until(&watcher, Served::has_answered).await;
    server.change(|state| state.serve("new.com/v1", &["things"]));
    let found = watcher.discover().await.unwrap();
    assert!(found.by_kind("new.com", "things").is_some());
    assert!(watcher.served().by_kind("new.com", "things").is_some());
}
