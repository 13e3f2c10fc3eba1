//! The permission to name things in another namespace. Source: `ReferenceGrantSpec`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::gateway::{GROUP, GrantFrom, GrantTo, ReferenceGrant, ReferenceGrantSpec};

/// What ReferenceGrants allow.
pub(super) struct Grants<'a>(HashMap<&'a str, Vec<&'a ReferenceGrantSpec>>);

/// An object of the core group that is named.
pub(super) struct Named<'a> {
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Grants<'a> {
    pub(super) fn of(all: &'a [Arc<ReferenceGrant>]) -> Self {
        let mut known: HashMap<_, Vec<_>> = HashMap::new();
        for grant in all.iter().filter(|grant| grant.metadata.deletion_timestamp.is_none()) {
            let namespace = grant.metadata.namespace.as_deref().unwrap_or_default();
            known.entry(namespace).or_default().push(&grant.spec);
        }
        Self(known)
    }

    /// Whether an object of this API's of a namespace may name another object.
    pub(super) fn allow(&self, kind: &str, namespace: &str, named: &Named<'_>) -> bool {
        let is_from =
            |from: &GrantFrom| from.group == GROUP && from.kind == kind && from.namespace == namespace;
        let is_to = |to: &GrantTo| {
            let is_name = |name: &str| name.is_empty() || name == named.name;
            to.group.is_empty() && to.kind == named.kind && to.name.as_deref().is_none_or(is_name)
        };
        let mut grants = self.0.get(named.namespace).into_iter().flatten();
        namespace == named.namespace
            || grants.any(|grant| grant.from.iter().any(is_from) && grant.to.iter().any(is_to))
    }
}
