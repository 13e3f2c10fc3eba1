//! The one door to the data: the only file that writes to the store. It takes nothing but [`Admitted`] objects,
//! and only `validation` makes one; the one [`Record`] of admission's own that no client can name; and this
//! server's own sign of life, which is no object of the API.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use store::{Change, Durability, Expect, Revision, Store, StoreError, Unchanged, Write};
use tracing::error;

use super::Admitted;
use crate::at_rest::AtRest;
use crate::cache::{Cache, CachedObject};
use crate::kinds::Kind;
use crate::object::encode_stored;
use crate::status::Error;
use crate::tree::text;

/// How often a create is tried whose definition changes meanwhile.
const OVERTAKEN_MAX: usize = 8;

/// The writer of admitted objects.
pub struct Door {
    store: Arc<dyn Store>,
    at_rest: Arc<AtRest>,
    cache: Arc<Cache>,
}

/// A record that admission keeps for itself in the store, beside the objects: which node ports are given out.
#[derive(Debug)]
pub struct Record {
    /// The store's key.
    pub key: &'static str,
    /// The stored object.
    pub object: Value,
}

/// The written object, as readers will see it.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The new revision.
    pub revision: Revision,
    /// The object at that revision.
    pub object: Arc<CachedObject>,
}

/// The reason why nothing was written.
#[derive(Debug)]
pub enum Refusal {
    /// Somebody else wrote first; what is there now, if anything.
    Conflict(Option<Arc<CachedObject>>),
    /// The store failed, or the value could not be encoded.
    Failed(Error),
}

impl Door {
    /// A door to `store`, where values lie as `at_rest` says.
    pub fn new(store: Arc<dyn Store>, at_rest: Arc<AtRest>, cache: Arc<Cache>) -> Self {
        Self { store, at_rest, cache }
    }

    /// Makes an object that must not exist.
    ///
    /// # Errors
    /// As [`Refusal`].
    pub async fn create(&self, admitted: &Admitted, cause: Bytes) -> Result<Committed, Refusal> {
        let value = encode(admitted)?;
        let Some(precondition) = admitted.kind().precondition() else {
            let committed = self.write(admitted, value, Expect::Absent, None, cause).await?;
            return committed.ok_or(Refusal::Conflict(None));
        };
        for _ in 0..OVERTAKEN_MAX {
            let expected = precondition.current().ok_or_else(|| Refusal::Failed(Error::ending("create")))?;
            let (value, only_while) = (value.clone(), Some(expected.clone()));
            let written = self.write(admitted, value, Expect::Absent, only_while, cause.clone()).await?;
            if let Some(committed) = written {
                return Ok(committed);
            }
            if !precondition.changed(&expected).await {
                break;
            }
        }
        Err(Refusal::Failed(Error::unavailable("the definition of the kind has changed; try again")))
    }

    /// Replaces an object whose last change was `revision`. If nothing changes, nothing is written, unless the object
    /// is stored in another way than it would be today.
    ///
    /// # Errors
    /// As [`Refusal`].
    pub async fn replace(
        &self,
        admitted: &Admitted,
        current: &Arc<CachedObject>,
        cause: Bytes,
    ) -> Result<Committed, Refusal> {
        let value = encode(admitted)?;
        let as_is = CachedObject::from_stored(Arc::clone(&current.key), &value, current.revision);
        if as_is.is_some_and(|same| same.json == current.json)
            && !current.is_stale
            && !self.is_stale(admitted).await?
        {
            return Ok(Committed { revision: current.revision, object: Arc::clone(current) });
        }
        let expect = Expect::Revision(current.revision);
        self.write(admitted, value, expect, None, cause).await?.ok_or(Refusal::Conflict(None))
    }

