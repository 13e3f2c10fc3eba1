//! Formats that say nothing, which the writer of a definition may not expect.
//!
//! Source: `GetUnrecognizedFormats` of `k8s.io/apiextensions-apiserver/pkg/apiserver/validation`.

use std::collections::BTreeSet;

use schema::rules::format::Format;
use serde_json::Value;

use super::At;

/// How many warnings are told.
const WARNINGS_MAX: usize = 50;

/// Formats that nothing checks.
pub(crate) fn warnings(definition: &Value) -> Vec<String> {
    told(unknown(definition).into_iter())
}

/// Formats that nothing checks, and that are new.
pub(crate) fn warnings_on_update(new: &Value, old: &Value) -> Vec<String> {
    let had: BTreeSet<&str> = unknown(old).into_iter().collect();
    told(unknown(new).into_iter().filter(|format| !had.contains(format)))
}

fn told<'a>(formats: impl Iterator<Item = &'a str>) -> Vec<String> {
    formats.take(WARNINGS_MAX).map(|format| format!("unrecognized format {format:?}")).collect()
}

fn unknown(definition: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for version in At::root(definition).get("spec").get("versions").items() {
        of_schema(version.get("schema").get("openAPIV3Schema").value, &mut found);
    }
    found
}

fn of_schema<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    let Some(map) = schema.as_object() else { return };
    let text = |name| map.get(name).and_then(Value::as_str).unwrap_or_default();
    let types = [text("type")];
    let types = if types == [""] { &[] } else { &types[..] };
    let format = text("format");
    if !format.is_empty() && Format::of(format, types).is_none() {
        found.push(format);
    }
    for (name, value) in map {
        match name.as_str() {
            "properties" => value.as_object().into_iter().flatten().for_each(|(_, v)| of_schema(v, found)),
            "allOf" | "anyOf" | "oneOf" => {
                value.as_array().into_iter().flatten().for_each(|v| of_schema(v, found));
            }
            "items" | "not" | "additionalProperties" => of_schema(value, found),
            _ => {}
        }
    }
}
