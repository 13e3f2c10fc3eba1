//! What the disk is asked to write and to keep: nothing for readers, no more of the past than is bounded, and what is
//! free goes back, never under anybody who reads.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::SystemTime;

use futures::future::join_all;

use super::*;

const OBJECTS: u64 = 200;
const VALUE_BYTES: usize = 10_000;

fn key(n: u64) -> String {
    format!("/registry/configmaps/default/{n:04}")
}

fn value(n: u64, round: u64) -> String {
    format!("{n}-{round}-").repeat(VALUE_BYTES / 4)[..VALUE_BYTES - usize::try_from(n % 7).unwrap() * 900]
        .to_owned()
}

/// Updates every object, in groups.
async fn round(store: &Embedded, round: u64) {
    let updates = (0..OBJECTS).map(async |n| {
        let there = store.get(&key(n)).await.unwrap();
        let expect = there.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
        store.commit(put(&key(n), expect, &value(n, round))).await.unwrap();
    });
    join_all(updates).await;
}

async fn check_all(store: &Embedded, round: u64) {
    for n in 0..OBJECTS {
        let entry = store.get(&key(n)).await.unwrap().unwrap();
        assert_eq!(entry.value, value(n, round), "{n} after round {round}");
    }
}

/// Lets the writer have its way: compacts all, and commits until what that has freed is older than the last commit.
async fn compact_all(store: &Embedded) {
    for _ in 0..4 {
        store.compact(store.revision()).await.unwrap();
        let there = store.get("/registry/tick").await.unwrap();
        let expect = there.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
        store.commit(put("/registry/tick", expect, "t")).await.unwrap();
    }
}

fn allocated(dir: &Path) -> u64 {
    dir.join(DATA).metadata().unwrap().blocks() * 512
}

fn read_list(store: &Embedded, dir: &Path) -> Result<free_pages::FreePages, free_pages::Unclear> {
    let tables = &store.core.tables;
    let file = File::open(dir.join(DATA)).unwrap();
    free_pages::read(&file, 4096, tables.used_bytes().unwrap() / tables.page_bytes())
}

