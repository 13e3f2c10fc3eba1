//! Shared informers: one LIST and one WATCH per resource, scope and process, whoever asks.
//!
//! An informer holds every object as an `Arc`, an index by controller owner, and the newest revision it has
//! seen. Subscribers get changes coalesced per key, so a slow one costs memory per object, never per event.
//! Invariant: what `get` and `list` show and what subscribers are told move together, in revision order.

mod reflector;

mod changes;
mod compact;
mod decode;
mod dynamic;
mod event_handlers;
mod gauges;
mod held;
mod json;
mod kinds;
mod metadata;
mod object;
mod shared;
mod transform;
mod undecodable;

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap, btree_map};
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::{Arc, OnceLock, Weak};

use base::{Clock, Random, Tasks};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, Metadata, Resource};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use serde::Deserialize;

use crate::event::EventType;
use crate::follower::Follower;
use crate::metrics::ClientMetrics;
use crate::record::{Recorder, Writer};
use crate::resource_ref::{ResourceRef, key_of};
use crate::sender::Sender;
use changes::PendingChanges;
pub use changes::{Change, Changes};
use decode::Identity;
pub use decode::{Decode, known, object};
pub(crate) use dynamic::DynamicReflector;
use event_handlers::EventHandlers;
pub use gauges::GaugeRow;
pub use held::Held;
use metadata::MetadataOf;
use object::{Object, ObjectType, all_typed, typed};
use reflector::{Form, Reflector};
use shared::Shared;
pub use transform::Transform;
use undecodable::Undecodable;

/// The reason of the events on objects that a part of ours cannot decode.
pub const UNDECODABLE: &str = "FailedDecoding";

/// A type that an informer can hold.
pub trait Kind:
    Resource<Scope: 'static> + Metadata<Ty = ObjectMeta> + Decode + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<Scope: 'static> + Metadata<Ty = ObjectMeta> + Decode + Send + Sync + 'static
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

/// The part of a collection that an informer sees.
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

struct Factory {
    client: kube::Client,
    tasks: Tasks,
    clock: Clock,
    random: Random,
    metrics: ClientMetrics,
    running: Mutex<Running>,
    /// Informers that stop when nobody holds them any more.
    held: Mutex<BTreeMap<ResourceRef, Weak<Held>>>,
    settings: Mutex<Settings>,
    /// By resource, of those of which nobody here reads all.
    transforms: Mutex<BTreeMap<ResourceRef, Arc<Transform>>>,
    /// Whose objects are known whole anyway, so that their metadata are not asked for.
    whole: Mutex<BTreeMap<ResourceRef, StartWhole>>,
    /// Tells of objects that cannot be decoded; made when there is the first.
    recorder: OnceLock<Recorder>,
}

/// Values by their type.
type Settings = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

fn setting<T: Any + Send + Sync>(settings: &Settings) -> Option<Arc<T>> {
    settings.get(&TypeId::of::<T>()).and_then(|known| known.clone().downcast().ok())
}

/// The informers that there are.
#[derive(Default)]
struct Running {
    /// Of all objects of a kind.
    kinds: HashMap<TypeId, Arc<Shared>>,
    /// Of some.
    scoped: HashMap<(TypeId, Scope), Arc<Shared>>,
    /// Of the metadata of all.
    metadata: HashMap<ResourceRef, Arc<dyn Objects>>,
    /// How far those have come that have all objects of a resource.
    progress: HashMap<ResourceRef, Vec<Arc<dyn Progress>>>,
}

/// Starts the informer of a kind's objects, and shows their metadata.
type StartWhole = fn(&Informers, &mut Running) -> Arc<dyn Objects>;

/// What the engine asks of an informer without knowing its type.
pub(crate) trait Progress: Send + Sync {
    /// The newest revision seen, as a channel that tells of each step.
    fn revisions(&self) -> tokio::sync::watch::Receiver<u64>;
    /// The newest revision seen; 0 before the first list.
    fn revision(&self) -> u64;
    /// Whether the object `uid` under `key` is gone or on its way out.
    fn is_going(&self, key: &str, uid: Option<&str>) -> bool;
}

