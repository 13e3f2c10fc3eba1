//! An issuer's keys: read when they are first needed, kept, and read again when a token names a new one.
//!
//! Anybody can send a token that names an issuer. So one reading serves all who wait for it, is not given up when they
//! are gone, and is not repeated at once.

use std::sync::Arc;
use std::time::Duration;

use auth::oidc::{Claims, Issuer, Keys, OidcError};
use base::Tasks;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use super::error::IssuerError;
use super::fetch::get;
use super::metrics::JwtMetrics;

/// How long an issuer gets to answer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon keys are read again: a token with a made-up key costs at most this often a look.
const REFETCH_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// The keys of one issuer.
pub(super) struct RemoteKeys {
    issuer: Issuer,
    known: RwLock<Option<Arc<Keys>>>,
    /// When they were last asked for; held while they are.
    asked: Arc<Mutex<Option<Timestamp>>>,
    tasks: Tasks,
    metrics: Option<Arc<JwtMetrics>>,
}

impl RemoteKeys {
    /// Nothing is known yet.
    pub(super) fn new(issuer: Issuer, tasks: Tasks, metrics: Option<Arc<JwtMetrics>>) -> Arc<Self> {
        Arc::new(Self { issuer, known: RwLock::default(), asked: Arc::default(), tasks, metrics })
    }

    /// What a token of the issuer says.
    ///
    /// # Errors
    /// Why it is refused, for the log.
    pub(super) async fn verify(self: &Arc<Self>, token: &str, now: Timestamp) -> Result<Claims, IssuerError> {
        let known = self.known.read().clone();
        let none = Keys::default();
        match self.issuer.verify(token, known.as_deref().unwrap_or(&none), now) {
            Err(OidcError::UnknownKey(_)) => {}
            verified => return Ok(verified?),
        }
        let newer = self.newer(known.as_ref(), now).await?;
        Ok(self.issuer.verify(token, &newer, now)?)
    }

    /// Reads the keys, unless they are known.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(super) async fn told(self: &Arc<Self>, now: Timestamp) -> Result<(), IssuerError> {
        let is_known = self.known.read().is_some();
        if is_known { Ok(()) } else { self.newer(None, now).await.map(drop) }
    }

    async fn newer(
        self: &Arc<Self>,
        than: Option<&Arc<Keys>>,
        now: Timestamp,
    ) -> Result<Arc<Keys>, IssuerError> {
        let asked = Arc::clone(&self.asked).lock_owned().await;
        let known = self.known.read().clone();
        if let Some(known) = known.filter(|known| than.is_none_or(|old| !Arc::ptr_eq(old, known))) {
            return Ok(known);
        }
        if asked.is_some_and(|at| now < at + REFETCH_AFTER) {
            return Err(IssuerError::AskedLately);
        }
        let (tell, told) = oneshot::channel();
        let this = Arc::clone(self);
        self.tasks.spawn("keys of an issuer", async move {
            // Whoever asked may be gone.
            tell.send(this.read(asked, now).await).ok();
        });
        told.await.map_err(|_| IssuerError::Stopping)?
    }

    async fn read(
        &self,
        mut asked: OwnedMutexGuard<Option<Timestamp>>,
        now: Timestamp,
    ) -> Result<Arc<Keys>, IssuerError> {
        *asked = Some(now);
        let read = tokio::time::timeout(FETCH_TIMEOUT, self.fetch(now)).await;
        let keys = Arc::new(read.map_err(|_| IssuerError::Unanswered)??);
        *self.known.write() = Some(Arc::clone(&keys));
        Ok(keys)
    }

    async fn fetch(&self, now: Timestamp) -> Result<Keys, IssuerError> {
        let issuer = &self.issuer;
        let usual = || format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/'));
        let url = issuer.discovery_url.clone().unwrap_or_else(usual);
        let document: Value = serde_json::from_slice(&get(&issuer.ca_pem, &url, None).await?)?;
        let text = |name: &str| document.get(name).and_then(Value::as_str);
        if text("issuer") != Some(&issuer.url) {
            return Err(IssuerError::OtherIssuer);
        }
        let url = text("jwks_uri").ok_or(IssuerError::NoKeys)?;
        let told = get(&issuer.ca_pem, url, None).await;
        let keys = told.and_then(|text| Ok((serde_json::from_slice(&text)?, text)));
        if let Some(metrics) = &self.metrics {
            metrics.fetched(&issuer.url, keys.as_ref().ok().map(|(_, text)| &**text), now);
        }
        keys.map(|(keys, _)| keys)
    }
}
