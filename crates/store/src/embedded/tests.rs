//! Heartbeats: what they cost, and that nobody who reads or watches can tell that the disk was spared.

mod disk;

use base::Random;
use bytes::Bytes;

use super::*;
use crate::writes::{delete, events, put, relaxed};
use crate::{Change, Expect};

const START: &str = "2026-01-01T00:00:00Z";
const HOUR: Duration = Duration::from_secs(3600);

fn simulated() -> Options {
    let clock = Clock::simulated(START.parse().unwrap());
    Options { clock, threads: Threads::None, ..Options::default() }
}

/// One life of a store. What is left in the runtime goes with it, without being written out: a crash.
fn live<T>(dir: &Path, work: impl AsyncFnOnce(&Embedded) -> T) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(dir, simulated()).unwrap();
        work(&store).await
    })
}

/// Bytes that this thread has given to the kernel to write.
fn written_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

/// An hour of what a cluster with nothing to do writes: four leaders' Leases every two seconds, two Nodes' every ten,
/// a server's own, which would expire; compaction as the API server does it.
async fn an_idle_hour(store: &Embedded) {
    let (leases, value) = (["scheduler", "controllers", "leader", "proxy"], "x".repeat(600));
    let mut kept = store.revision();
    for second in (0..HOUR.as_secs()).step_by(2) {
        let nodes = ["node-a", "node-b", "server"].into_iter().filter(|_| second % 10 == 0);
        for name in leases.into_iter().chain(nodes) {
            let key = format!("/registry/leases/kube-system/{name}");
            let there = store.get(&key).await.unwrap();
            let expect = there.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
            let ttl_seconds = (name == "server").then_some(15);
            let change = Change::Put { value: Bytes::from(value.clone()), ttl_seconds };
            store.commit(relaxed(Write { change, ..put(&key, expect, "") })).await.unwrap();
        }
        if second % 300 == 0 {
            store.compact(std::mem::replace(&mut kept, store.revision())).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_writes_less_than_a_megabyte() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), simulated()).unwrap();
    for n in 0..2000 {
        let write = put(&format!("/registry/configmaps/default/{n}"), Expect::Absent, &"x".repeat(500));
        store.commit(relaxed(write)).await.unwrap();
    }
    an_idle_hour(&store).await;
    let (before, used) = (written_bytes(), store.used_bytes().unwrap());
    an_idle_hour(&store).await;
    let written = written_bytes() - before;
    let more = store.used_bytes().unwrap().saturating_sub(used);
    assert!(more <= 8192, "what was replaced stays on disk: {more} bytes more");
    println!("{written} bytes in an hour");
    assert!(written > 10_000, "heartbeats reach the disk some day: {written} bytes");
    assert!(written < 600_000, "{written} bytes in an hour");
}

/// Every state that was ever acknowledged: what a key had from which revision on.
#[derive(Default)]
struct Model {
    changes: Vec<(Revision, String, Option<String>)>,
}

impl Model {
    fn at(&self, revision: Revision) -> Vec<(String, String)> {
        let mut keys = std::collections::BTreeMap::new();
        for (_, key, value) in self.changes.iter().filter(|(changed, ..)| *changed <= revision) {
            match value {
                Some(value) => keys.insert(key.clone(), value.clone()),
                None => keys.remove(key),
            };
        }
        keys.into_iter().collect()
    }
}

async fn list(store: &Embedded, at: Option<Revision>) -> Result<Vec<(String, String)>, StoreError> {
    let page = store.range("/registry/", "/registry0", at, 0).await?;
    let text = |entry: Entry| (entry.key, String::from_utf8_lossy(&entry.value).into_owned());
    Ok(page.entries.into_iter().map(text).collect())
}

/// Every revision that is answered is answered as it was, by lists and by watches.
async fn check_history(store: &Embedded, model: &Model, seed: u64) {
    let newest = store.revision();
    for (after, ..) in &model.changes {
        let expected: Vec<_> = model.changes.iter().filter(|(revision, ..)| revision > after).collect();
        match list(store, Some(*after)).await {
            Ok(found) => assert_eq!(found, model.at(*after), "seed {seed}, at {after}"),
            Err(StoreError::Compacted { .. }) => continue,
            Err(error) => panic!("seed {seed}, at {after}: {error}"),
        }
        let mut watch = store.watch(*after).await.unwrap();
        let found = events(&mut watch, expected.len()).await;
        for (event, (revision, key, value)) in found.iter().zip(expected) {
            let text = |entry: &Entry| String::from_utf8_lossy(&entry.value).into_owned();
            let previous = model.at(revision - 1).into_iter().find(|(there, _)| there == key);
            assert_eq!((event.revision, &event.key), (*revision, key), "seed {seed}, after {after}");
            assert_eq!(event.entry.as_ref().map(text), *value, "seed {seed}, at {revision}");
            let before = event.previous.as_ref().map(text);
            assert_eq!(before, previous.map(|(_, value)| value), "seed {seed}, before {revision}");
        }
    }
    assert_eq!(list(store, None).await.unwrap(), model.at(newest), "seed {seed}");
}

