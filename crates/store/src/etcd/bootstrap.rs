//! One value beside the objects: what every server of a cluster must know before there is an API server.
//!
//! It is opaque here; whoever writes it seals it. A kube-apiserver never looks at its key.

use bytes::Bytes;
use tonic::Status;

use super::members::failure;
use super::{Etcd, api, txn};
use crate::{Entry, Revision, StoreError};

/// Outside of what upstream and the watch cache read.
const KEY: &[u8] = b"/knarr/bootstrap";

impl Etcd {
    /// What is there now.
    ///
    /// # Errors
    /// If no member answers.
    pub async fn bootstrap(&self) -> Result<Option<Entry>, StoreError> {
        let request = api::RangeRequest { key: Bytes::from_static(KEY), ..Default::default() };
        Ok(self.core.read(&request).await?.kvs.into_iter().next().and_then(txn::entry))
    }

    /// Writes it if its last change was `expected` (0: it is not there). Answers what is there afterwards: if that is
    /// another value, somebody else was quicker.
    ///
    /// # Errors
    /// If no member answers; then it may have been written.
    pub async fn set_bootstrap(&self, expected: Revision, value: Bytes) -> Result<Option<Entry>, StoreError> {
        let key = Bytes::from_static(KEY);
        let condition = api::Compare {
            target: api::CompareTarget::Mod.into(),
            key: key.clone(),
            mod_revision: Some(i64::try_from(expected).unwrap_or(i64::MAX)),
            ..Default::default()
        };
        let put = api::PutRequest { key, value, lease: 0 };
        let request = api::TxnRequest {
            compare: vec![condition],
            success: vec![txn::op(api::Request::Put(put))],
            failure: Vec::new(),
        };
        let answer: Result<api::TxnResponse, Status> =
            self.core.members.ask("/etcdserverpb.KV/Txn", &request).await.result;
        answer.map_err(|status| failure(&status))?;
        self.bootstrap().await
    }
}
