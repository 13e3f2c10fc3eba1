//! Server-side apply: who owns which field, and what an applied configuration makes of an object.
//!
//! Pure functions over the schema: [`track`] keeps `metadata.managedFields` at every write, [`apply()`] merges a
//! configuration, drops what its manager no longer applies and nobody else owns, and reports conflicts. Both take
//! the time as an argument. Admission, defaults and storage come after.
//! Source: KEP-555; `sigs.k8s.io/structured-merge-diff`; `k8s.io/apimachinery/pkg/util/managedfields`.

pub mod element;
pub mod set;

pub mod fields_v1;
pub mod managers;

mod typed;

mod compare;
mod field_set;
mod merge;
mod remove;

pub mod conflict;
mod last_applied;
mod prune;
mod reconcile;
mod unowned;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use schema::SchemaRef;
use serde_json::Value;

use crate::metadata;
use compare::{Comparison, compare};
use conflict::{Conflict, Conflicts};
use managers::{Entry, Identity, Managers, Operation};
use set::Set;
use typed::Typed;
pub use unowned::merge_unowned;

/// The manager of fields that were there before anybody was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager whose apply takes over from client-side apply.
const KUBECTL: &str = "kubectl";
/// Metadata that nobody owns.
const UNTRACKED_METADATA: [&str; 9] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
];

/// What nobody owns, though a configuration may name it.
static UNTRACKED: LazyLock<Set<'static>> = LazyLock::new(|| {
    let mut paths: Vec<&[&'static str]> = vec![&["apiVersion"], &["kind"], &["metadata"]];
    let metadata: Vec<[&'static str; 2]> =
        UNTRACKED_METADATA.iter().map(|name| ["metadata", *name]).collect();
    paths.extend(metadata.iter().map(<[&'static str; 2]>::as_slice));
    Set::of_fields(&paths)
});

/// The writer, and the manner of the write.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// `group/version` of the request.
    pub api_version: &'a str,
    /// The subresource, empty for none.
    pub subresource: &'a str,
    /// The time, RFC 3339 in seconds.
    pub now: &'a str,
    /// Trees of paths that writes through this endpoint never change.
    pub ignored: &'a Set<'a>,
}

/// The versions of a kind. Entries of versions that are not served any more are dropped.
pub trait Versions {
    /// The schema of the kind in a version.
    fn schema(&self, api_version: &str) -> Option<SchemaRef<'_>>;

    /// An object of any of the versions in another one.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// The treatment of fields that others own with other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// Apply nothing.
    Refuse,
    /// Take them over.
    Force,
}

/// The reason why a configuration cannot be applied. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration is wrong: a bad request.
    #[error("{0}")]
    Invalid(String),
    /// Others own fields.
    #[error(transparent)]
    Conflicts(#[from] Conflicts),
}

/// Sets the managed fields of `new`, which a create (`live` is absent) or an update is about to store.
///
/// What `new` says of managed fields itself counts if it is valid and no subresource is written; an empty entry
/// or list ends tracking. Objects that are not tracked stay so until they are applied.
pub fn track(write: &Write<'_>, versions: &dyn Versions, live: Option<&Value>, new: &mut Value) {
    let sent = metadata::metadata_mut(new).and_then(|metadata| metadata.remove("managedFields"));
    let tracked = tracked(write, versions, live, new, sent.as_ref().and_then(Value::as_array));
    put(new, tracked);
}

/// Leaves `new` with the managed fields of `live`.
pub fn keep(live: &Value, new: &mut Value) {
    put(new, entries_of(live).to_vec());
}

/// Undoes a change of nothing but times: such a write must not make a revision.
pub fn restore_times(live: &Value, new: &mut Value) {
    let (old, made) = (entries_of(live), entries_of(new));
    let is_same_entry = |(old, new): (&Value, &Value)| is_same_but(old, new, "time");
    if old.is_empty() || old == made || old.len() != made.len() || !old.iter().zip(made).all(is_same_entry) {
        return;
    }
    let is_same_metadata = match (live.get("metadata"), new.get("metadata")) {
        (Some(live), Some(new)) => is_same_but(live, new, "managedFields"),
        (live, new) => live == new,
    };
    if is_same_metadata && is_same_but(live, new, "metadata") {
        put(new, old.to_vec());
    }
}

/// Whether two objects differ in one field at most.
fn is_same_but(left: &Value, right: &Value, name: &str) -> bool {
    let (Value::Object(left), Value::Object(right)) = (left, right) else { return left == right };
    let others = |(other, _): &(&String, &Value)| *other != name;
    left.iter().filter(others).eq(right.iter().filter(others))
}

fn tracked(
    write: &Write<'_>,
    versions: &dyn Versions,
    live: Option<&Value>,
    new: &Value,
    sent: Option<&Vec<Value>>,
) -> Vec<Value> {
    let of_live = || Managers::decode(live.map_or(&[], entries_of)).unwrap_or_default();
    let mut managers = match sent {
        Some(list) if write.subresource.is_empty() => match is_reset(list) {
            true => Managers::default(),
            false => Managers::decode(list).ok().filter(|sent| !sent.is_empty()).unwrap_or_else(of_live),
        },
        _ => of_live(),
    };
    if managers.is_empty() && live.is_some() {
        return Vec::new();
    }
    reconcile::reconcile(versions, &mut managers);
    record(write, versions, live.unwrap_or_else(|| typed::empty_object()), new, &mut managers);
    managers.cap();
    managers.encode()
}

/// A list that asks for an end of tracking.
fn is_reset(list: &[Value]) -> bool {
    match list {
        [] => true,
        [one] => one.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

/// Gives what changed to the writer and takes it from everybody else.
fn record<'a>(
    write: &Write<'a>,
    versions: &'a dyn Versions,
    live: &'a Value,
    new: &'a Value,
    managers: &mut Managers<'a>,
) {
    let Some(schema) = versions.schema(write.api_version) else { return };
    let mut changes = compare(Typed::root(schema), live, new, &is_untracked);
    changes.exclude(write.ignored);
    if changes.is_same() {
        return;
    }
    let all = |_: &Identity<'_>| true;
    let change = Change { live, new, comparison: &changes };
    for (identity, lost) in losses(write, versions, &change, managers, &all) {
        managers.subtract(&identity, &lost.all());
    }
    let mut gained = changes.modified;
    gained.unite(changes.added);
    gained.subtract(&UNTRACKED);
    if !gained.is_empty() {
        let identity = Identity::new(write.manager, Operation::Update, write.api_version, write.subresource);
        managers.unite(identity, write.api_version, gained, write.now);
    }
}

/// What an entry loses by a change.
struct Loss<'a> {
    /// What has another value now.
    changed: Set<'a>,
    /// What is gone.
    removed: Set<'a>,
}

impl<'a> Loss<'a> {
    fn all(self) -> Set<'a> {
        let mut all = self.changed;
        all.unite(self.removed);
        all
    }
}

/// A change of an object, in the version that is written.
struct Change<'c> {
    live: &'c Value,
    new: &'c Value,
    comparison: &'c Comparison<'c>,
}

