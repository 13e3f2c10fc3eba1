//! The store on a real etcd cluster, with upstream's keys and values, so that a kube-apiserver can share it.
//!
//! Invariants: a write is one transaction that compares the key's last change, sent again when a member does not
//! answer and recognised by its id if the first sending did take effect, so that no answer is ever a guess; reads
//! are linearizable; a watch goes on after the last revision that it has delivered, whatever member dies.

mod api;
mod lease;
mod members;
mod txn;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Random, Tasks};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch as cell};
use tokio::time::Instant;
use tonic::{Code, Status};

use self::lease::Leases;
use self::members::{Members, failure, text};
use self::txn::{Outcome, WriteId, WriteLeases};
use crate::{Change, Entry, Expect, Page, ROOT, Revision, Store, StoreError, Watch, Write};

/// Keys that one request for a range returns.
const PAGE_KEYS: i64 = 2000;
/// How often a write asks for a new lease because etcd forgot the one that it was to share.
const LEASE_ATTEMPTS_MAX: u32 = 3;

/// Which cluster, and who we are.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http://` or `https://` URLs of the members.
    pub endpoints: Vec<String>,
    /// Whom to trust, in PEM; the members' certificates must be signed by it.
    pub authority_pem: Option<Vec<u8>>,
    /// Our certificate and key, in PEM.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// Jitter of tries again, and the ids of writes.
    pub random: Random,
}

/// Why the cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is none to connect to.
    #[error("no etcd endpoint was given")]
    NoEndpoint,
    /// Not a URL, or its TLS files do not fit.
    #[error("cannot use the etcd endpoint {url}: {why}")]
    Endpoint {
        /// As given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No member answers.
    #[error("no etcd member answers: {0}")]
    Unreachable(String),
    /// It lacks what we need.
    #[error("etcd {found} is too old, {oldest} or newer is needed")]
    TooOld {
        /// Its version.
        found: String,
        /// The first that will do.
        oldest: String,
    },
}

/// What writes, reads and watches share.
struct Core {
    members: Members,
    leases: Leases,
    random: Random,
    /// The newest revision in any answer.
    newest: AtomicU64,
    /// Everything older than this is known to be gone.
    compacted: AtomicU64,
    /// The newest revision that somebody waits for.
    wanted: cell::Sender<Revision>,
}

impl Core {
    fn seen(&self, revision: Revision) {
        self.newest.fetch_max(revision, Ordering::AcqRel);
    }

    async fn commit(&self, write: Write) -> Result<Revision, StoreError> {
        let id: WriteId = {
            let half = || self.random.below(u64::MAX).to_be_bytes();
            let mut id = [0; 16];
            id[..8].copy_from_slice(&half());
            id[8..].copy_from_slice(&half());
            id
        };
        for _ in 0..LEASE_ATTEMPTS_MAX {
            let leases = self.leases(&write).await?;
            let request = txn::request(&write, id, leases)?;
            let attempt = self.members.ask("/etcdserverpb.KV/Txn", &request).await;
            match attempt.result {
                Ok(answer) => return self.decide(&write, id, answer, attempt.is_repeated).await,
                Err(status) if status.message().contains("requested lease not found") => {
                    self.leases.forget(leases.object);
                    self.leases.forget(leases.cause);
                }
                Err(status) => return Err(failure(&status)),
            }
        }
        Err(StoreError::Unavailable("etcd forgets leases as soon as it grants them".to_owned()))
    }

    /// What the answer to a write means, also if an earlier sending of it may have taken effect.
    async fn decide(
        &self,
        write: &Write,
        id: WriteId,
        answer: api::TxnResponse,
        is_repeated: bool,
    ) -> Result<Revision, StoreError> {
        self.seen(txn::header(&answer.header));
        match txn::outcome(answer) {
            Outcome::Committed(revision) => Ok(revision),
            Outcome::Refused { current, cause } => {
                if is_repeated && let Some(revision) = self.find(write, id, cause).await? {
                    return Ok(revision);
                }
                Err(StoreError::Conflict { current })
            }
        }
    }