/// What an informer shows, in whatever form it is kept: objects of one type. [`Informer`] says what each is.
pub(crate) trait Objects: Progress {
    fn get(&self, key: &str) -> Option<Arc<dyn Object>>;
    fn list(&self) -> Vec<Arc<dyn Object>>;
    fn in_namespace(&self, namespace: &str) -> Vec<Arc<dyn Object>>;
    fn orphans(&self, namespace: &str) -> Vec<Arc<dyn Object>>;
    fn dependents_of(&self, uid: &str) -> Vec<Arc<dyn Object>>;
    fn len(&self) -> usize;
    /// Subscribes: puts everything that is there into `pending`, and then what changes.
    fn join(&self, pending: &Arc<PendingChanges>);
    /// The handlers that one task calls with changes.
    fn event_handlers(&self) -> &EventHandlers;
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
        let (transforms, whole, recorder) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let factory = Factory {
            client,
            tasks,
            clock,
            random,
            metrics,
            running,
            held,
            settings,
            transforms,
            whole,
            recorder,
        };
        Self(Arc::new(factory))
    }

    /// The client that the informers use.
    pub fn client(&self) -> &kube::Client {
        &self.0.client
    }

    /// The same client, counted.
    pub(crate) fn sender(&self) -> Sender {
        Sender::new(self.0.client.clone(), self.0.metrics.clone())
    }

    /// A recorder whose events come from `component`.
    pub fn recorder(&self, component: &'static str) -> Recorder {
        self.recorder_on(component, "")
    }

    /// A recorder whose events come from `component` on the Node `host`.
    pub fn recorder_on(&self, component: &'static str, host: &str) -> Recorder {
        let writer = || Writer::new(self.sender(), self.clock().clone(), self.random().clone(), host);
        Recorder::start(writer, self.tasks(), component)
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

    /// A setting or a memory of those that stand on these informers, one value per type: the first one stays.
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

    /// Keeps the objects of a kind without what the transform leaves out: to be said before the first is asked for. They are
    /// not to be replaced by what is known of them then, and cannot be.
    pub fn set_transform<K: Kind>(&self, transform: Transform) {
        self.0.transforms.lock().insert(ResourceRef::of::<K>(), Arc::new(transform.and_managed_fields()));
    }

    /// Shows the metadata of a kind's objects by what is known of them whole: to be said before the first is asked for.
    /// For kinds that are followed whole in any case.
    pub fn show_metadata_of<K: Kind>(&self) {
        let start: StartWhole =
            |informers, running| Arc::new(MetadataOf::new(informers.whole(ObjectType::of::<K>(), running)));
        self.0.whole.lock().insert(ResourceRef::of::<K>(), start);
    }

    /// Whether not all of a resource's objects is known.
    pub(crate) fn knows_in_part(&self, resource: &ResourceRef) -> bool {
        self.0.transforms.lock().contains_key(resource)
    }

    /// The metrics of the client.
    pub fn metrics(&self) -> &ClientMetrics {
        &self.0.metrics
    }

    /// The informer of every `K` in the cluster.
    pub fn informer<K: Kind>(&self) -> Informer<K> {
        Informer::over(self.whole(ObjectType::of::<K>(), &mut self.0.running.lock()))
    }

    /// The informer of some `K`.
    pub fn scoped<K: Kind>(&self, scope: Scope) -> Informer<K> {
        Informer::over(self.part(ObjectType::of::<K>(), scope))
    }

    /// The informer of the metadata of every object of `resource`.
    pub fn metadata(&self, resource: &ResourceRef) -> Informer<PartialObject> {
        let mut running = self.0.running.lock();
        if let Some(found) = running.metadata.get(resource) {
            return Informer::over(found.clone());
        }
        let start = self.0.whole.lock().get(resource).copied();
        let objects = match start {
            Some(start) => start(self, &mut running),
            None => {
                let shared = self.start(
                    ObjectType::of::<PartialObject>(),
                    resource,
                    &Scope::default(),
                    Form::MetadataOnly,
                );
                running.follow(resource, shared.clone());
                shared
            }
        };
        running.metadata.insert(resource.clone(), objects.clone());
        Informer::over(objects)
    }

    /// The progress of the whole-cluster informers that hold `resource`.
    pub(crate) fn progress_of(&self, resource: &ResourceRef) -> Vec<Arc<dyn Progress>> {
        let mut all = self.0.running.lock().progress.get(resource).cloned().unwrap_or_default();
        // One that never got its list shows nothing that anybody could decide on.
        let held = self.find_held(resource).filter(|held| held.informer().is_synced());
        all.extend(held.map(|held| held.informer().objects.clone() as Arc<dyn Progress>));
        all
    }

    /// The informer of the metadata of `resource`, if it runs or will.
    fn running_metadata(&self, resource: &ResourceRef) -> Option<Informer<PartialObject>> {
        if self.0.whole.lock().contains_key(resource) {
            return Some(self.metadata(resource));
        }
        let objects = self.0.running.lock().metadata.get(resource)?.clone();
        Some(Informer::over(objects))
    }

    fn whole(&self, objects: ObjectType, running: &mut Running) -> Arc<Shared> {
        if let Some(found) = running.kinds.get(&objects.id) {
            return found.clone();
        }
        let resource = (objects.resource)();
        let shared = self.start(objects, &resource, &Scope::default(), Form::Whole);
        running.kinds.insert(objects.id, shared.clone());
        running.follow(&resource, shared.clone());
        shared
    }

    fn part(&self, objects: ObjectType, scope: Scope) -> Arc<Shared> {
        let mut running = self.0.running.lock();
        if scope == Scope::default() {
            return self.whole(objects, &mut running);
        }
        let id = (objects.id, scope);
        if let Some(found) = running.scoped.get(&id) {
            return found.clone();
        }
        let shared = self.start(objects, &(objects.resource)(), &id.1, Form::Whole);
        running.scoped.insert(id, shared.clone());
        shared
    }

    fn start(&self, objects: ObjectType, resource: &ResourceRef, scope: &Scope, form: Form) -> Arc<Shared> {
        let follower = Arc::new(Follower::new(resource.full_name()));
        // In a namespace it is somebody's look at an object or two, and not what the part stands on.
        if scope.namespace.is_none() {
            self.0.metrics.followers().add(&follower);
        }
        let undecodable = self.undecodable(resource, self.0.metrics.left_out(&resource.full_name()));
        let transform = self.0.transforms.lock().get(resource).cloned();
        let transform = transform.filter(|_| form == Form::Whole);
        let shared = Arc::new(Shared::of(objects, undecodable, transform));
        let reflector = Reflector::new(self.sender(), resource, scope, form, shared.clone(), follower);
        self.0.tasks.spawn("informer", reflector.run(self.0.random.clone()));
        shared
    }

    fn undecodable(&self, resource: &ResourceRef, meter: Gauge) -> Undecodable {
        let (of, factory) = (resource.clone(), Arc::downgrade(&self.0));
        let tell = Box::new(move |identity: &Identity, cause: &str| tell(&factory, &of, identity, cause));
        Undecodable::new(resource.full_name(), meter, tell)
    }
}

