//! The form in which stored objects of a custom kind are read: the one that its definition says today.
//!
//! Objects stay as they were written when the definition changes: fields may lack that have defaults now, others may be
//! there that the schema does not know any more, and the version may be another one. All of that is put right when an object
//! enters the cache, so that reads cost nothing more. Where a webhook converts, the version stays: whoever reads has the
//! object converted.
//! Source: `crdConversionRESTOptionsGetter` of `k8s.io/apiextensions-apiserver/pkg/apiserver`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use schema::Schema;
use schema::walk::{declared, decode};
use serde_json::Value;
use tracing::warn;

use super::encode_stored;
use crate::formats;

/// The schemas of a kind's versions, by `apiVersion`.
#[derive(Debug, Default)]
pub struct Versions(BTreeMap<String, Schema>);

impl Versions {
    /// These versions.
    pub fn new(schemas: impl IntoIterator<Item = (String, Schema)>) -> Self {
        Self(schemas.into_iter().collect())
    }

    /// The schema of a version.
    pub fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.0.get(api_version)
    }
}

impl PartialEq for Versions {
    /// Whether the same versions have the very same schemas.
    fn eq(&self, other: &Self) -> bool {
        let names = self.0.keys().eq(other.0.keys());
        names && self.0.values().zip(other.0.values()).all(|(left, right)| left.is(right))
    }
}

/// A form of stored objects.
#[derive(Clone, Debug)]
pub struct StoredForm {
    api_version: Arc<str>,
    schema: Schema,
    /// Of objects that keep the version in which they were stored.
    versions: Option<Arc<Versions>>,
}

impl PartialEq for StoredForm {
    /// Whether the same objects are read alike.
    fn eq(&self, other: &Self) -> bool {
        let is_converted_alike = match (&self.versions, &other.versions) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        };
        is_converted_alike && self.schema.is(&other.schema) && self.api_version == other.api_version
    }
}

impl Eq for StoredForm {}

impl StoredForm {
    /// Objects are stored in this version, whose schema is this.
    pub fn new(api_version: &str, schema: Schema) -> Self {
        Self { api_version: api_version.into(), schema, versions: None }
    }

    /// Objects are stored in this version, and those that are stored in another one of these stay in it. Whoever has
    /// other `versions` reads them otherwise, even if they are the same.
    #[must_use]
    pub fn among(self, versions: Arc<Versions>) -> Self {
        Self { versions: Some(versions), ..self }
    }

    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// What is to be read instead of stored bytes; `None` if they are as they would be written today.
    pub(crate) fn read(&self, stored: &[u8]) -> Option<Bytes> {
        let value = formats::decode_stored(stored)?;
        let encoded = encode_stored(&self.reread(&value)?).ok()?;
        (*encoded != *stored).then_some(encoded)
    }

    /// A stored object as it is read today; `None` if it is of a version of which nothing is known.
    pub(crate) fn reread(&self, stored: &Value) -> Option<Value> {
        let Some(versions) = &self.versions else {
            return Some(reread(&self.schema, &self.api_version, stored));
        };
        let version = stored.get("apiVersion")?.as_str()?;
        Some(reread(versions.schema(version)?, version, stored))
    }
}

/// An object of a custom kind without the fields that a schema does not know. What does not fit it stays as it is.
pub fn pruned(schema: &Schema, value: Value) -> Value {
    schema.get().and_then(|schema| decode::known(schema, &value)).unwrap_or(value)
}

/// A stored object of a custom kind as it is read today: in this version, with all defaults, and with no field that the
/// schema does not know.
fn reread(schema: &Schema, api_version: &str, stored: &Value) -> Value {
    let known = schema.get().and_then(|schema| decode::known(schema, stored));
    let mut value = known.unwrap_or_else(|| stored.clone());
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), api_version.into());
    }
    if let Some(schema) = schema.get()
        && let Err(failure) = declared::apply(schema, &mut value)
    {
        warn!(%failure, "a stored object is read without all of its defaults");
    }
    value
}
