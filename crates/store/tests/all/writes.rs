//! Writes and what a watch tells of them, short enough for tests of all kinds: the crate's own have this file, too.

use std::time::Duration;

use bytes::Bytes;
use store::{Change, Durability, Event, Expect, Revision, Watch, Write};

/// How long a test waits for what must come.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A write of `value` to `key`.
pub(crate) fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write {
        key: key.to_owned(),
        expect,
        change: Change::Put { value: Bytes::from(value.to_owned()), ttl_seconds: None },
        durability: Durability::Synced,
        cause: Bytes::from(format!("cause of {value}")),
        only_while: None,
    }
}

/// The removal of `key`, last changed at `revision`.
pub(crate) fn delete(key: &str, revision: Revision) -> Write {
    Write { change: Change::Delete, ..put(key, Expect::Revision(revision), "") }
}

/// The same write, acknowledged when visible.
pub(crate) fn relaxed(write: Write) -> Write {
    Write { durability: Durability::Relaxed, ..write }
}

/// The next `count` events of a watch.
pub(crate) async fn events(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut out: Vec<Event> = Vec::new();
    while out.len() < count {
        let batch = tokio::time::timeout(TIMEOUT, watch.batches.recv()).await.unwrap();
        let batch = batch.unwrap().unwrap();
        out.extend(batch.events);
    }
    out
}
