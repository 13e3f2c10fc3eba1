//! One value beside the objects: what every server of a cluster must know before there is an API server.
//!
//! It is opaque here; whoever writes it seals it. A kube-apiserver never looks at its key.

use std::sync::Arc;
use std::time::Duration;

use base::Backoff;
use bytes::Bytes;
use tokio::sync::watch as cell;
use tonic::Status;

use super::members::{failure, text};
use super::{Core, Etcd, api, txn};
use crate::{Entry, Revision, StoreError};

/// Outside of what upstream and the watch cache read.
const KEY: &[u8] = b"/knarr/bootstrap";

impl Etcd {
    /// The entry that is there now.
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

    /// Counts its changes from now on, and moments in which one may have been missed; for as long as this lives.
    #[must_use]
    pub fn bootstrap_changes(&self) -> cell::Receiver<u64> {
        let (count, changes) = cell::channel(0);
        self.tasks.spawn("etcd watch of what servers share", count_changes(Arc::clone(&self.core), count));
        changes
    }
}

/// Goes on with the next member when one has ended the watch.
async fn count_changes(core: Arc<Core>, count: cell::Sender<u64>) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(10), 0.5);
    loop {
        let why = tokio::select! {
            why = count_until_it_breaks(&core, &count) => why,
            () = count.closed() => return,
        };
        tracing::debug!(why, "the watch of what servers share broke");
        tokio::time::sleep(backoff.next(&core.random)).await;
    }
}

async fn count_until_it_breaks(core: &Core, count: &cell::Sender<u64>) -> String {
    let create =
        api::WatchAsk::Create(api::WatchCreateRequest { key: Bytes::from_static(KEY), ..Default::default() });
    let request = api::WatchRequest { ask: Some(create) };
    // The stream of requests must not end: etcd would take that for the end of the watch.
    let requests = futures::stream::StreamExt::chain(
        futures::stream::iter([request]),
        futures::stream::pending::<api::WatchRequest>(),
    );
    let (member, mut stream) = match core.members.watch(requests).await {
        Ok(opened) => opened,
        Err((member, status)) => {
            core.members.leave(member);
            return text(&status);
        }
    };
    loop {
        let why = match stream.message().await {
            // It counts also when the watch begins: what came before went unseen.
            Ok(Some(answer)) if !answer.canceled => {
                count.send_modify(|count| *count += 1);
                continue;
            }
            Ok(Some(answer)) => answer.cancel_reason,
            Ok(None) => "the member ended the stream".to_owned(),
            Err(status) => text(&status),
        };
        core.members.leave(member);
        return why;
    }
}
