//! The aggregation layer: group-versions that servers elsewhere serve, as APIServices say.
//!
//! An APIService with a Service makes a [`Remote`](remote::Remote), which is looked up before kinds; one without leads to the
//! catalogue. Whoever has made, changed or deleted one on this server finds it followed with the next request. What the others
//! tell of themselves (`catalogue/{remote_discovery,specification}.rs`) is read here once in a while, never while somebody
//! asks, and kept as it was when they do not answer: one that lies or hangs harms nobody but itself.
//!
//! Source: `k8s.io/kube-aggregator`.

pub mod auto_register;
pub mod availability;
pub mod discovery;
pub mod link;
mod parsed;
pub mod registration;
pub mod remote;
mod served;
pub mod servers;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::api::Api;
use crate::cache::watcher_index::IndexKey;
use crate::catalogue::Delegate;
use crate::catalogue::priorities::{OWN_GROUP, Priorities};
use crate::catalogue::remote_discovery::RemoteDiscovery;
use crate::kinds::Kind;
use link::Link;
use parsed::Parsed;
use registration::{Registration, Target};
use remote::Remote;

/// How many servers elsewhere are looked at at a time, how many tell what they serve, and how many how it looks: whoever
/// takes long for one thing keeps nobody from another.
const LOOKED_AT_MAX: usize = 32;
const ASKED_MAX: usize = 16;
const DOCUMENTS_MAX: usize = 8;

/// The APIServices, and the servers behind them.
pub struct Aggregation {
    api: Weak<Api>,
    known: Mutex<Known>,
    registrations: watch::Sender<Arc<Vec<Registration>>>,
    /// Whoever changes what the catalogue knows of this has it.
    turn: tokio::sync::Mutex<()>,
    /// Whoever looks whether a server elsewhere is available.
    looking: Semaphore,
    /// Whoever asks one what it serves.
    asking: Semaphore,
    /// Whoever asks one for its documents.
    documents: Semaphore,
    /// Whoever reads a document of one, which takes more room than it has bytes.
    reading: Semaphore,
    metrics: availability::Metrics,
}

#[derive(Default)]
struct Known {
    links: BTreeMap<String, Arc<Link>>,
    discovery: BTreeMap<String, Arc<RemoteDiscovery>>,
}

impl Aggregation {
    /// Of a server, of which nothing is known yet.
    pub fn new(api: &Arc<Api>) -> Self {
        Self {
            api: Arc::downgrade(api),
            known: Mutex::default(),
            registrations: watch::Sender::default(),
            turn: tokio::sync::Mutex::default(),
            looking: Semaphore::new(LOOKED_AT_MAX),
            asking: Semaphore::new(ASKED_MAX),
            documents: Semaphore::new(DOCUMENTS_MAX),
            reading: Semaphore::new(1),
            metrics: availability::Metrics::new(api.metrics.registry()),
        }
    }

    /// The way to whoever serves what a registration is about.
    fn link(&self, name: &str) -> Option<Arc<Link>> {
        self.known.lock().links.get(name).cloned()
    }

    /// Takes over what a server elsewhere has told; says so to clients if it is something else than before.
    async fn set_discovery(&self, api: &Api, link: &Arc<Link>, name: &str, discovery: RemoteDiscovery) {
        {
            let mut known = self.known.lock();
            if !known.links.get(name).is_some_and(|current| Arc::ptr_eq(current, link)) {
                return;
            }
            let before = known.discovery.insert(name.to_owned(), Arc::new(discovery.clone()));
            if before.is_some_and(|before| before.is_same(&discovery)) {
                return;
            }
        }
        self.publish(api).await;
    }

    /// What is known of whoever serves what a registration is about.
    fn discovery(&self, name: &str) -> Arc<RemoteDiscovery> {
        self.known.lock().discovery.get(name).cloned().unwrap_or_default()
    }

    /// Takes over what APIServices say.
    async fn apply(&self, api: &Api, registrations: Vec<Registration>) {
        if **self.registrations.borrow() == registrations {
            return;
        }
        let before = self.known.lock().links.clone();
        let mut links = BTreeMap::new();
        for one in &registrations {
            let Some(target) = &one.target else { continue };
            let link = match before.get(&one.name).filter(|link| link.target() == target) {
                Some(kept) => Arc::clone(kept),
                None => made(api, target.clone()).await,
            };
            links.insert(one.name.clone(), link);
        }
        {
            let mut known = self.known.lock();
            // What another server has told is not this one's.
            let is_same = |name: &String| {
                let pair = before.get(name).zip(links.get(name));
                pair.is_some_and(|(before, now)| Arc::ptr_eq(before, now))
            };
            known.discovery.retain(|name, _| is_same(name));
            known.links = links;
        }
        self.registrations.send_replace(Arc::new(registrations));
        self.publish(api).await;
    }

    /// Makes what is known the catalogue's.
    async fn publish(&self, api: &Api) {
        let _turn = self.turn.lock().await;
        let registrations = Arc::clone(&self.registrations.borrow());
        let remotes: Vec<Arc<dyn Delegate>> = {
            let known = self.known.lock();
            let made = registrations.iter().filter_map(|one| {
                let link = Arc::clone(known.links.get(&one.name)?);
                let discovery = known.discovery.get(&one.name).cloned().unwrap_or_default();
                let remote = Remote::new(self.api.clone(), one.clone(), link, discovery);
                Some(Arc::new(remote) as Arc<dyn Delegate>)
            });
            made.collect()
        };
        let priorities = registrations.iter().map(|one| {
            let group_version = (one.group.as_str(), one.version.as_str());
            (group_version, (one.group_priority, one.version_priority))
        });
        api.catalogue.register(remotes, Priorities::of(priorities)).await;
    }
}

/// A new way to a server elsewhere. Whom the host believes is read from its files.
async fn made(api: &Api, target: Target) -> Arc<Link> {
    let client = api.config.options.proxy_client.clone();
    let making = target.clone();
    let made = tokio::task::spawn_blocking(move || Link::new(making, client.as_ref())).await;
    Arc::new(made.unwrap_or_else(|failure| Link::faulty(target, failure)))
}

/// APIServices.
fn kind(api: &Api) -> Option<&Kind> {
    api.kind(OWN_GROUP, "v1", "apiservices")
}

/// Follows APIServices for ever.
pub async fn follow(api: &Api, aggregation: &Aggregation) {
    let Some(kind) = kind(api) else { return };
    let mut seen = Parsed::default();
    loop {
        let revision = api.cache.revision();
        let mut changes = kind.cache().watch(revision, IndexKey::Everything);
        let listing = kind.cache().list(kind.prefix(), revision);
        seen.update(listing.objects, |object| Registration::of(&kind.value(object)));
        aggregation.apply(api, seen.all().flatten().cloned().collect()).await;
        api.catalogue.follows(listing.revision);
        changes.skip_to(listing.revision);
        // It says that something changed, or that too much did: in both cases all is read again.
        if let Err(failure) = changes.next().await {
            tracing::debug!(%failure, "APIServices are read again");
        }
    }
}
