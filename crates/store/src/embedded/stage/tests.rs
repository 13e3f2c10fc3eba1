//! Groups of writes, without the writer: what each sees of those before it, and when its caller is told.

use tokio::sync::oneshot;

use super::super::{Embedded, Options};
use super::*;
use crate::writes::{delete, put, relaxed};
use crate::{Store, Unchanged};

const NOW_US: i64 = 1_767_225_600_123_456;

/// A store with `/registry/there` at 2 and `/registry/gone` removed at 4, after the first revision of all.
async fn store() -> (tempfile::TempDir, Embedded) {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    for write in [
        put("/registry/there", Expect::Absent, "t"),
        put("/registry/gone", Expect::Absent, "g"),
        delete("/registry/gone", 3),
    ] {
        store.commit(write).await.unwrap();
    }
    (dir, store)
}

/// What becomes of a write: `@N` if it is staged, `later` before what is told when the group is on disk.
fn staged(store: &Embedded, stage: &mut Stage, write: Write) -> String {
    let view = store.core.view().unwrap();
    let (reply, mut answer) = oneshot::channel();
    let before = (stage.items.len(), stage.refused.len());
    stage.write(&view, write, reply).unwrap();
    let shown = |current: &Option<Entry>| {
        current
            .as_ref()
            .map_or("nothing".to_owned(), |entry| format!("@{}/{}", entry.revision, entry.create_revision))
    };
    match answer.try_recv() {
        Ok(Err(StoreError::Conflict { current })) => return format!("conflict {}", shown(&current)),
        Ok(Err(StoreError::Failed(why))) => return why,
        Ok(other) => return format!("{other:?}"),
        Err(_) => {}
    }
    match (stage.items.len() - before.0, stage.refused.len() - before.1) {
        (1, 0) => format!("@{}", stage.items.last().unwrap().record.revision),
        (0, 1) => format!("later conflict {}", shown(&stage.refused.last().unwrap().current)),
        other => panic!("{other:?}"),
    }
}

fn check(store: &Embedded, is_full: bool, rows: &[(Write, &str)]) -> Stage {
    let mut stage = Stage::new(store.revision(), is_full, NOW_US, 0);
    for (number, (write, expect)) in rows.iter().enumerate() {
        assert_eq!(staged(store, &mut stage, write.clone()), *expect, "write {number}: {write:?}");
    }
    stage
}

fn depending(write: Write, key: &str, revision: Revision) -> Write {
    Write { only_while: Some(Unchanged { key: key.to_owned(), revision }), ..write }
}

#[tokio::test]
async fn each_write_of_a_group_sees_those_before_it() {
    let (_dir, store) = store().await;
    let (a, there, gone) = ("/registry/a", "/registry/there", "/registry/gone");
    let stage = check(
        &store,
        false,
        &[
            (put(a, Expect::Absent, "1"), "@5"),
            (put(a, Expect::Absent, "2"), "later conflict @5/5"),
            (put(a, Expect::Revision(5), "2"), "@6"),
            (put(a, Expect::Revision(5), "3"), "later conflict @6/5"),
            (delete(a, 6), "@7"),
            (delete(a, 6), "later conflict nothing"),
            (put(a, Expect::Absent, "4"), "@8"),
            (put(a, Expect::Revision(8), "5"), "@9"),
            // What is committed is told at once.
            (put(there, Expect::Absent, "1"), "conflict @2/2"),
            (put(there, Expect::Revision(1), "1"), "conflict @2/2"),
            (put(gone, Expect::Revision(3), "1"), "conflict nothing"),
            (delete(gone, 4), "conflict nothing"),
            (put(there, Expect::Revision(2), "1"), "@10"),
            (put(there, Expect::Revision(2), "1"), "later conflict @10/2"),
            (put(gone, Expect::Absent, "1"), "@11"),
        ],
    );
    let created: Vec<_> =
        stage.items.iter().map(|item| (item.record.create_revision, item.record.before)).collect();
    assert_eq!(created, [(5, 0), (5, 5), (5, 6), (8, 7), (8, 8), (2, 2), (11, 4)]);
    let previous: Vec<_> =
        stage.items.iter().map(|item| item.previous.as_ref().map(|entry| entry.revision)).collect();
    assert_eq!(previous, [None, Some(5), Some(6), None, Some(8), Some(2), None]);
    assert_eq!(stage.next, 12);
    assert_eq!(stage.into_replies().count(), 7 + 4, "all who wait are told if nothing of it happens");
}

