//! ConfigMaps.

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use serde_json::Value;

use super::At;

const BYTES_MAX: usize = 1024 * 1024;

/// A ConfigMap.
pub(crate) fn config_map(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let map = At::root(object);
    let (data, binary) = (map.get("data"), map.get("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        errors.extend(names::config_map_key(key).iter().map(|e| FieldError::invalid(&value.path, key, e)));
        if binary.value.get(key).is_some() {
            errors.push(FieldError::invalid(&value.path, key, "duplicate of key present in binaryData"));
        }
        bytes += value.len();
    }
    for (key, value) in binary.entries() {
        errors.extend(names::config_map_key(key).iter().map(|e| FieldError::invalid(&value.path, key, e)));
        bytes += decoded_len(value.text());
    }
    if bytes > BYTES_MAX {
        errors.push(FieldError::too_long(&Path::default().key(""), BYTES_MAX));
    }
    errors
}

/// An update of a ConfigMap.
pub(crate) fn config_map_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = immutable(new, old, &["data", "binaryData"]);
    errors.extend(config_map(new));
    errors
}

/// What an object with `immutable: true` must keep.
pub(super) fn immutable(new: &Value, old: &Value, fields: &[&str]) -> FieldErrors {
    const TEXT: &str = "field is immutable when `immutable` is set";
    let (new, old) = (At::root(new), At::root(old));
    let mut errors = FieldErrors::new();
    if !old.get("immutable").flag() {
        return errors;
    }
    if !new.get("immutable").flag() {
        errors.push(new.get("immutable").forbidden(TEXT));
    }
    for field in fields {
        let (new, old) = (new.get(field), old.get(field));
        if new.value != old.value && !(new.is_empty() && old.is_empty()) {
            errors.push(new.forbidden(TEXT));
        }
    }
    errors
}

/// How many bytes a base64 text stands for.
pub(super) fn decoded_len(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|b| *b == b'=').count();
    (base64.len() / 4 * 3).saturating_sub(padding)
}
