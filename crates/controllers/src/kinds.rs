//! Every resource whose objects are stored, once each: what namespaces consist of and what owners can own.
//!
//! Built-in ones are always followed, whatever discovery says. Others come and go with what discovery names.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use controller::discovery::{Served, Watcher};
use controller::{Discovered, Held, Informer, Informers, PartialObject, ResourceRef};
use jiff::{SignedDuration, Timestamp};
use resources::{Resource, storage_version, table};

/// Events own nothing, nobody owns them, and they expire: nobody watches all of them.
const EVENTS: &str = "events";
/// How long a kind that came is given to show its objects. Source: the garbage collector's `initialSyncTimeout`.
const SYNC_MAX: SignedDuration = SignedDuration::from_secs(30);

static STORED: LazyLock<Vec<ResourceRef>> = LazyLock::new(|| {
    let once = |row: &&Resource| storage_version(row).is_some_and(|stored| std::ptr::eq(stored, *row));
    table()
        .iter()
        .filter(|row| row.is_stored() && row.is_served() && row.allows("watch") && row.allows("delete"))
        .filter(once)
        .map(reference)
        .collect()
});

/// Every stored built-in resource apart from events, in discovery's order.
pub(crate) fn built_in() -> impl Iterator<Item = &'static ResourceRef> {
    STORED.iter().filter(|resource| resource.plural != EVENTS)
}

/// The stored built-in resource of this group and kind.
pub(crate) fn by_kind(group: &str, kind: &str) -> Option<&'static ResourceRef> {
    built_in().find(|resource| resource.group == group && resource.kind == kind)
}

/// The stored built-in resource of this group and plural.
pub(crate) fn by_plural(group: &str, plural: &str) -> Option<&'static ResourceRef> {
    built_in().find(|resource| resource.group == group && resource.plural == plural)
}

/// Whether a resource is built in, in whatever version.
pub(crate) fn is_built_in(resource: &ResourceRef) -> bool {
    by_plural(&resource.group, &resource.plural).is_some()
}

/// Whether the objects of a discovered resource can be followed and deleted as those of built-in ones are.
/// Source: `GetDeletableResources`, and what the garbage collector ignores.
pub(crate) fn is_dynamic(found: &Discovered) -> bool {
    found.allows(&["delete", "list", "watch"]) && !is_event(&found.resource) && !is_built_in(&found.resource)
}

/// Whether these are events, in either group.
pub(crate) fn is_event(resource: &ResourceRef) -> bool {
    resource.plural == EVENTS && matches!(resource.group.as_str(), "" | "events.k8s.io")
}

/// Core events.
pub(crate) fn events() -> ResourceRef {
    ResourceRef::of::<k8s_openapi::api::core::v1::Event>()
}

fn reference(row: &Resource) -> ResourceRef {
    ResourceRef {
        group: row.group.to_string(),
        version: row.version.to_string(),
        kind: row.kind.to_string(),
        plural: row.plural.to_string(),
        namespaced: row.is_namespaced(),
    }
}

/// The kinds that are followed at one moment, with the metadata of their objects.
pub(crate) struct Followed<'a> {
    informers: &'a Informers,
    served: Arc<Served>,
}

impl<'a> Followed<'a> {
    pub(crate) fn of(informers: &'a Informers) -> Self {
        Self { informers, served: Watcher::of(informers).served() }
    }

    /// What is built in, and then what is served beside it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Cow<'static, ResourceRef>, Informer<PartialObject>)> {
        let built_in = built_in().map(|one| (Cow::Borrowed(one), self.informers.metadata(one)));
        let dynamic = self.dynamic().into_iter();
        built_in.chain(dynamic.map(|held| (Cow::Owned(held.resource().clone()), held.informer().clone())))
    }

    /// What is followed beside what is built in.
    pub(crate) fn dynamic(&self) -> Vec<Arc<Held>> {
        let mut all = self.informers.all_held();
        all.retain(|held| self.served.has(held.resource()) && !is_built_in(held.resource()));
        all
    }

    /// The resource of this group and plural, and its objects.
    pub(crate) fn by_plural(
        &self,
        group: &str,
        plural: &str,
    ) -> Option<(ResourceRef, Informer<PartialObject>)> {
        if let Some(found) = by_plural(group, plural) {
            return Some((found.clone(), self.informers.metadata(found)));
        }
        self.find_dynamic(self.served.by_plural(group, plural)?)
    }

    /// The resource of this group and kind that came, and its objects.
    pub(crate) fn dynamic_by_kind(
        &self,
        group: &str,
        kind: &str,
    ) -> Option<(ResourceRef, Informer<PartialObject>)> {
        self.find_dynamic(self.served.by_kind(group, kind)?)
    }

    /// Whether a kind is served, as far as is known.
    pub(crate) fn knows(&self, group: &str, kind: &str) -> bool {
        self.served.by_kind(group, kind).is_some()
    }

    fn find_dynamic(&self, found: &Discovered) -> Option<(ResourceRef, Informer<PartialObject>)> {
        let held = self.informers.find_held(&found.resource)?;
        Some((found.resource.clone(), held.informer().clone()))
    }

    /// Whether there may be objects that could be known and are not yet.
    pub(crate) fn is_incomplete(&self, now: Timestamp) -> bool {
        let is_late = |held: &Arc<Held>| now.duration_since(held.since()) >= SYNC_MAX;
        !self.served.has_answered()
            || built_in().any(|one| {
                self.served.by_plural(&one.group, &one.plural).is_some()
                    && !self.informers.metadata(one).is_synced()
            })
            || self.dynamic().iter().any(|held| !held.informer().is_synced() && !is_late(held))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_stored_resource_is_watched_once() {
        let all: Vec<_> = built_in().map(|resource| (&resource.group, &resource.plural)).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(by_kind("apps", "ReplicaSet").is_some() && by_kind("", "Pod").is_some());
        assert!(
            by_plural("", "events").is_none()
                && by_kind("authorization.k8s.io", "SubjectAccessReview").is_none()
        );
    }

    #[test]
    fn dynamic_kinds_are_what_can_be_followed_and_deleted_and_is_not_built_in() {
        let found = |group: &str, plural: &str, verbs: &[&str]| Discovered {
            resource: ResourceRef {
                group: group.into(),
                version: "v1".into(),
                kind: "X".into(),
                plural: plural.into(),
                namespaced: true,
            },
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
            subresources: Vec::new(),
        };
        let all = ["delete", "list", "watch"];
        for (found, expect) in [
            (found("example.com", "widgets", &all), true),
            (found("example.com", "pods", &all), true),
            (found("example.com", "events", &all), true),
            (found("example.com", "readings", &["get", "list"]), false),
            (found("", "pods", &all), false),
            (found("", "events", &all), false),
            (found("events.k8s.io", "events", &all), false),
            (found("apps", "deployments", &all), false),
        ] {
            assert_eq!(is_dynamic(&found), expect, "{found:?}");
        }
    }
}
