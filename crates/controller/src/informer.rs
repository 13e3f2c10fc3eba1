//! Shared informers: one LIST and one WATCH per resource, scope and process, whoever asks.
//!
//! An informer holds every object as an `Arc`, an index by controller owner, and the newest revision it has
//! seen. Subscribers get changes coalesced per key, so a slow one costs memory per object, never per event.
//! Invariant: what `get` and `list` show and what subscribers are told move together, in revision order.

mod reflector;

mod decode;
mod follower;
mod held;
mod room;
mod shared;
mod snug;
mod trim;
mod unread;

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, Weak};

use base::{Clock, Random, Tasks};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata, Resource};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::metrics::ClientMetrics;
use crate::plan::EventType;
use crate::record::Recorder;
use crate::resource_ref::ResourceRef;
use crate::sender::Sender;
use decode::Identity;
pub use decode::known;
use follower::Follower;
pub(crate) use follower::Followers;
pub use follower::STALLED_AFTER;
pub use held::Held;
use reflector::{Form, Reflector};
pub(crate) use room::Room;
use shared::Shared;
pub use shared::{Change, Changes};
pub use unread::Unread;

/// The reason of the events on objects that a part of ours cannot decode.
pub const UNDECODABLE: &str = "FailedDecoding";

/// A type that an informer can hold.
pub trait Kind:
    Resource<Scope: 'static> + Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static
{
}
impl<K> Kind for K where
    K: Resource<Scope: 'static> + Metadata<Ty = ObjectMeta> + DeserializeOwned + Send + Sync + 'static
{
}

/// An object of any resource, of which only the metadata is known.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PartialObject {
    /// The metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
}

impl Resource for PartialObject {
    const API_VERSION: &'static str = "meta.k8s.io/v1";
    const GROUP: &'static str = "meta.k8s.io";
    const KIND: &'static str = "PartialObjectMetadata";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "";
    type Scope = ClusterResourceScope;
}

impl Metadata for PartialObject {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Which part of a collection an informer sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    /// One namespace; all if `None`.
    pub namespace: Option<String>,
    /// For example `spec.nodeName=a`.
    pub field_selector: Option<String>,
    /// For example `app=web`.
    pub label_selector: Option<String>,
}

/// The informers of one process and identity. Cloning shares them.
#[derive(Clone)]
pub struct Informers(Arc<Factory>);

pub(crate) struct Factory {
    client: kube::Client,
    tasks: Tasks,
    clock: Clock,
    random: Random,
    metrics: ClientMetrics,
    running: Mutex<HashMap<(TypeId, ResourceRef, Scope), Running>>,
    /// Informers that stop when nobody holds them any more.
    held: Mutex<BTreeMap<ResourceRef, Weak<Held>>>,
    settings: Mutex<Settings>,
    /// What of some resources nobody here reads.
    unread: Mutex<BTreeMap<ResourceRef, Arc<Unread>>>,
    /// Tells of objects that cannot be decoded; made when there is the first.
    recorder: OnceLock<Recorder>,
}

/// Values by their type.
type Settings = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

fn setting<T: Any + Send + Sync>(settings: &Settings) -> Option<Arc<T>> {
    settings.get(&TypeId::of::<T>()).and_then(|known| known.clone().downcast().ok())
}

struct Running {
    informer: Arc<dyn Any + Send + Sync>,
    progress: Arc<dyn Progress>,
    whole: bool,
}

/// What the engine asks of an informer without knowing its type.
pub(crate) trait Progress: Send + Sync {
    /// The newest revision seen, as a channel that tells of each step.
    fn revisions(&self) -> tokio::sync::watch::Receiver<u64>;
    /// Whether the object `uid` under `key` is gone or on its way out.
    fn is_going(&self, key: &str, uid: Option<&str>) -> bool;
}

impl Informers {
    /// An empty set; informers start when they are first asked for.
    pub fn new(client: kube::Client, tasks: Tasks, clock: Clock, random: Random) -> Self {
        Self::metered(client, tasks, clock, random, ClientMetrics::default())
    }

