//! `metadata.managedFields`: who owns which fields, and since when.
//!
//! Entries are decoded with their sets borrowed from the object; what does not change is written back as it was.
//! Source: `ManagedFieldsEntry` of meta/v1; `k8s.io/apimachinery/pkg/util/managedfields`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::ElementError;
use super::fields_v1;
use super::set::Set;

/// How many entries of updates an object keeps; the oldest are merged beyond that.
const UPDATE_MANAGERS_MAX: usize = 10;
/// The manager of merged entries.
const ANCIENT_CHANGES: &str = "ancient-changes";

/// The way in which fields came to be owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

impl Operation {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of an entry. For [`Operation::Apply`] the version does not count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity<'a> {
    /// The field manager.
    pub manager: Cow<'a, str>,
    /// The operation by which it wrote.
    pub operation: Operation,
    /// `group/version` for updates, empty for apply.
    pub api_version: Cow<'a, str>,
    /// Through which subresource, empty for none.
    pub subresource: Cow<'a, str>,
}

/// One entry.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The version whose paths the set has.
    pub api_version: Cow<'a, str>,
    /// The time of its last change, RFC 3339.
    pub time: Option<Cow<'a, str>>,
    /// The fields.
    pub set: Set<'a>,
    /// The entry as it was, if nothing has changed.
    source: Option<&'a Value>,
}

/// Managed fields that cannot be read, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagersError {
    /// Neither `Apply` nor `Update`.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// No `fieldsType`, or an unknown one.
    #[error("invalid fieldsType {found:?} in managed fields entry {index}")]
    FieldsType {
        /// Which entry.
        index: usize,
        /// What it says.
        found: String,
    },
    /// The set cannot be read.
    #[error("error decoding set")]
    Set(#[source] ElementError),
}

/// All entries of an object.
#[derive(Clone, Debug, Default)]
pub struct Managers<'a> {
    entries: BTreeMap<Identity<'a>, Entry<'a>>,
}

impl<'a> Entry<'a> {
    /// A new entry.
    pub fn new(api_version: Cow<'a, str>, set: Set<'a>) -> Self {
        Self { api_version, time: None, set, source: None }
    }

    /// The entry of a manager that owns `set` now, as of the time of its `last` entry, if it had any.
    pub fn unchanged(last: Option<Self>, api_version: &'a str, set: Set<'a>) -> Self {
        let time = last.and_then(|last| last.time);
        Self { time, ..Self::new(Cow::Borrowed(api_version), set) }
    }

    /// `true` if `set`, in the same version, has all of its fields: then nothing was given up.
    pub fn is_within(&self, api_version: &str, set: &Set<'_>) -> bool {
        let mut rest = self.set.clone();
        rest.subtract(set);
        self.api_version == api_version && rest.is_empty()
    }
}

