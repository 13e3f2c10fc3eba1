//! Whether a value is as a schema wants it, worked out from the schema as it is written and by nothing of the product: what
//! is made up is right by this before anybody else looks at it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use regex::Regex;
use serde_json::Value;

pub(super) fn holds(schema: &Value, value: &Value) -> bool {
    let has = |name: &str| schema.get(name).is_some();
    if value.is_null() && schema["nullable"] == true {
        return true;
    }
    if !schema["type"].as_str().is_none_or(|ty| is_of(ty, value)) {
        return false;
    }
    if has("x-kubernetes-int-or-string") && !(value.is_string() || value.is_i64()) {
        return false;
    }
    if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
        return false;
    }
    let is_right = match value {
        Value::String(text) => is_text(schema, text),
        Value::Number(number) => number.as_f64().is_some_and(|number| is_number(schema, number)),
        Value::Array(items) => is_list(schema, items),
        Value::Object(_) => is_object(schema, value),
        Value::Null | Value::Bool(_) => true,
    };
    is_right && joined(schema, value)
}

fn is_of(ty: &str, value: &Value) -> bool {
    match ty {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        _ => value.is_number(),
    }
}

fn is_text(schema: &Value, text: &str) -> bool {
    let length = text.chars().count() as u64;
    let is_of_format = match schema["format"].as_str() {
        Some("ipv4") => text.parse::<Ipv4Addr>().is_ok(),
        Some("ipv6") => text.parse::<Ipv6Addr>().is_ok(),
        _ => true,
    };
    is_of_format
        && schema["minLength"].as_u64().is_none_or(|min| length >= min)
        && schema["maxLength"].as_u64().is_none_or(|max| length <= max)
        && schema["pattern"].as_str().is_none_or(|pattern| is_match(pattern, text))
}

/// Of an expression, which Go and this library read alike in what definitions have.
pub(super) fn is_match(pattern: &str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        let compiled = compiled.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).unwrap());
        compiled.is_match(text)
    })
}

fn is_number(schema: &Value, number: f64) -> bool {
    let is_within = |bound: &str, exclusive: &str, sign: f64| {
        schema[bound].as_f64().is_none_or(|bound| {
            let room = (number - bound) * sign;
            room > 0.0 || room == 0.0 && schema[exclusive] != true
        })
    };
    is_within("minimum", "exclusiveMinimum", 1.0)
        && is_within("maximum", "exclusiveMaximum", -1.0)
        && schema["multipleOf"].as_f64().is_none_or(|factor| (number / factor).fract() == 0.0)
}

fn is_list(schema: &Value, items: &[Value]) -> bool {
    let length = items.len() as u64;
    let keys = |item: &Value| -> Vec<Value> {
        match schema["x-kubernetes-list-map-keys"].as_array() {
            Some(keys) => keys.iter().filter_map(Value::as_str).map(|key| item[key].clone()).collect(),
            None => vec![item.clone()],
        }
    };
    let is_distinct = !matches!(schema["x-kubernetes-list-type"].as_str(), Some("set" | "map"))
        || items
            .iter()
            .enumerate()
            .all(|(at, item)| !items[..at].iter().any(|other| keys(other) == keys(item)));
    is_distinct
        && schema["minItems"].as_u64().is_none_or(|min| length >= min)
        && schema["maxItems"].as_u64().is_none_or(|max| length <= max)
        && schema.get("items").is_none_or(|item| items.iter().all(|value| holds(item, value)))
}

fn is_object(schema: &Value, value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    let length = object.len() as u64;
    let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_part_right = |(name, value): (&String, &Value)| match &schema["properties"][name] {
        Value::Null => {
            !schema["additionalProperties"].is_object() || holds(&schema["additionalProperties"], value)
        }
        property => holds(property, value),
    };
    required.all(|name| object.contains_key(name))
        && schema["minProperties"].as_u64().is_none_or(|min| length >= min)
        && schema["maxProperties"].as_u64().is_none_or(|max| length <= max)
        && object.iter().all(is_part_right)
}

fn joined(schema: &Value, value: &Value) -> bool {
    let ways = |name: &str| schema[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let any = ways("anyOf");
    ways("allOf").iter().all(|way| holds(way, value))
        && (any.is_empty() || any.iter().any(|way| holds(way, value)))
        && (ways("oneOf").is_empty() || ways("oneOf").iter().filter(|way| holds(way, value)).count() == 1)
        && schema.get("not").is_none_or(|not| !holds(not, value))
}
