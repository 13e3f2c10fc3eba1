//! CustomResourceDefinitions: names, versions, conversion. Their schemas are in `crd_schema`.
//!
//! Upstream keeps what all versions share at the top of its internal form, and names it there in its errors.
//! Source: `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation`.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::names;
use serde_json::Value;

use super::admission_policy::mixed_case_label;
use super::{At, crd_schema, webhook};

const SELECTABLE_MAX: usize = 8;
const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const APPROVAL: &str = "api-approved.kubernetes.io";

/// A CustomResourceDefinition.
pub(crate) fn check(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let root = At::root(object);
    let (name, spec) = (root.get("metadata").get("name"), root.get("spec"));
    let wanted = format!("{}.{}", spec.get("names").get("plural").text(), spec.get("group").text());
    if name.text() != wanted {
        errors.push(name.invalid("must be spec.names.plural+\".\"+spec.group"));
    }
    group(&spec.get("group"), &mut errors);
    spec.get("scope").one_of(&["Cluster", "Namespaced"], &mut errors);
    if spec.get("preserveUnknownFields").flag() {
        errors.push(
            spec.get("preserveUnknownFields")
                .invalid("cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"),
        );
    }
    versions(&spec, &mut errors);
    for field in ["plural", "singular", "kind", "listKind"] {
        let at = spec.get("names").get(field);
        if at.text().is_empty() {
            errors.push(at.required(""));
        }
    }
    check_names(&spec.get("names"), &mut errors);
    conversion(&spec.get("conversion"), &mut errors);
    stored_versions(&root, &mut errors);
    approval(&root, &mut errors);
    errors
}

/// An update of a CustomResourceDefinition: group and plural stay, and the kind once it is established.
pub(crate) fn update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = check(new);
    let is_established = At::root(old)
        .get("status")
        .get("conditions")
        .items()
        .any(|c| c.get("type").text() == "Established" && c.get("status").text() == "True");
    let (new, old) = (At::root(new).get("spec"), At::root(old).get("spec"));
    if is_established {
        new.get("scope").immutable(&old.get("scope"), &mut errors);
        new.get("names").get("kind").immutable(&old.get("names").get("kind"), &mut errors);
    }
    new.get("group").immutable(&old.get("group"), &mut errors);
    new.get("names").get("plural").immutable(&old.get("names").get("plural"), &mut errors);
    errors
}

/// A write to the status of a CustomResourceDefinition.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    check_names(&At::root(new).get("status").get("acceptedNames"), &mut errors);
    errors
}

/// Rules joined into one error.
fn joined(at: &At<'_>, rules: Vec<String>, errors: &mut FieldErrors) {
    if !rules.is_empty() {
        errors.push(FieldError::invalid(&at.path, at.text(), &rules.join(",")));
    }
}

fn group(group: &At<'_>, errors: &mut FieldErrors) {
    if group.text().is_empty() {
        errors.push(group.required(""));
        return;
    }
    let rules = names::dns1123_subdomain(group.text());
    if rules.is_empty() && !group.text().contains('.') {
        errors.push(group.invalid("should be a domain with at least one dot"));
    }
    joined(group, rules, errors);
}

fn check_names(names: &At<'_>, errors: &mut FieldErrors) {
    let label = |at: &At<'_>, errors: &mut FieldErrors| {
        joined(at, names::dns1035_label(at.text()), errors);
    };
    for field in ["plural", "singular"] {
        let at = names.get(field);
        if !at.text().is_empty() {
            label(&at, errors);
        }
    }
    for field in ["kind", "listKind"] {
        let at = names.get(field);
        if !at.text().is_empty() {
            mixed_case_label(&at, errors);
        }
    }
    names.get("shortNames").items().for_each(|name| label(&name, errors));
    let (kind, list_kind) = (names.get("kind"), names.get("listKind"));
    if !kind.text().is_empty() && kind.text() == list_kind.text() {
        errors.push(list_kind.invalid("kind and listKind may not be the same"));
    }
    names.get("categories").items().for_each(|name| label(&name, errors));
}

/// The value that every version has at `field`, if there is one.
fn shared<'a>(versions: &At<'a>, field: &str) -> Option<At<'a>> {
    let mut values = versions.items().map(|version| version.get(field));
    let first = values.next().filter(|value| value.is_set() && !is_empty_list(value))?;
    values.all(|value| value.value == first.value).then_some(first)
}

fn is_empty_list(at: &At<'_>) -> bool {
    at.value.as_array().is_some_and(Vec::is_empty)
}

