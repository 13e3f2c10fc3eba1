//! One KMS provider: the seed that it writes with, the seeds that it has met, and how its plugin is.
//!
//! While the plugin is well it is asked every minute, else every ten seconds, and whenever somebody asks for its health
//! and the last answer is old. Its answer names the key; when that changes, a new seed is made. Reads go on without the
//! plugin as long as seeds are known; writes for three minutes.
//! Source: `kmsv2PluginProbe` and `envelopeTransformer`; the times are upstream's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Clock;
use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, RwLock};
use prost::Message;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tonic::Status;
use tracing::{debug, info, warn};

use super::api;
use super::client::Client;
use super::envelope::{EncryptedObject, HKDF_SHA256_XNONCE_AES_GCM_SEED, SeedId, check_key_id};
use super::health::{Flaw, SeedError, Unmade, Unwell};
use crate::cipher::{Gcm, SEED_BYTES, Seed, random};
use crate::errors::{EnvelopeError, OpenError, Rpc, SealError};
use crate::metrics::{Direction, Metrics, hash};

const INTERVAL_HEALTHY: Duration = Duration::from_secs(60);
const INTERVAL_UNHEALTHY: Duration = Duration::from_secs(10);
/// How long an answer about the plugin's health is good for.
const ANSWER_GOOD: Duration = Duration::from_secs(20);
const ANSWER_BAD: Duration = Duration::from_secs(3);
/// How long writes go on without the plugin.
const WRITES_MAX: SignedDuration = SignedDuration::from_mins(3);
/// How long a seed is remembered after it was made or asked for.
const SEED_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How many seeds are remembered: one per server start and key, unless somebody means ill.
const SEEDS_MAX: usize = 4096;
/// The versions of the API that are understood.
const VERSIONS: [&str; 2] = ["v2", "v2beta1"];

/// What opens values of one seed.
enum Reader {
    Seed(Seed),
    /// Of servers before 1.29.
    Key(Box<Gcm>),
}

impl Reader {
    fn open(&self, sealed: &[u8], place: &[u8]) -> Result<Vec<u8>, OpenError> {
        match self {
            Self::Seed(seed) => seed.open(sealed, place),
            Self::Key(key) => key.open(sealed, place),
        }
    }
}

/// What values are written with.
#[derive(Clone)]
struct State {
    seed: Arc<Reader>,
    /// The envelope without a value.
    envelope: EncryptedObject,
    expires: Timestamp,
}

/// What the plugin said last.
struct Answer {
    at: Instant,
    error: Option<Unwell>,
}

/// A provider.
pub(crate) struct Provider {
    name: String,
    client: Client,
    metrics: Metrics,
    clock: Clock,
    state: RwLock<Option<State>>,
    seeds: Mutex<HashMap<SeedId, (Arc<Reader>, Instant)>>,
    last: tokio::sync::Mutex<Option<Answer>>,
    version: Mutex<Option<String>>,
    /// Whether somebody was sent away since the plugin was last well.
    has_failed: AtomicBool,
    look: Notify,
    /// Told when what could not be opened may be opened now.
    changed: watch::Sender<u64>,
}

