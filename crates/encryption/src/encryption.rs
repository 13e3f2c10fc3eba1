//! The configuration at work: which chain of providers a kind has, and how another configuration takes over.
//!
//! Source: upstream's `encryptionconfig.DynamicTransformers`. A value that the new configuration cannot open is told by
//! an error; a configuration that cannot be used leaves the old one in place.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Tasks};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tracing::info;

use crate::PREFIX;
use crate::chain::{Chain, Link, Target};
use crate::cipher::{Cbc, Cipher, Gcm};
use crate::config::{Config, ConfigError, GroupResource, Keys, Kms, ProviderConfiguration};
use crate::errors::{OpenError, SealError};
use crate::kms::client::Client;
use crate::kms::health::{Unhealthy, UnwellProvider};
use crate::kms::provider::{Blocked, Provider};
use crate::metrics::Metrics;

/// How long the plugins of a new configuration may take to be well. Source: `minKMSPluginCloseGracePeriod`.
const WELL_WITHIN: Duration = Duration::from_secs(10);
/// How many seeds one value may need: one, unless it is forgotten in between.
const FETCHES_MAX: usize = 3;

/// A configuration that was set up.
struct Loaded {
    /// Group, then resource.
    chains: HashMap<String, HashMap<String, Arc<Chain>>>,
    providers: Vec<Arc<Provider>>,
    tasks: Tasks,
    text_hash: [u8; 32],
}

impl Loaded {
    /// The kind's own rule counts before that of its group, and that before the rule for everything.
    fn chain(&self, group: &str, resource: &str) -> Option<&Arc<Chain>> {
        let of_group = self.chains.get(group);
        let own = of_group.and_then(|rules| rules.get(resource).or_else(|| rules.get("*")));
        own.or_else(|| self.chains.get("*")?.get("*"))
    }
}

/// Encryption at rest of one server.
pub struct Encryption {
    loaded: RwLock<Arc<Loaded>>,
    metrics: Metrics,
    clock: Clock,
    tasks: Tasks,
    changed: watch::Sender<u64>,
    is_reloaded: bool,
    reloading: Mutex<()>,
}

impl Encryption {
    /// Sets `config` up; without one, nothing is encrypted. KMS plugins are asked once before this returns, and
    /// followed from then on; one that is not there yet is no error. `is_reloaded`: whether there will be others.
    pub async fn start(
        config: Option<&Config>,
        is_reloaded: bool,
        apiserver_id: &str,
        registry: &base::Metrics,
        clock: Clock,
        tasks: &Tasks,
    ) -> Self {
        let metrics = Metrics::new(registry, apiserver_id);
        let changed = watch::Sender::new(0);
        let empty = Loaded {
            chains: HashMap::new(),
            providers: Vec::new(),
            tasks: tasks.child(),
            text_hash: [0; 32],
        };
        let encryption = Self {
            loaded: RwLock::new(Arc::new(empty)),
            metrics,
            clock,
            tasks: tasks.clone(),
            changed,
            is_reloaded,
            reloading: Mutex::new(()),
        };
        if let Some(config) = config {
            let loaded = encryption.set_up(config);
            for provider in &loaded.providers {
                // What is wrong was logged, and shows in the health of the server.
                provider.check().await.ok();
            }
            encryption.replace(loaded, config);
        }
        encryption
    }

    /// The transformer of a kind's values.
    pub fn transformer(&self, group: &str, resource: &str) -> Transformer {
        Transformer { chain: self.loaded.read().chain(group, resource).map(Arc::clone) }
    }

    /// Counts up whenever values that could not be opened may be opened now.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// `true` if the server's health depends on plugins, or may from the next configuration on.
    pub fn has_health(&self) -> bool {
        self.is_reloaded || !self.loaded.read().providers.is_empty()
    }

    /// The health of the plugins.
    ///
    /// # Errors
    /// What is wrong with those that are not well.
    pub async fn health(&self) -> Result<(), Unhealthy> {
        let providers = self.loaded.read().providers.clone();
        health(&providers).await
    }