impl<'a> Managers<'a> {
    /// Reads `metadata.managedFields`.
    ///
    /// # Errors
    /// If an entry is invalid.
    pub fn decode(list: &'a [Value]) -> Result<Self, ManagersError> {
        let mut entries = BTreeMap::new();
        for (index, value) in list.iter().enumerate() {
            let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagersError::Operation),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err(ManagersError::ApiVersion);
            }
            if text("fieldsType") != "FieldsV1" {
                return Err(ManagersError::FieldsType { index, found: text("fieldsType").to_owned() });
            }
            let fields = value.get("fieldsV1").unwrap_or(&Value::Null);
            let entry = Entry {
                api_version: Cow::Borrowed(api_version),
                time: value.get("time").and_then(Value::as_str).map(Cow::Borrowed),
                set: fields_v1::decode(fields).map_err(ManagersError::Set)?,
                source: Some(value),
            };
            let identity = Identity::new(text("manager"), operation, api_version, text("subresource"));
            entries.insert(identity, entry);
        }
        Ok(Self { entries })
    }

    /// The value of `metadata.managedFields`, in upstream's order.
    pub fn encode(&self) -> Vec<Value> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(identity, entry)| {
            let time = entry.time.as_deref().unwrap_or_default();
            (identity.operation, time, &*identity.manager, &*entry.api_version, &*identity.subresource)
        });
        entries.into_iter().map(|(identity, entry)| entry.encode(identity)).collect()
    }

    /// `true` if nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of `identity`.
    pub fn get(&self, identity: &Identity<'a>) -> Option<&Entry<'a>> {
        self.entries.get(identity)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (&Identity<'a>, &Entry<'a>)> {
        self.entries.iter()
    }

    /// Replaces the entry of `identity`.
    pub fn insert(&mut self, identity: Identity<'a>, entry: Entry<'a>) {
        self.entries.insert(identity, entry);
    }

    /// Drops the entry of `identity`.
    pub fn remove(&mut self, identity: &Identity<'a>) {
        self.entries.remove(identity);
    }

    /// Changes the set of each entry by its version; entries for which `change` has no answer go, and what it says is
    /// whether there was a change.
    pub fn retain_sets(&mut self, mut change: impl FnMut(&str, &mut Set<'a>) -> Option<bool>) {
        self.entries.retain(|_, entry| match change(&entry.api_version, &mut entry.set) {
            Some(is_changed) => {
                entry.source = entry.source.filter(|_| !is_changed);
                true
            }
            None => false,
        });
    }

    /// Takes paths away from an entry, which goes when nothing is left.
    pub fn subtract(&mut self, identity: &Identity<'a>, gone: &Set<'_>) {
        let Some(entry) = self.entries.get_mut(identity) else { return };
        if entry.set.intersection(gone).is_empty() {
            return;
        }
        entry.set.subtract(gone);
        entry.source = None;
        if entry.set.is_empty() {
            self.entries.remove(identity);
        }
    }

    /// Adds paths to an entry, made if absent, as of `now`.
    pub fn unite(&mut self, identity: Identity<'a>, api_version: &'a str, set: Set<'a>, now: &'a str) {
        let entry = self
            .entries
            .entry(identity)
            .or_insert_with(|| Entry::new(Cow::Borrowed(api_version), Set::new()));
        entry.set.unite(set);
        entry.time = Some(Cow::Borrowed(now));
        entry.source = None;
    }

    /// Merges the oldest entries of updates when there are too many.
    pub fn cap(&mut self) {
        self.cap_to(UPDATE_MANAGERS_MAX);
    }

    fn cap_to(&mut self, updates_max: usize) {
        let mut updates: Vec<Identity<'a>> =
            self.entries.keys().filter(|identity| identity.operation == Operation::Update).cloned().collect();
        if updates.len() <= updates_max {
            return;
        }
        let time = |identity: &Identity<'a>| self.entries.get(identity).and_then(|entry| entry.time.clone());
        updates.sort_by_cached_key(|identity| (time(identity).unwrap_or_default(), identity.clone()));
        let mut first_of_version: BTreeMap<Cow<'a, str>, Identity<'a>> = BTreeMap::new();
        let mut count = updates.len();
        for identity in updates {
            if count <= updates_max {
                return;
            }
            let version = identity.api_version.clone();
            let bucket = Identity {
                manager: Cow::Borrowed(ANCIENT_CHANGES),
                operation: Operation::Update,
                api_version: version.clone(),
                subresource: Cow::Borrowed(""),
            };
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, identity);
                continue;
            };
            if !self.entries.contains_key(&bucket)
                && let Some(entry) = self.entries.remove(first)
            {
                self.entries.insert(bucket.clone(), Entry { source: None, ..entry });
            }
            if let Some(merged) = self.entries.remove(&identity) {
                let entry = self.entries.entry(bucket).or_insert_with(|| Entry::new(version, Set::new()));
                entry.set.unite(merged.set);
                entry.time = merged.time;
                entry.source = None;
                count -= 1;
            }
        }
    }
}

impl<'a> Identity<'a> {
    /// The identity of the entry that an operation writes.
    pub fn new(manager: &'a str, operation: Operation, api_version: &'a str, subresource: &'a str) -> Self {
        let counts = operation == Operation::Update;
        Self {
            manager: Cow::Borrowed(manager),
            operation,
            api_version: Cow::Borrowed(if counts { api_version } else { "" }),
            subresource: Cow::Borrowed(subresource),
        }
    }
}

impl Entry<'_> {
    fn encode(&self, identity: &Identity<'_>) -> Value {
        if let Some(source) = self.source {
            return source.clone();
        }
        let mut map = Map::new();
        let mut text = |name: &str, value: &str| {
            if !value.is_empty() {
                map.insert(name.to_owned(), value.into());
            }
        };
        text("apiVersion", &self.api_version);
        text("fieldsType", "FieldsV1");
        text("manager", &identity.manager);
        text("operation", identity.operation.as_str());
        text("subresource", &identity.subresource);
        text("time", self.time.as_deref().unwrap_or_default());
        map.insert("fieldsV1".to_owned(), fields_v1::encode(&self.set));
        Value::Object(map)
    }
}

#[cfg(test)]
mod tests;