    /// Looks through the causes of a key, newest first, for a write that may have taken effect.
    async fn find(
        &self,
        write: &Write,
        id: WriteId,
        newest: Option<(WriteId, Revision)>,
    ) -> Result<Option<Revision>, StoreError> {
        let oldest = match write.expect {
            Expect::Absent => 0,
            Expect::Revision(revision) => revision,
        };
        let Some(key) = txn::cause_key(&write.key) else { return Ok(None) };
        let mut next = newest;
        while let Some((found, revision)) = next.filter(|(_, revision)| *revision > oldest) {
            if found == id {
                return Ok(Some(revision));
            }
            let before = api::RangeRequest {
                key: key.clone(),
                revision: i64::try_from(revision - 1).unwrap_or(i64::MAX),
                ..Default::default()
            };
            let unknown = |status: Status| {
                StoreError::Unavailable(format!(
                    "whether the write was made cannot be known: {}",
                    text(&status)
                ))
            };
            let page: api::RangeResponse =
                self.members.ask("/etcdserverpb.KV/Range", &before).await.result.map_err(unknown)?;
            next = page
                .kvs
                .into_iter()
                .next()
                .and_then(|kv| Some((txn::split_cause(&kv.value)?.0, txn::revision(kv.mod_revision))));
        }
        Ok(None)
    }

    async fn leases(&self, write: &Write) -> Result<WriteLeases, StoreError> {
        let object = match &write.change {
            Change::Put { ttl_seconds: Some(seconds), .. } => self.lease(*seconds).await?,
            _ => 0,
        };
        Ok(WriteLeases { object, cause: self.lease(txn::CAUSE_TTL_SECONDS).await? })
    }

    async fn lease(&self, ttl_seconds: u32) -> Result<i64, StoreError> {
        if let Some(id) = self.leases.shared(ttl_seconds, Instant::now()) {
            return Ok(id);
        }
        let request = api::LeaseGrantRequest { ttl: i64::from(Leases::granted_seconds(ttl_seconds)) };
        let granted: api::LeaseGrantResponse = self
            .members
            .ask("/etcdserverpb.Lease/LeaseGrant", &request)
            .await
            .result
            .map_err(|status| failure(&status))?;
        if !granted.error.is_empty() {
            return Err(StoreError::Unavailable(granted.error));
        }
        self.leases.add(ttl_seconds, granted.id, Instant::now());
        Ok(granted.id)
    }

    async fn read(&self, request: &api::RangeRequest) -> Result<api::RangeResponse, StoreError> {
        let at = txn::revision(request.revision);
        let answer: Result<api::RangeResponse, Status> =
            self.members.ask("/etcdserverpb.KV/Range", request).await.result;
        let answer = answer.map_err(|status| self.history(&status, at))?;
        self.seen(txn::header(&answer.header));
        Ok(answer)
    }

    /// An error about `requested`, which may be gone or yet to come.
    fn history(&self, status: &Status, requested: Revision) -> StoreError {
        if status.code() != Code::OutOfRange {
            return failure(status);
        }
        if status.message().contains("future revision") {
            return StoreError::Future { requested, newest: self.newest.load(Ordering::Acquire) };
        }
        let oldest = self.compacted.load(Ordering::Acquire).max(requested + 1);
        StoreError::Compacted { requested, oldest }
    }

