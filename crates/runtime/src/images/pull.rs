//! Images from registries.
//!
//! Several who want the same image with the same credentials at once share one pull; who has other credentials asks the
//! registry for himself, and shares the layers. A few layers are downloaded and unpacked at the same time. What a pull
//! that broke off has downloaded stays for the next one ([`downloads`]). The image is in the index when all of it is on disk.
//!
//! An image that was imported needs no registry: while none answers, asking for it again gives what was imported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::try_join_all;
use parking_lot::Mutex;
use registry::document::{Descriptor, Platform};
use registry::{Client, Credentials, Digest, Reference, Registries, RetryPolicy, Session};
use tokio::sync::{Semaphore, watch};

use super::import::{ImageDocument, add_layer};
use super::{Image, ImageError, ImageStore, downloads};

/// Layers that are downloaded and unpacked at the same time. Source: containerd's `max_concurrent_downloads`.
const LAYERS_AT_ONCE: usize = 3;
/// How often a pull begins anew because somebody removed layers meanwhile.
const ROUNDS_MAX: usize = 3;
/// How long a registry is waited for that has a newer version, perhaps, of what was imported.
const IMPORTED_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a registry that did not answer then is not asked again for what was imported.
const SILENCE_REMEMBERED: Duration = Duration::from_secs(60);
/// Largest sum of an image's compressed layers.
const IMAGE_BYTES_MAX: u64 = 256 << 30;

/// The reason why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The name cannot be parsed.
    #[error("invalid image name {0:?}")]
    Name(String, #[source] registry::reference::ReferenceError),
    /// The registry, or the way to it.
    #[error("failed to pull and unpack image \"{0}\"")]
    Registry(String, #[source] registry::Error),
    /// What came is no image, or the disk failed.
    #[error("failed to pull and unpack image \"{0}\"")]
    Image(String, #[source] ImageError),
    /// The process is about to end.
    #[error("the pull of image \"{0}\" was stopped")]
    Stopped(String),
}

impl PullError {
    /// Nobody answers: it may be better later.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Registry(_, error) if error.is_transient())
    }

    /// There is no such image.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Registry(_, registry::Error::NotFound(_)))
    }
}

/// The progress of a pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Of the image; 0 until that is known.
    pub layers: usize,
    /// Unpacked, or there before.
    pub layers_done: usize,
    /// Of all layers, compressed.
    pub bytes: u64,
    /// Downloaded, or not needed.
    pub bytes_done: u64,
}

/// The settings of pulls, and the store that images are pulled to.
pub struct PullerConfig {
    /// `registries.yaml`; read again whenever it has changed.
    pub registries: PathBuf,
    /// The set that pulls run in.
    pub tasks: base::Tasks,
    /// Wall clock.
    pub clock: base::Clock,
    /// For names and delays.
    pub random: base::Random,
}

type Outcome = Option<Result<Image, Arc<PullError>>>;
type Key = (String, Option<Credentials>);

/// A puller of images into a store. Cloning shares it.
#[derive(Clone)]
pub struct Puller(Arc<Inner>);

struct Inner {
    store: Arc<ImageStore>,
    config: PullerConfig,
    client: Mutex<Option<(Stamps, Arc<Client>)>>,
    slots: Semaphore,
    pulls: Mutex<BTreeMap<Key, Pull>>,
    layers: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// When registries of imported images did not answer.
    silent: Mutex<BTreeMap<String, jiff::Timestamp>>,
}

#[derive(Clone)]
struct Pull {
    outcome: watch::Receiver<Outcome>,
    progress: watch::Receiver<Progress>,
}

impl Puller {
    /// Pulls into `store`.
    pub fn new(store: Arc<ImageStore>, config: PullerConfig) -> Self {
        Self(Arc::new(Inner {
            store,
            config,
            client: Mutex::default(),
            slots: Semaphore::new(LAYERS_AT_ONCE),
            pulls: Mutex::default(),
            layers: Mutex::default(),
            silent: Mutex::default(),
        }))
    }

