//! The store on a real etcd cluster, with upstream's keys and values, so that a kube-apiserver can share it.
//!
//! Invariants: a write is one transaction that compares the key's last change, sent again when a member does not
//! answer and recognised by its id if the first sending did take effect, so that no answer is ever a guess (see
//! `commit`); reads are linearizable; a watch goes on after the last revision that it has delivered, whatever member
//! dies.

mod api;
mod bootstrap;
mod commit;
mod compaction;
mod faults;
mod lease;
mod members;
mod txn;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use base::{Random, Tasks};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch as cell};
use tonic::{Code, Status};

use self::faults::Faults;
use self::lease::Leases;
use self::members::{Members, failure};
use crate::{Entry, Page, ROOT, Revision, Store, StoreError, Watch, Write};

/// Keys that one request for a range returns.
const PAGE_KEYS: i64 = 2000;

/// The cluster, and the client's identity.
#[derive(Clone, Debug)]
pub struct Options {
    /// `http://` or `https://` URLs of the members.
    pub endpoints: Vec<String>,
    /// The trusted authorities, in PEM; the members' certificates must be signed by it.
    pub authority_pem: Option<Vec<u8>>,
    /// Our certificate and key, in PEM.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// Jitter of tries again, and the ids of writes.
    pub random: Random,
}

/// The reason why the cluster cannot be used.
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
    /// How often anyone has compacted, as far as this process knows.
    compactions: AtomicI64,
    /// What is wrong with the cluster, as of the last look.
    faults: Faults,
    /// The newest revision that somebody waits for.
    wanted: cell::Sender<Revision>,
}

impl Core {
    /// The newest revision that this process knows of.
    fn newest(&self) -> Revision {
        self.newest.load(Ordering::Acquire)
    }

    fn seen(&self, revision: Revision) {
        self.newest.fetch_max(revision, Ordering::AcqRel);
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
            return StoreError::Future { requested, newest: self.newest() };
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
                keys_only: false,
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
            compactions: AtomicI64::new(0),
            faults: Faults::default(),
            wanted: cell::Sender::new(0),
        };
        let version = core.members.version().await?;
        if !version.has_reliable_progress()
            && let Err(status) = watch::ensure_barrier(&core).await
        {
            tracing::warn!(why = members::text(&status), "etcd takes no writes");
        }
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
        self.core.newest()
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
            self.core.read(&watch::probe(after)).await?;
            let (sender, batches) = mpsc::channel(watch::BATCHES_MAX);
            self.tasks.spawn("etcd watch", watch::follow(Arc::clone(&self.core), after, sender));
            Ok(Watch { batches })
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.core.compact(revision).boxed()
    }

    fn faults(&self) -> BoxFuture<'_, Vec<String>> {
        self.core.faults().boxed()
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