#[tokio::test]
async fn a_write_depends_on_what_its_group_has_made_of_the_other() {
    let (_dir, store) = store().await;
    let (a, b, there, gone) = ("/registry/a", "/registry/b", "/registry/there", "/registry/gone");
    let make = |revision| depending(put(b, Expect::Absent, "1"), there, revision);
    check(
        &store,
        false,
        &[
            (make(1), "Err(Overtaken)"),
            (make(0), "Err(Overtaken)"),
            (depending(put(b, Expect::Absent, "1"), gone, 4), "Err(Overtaken)"),
            (depending(put(b, Expect::Absent, "1"), a, 0), "Err(Overtaken)"),
            (put(there, Expect::Revision(2), "2"), "@5"),
            (make(2), "Err(Overtaken)"),
            (make(5), "@6"),
            (make(5), "later conflict @6/6"),
            (delete(there, 5), "@7"),
            (depending(delete(b, 6), there, 5), "Err(Overtaken)"),
            (depending(delete(b, 6), there, 7), "Err(Overtaken)"),
            (depending(delete(b, 6), b, 6), "@8"),
        ],
    );
}

#[tokio::test]
async fn a_full_store_takes_removals_only() {
    let (_dir, store) = store().await;
    let stage = check(
        &store,
        true,
        &[
            (put("/registry/a", Expect::Absent, ""), "Err(NoSpace)"),
            (relaxed(put("/registry/there", Expect::Revision(2), "")), "Err(NoSpace)"),
            (put("/registry/there", Expect::Absent, ""), "conflict @2/2"),
            (relaxed(delete("/registry/there", 2)), "@5"),
        ],
    );
    assert!(!stage.is_synced, "what was refused hurries nobody");
}

#[tokio::test]
async fn keys_have_a_length() {
    let (_dir, store) = store().await;
    let of = |bytes: usize| put(&"k".repeat(bytes), Expect::Absent, "1");
    let refused = |bytes: usize| format!("a key must have 1 to {KEY_BYTES_MAX} bytes, this one has {bytes}");
    check(
        &store,
        false,
        &[
            (of(0), &refused(0)),
            (of(KEY_BYTES_MAX + 1), &refused(KEY_BYTES_MAX + 1)),
            (of(KEY_BYTES_MAX), "@5"),
            (of(1), "@6"),
        ],
    );
}

#[tokio::test]
async fn one_write_that_must_be_on_disk_makes_its_group_wait() {
    let (_dir, store) = store().await;
    let write = |key: &str| put(key, Expect::Absent, "1");
    for (name, writes, is_synced) in [
        ("none", vec![], false),
        ("heartbeats", vec![relaxed(write("/registry/a")), relaxed(write("/registry/b"))], false),
        ("one among them", vec![relaxed(write("/registry/a")), write("/registry/b")], true),
        ("one that was refused", vec![relaxed(write("/registry/a")), write("/registry/a")], false),
    ] {
        let mut stage = Stage::new(store.revision(), false, NOW_US, 0);
        writes.into_iter().for_each(|write| drop(staged(&store, &mut stage, write)));
        assert_eq!(stage.is_synced, is_synced, "{name}");
    }
}

/// In whole seconds, never early, and never before what has gone already.
#[tokio::test]
async fn what_expires_does_so_together_and_in_order() {
    let (_dir, store) = store().await;
    for (ttl_seconds, floor_us, expect_us) in [
        (Some(1), 0, 1_767_225_602_000_000),
        (Some(0), 0, 1_767_225_601_000_000),
        (Some(3600), 0, 1_767_229_201_000_000),
        (Some(1), 1_767_225_700_000_000, 1_767_225_700_000_001),
        (Some(u32::MAX), 0, 6_062_192_896_000_000),
        (None, 1_767_225_700_000_000, 0),
    ] {
        let mut stage = Stage::new(store.revision(), false, NOW_US, floor_us);
        let change = Change::Put { value: Bytes::new(), ttl_seconds };
        staged(&store, &mut stage, Write { change, ..put("/registry/a", Expect::Absent, "") });
        assert_eq!(stage.items[0].record.expires_us, expect_us, "{ttl_seconds:?} {floor_us}");
    }
}

#[tokio::test]
async fn only_what_was_to_expire_does() {
    let (_dir, store) = store().await;
    let view = store.core.view().unwrap();
    let mut stage = Stage::new(store.revision(), true, NOW_US, 0);
    for (row, key) in [
        ((1, 1), "/registry/there"),
        ((2, 3), "/registry/gone"),
        ((3, 4), "/registry/gone"),
        ((4, 9), "/registry/none"),
        ((5, 2), "/registry/there"),
        ((6, 2), "/registry/there"),
    ] {
        stage.expire(&view, row, key).unwrap();
        assert_eq!(stage.expired, Some(row), "it has been looked at");
    }
    let gone: Vec<_> =
        stage.items.iter().map(|item| (item.record.revision, item.record.is_tombstone())).collect();
    assert_eq!(gone, [(5, true)], "also of a full store, and once");
    assert!(stage.items[0].reply.is_none() && !stage.is_synced);
}

#[test]
fn a_write_takes_what_it_carries() {
    let write = put("/registry/a", Expect::Absent, "12345");
    assert_eq!(write_bytes(&write), "/registry/a".len() + "12345".len() + "cause of 12345".len());
    assert_eq!(write_bytes(&delete("/registry/a", 1)), "/registry/a".len() + "cause of ".len());
}