    /// Reads the settings now, to find out early whether they are right.
    ///
    /// # Errors
    /// They are not.
    pub fn check_settings(&self) -> Result<(), registry::Error> {
        self.0.client().map(drop)
    }

    /// Has the image, as the registry has it now. `progress` is told how far it is.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn pull(
        &self,
        name: &str,
        credentials: Option<Credentials>,
        mut progress: impl FnMut(Progress),
    ) -> Result<Image, Arc<PullError>> {
        let reference: Reference =
            name.parse().map_err(|error| Arc::new(PullError::Name(name.to_owned(), error)))?;
        let full = reference.to_string();
        let Pull { mut outcome, progress: mut steps } = self.0.start(reference, credentials);
        loop {
            tokio::select! {
                biased;
                done = outcome.wait_for(Option::is_some) => {
                    // How far it has come at last may not have been told yet.
                    let last = steps.borrow_and_update();
                    let (last, is_news) = (*last, last.has_changed());
                    if is_news {
                        progress(last);
                    }
                    let done = done.ok().and_then(|done| done.clone());
                    return done.unwrap_or_else(|| Err(Arc::new(PullError::Stopped(full))));
                }
                Ok(()) = steps.changed() => progress(*steps.borrow_and_update()),
            }
        }
    }

    /// The progress of the pull of `name`, if there is one.
    pub fn progress(&self, name: &str) -> Option<Progress> {
        let full = super::full_name(name)?;
        let pulls = self.0.pulls.lock();
        let found = pulls.iter().find(|((name, _), _)| *name == full);
        found.map(|(_, pull)| *pull.progress.borrow())
    }
}

impl Inner {
    /// The pull that is under way, or a new one.
    fn start(self: &Arc<Self>, reference: Reference, credentials: Option<Credentials>) -> Pull {
        let key = (reference.to_string(), credentials.clone());
        let mut pulls = self.pulls.lock();
        if let Some(pull) = pulls.get(&key) {
            return pull.clone();
        }
        let (outcome, progress) = (watch::Sender::new(None), watch::Sender::new(Progress::default()));
        let pull = Pull { outcome: outcome.subscribe(), progress: progress.subscribe() };
        pulls.insert(key.clone(), pull.clone());
        let listed = Listed { inner: Arc::clone(self), key };
        self.config.tasks.spawn("image pull", async move {
            let result = listed.inner.run(reference, credentials, &progress).await;
            // Not found any more before it is told: who comes now asks anew.
            drop(listed);
            outcome.send_replace(Some(result.map_err(Arc::new)));
        });
        pull
    }

    async fn run(
        self: &Arc<Self>,
        reference: Reference,
        credentials: Option<Credentials>,
        progress: &watch::Sender<Progress>,
    ) -> Result<Image, PullError> {
        let full = reference.to_string();
        let from_registry = |error: registry::Error| PullError::Registry(full.clone(), error);
        let from_store = |error: ImageError| PullError::Image(full.clone(), error);
        let known = self.store.find(&full);
        let imported = known.filter(|image| image.names.contains(&full) && !image.pulled.contains(&full));
        let client = self.client().map_err(from_registry)?;
        let session = |credentials, retry_policy| {
            client.session(reference.clone(), credentials, retry_policy).map(Arc::new)
        };
        let (session, found) = match imported {
            Some(image) => {
                let session = session(credentials, RetryPolicy::None).map_err(from_registry)?;
                match self.newer_than_imported(&session).await {
                    Some(found) => (session, found),
                    None => return Ok(image),
                }
            }
            None => {
                let session = session(credentials, RetryPolicy::Usual).map_err(from_registry)?;
                let found = session.digest().await;
                (session, found)
            }
        };
        let digest = found.map_err(|error| {
            from_registry(error.within(&format!("failed to resolve reference \"{full}\"")))
        })?;
        let names = BTreeSet::from([full.clone(), reference.at(&digest)]);
        if let Some(image) = self.store.find(&reference.at(&digest)) {
            let image = Image { pulled: names.clone(), names: names.clone(), ..image };
            match self.add(image).await {
                Err(ImageError::LayersGone) => {}
                other => return other.map_err(from_store),
            }
        }
        for _ in 0..ROUNDS_MAX {
            let image = self.fetch(&session, &digest, &names, progress).await?;
            match self.add(image).await {
                Err(ImageError::LayersGone) => {}
                other => return other.map_err(from_store),
            }
        }
        Err(from_store(ImageError::LayersGone))
    }

