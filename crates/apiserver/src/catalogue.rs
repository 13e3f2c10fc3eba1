//! The served kinds, those of the moment, which can change while the server runs.
//!
//! A request pins one [`Snapshot`] and sees nothing else: what kinds there are, and with each of them its row, schema,
//! strategy, columns and cache; who serves a group-version instead; and the documents that tell clients of all that. A
//! change makes another snapshot, and what did not change is shared by both. Built-in kinds come by the same call as all
//! others, and stay.
//!
//! Invariants:
//! - A kind is in no snapshot before its cache holds what the store has of it (`cache/feed.rs`), so nobody waits for one.
//! - Objects that two kinds share are in one cache. It is gone with the last of them: what was pinned is then answered as
//!   what is not there, watches end, and with them goes the last memory of it.
//! - Changes happen one after the other, and each as a whole or not at all.

pub mod delegates;
pub mod discovery;
pub mod openapi;

pub mod priorities;
pub mod remote_discovery;
pub mod specification;

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extensions::expressions::with_expressions;
use parking_lot::RwLock;
use resources::Resource;
use schema::Schema;
use store::{Revision, StoreError};
use tokio::sync::{Mutex, watch};

use crate::cache::{Cache, Keys, ResourceCache, feed};
use crate::conversion::Conversion;
use crate::kinds::Kind;
pub use crate::kinds::Kinds;
use crate::object::StoredForm;
use crate::precondition::CreatePrecondition;
use crate::request_info::ResourceInfo;
pub use delegates::{Asked, Delegate, Told};
use priorities::Priorities;
use remote_discovery::RemoteDiscovery;

/// How long a request waits for an APIService that was written before it.
const FOLLOWED_MAX: Duration = Duration::from_secs(3);

/// The source of a kind.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Its row.
    pub row: Resource,
    /// The schema of its objects, if they have any.
    pub schema: Option<Schema>,
    /// The facts that only custom kinds have.
    pub custom: Option<Custom>,
}

/// The facts that all versions of a custom kind share.
#[derive(Clone, Debug)]
pub struct Custom {
    /// The form of its stored objects.
    pub form: StoredForm,
    /// The precondition that says whether more of them can be created.
    pub precondition: Arc<CreatePrecondition>,
    /// The webhook that converts them, if there is one.
    pub conversion: Option<Arc<Conversion>>,
}

impl Offer {
    /// A kind that is no custom one.
    pub fn new(row: Resource, schema: Option<Schema>) -> Self {
        Self { row, schema, custom: None }
    }

    /// The built-in kinds that this process serves, in discovery's order.
    pub fn builtin() -> Vec<Self> {
        let served = resources::table().iter().filter(|row| row.is_served());
        served.cloned().map(with_expressions).map(Self::of_builtin_schema).collect()
    }

    fn of_builtin_schema(row: Resource) -> Self {
        let schema = schema::builtin().kind(&row.group, &row.version, &row.kind).map(Schema::from);
        Self::new(row, schema)
    }
}

/// Names a kind: group, version and plural.
pub type Name<'a> = (&'a str, &'a str, &'a str);

/// The reason why the catalogue did not change.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Its name is another kind's.
    #[error("{0} is served already")]
    Taken(String),
    /// There is no such kind.
    #[error("{0} is not served")]
    Unknown(String),
    /// Its objects would lie among those of another kind.
    #[error("objects of {0} cannot be told from others by their keys: {1}")]
    Keys(String, String),
    /// Its objects cannot be read.
    #[error("the objects of new kinds cannot be loaded")]
    Store(#[from] StoreError),
}

/// Who serves group-versions instead of the catalogue's kinds.
#[derive(Clone, Default)]
struct Delegates {
    /// Parts of this process.
    own: Vec<Arc<dyn Delegate>>,
    /// Servers elsewhere, which come before them.
    remotes: Vec<Arc<dyn Delegate>>,
    /// In which order all are discovered.
    priorities: Arc<Priorities>,
}

impl Delegates {
    /// Those that serve: the first for each group-version.
    fn serving(&self) -> impl Iterator<Item = &Arc<dyn Delegate>> {
        let is_left = |own: &&Arc<dyn Delegate>| {
            self.remotes.iter().all(|remote| remote.group_version() != own.group_version())
        };
        self.remotes.iter().chain(self.own.iter().filter(is_left))
    }
}

/// The kinds of one moment, and what follows from them.
pub struct Snapshot {
    kinds: Kinds,
    delegates: Delegates,
    generation: u64,
    discovery: discovery::Documents,
    openapi: OnceLock<openapi::Documents>,
    /// Documents of the snapshot before, as far as anybody asked for them.
    earlier: openapi::Known,
}