/// One random write, of either durability.
async fn write(store: &Embedded, model: &mut Model, random: &Random) {
    let key = format!("/registry/k{}", random.below(4));
    let there = store.get(&key).await.unwrap();
    let value = format!("v{}", model.changes.len());
    let (write, value) = match there {
        Some(entry) if random.below(4) == 0 => (delete(&key, entry.revision), None),
        Some(entry) => (put(&key, Expect::Revision(entry.revision), &value), Some(value)),
        None => (put(&key, Expect::Absent, &value), Some(value)),
    };
    let write = if random.below(5) == 0 { write } else { relaxed(write) };
    let revision = store.commit(write).await.unwrap();
    model.changes.push((revision, key, value));
}

/// What a crash has cut off is a tail, and nothing of it is seen.
async fn cut_off(store: &Embedded, model: &mut Model, seed: u64) {
    if let Some(gap) = store.core.gaps.last().filter(|gap| gap.to + 1 == store.revision()) {
        model.changes.retain(|(revision, ..)| *revision <= gap.from);
    }
    assert_eq!(list(store, None).await.unwrap(), model.at(store.revision()), "seed {seed}");
}

async fn random_life(store: &Embedded, model: &mut Model, random: &Random, seed: u64) {
    for _ in 0..random.below(60) {
        match random.below(12) {
            0 => tokio::time::sleep(Duration::from_secs(random.below(1500))).await,
            1 => {
                let to = store.revision().saturating_sub(random.below(8));
                store.compact(to).await.unwrap();
            }
            2 => check_history(store, model, seed).await,
            _ => write(store, model, random).await,
        }
    }
    check_history(store, model, seed).await;
    if random.below(2) == 0 {
        store.close().await.unwrap();
    }
}

#[test]
fn history_is_as_it_was_over_flushes_compactions_crashes_and_restarts() {
    for seed in 0..30 {
        let (dir, random) = (tempfile::tempdir().unwrap(), Random::seeded(seed));
        let (mut model, mut given) = (Model::default(), 0);
        for _ in 0..4 {
            live(dir.path(), async |store| {
                assert!(store.revision() >= given, "seed {seed}: {given} was given out already");
                cut_off(store, &mut model, seed).await;
                random_life(store, &mut model, &random, seed).await;
                given = store.revision();
            });
        }
    }
}

#[test]
fn a_crash_takes_the_heartbeats_since_the_last_flush_and_a_watcher_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (event, lease) = live(dir.path(), async |store| {
        let mut lease = store.commit(put("/registry/lease", Expect::Absent, "0")).await.unwrap();
        let event = store.commit(relaxed(put("/registry/event", Expect::Absent, "e"))).await.unwrap();
        tokio::time::sleep(Duration::from_secs(31)).await;
        for n in 1..5 {
            let write = relaxed(put("/registry/lease", Expect::Revision(lease), &n.to_string()));
            lease = store.commit(write).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(590)).await;
        (event, lease)
    });
    live(dir.path(), async |store| {
        let there = |key, value: &str| ("/registry/".to_owned() + key, value.to_owned());
        assert_eq!(list(store, None).await.unwrap(), [there("event", "e"), there("lease", "0")]);
        assert!(store.revision() > lease);
        assert!(
            matches!(store.watch(lease).await, Err(StoreError::Compacted { .. })),
            "it was seen and is lost"
        );
        assert!(store.watch(event).await.is_ok(), "nothing that was seen then is lost");
    });
}

#[tokio::test]
async fn data_that_is_gone_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.mdb");
    let refused = || expect_data(dir.path()).unwrap_err().to_string();
    assert!(refused().contains("data.mdb is missing"), "{}", refused());
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    store.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    drop(store);
    expect_data(dir.path()).unwrap();
    std::fs::write(&file, "").unwrap();
    assert!(refused().contains("data.mdb is empty"), "{}", refused());
    assert!(refused().contains("knarr restore"));
}

#[tokio::test(start_paused = true)]
async fn many_updates_of_few_objects_take_the_room_of_their_recent_history() {
    const OBJECTS: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), simulated()).unwrap();
    let value = "x".repeat(1000);
    let mut revisions = std::collections::BTreeMap::new();
    let (mut kept, mut largest) = (store.revision(), 0);
    for round in 0..250 {
        let updates = (0..OBJECTS).map(|n| {
            let expect = revisions.get(&n).map_or(Expect::Absent, |revision| Expect::Revision(*revision));
            store.commit(put(&format!("/registry/configmaps/default/{n}"), expect, &value))
        });
        let done = futures::future::join_all(updates).await;
        revisions = (0..).zip(done.into_iter().map(Result::unwrap)).collect();
        if round % 10 == 0 {
            store.compact(std::mem::replace(&mut kept, store.revision())).await.unwrap();
            largest = largest.max(store.used_bytes().unwrap());
        }
    }
    store.compact(store.revision()).await.unwrap();
    let file = dir.path().join("data.mdb").metadata().unwrap().len();
    let used = store.used_bytes().unwrap();
    println!("{used} bytes used in the end, {largest} at most, the file has {file}");
    // 25 MB were written; 20 rounds of history are 2.4 MB.
    assert!(used < 600_000, "{used} bytes are used by {OBJECTS} objects");
    assert!(file < 12_000_000, "the file has {file} bytes");
    let memory = store.core.shared.lock().overlay.clone();
    assert!(memory.is_empty() && memory.log(0, u64::MAX).next().is_none(), "nothing stays in memory");
}