    /// What the registry of an imported image says; `None` if it does not answer, now or a short while ago.
    async fn newer_than_imported(&self, session: &Session) -> Option<Result<Digest, registry::Error>> {
        let registry = session.reference().registry.clone();
        let now = self.config.clock.now();
        let silent_since = self.silent.lock().get(&registry).copied();
        if silent_since.is_some_and(|since| now.duration_since(since).unsigned_abs() < SILENCE_REMEMBERED) {
            return None;
        }
        match tokio::time::timeout(IMPORTED_TIMEOUT, session.digest()).await {
            Ok(Ok(digest)) => Some(Ok(digest)),
            Ok(Err(error)) if !error.is_transient() => Some(Err(error)),
            silence => {
                tracing::debug!(registry, ?silence, "no registry answers: what was imported is taken");
                self.silent.lock().insert(registry, now);
                None
            }
        }
    }

    /// Has all layers; the image is not in the index yet.
    async fn fetch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        digest: &Digest,
        names: &BTreeSet<String>,
        progress: &watch::Sender<Progress>,
    ) -> Result<Image, PullError> {
        let full = session.reference().to_string();
        let from_registry = |error: registry::Error| PullError::Registry(full.clone(), error);
        let from_store = |error: ImageError| PullError::Image(full.clone(), error);
        let resolved = session.image(digest, &Platform::host()).await.map_err(from_registry)?;
        let document = ImageDocument::parse(&resolved.config).map_err(from_store)?;
        let descriptors = &resolved.manifest.layers;
        check_layers(descriptors, &document).map_err(from_store)?;
        let this = Arc::clone(self);
        let _busy = blocking(move || this.store.busy()).await.map_err(from_store)?;
        let wanted = self.store.want(&document.layers);
        let bytes = descriptors.iter().map(|layer| layer.size).sum();
        progress.send_replace(Progress { layers: descriptors.len(), bytes, ..Progress::default() });
        let mut layers = Vec::new();
        for (descriptor, layer) in descriptors.iter().zip(&document.layers) {
            let session = Arc::clone(session);
            let job =
                Arc::clone(self).fetch_layer(session, descriptor.clone(), layer.clone(), progress.clone());
            layers.push(job);
        }
        let fetched = try_join_all(layers).await;
        let this = Arc::clone(self);
        let clear = move || {
            this.store.clear_downloads(this.config.clock.now().into());
            Ok(())
        };
        blocking(clear).await.map_err(from_store)?;
        fetched?;
        let sizes = document.layers.iter().filter_map(|layer| self.store.layer_size(layer));
        let image = Image {
            id: resolved.manifest.config.digest.to_string(),
            names: names.clone(),
            pulled: names.clone(),
            size_bytes: sizes.sum(),
            layers: document.layers.clone(),
            config: document.config,
            is_pinned: false,
        };
        drop(wanted);
        Ok(image)
    }

    async fn fetch_layer(
        self: Arc<Self>,
        session: Arc<Session>,
        descriptor: Descriptor,
        layer: String,
        progress: watch::Sender<Progress>,
    ) -> Result<(), PullError> {
        let full = session.reference().to_string();
        let from_store = |error: ImageError| PullError::Image(full.clone(), error);
        let alone = self.lock_of(&layer);
        let _alone = alone.lock().await;
        let there = || {
            progress.send_modify(|it| {
                it.layers_done += 1;
                it.bytes_done += descriptor.size;
            });
        };
        if self.store.layer_size(&layer).is_some() {
            there();
            return Ok(());
        }
        let _slot = self.slots.acquire().await.map_err(|_| PullError::Stopped(full.clone()))?;
        let path = self.store.download(&descriptor.digest);
        let locked = path.clone();
        let lock = blocking(move || downloads::lock(&locked)).await.map_err(from_store)?;
        // Another process may have had it in hand.
        if self.store.layer_size(&layer).is_some() {
            there();
            return downloads::remove(&path, lock).map_err(from_store);
        }
        let told = |bytes: i64| {
            progress.send_modify(|it| it.bytes_done = it.bytes_done.saturating_add_signed(bytes));
        };
        let loaded = session.blob(&descriptor, &path, &told).await;
        loaded.map_err(|error| PullError::Registry(full.clone(), error))?;
        let this = Arc::clone(&self);
        let unpacked = blocking(move || {
            let file = fs::File::open(&path).map_err(ImageError::io("open a download"))?;
            let added = add_layer(&this.store, io::BufReader::new(file), &layer, &this.config.random);
            downloads::remove(&path, lock)?;
            added
        });
        unpacked.await.map_err(from_store)?;
        progress.send_modify(|it| it.layers_done += 1);
        Ok(())
    }

    async fn add(self: &Arc<Self>, image: Image) -> Result<Image, ImageError> {
        let this = Arc::clone(self);
        blocking(move || this.store.add_if_whole(image)).await
    }

    /// Who has it is alone at work on that layer, in this process.
    fn lock_of(&self, layer: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut layers = self.layers.lock();
        layers.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = layers.get(layer).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        layers.insert(layer.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// A client by the settings as they are now.
    fn client(&self) -> Result<Arc<Client>, registry::Error> {
        let mut client = self.client.lock();
        if let Some((stamps, client)) = client.as_ref()
            && stamps.are_current()
        {
            return Ok(Arc::clone(client));
        }
        let path = &self.config.registries;
        let mut stamps = Stamps::of([path.as_path()].into_iter());
        let registries = Registries::load(path)?;
        stamps.0.extend(Stamps::of(registries.files()).0);
        let made = Arc::new(Client::new(registries, self.config.random.clone()));
        *client = Some((stamps, Arc::clone(&made)));
        Ok(made)
    }
}

/// A pull that others find, until this is dropped.
struct Listed {
    inner: Arc<Inner>,
    key: Key,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.inner.pulls.lock().remove(&self.key);
    }
}