    /// An empty set that counts in its process's registry.
    pub fn metered(
        client: kube::Client,
        tasks: Tasks,
        clock: Clock,
        random: Random,
        metrics: ClientMetrics,
    ) -> Self {
        let (running, held, settings) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (unread, recorder) = (Mutex::default(), OnceLock::new());
        let factory =
            Factory { client, tasks, clock, random, metrics, running, held, settings, unread, recorder };
        Self(Arc::new(factory))
    }

    /// The same, without keeping them.
    pub(crate) fn downgraded(&self) -> Weak<Factory> {
        Arc::downgrade(&self.0)
    }

    /// The same, as long as somebody keeps them.
    pub(crate) fn of(factory: Arc<Factory>) -> Self {
        Self(factory)
    }

    /// The client that the informers use.
    pub fn client(&self) -> &kube::Client {
        &self.0.client
    }

    /// The same client, counted.
    pub(crate) fn sender(&self) -> Sender {
        Sender::new(self.0.client.clone(), self.0.metrics.clone())
    }

    /// The tasks that the informers run in.
    pub fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    /// The clock that deciders see.
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The randomness behind retries.
    pub fn random(&self) -> &Random {
        &self.0.random
    }

    /// What whoever stands on these informers was told or keeps in mind, one value per type: the first one stays.
    pub fn setting_or<T: Any + Send + Sync>(&self, value: impl FnOnce() -> T) -> Arc<T> {
        let mut settings = self.0.settings.lock();
        if let Some(known) = setting(&settings) {
            return known;
        }
        let value = Arc::new(value());
        settings.insert(TypeId::of::<T>(), value.clone());
        value
    }

    /// The value of this type, if there is one.
    pub fn setting<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        setting(&self.0.settings.lock())
    }

    /// Keeps no more of the objects of a kind than whoever stands on these informers reads: to be said before the first is
    /// asked for. They are not to be replaced by what is known of them then, and cannot be.
    pub fn leave_out<K: Kind>(&self, unread: Unread) {
        self.0.unread.lock().insert(ResourceRef::of::<K>(), Arc::new(unread));
    }

    /// Whether not all of a resource's objects is known.
    pub(crate) fn knows_in_part(&self, resource: &ResourceRef) -> bool {
        self.0.unread.lock().contains_key(resource)
    }

    /// What is counted.
    pub fn metrics(&self) -> &ClientMetrics {
        &self.0.metrics
    }

    /// The informer of every `K` in the cluster.
    pub fn informer<K: Kind>(&self) -> Informer<K> {
        self.scoped(Scope::default())
    }

    /// The informer of some `K`.
    pub fn scoped<K: Kind>(&self, scope: Scope) -> Informer<K> {
        self.start(ResourceRef::of::<K>(), scope, Form::Whole)
    }

    /// The informer of the metadata of every object of `resource`.
    pub fn metadata(&self, resource: &ResourceRef) -> Informer<PartialObject> {
        self.start(resource.clone(), Scope::default(), Form::MetadataOnly)
    }

    /// The progress of the whole-cluster informers that hold `resource`.
    pub(crate) fn progress_of(&self, resource: &ResourceRef) -> Vec<Arc<dyn Progress>> {
        let running = self.0.running.lock();
        let mut all: Vec<Arc<dyn Progress>> = running
            .iter()
            .filter(|((_, of, _), running)| running.whole && of == resource)
            .map(|(_, running)| running.progress.clone())
            .collect();
        drop(running);
        // One that never got its list shows nothing that anybody could decide on.
        let held = self.find_held(resource).filter(|held| held.informer().is_synced());
        all.extend(held.map(|held| held.informer().shared.clone() as Arc<dyn Progress>));
        all
    }

    /// The informer of the metadata of `resource`, if it runs.
    fn running_metadata(&self, resource: &ResourceRef) -> Option<Informer<PartialObject>> {
        let id = (TypeId::of::<PartialObject>(), resource.clone(), Scope::default());
        let shared = self.0.running.lock().get(&id)?.informer.clone().downcast().ok()?;
        Some(Informer { shared })
    }

    fn start<K: Kind>(&self, resource: ResourceRef, scope: Scope, form: Form) -> Informer<K> {
        let mut running = self.0.running.lock();
        let id = (TypeId::of::<K>(), resource.clone(), scope.clone());
        if let Some(found) = running.get(&id).and_then(|r| r.informer.clone().downcast::<Shared<K>>().ok()) {
            return Informer { shared: found };
        }
        let follower = self.follower(&resource, self.0.metrics.left_out(&resource.full_name()));
        // In a namespace it is somebody's look at an object or two, and not what the part stands on.
        if scope.namespace.is_none() {
            self.0.metrics.followers().add(&follower);
        }
        let unread = self.0.unread.lock().get(&resource).cloned();
        let unread = unread.filter(|_| form == Form::Whole);
        let shared = Arc::new(Shared::<K>::new(follower.clone(), unread));
        let whole = scope == Scope::default();
        let reflector = Reflector::new(self.sender(), &resource, &scope, form, (shared.clone(), follower));
        self.0.tasks.spawn("informer", reflector.run(self.0.random.clone()));
        running.insert(id, Running { informer: shared.clone(), progress: shared.clone(), whole });
        Informer { shared }
    }

    fn follower(&self, resource: &ResourceRef, meter: Gauge) -> Arc<Follower> {
        let (of, factory) = (resource.clone(), Arc::downgrade(&self.0));
        let name = resource.full_name();
        let tell = Box::new(move |identity: &Identity, cause: &str| tell(&factory, &of, identity, cause));
        Arc::new(Follower::new(name, meter, tell))
    }
}