impl Provider {
    pub(crate) fn new(
        name: &str,
        client: Client,
        metrics: Metrics,
        clock: Clock,
        changed: watch::Sender<u64>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            client,
            metrics,
            clock,
            state: RwLock::default(),
            seeds: Mutex::default(),
            last: tokio::sync::Mutex::default(),
            version: Mutex::default(),
            has_failed: AtomicBool::new(false),
            look: Notify::new(),
            changed,
        }
    }

    /// Asks the plugin again and again.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let is_well = self.check().await.is_ok() && !self.has_failed.load(Ordering::Relaxed);
            let interval = if is_well { INTERVAL_HEALTHY } else { INTERVAL_UNHEALTHY };
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = self.look.notified() => tokio::time::sleep(ANSWER_BAD).await,
            }
        }
    }

    /// How the plugin is; asks it unless the last answer is young.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) async fn check(&self) -> Result<(), Unwell> {
        let mut last = self.last.lock().await;
        if let Some(answer) = last.as_ref() {
            let good_for = if answer.error.is_none() { ANSWER_GOOD } else { ANSWER_BAD };
            if answer.at.elapsed() < good_for {
                return answer.error.clone().map_or(Ok(()), Err);
            }
        }
        let was_well = last.as_ref().is_some_and(|answer| answer.error.is_none());
        let asked = self.ask().await;
        if let Err(error) = &asked {
            warn!(provider = self.name, %error, "the KMS plugin failed its health check");
        }
        *last = Some(Answer { at: Instant::now(), error: asked.clone().err() });
        drop(last);
        if asked.is_ok() && (!was_well | self.has_failed.swap(false, Ordering::Relaxed)) {
            self.changed.send_modify(|count| *count += 1);
        }
        asked
    }

    async fn ask(&self) -> Result<(), Unwell> {
        let name = &self.name;
        let unsaid = |status: Status| Unwell::Status { name: name.clone(), rpc: Rpc::from(&status) };
        let status = self.client.status().await.map_err(unsaid)?;
        let mut flaws = Vec::new();
        if status.healthz != api::HEALTHY {
            flaws.push(Flaw::Healthz(status.healthz.clone()));
        }
        flaws.extend(self.check_version(&status.version).err());
        match check_key_id(&status.key_id) {
            Err(failure) => {
                let code = if status.key_id.is_empty() { "empty" } else { "too_long" };
                self.metrics.key_invalid(name, code);
                flaws.push(Flaw::KeyId { hash: hash(status.key_id.as_bytes()), why: plain(&failure) });
            }
            Ok(()) => {
                self.metrics.key_named(name, &status.key_id, self.clock.now());
                flaws.extend(self.renew(&status.key_id).await.err());
            }
        }
        if flaws.is_empty() { Ok(()) } else { Err(Unwell::Flaws { name: name.clone(), flaws }) }
    }

    fn check_version(&self, said: &str) -> Result<(), Flaw> {
        if !VERSIONS.contains(&said) {
            return Err(Flaw::Version(said.to_owned()));
        }
        let mut version = self.version.lock();
        let first = version.get_or_insert_with(|| said.to_owned());
        if first == said {
            return Ok(());
        }
        Err(Flaw::OtherVersion { first: first.clone(), said: said.to_owned() })
    }

    /// Keeps the seed as long as the plugin names the same key, and makes a new one when it names another. Whatever
    /// fails, the old seed stays until it expires.
    async fn renew(&self, key_id: &str) -> Result<(), Flaw> {
        let expires = self.clock.now().saturating_add(WRITES_MAX).unwrap_or(Timestamp::MAX);
        let held = {
            let mut state = self.state.write();
            if let Some(state) = state.as_mut().filter(|state| state.envelope.key_id == key_id) {
                state.expires = expires;
                return Ok(());
            }
            state.as_ref().map(|state| state.envelope.key_id.clone()).unwrap_or_default()
        };
        let made = self.new_seed().await;
        let unmade = match made {
            Ok((seed, envelope)) if envelope.key_id == key_id => {
                info!(
                    provider = self.name,
                    key_id_hash = hash(key_id.as_bytes()),
                    "a new seed for a new key"
                );
                let seed = Arc::new(Reader::Seed(seed));
                self.remember(envelope.seed_id(), Arc::clone(&seed));
                *self.state.write() = Some(State { seed, envelope, expires });
                return Ok(());
            }
            Ok((_, envelope)) => Unmade::OtherKey(hash(envelope.key_id.as_bytes())),
            Err(error) => Unmade::Seed(error),
        };
        let (status_key_id_hash, state_key_id_hash) = (hash(key_id.as_bytes()), hash(held.as_bytes()));
        Err(Flaw::Rotate { unmade, status_key_id_hash, state_key_id_hash })
    }

    async fn new_seed(&self) -> Result<(Seed, EncryptedObject), SeedError> {
        let started = std::time::Instant::now();
        let bytes = random::<SEED_BYTES>();
        self.metrics.key_generated(started, bytes.is_ok());
        let bytes = bytes?;
        let seed = Seed::new(&bytes).ok_or(EnvelopeError::Seed(bytes.len()))?;
        let answer = self
            .client
            .encrypt(bytes.to_vec())
            .await
            .map_err(|status| SeedError::Encrypt(Rpc::from(&status)))?;
        let envelope = EncryptedObject {
            encrypted_data: Vec::new(),
            key_id: answer.key_id,
            encrypted_dek_source: answer.ciphertext,
            annotations: answer.annotations,
            encrypted_dek_source_type: HKDF_SHA256_XNONCE_AES_GCM_SEED,
        };
        envelope.check_seed()?;
        Ok((seed, envelope))
    }

    /// Appends the envelope of a sealed value.
    pub(crate) fn seal(&self, plain: &[u8], place: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let (now, state) = (self.clock.now(), self.state.read().clone());
        let refused = |error: SealError| {
            self.fail();
            error
        };
        let state = state.ok_or(SealError::NotReady).map_err(refused)?;
        let mut envelope = state.envelope;
        if now > state.expires {
            let key_id_hash = hash(envelope.key_id.as_bytes());
            let (at, now) = (state.expires.to_string(), now.to_string());
            return Err(refused(SealError::Expired { key_id_hash, at, now }));
        }
        if let Reader::Seed(seed) = state.seed.as_ref() {
            seed.seal(plain, place, &mut envelope.encrypted_data)?;
        }
        self.metrics.key_used(Direction::ToStorage, &self.name, &envelope.key_id, now);
        envelope.encode(out).map_err(|_| SealError::TooLarge)
    }

    /// Opens an envelope whose seed is known; says whether it is stale.
    pub(crate) fn open(self: &Arc<Self>, stored: &[u8], place: &[u8]) -> Result<(Vec<u8>, bool), Blocked> {
        let object = EncryptedObject::open(stored).map_err(OpenError::from)?;
        let (is_current, own) = {
            let state = self.state.read();
            let Some(state) = state.as_ref() else {
                self.fail();
                return Err(OpenError::NotReady.into());
            };
            let is_own = state.envelope.encrypted_dek_source == object.encrypted_dek_source;
            (object.key_id == state.envelope.key_id, is_own.then(|| Arc::clone(&state.seed)))
        };
        let known = || self.seeds.lock().get(&object.seed_id()).map(|(reader, _)| Arc::clone(reader));
        let Some(reader) = own.or_else(known) else {
            return Err(Blocked::Seed(Arc::clone(self), object));
        };
        self.metrics.key_used(Direction::FromStorage, &self.name, &object.key_id, self.clock.now());
        let plain = reader.open(&object.encrypted_data, place)?;
        let is_stale = !is_current || object.encrypted_dek_source_type != HKDF_SHA256_XNONCE_AES_GCM_SEED;
        Ok((plain, is_stale))
    }

    /// Has the plugin decrypt the seed of an envelope.
    pub(crate) async fn fetch(&self, object: EncryptedObject) -> Result<(), OpenError> {
        self.metrics.cache_miss();
        let id = object.seed_id();
        let request = api::DecryptRequest {
            ciphertext: object.encrypted_dek_source,
            uid: String::new(),
            key_id: object.key_id,
            annotations: object.annotations,
        };
        let secret = self.client.decrypt(request).await.map_err(|status: Status| {
            self.fail();
            OpenError::Plugin(Rpc::from(&status))
        })?;
        let wrong = || OpenError::from(EnvelopeError::Seed(secret.len()));
        let reader = if object.encrypted_dek_source_type == HKDF_SHA256_XNONCE_AES_GCM_SEED {
            Reader::Seed(Seed::new(&secret).ok_or_else(wrong)?)
        } else {
            Reader::Key(Box::new(Gcm::new(&secret).ok_or_else(wrong)?))
        };
        self.remember(id, Arc::new(reader));
        debug!(provider = self.name, "the KMS plugin decrypted a seed");
        Ok(())
    }

    fn remember(&self, id: SeedId, reader: Arc<Reader>) {
        let mut seeds = self.seeds.lock();
        seeds.retain(|_, (_, since)| since.elapsed() < SEED_KEPT);
        if seeds.len() >= SEEDS_MAX
            && let Some(oldest) = seeds.iter().min_by_key(|(_, (_, since))| *since).map(|(id, _)| id.clone())
        {
            seeds.remove(&oldest);
        }
        seeds.insert(id, (reader, Instant::now()));
        self.metrics.seeds_known(&self.name, seeds.len());
    }

    /// Somebody was sent away: look soon whether the plugin is well, and tell when it is.
    fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
        self.look.notify_one();
    }
}

/// Without the words that say where it was looked for.
fn plain(failure: &EnvelopeError) -> String {
    let text = failure.to_string();
    text.trim_start_matches("failed to validate key id: ").to_owned()
}

/// Why a value is not open yet.
pub(crate) enum Blocked {
    /// For good.
    Failed(OpenError),
    /// The plugin must be asked for the seed; then it is worth another try.
    Seed(Arc<Provider>, EncryptedObject),
}

impl From<OpenError> for Blocked {
    fn from(error: OpenError) -> Self {
        Self::Failed(error)
    }
}
