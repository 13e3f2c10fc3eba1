//! The requirements of every [`Store`], as cases that each implementation's tests run.
//!
//! A case gets a fresh store and panics when a promise of the trait is broken.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use store::{Change, Expect, Revision, Store, StoreError, Unchanged, Write};

use crate::writes::{delete, events, put, relaxed};

/// One promise.
pub(crate) struct Case {
    /// The promise as a sentence.
    pub(crate) name: &'static str,
    /// Checks it on a fresh store.
    pub(crate) run: fn(Arc<dyn Store>) -> BoxFuture<'static, ()>,
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// All promises.
        pub(crate) const CASES: &[Case] = &[$(Case { name: stringify!($name), run: |store| $name(store).boxed() }),*];
    };
}

cases!(
    a_write_is_there_with_its_revisions,
    a_write_whose_condition_fails_changes_nothing_and_shows_what_is_there,
    revisions_rise_with_every_write_of_either_durability,
    a_range_is_in_key_order_and_counts_what_remains,
    a_range_at_an_older_revision_shows_what_was,
    relaxed_writes_are_seen_by_every_read,
    a_watch_delivers_changes_with_what_was_before,
    a_watch_from_an_older_revision_has_no_gap_to_live_events,
    a_slow_reader_gets_everything_in_order,
    compaction_forgets_the_past_and_keeps_the_present,
    the_future_is_refused,
    a_key_with_a_ttl_expires_with_an_event,
    concurrent_writers_of_one_key_win_once_per_revision,
    what_a_refused_writer_is_told_is_there_already,
    a_write_that_depends_on_another_key_is_made_only_while_that_is_as_it_was,
);

async fn commit(store: &Arc<dyn Store>, write: Write) -> Revision {
    store.commit(write).await.unwrap()
}

async fn keys(store: &Arc<dyn Store>, at: Option<Revision>) -> Vec<String> {
    let page = store.range("/registry/", "/registry0", at, 0).await.unwrap();
    page.entries.into_iter().map(|e| format!("{}={}", e.key, String::from_utf8_lossy(&e.value))).collect()
}

async fn a_write_is_there_with_its_revisions(store: Arc<dyn Store>) {
    let first = commit(&store, put("/registry/a", Expect::Absent, "1")).await;
    let second = commit(&store, put("/registry/a", Expect::Revision(first), "2")).await;
    let entry = store.get("/registry/a").await.unwrap().unwrap();
    assert_eq!((entry.create_revision, entry.revision), (first, second));
    assert_eq!(&entry.value[..], b"2");
    let third = commit(&store, delete("/registry/a", second)).await;
    assert_eq!(store.get("/registry/a").await.unwrap(), None);
    let again = commit(&store, put("/registry/a", Expect::Absent, "3")).await;
    assert!(third < again);
    assert_eq!(store.get("/registry/a").await.unwrap().unwrap().create_revision, again);
    assert_eq!(store.get("/registry/missing").await.unwrap(), None);
}

async fn a_write_whose_condition_fails_changes_nothing_and_shows_what_is_there(store: Arc<dyn Store>) {
    let there = commit(&store, put("/registry/a", Expect::Absent, "1")).await;
    let wrong = [
        put("/registry/a", Expect::Absent, "2"),
        put("/registry/a", Expect::Revision(there + 1), "2"),
        put("/registry/a", Expect::Revision(0), "2"),
        delete("/registry/a", there + 7),
    ];
    for write in wrong {
        match store.commit(write.clone()).await {
            Err(StoreError::Conflict { current: Some(entry) }) => assert_eq!(entry.revision, there),
            other => panic!("{write:?}: {other:?}"),
        }
    }
    for write in [delete("/registry/none", 1), put("/registry/none", Expect::Revision(there), "2")] {
        match store.commit(write.clone()).await {
            Err(StoreError::Conflict { current: None }) => {}
            other => panic!("{write:?}: {other:?}"),
        }
    }
    assert_eq!(store.revision(), there);
}

async fn revisions_rise_with_every_write_of_either_durability(store: Arc<dyn Store>) {
    let mut last = store.revision();
    for n in 0..20 {
        let write = put(&format!("/registry/k{n}"), Expect::Absent, "v");
        let revision = commit(&store, if n % 3 == 0 { write } else { relaxed(write) }).await;
        assert_eq!(revision, last + 1);
        assert_eq!(store.revision(), revision);
        last = revision;
    }
}

