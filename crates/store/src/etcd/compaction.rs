//! Compaction by one server of several.
//!
//! A key counts the compactions; whoever raises it from the count that it knew may compact, all others learn the new
//! count and wait for their next turn. A kube-apiserver on the same etcd takes part. Source: upstream's
//! `etcd3/compact.go`.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tonic::Status;

use super::members::failure;
use super::{Core, api, txn};
use crate::{Revision, StoreError};

/// The counter, by its etcd version; its value is the revision that was compacted last.
const KEY: &[u8] = b"compact_rev_key";

impl Core {
    /// Compacts, unless another server has done so since this one last tried.
    pub(super) async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        if revision > self.newest() {
            return Err(StoreError::Future { requested: revision, newest: self.newest() });
        }
        if !self.takes_turn(revision).await? {
            return Ok(());
        }
        let request = api::CompactionRequest { revision: i64::try_from(revision).unwrap_or(i64::MAX) };
        let done: Result<api::Done, Status> =
            self.members.ask("/etcdserverpb.KV/Compact", &request).await.result;
        match done.map_err(|status| self.history(&status, revision)) {
            // What was to go is gone.
            Ok(_) | Err(StoreError::Compacted { .. }) => {
                self.compacted.fetch_max(revision, Ordering::AcqRel);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether this compaction is ours. A sending that was repeated may look like somebody else's: then nobody
    /// compacts this time, which does no harm.
    async fn takes_turn(&self, revision: Revision) -> Result<bool, StoreError> {
        let known = self.compactions.load(Ordering::Acquire);
        let key = Bytes::from_static(KEY);
        let put = api::PutRequest { key: key.clone(), value: revision.to_string().into(), lease: 0 };
        let read = api::RangeRequest { key: key.clone(), ..Default::default() };
        let is_as_known = api::Compare {
            target: api::CompareTarget::Version.into(),
            key,
            version: Some(known),
            ..Default::default()
        };
        let request = api::TxnRequest {
            compare: vec![is_as_known],
            success: vec![txn::op(api::Request::Put(put))],
            failure: vec![txn::op(api::Request::Range(read))],
        };
        let answer: Result<api::TxnResponse, Status> =
            self.members.ask("/etcdserverpb.KV/Txn", &request).await.result;
        let answer = answer.map_err(|status| failure(&status))?;
        self.seen(txn::header(&answer.header));
        if answer.succeeded {
            self.compactions.store(known + 1, Ordering::Release);
            return Ok(true);
        }
        let found = txn::first(answer.responses);
        self.compactions.store(found.as_ref().map_or(0, |kv| kv.version), Ordering::Release);
        let theirs = found.and_then(|kv| std::str::from_utf8(&kv.value).ok()?.parse().ok());
        self.compacted.fetch_max(theirs.unwrap_or(0), Ordering::AcqRel);
        Ok(false)
    }
}
