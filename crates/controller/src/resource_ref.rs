//! A resource of the API: enough to build its URLs.

use std::any::TypeId;

use k8s_openapi::{ClusterResourceScope, Resource};

/// A resource's group, version, plural and scope.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceRef {
    /// Empty for the core group.
    pub group: String,
    /// For example `v1`.
    pub version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// For example `deployments`.
    pub plural: String,
    /// `true` if objects live in a namespace.
    pub namespaced: bool,
}

impl ResourceRef {
    /// The resource that a typed object belongs to.
    pub fn of<K: Resource>() -> Self
    where
        K::Scope: 'static,
    {
        let namespaced = TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>();
        Self::named([K::GROUP, K::VERSION, K::KIND, K::URL_PATH_SEGMENT], namespaced)
    }

    fn named(names: [&str; 4], namespaced: bool) -> Self {
        let [group, version, kind, plural] = names.map(str::to_owned);
        Self { group, version, kind, plural, namespaced }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `services` or `deployments.apps`.
    pub fn full_name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The URL path of the collection; of all namespaces if `namespace` is empty.
    pub fn collection_path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/namespaces/{namespace}/{}", self.plural)
        } else {
            format!("{root}/{}", self.plural)
        }
    }

    /// The URL path of one object.
    pub fn object_path(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection_path(namespace))
    }
}

/// `namespace/name`, or `name` where there is no namespace.
pub fn key_of(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}

/// Takes a key apart again; the namespace is empty where there is none.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

#[cfg(test)]
mod tests;
