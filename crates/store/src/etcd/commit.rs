//! One write: sent until a member answers, and never done twice or too late.
//!
//! Every write has an id that no other has, and leaves it beside its key. When a member does not answer, the write is
//! sent to the next one: the comparison keeps it from happening twice, and if it fails, the history of ids says
//! whether an earlier sending was carried out, and under which revision. A sending that is carried out late, long
//! after its answer was given up, fails too: a key's last change never comes back, and a key that must be absent must
//! not have come and gone since the write was begun. What stays unknown, because no member answers any more, is said
//! to be unknown.

use tokio::time::Instant;
use tonic::Status;

use super::lease::Leases;
use super::members::{failure, text};
use super::txn::{self, Outcome, WriteId, WriteLeases};
use super::{Core, api};
use crate::{Change, Expect, Revision, StoreError, Write};

/// How often a write is begun again, because etcd forgot the lease that it was to share, or because its key has come
/// and gone meanwhile.
const ATTEMPTS_MAX: u32 = 5;

/// What became of one attempt that was answered.
enum Decision {
    Final(Result<Revision, StoreError>),
    /// The key came and went after the write was begun. No sending of it will ever be carried out.
    TooLate,
}

impl Core {
    /// Commits one write.
    pub(super) async fn commit(&self, write: Write) -> Result<Revision, StoreError> {
        for _ in 0..ATTEMPTS_MAX {
            let (id, begun_at) = (self.new_id(), self.newest());
            let leases = self.leases(&write).await?;
            let request = txn::request(&write, id, leases, begun_at)?;
            let attempt = self.members.ask("/etcdserverpb.KV/Txn", &request).await;
            match attempt.result {
                Ok(answer) => match self.decide(&write, id, answer, attempt.is_repeated, begun_at).await {
                    Decision::Final(result) => return result,
                    Decision::TooLate => {}
                },
                Err(status) if status.message().contains("requested lease not found") => {
                    self.leases.forget(leases.object);
                    self.leases.forget(leases.cause);
                }
                Err(status) => return Err(failure(&status)),
            }
        }
        Err(StoreError::Unavailable("the write was overtaken again and again".to_owned()))
    }

    fn new_id(&self) -> WriteId {
        let half = || self.random.below(u64::MAX).to_be_bytes();
        let mut id = [0; 16];
        id[..8].copy_from_slice(&half());
        id[8..].copy_from_slice(&half());
        id
    }

    /// What the answer to a write means, also if an earlier sending of it may have taken effect.
    async fn decide(
        &self,
        write: &Write,
        id: WriteId,
        answer: api::TxnResponse,
        is_repeated: bool,
        begun_at: Revision,
    ) -> Decision {
        self.seen(txn::header(&answer.header));
        let (current, cause, other) = match txn::outcome(answer) {
            Outcome::Committed(revision) => return Decision::Final(Ok(revision)),
            Outcome::Refused { current, cause, other } => (current, cause, other),
        };
        if is_repeated {
            match self.find(write, id, cause).await {
                Ok(None) => {}
                Ok(Some(revision)) => return Decision::Final(Ok(revision)),
                Err(error) => return Decision::Final(Err(error)),
            }
        }
        let came_and_went = cause.is_some_and(|(_, revision)| revision > begun_at);
        let may_create = write.expect == Expect::Absent && matches!(write.change, Change::Put { .. });
        if may_create && current.is_none() && came_and_went {
            return Decision::TooLate;
        }
        let is_expected = match write.expect {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current.as_ref().is_some_and(|entry| entry.revision == revision),
        };
        let is_overtaken = write.only_while.as_ref().is_some_and(|it| other != Some(it.revision));
        if is_expected && is_overtaken {
            return Decision::Final(Err(StoreError::Overtaken));
        }
        Decision::Final(Err(StoreError::Conflict { current }))
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
}
