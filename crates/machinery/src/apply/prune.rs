//! Takes out of a merged object what its manager applied last time, does not apply now, and nobody else owns.
//!
//! Source: `Updater.prune` of `sigs.k8s.io/structured-merge-diff`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Versions;
use super::field_set::field_set;
use super::managers::{Entry, Managers};
use super::remove::{remove, with_named_fields};
use super::set::Set;
use super::typed::Typed;

/// The merged object without abandoned fields, in the version `api_version`.
///
/// `managers` has the new set of the applying manager already; `last` is the one before.
pub(super) fn prune(
    versions: &dyn Versions,
    merged: Value,
    managers: &Managers<'_>,
    last: Option<&Entry<'_>>,
    api_version: &str,
) -> Value {
    let Some(last) = last.filter(|last| !last.set.is_empty()) else { return merged };
    let at = |object: &Value, version: &str| in_version(versions, object, version, api_version);
    let (Some(schema), Some(whole)) = (versions.schema(&last.api_version), at(&merged, &last.api_version))
    else {
        return merged;
    };
    let root = Typed::root(schema);
    let abandoned = with_named_fields(root, &last.set);
    let mut pruned = (remove(root, &whole, &abandoned), last.api_version.to_string());
    for (version, owned) in owned_by_version(managers, &last.api_version) {
        let Some(schema) = versions.schema(version) else { continue };
        let (Some(all), Some(left)) =
            (at(&merged, version), in_version(versions, &pruned.0, version, &pruned.1))
        else {
            continue;
        };
        let root = Typed::root(schema);
        let named = |value| with_named_fields(root, &field_set(root, value));
        let mut gone = named(&all);
        gone.subtract(&named(&left));
        gone.subtract(&with_named_fields(root, &owned));
        pruned = (remove(root, &all, &gone), version.to_owned());
    }
    let Some(left) = in_version(versions, &pruned.0, &last.api_version, &pruned.1) else { return merged };
    // Only what this manager had owned may go.
    let named = |value| with_named_fields(root, &field_set(root, value));
    let mut gone = named(&whole);
    gone.subtract(&named(&left));
    let result = remove(root, &whole, &gone.intersection(&abandoned));
    in_version(versions, &result, api_version, &last.api_version).unwrap_or(result)
}

fn in_version(versions: &dyn Versions, object: &Value, to: &str, from: &str) -> Option<Value> {
    if to == from { Some(object.clone()) } else { versions.convert(object, to) }
}

/// What all managers own together, by version, `first` first.
fn owned_by_version<'m>(managers: &'m Managers<'_>, first: &str) -> Vec<(&'m str, Set<'m>)> {
    let mut owned: BTreeMap<&str, Set<'_>> = BTreeMap::new();
    for (_, entry) in managers.iter() {
        owned.entry(&entry.api_version).or_default().unite(entry.set.clone());
    }
    let mut owned: Vec<_> = owned.into_iter().collect();
    owned.sort_by_key(|(version, _)| *version != first);
    owned
}