impl Running {
    fn follow(&mut self, resource: &ResourceRef, progress: Arc<dyn Progress>) {
        self.progress.entry(resource.clone()).or_default().push(progress);
    }
}

/// Records an event on an object that is left out, so that whoever looks at the object learns of it.
fn tell(factory: &Weak<Factory>, resource: &ResourceRef, identity: &Identity, cause: &str) {
    let Some(factory) = factory.upgrade() else { return };
    let informers = Informers(factory);
    let component = informers.metrics().part();
    let recorder = informers.0.recorder.get_or_init(|| informers.recorder(component));
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
    objects: Arc<dyn Objects>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { objects: self.objects.clone(), kind: PhantomData }
    }
}

impl<K: Kind> Informer<K> {
    /// A view of objects that are of this type.
    fn over(objects: Arc<dyn Objects>) -> Self {
        Self { objects, kind: PhantomData }
    }

    /// An informer over fixed objects, for tests of what stands on informers.
    pub fn fixed(objects: Vec<K>) -> Self {
        let shared = Shared::of(ObjectType::of::<K>(), Undecodable::untold(), None);
        let objects = objects.into_iter().map(|object| Arc::new(object) as Arc<dyn Object>);
        shared.replace(objects.collect(), Vec::new(), 1);
        Self::over(Arc::new(shared))
    }

