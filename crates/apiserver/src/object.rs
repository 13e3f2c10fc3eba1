//! An object as the cache keeps it: its final JSON bytes, encoded once, and what is derived from them on demand.
//!
//! An object begins with its kind and its version, then comes its metadata, so that a list can leave out the first
//! two without a look at the rest. Stored bytes have no `metadata.resourceVersion`; it is spliced in here, because the
//! revision is known only after the commit. Bytes in any other order are parsed and encoded again, and so is the
//! protobuf that a kube-apiserver stores.

pub mod form;
pub mod part;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use machinery::apply::fields_v1;
use resources::{Resource, Text};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use store::{ROOT, Revision};

use crate::formats;
pub use form::StoredForm;
use part::part;

/// What comes before the kind and the version in every value that knarr stores, and after them.
const TYPED: [&[u8]; 3] = [br#"{"kind":""#, br#"","apiVersion":""#, br#"","metadata":{"#];
/// How the metadata begins.
const METADATA: &[u8] = br#""metadata":{"#;

/// The fields before the metadata.
const FIRST: [&str; 2] = ["kind", "apiVersion"];

/// The fields of an object that selectors and columns may ask for: name to value.
pub type Fields = Vec<(String, String)>;

/// The objects that a cache has: the prefix of all of their keys, and the resource that configurations call them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The prefix of keys, with a slash at its end.
    pub prefix: Text,
    /// The group; empty for core.
    pub group: Text,
    /// The plural.
    pub resource: Text,
    /// The form in which objects of a custom kind are read; those of others are as they are stored.
    pub form: Option<StoredForm>,
}

impl Keys {
    /// The keys of a row's objects. Kinds that are served in two groups are stored in one, whose name counts.
    pub fn of_row(row: &Resource) -> Self {
        let stored = machinery::group::split_api_version(&row.storage_api_version);
        let group = match stored {
            Some((group, _)) if *group != *row.group => group.into(),
            _ => row.group.clone(),
        };
        Self { prefix: row.storage_prefix.clone(), group, resource: row.plural.clone(), form: None }
    }

    /// The keys below a prefix that no row has: `/registry/<resource>/` or `/registry/<group>/<resource>/`.
    pub fn below(prefix: &str) -> Self {
        let path = prefix.strip_prefix(ROOT).unwrap_or(prefix).trim_end_matches('/');
        let (group, resource) = path.split_once('/').unwrap_or(("", path));
        Self { prefix: prefix.into(), group: group.into(), resource: resource.into(), form: None }
    }
}

/// One object at one revision.
#[derive(Debug)]
pub struct CachedObject {
    /// The store's key.
    pub key: Arc<str>,
    /// The value of `metadata.resourceVersion`.
    pub revision: Revision,
    /// The final JSON.
    pub json: Bytes,
    /// `true` if it would be stored in another form today.
    pub is_stale: bool,
    /// Where `"metadata"` begins in it: after the kind and the version.
    metadata_at: usize,
    labels: OnceLock<BTreeMap<String, String>>,
    fields: OnceLock<Fields>,
    protobuf: OnceLock<Option<Bytes>>,
}

impl CachedObject {
    /// Makes the final bytes out of the stored ones.
    ///
    /// `None` if the stored bytes are no JSON object.
    pub fn from_stored(key: Arc<str>, stored: &[u8], revision: Revision) -> Option<Self> {
        let (json, metadata_at) = splice(stored, revision)?;
        Some(Self {
            key,
            revision,
            json,
            is_stale: false,
            metadata_at,
            labels: OnceLock::new(),
            fields: OnceLock::new(),
            protobuf: OnceLock::new(),
        })
    }

    /// The parsed object.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The `apiVersion`; empty if it has none.
    pub fn api_version(&self) -> &str {
        const NAME: &str = r#""apiVersion":""#;
        let head = self.json.get(..self.metadata_at).and_then(|head| std::str::from_utf8(head).ok());
        let named = head.and_then(|head| head.split_once(NAME)).map(|(_, rest)| rest);
        named.and_then(|rest| rest.split_once('"')).map_or("", |(version, _)| version)
    }

