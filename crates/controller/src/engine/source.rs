//! The sources of a controller's keys.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::Following;
use crate::dynamic_kind::DynamicKind;
use crate::informer::{Change, Informers, Kind, PartialObject, Scope};
use crate::resource_ref::ResourceRef;
use crate::workqueue::WorkQueue;

/// How long a controller waits for the metadata of a resource before it begins. Source: the garbage collector's
/// `initialSyncTimeout`.
const METADATA_SYNC_MAX: Duration = Duration::from_secs(30);

/// One thing that wakes keys.
pub struct Source {
    pub(super) start: Box<dyn FnOnce(Informers, Arc<WorkQueue>) + Send>,
    pub(super) synced: Box<dyn FnOnce(Informers) -> BoxFuture<'static, ()> + Send>,
}

impl Source {
    /// Changes of `K`, mapped to the keys that they wake.
    pub fn of<K: Kind>(keys: fn(&Change<K>, &Informers) -> Vec<String>) -> Self {
        Self::scoped(Scope::default(), keys)
    }

    /// Changes of some `K`, mapped to the keys that they wake.
    pub fn scoped<K: Kind>(scope: Scope, keys: fn(&Change<K>, &Informers) -> Vec<String>) -> Self {
        let of = scope.clone();
        Self {
            start: Box::new(move |informers, queue| {
                let known = informers.clone();
                let wake = move |change: &Change<K>| {
                    keys(change, &known).into_iter().for_each(|key| queue.add(key, change.revision));
                };
                informers.scoped::<K>(scope).add_event_handler(informers.tasks(), wake);
            }),
            synced: Box::new(move |informers| {
                let informer = informers.scoped::<K>(of);
                Box::pin(async move { informer.synced().await })
            }),
        }
    }

    /// Changes of `K` that wake the object itself.
    pub fn itself<K: Kind>() -> Self {
        Self::of::<K>(|change, _| vec![change.key.to_string()])
    }

    /// Changes of `K` that wake its controller owner if that is an `Owner`.
    pub fn owned_by<K: Kind, Owner: Kind>() -> Self {
        Self::of::<K>(|change, _| {
            let both = [change.old.as_deref(), change.new.as_deref()];
            both.into_iter().flatten().filter_map(|object| owner_key::<Owner>(object.metadata())).collect()
        })
    }

    /// Changes of the metadata of any object of `resource`. Whoever follows many resources in this way begins after
    /// 30 s without those that cannot be listed, and has to decide accordingly.
    pub fn metadata_of(
        resource: ResourceRef,
        keys: fn(&Change<PartialObject>, &ResourceRef, &Informers) -> Vec<String>,
    ) -> Self {
        let of = resource.clone();
        Self {
            start: Box::new(move |informers, queue| {
                let (informer, known) = (informers.metadata(&resource), informers.clone());
                let wake = move |change: &Change<PartialObject>| {
                    let keys = keys(change, &resource, &known);
                    keys.into_iter().for_each(|key| queue.add(key, change.revision));
                };
                informer.add_event_handler(informers.tasks(), wake);
            }),
            synced: Box::new(move |informers| {
                let informer = informers.metadata(&of);
                Box::pin(async move {
                    if tokio::time::timeout(METADATA_SYNC_MAX, informer.synced()).await.is_err() {
                        tracing::warn!(resource = of.full_name(), "decisions begin without its objects");
                    }
                })
            }),
        }
    }

    /// Changes of `K`, which comes and goes, mapped to the keys that they wake; `came` is what wakes when its objects are at
    /// hand.
    pub fn dynamic<K: Kind>(
        versions: &'static [&'static str],
        keys: fn(&Change<K>, &Informers) -> Vec<String>,
        came: fn(&Informers) -> Vec<String>,
    ) -> Self {
        Self {
            start: Box::new(move |informers, queue| {
                let (kind, known) = (DynamicKind::<K>::of(&informers, versions), informers.clone());
                let mut changes = kind.informer().subscribe();
                informers.tasks().spawn("source", async move {
                    let mut is_synced = false;
                    loop {
                        tokio::select! {
                            () = kind.informer().synced(), if !is_synced => {
                                is_synced = true;
                                let revision = kind.informer().revision();
                                came(&known).into_iter().for_each(|key| queue.add(key, revision));
                            }
                            all = changes.next() => for change in all {
                                let keys = keys(&change, &known);
                                keys.into_iter().for_each(|key| queue.add(key, change.revision));
                            },
                        }
                    }
                });
            }),
            // Nobody waits for what may never come.
            synced: Box::new(|_| Box::pin(std::future::ready(()))),
        }
    }

    /// Changes of the metadata of objects of kinds that come and go.
    pub fn discovered(following: Following) -> Self {
        Self {
            start: Box::new(move |informers, queue| {
                informers.tasks().spawn("source", following.run(informers.clone(), queue));
            }),
            // Nobody waits for what may never come: whoever follows such kinds decides with what is there.
            synced: Box::new(|_| Box::pin(std::future::ready(()))),
        }
    }
}

/// The key of the controller owner, if its kind is `Owner`.
pub fn owner_key<Owner: Kind>(
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<String> {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let is_kind = owner.kind == Owner::KIND
        && owner.api_version.split('/').next() == Owner::API_VERSION.split('/').next();
    is_kind.then(|| crate::resource_ref::key_of(meta.namespace.as_deref(), &owner.name))
}
