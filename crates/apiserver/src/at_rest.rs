//! Between the store's bytes and an object's: encryption at rest, and the last step of reading.
//!
//! What goes into the store passes [`AtRest::seal`] in `door`, once per write; what comes out of it passes
//! [`AtRest::open`] in `cache/feed`, once per revision. A value that cannot be read is told as such to who asks for it;
//! it is never taken for one that is not there. Source: upstream's `etcd3/store.go`, `DefaultStorageFactory`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use encryption::{Encryption, SealError};
use machinery::field::quote;
use store::{Entry, Revision};
use tokio::sync::watch;

use crate::object::{CachedObject, Keys};
use crate::status::Error;

/// The form in which values are stored.
#[derive(Default)]
pub struct AtRest {
    encryption: Option<Encryption>,
}

/// A stored value that cannot be read, and why, for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl From<Unreadable> for Error {
    fn from(unreadable: Unreadable) -> Self {
        let mut error = Self::internal(&unreadable);
        error.details = serde_json::json!({"causes": [{"message": unreadable.0}]});
        error
    }
}

impl AtRest {
    /// Values are stored as this says.
    pub fn new(encryption: Encryption) -> Self {
        Self { encryption: Some(encryption) }
    }

    /// The encryption, if there is any.
    pub fn encryption(&self) -> Option<&Encryption> {
        self.encryption.as_ref()
    }

    /// `true` if a configuration says anything of the kind with these keys.
    pub fn is_configured(&self, keys: &Keys) -> bool {
        self.encryption.as_ref().is_some_and(|encryption| transformer(encryption, keys).is_configured())
    }

    /// The bytes to store for `value` under `key`.
    ///
    /// # Errors
    /// 500 when it cannot be encrypted.
    pub fn seal(&self, keys: &Keys, key: &str, value: Bytes) -> Result<Bytes, Error> {
        let Some(encryption) = &self.encryption else { return Ok(value) };
        let transformer = transformer(encryption, keys);
        if !transformer.is_configured() {
            return Ok(value);
        }
        let sealed = transformer.seal(key, &value).map_err(|failure: SealError| {
            tracing::error!(key, %failure, "a value cannot be encrypted");
            Error::internal(failure)
        })?;
        Ok(match sealed {
            Cow::Borrowed(_) => value,
            Cow::Owned(sealed) => sealed.into(),
        })
    }

    /// The object that is stored in `entry`, as of `revision`. `keys` are those of its kind.
    ///
    /// # Errors
    /// When it cannot be decrypted, or is no object.
    pub async fn open(
        &self,
        keys: &Keys,
        entry: &Entry,
        revision: Revision,
    ) -> Result<CachedObject, Unreadable> {
        let (value, _) = self.plain(keys, entry).await?;
        let reread = keys.form.as_ref().and_then(|form| form.read(&value));
        let is_stale = reread.is_some();
        let value = reread.map_or(value, |reread| Cow::Owned(reread.into()));
        CachedObject::from_stored(entry.key.as_str().into(), &value, revision)
            .map(|mut object| {
                object.is_stale = is_stale;
                object
            })
            .ok_or_else(|| unreadable(&entry.key, "decode", "the stored value is no object"))
    }

    /// `true` if `entry` is stored in another way than it would be today.
    ///
    /// # Errors
    /// When it cannot be decrypted.
    pub async fn is_stale(&self, keys: &Keys, entry: &Entry) -> Result<bool, Unreadable> {
        self.plain(keys, entry).await.map(|(_, is_stale)| is_stale)
    }

    async fn plain<'a>(&self, keys: &Keys, entry: &'a Entry) -> Result<(Cow<'a, [u8]>, bool), Unreadable> {
        let Some(encryption) = &self.encryption else { return Ok((Cow::Borrowed(&entry.value), false)) };
        let transformer = transformer(encryption, keys);
        let opened = transformer.open(&entry.key, &entry.value).await;
        opened.map_err(|failure| unreadable(&entry.key, "transform", &failure.to_string()))
    }

    /// Counts up whenever values that were unreadable may be readable; never, without encryption.
    pub fn changed(&self) -> Option<watch::Receiver<u64>> {
        self.encryption.as_ref().map(Encryption::changed)
    }

    /// The health of KMS plugins; `None` if there are none, and will be none.
    pub async fn health(&self) -> Option<bool> {
        let encryption = self.encryption.as_ref().filter(|encryption| encryption.has_health())?;
        Some(encryption.health().await.is_ok())
    }
}

fn transformer(encryption: &Encryption, keys: &Keys) -> encryption::Transformer {
    encryption.transformer(&keys.group, &keys.resource)
}

fn unreadable(key: &str, what: &str, why: &str) -> Unreadable {
    Unreadable(format!("unable to {what} key {}: {why}", quote(key)))
}

/// Opens entries for the cache. What is unreadable is told by whoever asked, who knows how much there is of it.
pub(crate) async fn object(
    at_rest: &AtRest,
    keys: &Keys,
    entry: &Entry,
    revision: Revision,
) -> Result<Arc<CachedObject>, Unreadable> {
    let opened = at_rest.open(keys, entry, revision).await;
    opened.map(Arc::new).inspect_err(|why| tracing::debug!(%why, "a stored value cannot be read"))
}
