//! What comes of a row, and whether it is what the row says.
//!
//! Of `create`, `update`, `status` and `approval`: the broken rules, each as `REASON FIELD`, with ` ~ TEXT` behind it for a part of its text;
//! a field that begins with `.` or `[`, or is only `.`, is below the table's place. Of `defaults`, `created`, `updated` and
//! `reported` (what the object is after defaults, and as each kind of write leaves it): `POINTER = YAML`. Of `cells`: the
//! cells of its columns. Of `fields`: `LABEL = VALUE`, or `LABEL = unsupported`.

use std::sync::LazyLock;

use jiff::Timestamp;
use machinery::field::{FieldError, FieldErrors, Reason};
use resources::{PartialStrategy, Resource};
use schema::walk::decode::{self, FieldValidation};
use schema::walk::default::Defaults;
use serde_json::Value;

use crate::table::{Row, Table, changed, yaml};

/// Made once: it looks through all schemas.
static DEFAULTS: LazyLock<Defaults> =
    LazyLock::new(|| Defaults::new(schema::builtin(), resources::defaults::rows()));

/// When the rows happen.
const NOW: &str = "2026-01-01T00:10:00Z";

/// The rows of a table that came out differently.
pub(crate) fn differences(table: &Table<'_>) -> Vec<String> {
    let row = row(table);
    if matches!(table.deed, "create" | "update" | "status" | "approval") {
        let errors = broken(table, row, &table.good, &table.good);
        assert!(errors.is_empty(), "{} of {} without a change: {errors:?}", table.deed, table.plural);
    }
    table.rows.iter().filter_map(|case| difference(table, row, case)).collect()
}

