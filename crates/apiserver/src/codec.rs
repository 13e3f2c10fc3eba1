//! Between bytes and objects, and what the schema does to objects: the only file that names `schema`.

use serde_json::Value;

use crate::kinds::Kind;
use crate::negotiate::Format;
use crate::status::{Error, Result};
use crate::verbs::options::FieldValidation;
use crate::verbs::patch::Patch;

/// Parses a body.
///
/// # Errors
/// 400 when it cannot be parsed.
pub fn decode(format: Format, body: &[u8]) -> Result<Value> {
    match format {
        Format::Json => serde_json::from_slice(body)
            .map_err(|failure| Error::bad_request(format!("error decoding the body as JSON: {failure}"))),
        Format::Yaml => {
            let text = std::str::from_utf8(body).map_err(|_| Error::bad_request("the body is no UTF-8"))?;
            serde_saphyr::from_str(text)
                .map_err(|failure| Error::bad_request(format!("error decoding the body as YAML: {failure}")))
        }
        Format::Protobuf => Err(Error::unsupported_media_type("application/json, application/yaml")),
    }
}

/// Prunes and checks an object of `kind`; answers warnings.
///
/// # Errors
/// 400 for wrong types, and for unknown or duplicate fields under strict validation.
pub fn typed(_kind: Kind, _value: &mut Value, _validation: FieldValidation) -> Result<Vec<String>> {
    Ok(Vec::new())
}

/// Checks an object of some other type.
///
/// # Errors
/// 400 for wrong types.
pub fn check_types(_type_name: &str, _value: &Value) -> Result<()> {
    Ok(())
}

/// Fills in defaults.
pub fn default(_kind: Kind, _value: &mut Value) {}

/// Applies a patch to a served object.
///
/// # Errors
/// 400 or 422 when it does not fit.
pub fn patch(_kind: Kind, patch: &Patch, object: &Value) -> Result<Value> {
    patch_untyped(patch, object)
}

/// Applies a patch to an object without a schema.
///
/// # Errors
/// As [`patch`].
pub fn patch_untyped(patch: &Patch, object: &Value) -> Result<Value> {
    match patch {
        Patch::Merge(patch) | Patch::Strategic(patch) => {
            let mut new = object.clone();
            merge(&mut new, patch);
            Ok(new)
        }
        Patch::Json(_) => Err(Error::bad_request("JSON patch is not there yet")),
    }
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Default::default());
    }
    let Some(object) = object.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// An object in protobuf, in its envelope; `None` if its type has no such form.
pub fn encode_protobuf(_value: &Value) -> Option<bytes::Bytes> {
    None
}

/// A stored object's message, without the envelope, in the form of `kind`.
pub fn encode_protobuf_message(_kind: Kind, _stored: &Value) -> Option<bytes::Bytes> {
    None
}
