//! Every resource whose objects are stored, once each: what namespaces consist of and what owners can own.

use std::sync::LazyLock;

use controller::ResourceRef;
use resources::{Resource, storage_version, table};

/// Events own nothing, nobody owns them, and they expire: nobody watches all of them.
const EVENTS: &str = "events";

static STORED: LazyLock<Vec<ResourceRef>> = LazyLock::new(|| {
    let once = |row: &&Resource| storage_version(row).is_some_and(|stored| std::ptr::eq(stored, *row));
    table()
        .iter()
        .filter(|row| row.is_stored() && row.is_served() && row.allows("watch") && row.allows("delete"))
        .filter(once)
        .map(reference)
        .collect()
});

/// Every stored resource apart from events, in discovery's order.
pub(crate) fn watched() -> impl Iterator<Item = &'static ResourceRef> {
    STORED.iter().filter(|resource| resource.plural != EVENTS)
}

/// The stored resource of this group and kind.
pub(crate) fn by_kind(group: &str, kind: &str) -> Option<&'static ResourceRef> {
    watched().find(|resource| resource.group == group && resource.kind == kind)
}

/// The stored resource of this group and plural.
pub(crate) fn by_plural(group: &str, plural: &str) -> Option<&'static ResourceRef> {
    watched().find(|resource| resource.group == group && resource.plural == plural)
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_stored_resource_is_watched_once() {
        let all: Vec<_> = watched().map(|resource| (&resource.group, &resource.plural)).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(by_kind("apps", "ReplicaSet").is_some() && by_kind("", "Pod").is_some());
        assert!(
            by_plural("", "events").is_none()
                && by_kind("authorization.k8s.io", "SubjectAccessReview").is_none()
        );
    }
}
