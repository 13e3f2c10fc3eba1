//! The fields of each version, and those that versions have in common.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use schema::build::definition::field_path::{Fields, Notation};
use schema::go;

use super::At;
use super::old::Old;
use super::schema::{self as version_schema, Context};
use crate::definition::Expressions;

const SELECTABLE_MAX: usize = 8;
const WARNING_BYTES_MAX: usize = 256;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

type Judges<'j> = (&'j Old<'j>, &'j dyn Expressions);

/// What all versions have in common, under upstream's internal names; nothing of what they have each.
pub(super) struct Shared<'a> {
    schema: Option<At<'a>>,
    subresources: Option<At<'a>>,
    columns: Option<At<'a>>,
    fields: Option<At<'a>>,
}

impl<'a> Shared<'a> {
    pub(super) fn of(spec: &At<'a>) -> Self {
        let versions = spec.get("versions");
        let part = |field: &str, internal: &str| {
            let found = common(&versions, field)?;
            Some(At { path: spec.get(internal).path, ..found })
        };
        Self {
            schema: part("schema", "validation"),
            subresources: part("subresources", "subresources"),
            columns: part("additionalPrinterColumns", "additionalPrinterColumns"),
            fields: part("selectableFields", "selectableFields"),
        }
    }
}

/// What a version does not share with all others.
pub(super) fn own(
    spec: &At<'_>,
    version: &At<'_>,
    shared: &Shared<'_>,
    judges: Judges<'_>,
    errors: &mut FieldErrors,
) {
    deprecation(version, errors);
    let context = Context {
        version: version.get("name").text(),
        has_status: version.get("subresources").get("status").is_set(),
        preserves: spec.get("preserveUnknownFields").flag(),
    };
    let schema = shared.schema.is_none().then(|| version.get("schema").get("openAPIV3Schema"));
    if let Some(schema) = &schema {
        version_schema::check(schema, judges, &context, errors);
    }
    if shared.subresources.is_none() {
        subresources(&version.get("subresources"), errors);
    }
    if shared.columns.is_none() {
        version.get("additionalPrinterColumns").items().for_each(|item| column(&item, errors));
    }
    let fields = version.get("selectableFields");
    if shared.fields.is_none() && !fields.is_empty() {
        match schema.filter(At::is_set) {
            Some(schema) => {
                let old_fields = judges.0.version(context.version).map(|old| old.get("selectableFields"));
                selectable(&fields, &schema, old_fields.as_ref(), errors);
            }
            None => errors.push(FieldError::invalid(
                &fields.path,
                "",
                "may only be set when `version.schema.openAPIV3Schema` is not included",
            )),
        }
    }
}

/// What all versions share.
pub(super) fn check_shared(
    spec: &At<'_>,
    shared: &Shared<'_>,
    (old, expressions): Judges<'_>,
    errors: &mut FieldErrors,
) {
    let versions = spec.get("versions");
    let schema = shared.schema.as_ref().map(|schema| schema.get("openAPIV3Schema"));
    if let Some(schema) = &schema {
        let context = Context {
            version: versions.items().next().map_or("", |first| first.get("name").text()),
            has_status: versions.items().any(|v| v.get("subresources").get("status").is_set()),
            preserves: spec.get("preserveUnknownFields").flag(),
        };
        version_schema::check(schema, (old, expressions), &context, errors);
    }
    if let Some(part) = &shared.subresources {
        subresources(part, errors);
    }
    if let Some(columns) = &shared.columns {
        columns.items().for_each(|item| column(&item, errors));
    }
    let Some(fields) = &shared.fields else { return };
    let Some(schema) = schema.filter(At::is_set) else {
        let why = "may only be set when validations.schema is included";
        errors.push(FieldError::invalid(&fields.path, "", why));
        return;
    };
    let old_fields =
        old.definition().and_then(|old| common(&old.get("spec").get("versions"), "selectableFields"));
    selectable(fields, &schema, old_fields.as_ref(), errors);
}

