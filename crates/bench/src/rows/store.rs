//! The embedded store alone, in this process: what it takes of disk and memory, and how it comes back.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use ::store::embedded::{Embedded, Options, Threads};
use ::store::{Change, Durability, Expect, ROOT, Revision, Store, Write};
use anyhow::{Context, Result};
use bytes::Bytes;
use futures::future::try_join_all;
use tokio::runtime::{Builder, Runtime};

use crate::bench::Bench;
use crate::load::as_f64;
use crate::processes;

const OBJECTS: usize = 10_000;
const VALUE: Bytes = Bytes::from_static(&[b'x'; 1000]);
/// Writers at once.
const WRITERS: usize = 64;
/// Updates after which it is looked how much is held.
const LOOK_EVERY: usize = 10_000;

fn process() -> Result<[i32; 1]> {
    Ok([i32::try_from(std::process::id())?])
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn key(number: usize) -> String {
    format!("{ROOT}configmaps/bench/load-{number}")
}

fn put(key: String, expect: Expect) -> Write {
    let change = Change::Put { value: VALUE, ttl_seconds: None };
    Write { key, expect, change, durability: Durability::Synced, cause: Bytes::new(), only_while: None }
}

/// Writes `count` objects by so many writers at once; answers their revisions.
async fn create(store: &Embedded, count: usize, writers: usize) -> Result<Vec<Revision>> {
    let mut revisions = Vec::with_capacity(count);
    for first in (0..count).step_by(writers) {
        let numbers = first..count.min(first + writers);
        let writes = numbers.map(|n| store.commit(put(key(n), Expect::Absent)));
        revisions.extend(try_join_all(writes).await?);
    }
    Ok(revisions)
}

pub(super) fn updates(bench: &mut Bench) -> Result<()> {
    let dir = tempfile::tempdir()?;
    runtime()?.block_on(async {
        for writers in [1, WRITERS] {
            let one = tempfile::tempdir()?;
            let store = Embedded::open(one.path(), Options::default())?;
            let before = processes::usage(&process()?)?.written_bytes;
            let count = bench.extent.of(4_000, 500);
            create(&store, count, writers).await?;
            let written = processes::usage(&process()?)?.written_bytes - before;
            let each = processes::kibibytes(written) / as_f64(count);
            bench.report.value(
                &format!("store: written per 1 kB create, {writers} writers"),
                "KiB",
                None,
                each,
            );
        }
        update(bench, dir.path()).await
    })
}

async fn update(bench: &mut Bench, dir: &Path) -> Result<()> {
    let store = Embedded::open(dir, Options::default())?;
    let memory_before = processes::pss_bytes(&process()?)?;
    let mut revisions = create(&store, OBJECTS, WRITERS).await?;
    let count = bench.extent.of(1_000_000, 50_000);
    let started = Instant::now();
    let (mut held_max, mut memory_max) = (0, 0);
    for first in (0..count).step_by(WRITERS) {
        let numbers: Vec<usize> = (first..first + WRITERS).map(|n| n % OBJECTS).collect();
        let writes = numbers.iter().map(|n| {
            let there = revisions.get(*n).copied().unwrap_or_default();
            store.commit(put(key(*n), Expect::Revision(there)))
        });
        for (number, revision) in numbers.iter().zip(try_join_all(writes).await?) {
            *revisions.get_mut(*number).context("an object is missing")? = revision;
        }
        if first / LOOK_EVERY != (first + WRITERS) / LOOK_EVERY {
            held_max = held_max.max(held(dir)?);
            memory_max = memory_max.max(processes::pss_bytes(&process()?)?);
        }
    }
    let what = format!("store: {count} updates of {OBJECTS} objects");
    let report = &mut bench.report;
    report.value(&what, "1/s", None, as_f64(count) / started.elapsed().as_secs_f64());
    report.value("  disk at most, nobody compacts", "MiB", None, processes::mebibytes(held_max));
    let memory = memory_max.saturating_sub(memory_before);
    report.value("  memory at most, the mapped file included", "MiB", None, processes::mebibytes(memory));
    // As the API server does it every few minutes; what each frees goes back with the next.
    for number in 0..3 {
        store.compact(store.revision()).await?;
        store.commit(put(key(OBJECTS + number), Expect::Absent)).await?;
    }
    store.compact(store.revision()).await?;
    report.value("  disk after compaction", "MiB", None, processes::mebibytes(held(dir)?));
    report.value("  of it in use", "MiB", None, processes::mebibytes(store.used_bytes()?));
    let memory = processes::pss_bytes(&process()?)?.saturating_sub(memory_before);
    report.value("  memory, the mapped file included", "MiB", None, processes::mebibytes(memory));
    store.close().await?;
    Ok(())
}

/// Of the disk, by the data file.
fn held(dir: &Path) -> Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    Ok(dir.join("data.mdb").metadata()?.blocks() * BLOCK_BYTES)
}

pub(super) fn recovery(bench: &mut Bench) -> Result<()> {
    for keys in [OBJECTS, bench.extent.of(1_000_000, 50_000)] {
        let dir = tempfile::tempdir()?;
        // What is dropped without being closed is as after a crash: a tail may be lost, a gap is to be noted.
        let crashing = Options { threads: Threads::None, ..Options::default() };
        Builder::new_current_thread().enable_all().build()?.block_on(async {
            let store = Embedded::open(dir.path(), crashing)?;
            create(&store, keys, 256).await.map(drop)
        })?;
        let mut took = Vec::new();
        for _ in 0..bench.extent.of(5, 2) {
            took.push(runtime()?.block_on(async {
                let started = Instant::now();
                let store = Embedded::open(dir.path(), Options::default())?;
                let first = store.get(&key(keys - 1)).await?;
                let elapsed = started.elapsed();
                first.context("an acknowledged object is missing")?;
                store.close().await?;
                anyhow::Ok(elapsed)
            })?);
        }
        bench.report.durations(&format!("store: open with {keys} keys to the first read"), None, &took);
    }
    Ok(())
}