async fn a_range_is_in_key_order_and_counts_what_remains(store: Arc<dyn Store>) {
    for (n, key) in ["/registry/b/2", "/registry/a/1", "/registry/b/1", "/registry/c/1", "/registry/b/3"]
        .into_iter()
        .enumerate()
    {
        let write = put(key, Expect::Absent, "v");
        commit(&store, if n % 2 == 0 { write } else { relaxed(write) }).await;
    }
    let gone = store.get("/registry/b/2").await.unwrap().unwrap();
    commit(&store, relaxed(delete("/registry/b/2", gone.revision))).await;
    let rows = [
        (
            "/registry/",
            "/registry0",
            0,
            vec!["/registry/a/1", "/registry/b/1", "/registry/b/3", "/registry/c/1"],
            0,
        ),
        ("/registry/", "/registry0", 2, vec!["/registry/a/1", "/registry/b/1"], 2),
        ("/registry/b/", "/registry/b0", 0, vec!["/registry/b/1", "/registry/b/3"], 0),
        ("/registry/b/", "/registry/b0", 1, vec!["/registry/b/1"], 1),
        ("/registry/b/1\0", "/registry/b0", 1, vec!["/registry/b/3"], 0),
        ("/registry/x", "/registry/y", 3, vec![], 0),
        ("/registry/y", "/registry/x", 3, vec![], 0),
        ("", "/registry0", 1, vec!["/registry/a/1"], 3),
    ];
    for (start, end, limit, expected, remaining) in rows {
        let page = store.range(start, end, None, limit).await.unwrap();
        let found: Vec<_> = page.entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!((found, page.remaining), (expected, remaining), "{start}..{end} limit {limit}");
        assert_eq!(page.revision, store.revision());
    }
}

async fn a_range_at_an_older_revision_shows_what_was(store: Arc<dyn Store>) {
    let r1 = commit(&store, put("/registry/a", Expect::Absent, "1")).await;
    let r2 = commit(&store, relaxed(put("/registry/b", Expect::Absent, "1"))).await;
    let r3 = commit(&store, relaxed(put("/registry/a", Expect::Revision(r1), "2"))).await;
    let r4 = commit(&store, delete("/registry/b", r2)).await;
    let r5 = commit(&store, put("/registry/b", Expect::Absent, "2")).await;
    let history = [
        (r1, vec!["/registry/a=1"]),
        (r2, vec!["/registry/a=1", "/registry/b=1"]),
        (r3, vec!["/registry/a=2", "/registry/b=1"]),
        (r4, vec!["/registry/a=2"]),
        (r5, vec!["/registry/a=2", "/registry/b=2"]),
    ];
    for (at, expected) in history {
        assert_eq!(keys(&store, Some(at)).await, expected, "at {at}");
    }
    let page = store.range("/registry/", "/registry0", Some(r2), 1).await.unwrap();
    assert_eq!((page.entries.len(), page.remaining, page.revision), (1, 1, r2));
}

async fn relaxed_writes_are_seen_by_every_read(store: Arc<dyn Store>) {
    let before = store.revision();
    let mut watch = store.watch(before).await.unwrap();
    let r1 = commit(&store, relaxed(put("/registry/a", Expect::Absent, "1"))).await;
    assert_eq!(store.get("/registry/a").await.unwrap().unwrap().revision, r1);
    assert_eq!(keys(&store, None).await, ["/registry/a=1"]);
    assert_eq!(keys(&store, Some(r1)).await, ["/registry/a=1"]);
    assert_eq!(events(&mut watch, 1).await[0].revision, r1);
    let r2 = commit(&store, put("/registry/a", Expect::Revision(r1), "2")).await;
    let r3 = commit(&store, relaxed(put("/registry/a", Expect::Revision(r2), "3"))).await;
    assert_eq!(events(&mut watch, 2).await[1].revision, r3);
    let mut late = store.watch(before).await.unwrap();
    let seen: Vec<_> = events(&mut late, 3).await.iter().map(|e| e.revision).collect();
    assert_eq!(seen, [r1, r2, r3]);
}