    /// Removes an object whose last change was `revision`; answers its last state.
    ///
    /// # Errors
    /// As [`Refusal`].
    pub async fn remove(
        &self,
        admitted: &Admitted,
        revision: Revision,
        cause: Bytes,
    ) -> Result<Committed, Refusal> {
        let value = encode(admitted)?;
        let write = Write {
            key: admitted.key().to_owned(),
            expect: Expect::Revision(revision),
            change: Change::Delete,
            durability: durability(admitted.kind().is_relaxed()),
            cause,
            only_while: None,
        };
        let Some(revision) = self.commit(admitted.kind(), write).await? else {
            return Err(Refusal::Conflict(None));
        };
        self.note(admitted, revision);
        committed(admitted, &value, revision)
    }

    /// Writes a server's sign of life, which goes away by itself.
    ///
    /// # Errors
    /// If the store fails, or somebody else writes the same key.
    pub async fn show_life(&self, key: &str, value: Bytes, ttl_seconds: u32) -> Result<(), StoreError> {
        let current = self.store.get(key).await?;
        let write = Write {
            key: key.to_owned(),
            expect: current.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision)),
            change: Change::Put { value, ttl_seconds: Some(ttl_seconds) },
            durability: Durability::Relaxed,
            cause: Bytes::new(),
            only_while: None,
        };
        self.store.commit(write).await.map(drop)
    }

    /// Takes a sign of life back.
    ///
    /// # Errors
    /// As [`Door::show_life`].
    pub async fn end_life(&self, key: &str) -> Result<(), StoreError> {
        let Some(current) = self.store.get(key).await? else { return Ok(()) };
        let write = Write {
            key: key.to_owned(),
            expect: Expect::Revision(current.revision),
            change: Change::Delete,
            durability: Durability::Relaxed,
            cause: Bytes::new(),
            only_while: None,
        };
        self.store.commit(write).await.map(drop)
    }

    /// Writes a record whose last change was `revision`, or which must not exist.
    ///
    /// # Errors
    /// As [`Refusal`]; the conflict has what is there now, without content if that cannot be read.
    pub async fn record(
        &self,
        record: &Record,
        revision: Option<Revision>,
    ) -> Result<Arc<CachedObject>, Refusal> {
        let value =
            encode_stored(&record.object).map_err(|failure| Refusal::Failed(Error::internal(failure)))?;
        let write = Write {
            key: record.key.to_owned(),
            expect: revision.map_or(Expect::Absent, Expect::Revision),
            change: Change::Put { value: value.clone(), ttl_seconds: None },
            durability: Durability::Synced,
            cause: Bytes::new(),
            only_while: None,
        };
        let object = |value: &[u8], revision| {
            CachedObject::from_stored(record.key.into(), value, revision).map(Arc::new)
        };
        match self.store.commit(write).await {
            Ok(revision) => object(&value, revision)
                .ok_or_else(|| Refusal::Failed(Error::internal("the record could not be encoded"))),
            Err(StoreError::Conflict { current }) => Err(Refusal::Conflict(current.and_then(|entry| {
                object(&entry.value, entry.revision).or_else(|| object(br#"{"metadata":{}}"#, entry.revision))
            }))),
            Err(failure) => Err(refusal(record.key, failure)),
        }
    }

    /// Remembers changes of policy, and of Secrets that are tokens.
    fn note(&self, admitted: &Admitted, revision: Revision) {
        const POLICY: [&str; 19] = [
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
            "namespaces",
            "limitranges",
            "resourcequotas",
            "serviceaccounts",
            "priorityclasses",
            "runtimeclasses",
            "storageclasses",
            "ingressclasses",
            "clusterroles",
            "clusterrolebindings",
            "roles",
            "rolebindings",
            "servicecidrs",
        ];
        const TOKENS: [&str; 2] = ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];
        let resource = admitted.kind().resource();
        let is_token = resource == "secrets" && TOKENS.contains(&text(admitted.object(), "/type"));
        if is_token || POLICY.contains(&resource) {
            self.cache.policy_changed(revision);
        }
        if resource == "apiservices" && leads_elsewhere(admitted.object()) {
            self.cache.registrations_changed(revision);
        }
    }

    async fn write(
        &self,
        admitted: &Admitted,
        value: Bytes,
        expect: Expect,
        only_while: Option<Unchanged>,
        cause: Bytes,
    ) -> Result<Option<Committed>, Refusal> {
        let sealed = self.at_rest.seal(admitted.kind().cache().keys(), admitted.key(), value.clone());
        let write = Write {
            key: admitted.key().to_owned(),
            expect,
            change: Change::Put {
                value: sealed.map_err(Refusal::Failed)?,
                ttl_seconds: admitted.kind().ttl_seconds(),
            },
            durability: durability(admitted.is_relaxed()),
            cause,
            only_while,
        };
        let Some(revision) = self.commit(admitted.kind(), write).await? else { return Ok(None) };
        self.note(admitted, revision);
        committed(admitted, &value, revision).map(Some)
    }

    /// Whether what is stored for an object is encrypted in another way than it would be today.
    async fn is_stale(&self, admitted: &Admitted) -> Result<bool, Refusal> {
        let keys = admitted.kind().cache().keys();
        if !self.at_rest.is_configured(keys) {
            return Ok(false);
        }
        let entry =
            self.store.get(admitted.key()).await.map_err(|failure| refusal(admitted.key(), failure))?;
        let Some(entry) = entry else { return Ok(true) };
        self.at_rest.is_stale(keys, &entry).await.map_err(|why| Refusal::Failed(why.into()))
    }

    /// Commits a write; `None` if what it depends on has changed.
    async fn commit(&self, kind: &Kind, write: Write) -> Result<Option<Revision>, Refusal> {
        let (key, is_new) = (write.key.clone(), matches!(write.expect, Expect::Absent));
        match self.store.commit(write).await {
            Ok(revision) => Ok(Some(revision)),
            // Whatever is there: the object is not new.
            Err(StoreError::Overtaken) => Ok(None),
            Err(StoreError::Conflict { .. }) if is_new => Err(Refusal::Conflict(None)),
            Err(StoreError::Conflict { current: None }) => Err(Refusal::Conflict(None)),
            Err(StoreError::Conflict { current: Some(entry) }) => {
                let opened = self.at_rest.open(kind.cache().keys(), &entry, entry.revision).await;
                let object = opened.map_err(|why| Refusal::Failed(why.into()))?;
                Err(Refusal::Conflict(Some(Arc::new(object))))
            }
            Err(failure) => Err(refusal(&key, failure)),
        }
    }
}

