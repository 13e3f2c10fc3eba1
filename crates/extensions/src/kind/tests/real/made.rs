//! Values that are made from a schema: with every field, or with as few as may be.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::holds::{holds, is_match};

/// How much there is of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Least,
    Full,
}

/// Texts that most patterns have one of.
const WORDS: [&str; 26] = [
    "a",
    "aa",
    "a.b",
    "A",
    "1",
    "10s",
    "1m",
    "a/b",
    "a.b/c",
    "*.a",
    "http://a",
    "a:b",
    "x-1",
    "v1",
    "*",
    "0",
    "",
    "* * * * *",
    "10.0.0.1/8",
    "2024-01-02T03:04:05Z",
    "2024-01-02T03:04:05+01:00",
    "Mon:01:00-Tue:02:00",
    "a@b.iam.gserviceaccount.com",
    "System",
    "Hostname",
    "a1b2c3",
];
/// A text of each format.
const FORMATS: [(&str, &str); 14] = [
    ("date-time", "2024-01-02T03:04:05Z"),
    ("datetime", "2024-01-02T03:04:05Z"),
    ("date", "2024-01-02"),
    ("duration", "10s"),
    ("byte", "YQ=="),
    ("uuid", "123e4567-e89b-42d3-a456-426614174000"),
    ("ipv4", "10.0.0.1"),
    ("ipv6", "fd00::1"),
    ("cidr", "10.0.0.0/8"),
    ("mac", "01:02:03:04:05:06"),
    ("hostname", "a.example"),
    ("email", "a@example.com"),
    ("uri", "http://example.com/a"),
    ("password", "a"),
];
/// A list or map with more is not made.
const PARTS_MAX: u64 = 100;

/// A value that the schema allows; `None` if none was found.
pub(super) fn value(schema: &Value, extent: Extent) -> Option<Value> {
    nth(schema, extent, 0)
}

/// The same, and another one for each number, where there are others.
fn nth(schema: &Value, extent: Extent, number: u64) -> Option<Value> {
    let is_right = |value: &Value| holds(schema, value);
    if let Some(choices) = schema["enum"].as_array() {
        let mut right = choices.iter().filter(|choice| !choice.is_null() && is_right(choice));
        return right.nth(usize::try_from(number).ok()?).cloned();
    }
    let made = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => {
            [json!(number + 1), json!("1"), json!("50%")].into_iter().find(is_right)
        }
        Some("object") => object(schema, extent, (None, number)).map(Value::Object),
        Some("array") => list(schema, extent),
        Some("string") => text(schema, number).map(Value::from),
        Some("integer" | "number") => {
            let at = |name: &str, off: i64| schema[name].as_i64().map(|bound| bound + off);
            let some =
                [at("minimum", 0), at("minimum", 1), at("multipleOf", 0), Some(1), Some(0), at("maximum", 0)];
            let shift = i64::try_from(number).ok()?;
            some.into_iter().flatten().map(|bound| json!(bound + shift)).find(is_right)
        }
        Some("boolean") => Some(json!(number == 0)),
        _ => Some(json!({"any": number})),
    };
    made.filter(is_right)
}

fn text(schema: &Value, number: u64) -> Option<String> {
    let format =
        FORMATS.iter().find(|(name, _)| schema["format"] == *name).map(|(_, text)| (*text).to_owned());
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).ok()?;
    let numbered = (number > 0).then(|| format!("a{number}"));
    let long = "a".repeat(least.max(1));
    let words = WORDS.iter().map(|word| (*word).to_owned());
    let longer = WORDS.iter().map(|word| word.repeat(least.max(1)));
    let mut all = format.into_iter().chain(numbered).chain([long]).chain(words).chain(longer);
    all.find(|text| holds(schema, &json!(text)))
}

fn list(schema: &Value, extent: Extent) -> Option<Value> {
    let least = schema["minItems"].as_u64().unwrap_or(0);
    let most = schema["maxItems"].as_u64().unwrap_or(PARTS_MAX);
    let length = if extent == Extent::Full { least.max(1).min(most) } else { least };
    items(schema, extent, length).map(Value::from)
}