#[tokio::test(start_paused = true)]
async fn used_and_free_pages_are_all_pages_whatever_was_written() {
    for seed in 0..6 {
        let (dir, random) = (tempfile::tempdir().unwrap(), Random::seeded(seed));
        let options = Options { slack_bytes_min: u64::MAX, ..simulated() };
        let store = Embedded::open(dir.path(), options).unwrap();
        let mut listed = 0;
        for _ in 0..40 {
            let writes = (0..random.below(60)).map(async |_| {
                let key = format!("/registry/{}", random.below(300));
                let value = "x".repeat(usize::try_from(random.below(30_000)).unwrap());
                match store.get(&key).await.unwrap() {
                    Some(there) if random.below(3) == 0 => {
                        drop(store.commit(delete(&key, there.revision)).await)
                    }
                    Some(there) => {
                        drop(store.commit(put(&key, Expect::Revision(there.revision), &value)).await)
                    }
                    None => drop(store.commit(put(&key, Expect::Absent, &value)).await),
                }
            });
            join_all(writes).await;
            if random.below(4) == 0 {
                store.compact(store.revision()).await.unwrap();
            }
            let list =
                read_list(&store, dir.path()).unwrap_or_else(|unclear| panic!("seed {seed}: {unclear}"));
            listed = listed.max(list.by_transaction.iter().map(|(_, pages)| pages.len()).sum());
        }
        assert!(
            listed > 600,
            "seed {seed}: never more than {listed} pages were free, none of their lists was long"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_free_goes_back_while_the_store_runs() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { slack_bytes_min: 1 << 20, ..simulated() };
    let store = Embedded::open(dir.path(), options.clone()).unwrap();
    for n in 0..12 {
        round(&store, n).await;
    }
    let (most, length) = (allocated(dir.path()), dir.path().join(DATA).metadata().unwrap().len());
    compact_all(&store).await;
    let (used, left) = (store.used_bytes().unwrap(), allocated(dir.path()));
    println!("{most} bytes became {left}, of which {used} are in use; the file's end is at {length}");
    assert!(most > 15 << 20, "there was little to give back: {most}");
    assert!(left < used + (1 << 20).max(used / 2) + 65_536, "{left} bytes are held, {used} are used");
    check_all(&store, 11).await;
    for n in 12..20 {
        round(&store, n).await;
        check_all(&store, n).await;
    }
    read_list(&store, dir.path()).unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = Embedded::open(dir.path(), options).unwrap();
    check_all(&store, 19).await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_reads_is_not_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options { slack_bytes_min: 1 << 20, ..simulated() }).unwrap();
    round(&store, 0).await;
    let view = store.core.view().unwrap();
    // As a backup holds it, in another process.
    let backup = File::open(dir.path().join(DATA)).unwrap();
    backup.lock_shared().unwrap();
    for n in 1..12 {
        round(&store, n).await;
    }
    let held = allocated(dir.path());
    compact_all(&store).await;
    assert!(allocated(dir.path()) >= held, "a hole under a backup");
    backup.unlock().unwrap();
    compact_all(&store).await;
    for n in 0..OBJECTS {
        assert_eq!(
            view.get(&key(n)).unwrap().unwrap().value,
            value(n, 0),
            "a hole under a reader of this process"
        );
    }
    drop(view);
    compact_all(&store).await;
    assert!(allocated(dir.path()) < held / 2, "{} of {held} bytes", allocated(dir.path()));
}

#[tokio::test(start_paused = true)]
async fn the_past_is_bounded_though_nobody_compacts() {
    const BOUND: u64 = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let options = Options { history_bytes_max: BOUND, slack_bytes_min: 1 << 20, ..simulated() };
    let store = Embedded::open(dir.path(), options).unwrap();
    let (mut most_used, mut most_held, mut revisions) = (0, 0, vec![store.revision()]);
    for n in 0..40 {
        round(&store, n).await;
        revisions.push(store.revision());
        (most_used, most_held) =
            (most_used.max(store.used_bytes().unwrap()), most_held.max(allocated(dir.path())));
    }
    println!("60 MB were written, {most_used} bytes were in use and {most_held} held at most");
    assert!(most_used < 3 * BOUND, "{most_used} bytes are used");
    assert!(most_held < 5 * BOUND, "{most_held} bytes are held");
    let [.., before, last] = revisions[..] else { panic!("rounds") };
    assert!(store.watch(before).await.is_ok(), "at least half of the bound is kept");
    assert!(matches!(store.watch(revisions[5]).await, Err(StoreError::Compacted { .. })));
    assert_eq!(store.revision(), last);
    check_all(&store, 39).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_sees_every_commit_though_transactions_are_handed_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), simulated()).unwrap();
    let mut revision = store.commit(put("/registry/a", Expect::Absent, "0")).await.unwrap();
    for n in 1..50 {
        let before = store.core.view().unwrap();
        let write = put("/registry/a", Expect::Revision(revision), &n.to_string());
        revision = store.commit(if n % 3 == 0 { relaxed(write) } else { write }).await.unwrap();
        assert_eq!(before.get("/registry/a").unwrap().unwrap().value, (n - 1).to_string());
        drop(before);
        for _ in 0..3 {
            assert_eq!(store.get("/registry/a").await.unwrap().unwrap().value, n.to_string());
        }
    }
}

/// `touch -d @0`, and the kernel is told that no page of it is dirty.
fn rest(file: &Path) {
    let status = Command::new("touch").args(["-d", "@0"]).arg(file).status().unwrap();
    assert!(status.success());
    assert!(Command::new("sync").arg(file).status().unwrap().success());
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_store_at_rest_write_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let store = Embedded::open(dir.path(), simulated()).unwrap();
    store.commit(put("/registry/a", Expect::Absent, "1")).await.unwrap();
    store.get("/registry/a").await.unwrap().unwrap();
    let readers = dir.path().join("lock.mdb");
    let was_written = || readers.metadata().unwrap().modified().unwrap() != SystemTime::UNIX_EPOCH;
    rest(&readers);
    for n in 0..100 {
        store.get("/registry/a").await.unwrap().unwrap();
        list(&store, None).await.unwrap();
        let there = store.get("/registry/lease").await.unwrap();
        let expect = there.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision));
        store.commit(relaxed(put("/registry/lease", expect, &n.to_string()))).await.unwrap();
    }
    assert!(!was_written(), "reading dirties the table of readers, which the kernel writes back");
    drop(store.core.tables.env.read_txn().unwrap());
    assert!(was_written(), "the control: a transaction of one's own does");
}
