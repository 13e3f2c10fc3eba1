//! The Pods as the API tells of them, from beginning to end, and what is wrong with that.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::client::{AGAIN_AFTER, Api, Client, TIMEOUT};
use super::oracle::{is_ready, restarts, shared_addresses, unsteady};
use super::report::Stage;
use super::shapes;

/// Breaches that are kept: more say nothing new.
const BREACHES_MAX: usize = 20;

/// The Pods, by name.
pub(super) type Pods = BTreeMap<String, Arc<Pod>>;

/// What is known.
#[derive(Default)]
pub(super) struct View {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, Arc<Pod>>,
    /// Those that stay, as they must be.
    steady: Vec<Pod>,
    breaches: BTreeSet<String>,
    /// Whatever starts may be killed itself, and not only what looks after it.
    is_traced: bool,
    /// Pods whose containers may have been killed.
    excused: BTreeSet<String>,
    /// Pods whose shim was killed: it may have been the only one that knew an exit code.
    shimless: BTreeSet<String>,
}

impl View {
    /// Begins to listen.
    pub(super) fn follow(client: &Client) -> Arc<Self> {
        let view = Arc::new(Self::default());
        let (own, api) = (view.clone(), client.api.clone());
        client.spawn(async move {
            loop {
                // The server is away, or the watch has come to its end: what is there now counts.
                drop(own.listen(&api).await);
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        });
        view
    }

    async fn listen(&self, api: &Api) -> Result<()> {
        let pods = api.pods();
        let list = pods.list(&ListParams::default()).await.context("list")?;
        let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
        let revision = list.metadata.resource_version.unwrap_or_default();
        self.change(|known| *known = list.items.into_iter().map(|pod| (name(&pod), Arc::new(pod))).collect());
        let mut events =
            std::pin::pin!(pods.watch(&WatchParams::default(), &revision).await.context("watch")?);
        while let Some(event) = events.try_next().await.context("watch")? {
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    self.change(|known| drop(known.insert(name(&pod), Arc::new(pod))));
                }
                WatchEvent::Deleted(pod) => self.change(|known| drop(known.remove(&name(&pod)))),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => anyhow::bail!("{status:?}"),
            }
        }
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Pod>>)) {
        {
            let mut state = self.state.lock();
            change(&mut state.pods);
            state.judge();
        }
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// From now on these are as they are.
    pub(super) fn keep(&self, steady: &[Pod]) {
        self.state.lock().steady = steady.to_vec();
    }

    /// Waits until `find` gives something.
    ///
    /// # Errors
    /// It takes too long: `what`, with how it is instead.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        find: impl Fn(&BTreeMap<String, Arc<Pod>>, &Excuses<'_>) -> Option<T> + Send,
        describe: impl Fn(&BTreeMap<String, Arc<Pod>>) -> String + Send,
    ) -> Result<T>
    where
        T: Send,
    {
        let mut changes = self.changes.subscribe();
        let found = async {
            loop {
                changes.borrow_and_update();
                {
                    let state = self.state.lock();
                    let excuses = Excuses { shimless: &state.shimless, excused: &state.excused };
                    if let Some(found) = find(&state.pods, &excuses) {
                        return found;
                    }
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(TIMEOUT, found).await {
            Ok(found) => Ok(found),
            Err(_) => anyhow::bail!("{what} did not happen in time: {}", describe(&self.state.lock().pods)),
        }
    }

    /// So many Pods whose names begin so are Ready.
    pub(super) fn all_ready(
        self: &Arc<Self>,
        prefix: &'static str,
        count: usize,
    ) -> impl Future<Output = Result<Vec<Pod>>> + Send + use<> {
        let view = self.clone();
        let of = move |pods: &BTreeMap<String, Arc<Pod>>| -> Vec<Arc<Pod>> {
            pods.values()
                .filter(|pod| pod.metadata.name.as_deref().is_some_and(|it| it.starts_with(prefix)))
                .cloned()
                .collect()
        };
        async move {
            let what = format!("{count} Pods {prefix} being Ready");
            let find = |pods: &BTreeMap<String, Arc<Pod>>, _: &Excuses<'_>| {
                let found: Vec<Pod> =
                    of(pods).iter().filter(|pod| is_ready(pod)).map(|pod| (**pod).clone()).collect();
                (found.len() == count).then_some(found)
            };
            view.until(&what, find, |pods| {
                let unready = of(pods).into_iter().filter(|pod| !is_ready(pod));
                format!(
                    "{:?}",
                    unready.map(|pod| (pod.metadata.name.clone(), pod.status.clone())).collect::<Vec<_>>()
                )
            })
            .await
        }
    }

    /// Takes note of a promise that was not kept.
    pub(super) fn blame(&self, breach: String) {
        let mut state = self.state.lock();
        state.breaches.insert(breach);
    }

    pub(super) fn breaches(&self) -> Vec<String> {
        self.state.lock().breaches.iter().take(BREACHES_MAX).cloned().collect()
    }

    /// Whether it makes sense to go on.
    pub(super) fn is_sound(&self) -> bool {
        self.state.lock().breaches.is_empty()
    }

    /// Whatever starts, from now on or until now, may be killed itself.
    pub(super) fn trace(&self, is_traced: bool) {
        let mut state = self.state.lock();
        state.is_traced = is_traced;
        state.excuse();
    }

    /// A shim is killed.
    pub(super) fn lose_a_shim(&self) {
        let mut state = self.state.lock();
        let all: Vec<String> = state.pods.keys().cloned().collect();
        state.shimless.extend(all);
    }

    /// How far Pods are now.
    pub(super) fn stage(&self) -> Stage {
        let state = self.state.lock();
        let mut stage = Stage::default();
        for pod in state.pods.iter().filter(|(name, _)| !name.starts_with("steady-")).map(|(_, pod)| pod) {
            if pod.metadata.deletion_timestamp.is_some() {
                stage.stopping += 1;
            } else if is_ready(pod) {
                stage.running += 1;
            } else {
                stage.starting += 1;
            }
        }
        stage
    }
}

/// What may be otherwise through no fault of the product's.
pub(super) struct Excuses<'s> {
    shimless: &'s BTreeSet<String>,
    excused: &'s BTreeSet<String>,
}

impl Excuses<'_> {
    /// Whether what a Pod ran may have ended without success: it was killed itself, or who kept its exit code.
    pub(super) fn may_have_failed(&self, pod: &str) -> bool {
        self.shimless.contains(pod) || self.excused.contains(pod)
    }
}

impl State {
    fn excuse(&mut self) {
        let all: Vec<String> =
            self.pods.keys().filter(|name| !name.starts_with("steady-")).cloned().collect();
        self.excused.extend(all);
    }

    fn judge(&mut self) {
        if self.is_traced {
            self.excuse();
        }
        let restarting = |name: &str| name.starts_with(shapes::CRASHING);
        let mut found: Vec<String> = shared_addresses(self.pods.values().map(|pod| &**pod));
        for pod in &self.steady {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            found.extend(unsteady(pod, self.pods.get(name).map(|pod| &**pod)));
        }
        let strict = self.pods.iter().filter(|(name, _)| !self.excused.contains(*name) && !restarting(name));
        found.extend(strict.flat_map(|(_, pod)| restarts(pod)));
        self.breaches.extend(found);
    }
}
