//! The kinds that the server serves, kept up to date: discovery, and the objects that tell that it has changed.
//!
//! CustomResourceDefinitions and APIServices are objects: a change of one makes the watcher look again, at once and then
//! ever less often, since what they ask for takes its time. A server that has neither is asked as often as upstream's
//! garbage collector asks, and any other now and then: whoever serves a group of its own tells nobody when it changes.
//! What has not changed is not sent again (`fetch.rs`); in which of several versions a resource is meant is in `storage.rs`,
//! what an answer means for what is known in `served.rs`.

mod document;
mod fetch;
mod served;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Tasks};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, watch};

use crate::ask_error::AskError;
use crate::informer::{Held, Informers};
use crate::resource_ref::ResourceRef;
use crate::sender::Sender;
pub use document::{Discovered, Discovery};
use fetch::Fetched;
pub use served::Served;

/// Changes closer together than this are seen as one.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a server is asked that tells nothing, or failed. Source: `gcSyncPeriod`, and quota's discovery.
const PERIOD: Duration = Duration::from_secs(30);
/// How often one is asked that tells of most changes.
const PERIOD_TOLD: Duration = Duration::from_mins(5);
/// Kinds whose objects say what is served.
const TELLERS: [(&str, &str); 2] =
    [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];

/// A watcher of what the server serves: one for all who stand on the same informers.
pub struct Watcher {
    sender: Sender,
    served: watch::Sender<Arc<Served>>,
    /// What was asked last; whoever asks has it.
    fetched: tokio::sync::Mutex<Fetched>,
    told: Notify,
    /// How many group-versions could not be discovered.
    failing: Gauge,
}

impl Watcher {
    /// The watcher of these informers; it begins when somebody first asks for it.
    pub fn of(informers: &Informers) -> Arc<Self> {
        let mut is_new = false;
        let watcher = informers.setting_or(|| {
            is_new = true;
            Self {
                sender: informers.sender(),
                served: watch::Sender::default(),
                fetched: tokio::sync::Mutex::default(),
                told: Notify::new(),
                failing: informers.metrics().undiscovered(),
            }
        });
        if is_new {
            informers.tasks().spawn("discovery", watcher.clone().run(informers.clone()));
        }
        watcher
    }

    /// The served kinds, as far as the server has said.
    pub fn served(&self) -> Arc<Served> {
        self.served.borrow().clone()
    }

    /// The same, and every change of it.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Served>> {
        self.served.subscribe()
    }

    /// Asks the server now.
    ///
    /// # Errors
    /// Why it could not say.
    pub async fn discover(&self) -> Result<Discovery, AskError> {
        let mut fetched = self.fetched.lock().await;
        let answer = fetched.refresh(&self.sender).await;
        self.served.send_if_modified(|served| {
            let after = served.after(&answer);
            if after == **served {
                return false;
            }
            self.tell(served, &after);
            *served = Arc::new(after);
            true
        });
        answer
    }

    /// Logs each failure and each recovery once.
    fn tell(&self, before: &Served, after: &Served) {
        for (group_version, error) in after.failed() {
            if before.failed().get(group_version) != Some(error) {
                tracing::warn!(group_version, error, "discovery failed");
            }
        }
        for group_version in before.failed().keys().filter(|place| !after.failed().contains_key(*place)) {
            tracing::info!(group_version, "discovered again");
        }
        self.failing.set(i64::try_from(after.failed().len()).unwrap_or(i64::MAX));
    }

    async fn run(self: Arc<Self>, informers: Informers) {
        let mut tellers: BTreeMap<ResourceRef, Teller> = BTreeMap::new();
        let mut told = Backoff::new(PAUSE, PERIOD_TOLD, 0.1);
        let mut untold = Backoff::new(PAUSE, PERIOD, 0.1);
        loop {
            let is_well = self.discover().await.is_ok() && self.served().failed().is_empty();
            self.follow_tellers(&informers, &mut tellers);
            let (long, short) = (told.next(informers.random()), untold.next(informers.random()));
            let wait = if is_well && !tellers.is_empty() { long } else { short };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.told.notified() => {
                    told.reset();
                    untold.reset();
                    // Others come right after it.
                    tokio::time::sleep(PAUSE / 10).await;
                }
            }
        }
    }

    /// Follows the kinds that tell of changes, as far as they are served.
    fn follow_tellers(self: &Arc<Self>, informers: &Informers, tellers: &mut BTreeMap<ResourceRef, Teller>) {
        let served = self.served();
        tellers.retain(|resource, _| served.has(resource));
        for (group, plural) in TELLERS {
            let Some(found) = served.by_plural(group, plural) else { continue };
            if tellers.contains_key(&found.resource) || !found.allows(&["list", "watch"]) {
                continue;
            }
            let held = informers.held(&found.resource);
            let teller = Teller { tasks: informers.tasks().child() };
            teller.tasks.spawn("discovery", listen(self.clone(), held));
            tellers.insert(found.resource.clone(), teller);
        }
    }
}

/// Listens as long as it is kept.
struct Teller {
    tasks: Tasks,
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

async fn listen(watcher: Arc<Watcher>, held: Arc<Held>) {
    let mut changes = held.informer().subscribe();
    loop {
        changes.next().await;
        watcher.told.notify_one();
        // However many come, there is one look at a time.
        tokio::time::sleep(PAUSE).await;
    }
}
