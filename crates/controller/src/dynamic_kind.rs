//! A kind that comes and goes, with its objects whole: it is followed as long as discovery names it.
//!
//! While it does not, nothing is asked. What was known of a kind that has gone stays: that it is out of sight does not mean
//! that its objects are gone, which the server tells one by one when a definition is deleted.

use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use tokio::sync::watch;

use crate::discovery::{Served, Watcher};
use crate::informer::{DynamicReflector, Informer, Informers, Kind};
use crate::resource_ref::ResourceRef;

/// How long what a server told before a kind went may be on its way.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A kind that comes and goes, and what is known of its objects.
pub struct DynamicKind<K> {
    informer: Informer<K>,
    versions: &'static [&'static str],
    served: watch::Receiver<Arc<Served>>,
}

impl<K: Kind> DynamicKind<K> {
    /// The kind, in whichever of these versions the server names it.
    pub fn of(informers: &Informers, versions: &'static [&'static str]) -> Self {
        let served = Watcher::of(informers).subscribe();
        let (informer, reflector) = informers.dynamic::<K>();
        if let Some(reflector) = reflector {
            informers.tasks().spawn("dynamic kind", follow::<K>(reflector, versions, served.clone()));
        }
        Self { informer, versions, served }
    }

    /// The informer with what is known.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// The resource of its objects, if it is served in a version that is understood.
    pub fn resource(&self) -> Option<ResourceRef> {
        named::<K>(&self.served.borrow(), self.versions)
    }

    /// `true` if all is known that there is: the server has said whether it has the kind, and if it has, which objects.
    pub fn is_settled(&self) -> bool {
        let served = self.served.borrow();
        served.has_answered() && (named::<K>(&served, self.versions).is_none() || self.informer.is_synced())
    }

    /// Waits until all is known.
    pub async fn settled(&self) {
        let mut served = self.served.clone();
        loop {
            drop(served.borrow_and_update());
            if self.is_settled() {
                return;
            }
            tokio::select! {
                () = self.informer.synced(), if !self.informer.is_synced() => {}
                changed = served.changed() => if changed.is_err() { return },
            }
        }
    }
}

fn named<K: Kind>(served: &Served, versions: &[&str]) -> Option<ResourceRef> {
    let found = served.by_plural(K::GROUP, K::URL_PATH_SEGMENT)?;
    let is_understood = versions.contains(&found.resource.version.as_str());
    (is_understood && found.allows(&["list", "watch"])).then(|| found.resource.clone())
}

/// Fills an informer for ever, as long as there is something to fill it with.
async fn follow<K: Kind>(
    reflector: DynamicReflector,
    versions: &'static [&'static str],
    mut served: watch::Receiver<Arc<Served>>,
) {
    let mut followed: Option<(ResourceRef, Tasks)> = None;
    loop {
        let now = named::<K>(&served.borrow_and_update(), versions);
        if followed.as_ref().map(|(resource, _)| resource) != now.as_ref() {
            if let Some((_, tasks)) = followed.take() {
                // What was deleted before the kind went is deleted, and may not have been heard of.
                tokio::time::sleep(LAST_WORDS).await;
                tasks.stop();
            }
            followed = now.map(|resource| {
                let tasks = reflector.start(&resource);
                (resource, tasks)
            });
        }
        if served.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use k8s_openapi::{ClusterResourceScope, Metadata, Resource};
    use parking_lot::Mutex;
    use serde::Deserialize;

    use super::*;
    use crate::fake::{Server, State};
    use crate::plan::Plan;
    use crate::{Controller, Engine, Source};

    #[derive(Clone, Debug, Default, Deserialize)]
    struct Pear {
        metadata: ObjectMeta,
    }

    crate::decoded!(Pear);

    impl Resource for Pear {
        const API_VERSION: &'static str = "b.com/v1";
        const GROUP: &'static str = "b.com";
        const KIND: &'static str = "Pear";
        const VERSION: &'static str = "v1";
        const URL_PATH_SEGMENT: &'static str = "pears";
        type Scope = ClusterResourceScope;
    }

    impl Metadata for Pear {
        type Ty = ObjectMeta;

        fn metadata(&self) -> &ObjectMeta {
            &self.metadata
        }

        fn metadata_mut(&mut self) -> &mut ObjectMeta {
            &mut self.metadata
        }
    }

    fn names(kind: &DynamicKind<Pear>) -> Vec<String> {
        kind.informer().list().iter().filter_map(|pear| pear.metadata.name.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_is_asked_for_while_it_is_named_and_what_is_known_of_it_stays() {
        let mut state = State::default();
        state.serve("a.com/v1", &["apples"]);
        let (server, informers, _) = Server::start(state);
        let kind = DynamicKind::<Pear>::of(&informers, &["v1", "v1beta1"]);
        assert!(!kind.is_settled(), "nobody has said what there is");
        kind.settled().await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!((kind.resource(), server.requests("/apis/b.com/v1/pears")), (None, 0));

        server.change(|state| {
            state.serve("b.com/v1", &["pears"]);
            state.put("b.com/v1", "pears", "green");
        });
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert!(kind.resource().is_some() && kind.is_settled());
        assert_eq!(
            names(&DynamicKind::of(&informers, &["v1", "v1beta1"])),
            ["green"],
            "there is one for all"
        );
        assert_eq!(server.watches("pears"), 1);

        server.change(|state| state.serve("b.com/v1", &["cherries"]));
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!((kind.resource(), server.watches("pears"), names(&kind).len()), (None, 0, 1));

        server.change(|state| {
            state.serve("b.com/v2", &["pears"]);
            state.put("b.com/v2", "pears", "new");
        });
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!((kind.resource(), names(&kind)), (None, vec!["green".to_owned()]), "nobody reads v2");
        server.change(|state| {
            state.kinds.remove("b.com/v2");
            state.serve("b.com/v1beta1", &["pears"]);
            state.put("b.com/v1beta1", "pears", "old");
        });
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(names(&kind), ["old"]);
    }

    /// The keys that were run, in order.
    #[derive(Default)]
    struct Run(Mutex<Vec<String>>);

    const ROW: Controller = Controller {
        name: "tester",
        queue: "tester",
        sources: |_| {
            let came = |_: &Informers| vec!["came".to_owned()];
            vec![Source::dynamic::<Pear>(&["v1"], |change, _| vec![change.key.to_string()], came)]
        },
        reconcile: |informers, key, _| {
            informers.setting_or(Run::default).0.lock().push(key.to_owned());
            Plan::nothing()
        },
    };

    #[tokio::test(start_paused = true)]
    async fn a_dynamic_kind_wakes_keys_when_it_has_come_and_when_its_objects_change() {
        let (server, informers, _) = Server::start(State::default());
        Engine::new(informers.clone(), "tester").start(ROW);
        let run = async || {
            tokio::time::sleep(Duration::from_secs(40)).await;
            let mut keys = std::mem::take(&mut *informers.setting_or(Run::default).0.lock());
            keys.sort();
            keys
        };
        assert!(run().await.is_empty(), "nobody has it");
        server.change(|state| state.serve("b.com/v1", &["pears"]));
        assert_eq!(run().await, ["came"]);
        server.change(|state| state.put("b.com/v1", "pears", "green"));
        assert_eq!(run().await, ["green"]);
    }
}