/// The value that every version has at `field`, if there is one.
fn common<'a>(versions: &At<'a>, field: &str) -> Option<At<'a>> {
    let is_empty_list = |at: &At<'_>| at.value.as_array().is_some_and(Vec::is_empty);
    let mut values = versions.items().map(|version| version.get(field));
    let first = values.next().filter(|value| value.is_set() && !is_empty_list(value))?;
    values.all(|value| value.value == first.value).then_some(first)
}

fn deprecation(version: &At<'_>, errors: &mut FieldErrors) {
    let warning = version.get("deprecationWarning");
    if !warning.is_set() {
        return;
    }
    let text = warning.text();
    if !version.get("deprecated").flag() {
        errors.push(warning.invalid("can only be set for deprecated versions"));
        return;
    }
    if text.len() > WARNING_BYTES_MAX {
        errors.push(warning.invalid("must be <= 256 characters long"));
    }
    if text.is_empty() {
        errors.push(warning.invalid("must not be an empty string"));
    }
    if let Some((i, _)) = text.char_indices().find(|(_, c)| !go::is_print(*c)) {
        errors.push(warning.invalid(&format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        )));
    }
}

fn subresources(subresources: &At<'_>, errors: &mut FieldErrors) {
    let Some(scale) = subresources.some("scale") else { return };
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let at = scale.get(field);
        if at.text().is_empty() {
            errors.push(at.required(""));
        } else if json_path(&at, errors) && !at.text().starts_with(root) {
            let part = root.trim_end_matches('.');
            errors.push(at.invalid(&format!("should be a json path under {part}")));
        }
    }
    let labels = scale.get("labelSelectorPath");
    let is_inside = [".spec.", ".status."].iter().any(|root| labels.text().starts_with(root));
    if !labels.text().is_empty() && json_path(&labels, errors) && !is_inside {
        errors.push(labels.invalid("should be a json path under either .spec or .status"));
    }
}

/// A path that begins with a dot; whether it is one. Upstream looks at no more of it here, and what it leads to is
/// known only of an object.
fn json_path(at: &At<'_>, errors: &mut FieldErrors) -> bool {
    if at.text().starts_with('.') {
        return true;
    }
    errors.push(at.invalid("must be a simple json path starting with ."));
    false
}

fn column(column: &At<'_>, errors: &mut FieldErrors) {
    let (name, kind, format) = (column.get("name"), column.get("type"), column.get("format"));
    if name.text().is_empty() {
        errors.push(name.required(""));
    }
    let rule = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.text().is_empty() {
        errors.push(kind.required(&rule));
    } else if !COLUMN_TYPES.contains(&kind.text()) {
        errors.push(kind.invalid(&rule));
    }
    if !format.text().is_empty() && !COLUMN_FORMATS.contains(&format.text()) {
        errors.push(format.invalid(&format!("must be one of {}", COLUMN_FORMATS.join(","))));
    }
    let path = At { path: column.get("JSONPath").path, ..column.get("jsonPath") };
    if path.text().is_empty() {
        errors.push(path.required(""));
    } else {
        json_path(&path, errors);
    }
}

/// Fields that objects can be selected by. Too many may stay if they were the same before.
fn selectable(fields: &At<'_>, schema: &At<'_>, old: Option<&At<'_>>, errors: &mut FieldErrors) {
    // A schema that cannot be read is told where it stands.
    let Some(known) = Fields::of(schema.value) else { return };
    let mut seen = BTreeSet::new();
    for path in fields.items().map(|field| field.get("jsonPath")) {
        if path.text().is_empty() {
            errors.push(path.required(""));
            continue;
        }
        let found = match known.find(path.text(), Notation::Dots) {
            Ok(found) => found,
            Err(why) => {
                errors.push(path.invalid(&format!("is an invalid path: {why}")));
                continue;
            }
        };
        if found.root == "metadata" {
            errors.push(path.invalid("must not point to fields in metadata"));
        }
        if !matches!(&*found.ty, "string" | "boolean" | "integer") {
            errors.push(path.invalid(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
            ));
        }
        if !seen.insert(found.path) {
            errors.push(path.duplicate());
        }
    }
    let is_as_before = old.is_some_and(|old| old.value == fields.value);
    if seen.len() > SELECTABLE_MAX && !is_as_before {
        errors.push(FieldError::too_many(&fields.path, seen.len(), SELECTABLE_MAX));
    }
}
