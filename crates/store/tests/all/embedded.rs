//! The embedded store keeps the trait's promises, over restarts, kills and a full disk too.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use store::embedded::{Embedded, OpenError, Options};
use store::{Change, Expect, Revision, Store, StoreError, Write};

use crate::writes::{delete, events, put, relaxed};
use crate::{sessions, suite};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_answers_in_sessions_as_it_must() {
    let folders = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let next = || folders.path().join(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
    let open = |dir: &Path| -> Arc<dyn Store> { Arc::new(open(dir)) };
    sessions::pass(&|| Box::pin(async { open(&next()) })).await;
    sessions::pass_restarts(&|| {
        let dir = next();
        Box::new(move || {
            let dir = dir.clone();
            Box::pin(async move { open(&dir) })
        })
    })
    .await;
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
    let value = "x".repeat(10_000);
    let mut revision = store.commit(put("/a", Expect::Absent, &value)).await.unwrap();
    for _ in 0..300 {
        revision = store.commit(put("/a", Expect::Revision(revision), &value)).await.unwrap();
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
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
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
            .args(["--exact", "embedded::child_that_writes_until_it_is_killed", "--nocapture"])
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

/// The data file of a store that format 1 wrote: three revisions of `/registry/a`, a removed `/registry/b`, a value of
/// 9,000 bytes, an Event that expires in 2026, and 40 keys.
const FORMAT_1: &[u8] = include_bytes!("../fixtures/format-1.mdb");

async fn keys(store: &Embedded) -> Vec<(String, Bytes, Revision)> {
    let page = store.range("/", "0", None, 0).await.unwrap();
    page.entries.into_iter().map(|entry| (entry.key, entry.value, entry.revision)).collect()
}

#[tokio::test]
async fn the_data_of_format_1_is_brought_to_this_format_with_all_that_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data.mdb"), FORMAT_1).unwrap();
    let clock = base::Clock::manual("2026-01-01T00:30:00Z".parse().unwrap());
    let options = Options { clock: clock.clone(), ..Options::default() };
    for _ in 0..2 {
        let store = Embedded::open(dir.path(), options.clone()).unwrap();
        assert_eq!(store.revision(), 48);
        let found = keys(&store).await;
        assert_eq!(found.len(), 43);
        assert_eq!(found[0], ("/registry/a".to_owned(), Bytes::from_static(b"3"), 48));
        assert_eq!(found[1].1.len(), 9000);
        let mut watch = store.watch(1).await.unwrap();
        let history = events(&mut watch, 5).await;
        assert_eq!(history[3].previous.as_ref().unwrap().value, "b");
        store.close().await.unwrap();
    }
    clock.set("2026-01-01T02:00:00Z".parse().unwrap());
    let store = Embedded::open(dir.path(), options).unwrap();
    let mut watch = store.watch(48).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].key, "/registry/events/e");
}

#[tokio::test]
async fn what_a_newer_knarr_wrote_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.mdb");
    let mut newer = FORMAT_1.to_vec();
    let at = newer.windows(6).position(|bytes| bytes == b"format").unwrap();
    newer[at + 13] = 99;
    std::fs::write(&file, &newer).unwrap();
    let refused = Embedded::open(dir.path(), Options::default()).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "the data has format 99, this knarr knows up to 2: use the knarr that wrote it, or a newer one"
    );
    assert_eq!(std::fs::read(&file).unwrap(), newer);
}

/// The places of `text` in the data file, newest last.
fn places(file: &[u8], text: &str) -> Vec<usize> {
    let text = text.as_bytes();
    file.windows(text.len()).enumerate().filter(|(_, bytes)| *bytes == text).map(|(at, _)| at).collect()
}

#[tokio::test]
async fn a_damaged_value_is_named_and_never_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let kept = store.commit(put("/registry/kept", Expect::Absent, "kept")).await.unwrap();
    let damaged = store.commit(put("/registry/damaged", Expect::Absent, "the value itself")).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let path = dir.path().join("data.mdb");
    let mut file = std::fs::read(&path).unwrap();
    for at in places(&file, "the value itself") {
        file[at + 4] ^= 1;
    }
    std::fs::write(&path, file).unwrap();
    let store = open(dir.path());
    let why = |error: StoreError| match error {
        StoreError::Damaged(why) => why.replace(&dir.path().display().to_string(), "DIR"),
        other => panic!("{other:?}"),
    };
    let said = "/registry/damaged: revision 3 in DIR/data.mdb is not what was written; bring a backup back with `knarr \
                restore`, or save what can be read with `knarr backup --salvage`";
    assert_eq!(why(store.get("/registry/damaged").await.unwrap_err()), said);
    assert_eq!(why(store.range("/", "0", None, 0).await.unwrap_err()), said);
    let over = store.commit(put("/registry/damaged", Expect::Revision(damaged), "new")).await;
    assert_eq!(why(over.unwrap_err()), said);
    let removed = store.commit(delete("/registry/kept", kept)).await;
    assert!(removed.is_ok(), "what is not damaged goes on: {removed:?}");
    let mut watch = store.watch(1).await.unwrap();
    let seen = watch.batches.recv().await.unwrap();
    assert!(matches!(seen, Err(StoreError::Damaged(_))), "a watch does not skip it");
}

