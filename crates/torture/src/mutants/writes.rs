//! Lies about writes.

use store::{Change, Durability, Expect, Revision, StoreError, Write};

use super::{Liar, Lie};

/// One write in so many is lied about.
const EVERY: u64 = 15;

pub(super) async fn commit(liar: &Liar, write: Write) -> Result<Revision, StoreError> {
    match liar.lie() {
        Lie::NotFlushed => liar.inner.commit(Write { durability: Durability::Relaxed, ..write }).await,
        Lie::ErrorsSwallowed => match liar.inner.commit(write).await {
            Err(StoreError::Failed(_) | StoreError::Refused(_) | StoreError::NoSpace) => {
                Ok(liar.inner.revision() + 1)
            }
            other => other,
        },
        Lie::RetriesBlindly => match liar.inner.commit(write.clone()).await {
            Err(StoreError::Unavailable(_)) => liar.inner.commit(write).await,
            other => other,
        },
        _ => commit_and_lie(liar, write).await,
    }
}

async fn commit_and_lie(liar: &Liar, write: Write) -> Result<Revision, StoreError> {
    let is_delete = matches!(write.change, Change::Delete);
    if liar.is_lying(Lie::NotWritten, EVERY) {
        return Ok(liar.inner.revision() + 1);
    }
    let before = match liar.lie() {
        Lie::DeletedKeyComesBack | Lie::RefusalShowsThePast => liar.inner.get(&write.key).await?,
        _ => None,
    };
    let done = match liar.inner.commit(write.clone()).await {
        Err(StoreError::Conflict { current: Some(current) }) if forces(liar, &write) => {
            let expect = Expect::Revision(current.revision);
            liar.inner.commit(Write { expect, ..write.clone() }).await
        }
        Err(StoreError::Conflict { .. }) if liar.is_lying(Lie::RefusalShowsThePast, 2) => {
            let current = liar.memory.lock().entries.get(&write.key).cloned();
            Err(StoreError::Conflict { current })
        }
        other => other,
    };
    if let Some(before) = before {
        liar.memory.lock().entries.entry(write.key.clone()).or_insert(before.clone());
        if done.is_ok() && is_delete && liar.is_lying(Lie::DeletedKeyComesBack, 3) {
            let change = Change::Put { value: before.value, ttl_seconds: None };
            liar.inner.commit(Write { expect: Expect::Absent, change, ..write }).await?;
        }
    }
    let revision = done?;
    if liar.is_lying(Lie::WrittenAfterAll, EVERY) {
        return Err(StoreError::NoSpace);
    }
    let mut memory = liar.memory.lock();
    if memory.revision > 0 && liar.is_lying(Lie::RevisionTwice, EVERY) {
        return Ok(memory.revision);
    }
    memory.revision = revision;
    Ok(revision)
}

/// Whether a condition that does not hold is ignored.
fn forces(liar: &Liar, write: &Write) -> bool {
    match write.expect {
        Expect::Absent => liar.lie() == Lie::CreateOverExisting,
        Expect::Revision(_) => liar.lie() == Lie::LostUpdate,
    }
}
