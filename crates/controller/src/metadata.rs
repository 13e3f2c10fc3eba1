//! The metadata that everybody reads: keys, names, owners, times.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use k8s_openapi::{Metadata, Resource};

use crate::resource_ref::key_of;

/// A typed object with the usual metadata.
pub trait Object: Metadata<Ty = ObjectMeta, Scope: 'static> {}
impl<K: Metadata<Ty = ObjectMeta, Scope: 'static>> Object for K {}

/// `namespace/name`, or `name` where there is no namespace.
pub fn key(meta: &ObjectMeta) -> String {
    key_of(meta.namespace.as_deref(), name(meta))
}

/// `metadata.name`, empty when it has none yet.
pub fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// `metadata.namespace`, empty for what has none.
pub fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// `metadata.uid`, empty when it has none yet.
pub fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

/// The annotation `key`.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The label `key`.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether deletion was asked for.
pub fn is_deleting(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

/// The owner that manages this object, if there is one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// When the object was made; the epoch when it was not made yet.
pub fn created(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// A reference that makes `owner` the controller of what carries it.
pub fn controller_reference<K>(owner: &K) -> OwnerReference
where
    K: Resource + Metadata<Ty = ObjectMeta>,
{
    OwnerReference {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        name: name(owner.metadata()).to_owned(),
        uid: uid(owner.metadata()).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// `now` as the API writes it: whole seconds.
pub fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests;
