//! `ObjectMeta` of every kind.
//!
//! Source: `k8s.io/apimachinery/pkg/api/validation`.

use machinery::field::{FieldError, FieldErrors, Path, quote};
use machinery::names;
use serde_json::Value;

use super::{At, labels};
use crate::resource::Resource;
use crate::strategy::NameRule;

const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

impl NameRule {
    /// The broken rules of `name`; of a `generateName` too, whose end may be a `-`.
    pub fn check(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => names::dns1123_subdomain(name),
            Self::Label => names::dns1123_label(name),
            Self::Label1035 => names::dns1035_label(name),
            Self::PathSegment => names::path_segment(name),
            Self::ConfigKey => names::config_map_key(name),
            Self::Any => Vec::new(),
        }
    }
}

/// Every broken rule of a new object's metadata.
pub fn create(resource: &Resource, object: &Value) -> FieldErrors {
    let metadata = At::root(object).get("metadata");
    let rule = resource.strategy.name_rule;
    let mut errors = FieldErrors::new();
    if rule == NameRule::Any {
        return errors;
    }
    let (name, prefix) = (metadata.get("name"), metadata.get("generateName"));
    if !prefix.text().is_empty() {
        errors.extend(prefix.all(rule.check(&names::masked_prefix(prefix.text()))));
    }
    if name.text().is_empty() {
        errors.push(name.required("name or generateName is required"));
    } else {
        errors.extend(name.all(rule.check(name.text())));
    }
    let namespace = metadata.get("namespace");
    match (resource.is_namespaced(), namespace.text()) {
        (true, "") => errors.push(namespace.required("")),
        (true, text) => errors.extend(namespace.all(names::dns1123_label(text))),
        (false, "") => {}
        (false, _) => errors.push(namespace.forbidden("not allowed on this type")),
    }
    common(&metadata, Finalizers::of(resource), &mut errors);
    errors
}

/// Every broken rule of the metadata of a resource within another one, which need not have a name.
///
/// Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta`.
pub fn within(path: &Path, metadata: &Value) -> FieldErrors {
    let metadata = At { value: metadata, path: path.clone() };
    let mut errors = FieldErrors::new();
    for field in ["generateName", "name"] {
        let at = metadata.get(field);
        if !at.text().is_empty() {
            errors.extend(at.all(NameRule::PathSegment.check(at.text())));
        }
    }
    let namespace = metadata.get("namespace");
    if !namespace.text().is_empty() {
        errors.extend(namespace.all(names::dns1123_label(namespace.text())));
    }
    common(&metadata, Finalizers::Qualified, &mut errors);
    errors
}

/// Every broken rule of an update's metadata.
pub fn update(resource: &Resource, new: &Value, old: &Value) -> FieldErrors {
    let (new, old) = (At::root(new).get("metadata"), At::root(old).get("metadata"));
    let mut errors = FieldErrors::new();
    if resource.strategy.name_rule == NameRule::Any {
        return errors;
    }
    if old.get("deletionTimestamp").is_set() {
        let had = |finalizer: &At<'_>| old.get("finalizers").items().any(|o| o.value == finalizer.value);
        let added: Vec<_> =
            new.get("finalizers").items().filter(|f| !had(f)).map(|f| quote(f.text())).collect();
        if !added.is_empty() {
            errors.push(new.get("finalizers").forbidden(&format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            )));
        }
    }
    if new.get("generation").number() < old.get("generation").number() {
        errors.push(new.get("generation").invalid("must not be decremented"));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        new.get(field).immutable(&old.get(field), &mut errors);
    }
    common(&new, Finalizers::of(resource), &mut errors);
    errors
}

/// What the names of finalizers must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Finalizers {
    /// Qualified names: of definitions, of custom kinds, and of resources within others.
    Qualified,
    /// Those that have a domain, or one of Kubernetes' own.
    WithDomain,
}

impl Finalizers {
    /// Source: `ValidateObjectMeta` of `k8s.io/apimachinery`, which `pkg/apis/core/validation` adds to.
    fn of(resource: &Resource) -> Self {
        let is_extension = resource.group == "apiextensions.k8s.io" || resource.strategy.rules.is_some();
        if is_extension { Self::Qualified } else { Self::WithDomain }
    }
}

fn common(metadata: &At<'_>, rule: Finalizers, errors: &mut FieldErrors) {
    metadata.get("generation").not_negative(errors);
    labels(&metadata.get("labels"), errors);
    annotations(&metadata.get("annotations"), errors);
    owners(&metadata.get("ownerReferences"), errors);
    let finalizers = metadata.get("finalizers");
    for finalizer in finalizers.items() {
        errors.extend(finalizer_name(&finalizers, finalizer.text(), rule));
    }
    let has = |name: &str| finalizers.items().any(|f| f.text() == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.push(finalizers.invalid("finalizer orphan and foregroundDeletion cannot be both set"));
    }
}

fn finalizer_name(finalizers: &At<'_>, name: &str, rule: Finalizers) -> Vec<FieldError> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let of = |why: &str| FieldError::invalid(&finalizers.path, name, why);
    let mut errors: Vec<_> = names::qualified_name(name).iter().map(|why| of(why)).collect();
    let needs_domain = rule == Finalizers::WithDomain && !STANDARD.contains(&name);
    if errors.is_empty() && !name.contains('/') && needs_domain {
        errors.push(of("name is neither a standard finalizer name nor is it fully qualified"));
    }
    errors
}

/// Annotations, wherever they stand.
pub(super) fn annotations(at: &At<'_>, errors: &mut FieldErrors) {
    for (key, _) in at.entries() {
        // Capital letters are allowed in the prefix, for historic reasons.
        let rules = names::qualified_name(&key.to_lowercase());
        errors.extend(rules.iter().map(|rule| FieldError::invalid(&at.path, key, rule)));
    }
    annotations_size(at, errors);
}

/// Annotations are not too large together.
pub(super) fn annotations_size(at: &At<'_>, errors: &mut FieldErrors) {
    let bytes: usize = at.entries().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, ANNOTATIONS_BYTES_MAX));
    }
}

/// Every broken rule of labels that a conversion made.
pub fn converted_labels(value: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    labels(&At { value, path: Path::new("metadata").child("labels") }, &mut errors);
    errors
}

/// The same of annotations, under the path that upstream has for them here.
pub fn converted_annotations(value: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    annotations(&At { value, path: Path::new("metadata").child("annotation") }, &mut errors);
    errors
}

fn owners(owners: &At<'_>, errors: &mut FieldErrors) {
    let mut controller: Option<&str> = None;
    for owner in owners.items() {
        let api_version = owner.get("apiVersion");
        if machinery::group::split_api_version(api_version.text())
            .is_none_or(|(_, version)| version.is_empty())
        {
            errors.push(api_version.invalid("version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if owner.get(field).text().is_empty() {
                errors.push(owner.get(field).invalid("must not be empty"));
            }
        }
        if api_version.text() == "v1" && owner.get("kind").text() == "Event" {
            errors.push(owner.invalid("/v1, Kind=Event is disallowed from being an owner"));
        }
        if !owner.get("controller").flag() {
            continue;
        }
        let name = owner.get("name").text();
        match controller {
            Some(first) => errors.push(owners.invalid(&format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
            ))),
            None => controller = Some(name),
        }
    }
}