/// Records an event on an object that is left out, so that whoever looks at the object learns of it.
fn tell(factory: &Weak<Factory>, resource: &ResourceRef, identity: &Identity, cause: &str) {
    let Some(factory) = factory.upgrade() else { return };
    let informers = Informers(factory);
    let component = informers.metrics().part();
    let recorder = informers.0.recorder.get_or_init(|| Recorder::start(&informers, component));
    let regarding = ObjectReference {
        api_version: Some(resource.api_version()),
        kind: Some(resource.kind.clone()),
        namespace: identity.namespace.clone(),
        name: Some(identity.name.clone()),
        uid: identity.uid.clone(),
        resource_version: Some(identity.revision.to_string()),
        field_path: None,
    };
    let message = format!("{component} cannot decode this object and leaves it out: {cause}");
    recorder.event(regarding, EventType::Warning, UNDECODABLE, message);
}

/// A view of one informer. Cloning shares it.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Kind> Informer<K> {
    /// An informer over fixed objects, for tests of what stands on informers.
    pub fn fixed(objects: Vec<K>) -> Self {
        let shared = Arc::new(Shared::new(Arc::new(Follower::unwatched()), None));
        shared.replace(objects, &[], 1);
        Self { shared }
    }

    /// The object under `namespace/name` or `name`.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.shared.get(key)
    }

    /// Every object, in key order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.list()
    }

    /// Every object of a namespace, in key order.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.in_namespace(namespace)
    }

    /// Every object of a namespace that nobody controls, in key order.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        self.shared.orphans(namespace)
    }

    /// Every object whose controller owner has this uid, in key order.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.shared.owned_by(uid)
    }

    /// Every object that has an owner with this uid, its controller or not, in key order.
    pub fn dependents_of(&self, uid: &str) -> Vec<Arc<K>> {
        self.shared.dependents_of(uid)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest revision seen; 0 before the first list.
    pub fn revision(&self) -> u64 {
        *self.shared.revisions().borrow()
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        self.revision() > 0
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        self.reached(1).await;
    }

    /// Waits until the informer has seen `revision`.
    pub async fn reached(&self, revision: u64) {
        if self.shared.revisions().wait_for(|seen| *seen >= revision).await.is_err() {
            // The sender lives in `shared`, which this borrows: it cannot be gone.
            std::future::pending::<()>().await;
        }
    }

    /// Changes from now on, coalesced per key; starts with everything that is there.
    pub fn subscribe(&self) -> Changes<K> {
        Shared::subscribe(&self.shared)
    }
}
