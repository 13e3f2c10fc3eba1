//! The embedded store keeps the trait's promises, over restarts, kills and a full disk too.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::embedded::{Embedded, OpenError, Options};
use store::suite::{self, delete, events, put, relaxed};
use store::{Change, Expect, Revision, Store, StoreError, Write};

const CHILD: &str = "KNARR_STORE_TEST_CHILD_DIR";

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, Options::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_passes_the_suite() {
    for case in suite::CASES {
        println!("{}", case.name);
        let dir = tempfile::tempdir().unwrap();
        (case.run)(Arc::new(open(dir.path()))).await;
    }
}

#[tokio::test]
async fn what_was_written_is_there_after_a_clean_restart_and_revisions_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..4 {
        let store = open(dir.path());
        if round > 0 {
            assert_eq!(store.revision(), last, "round {round}");
        }
        for n in 0..round {
            for kind in ["synced", "relaxed"] {
                assert!(
                    store.get(&format!("/{kind}/{n}")).await.unwrap().is_some(),
                    "round {round} {kind} {n}"
                );
            }
        }
        store.commit(put(&format!("/synced/{round}"), Expect::Absent, "v")).await.unwrap();
        last = store.commit(relaxed(put(&format!("/relaxed/{round}"), Expect::Absent, "v"))).await.unwrap();
        if round % 2 == 0 {
            store.close().await.unwrap();
            let late = store.commit(put("/late", Expect::Absent, "v")).await;
            assert!(matches!(late, Err(StoreError::Failed(_))));
        }
    }
}

#[tokio::test]
async fn a_second_opener_is_told_that_the_directory_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    assert!(matches!(Embedded::open(dir.path(), Options::default()), Err(OpenError::Locked(_))));
    drop(first);
    drop(open(dir.path()));
}

#[tokio::test]
async fn a_watch_ends_when_the_store_closes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut watch = store.watch(store.revision()).await.unwrap();
    let revision = store.commit(put("/a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].revision, revision);
    store.close().await.unwrap();
    assert!(watch.batches.recv().await.is_none());
}

#[tokio::test]
async fn a_full_store_refuses_puts_and_still_reads_deletes_and_compacts() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options { bytes_max: 4 << 20, ..Options::default() }).unwrap();
    let big = "x".repeat(256 << 10);
    let mut written = Vec::new();
    let refused = loop {
        let key = format!("/{}", written.len());
        match store.commit(put(&key, Expect::Absent, &big)).await {
            Ok(revision) => written.push((key, revision)),
            Err(error) => break error,
        }
        assert!(written.len() < 1000, "it never fills");
    };
    assert!(matches!(refused, StoreError::NoSpace), "{refused:?}");
    assert!(matches!(store.commit(relaxed(put("/r", Expect::Absent, "v"))).await, Err(StoreError::NoSpace)));
    for (key, revision) in &written {
        assert_eq!(store.get(key).await.unwrap().unwrap().revision, *revision);
        store.commit(delete(key, *revision)).await.unwrap();
    }
    store.compact(store.revision()).await.unwrap();
    store.commit(put("/room", Expect::Absent, &big)).await.unwrap();
}

#[tokio::test]
async fn compaction_gives_the_space_of_a_long_history_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let value = "x".repeat(1000);
    let mut revision = store.commit(put("/a", Expect::Absent, &value)).await.unwrap();
    for _ in 0..3000 {
        revision = store.commit(relaxed(put("/a", Expect::Revision(revision), &value))).await.unwrap();
    }
    store.commit(delete("/a", revision)).await.unwrap();
    let before = store.used_bytes().unwrap();
    store.compact(store.revision()).await.unwrap();
    let after = store.used_bytes().unwrap();
    assert!(before > 3_000_000 && after < 100_000, "{before} to {after} bytes");
}

#[tokio::test]
async fn relaxed_writes_reach_the_disk_within_the_bounded_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { relaxed_flush: Duration::from_millis(20), ..Options::default() };
    let store = Embedded::open(dir.path(), options).unwrap();
    let before = store.used_bytes().unwrap();
    let value = "x".repeat(100_000);
    store.commit(relaxed(put("/a", Expect::Absent, &value))).await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while store.used_bytes().unwrap() < before + 100_000 {
        assert!(std::time::Instant::now() < deadline, "it was never flushed");
        tokio::task::yield_now().await;
    }
}

