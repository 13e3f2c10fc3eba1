//! ConfigMaps and Secrets that Pods of this node name: one watch for each, shared by all of them, which ends with the
//! last, and as soon as the object says that it never changes.
//!
//! Source: the watch-based manager of upstream's `pkg/kubelet/util/manager`, KEP-1412 (immutable objects).

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use base::Tasks;
use controller::{Informer, Informers, Kind, Scope};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;

/// What can say of itself that it never changes.
pub(crate) trait Source: Kind {
    /// Whether it does.
    fn is_immutable(&self) -> bool;
}

impl Source for ConfigMap {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Source for Secret {
    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// One object, looked at as long as somebody holds this.
pub(crate) struct Watched<K: Source> {
    key: String,
    informer: Informer<K>,
    tasks: Tasks,
    /// The object, once it is known that it stays as it is.
    fixed: OnceLock<Arc<K>>,
}

impl<K: Source> Watched<K> {
    fn new(informers: &Informers, namespace: &str, name: &str) -> Self {
        let tasks = informers.tasks().child();
        // A set of its own: those of the process run as long as it does.
        let own = Informers::metered(
            informers.client().clone(),
            tasks.clone(),
            informers.clock().clone(),
            informers.random().clone(),
            informers.metrics().clone(),
        );
        let informer = own.scoped(Scope {
            namespace: Some(namespace.to_owned()),
            field_selector: Some(format!("metadata.name={name}")),
            label_selector: None,
        });
        Self { key: format!("{namespace}/{name}"), informer, tasks, fixed: OnceLock::new() }
    }

    /// The object, if there is one.
    pub(crate) fn get(&self) -> Option<Arc<K>> {
        if let Some(fixed) = self.fixed.get() {
            return Some(fixed.clone());
        }
        let object = self.informer.get(&self.key)?;
        if !object.is_immutable() {
            return Some(object);
        }
        self.tasks.stop();
        Some(self.fixed.get_or_init(|| object).clone())
    }

    /// Waits until it is known whether there is one.
    pub(crate) async fn synced(&self) {
        if self.fixed.get().is_none() {
            self.informer.synced().await;
        }
    }

    /// Calls `changed` whenever the object is another, until it cannot be any more.
    pub(crate) async fn follow(self: Arc<Self>, changed: impl Fn()) {
        self.synced().await;
        let version = || self.get().and_then(|object| object.metadata().resource_version.clone());
        let mut changes = self.informer.subscribe();
        let mut seen = version();
        while self.fixed.get().is_none() {
            changes.next().await;
            let now = version();
            if now != seen {
                seen = now;
                changed();
            }
        }
    }
}

impl<K: Source> Drop for Watched<K> {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// Those that somebody holds, by namespace and name.
pub(crate) struct Register<K: Source>(Mutex<HashMap<String, Weak<Watched<K>>>>);

impl<K: Source> Default for Register<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Source> Register<K> {
    /// The one of that name; looked at from now on if nobody did.
    pub(crate) fn hold(&self, informers: &Informers, namespace: &str, name: &str) -> Arc<Watched<K>> {
        let mut all = self.0.lock();
        let key = format!("{namespace}/{name}");
        if let Some(held) = all.get(&key).and_then(Weak::upgrade) {
            return held;
        }
        all.retain(|_, held| held.strong_count() > 0);
        let new = Arc::new(Watched::new(informers, namespace, name));
        all.insert(key, Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(text: &str) -> Watched<ConfigMap> {
        let object: ConfigMap = serde_saphyr::from_str(text).unwrap();
        let informer = Informer::fixed(vec![object]);
        Watched { key: "n/a".into(), informer, tasks: Tasks::new(), fixed: OnceLock::new() }
    }

    #[test]
    fn what_never_changes_is_watched_no_longer() {
        let plain = watched("{metadata: {name: a, namespace: n}}");
        assert!(plain.get().is_some() && !plain.tasks.is_stopping());
        let immutable = watched("{metadata: {name: a, namespace: n}, immutable: true}");
        assert!(immutable.get().is_some() && immutable.tasks.is_stopping());
        assert!(immutable.get().is_some(), "and still known");
    }

    #[test]
    fn the_last_pod_that_names_an_object_ends_its_watch() {
        let plain = watched("{metadata: {name: a, namespace: n}}");
        let tasks = plain.tasks.clone();
        let register = Register::<ConfigMap>::default();
        let first = Arc::new(plain);
        register.0.lock().insert("n/a".into(), Arc::downgrade(&first));
        let second = register.0.lock().get("n/a").and_then(Weak::upgrade);
        drop(first);
        assert!(!tasks.is_stopping());
        drop(second);
        assert!(tasks.is_stopping());
    }
}
