//! Objects without their managed fields: no decider reads them, and they are a third of what there is to decode of a Pod
//! and to keep of it.
//!
//! Who writes such an object back changes nobody's fields: a server takes absent managed fields for the ones that it has.
//! Source: `TrimManagedFields`, the transform of upstream's controller manager and scheduler.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// How objects of our own server begin.
const HEAD: &str = r#"{"metadata":"#;

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default, rename = "managedFields")]
    managed_fields: Option<&'a RawValue>,
}

/// `object`, which is JSON, with null for its managed fields.
pub(super) fn trimmed(object: &str) -> Cow<'_, str> {
    let Some(fields) = managed_fields(object) else { return Cow::Borrowed(object) };
    // The value is a part of the text that it was read from.
    let start = fields.as_ptr().addr() - object.as_ptr().addr();
    let (Some(before), Some(after)) = (object.get(..start), object.get(start + fields.len()..)) else {
        return Cow::Borrowed(object);
    };
    Cow::Owned([before, "null", after].concat())
}

/// The text of the managed fields. Where the metadata come first, nothing else is looked at.
fn managed_fields(object: &str) -> Option<&str> {
    let metadata: Metadata<'_> = match object.strip_prefix(HEAD) {
        Some(rest) => serde_json::Deserializer::from_str(rest).into_iter().next()?.ok()?,
        None => serde_json::from_str::<Object<'_>>(object).ok()?.metadata,
    };
    metadata.managed_fields.map(RawValue::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(object: &str, expect: &str) {
        assert_eq!(trimmed(object), expect);
    }

    #[test]
    fn managed_fields_are_left_out_wherever_the_metadata_stand() {
        check(
            r#"{"metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:x":{"]":{}}}}],"uid":"u"},"spec":{}}"#,
            r#"{"metadata":{"name":"a","managedFields":null,"uid":"u"},"spec":{}}"#,
        );
        check(
            r#"{"kind":"Pod","metadata": {"managedFields" : [] }}"#,
            r#"{"kind":"Pod","metadata": {"managedFields" : null }}"#,
        );
    }

    #[test]
    fn what_only_looks_like_them_stays() {
        for object in [
            r#"{"metadata":{"name":"a"},"data":{"managedFields":"mine"}}"#,
            r#"{"data":{"managedFields":"mine"},"metadata":{"name":"\"managedFields\":[]"}}"#,
            r#"{"metadata":null,"spec":{"template":{"metadata":{"managedFields":[]}}}}"#,
            r#"{"metadata":{"managedFields":"#,
            "[]",
        ] {
            check(object, object);
        }
    }
}