    /// The JSON without kind and version, as an item of a list of a built-in kind has it, after its opening brace.
    pub fn untyped_item(&self) -> Bytes {
        self.json.slice(self.metadata_at..)
    }

    /// The JSON with kind and version, as an item of a list of a custom kind has it, after its opening brace.
    pub fn typed_item(&self) -> Bytes {
        self.json.slice(1..)
    }

    /// The values that these pointers lead to, as [`part`] has it.
    pub fn part(&self, pointers: &[&str]) -> Value {
        part(&self.json, pointers)
    }

    /// The metadata as JSON; what follows it is not looked at.
    pub fn metadata(&self) -> &str {
        let metadata = self.json.get(self.metadata_at + METADATA.len() - 1..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_slice(metadata).into_iter::<&RawValue>();
        values.next().and_then(Result::ok).map_or("{}", RawValue::get)
    }

    /// The labels, parsed once.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        self.labels.get_or_init(|| {
            #[derive(Deserialize)]
            struct Metadata {
                #[serde(default)]
                labels: Option<BTreeMap<String, String>>,
            }
            let metadata = serde_json::from_str::<Metadata>(self.metadata());
            metadata.ok().and_then(|metadata| metadata.labels).unwrap_or_default()
        })
    }

    /// The selectable fields, extracted once.
    pub fn fields(&self, extract: impl FnOnce(&Self) -> Fields) -> &Fields {
        self.fields.get_or_init(|| extract(self))
    }

    /// The protobuf form, made once; `None` if the kind has none.
    pub fn protobuf(&self, encode: impl FnOnce(&Value) -> Option<Bytes>) -> Option<&Bytes> {
        self.protobuf.get_or_init(|| encode(&self.value())).as_ref()
    }

    /// The protobuf form that was made; empty if none was.
    pub fn kept_protobuf(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        self.protobuf.get().and_then(Option::as_ref).unwrap_or(&NONE)
    }

    /// The same object under another revision: the last state of one that left a watcher's sight.
    #[must_use]
    pub fn at_revision(&self, revision: Revision) -> Self {
        let stored = encode_stored(&self.value()).ok();
        let moved = stored.and_then(|stored| Self::from_stored(Arc::clone(&self.key), &stored, revision));
        moved.unwrap_or_else(|| Self {
            key: Arc::clone(&self.key),
            revision,
            json: self.json.clone(),
            is_stale: self.is_stale,
            metadata_at: self.metadata_at,
            labels: OnceLock::new(),
            fields: OnceLock::new(),
            protobuf: OnceLock::new(),
        })
    }

    /// `metadata.name`, read off the key.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }
}

/// Encodes an object for the store: kind, version and `metadata` first and no resourceVersion in it.
///
/// # Errors
/// Never for values that came from JSON.
pub fn encode_stored(object: &Value) -> Result<Bytes, serde_json::Error> {
    encode(object).map(|(bytes, _)| bytes)
}

/// The stored form, and where its metadata begins.
fn encode(object: &Value) -> Result<(Bytes, usize), serde_json::Error> {
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    let mut first = true;
    let none = serde_json::Map::new();
    let object = object.as_object().unwrap_or(&none);
    for name in FIRST {
        if let Some(value) = object.get(name) {
            field(&mut out, &mut first, name, value)?;
        }
    }
    out.extend_from_slice(if first { b"" } else { b"," });
    let metadata_at = out.len();
    out.extend_from_slice(METADATA);
    first = true;
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&none);
    for (name, value) in metadata.iter().filter(|(name, _)| *name != "resourceVersion") {
        field(&mut out, &mut first, name, value)?;
    }
    out.push(b'}');
    first = false;
    let is_written = |name: &str| name == "metadata" || FIRST.contains(&name);
    for (name, value) in object.iter().filter(|(name, _)| !is_written(name)) {
        field(&mut out, &mut first, name, value)?;
    }
    out.push(b'}');
    Ok((Bytes::from(out), metadata_at))
}