/// What each entry that `counts` loses; entries of versions that are not served lose themselves.
fn losses<'a>(
    write: &Write<'_>,
    versions: &dyn Versions,
    change: &Change<'_>,
    managers: &mut Managers<'a>,
    counts: &dyn Fn(&Identity<'_>) -> bool,
) -> Vec<(Identity<'a>, Loss<'a>)> {
    let mut losses = Vec::new();
    let mut unserved = Vec::new();
    for (identity, entry) in managers.iter().filter(|(identity, _)| counts(identity)) {
        if entry.api_version == write.api_version {
            losses.push((identity.clone(), loss(&entry.set, change.comparison)));
            continue;
        }
        let converted = |object: &Value| versions.convert(object, &entry.api_version);
        match (versions.schema(&entry.api_version), converted(change.live), converted(change.new)) {
            (Some(schema), Some(live), Some(new)) => {
                let mut changes = compare(Typed::root(schema), &live, &new, &is_untracked);
                changes.exclude(write.ignored);
                losses.push((identity.clone(), loss(&entry.set, &changes)));
            }
            _ => unserved.push(identity.clone()),
        }
    }
    for identity in unserved {
        managers.remove(&identity);
    }
    losses
}

fn loss<'a>(owned: &Set<'a>, changes: &Comparison<'_>) -> Loss<'a> {
    let mut changed = owned.intersection(&changes.modified);
    changed.unite(owned.intersection(&changes.added));
    Loss { changed, removed: owned.intersection(&changes.removed) }
}

/// Applies a configuration to `live`, or to nothing; answers the merged object with its managed fields.
///
/// # Errors
/// If the configuration does not fit the schema, or others own fields of it.
pub fn apply(
    write: &Write<'_>,
    versions: &dyn Versions,
    live: Option<&Value>,
    config: &Value,
    on_conflict: OnConflict,
) -> Result<Value, ApplyError> {
    let outcome = apply_once(write, versions, live, config, on_conflict);
    let mut object = match (outcome, live) {
        (Err(ApplyError::Conflicts(found)), Some(live)) if write.manager == KUBECTL => {
            let owned = versions
                .schema(write.api_version)
                .and_then(|schema| last_applied::owned(Typed::root(schema), live, write.api_version));
            let Some(owned) = owned else { return Err(found.into()) };
            let rest: Vec<Conflict> =
                found.0.into_iter().filter(|conflict| !owned.contains(&conflict.field)).collect();
            if !rest.is_empty() {
                return Err(Conflicts(rest).into());
            }
            apply_once(write, versions, Some(live), config, OnConflict::Force)?
        }
        (outcome, _) => outcome?,
    };
    if write.manager == KUBECTL {
        last_applied::sync(&mut object, config);
    }
    Ok(object)
}

