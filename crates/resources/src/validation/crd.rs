//! CustomResourceDefinitions: what a definition may say, and what an update may change.
//!
//! Upstream keeps what all versions share at the top of its internal form, and names it there in its errors. An update
//! may leave as it is what a create is refused for now and was not once.
//! Source: `k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation`.

use std::collections::BTreeSet;

use machinery::field::{FieldError, FieldErrors};
use machinery::names;
use serde_json::Value;

use super::At;
use super::admission_policy::mixed_case_label;
use crate::definition::{APPROVAL_ANNOTATION, Approval, Expressions, approval, is_protected_group};
use old::Old;
use version::Shared;

mod conversion;
mod formats;
mod old;
mod schema;
mod version;

pub(crate) use formats::{warnings, warnings_on_update};

/// Every broken rule of a new definition, metadata apart; what its schemas say in CEL is checked by `expressions`.
pub fn check(object: &Value, expressions: &dyn Expressions) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let root = At::root(object);
    let (name, spec) = (root.get("metadata").get("name"), root.get("spec"));
    let wanted = format!("{}.{}", spec.get("names").get("plural").text(), spec.get("group").text());
    if name.text() != wanted {
        errors.push(name.invalid("must be spec.names.plural+\".\"+spec.group"));
    }
    definition(&root, &Old::none(), expressions, &mut errors);
    errors
}

/// Every broken rule of an update, metadata apart: group and plural stay, and the kind once it is established.
pub fn update(new: &Value, old: &Value, expressions: &dyn Expressions) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let old = Old::of(old);
    definition(&At::root(new), &old, expressions, &mut errors);
    errors
}

/// A write to the status of a CustomResourceDefinition.
pub(crate) fn status_update(new: &Value, _: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    check_names(&At::root(new).get("status").get("acceptedNames"), &mut errors);
    errors
}

fn definition(root: &At<'_>, old: &Old<'_>, expressions: &dyn Expressions, errors: &mut FieldErrors) {
    let spec = root.get("spec");
    group(&spec.get("group"), errors);
    spec.get("scope").one_of(&["Cluster", "Namespaced"], errors);
    unknown_fields_with_defaults(&spec, errors);
    let shared = Shared::of(&spec);
    versions(&spec, &shared, (old, expressions), errors);
    for field in ["plural", "singular", "kind", "listKind"] {
        let at = spec.get("names").get(field);
        if at.text().is_empty() {
            errors.push(at.required(""));
        }
    }
    check_names(&spec.get("names"), errors);
    version::check_shared(&spec, &shared, (old, expressions), errors);
    conversion::check(&spec, old, errors);
    if let Some(old) = old.definition() {
        immutable(&spec, &old, errors);
    }
    check_names(&root.get("status").get("acceptedNames"), errors);
    stored_versions(root, errors);
    approved(root, old, errors);
    unknown_fields(&spec, old, errors);
}

/// What stays as it was.
fn immutable(new: &At<'_>, old: &At<'_>, errors: &mut FieldErrors) {
    let is_established = old
        .get("status")
        .get("conditions")
        .items()
        .any(|c| c.get("type").text() == "Established" && c.get("status").text() == "True");
    let old = old.get("spec");
    if is_established {
        new.get("scope").immutable(&old.get("scope"), errors);
        new.get("names").get("kind").immutable(&old.get("names").get("kind"), errors);
    }
    new.get("group").immutable(&old.get("group"), errors);
    new.get("names").get("plural").immutable(&old.get("names").get("plural"), errors);
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

fn versions(
    spec: &At<'_>,
    shared: &Shared<'_>,
    judges: (&Old<'_>, &dyn Expressions),
    errors: &mut FieldErrors,
) {
    let versions = spec.get("versions");
    let prunes = !spec.get("preserveUnknownFields").flag();
    for version in versions.items() {
        let schema = version.get("schema").get("openAPIV3Schema");
        match schema.is_set() {
            false if judges.0.has_schemas => errors.push(schema.required("")),
            false if prunes && version.get("served").flag() => {
                errors.push(schema.required("because otherwise all fields are pruned"));
            }
            _ => {}
        }
    }
    for version in versions.items() {
        let name = version.get("name");
        joined(&name, names::dns1035_label(name.text()), errors);
        version::own(spec, &version, shared, judges, errors);
    }
    let mut seen = BTreeSet::new();
    if !versions.items().all(|version| seen.insert(version.get("name").text())) {
        errors.push(versions.invalid("must contain unique version names"));
    }
    if versions.items().filter(|version| version.get("storage").flag()).count() != 1 {
        errors.push(versions.invalid("must have exactly one version marked as storage version"));
    }
}

fn stored_versions(root: &At<'_>, errors: &mut FieldErrors) {
    let (stored, versions) = (root.get("status").get("storedVersions"), root.get("spec").get("versions"));
    if stored.is_empty() {
        errors.push(stored.invalid("must have at least one stored version"));
        return;
    }
    let names: BTreeSet<&str> = versions.items().map(|version| version.get("name").text()).collect();
    let known: BTreeSet<&str> = stored.items().map(|item| item.text()).collect();
    for name in versions.items().filter(|v| v.get("storage").flag()).map(|v| v.get("name")) {
        if !known.contains(name.text()) {
            errors.push(stored.invalid(&format!("must have the storage version {}", name.text())));
        }
    }
    for item in stored.items().filter(|item| !names.contains(item.text())) {
        let name = item.text();
        errors.push(item.invalid(&format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
        )));
    }
}

/// Groups of the community need a word that they were looked at; what was said before may stay.
fn approved(root: &At<'_>, old: &Old<'_>, errors: &mut FieldErrors) {
    if !is_protected_group(root.get("spec").get("group").text()) {
        return;
    }
    let (state, why) = approval(root.value);
    if old.definition().is_some_and(|old| approval(old.value).0 == state) {
        return;
    }
    let annotations = root.get("metadata").get("annotations");
    let path = annotations.path.key(APPROVAL_ANNOTATION);
    let at = At { path, ..annotations.get(APPROVAL_ANNOTATION) };
    match state {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => errors.push(at.required(&why)),
        Approval::Invalid => errors.push(at.invalid(&why)),
    }
}

/// Fields that no schema has go; only a definition that was made before that was so keeps them.
fn unknown_fields(spec: &At<'_>, old: &Old<'_>, errors: &mut FieldErrors) {
    let at = spec.get("preserveUnknownFields");
    if at.flag() && !old.preserves {
        errors.push(at.invalid(
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
}

fn unknown_fields_with_defaults(spec: &At<'_>, errors: &mut FieldErrors) {
    let at = spec.get("preserveUnknownFields");
    if !at.flag() {
        return;
    }
    let mut schemas =
        spec.get("versions").items().map(|version| version.get("schema").get("openAPIV3Schema"));
    if schemas.any(|schema| ::schema::build::definition::has_defaults(schema.value)) {
        errors.push(at.invalid("must be false in order to use defaults in the schema"));
    }
}

#[cfg(test)]
mod tests;