/// The destination of a request for a resource.
#[derive(Clone)]
pub enum Route {
    /// To somebody who serves the whole group-version.
    Delegate(Arc<dyn Delegate>),
    /// To a kind of the catalogue.
    Kind(Kind),
}

impl Route {
    /// The kind, if it is known.
    pub fn kind(&self, plural: &str) -> Option<Kind> {
        match self {
            Self::Kind(kind) => Some(kind.clone()),
            Self::Delegate(delegate) => {
                delegate.kinds().iter().find(|kind| kind.resource() == plural).cloned()
            }
        }
    }
}

impl Deref for Snapshot {
    type Target = Kinds;

    fn deref(&self) -> &Kinds {
        &self.kinds
    }
}

impl Snapshot {
    fn new(kinds: Kinds, delegates: Delegates, before: Option<&Self>) -> Self {
        let earlier = before.map(|before| match before.openapi.get() {
            Some(documents) => documents.known(),
            None => before.earlier.clone(),
        });
        let mut earlier = earlier.unwrap_or_default();
        // Whoever keeps a kind keeps its objects.
        let is_here = |kind: &Kind| {
            kinds.find(kind.group(), kind.version(), kind.resource()).is_some_and(|found| found.is(kind))
        };
        earlier.retain(|_, document| document.kinds().iter().all(is_here));
        Self {
            kinds,
            delegates,
            generation: before.map_or(0, |before| before.generation + 1),
            discovery: discovery::Documents::default(),
            openapi: OnceLock::new(),
            earlier,
        }
    }

    /// Counts up with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The destination of a path: group-versions of others come before kinds.
    pub fn route(&self, resource: &ResourceInfo) -> Option<Route> {
        if let Some(delegate) = self.delegate(&resource.group, &resource.version) {
            return Some(Route::Delegate(Arc::clone(delegate)));
        }
        self.find(&resource.group, &resource.version, &resource.resource).cloned().map(Route::Kind)
    }

    /// The delegate that serves a group-version instead of the catalogue's kinds.
    pub fn delegate(&self, group: &str, version: &str) -> Option<&Arc<dyn Delegate>> {
        self.delegates.serving().find(|delegate| delegate.group_version() == (group, version))
    }

    /// The knowledge of a group-version that is served elsewhere.
    pub fn remote_discovery(&self, group: &str, version: &str) -> Option<&RemoteDiscovery> {
        self.delegate(group, version).and_then(|delegate| delegate.discovery())
    }

    /// All group-versions that are served elsewhere, and what is known of them.
    pub fn elsewhere(&self) -> impl Iterator<Item = ((&str, &str), &RemoteDiscovery)> {
        self.delegates
            .serving()
            .filter_map(|delegate| Some((delegate.group_version(), delegate.discovery()?)))
    }

    /// The groups that are served, in discovery's order, and the versions of each, best first.
    pub fn group_versions(&self) -> Vec<(&str, Vec<&str>)> {
        let kinds = self.kinds.iter().map(|kind| (kind.group(), kind.version()));
        let others = self.delegates.serving().map(|delegate| delegate.group_version());
        self.delegates.priorities.sorted(kinds.chain(others))
    }

    /// Everything that clients can discover: the catalogue's kinds, and then those of others.
    pub fn discoverable(&self) -> impl Iterator<Item = &Kind> {
        let own = |kind: &&Kind| self.delegate(kind.group(), kind.version()).is_none();
        self.kinds.iter().filter(own).chain(self.delegates.serving().flat_map(|delegate| delegate.kinds()))
    }

    /// The documents of discovery.
    pub fn discovery(&self) -> &discovery::Documents {
        &self.discovery
    }