async fn a_watch_delivers_changes_with_what_was_before(store: Arc<dyn Store>) {
    for live in [true, false] {
        let start = store.revision();
        let watching = if live { Some(store.watch(start).await.unwrap()) } else { None };
        let r1 = commit(&store, put("/registry/w/a", Expect::Absent, "1")).await;
        let r3 = commit(&store, put("/registry/w/a", Expect::Revision(r1), "2")).await;
        let r4 = commit(&store, delete("/registry/w/a", r3)).await;
        let mut watch = match watching {
            Some(watch) => watch,
            None => store.watch(start).await.unwrap(),
        };
        let found = events(&mut watch, 3).await;
        let text =
            |e: &Option<store::Entry>| e.as_ref().map(|e| String::from_utf8_lossy(&e.value).into_owned());
        let found: Vec<_> = found.iter().map(|e| (e.revision, text(&e.entry), text(&e.previous))).collect();
        let (one, two) = (Some("1".to_owned()), Some("2".to_owned()));
        let expected = [(r1, one.clone(), None), (r3, two.clone(), one), (r4, None, two)];
        assert_eq!(found, expected, "live: {live}");
    }
}

async fn a_watch_from_an_older_revision_has_no_gap_to_live_events(store: Arc<dyn Store>) {
    let start = store.revision();
    let writer = {
        let store = Arc::clone(&store);
        async move {
            for n in 0..400 {
                let write = put(&format!("/registry/k/{n}"), Expect::Absent, "v");
                commit(&store, if n % 2 == 0 { relaxed(write) } else { write }).await;
            }
        }
    };
    let reader = {
        let store = Arc::clone(&store);
        async move {
            for _ in 0..8 {
                let mut watch = store.watch(start).await.unwrap();
                let found: Vec<_> = events(&mut watch, 400).await.iter().map(|e| e.revision).collect();
                assert_eq!(found, (start + 1..=start + 400).collect::<Vec<_>>());
            }
        }
    };
    futures::join!(writer, reader);
}

async fn a_slow_reader_gets_everything_in_order(store: Arc<dyn Store>) {
    let start = store.revision();
    let mut watch = store.watch(start).await.unwrap();
    for n in 0..1500 {
        commit(&store, relaxed(put(&format!("/registry/k/{n}"), Expect::Absent, "v"))).await;
    }
    let found: Vec<_> = events(&mut watch, 1500).await.iter().map(|e| e.revision).collect();
    assert_eq!(found, (start + 1..=start + 1500).collect::<Vec<_>>());
    let next = commit(&store, put("/registry/k/live", Expect::Absent, "v")).await;
    assert_eq!(events(&mut watch, 1).await[0].revision, next);
}

async fn compaction_forgets_the_past_and_keeps_the_present(store: Arc<dyn Store>) {
    let r1 = commit(&store, put("/registry/a", Expect::Absent, "1")).await;
    let r2 = commit(&store, put("/registry/b", Expect::Absent, "1")).await;
    let r3 = commit(&store, put("/registry/a", Expect::Revision(r1), "2")).await;
    let r4 = commit(&store, delete("/registry/b", r2)).await;
    let r5 = commit(&store, relaxed(put("/registry/c", Expect::Absent, "1"))).await;
    store.compact(r4).await.unwrap();
    store.compact(r3).await.unwrap();
    assert_eq!(keys(&store, None).await, ["/registry/a=2", "/registry/c=1"]);
    assert_eq!(keys(&store, Some(r4)).await, ["/registry/a=2"]);
    for at in [r1, r3] {
        match store.range("/registry/", "/registry0", Some(at), 0).await {
            Err(StoreError::Compacted { requested, oldest }) => assert_eq!((requested, oldest), (at, r4)),
            other => panic!("{other:?}"),
        }
        assert!(matches!(store.watch(at).await, Err(StoreError::Compacted { .. })));
    }
    let mut watch = store.watch(r4).await.unwrap();
    assert_eq!(events(&mut watch, 1).await[0].revision, r5);
    let again = commit(&store, put("/registry/b", Expect::Absent, "2")).await;
    let event = events(&mut watch, 1).await.remove(0);
    assert_eq!((event.revision, event.previous), (again, None));
    let changed = commit(&store, put("/registry/a", Expect::Revision(r3), "3")).await;
    let event = events(&mut watch, 1).await.remove(0);
    assert_eq!((event.revision, event.previous.unwrap().revision), (changed, r3));
}

async fn the_future_is_refused(store: Arc<dyn Store>) {
    let now = commit(&store, put("/registry/a", Expect::Absent, "1")).await;
    assert!(matches!(
        store.range("/registry/", "/registry0", Some(now + 1), 0).await,
        Err(StoreError::Future { .. })
    ));
    assert!(matches!(store.watch(now + 1).await, Err(StoreError::Future { .. })));
    assert!(matches!(store.compact(now + 1).await, Err(StoreError::Future { .. })));
}