    /// Takes another configuration; says whether it is another one.
    ///
    /// # Errors
    /// If it cannot be used: its file is broken, or a plugin is not well. Then nothing changes.
    pub async fn reload(&self, text: &[u8]) -> Result<bool, ConfigError> {
        let outcome = self.try_reload(text).await;
        if !matches!(outcome, Ok(false)) {
            self.metrics.reloaded(outcome.is_ok(), self.clock.now());
        }
        outcome
    }

    async fn try_reload(&self, text: &[u8]) -> Result<bool, ConfigError> {
        let config = Config::parse(text, true)?;
        if self.loaded.read().text_hash == config.text_hash {
            return Ok(false);
        }
        let loaded = self.set_up(&config);
        let deadline = tokio::time::Instant::now() + WELL_WITHIN;
        while let Err(failure) = health(&loaded.providers).await {
            if tokio::time::Instant::now() >= deadline {
                loaded.tasks.stop();
                return Err(ConfigError::Unhealthy(failure));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.replace(loaded, &config);
        info!("another encryption configuration counts from now on");
        Ok(true)
    }

    fn replace(&self, loaded: Loaded, config: &Config) {
        let _one_at_a_time = self.reloading.lock();
        for provider in &loaded.providers {
            loaded.tasks.spawn("kms-provider", Arc::clone(provider).follow());
        }
        self.metrics.config(&config.text_hash);
        let old = std::mem::replace(&mut *self.loaded.write(), Arc::new(loaded));
        // Who still opens a value with it keeps what is needed for that.
        old.tasks.stop();
        self.changed.send_modify(|count| *count += 1);
    }

    fn set_up(&self, config: &Config) -> Loaded {
        let mut links: HashMap<GroupResource, Vec<Arc<Shared>>> = HashMap::new();
        let mut providers = Vec::new();
        for rule in &config.resources {
            let shared: Vec<Arc<Shared>> = rule
                .providers
                .iter()
                .map(|provider| Arc::new(self.shared(provider, &mut providers)))
                .collect();
            for text in &rule.resources {
                links.entry(GroupResource::parse(text)).or_default().extend(shared.iter().cloned());
            }
        }
        let mut chains: HashMap<String, HashMap<String, Arc<Chain>>> = HashMap::new();
        for (rule, shared) in links {
            let links = shared.iter().map(|shared| self.link(shared)).collect();
            let chain = Chain::new(links, "no matching prefix found", self.metrics.link("unknown"));
            chains.entry(rule.group).or_default().insert(rule.resource, Arc::new(chain));
        }
        Loaded { chains, providers, tasks: self.tasks.child(), text_hash: config.text_hash }
    }

    fn shared(&self, provider: &ProviderConfiguration, providers: &mut Vec<Arc<Provider>>) -> Shared {
        match provider {
            ProviderConfiguration { aesgcm: Some(keys), .. } => Shared::AesGcm(keys.clone()),
            ProviderConfiguration { aescbc: Some(keys), .. } => Shared::AesCbc(keys.clone()),
            ProviderConfiguration { secretbox: Some(keys), .. } => Shared::Secretbox(keys.clone()),
            ProviderConfiguration { kms: Some(kms), .. } => match self.provider(kms) {
                Some(provider) => {
                    providers.push(Arc::clone(&provider));
                    Shared::Kms(kms.name.clone(), provider)
                }
                None => Shared::Identity,
            },
            _ => Shared::Identity,
        }
    }

    fn provider(&self, kms: &Kms) -> Option<Arc<Provider>> {
        let client = Client::new(&kms.name, &kms.endpoint, kms.call_timeout(), self.metrics.clone())?;
        let (metrics, clock, changed) = (self.metrics.clone(), self.clock.clone(), self.changed.clone());
        Some(Arc::new(Provider::new(&kms.name, client, metrics, clock, changed)))
    }

    fn link(&self, shared: &Shared) -> Link {
        let keys = |prefix: &str, keys: &Keys, none, cipher: fn(&[u8]) -> Option<Cipher>| {
            let links = keys.keys.iter().filter_map(|key| {
                let prefix = format!("{}:", key.name);
                let cipher = cipher(&key.bytes()?)?;
                Some(Link::new(&prefix, Target::Cipher(cipher), self.metrics.link(&prefix)))
            });
            let chain = Chain::new(links.collect(), none, self.metrics.link("unknown"));
            Link::new(prefix, Target::Keys(chain), self.metrics.link(prefix))
        };
        const NO_AES_KEY: &str = "no matching key was found for the provided AES transformer";
        const NO_SECRETBOX_KEY: &str = "no matching key was found for the provided Secretbox transformer";
        match shared {
            Shared::AesGcm(of) => {
                keys("k8s:enc:aesgcm:v1:", of, NO_AES_KEY, |key| Some(Cipher::Gcm(Box::new(Gcm::new(key)?))))
            }
            Shared::AesCbc(of) => {
                keys("k8s:enc:aescbc:v1:", of, NO_AES_KEY, |key| Some(Cipher::Cbc(Cbc::new(key)?)))
            }
            Shared::Secretbox(of) => keys("k8s:enc:secretbox:v1:", of, NO_SECRETBOX_KEY, |key| {
                Some(Cipher::secretbox(key.try_into().ok()?))
            }),
            Shared::Identity => Link::new("", Target::Cipher(Cipher::Identity), self.metrics.link("")),
            Shared::Kms(name, provider) => {
                let prefix = format!("k8s:enc:kms:v2:{name}:");
                Link::new(&prefix, Target::Kms(Arc::clone(provider)), self.metrics.link(&prefix))
            }
        }
    }
}

/// A provider that several kinds may name.
enum Shared {
    AesGcm(Keys),
    AesCbc(Keys),
    Secretbox(Keys),
    Kms(String, Arc<Provider>),
    Identity,
}

async fn health(providers: &[Arc<Provider>]) -> Result<(), Unhealthy> {
    let mut failures = Vec::new();
    for (at, provider) in providers.iter().enumerate() {
        if let Err(why) = provider.check().await {
            failures.push(UnwellProvider { at, why });
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Unhealthy(failures)) }
}

/// The transformation of one kind's values, under one configuration.
pub struct Transformer {
    chain: Option<Arc<Chain>>,
}

impl Transformer {
    /// `true` if the configuration says anything of the kind.
    pub fn is_configured(&self) -> bool {
        self.chain.is_some()
    }

    /// The bytes to store at `place`, the key of the store; the value itself for kinds that are not configured.
    ///
    /// # Errors
    /// If there is no randomness, or a KMS plugin has not been well for too long.
    pub fn seal<'a>(&self, place: &str, plain: &'a [u8]) -> Result<Cow<'a, [u8]>, SealError> {
        let Some(chain) = &self.chain else { return Ok(Cow::Borrowed(plain)) };
        let mut out = Vec::with_capacity(plain.len() + 128);
        chain.seal(plain, place.as_bytes(), &mut out)?;
        Ok(Cow::Owned(out))
    }

    /// The value that is stored at `place`, and whether it is stale: written in another way than it would be today.
    ///
    /// # Errors
    /// As [`OpenError`].
    pub async fn open<'a>(&self, place: &str, stored: &'a [u8]) -> Result<(Cow<'a, [u8]>, bool), OpenError> {
        let Some(chain) = &self.chain else {
            let is_plain = !stored.starts_with(PREFIX);
            return if is_plain { Ok((Cow::Borrowed(stored), false)) } else { Err(OpenError::Encrypted) };
        };
        for _ in 0..FETCHES_MAX {
            match chain.open(stored, place.as_bytes()) {
                Ok(opened) => return Ok((opened.plain, opened.is_stale)),
                Err(Blocked::Failed(failure)) => return Err(failure),
                Err(Blocked::Seed(provider, object)) => provider.fetch(object).await?,
            }
        }
        Err(OpenError::NotReady)
    }
}