    async fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let mut page = Page { entries: Vec::new(), revision: at.unwrap_or(0), remaining: 0 };
        let mut from = Bytes::from(start.max(ROOT).to_owned());
        let is_empty = start >= end;
        loop {
            let left = match limit {
                0 => PAGE_KEYS,
                _ => i64::try_from(limit - page.entries.len()).unwrap_or(PAGE_KEYS).min(PAGE_KEYS),
            };
            let request = api::RangeRequest {
                key: from,
                range_end: Bytes::from(if is_empty { String::new() } else { end.to_owned() }),
                limit: left,
                revision: i64::try_from(page.revision).unwrap_or(i64::MAX),
                count_only: is_empty,
            };
            let answer = self.read(&request).await?;
            if page.revision == 0 {
                page.revision = txn::header(&answer.header);
            }
            if is_empty {
                return Ok(page);
            }
            let read = answer.kvs.len();
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            page.entries.extend(answer.kvs.into_iter().filter_map(txn::entry));
            let is_full = limit > 0 && page.entries.len() >= limit;
            let Some(last) = last.filter(|_| answer.more && !is_full) else {
                page.remaining =
                    txn::revision(answer.count).saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
                return Ok(page);
            };
            from = [&last[..], &[0]].concat().into();
        }
    }
}

/// A client of the cluster.
pub struct Etcd {
    core: Arc<Core>,
    tasks: Tasks,
}

impl Etcd {
    /// Connects to the first member that answers. To be called within a tokio runtime.
    ///
    /// # Errors
    /// If an endpoint is no URL, no member answers, or its version is too old.
    pub async fn connect(options: Options) -> Result<Self, ConnectError> {
        let core = Core {
            members: Members::new(&options)?,
            leases: Leases::default(),
            random: options.random,
            newest: AtomicU64::new(0),
            compacted: AtomicU64::new(0),
            wanted: cell::Sender::new(0),
        };
        let version = core.members.version().await?;
        let newest = core.range("", "", None, 0).await;
        let newest = newest.map_err(|error| ConnectError::Unreachable(error.to_string()))?.revision;
        tracing::info!(%version, revision = newest, "connected to etcd");
        Ok(Self { core: Arc::new(core), tasks: Tasks::new() })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl Store for Etcd {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Revision, StoreError>> {
        self.core.commit(write).boxed()
    }

    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Entry>, StoreError>> {
        let request = api::RangeRequest { key: Bytes::from(key.to_owned()), ..Default::default() };
        async move {
            if request.key.is_empty() {
                return Ok(None);
            }
            Ok(self.core.read(&request).await?.kvs.into_iter().next().and_then(txn::entry))
        }
        .boxed()
    }

    fn range(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Page, StoreError>> {
        let (start, end) = (start.to_owned(), end.to_owned());
        async move { self.core.range(&start, &end, at, limit).await }.boxed()
    }

    fn revision(&self) -> Revision {
        self.core.newest.load(Ordering::Acquire)
    }

    fn newest(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        async move {
            let newest = self.core.range("", "", None, 0).await?.revision;
            self.core.wanted.send_if_modified(|wanted| {
                let is_news = newest > *wanted;
                *wanted = newest.max(*wanted);
                is_news
            });
            Ok(newest)
        }
        .boxed()
    }

    fn watch(&self, after: Revision) -> BoxFuture<'_, Result<Watch, StoreError>> {
        async move {
            // Answers at once whether `after` is gone or yet to come; the stream would tell later, or never.
            let probe = api::RangeRequest {
                key: Bytes::from_static(txn::CAUSES.as_bytes()),
                revision: i64::try_from(after).unwrap_or(i64::MAX),
                count_only: true,
                ..Default::default()
            };
            self.core.read(&probe).await?;
            let (sender, batches) = mpsc::channel(watch::BATCHES_MAX);
            self.tasks.spawn("etcd watch", watch::follow(Arc::clone(&self.core), after, sender));
            Ok(Watch { batches })
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            let request = api::CompactionRequest { revision: i64::try_from(revision).unwrap_or(i64::MAX) };
            let done: Result<api::Done, Status> =
                self.core.members.ask("/etcdserverpb.KV/Compact", &request).await.result;
            match done.map_err(|status| self.core.history(&status, revision)) {
                // Somebody else was quicker: what was to go is gone.
                Ok(_) | Err(StoreError::Compacted { .. }) => {
                    self.core.compacted.fetch_max(revision, Ordering::AcqRel);
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    /// What was acknowledged is safe without it.
    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            self.tasks.stop_and_wait().await;
            Ok(())
        }
        .boxed()
    }
}