fn apply_once(
    write: &Write<'_>,
    versions: &dyn Versions,
    live: Option<&Value>,
    config: &Value,
    on_conflict: OnConflict,
) -> Result<Value, ApplyError> {
    let Some(schema) = versions.schema(write.api_version) else {
        return Err(ApplyError::Invalid(format!("no schema for {}", write.api_version)));
    };
    let root = Typed::root(schema);
    check_configuration(schema, config)?;
    let base = live.map_or_else(|| typed::empty_object().clone(), without_managed_fields);
    let decoded = Managers::decode(live.map_or(&[], entries_of));
    let mut managers =
        decoded.map_err(|error| ApplyError::Invalid(format!("failed to decode managed fields: {error}")))?;
    if managers.is_empty() {
        let before = Write { manager: BEFORE_FIRST_APPLY, ..*write };
        record(&before, versions, typed::empty_object(), &base, &mut managers);
    }
    reconcile::reconcile(versions, &mut managers);

    let identity = Identity::new(write.manager, Operation::Apply, write.api_version, write.subresource);
    let last = managers.get(&identity).cloned();
    let mut owned = field_set::field_set(root, config);
    owned.subtract_trees(write.ignored);
    managers.insert(identity.clone(), Entry::new(write.api_version.into(), owned.clone()));
    let merged = merge::merge(root, &base, config);
    let object = match last.as_ref().filter(|last| last.is_within(write.api_version, &owned)) {
        Some(_) => merged,
        None => prune::prune(versions, merged, &managers, last.as_ref(), write.api_version),
    };

    let mut changes = compare(root, &base, &object, &is_untracked);
    changes.exclude(write.ignored);
    let change = Change { live: &base, new: &object, comparison: &changes };
    let others = |other: &Identity<'_>| *other != identity;
    let lost = losses(write, versions, &change, &mut managers, &others);
    if on_conflict == OnConflict::Refuse {
        refuse_conflicts(&lost)?;
    }
    for (other, lost) in lost {
        managers.subtract(&other, &lost.all());
    }
    owned.subtract(&UNTRACKED);
    managers.remove(&identity);
    match last {
        Some(last) if last.set == owned && base == object => managers.insert(identity, last),
        _ if owned.is_empty() => {}
        // The time is when the manager last changed the object, not when it came to own more or less of it.
        last if base == object => managers.insert(identity, Entry::unchanged(last, write.api_version, owned)),
        _ => managers.unite(identity, write.api_version, owned, write.now),
    }
    let encoded = managers.encode();
    let mut object = object;
    put(&mut object, encoded);
    Ok(object)
}

fn refuse_conflicts(lost: &[(Identity<'_>, Loss<'_>)]) -> Result<(), Conflicts> {
    let mut conflicts = Vec::new();
    for (owner, lost) in lost {
        conflicts.extend(lost.changed.paths().iter().map(|path| Conflict::new(owner, path)));
    }
    if conflicts.is_empty() { Ok(()) } else { Err(Conflicts(conflicts)) }
}

/// Checks that a configuration fits its schema.
///
/// # Errors
/// With every problem in upstream's text.
pub fn check_configuration(schema: SchemaRef<'_>, config: &Value) -> Result<(), ApplyError> {
    let problems = field_set::problems(Typed::root(schema), config);
    if problems.is_empty() { Ok(()) } else { Err(ApplyError::Invalid(unfit(config, &problems))) }
}

fn unfit(config: &Value, problems: &[String]) -> String {
    let metadata = metadata::Metadata::of(config);
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    format!(
        "failed to create typed patch object ({}/{}; {}, Kind={}): {}",
        metadata.namespace(),
        metadata.name(),
        text("apiVersion"),
        text("kind"),
        listed(problems),
    )
}

/// All problems of a configuration, as upstream lists them.
fn listed(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        many => format!("errors:\n  {}", many.join("\n  ")),
    }
}

/// A copy of an object without its managed fields, which are the larger part of many.
fn without_managed_fields(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let copied = fields.map(|(name, value)| match value {
        Value::Object(metadata) if name == "metadata" => {
            let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
            (name.clone(), Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect()))
        }
        _ => (name.clone(), value.clone()),
    });
    Value::Object(copied.collect())
}

fn entries_of(object: &Value) -> &[Value] {
    metadata::Metadata::of(object).managed_fields().map_or(&[], Vec::as_slice)
}

fn put(object: &mut Value, entries: Vec<Value>) {
    if entries.is_empty() {
        metadata::remove(object, "managedFields");
    } else {
        metadata::set(object, "managedFields", entries);
    }
}

/// Fields that nobody owns; they are not even compared.
fn is_untracked(path: &[&str], name: &str) -> bool {
    match path {
        [] => matches!(name, "apiVersion" | "kind"),
        ["metadata"] => UNTRACKED_METADATA.contains(&name),
        _ => false,
    }
}

/// The texts of all paths of a set.
fn texts(set: &Set<'_>) -> BTreeSet<String> {
    set.paths().iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
