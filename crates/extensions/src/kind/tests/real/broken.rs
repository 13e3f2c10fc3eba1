//! Each bound of a place broken once, with what upstream says of it.
//!
//! Source of the texts: `k8s.io/kube-openapi/pkg/validation/{validate,errors}`, and `kubeOpenAPIResultToFieldErrors` and
//! `schema/listtype` of `k8s.io/apiextensions-apiserver/pkg/apiserver`.

use serde_json::{Map, Value, json};

use super::holds::holds;
use super::made::{self, Extent};

/// A list that is one too long is not made if it is longer than this.
const PARTS_MAX: u64 = 300;
const LENGTH_MAX: u64 = 300_000;

/// Where a value stands, as messages have it and as paths of fields have it: they differ in the keys of maps.
#[derive(Clone, Debug, Default)]
pub(super) struct At {
    pub(super) dotted: String,
    pub(super) fields: String,
}

impl At {
    pub(super) fn field(&self, name: &str) -> Self {
        let join = |path: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        Self { dotted: join(&self.dotted), fields: join(&self.fields) }
    }

    pub(super) fn index(&self, index: usize) -> Self {
        let join = |path: &str| format!("{path}[{index}]");
        Self { dotted: join(&self.dotted), fields: join(&self.fields) }
    }

    pub(super) fn key(&self, key: &str) -> Self {
        Self { dotted: format!("{}.{key}", self.dotted), fields: format!("{}[{key}]", self.fields) }
    }
}

/// A value that breaks one rule.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) rule: &'static str,
    pub(super) value: Value,
    /// What must be said, path first.
    pub(super) said: String,
}

/// Each rule of a place, broken.
pub(super) fn broken(schema: &Value, at: &At) -> Vec<Broken> {
    let mut all = Vec::new();
    let mut say = |rule, value: Value, said: String| all.push(Broken { rule, value, said });
    types(schema, at, &mut say);
    match schema["type"].as_str() {
        Some("string") => texts(schema, at, &mut say),
        Some("integer" | "number") => numbers(schema, at, &mut say),
        Some("array") => lists(schema, at, &mut say),
        Some("object") => objects(schema, at, &mut say),
        _ => {}
    }
    all
}

type Say<'s> = dyn FnMut(&'static str, Value, String) + 's;

fn invalid(at: &At, value: &Value, detail: &str) -> String {
    format!("{}: Invalid value: {value}: {} in body {detail}", at.dotted, at.dotted)
}

/// Of a type: other types, and null.
fn types(schema: &Value, at: &At, say: &mut Say<'_>) {
    let ty = match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => "integer,string",
        Some(ty) => ty,
        None => return,
    };
    let format = schema["format"].as_str().filter(|format| is_known(ty, format));
    let others = [
        (json!(true), "boolean", ""),
        (json!("x"), "string", ""),
        (json!(1.5), "number", "float64"),
        (json!(7), "integer", "int64"),
        (json!([]), "array", ""),
        (json!({}), "object", ""),
    ];
    // Some of them: each comes often enough.
    for (value, found, found_format) in others.into_iter().cycle().skip(at.dotted.len() % 6).take(3) {
        let is_whole = found == "integer" && ty == "number";
        if is_whole || ty.split(',').any(|one| one == found) {
            continue;
        }
        let is_plain = value.is_string() || value.is_array();
        if let Some(format) = format.filter(|_| !is_plain) {
            let quoted = json!(found_format);
            say("type", value, invalid(at, &quoted, &format!("must be of type {format}: {quoted}")));
        } else if format.is_none() {
            let quoted = json!(found);
            say("type", value, invalid(at, &quoted, &format!("must be of type {ty}: {quoted}")));
        }
    }
    // Null is the same as nothing where there is a default.
    if schema["nullable"] != true && schema.get("default").is_none() {
        say("nullable", Value::Null, invalid(at, &json!("null"), &format!("must be of type {ty}: \"null\"")));
    }
}

fn is_known(ty: &str, format: &str) -> bool {
    match ty {
        "string" => matches!(
            format,
            "date-time"
                | "date"
                | "duration"
                | "byte"
                | "uuid"
                | "ipv4"
                | "ipv6"
                | "cidr"
                | "mac"
                | "hostname"
                | "email"
                | "uri"
        ),
        _ => false,
    }
}

/// A choice that there is not; whether there are choices.
fn choice(schema: &Value, at: &At, value: Value, say: &mut Say<'_>) {
    let Some(choices) = schema["enum"].as_array() else { return };
    let supported: Vec<String> = choices
        .iter()
        .map(|choice| {
            choice.as_str().map_or_else(|| json!(choice.to_string()), |text| json!(text)).to_string()
        })
        .collect();
    let supported = supported.join(", ");
    say(
        "enum",
        value.clone(),
        format!("{}: Unsupported value: {value}: supported values: {supported}", at.dotted),
    );
}

fn texts(schema: &Value, at: &At, say: &mut Say<'_>) {
    choice(schema, at, json!("there is no such choice"), say);
    if let Some(max) = schema["maxLength"].as_u64().filter(|max| *max < LENGTH_MAX) {
        let long = "a".repeat(usize::try_from(max + 1).unwrap());
        say("maxLength", json!(long), format!("{}: Too long: may not be more than {max} bytes", at.dotted));
    }
    if let Some(min) = schema["minLength"].as_u64().filter(|min| *min > 0) {
        let short = json!("a".repeat(usize::try_from(min - 1).unwrap()));
        say("minLength", short.clone(), invalid(at, &short, &format!("should be at least {min} chars long")));
    }
    if let (Some(text), Some(pattern)) = (made::mismatch(schema), schema["pattern"].as_str()) {
        let text = json!(text);
        say("pattern", text.clone(), invalid(at, &text, &format!("should match '{pattern}'")));
    }
    let format = schema["format"].as_str().filter(|format| is_known("string", format));
    let stranger = json!("no such format?");
    if let Some(format) = format.filter(|_| schema.get("pattern").is_none()) {
        say(
            "format",
            stranger.clone(),
            invalid(at, &stranger, &format!("must be of type {format}: {stranger}")),
        );
    }
}