fn field(out: &mut Vec<u8>, first: &mut bool, name: &str, value: &Value) -> Result<(), serde_json::Error> {
    if !std::mem::take(first) {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, name)?;
    out.push(b':');
    match (name, value) {
        ("managedFields", Value::Array(entries)) => managed_fields(out, entries),
        _ => serde_json::to_writer(&mut *out, value),
    }
}

/// The entries of managed fields; their sets have an order of their own.
fn managed_fields(out: &mut Vec<u8>, entries: &[Value]) -> Result<(), serde_json::Error> {
    out.push(b'[');
    for (at, entry) in entries.iter().enumerate() {
        let mut first = true;
        out.extend_from_slice(if at > 0 { b",{" } else { b"{" });
        for (name, value) in entry.as_object().into_iter().flatten() {
            if name == "fieldsV1" {
                out.extend_from_slice(if std::mem::take(&mut first) { b"" } else { b"," });
                out.extend_from_slice(b"\"fieldsV1\":");
                fields_v1::write_in_order(value, out);
            } else {
                field(out, &mut first, name, value)?;
            }
        }
        out.push(b'}');
    }
    out.push(b']');
    Ok(())
}

fn splice(stored: &[u8], revision: Revision) -> Option<(Bytes, usize)> {
    let again;
    let (stored, metadata_at) = match metadata_at(stored) {
        Some(at) => (stored, at),
        None => {
            let mut value = formats::decode_stored(stored)?;
            value.as_object_mut()?.entry("metadata").or_insert_with(|| Value::Object(Default::default()));
            again = encode(&value).ok()?;
            (&*again.0, again.1)
        }
    };
    let (head, tail) = stored.split_at_checked(metadata_at + METADATA.len())?;
    let revision = revision.to_string();
    let mut json = BytesMut::with_capacity(stored.len() + revision.len() + 24);
    json.put_slice(head);
    json.put_slice(br#""resourceVersion":""#);
    json.put_slice(revision.as_bytes());
    json.put_slice(if tail.first() == Some(&b'}') { b"\"" } else { b"\"," });
    json.put_slice(tail);
    Some((json.freeze(), metadata_at))
}

/// Where the metadata of a value begins that knarr stored; `None` for one in another order.
fn metadata_at(stored: &[u8]) -> Option<usize> {
    let [kind, version, metadata] = TYPED;
    let after_kind = plain(stored.strip_prefix(kind)?)?.strip_prefix(version)?;
    let tail = plain(after_kind)?.strip_prefix(metadata)?;
    Some(stored.len() - tail.len() - METADATA.len())
}

/// What follows a text that needs no escapes, from its closing quote on.
fn plain(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    text.get(end..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stored: &[u8], expect: &str) {
        let object = CachedObject::from_stored("/registry/pods/a/b".into(), stored, 7).unwrap();
        assert_eq!(std::str::from_utf8(&object.json).unwrap(), expect);
    }

    #[test]
    fn metadata_and_labels_are_read_without_the_rest() {
        let stored = br#"{"metadata":{"labels":{"a":"}"},"name":"b"},"spec":{"labels":{"c":"d"}}}"#;
        let object = CachedObject::from_stored("/registry/pods/a/b".into(), stored, 7).unwrap();
        assert_eq!(object.metadata(), r#"{"resourceVersion":"7","labels":{"a":"}"},"name":"b"}"#);
        assert_eq!(object.labels().get("a").map(String::as_str), Some("}"));
    }

    #[test]
    fn the_revision_is_spliced_in() {
        check(
            br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"},"spec":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"b"},"spec":{}}"#,
        );
        check(
            br#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"}}"#,
        );
    }

    #[test]
    fn what_others_stored_is_put_in_order() {
        for stored in [
            r#"{"metadata":{"name":"b"},"apiVersion":"v1","data":{},"kind":"Pod"}"#,
            r#"{"apiVersion":"v1","data":{},"kind":"Pod","metadata":{"name":"b","resourceVersion":"3"}}"#,
            r#"{"kind":"Pod", "apiVersion":"v1", "metadata":{"name":"b"}, "data":{}}"#,
        ] {
            check(
                stored.as_bytes(),
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","name":"b"},"data":{}}"#,
            );
        }
        check(br#"{"spec":1}"#, r#"{"metadata":{"resourceVersion":"7"},"spec":1}"#);
        check(br#"{"kind":7,"metadata":{}}"#, r#"{"kind":7,"metadata":{"resourceVersion":"7"}}"#);
        check(
            br#"{"kind":"a\"b","apiVersion":"v1","metadata":{}}"#,
            r#"{"kind":"a\"b","apiVersion":"v1","metadata":{"resourceVersion":"7"}}"#,
        );
        assert!(CachedObject::from_stored("k".into(), br#"{"kind":"Pod","apiVersion":"#, 1).is_none());
    }

    #[test]
    fn an_item_of_a_list_has_neither_kind_nor_version() {
        for (stored, item) in [
            (
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"},"spec":{"kind":"c"}}"#,
                r#""metadata":{"resourceVersion":"7","name":"b"},"spec":{"kind":"c"}}"#,
            ),
            (r#"{"spec":{},"kind":"Pod"}"#, r#""metadata":{"resourceVersion":"7"},"spec":{}}"#),
        ] {
            let object = CachedObject::from_stored("k".into(), stored.as_bytes(), 7).unwrap();
            assert_eq!(std::str::from_utf8(&object.untyped_item()).unwrap(), item);
            let names = r#"{"resourceVersion":"7""#;
            assert!(object.metadata().starts_with(names), "{}", object.metadata());
        }
    }

    #[test]
    fn the_version_is_read_from_the_head() {
        let check = |stored: &str, expect: &str| {
            let object = CachedObject::from_stored("k".into(), stored.as_bytes(), 7).unwrap();
            assert_eq!(object.api_version(), expect, "{stored}");
        };
        check(r#"{"kind":"W","apiVersion":"a.b/v1","metadata":{},"apiVersion2":"x"}"#, "a.b/v1");
        check(
            r#"{"spec":{"apiVersion":"x"},"apiVersion":"a.b/v1","metadata":{"apiVersion":"y"},"kind":"W"}"#,
            "a.b/v1",
        );
        check(r#"{"kind":"\"apiVersion\":\"x","apiVersion":"v1","metadata":{}}"#, "v1");
        check(r#"{"kind":"W","metadata":{},"spec":{"apiVersion":"x"}}"#, "");
        check(r#"{"kind":"W","apiVersion":7,"metadata":{}}"#, "");
    }

    #[test]
    fn managed_fields_are_written_in_upstreams_order() {
        let set = serde_json::json!({"k:{\"port\":80}": {}, "k:{\"port\":443}": {}});
        let entries = serde_json::json!([{"manager": "m", "fieldsV1": set}, {"fieldsV1": {}, "time": "t"}]);
        let stored = encode_stored(&serde_json::json!({"metadata": {"managedFields": entries}})).unwrap();
        let expect = r#"{"metadata":{"managedFields":[{"fieldsV1":{"k:{\"port\":80}":{},"k:{\"port\":443}":{}},"manager":"m"},{"fieldsV1":{},"time":"t"}]}}"#;
        assert_eq!(std::str::from_utf8(&stored).unwrap(), expect);
    }

    #[test]
    fn labels_come_from_the_bytes() {
        let object =
            CachedObject::from_stored("k".into(), br#"{"metadata":{"labels":{"a":"b"}},"x":1}"#, 1).unwrap();
        assert_eq!(object.labels().get("a").map(String::as_str), Some("b"));
    }
}