/// Not a test of its own: what [`acknowledged_writes_survive_kill_9_and_revisions_are_not_reused`] starts and kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let store = Arc::new(open(Path::new(&dir)));
    let start = store.revision();
    let writer = |n: u64| {
        let store = Arc::clone(&store);
        async move {
            for i in 0.. {
                let key = format!("/{start}/{n}/{i}");
                let write = put(&key, Expect::Absent, &key);
                let is_relaxed = (n + i).is_multiple_of(3);
                let revision = store.commit(if is_relaxed { relaxed(write) } else { write }).await.unwrap();
                let kind = if is_relaxed { "relaxed" } else { "synced" };
                writeln!(std::io::stdout().lock(), "ack {kind} {revision} {key}").unwrap();
            }
        }
    };
    futures::join!(writer(0), writer(1), writer(2), writer(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_kill_9_and_revisions_are_not_reused() {
    let dir = tempfile::tempdir().unwrap();
    let mut given: BTreeMap<Revision, (String, String)> = BTreeMap::new();
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = 0;
        let mut note = |line: String| {
            let mut words = line.split(' ').skip_while(|word| *word != "ack");
            let (Some(_), Some(kind), Some(revision), Some(key)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return 0;
            };
            let row = (kind.to_owned(), key.to_owned());
            let earlier = given.insert(revision.parse().unwrap(), row);
            assert_eq!(earlier, None, "round {round}: revision {revision} was given out twice");
            1
        };
        while acknowledged < 100 + 37 * round {
            acknowledged += note(lines.next().unwrap().unwrap());
        }
        child.kill().unwrap();
        // A line cut off by the kill is no acknowledgement that anybody could have read in full.
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        rest.iter().take(rest.len().saturating_sub(1)).for_each(|line| {
            note(line.clone());
        });
        child.wait().unwrap();
        check_after_kill(dir.path(), &given).await;
    }
}

async fn check_after_kill(dir: &Path, given: &BTreeMap<Revision, (String, String)>) {
    let store = open(dir);
    let newest = *given.last_key_value().unwrap().0;
    assert!(store.revision() > newest, "{} is not above {newest}", store.revision());
    let newest_synced = *given.iter().rfind(|(_, (kind, _))| kind == "synced").unwrap().0;
    for (revision, (kind, key)) in given {
        let found = store.get(key).await.unwrap().map(|entry| entry.revision);
        if kind == "synced" || *revision < newest_synced && found.is_some() {
            assert_eq!(found, Some(*revision), "{kind} {key}");
        }
    }
    let lost = given.iter().filter(|(r, (kind, _))| kind == "relaxed" && **r > newest_synced);
    assert!(lost.count() < 100);
    // What may have been lost cannot be watched from: the watcher must list again.
    let watched = store.watch(store.revision() - 1).await;
    assert!(matches!(watched, Err(StoreError::Compacted { .. })));
    let mut watch = store.watch(store.revision()).await.unwrap();
    let key = format!("/after/{}", store.revision());
    let revision = store.commit(put(&key, Expect::Absent, "v")).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].revision, revision);
    store.close().await.unwrap();
}

#[tokio::test]
async fn keys_as_long_as_kubernetes_allows_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let key = format!("/registry/{}/{}/{}", "g".repeat(317), "n".repeat(63), "x".repeat(253));
    store.commit(put(&key, Expect::Absent, "v")).await.unwrap();
    assert!(store.get(&key).await.unwrap().is_some());
    let longer = store.commit(put(&"k".repeat(5000), Expect::Absent, "v")).await;
    assert!(matches!(longer, Err(StoreError::Failed(_))));
    store.commit(put("/still", Expect::Absent, "works")).await.unwrap();
}

#[tokio::test]
async fn what_expired_while_the_store_was_closed_goes_when_it_opens() {
    let dir = tempfile::tempdir().unwrap();
    let clock = base::Clock::manual("2026-01-01T00:00:00Z".parse().unwrap());
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    let change = Change::Put { value: Bytes::from_static(b"v"), ttl_seconds: Some(3600) };
    store.commit(Write { change, ..put("/event", Expect::Absent, "") }).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    clock.set("2026-01-01T02:00:00Z".parse().unwrap());
    let store = Embedded::open(dir.path(), options).unwrap();
    let mut watch = store.watch(0).await.unwrap();
    let found = events(&mut watch, 2).await;
    assert!(found[1].entry.is_none());
    assert_eq!(store.get("/event").await.unwrap(), None);
}