/// So many items, which differ where they must.
pub(super) fn items(schema: &Value, extent: Extent, length: u64) -> Option<Vec<Value>> {
    if length > PARTS_MAX {
        return None;
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array();
    let item = |number| {
        let mut item = nth(&schema["items"], extent, if keys.is_some() { 0 } else { number })?;
        for key in keys.into_iter().flatten().filter_map(Value::as_str) {
            item[key] = nth(&schema["items"]["properties"][key], extent, number)?;
        }
        Some(item)
    };
    (0..length).map(item).collect()
}

/// An object, with one field as it is told.
pub(super) fn object(
    schema: &Value,
    extent: Extent,
    (told, number): (Option<(&str, &Value)>, u64),
) -> Option<Map<String, Value>> {
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let is_required =
        |name: &str| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
    let mut mentioned = BTreeSet::new();
    mention(schema, &mut mentioned);
    if schema.get("minProperties").or(schema.get("maxProperties")).is_some() {
        mentioned.extend(properties.keys().map(String::as_str));
    }
    let mut parts: BTreeMap<&str, Value> = BTreeMap::new();
    for (name, property) in properties {
        let is_told = told.is_some_and(|(told, _)| told == name);
        if !is_told && (extent == Extent::Full || is_required(name) || mentioned.contains(name.as_str())) {
            // What cannot be made up can be left out, but not where it must be.
            parts.extend(value(property, extent).map(|value| (name.as_str(), value)));
        }
    }
    parts.extend(told.map(|(name, value)| (name, value.clone())));
    if schema["x-kubernetes-embedded-resource"] == true {
        let own =
            [("apiVersion", json!("v1")), ("kind", json!("ConfigMap")), ("metadata", json!({"name": "a"}))];
        parts.extend(own);
    }
    let keys = keys(schema, extent, number)?;
    let of = |is_chosen: &dyn Fn(&str) -> bool| {
        let is_kept = |name: &str| {
            is_required(name)
                || told.is_some_and(|(told, _)| told == name)
                || is_chosen(name)
                || !mentioned.contains(name) && extent == Extent::Full
                || schema["x-kubernetes-embedded-resource"] == true && !properties.contains_key(name)
        };
        let kept = parts.iter().filter(|(name, _)| is_kept(name));
        let mut object: Map<String, Value> =
            kept.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        object.extend(keys.clone());
        Some(object).filter(|object| holds(schema, &Value::Object(object.clone())))
    };
    let all = if extent == Extent::Full { of(&|_| true) } else { None };
    let names: Vec<&str> = mentioned.iter().copied().collect();
    all.or_else(|| of(&|_| false)).or_else(|| names.iter().find_map(|one| of(&|name| name == *one))).or_else(
        || names.iter().find_map(|one| names.iter().find_map(|two| of(&|name| name == *one || name == *two))),
    )
}

/// The entries of a map.
fn keys(schema: &Value, extent: Extent, number: u64) -> Option<Map<String, Value>> {
    let entries = &schema["additionalProperties"];
    let is_free = schema["x-kubernetes-preserve-unknown-fields"] == true || entries == true;
    let least = match schema["properties"].is_object() {
        true => 0,
        false => schema["minProperties"].as_u64().unwrap_or(0),
    };
    let count = if extent == Extent::Full { least.max(1) } else { least };
    if !(entries.is_object() || is_free && !schema["properties"].is_object()) {
        return Some(Map::new());
    }
    let entry = |at: u64| {
        let value = if entries.is_object() { nth(entries, extent, number + at)? } else { json!(1) };
        Some((format!("k{at}"), value))
    };
    (0..count.min(PARTS_MAX)).map(entry).collect()
}

/// The fields of which several ways speak.
fn mention<'s>(schema: &'s Value, names: &mut BTreeSet<&'s str>) {
    let several =
        ["oneOf", "anyOf", "allOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten();
    for way in several.chain(schema.get("not")) {
        names.extend(way["required"].as_array().into_iter().flatten().filter_map(Value::as_str));
        names
            .extend(way["properties"].as_object().into_iter().flat_map(|all| all.keys().map(String::as_str)));
        mention(way, names);
    }
}

/// A text of the right length that a pattern does not match.
pub(super) fn mismatch(schema: &Value) -> Option<String> {
    let pattern = schema["pattern"].as_str()?;
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).ok()?.max(1);
    let most = usize::try_from(schema["maxLength"].as_u64().unwrap_or(1000)).ok()?;
    let texts = ["!", " ", "_", "~", "A", "-", "a", ".", "/", "/ /"].map(|text| text.repeat(least));
    texts.into_iter().chain([String::new()]).find(|text| {
        (least..=most).contains(&text.len().max(least))
            && !is_match(pattern, text)
            && (!text.is_empty() || least < 2)
    })
}