fn numbers(schema: &Value, at: &At, say: &mut Say<'_>) {
    choice(schema, at, json!(987_654), say);
    for (name, exclusive, off, words) in
        [("minimum", "exclusiveMinimum", -1, "greater"), ("maximum", "exclusiveMaximum", 1, "less")]
    {
        let Some(bound) = schema[name].as_i64() else { continue };
        let is_exclusive = schema[exclusive] == true;
        let value = json!(if is_exclusive { bound } else { bound + off });
        let equal = if is_exclusive { "" } else { " or equal to" };
        say(name, value.clone(), invalid(at, &value, &format!("should be {words} than{equal} {bound}")));
    }
    if let Some(factor) = schema["multipleOf"].as_i64().filter(|factor| *factor > 1) {
        let value = json!(factor + 1);
        say("multipleOf", value.clone(), invalid(at, &value, &format!("should be a multiple of {factor}")));
    }
}

fn lists(schema: &Value, at: &At, say: &mut Say<'_>) {
    let of_length = |length: u64| made::items(schema, Extent::Least, length).map(Value::from);
    if let Some(max) = schema["maxItems"].as_u64().filter(|max| *max < PARTS_MAX) {
        let noun = if max == 1 { "item" } else { "items" };
        let said = format!("{}: Too many: {}: must have at most {max} {noun}", at.dotted, max + 1);
        // The items may be the same: they are not looked at for that.
        let items = made::value(&schema["items"], Extent::Least);
        let many = items.map(|item| Value::from(vec![item; usize::try_from(max + 1).unwrap()]));
        many.into_iter().for_each(|many| say("maxItems", many, said.clone()));
    }
    if let Some(min) = schema["minItems"].as_u64().filter(|min| *min > 0)
        && let Some(few) = of_length(min - 1)
    {
        say("minItems", few, invalid(at, &json!(min - 1), &format!("should have at least {min} items")));
    }
    let is_map = match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => false,
        Some("map") => true,
        _ => return,
    };
    let Some(item) = made::items(schema, Extent::Least, 1).and_then(|items| items.into_iter().next()) else {
        return;
    };
    let keys =
        schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_unstable();
    let shown: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), item[*key].clone())).collect();
    let shown = if is_map { Value::Object(shown) } else { item.clone() };
    let said = format!("{}: Duplicate value: {shown}", at.index(1).fields);
    say("list-type", json!([item, item]), said);
}

fn objects(schema: &Value, at: &At, say: &mut Say<'_>) {
    let Some(least) = made::object(schema, Extent::Least, (None, 0)) else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if schema["properties"][name].get("default").is_none() && least.contains_key(name) {
            let mut without = least.clone();
            without.remove(name);
            say("required", Value::Object(without), format!("{}: Required value", at.field(name).dotted));
        }
    }
    if schema["additionalProperties"].is_object() {
        entries(schema, at, say);
    }
    let not = schema["not"]["required"].as_array();
    let oneof: Vec<&Value> =
        schema["oneOf"].as_array().into_iter().flatten().map(|way| &way["required"]).collect();
    let junctor = |what: &str| format!("<nil>: Invalid value: \"\": \"{}\" {what}", at.dotted);
    let fill = |names: &[&Value]| {
        let names = names.iter().filter_map(|names| names.as_array()).flatten().filter_map(Value::as_str);
        let filled = names
            .map(|name| Some((name.to_owned(), made::value(&schema["properties"][name], Extent::Least)?)));
        let filled: Option<Map<String, Value>> = filled.collect();
        filled.map(|filled| least.clone().into_iter().chain(filled).collect::<Map<String, Value>>())
    };
    if let Some(both) = not.and_then(|_| fill(&[&schema["not"]["required"]])) {
        let object = Value::Object(both);
        if holds(&schema["not"], &object) {
            say("not", object, junctor("must not validate the schema (not)"));
        }
    }
    if oneof.len() > 1 && oneof.iter().all(|names| names.is_array()) {
        if let Some(all) = fill(&oneof) {
            let count = oneof.len();
            let words =
                format!("must validate one and only one schema (oneOf). Found {count} valid alternatives");
            say("oneOf", Value::Object(all), junctor(&words));
        }
        let mut none = least.clone();
        none.retain(|name, _| {
            !oneof.iter().any(|names| names.as_array().is_some_and(|all| all.contains(&json!(name))))
        });
        let words = "must validate one and only one schema (oneOf). Found none valid";
        say("oneOf", Value::Object(none), junctor(words));
    }
}

fn entries(schema: &Value, at: &At, say: &mut Say<'_>) {
    let Some(entry) = made::value(&schema["additionalProperties"], Extent::Least) else { return };
    let of = |count: u64| Value::Object((0..count).map(|at| (format!("k{at}"), entry.clone())).collect());
    if let Some(min) = schema["minProperties"].as_u64().filter(|min| *min > 0) {
        let said = invalid(at, &json!(min - 1), &format!("should have at least {min} properties"));
        say("minProperties", of(min - 1), said);
    }
    if let Some(max) = schema["maxProperties"].as_u64().filter(|max| *max < PARTS_MAX) {
        let noun = if max == 1 { "item" } else { "items" };
        let said = format!("{}: Too many: {}: must have at most {max} {noun}", at.dotted, max + 1);
        say("maxProperties", of(max + 1), said);
    }
}