    /// The object under `namespace/name` or `name`.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.objects.get(key).and_then(typed)
    }

    /// Every object, in key order.
    pub fn list(&self) -> Vec<Arc<K>> {
        all_typed(self.objects.list())
    }

    /// Every object of a namespace, in key order.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        all_typed(self.objects.in_namespace(namespace))
    }

    /// Every object of a namespace that nobody controls, in key order.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        all_typed(self.objects.orphans(namespace))
    }

    /// Every object whose controller owner has this uid, in key order.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let mut owned = self.dependents_of(uid);
        owned.retain(|object| controller_uid(object.metadata()) == Some(uid));
        owned
    }

    /// Every object that has an owner with this uid, its controller or not, in key order.
    pub fn dependents_of(&self, uid: &str) -> Vec<Arc<K>> {
        all_typed(self.objects.dependents_of(uid))
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// `true` if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest revision seen; 0 before the first list.
    pub fn revision(&self) -> u64 {
        self.objects.revision()
    }

    /// `true` if the first list is complete.
    pub fn is_synced(&self) -> bool {
        self.revision() > 0
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        self.reached(1).await;
    }

    /// Waits until the informer has seen `revision`.
    pub async fn reached(&self, revision: u64) {
        reached(self.objects.revisions(), revision).await;
    }

    /// Changes from now on, coalesced per key; starts with everything that is there.
    pub fn subscribe(&self) -> Changes<K> {
        Changes::of(&self.objects)
    }

    /// Calls `handler` with everything that is there, and then with what changes, coalesced per key: in one task with all
    /// other handlers.
    pub(crate) fn add_event_handler(
        &self,
        tasks: &Tasks,
        handler: impl Fn(&Change<K>) + Send + Sync + 'static,
    ) {
        if self.objects.event_handlers().add(Box::new(move |change| handler(&change.typed()))) {
            tasks.spawn("source", event_handlers::distribute(self.objects.clone()));
        }
    }
}

/// [`Informer::reached`], compiled once for all kinds.
async fn reached(mut revisions: tokio::sync::watch::Receiver<u64>, revision: u64) {
    if revisions.wait_for(|seen| *seen >= revision).await.is_err() {
        // The sender lives in the informer, which the caller borrows: it cannot be gone.
        std::future::pending::<()>().await;
    }
}

fn key_of_object(meta: &ObjectMeta) -> String {
    key_of(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

fn revision_of(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn controller_uid(meta: &ObjectMeta) -> Option<&str> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// What is under the keys of a namespace, or under all.
fn in_namespace<'a, T>(
    all: &'a BTreeMap<Arc<str>, T>,
    namespace: Option<&str>,
) -> btree_map::Range<'a, Arc<str>, T> {
    let Some(namespace) = namespace else { return all.range::<str, _>(..) };
    let (first, end) = keys_in(namespace);
    all.range::<str, _>((Bound::Included(first.as_str()), Bound::Excluded(end.as_str())))
}

/// The first key of a namespace's objects, and the first behind them: '0' follows '/' in ASCII.
fn keys_in(namespace: &str) -> (String, String) {
    (format!("{namespace}/"), format!("{namespace}0"))
}
