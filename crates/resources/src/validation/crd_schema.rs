//! Schemas of custom resources: which OpenAPI they may use, and that they are structural.
//!
//! CEL rules must be there and readable; whether they compile is not looked at here.
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/validation.go` and
//! `pkg/apis/apiextensions/validation`.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Path};
use serde_json::{Value, json};

use super::At;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const JUNCTORS: [&str; 3] = ["anyOf", "allOf", "oneOf"];
/// What the root may say when `status` has a subresource, so that it can be checked by itself.
const ROOT_FIELDS: &[&str] = &[
    "type",
    "description",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];
/// What a schema below a junctor must not say.
const NOT_NESTED: &[(&str, &str)] = &[
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
];
const UNSUPPORTED: &[&str] =
    &["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// How deep in the schema, and what for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The schema of a version.
pub(super) fn check(schema: &At<'_>, has_status: bool, errors: &mut FieldErrors) {
    if !schema.is_set() {
        return;
    }
    if has_status {
        root_under_status(schema, errors);
    }
    if schema.get("nullable").flag() {
        errors.push(schema.get("nullable").forbidden("nullable cannot be true at the root"));
    }
    let mut structural = FieldErrors::new();
    invariants(schema, Level::Root, &mut structural);
    completeness(schema, schema, &mut structural);
    let mut structural: Vec<_> = structural.into_iter().collect();
    structural.sort_by_key(ToString::to_string);
    errors.extend(structural);
    open_api(schema, Place { is_root: true, is_metadata: false, no_default: "" }, errors);
}

fn root_under_status(schema: &At<'_>, errors: &mut FieldErrors) {
    let kind = schema.get("type");
    if !kind.text().is_empty() && kind.text() != "object" {
        errors.push(kind.invalid(
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        ));
        return;
    }
    let is_allowed = |name: &str| ROOT_FIELDS.contains(&name);
    if schema.entries().any(|(name, value)| value.is_set() && !is_allowed(name)) {
        errors.push(schema.invalid(&format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            ROOT_FIELDS.join(" ")
        )));
    }
}

/// Named schemas below `field`.
fn properties<'a>(schema: &At<'a>) -> impl Iterator<Item = (&'a str, At<'a>)> {
    schema.get("properties").entries().collect::<Vec<_>>().into_iter()
}

fn is_schema(at: &At<'_>) -> bool {
    at.value.is_object()
}

fn invariants(schema: &At<'_>, level: Level, errors: &mut FieldErrors) {
    let (kind, items) = (schema.get("type"), schema.get("items"));
    if kind.text() == "array" && !items.is_set() {
        errors.push(items.required("must be specified"));
    }
    if is_schema(&items) {
        invariants(&items, Level::Item, errors);
    }
    properties(schema).for_each(|(_, property)| invariants(&property, Level::Field, errors));
    let additional = schema.get("additionalProperties");
    if additional.is_set() && level == Level::Root {
        errors.push(additional.forbidden("must not be used at the root"));
    }
    if is_schema(&additional) {
        invariants(&additional, Level::Field, errors);
    }
    extensions(schema, errors);
    let is_either = is_int_or_string(&schema.get("anyOf"));
    let is_either_in_all =
        schema.get("allOf").items().next().is_some_and(|first| is_int_or_string(&first.get("anyOf")));
    junctors(schema, is_either, is_either_in_all, errors);
    types(schema, level, errors);
    metadata(schema, level, errors);
}

fn is_int_or_string(any_of: &At<'_>) -> bool {
    *any_of.value == json!([{"type": "integer"}, {"type": "string"}])
}

fn extensions(schema: &At<'_>, errors: &mut FieldErrors) {
    if !schema.get("x-kubernetes-int-or-string").flag() {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        let at = schema.get(name);
        if at.flag() {
            errors.push(at.invalid("must be false if x-kubernetes-int-or-string is true"));
        }
    }
}

fn types(schema: &At<'_>, level: Level, errors: &mut FieldErrors) {
    let kind = schema.get("type");
    let is_embedded = schema.get("x-kubernetes-embedded-resource").flag();
    let is_free = schema.get("x-kubernetes-int-or-string").flag()
        || schema.get("x-kubernetes-preserve-unknown-fields").flag();
    if is_embedded && kind.text() != "object" {
        const RULE: &str = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.text().is_empty() { kind.required(RULE) } else { kind.invalid(RULE) });
    } else if kind.text().is_empty() && !is_free {
        errors.push(kind.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        }));
    }
    if is_embedded && schema.get("additionalProperties").is_set() {
        errors.push(
            schema
                .get("additionalProperties")
                .forbidden("must not be used if x-kubernetes-embedded-resource is set"),
        );
    }
    if level == Level::Root && !kind.text().is_empty() && kind.text() != "object" {
        errors.push(kind.invalid("must be object at the root"));
    }
    let is_closed = !schema.get("x-kubernetes-preserve-unknown-fields").flag();
    if is_embedded && is_closed && schema.get("properties").is_empty() {
        errors.push(schema.get("properties").required(
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// `apiVersion`, `kind` and `metadata` are what they are.
fn metadata(schema: &At<'_>, level: Level, errors: &mut FieldErrors) {
    let is_checked = level == Level::Root || schema.get("x-kubernetes-embedded-resource").flag();
    if !is_checked {
        return;
    }
    for (name, property) in properties(schema) {
        let kind = property.get("type");
        match name {
            "kind" | "apiVersion" if kind.text() != "string" => {
                errors.push(FieldError::invalid(&kind.path, kind.text(), "must be string"));
            }
            "metadata" => {
                if kind.text() != "object" {
                    errors.push(FieldError::invalid(&kind.path, kind.text(), "must be object"));
                }
                if level == Level::Root && !is_plain_metadata(&property) {
                    errors.push(property.forbidden(
                        "must not specify anything other than name and generateName, but metadata is implicitly specified",
                    ));
                }
            }
            _ => {}
        }
    }
}

fn is_plain_metadata(metadata: &At<'_>) -> bool {
    metadata.entries().all(|(name, value)| match name {
        "type" => true,
        "properties" => value.entries().all(|(name, _)| matches!(name, "name" | "generateName")),
        _ => !value.is_set() || *value.value == json!(false),
    })
}

fn junctors(schema: &At<'_>, skip_any: bool, skip_first_all: bool, errors: &mut FieldErrors) {
    for name in JUNCTORS {
        for (i, item) in schema.get(name).items().enumerate() {
            if !(name == "anyOf" && skip_any) {
                nested(&item, name == "allOf" && skip_first_all && i == 0, errors);
            }
        }
    }
    if let Some(item) = schema.some("not") {
        nested(&item, false, errors);
    }
    let pattern = schema.get("pattern");
    if let Some(rule) = unbalanced(pattern.text()) {
        errors.push(pattern.invalid(&format!("must be a valid regular expression, but isn't: {rule}")));
    }
}

/// Brackets that do not match; all that is looked at without a regex engine of Go's.
fn unbalanced(pattern: &str) -> Option<String> {
    let (mut depth, mut in_class, mut escaped) = (0_usize, false, false);
    for c in pattern.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' if !in_class => in_class = true,
            ']' if in_class => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => {
                let Some(less) = depth.checked_sub(1) else {
                    return Some(format!("error parsing regexp: unexpected ): `{pattern}`"));
                };
                depth = less;
            }
            _ => {}
        }
    }
    match (in_class, depth) {
        (true, _) => Some(format!("error parsing regexp: missing closing ]: `{pattern}`")),
        (false, 0) => None,
        (false, _) => Some(format!("error parsing regexp: missing closing ): `{pattern}`")),
    }
}

fn nested(schema: &At<'_>, skip_any: bool, errors: &mut FieldErrors) {
    junctors(schema, skip_any, false, errors);
    let items = schema.get("items");
    if is_schema(&items) {
        nested(&items, false, errors);
    }
    properties(schema).for_each(|(_, property)| nested(&property, false, errors));
    for (name, rule) in NOT_NESTED {
        let at = schema.get(name);
        let is_said = at.is_set() && *at.value != json!(false) && !(at.is_empty() && at.value.is_string());
        if is_said {
            errors.push(at.forbidden(rule));
        }
    }
    let metadata = schema.get("properties").value.get("metadata");
    if metadata.is_some() {
        let path = schema.get("properties").path.key("metadata");
        errors.push(FieldError::forbidden(&path, "must not be specified in a nested context"));
    }
}

/// Every field that a junctor speaks of must be a field of the schema.
fn completeness(schema: &At<'_>, structural: &At<'_>, errors: &mut FieldErrors) {
    let junctors = JUNCTORS.iter().flat_map(|name| schema.get(name).items().collect::<Vec<_>>());
    for item in junctors.chain(schema.some("not")) {
        told_elsewhere(&item, structural, errors);
    }
    if std::ptr::eq(schema.value, structural.value) {
        properties(schema).for_each(|(_, property)| completeness(&property, &property, errors));
        for below in
            ["items", "additionalProperties"].map(|name| schema.get(name)).iter().filter(|b| is_schema(b))
        {
            completeness(below, below, errors);
        }
    }
}

fn told_elsewhere(item: &At<'_>, structural: &At<'_>, errors: &mut FieldErrors) {
    let missing = |at: Path, by: &Path| FieldError::required(&at, &format!("because it is defined in {by}"));
    for (name, property) in properties(item) {
        let found = structural.get("properties").entries().find(|(other, _)| *other == name);
        match found {
            Some((_, known)) => told_elsewhere(&property, &known, errors),
            None => errors.push(missing(structural.get("properties").path.key(name), &property.path)),
        }
    }
    let (items, known) = (item.get("items"), structural.get("items"));
    if is_schema(&items) {
        if is_schema(&known) {
            told_elsewhere(&items, &known, errors);
        } else {
            errors.push(missing(known.path, &items.path));
        }
    }
    completeness(item, structural, errors);
}

/// Where in the object a schema stands.
#[derive(Clone, Copy)]
struct Place {
    is_root: bool,
    is_metadata: bool,
    /// Why a default is not allowed; empty where it is.
    no_default: &'static str,
}

fn open_api(schema: &At<'_>, place: Place, errors: &mut FieldErrors) {
    standard(schema, place, errors);
    let inner = Place { is_root: false, ..place };
    let additional = schema.get("additionalProperties");
    if is_schema(&additional) {
        if !schema.get("properties").is_empty() {
            errors.push(additional.forbidden("additionalProperties and properties are mutual exclusive"));
        }
        let no_default = if place.is_metadata {
            "inside additionalProperties applying to object metadata"
        } else {
            place.no_default
        };
        open_api(&additional, Place { no_default, ..inner }, errors);
    }
    let is_object = place.is_root || schema.get("x-kubernetes-embedded-resource").flag();
    for (name, property) in properties(schema) {
        let top = match name {
            "metadata" => "in top-level metadata",
            "kind" => "in top-level kind",
            "apiVersion" => "in top-level apiVersion",
            _ => "",
        };
        let is_metadata = place.is_metadata || (is_object && !top.is_empty());
        let no_default = if place.is_root && !top.is_empty() { top } else { place.no_default };
        open_api(&property, Place { is_root: false, is_metadata, no_default }, errors);
    }
    for name in JUNCTORS {
        schema.get(name).items().for_each(|item| open_api(&item, inner, errors));
    }
    for below in ["not", "items"].map(|name| schema.get(name)).iter().filter(|below| is_schema(below)) {
        open_api(below, inner, errors);
    }
    lists_and_maps(schema, errors);
    rules(&schema.get("x-kubernetes-validations"), errors);
}

fn standard(schema: &At<'_>, place: Place, errors: &mut FieldErrors) {
    let kind = schema.get("type");
    if !kind.text().is_empty() {
        kind.if_one_of(TYPES, errors);
    }
    let default = schema.get("default");
    if default.is_set() && !place.no_default.is_empty() {
        errors.push(default.forbidden(&format!("must not be set {}", place.no_default)));
    }
    for at in UNSUPPORTED.iter().map(|name| (name, schema.get(name))).filter(|(_, at)| at.is_set()) {
        errors.push(at.1.forbidden(&format!("{} is not supported", at.0)));
    }
    if kind.text() == "null" {
        errors.push(kind.forbidden("type cannot be set to null, use nullable as an alternative"));
    }
    if schema.get("items").value.is_array() {
        errors.push(schema.get("items").forbidden("items must be a schema object and not an array"));
    }
    let embedded = schema.get("x-kubernetes-embedded-resource");
    if place.is_metadata && embedded.flag() {
        errors.push(embedded.forbidden("must not be used inside of resource meta"));
    }
    let unique = schema.get("uniqueItems");
    if unique.flag() {
        errors.push(
            unique.forbidden(
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ),
        );
    }
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    if preserve.is_set() && !preserve.flag() {
        errors.push(preserve.invalid("must be true or undefined"));
    }
}

fn lists_and_maps(schema: &At<'_>, errors: &mut FieldErrors) {
    let kind = schema.get("type");
    for (name, wanted, supported) in [
        ("x-kubernetes-map-type", "object", ["atomic", "granular"].as_slice()),
        ("x-kubernetes-list-type", "array", ["atomic", "set", "map"].as_slice()),
    ] {
        let at = schema.get(name);
        if !at.is_set() {
            continue;
        }
        if kind.text() != wanted {
            let rule = format!("must be {wanted} if {name} is specified");
            errors.push(if kind.text().is_empty() { kind.required(&rule) } else { kind.invalid(&rule) });
        }
        at.if_one_of(supported, errors);
    }
    let (list, keys, items) =
        (schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys"), schema.get("items"));
    if !keys.is_empty() && list.text() != "map" {
        const RULE: &str = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if list.is_set() { list.invalid(RULE) } else { list.required(RULE) });
    }
    match list.text() {
        "map" => map_list(&keys, &items, errors),
        "set" => set_list(&items, errors),
        _ => return,
    }
    if items.get("nullable").flag() {
        let rule = format!("cannot be nullable when x-kubernetes-list-type is {}", list.text());
        errors.push(items.get("nullable").forbidden(&rule));
    }
}

fn set_list(items: &At<'_>, errors: &mut FieldErrors) {
    const RULE: &str = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (list, map) = (items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type"));
    match items.get("type").text() {
        "array" if list.is_set() && list.text() != "atomic" => errors.push(list.invalid(RULE)),
        "object" if map.text() != "atomic" => {
            errors.push(FieldError::invalid(&map.path, list.value, RULE));
        }
        _ => {}
    }
}

fn map_list(keys: &At<'_>, items: &At<'_>, errors: &mut FieldErrors) {
    if keys.is_empty() {
        errors.push(keys.required("must not be empty if x-kubernetes-list-type is map"));
    }
    if !items.is_set() {
        errors.push(items.required("must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    let kind = items.get("type");
    if kind.text() != "object" {
        let rule = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&kind.path, kind.text(), rule));
        return;
    }
    let is_required = |key: &str| items.get("required").items().any(|name| name.text() == key);
    let mut seen = BTreeSet::new();
    for key in keys.items() {
        let Some((_, property)) = properties(items).find(|(name, _)| *name == key.text()) else {
            errors.push(keys.invalid("entries must all be names of item properties"));
            continue;
        };
        if matches!(property.get("type").text(), "array" | "object") {
            let rule = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(&property.get("type").path, kind.text(), rule));
        }
        if !seen.insert(key.text()) {
            errors.push(keys.invalid("must not contain duplicate entries"));
        }
        if !is_required(key.text()) && !property.get("default").is_set() {
            errors.push(property.get("default").required(
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if property.get("nullable").flag() {
            errors.push(
                property
                    .get("nullable")
                    .forbidden("this property is in x-kubernetes-list-map-keys, so it cannot be nullable"),
            );
        }
    }
}

fn rules(rules: &At<'_>, errors: &mut FieldErrors) {
    const REASONS: &[&str] =
        &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let is_blank = |at: &At<'_>| !at.text().is_empty() && at.text().trim().is_empty();
    let has_breaks = |at: &At<'_>| at.text().trim().contains(['\n', '\r']);
    for item in rules.items() {
        let (rule, message) = (item.get("rule"), item.get("message"));
        if rule.text().trim().is_empty() {
            errors.push(rule.required("rule is not specified"));
        } else if is_blank(&message) {
            errors.push(message.invalid("must be non-empty if specified"));
        } else if has_breaks(&message) {
            errors.push(message.invalid("must not contain line breaks"));
        } else if has_breaks(&rule) && message.text().is_empty() {
            errors.push(message.required("message must be specified if rule contains line breaks"));
        }
        let computed = item.get("messageExpression");
        if is_blank(&computed) {
            errors.push(computed.required("messageExpression must be non-empty if specified"));
        }
        item.get("reason").if_one_of(REASONS, errors);
        let path = item.get("fieldPath");
        if is_blank(&path) {
            errors.push(path.invalid("must be non-empty if specified"));
        }
        if path.text().contains(['\n', '\r']) {
            errors.push(path.invalid("must not contain line breaks"));
        }
    }
}

/// Formats that nothing checks.
pub(crate) fn warnings(definition: &Value) -> Vec<String> {
    unknown_formats(definition).into_iter().map(|format| format!("unrecognized format {format:?}")).collect()
}

/// Formats that nothing checks, and that are new.
pub(crate) fn warnings_on_update(new: &Value, old: &Value) -> Vec<String> {
    let had = warnings(old);
    warnings(new).into_iter().filter(|warning| !had.contains(warning)).collect()
}

fn unknown_formats(definition: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for version in At::root(definition).get("spec").get("versions").items() {
        formats(version.get("schema").get("openAPIV3Schema").value, &mut found);
    }
    found
}

const FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "date-time",
    "int32",
    "int64",
    "float",
    "double",
    "k8s-short-name",
    "k8s-long-name",
];

fn formats<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    let Some(map) = schema.as_object() else { return };
    if let Some(format) = map.get("format").and_then(Value::as_str)
        && !format.is_empty()
        && !FORMATS.contains(&format)
    {
        found.push(format);
    }
    for (name, value) in map {
        match name.as_str() {
            "properties" => value.as_object().into_iter().flatten().for_each(|(_, v)| formats(v, found)),
            "allOf" | "anyOf" | "oneOf" => {
                value.as_array().into_iter().flatten().for_each(|v| formats(v, found));
            }
            "items" | "not" | "additionalProperties" => formats(value, found),
            _ => {}
        }
    }
}