#[tokio::test]
async fn a_damaged_key_keeps_the_store_from_opening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.commit(put("/registry/damaged", Expect::Absent, "v")).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let path = dir.path().join("data.mdb");
    let mut file = std::fs::read(&path).unwrap();
    for at in places(&file, "/registry/damaged") {
        file[at + 10] ^= 1;
    }
    std::fs::write(&path, file).unwrap();
    let refused = Embedded::open(dir.path(), Options::default()).err().unwrap();
    assert!(matches!(refused, OpenError::Data(StoreError::Damaged(_))), "{refused:?}");
}

const READER: &str = "KNARR_STORE_TEST_READER_DIR";

/// Not a test of its own: reads what [`no_changed_byte_of_the_file_is_served`] has changed.
#[tokio::test]
async fn child_that_reads_everything() {
    let Some(dir) = std::env::var_os(READER) else { return };
    let Ok(store) = Embedded::open(Path::new(&dir), Options::default()) else { return };
    let Ok(page) = store.range("/", "0", None, 0).await else { return };
    let lines =
        page.entries.iter().map(|entry| format!("{} {} {:?}\n", entry.key, entry.revision, entry.value));
    std::fs::write(Path::new(&dir).join("read"), lines.collect::<String>()).unwrap();
}

#[tokio::test]
async fn no_changed_byte_of_the_file_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..60 {
        store
            .commit(put(&format!("/registry/{n}"), Expect::Absent, &format!("{n}").repeat(20)))
            .await
            .unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let (data, read) = (dir.path().join("data.mdb"), dir.path().join("read"));
    let whole = std::fs::read(&data).unwrap();
    let look = || {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "embedded::child_that_reads_everything"]).env(READER, dir.path());
        let ended = child.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let seen = std::fs::read_to_string(&read).ok();
        if seen.is_some() {
            std::fs::remove_file(&read).unwrap();
        }
        (ended.code().is_some(), seen)
    };
    let (_, truth) = look();
    assert_eq!(truth.as_ref().unwrap().lines().count(), 60, "the control: nothing is changed");
    let random = base::Random::seeded(20_260_101);
    let (mut refused, mut crashed) = (0, 0);
    for _ in 0..120 {
        let mut changed = whole.clone();
        let at = usize::try_from(random.below(whole.len() as u64)).unwrap();
        changed[at] ^= 1 << random.below(8);
        std::fs::write(&data, changed).unwrap();
        let (ended, seen) = look();
        refused += usize::from(ended && seen.is_none());
        crashed += usize::from(!ended);
        assert!(seen.is_none() || seen == truth, "byte {at} was served changed");
    }
    println!("120 changed bytes: {refused} refused, {crashed} ended the process, the others were not in use");
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..200 {
        store.commit(put(&format!("/registry/{n}"), Expect::Absent, &"x".repeat(1000))).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let file = std::fs::File::options().write(true).open(dir.path().join("data.mdb")).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    match Embedded::open(dir.path(), Options::default()) {
        Err(OpenError::Data(StoreError::Damaged(_))) => {}
        Err(other) => panic!("{other:?}"),
        Ok(store) => {
            let read = store.range("/", "0", None, 0).await;
            assert!(matches!(read, Err(StoreError::Damaged(_))), "{read:?}");
        }
    }
}

#[tokio::test]
async fn a_picture_restored_elsewhere_goes_on_above_what_was_seen_and_watchers_list_again() {
    use store::embedded::offline::{Archive, Restored};
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let store = open(&old);
    let a = store.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    let changed = store.commit(put("/registry/a", Expect::Revision(a), "2")).await.unwrap();
    let b = store.commit(put("/registry/b", Expect::Absent, "b")).await.unwrap();
    store.commit(delete("/registry/b", b)).await.unwrap();
    let change = Change::Put { value: Bytes::from_static(b"v"), ttl_seconds: Some(3600) };
    store.commit(Write { change, ..put("/registry/event", Expect::Absent, "") }).await.unwrap();
    let before = keys(&store).await;
    store.close().await.unwrap();
    drop(store);
    let archive = Archive::open(&old).unwrap();
    let picture = archive.picture().unwrap();
    let mut restored = Restored::begin(&new).unwrap();
    for record in picture.records().unwrap() {
        restored.add(record.unwrap()).unwrap();
    }
    restored.finish(picture.seen + 1000).unwrap();
    let store = open(&new);
    assert_eq!(keys(&store).await, before);
    assert_eq!(store.revision(), picture.seen + 1000);
    for seen in [1, changed, picture.seen] {
        assert!(matches!(store.watch(seen).await, Err(StoreError::Compacted { .. })), "{seen}");
        assert!(
            matches!(store.range("/", "0", Some(seen), 0).await, Err(StoreError::Compacted { .. })),
            "{seen}"
        );
    }
    let mut watch = store.watch(store.revision()).await.unwrap();
    let next = store.commit(put("/registry/a", Expect::Revision(changed), "3")).await.unwrap();
    let event = events(&mut watch, 1).await.remove(0);
    assert_eq!((event.revision, event.previous.unwrap().value), (next, Bytes::from_static(b"2")));
    assert_eq!(event.entry.unwrap().create_revision, a);
}