/// Tells a version of the settings' files from the next.
struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

/// Inode, length, time of change in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

impl Stamps {
    fn of<'a>(paths: impl Iterator<Item = &'a Path>) -> Self {
        Self(paths.map(|path| (path.to_owned(), stamp(path))).collect())
    }

    fn are_current(&self) -> bool {
        self.0.iter().all(|(path, before)| stamp(path) == *before)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}

/// Whether manifest and configuration agree, and the layers are of a kind that can be unpacked.
fn check_layers(descriptors: &[Descriptor], document: &ImageDocument) -> Result<(), ImageError> {
    let (layers, digests) = (descriptors.len(), document.layers.len());
    if layers != digests {
        return Err(ImageError::Invalid(format!("{layers} layers but {digests} digests")));
    }
    let size = descriptors.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
    if size > IMAGE_BYTES_MAX {
        return Err(ImageError::TooLarge(IMAGE_BYTES_MAX));
    }
    let is_tar = |kind: &str| {
        kind.is_empty()
            || ["tar", "tar+gzip", "tar.gzip", "tar+zstd", "tar.zstd"].iter().any(|it| kind.ends_with(it))
    };
    match descriptors.iter().find(|layer| !is_tar(&layer.media_type)) {
        Some(layer) => Err(ImageError::Invalid(format!("unsupported layer {:?}", layer.media_type))),
        None => Ok(()),
    }
}

async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let joined = tokio::task::spawn_blocking(f).await;
    joined.unwrap_or_else(|error| Err(ImageError::io("work on an image")(io::Error::other(error))))
}

#[cfg(test)]
mod tests;