async fn a_key_with_a_ttl_expires_with_an_event(store: Arc<dyn Store>) {
    let ttl = |seconds| Change::Put { value: Bytes::from_static(b"v"), ttl_seconds: Some(seconds) };
    let start = store.revision();
    let kept = commit(&store, Write { change: ttl(1), ..put("/registry/kept", Expect::Absent, "") }).await;
    commit(&store, put("/registry/kept", Expect::Revision(kept), "for good")).await;
    commit(&store, Write { change: ttl(1), ..put("/registry/synced", Expect::Absent, "") }).await;
    commit(&store, relaxed(Write { change: ttl(1), ..put("/registry/relaxed", Expect::Absent, "") })).await;
    commit(&store, Write { change: ttl(3600), ..put("/registry/long", Expect::Absent, "") }).await;
    let mut watch = store.watch(start).await.unwrap();
    let found = events(&mut watch, 7).await;
    let mut gone: Vec<_> = found[5..].iter().map(|e| (e.key.as_str(), e.entry.is_none())).collect();
    gone.sort_unstable();
    assert_eq!(gone, [("/registry/relaxed", true), ("/registry/synced", true)]);
    assert_eq!(keys(&store, None).await, ["/registry/kept=for good", "/registry/long=v"]);
}

async fn concurrent_writers_of_one_key_win_once_per_revision(store: Arc<dyn Store>) {
    let first = commit(&store, put("/registry/a", Expect::Absent, "0")).await;
    let tries = (0..50).map(|n| {
        let store = Arc::clone(&store);
        async move { store.commit(put("/registry/a", Expect::Revision(first), &n.to_string())).await.is_ok() }
    });
    let won = futures::future::join_all(tries).await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
}

async fn what_a_refused_writer_is_told_is_there_already(store: Arc<dyn Store>) {
    for n in 0..100 {
        let key = format!("/registry/k{n}");
        let race = (0..3).map(|writer| {
            let (store, write) = (Arc::clone(&store), put(&key, Expect::Absent, &writer.to_string()));
            async move {
                if let Err(StoreError::Conflict { current }) = store.commit(write.clone()).await {
                    assert_eq!(store.get(&write.key).await.unwrap(), current);
                }
            }
        });
        futures::future::join_all(race).await;
    }
}

async fn a_write_that_depends_on_another_key_is_made_only_while_that_is_as_it_was(store: Arc<dyn Store>) {
    let depends = |revision| {
        let only_while = Some(Unchanged { key: "/registry/a".to_owned(), revision });
        Write { only_while, ..put("/registry/b", Expect::Absent, "1") }
    };
    let is_overtaken = async |write: Write| match store.commit(write.clone()).await {
        Err(StoreError::Overtaken) => assert_eq!(store.get(&write.key).await.unwrap(), None),
        other => panic!("{write:?}: {other:?}"),
    };
    is_overtaken(depends(0)).await;
    is_overtaken(depends(1)).await;
    let first = commit(&store, put("/registry/a", Expect::Absent, "1")).await;
    is_overtaken(depends(first + 1)).await;
    let made = commit(&store, depends(first)).await;
    commit(&store, delete("/registry/b", made)).await;
    let second = commit(&store, put("/registry/a", Expect::Revision(first), "2")).await;
    is_overtaken(depends(first)).await;
    commit(&store, depends(second)).await;
    // What is there already is told, whether the other key has changed or not.
    match store.commit(depends(second)).await {
        Err(StoreError::Conflict { current: Some(_) }) => {}
        other => panic!("{other:?}"),
    }
    let gone = commit(&store, delete("/registry/a", second)).await;
    let other = |revision| Write { key: "/registry/c".to_owned(), ..depends(revision) };
    is_overtaken(other(second)).await;
    is_overtaken(other(gone)).await;
    // Of writes at the same time one comes first.
    let third = commit(&store, put("/registry/a", Expect::Absent, "3")).await;
    let (removed, written) =
        futures::future::join(store.commit(delete("/registry/a", third)), store.commit(other(third))).await;
    let removed = removed.unwrap();
    match written {
        Ok(revision) => assert!(revision < removed, "{revision} came after {removed}"),
        Err(StoreError::Overtaken) => {}
        other => panic!("{other:?}"),
    }
}