fn versions(spec: &At<'_>, errors: &mut FieldErrors) {
    let versions = spec.get("versions");
    for schema in versions.items().map(|v| v.get("schema").get("openAPIV3Schema")) {
        if !schema.is_set() {
            errors.push(schema.required(""));
        }
    }
    // Upstream's internal names of what all versions share.
    let parts = [
        ("schema", "validation"),
        ("subresources", "subresources"),
        ("additionalPrinterColumns", "additionalPrinterColumns"),
        ("selectableFields", "selectableFields"),
    ];
    for version in versions.items() {
        let name = version.get("name");
        joined(&name, names::dns1035_label(name.text()), errors);
        deprecation(&version, errors);
        for (field, _) in parts.iter().filter(|(field, _)| shared(&versions, field).is_none()) {
            let has_status = version.get("subresources").get("status").is_set();
            part(field, &version.get(field), has_status, errors);
        }
    }
    let mut seen = BTreeSet::new();
    if !versions.items().all(|version| seen.insert(version.get("name").text())) {
        errors.push(versions.invalid("must contain unique version names"));
    }
    if versions.items().filter(|version| version.get("storage").flag()).count() != 1 {
        errors.push(versions.invalid("must have exactly one version marked as storage version"));
    }
    let has_status = versions.items().any(|v| v.get("subresources").get("status").is_set());
    for (field, internal) in parts {
        if let Some(value) = shared(&versions, field) {
            part(field, &At { path: spec.get(internal).path, ..value }, has_status, errors);
        }
    }
}

fn part(field: &str, value: &At<'_>, has_status: bool, errors: &mut FieldErrors) {
    match field {
        "schema" => crd_schema::check(&value.get("openAPIV3Schema"), has_status, errors),
        "subresources" => subresources(value, errors),
        "additionalPrinterColumns" => value.items().for_each(|item| column(&item, errors)),
        _ => selectable(value, errors),
    }
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
    if text.len() > 256 {
        errors.push(warning.invalid("must be <= 256 characters long"));
    }
    if text.is_empty() {
        errors.push(warning.invalid("must not be an empty string"));
    }
    if let Some((i, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
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

/// A path in dots; whether it is one.
fn json_path(at: &At<'_>, errors: &mut FieldErrors) -> bool {
    if at.text().starts_with('.') && !at.text().contains(['{', '}']) {
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

fn selectable(fields: &At<'_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for path in fields.items().map(|field| field.get("jsonPath")) {
        if path.text().is_empty() {
            errors.push(path.required(""));
            continue;
        }
        if path.text() == ".metadata" || path.text().starts_with(".metadata.") {
            errors.push(path.invalid("must not point to fields in metadata"));
        }
        if !seen.insert(path.text()) {
            errors.push(path.duplicate());
        }
    }
    if seen.len() > SELECTABLE_MAX {
        errors.push(FieldError::too_many(&fields.path, seen.len(), SELECTABLE_MAX));
    }
}

fn conversion(conversion: &At<'_>, errors: &mut FieldErrors) {
    if !conversion.is_set() {
        return;
    }
    conversion.get("strategy").one_of(&["None", "Webhook"], errors);
    let hook = conversion.get("webhook");
    // Upstream's internal names of the two.
    let at = |name: &str| -> Path { conversion.get(name).path };
    let client = At { path: at("webhookClientConfig"), ..hook.get("clientConfig") };
    let versions = At { path: at("conversionReviewVersions"), ..hook.get("conversionReviewVersions") };
    if conversion.get("strategy").text() != "Webhook" {
        const UNUSED: &str = "should not be set when strategy is not set to Webhook";
        if client.is_set() {
            errors.push(client.forbidden(UNUSED));
        }
        if !versions.is_empty() {
            errors.push(versions.forbidden(UNUSED));
        }
        return;
    }
    if client.is_set() {
        webhook::client(&client, errors);
    } else {
        errors.push(client.required("required when strategy is set to Webhook"));
    }
    webhook::review_versions(&versions, "", true, errors);
}

fn stored_versions(root: &At<'_>, errors: &mut FieldErrors) {
    let (stored, versions) = (root.get("status").get("storedVersions"), root.get("spec").get("versions"));
    if stored.is_empty() {
        errors.push(stored.invalid("must have at least one stored version"));
        return;
    }
    let is_stored = |name: &str| stored.items().any(|item| item.text() == name);
    for name in versions.items().filter(|v| v.get("storage").flag()).map(|v| v.get("name")) {
        if !is_stored(name.text()) {
            errors.push(stored.invalid(&format!("must have the storage version {}", name.text())));
        }
    }
    for item in stored.items() {
        let name = item.text();
        if !versions.items().any(|version| version.get("name").text() == name) {
            errors.push(item.invalid(&format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            )));
        }
    }
}

/// Groups of the community need a word that they were looked at.
fn approval(root: &At<'_>, errors: &mut FieldErrors) {
    let group = root.get("spec").get("group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|g| group.text() == *g || group.text().ends_with(&format!(".{g}")));
    if !is_protected {
        return;
    }
    let annotation = root.get("metadata").get("annotations").get(APPROVAL);
    let at = At { path: root.get("metadata").get("annotations").path.key(APPROVAL), ..annotation };
    let text = at.text();
    let is_url = text.contains("://") && !text.ends_with("://");
    if text.is_empty() {
        errors.push(at.required("protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"));
    } else if !is_url && !text.starts_with("unapproved") {
        errors.push(at.invalid("protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"));
    }
}