    /// The documents of OpenAPI.
    pub fn openapi(&self) -> &openapi::Documents {
        self.openapi.get_or_init(|| openapi::Documents::of(self, &self.earlier))
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// The kinds that are served now.
pub struct Catalogue {
    cache: Arc<Cache>,
    current: RwLock<Arc<Snapshot>>,
    /// Whoever changes something has it.
    turn: Mutex<()>,
    /// Up to where APIServices are followed.
    followed: watch::Sender<Revision>,
}

impl Catalogue {
    /// A catalogue of nothing, whose objects will be in `cache`.
    pub fn new(cache: Arc<Cache>) -> Self {
        let nothing = Snapshot::new(Kinds::default(), Delegates::default(), None);
        Self {
            cache,
            current: RwLock::new(Arc::new(nothing)),
            turn: Mutex::default(),
            followed: watch::Sender::new(0),
        }
    }

    /// The snapshot of what is served now. It stays what it is as long as somebody has it.
    pub fn current(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read())
    }

    /// Serves more kinds, once their objects are at hand.
    ///
    /// # Errors
    /// As [`ChangeError`]; then nothing has changed.
    pub async fn add(&self, offers: Vec<Offer>) -> Result<(), ChangeError> {
        self.change(&[], offers).await
    }

    /// Serves kinds in another way than before.
    ///
    /// # Errors
    /// As [`ChangeError`]; then nothing has changed.
    pub async fn replace(&self, offers: Vec<Offer>) -> Result<(), ChangeError> {
        let names: Vec<_> = offers
            .iter()
            .map(|offer| (offer.row.group.clone(), offer.row.version.clone(), offer.row.plural.clone()))
            .collect();
        let names: Vec<Name<'_>> = names.iter().map(|(g, v, p)| (&**g, &**v, &**p)).collect();
        self.change(&names, offers).await
    }

    /// Serves kinds no more.
    ///
    /// # Errors
    /// If one is not served; then nothing has changed.
    pub async fn remove(&self, names: &[Name<'_>]) -> Result<(), ChangeError> {
        self.change(names, Vec::new()).await
    }

    /// Serves some kinds no more and others from now on, as one change.
    ///
    /// # Errors
    /// As [`ChangeError`]; then nothing has changed.
    pub async fn change(&self, gone: &[Name<'_>], offers: Vec<Offer>) -> Result<(), ChangeError> {
        let _turn = self.turn.lock().await;
        let before = self.current();
        let kept = without(&before, gone)?;
        check(&kept, &offers)?;
        let mut begun = Begun { cache: &self.cache, caches: Vec::new() };
        let mut all = kept;
        for offer in &offers {
            let cache = self.cache_of(offer, &offers, &before, &all, &mut begun);
            let precondition = offer.custom.as_ref().map(|custom| Arc::clone(&custom.precondition));
            let conversion = offer.custom.as_ref().and_then(|custom| custom.conversion.clone());
            let kind = Kind::new(offer.row.clone(), offer.schema.clone(), cache)
                .with_definition(precondition, conversion);
            let at = place(&all, &before, &kind);
            all.insert(at, kind);
        }
        feed::load(&self.cache).await?;
        // Who follows what goes is told of all that was committed before.
        if !gone.is_empty()
            && let Err(failure) = self.cache.fresh().await
        {
            tracing::warn!(failure = failure.message, "kinds go before watches are told of everything");
        }
        let after = Kinds::new(all);
        *self.current.write() =
            Arc::new(Snapshot::new(after.clone(), before.delegates.clone(), Some(&before)));
        // Not before nobody takes the old ones any more.
        begun.settle();
        let is_left = |kind: &&Kind| after.iter().all(|other| !Arc::ptr_eq(other.cache(), kind.cache()));
        let went = gone.iter().filter_map(|(group, version, plural)| before.find(group, version, plural));
        for kind in went.filter(is_left) {
            self.cache.end(kind.cache());
        }
        Ok(())
    }

    /// Hands a group-version to somebody, whatever kinds it may have.
    pub async fn delegate(&self, delegate: Arc<dyn Delegate>) {
        self.route_to(Some(&delegate), delegate.group_version()).await;
    }

    /// Takes a group-version back.
    pub async fn withdraw(&self, group_version: (&str, &str)) {
        self.route_to(None, group_version).await;
    }

    async fn route_to(&self, delegate: Option<&Arc<dyn Delegate>>, group_version: (&str, &str)) {
        self.change_delegates(|delegates| {
            delegates.own.retain(|other| other.group_version() != group_version);
            delegates.own.extend(delegate.cloned());
        })
        .await;
    }

    /// Hands group-versions to servers elsewhere, and takes back all those that they had; says in which order all are
    /// discovered.
    pub async fn register(&self, remotes: Vec<Arc<dyn Delegate>>, priorities: Priorities) {
        let delegates = &self.current().delegates;
        // That local ones are available changes nothing, and whoever knows documents of this snapshot keeps them.
        if remotes.is_empty() && delegates.remotes.is_empty() && *delegates.priorities == priorities {
            return;
        }
        let priorities = Arc::new(priorities);
        self.change_delegates(|delegates| {
            delegates.remotes = remotes;
            delegates.priorities = priorities;
        })
        .await;
    }

    /// Says that all APIServices up to a revision are followed.
    pub fn follows(&self, revision: Revision) {
        self.followed.send_replace(revision);
    }

    /// Waits until all APIServices up to a revision are followed: those that a client has written before it asks.
    pub async fn caught_up(&self, revision: Revision) {
        if revision <= *self.followed.borrow() {
            return;
        }
        let mut followed = self.followed.subscribe();
        let reached = followed.wait_for(|followed| *followed >= revision);
        if tokio::time::timeout(FOLLOWED_MAX, reached).await.is_err() {
            tracing::warn!(revision, "APIServices are not followed in time");
        }
    }

    async fn change_delegates(&self, change: impl FnOnce(&mut Delegates)) {
        let _turn = self.turn.lock().await;
        let before = self.current();
        let mut delegates = before.delegates.clone();
        change(&mut delegates);
        *self.current.write() = Arc::new(Snapshot::new(before.kinds.clone(), delegates, Some(&before)));
    }

    /// The cache for an offer: that of kinds with the same objects, unless these are to be read in another form than before,
    /// or other fields of them are to be found by; else a new one.
    fn cache_of(
        &self,
        Offer { row, custom, .. }: &Offer,
        offers: &[Offer],
        before: &Snapshot,
        all: &[Kind],
        begun: &mut Begun<'_>,
    ) -> Arc<ResourceCache> {
        if !row.is_stored() {
            return Arc::new(ResourceCache::new(Keys::of_row(row), 0));
        }
        let prefix = &*row.storage_prefix;
        if let Some(kind) = all.iter().find(|kind| kind.prefix() == prefix) {
            return Arc::clone(kind.cache());
        }
        let stored = offers.iter().map(|offer| &offer.row).find(|one| {
            one.storage_prefix == row.storage_prefix && one.storage_api_version == one.api_version()
        });
        let form = custom.as_ref().map(|custom| custom.form.clone());
        // Of objects that are found by fields those of the version in whose form they are stored are kept.
        let is_found = |kind: &Kind| match stored {
            Some(row) => kind.is_stored_form() && kind.row().selectable_fields == row.selectable_fields,
            None => custom.is_some(),
        };
        let mut known = before.iter().filter(|kind| kind.prefix() == prefix);
        if let Some(kind) = known.find(|kind| kind.cache().keys().form == form && is_found(kind)) {
            return Arc::clone(kind.cache());
        }
        let cache = self.cache.begin(Keys { form, ..Keys::of_row(row) });
        begun.caches.push(Arc::clone(&cache));
        cache
    }
}

/// Caches that are new, and end with whoever made them, unless they are settled.
struct Begun<'a> {
    cache: &'a Cache,
    caches: Vec<Arc<ResourceCache>>,
}

impl Begun<'_> {
    fn settle(mut self) {
        std::mem::take(&mut self.caches).iter().for_each(|cache| self.cache.settle(cache));
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.caches.iter().for_each(|cache| self.cache.end(cache));
    }
}

/// The kinds of a snapshot apart from some.
fn without(before: &Snapshot, gone: &[Name<'_>]) -> Result<Vec<Kind>, ChangeError> {
    if let Some((group, version, plural)) =
        gone.iter().find(|(group, version, plural)| before.find(group, version, plural).is_none())
    {
        return Err(ChangeError::Unknown(format!("{plural}.{version}.{group}")));
    }
    let stays = |kind: &&Kind| !gone.contains(&(kind.group(), kind.version(), kind.resource()));
    Ok(before.iter().filter(stays).cloned().collect())
}

/// Whether all names are different, and all keys belong to one kind.
fn check(kept: &[Kind], offers: &[Offer]) -> Result<(), ChangeError> {
    let mut rows: Vec<&Resource> = kept.iter().map(Kind::row).collect();
    for Offer { row, .. } in offers {
        let shown = || format!("{}.{}.{}", row.plural, row.version, row.group);
        let is_taken = |other: &&Resource| {
            (&other.group, &other.version) == (&row.group, &row.version)
                && (other.plural == row.plural || other.kind == row.kind)
        };
        if rows.iter().any(is_taken) {
            return Err(ChangeError::Taken(shown()));
        }
        let prefix = &*row.storage_prefix;
        if row.is_stored() && !(prefix.ends_with('/') && matches!(prefix.matches('/').count(), 3 | 4)) {
            return Err(ChangeError::Keys(shown(), prefix.to_owned()));
        }
        let is_among = |other: &&Resource| {
            let other = &*other.storage_prefix;
            let is_either = other.starts_with(prefix) || prefix.starts_with(other);
            !other.is_empty() && other != prefix && is_either
        };
        if let Some(other) = rows.iter().filter(|_| row.is_stored()).find(|other| is_among(other)) {
            return Err(ChangeError::Keys(shown(), other.storage_prefix.to_string()));
        }
        rows.push(row);
    }
    Ok(())
}

/// Where a kind comes in discovery's order: where it was, else behind the others of its group, else at the end.
fn place(all: &[Kind], before: &Snapshot, kind: &Kind) -> usize {
    let is_it = |other: &&Kind| {
        (other.group(), other.version(), other.resource()) == (kind.group(), kind.version(), kind.resource())
    };
    let follower = before
        .iter()
        .skip_while(|other| !is_it(other))
        .skip(1)
        .find_map(|next| all.iter().position(|one| one.is(next)));
    if let Some(at) = follower {
        return at;
    }
    all.iter().rposition(|other| other.group() == kind.group()).map_or(all.len(), |at| at + 1)
}