fn row(table: &Table<'_>) -> &'static Resource {
    let (group, version) = table.api.rsplit_once('/').unwrap_or(("", table.api));
    resources::find(group, version, table.plural)
        .unwrap_or_else(|| panic!("no row: {} {}", table.api, table.plural))
}

fn difference(table: &Table<'_>, row: &Resource, case: &Row) -> Option<String> {
    let old = changed(&table.good, &case.old);
    let new = changed(&old, &case.new);
    let (expected, found) = match table.deed {
        "create" | "update" | "status" | "approval" => causes(table, case, &broken(table, row, &new, &old)),
        "defaults" | "created" | "updated" | "reported" => {
            values(table, case, &written(table, row, &new, &old))
        }
        "cells" => (case.outcomes.clone(), cells(row, &new)),
        "fields" => labels(row, case, &decoded(row, &new)),
        other => panic!("no such deed: {other}"),
    };
    (expected != found).then(|| format!("- {}\n    {}", case.name, found.join("\n    ")))
}

/// What the server makes of a body before anything else.
fn decoded(row: &Resource, object: &Value) -> Value {
    let schemas = schema::builtin();
    let schema = schemas.kind(&row.group, &row.version, &row.kind).unwrap();
    let decoded = decode::from_value(schema, object.clone(), FieldValidation::Strict);
    let mut object = decoded.unwrap_or_else(|error| panic!("{}: {error}: {object}", row.plural)).value;
    DEFAULTS.apply(schema, &mut object);
    object
}

fn part(table: &Table<'_>, row: &Resource) -> Option<&'static PartialStrategy> {
    let missing = || panic!("no such subresource: {}", table.subresource);
    (!table.subresource.is_empty())
        .then(|| resources::partial(row, table.subresource).unwrap_or_else(missing))
}

/// The object as a write leaves it, before anything looks at whether it may.
fn written(table: &Table<'_>, row: &Resource, new: &Value, old: &Value) -> Value {
    let (mut new, old) = (decoded(row, new), decoded(row, old));
    match (table.deed, part(table, row)) {
        ("defaults", _) => {}
        ("create" | "created", _) => row.strategy.begin_create(&mut new),
        ("update" | "updated", Some(part)) => part.begin_update(&mut new, &old),
        ("update" | "updated", None) => row.strategy.begin_update(&mut new, &old),
        ("approval", _) => resources::strategies::approve(&mut new, &old, now()),
        _ => row.strategy.begin_status_update(&mut new, &old, now()),
    }
    new
}

fn broken(table: &Table<'_>, row: &Resource, new: &Value, old: &Value) -> FieldErrors {
    let new = written(table, row, new, old);
    let old = decoded(row, old);
    match (table.deed, part(table, row)) {
        ("create", _) => row.validate_create(&new),
        ("update", Some(part)) => part.validate(row, &new, &old),
        ("update", None) => row.validate_update(&new, &old),
        ("approval", _) => resources::strategies::validate_approval(row, &new, &old),
        _ => row.validate_status_update(&new, &old),
    }
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// The causes that a row names and those that there are, in the row's form; a text that has the named part counts as it.
fn causes(table: &Table<'_>, case: &Row, errors: &FieldErrors) -> (Vec<String>, Vec<String>) {
    let place = place(table.at);
    let mut expected: Vec<_> = case.outcomes.iter().map(|cause| in_full(cause, &place)).collect();
    let mut found: Vec<_> = errors.iter().map(|error| shown(error, &expected)).collect();
    expected.sort();
    found.sort();
    (expected, found)
}

fn in_full(cause: &str, place: &str) -> String {
    let (reason, rest) = cause.split_once(' ').unwrap_or_else(|| panic!("no field: {cause}"));
    let (field, text) = rest.split_once(" ~ ").map_or((rest, ""), |(field, text)| (field, text));
    let field = match field {
        "." => place.to_owned(),
        below if below.starts_with(['.', '[']) => format!("{place}{below}"),
        field => field.to_owned(),
    };
    match text {
        "" => format!("{reason} {field}"),
        text => format!("{reason} {field} ~ {text}"),
    }
}

fn shown(error: &FieldError, expected: &[String]) -> String {
    let bare = format!("{} {}", word(error.reason), error.path);
    let is_named = |cause: &&String| match cause.strip_prefix(&bare) {
        Some(rest) => {
            rest.strip_prefix(" ~ ").is_none_or(|text| error.message.contains(text)) && is_end(rest)
        }
        None => false,
    };
    let named = expected.iter().filter(is_named).max_by_key(|cause| cause.len());
    named.cloned().unwrap_or_else(|| format!("{bare} ~ {}", error.message))
}

fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(" ~ ")
}

fn word(reason: Reason) -> &'static str {
    reason.as_str().trim_start_matches("FieldValue")
}

/// `spec.volumes[0]` of `/spec/volumes/0`.
fn place(pointer: &str) -> String {
    let mut place = String::new();
    for step in pointer.split('/').skip(1) {
        match step.parse::<usize>() {
            Ok(index) => place.push_str(&format!("[{index}]")),
            Err(_) if place.is_empty() => place.push_str(step),
            Err(_) => place.push_str(&format!(".{step}")),
        }
    }
    place
}

/// The values that a row names, and what is at their places.
fn values(table: &Table<'_>, case: &Row, object: &Value) -> (Vec<String>, Vec<String>) {
    let both = case.outcomes.iter().map(|outcome| {
        let (pointer, value) = outcome.split_once(" = ").unwrap_or_else(|| panic!("no value: {outcome}"));
        let full = if pointer == "." { table.at.to_owned() } else { pointer.to_owned() };
        let at = if full.starts_with("./") { format!("{}{}", table.at, &full[1..]) } else { full };
        let found = object.pointer(&at).unwrap_or(&Value::Null);
        (format!("{at} = {}", yaml(value)), format!("{at} = {found}"))
    });
    both.unzip()
}

fn cells(row: &Resource, object: &Value) -> Vec<String> {
    let cell = |column: &resources::columns::Column| match column.cell(object, now()) {
        Value::String(text) if text.is_empty() => "''".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    };
    row.columns.iter().map(cell).collect()
}

fn labels(row: &Resource, case: &Row, object: &Value) -> (Vec<String>, Vec<String>) {
    let both = case.outcomes.iter().map(|outcome| {
        let label = outcome.split(" = ").next().unwrap_or_default().trim_end_matches(" =");
        let found = match row.is_selectable(label) {
            true => format!("{label} = {}", row.field_value(object, label)),
            false => format!("{label} = unsupported"),
        };
        (outcome.clone(), found.trim().to_owned())
    });
    both.unzip()
}