/// What a client is told of a store that failed.
fn refusal(key: &str, failure: StoreError) -> Refusal {
    Refusal::Failed(match failure {
        StoreError::TooLarge => {
            Error::entity_too_large("Request entity too large: the store takes no such value")
        }
        StoreError::Unavailable(why) => {
            error!(key, why, "the store does not answer");
            Error::unavailable("the store does not answer; whether the change was made is not known")
        }
        failure => {
            error!(key, %failure, "commit failed");
            Error::of_store(failure)
        }
    })
}

fn encode(admitted: &Admitted) -> Result<Bytes, Refusal> {
    encode_stored(admitted.object()).map_err(|failure| Refusal::Failed(Error::internal(failure)))
}

fn committed(admitted: &Admitted, value: &[u8], revision: Revision) -> Result<Committed, Refusal> {
    CachedObject::from_stored(admitted.key().into(), value, revision)
        .map(|object| Committed { revision, object: Arc::new(object) })
        .ok_or_else(|| Refusal::Failed(Error::internal("the object could not be encoded")))
}

/// Leases, Events and heartbeats of Nodes need not be on disk before they are acknowledged.
fn durability(is_relaxed: bool) -> Durability {
    if is_relaxed { Durability::Relaxed } else { Durability::Synced }
}

/// Whether an APIService says that somebody else serves, or did until now: its status is written later than the rest.
fn leads_elsewhere(object: &Value) -> bool {
    let is_elsewhere = object.pointer("/spec/service").is_some_and(|service| !service.is_null());
    is_elsewhere || text(object, "/status/conditions/0/reason") != "Local"
}
