//! From a CustomResourceDefinition to kinds: for each version a row, a schema, and the rules of its objects.
//!
//! A schema that did not change is the one from before: nothing is built for it again, and whoever follows its objects
//! need not be told.
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go`, `pkg/registry/customresource`.

mod columns;
mod order;
mod rules;
mod scale;

use std::sync::Arc;

use resources::fields::SelectableField;
use resources::resource::{ENDING_VERBS, SCALE, STATUS};
use resources::{Generation, Names, Resource, Rules, Scope, Strategy, Subresource};
use schema::Schema;
use schema::build::{BuildError, Source};
use schema::made::Made;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::conditions::{self, Kind};
use crate::definition::{Definition, Version};
use crate::expressions::KindExpressions;
use rules::CustomRules;

/// One version of a custom kind.
#[derive(Clone, Debug)]
pub struct CustomKind {
    /// The row.
    pub row: Resource,
    /// The schema of its objects.
    pub schema: Schema,
    /// `true` if clients can ask for it.
    pub is_served: bool,
    /// `true` if it is the form in which objects are stored.
    pub is_storage: bool,
    /// The rules in CEL, if the schema has any.
    expressions: Option<Arc<KindExpressions>>,
}

/// The reason why a definition makes no kinds.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// It is no definition.
    #[error("the definition cannot be read")]
    Malformed(#[from] serde_json::Error),
    /// It lacks what every kind has.
    #[error("the definition has no {0}")]
    Missing(&'static str),
    /// It asks for what only `apiextensions.k8s.io/v1beta1` had.
    #[error("objects cannot keep all fields that their schema does not know")]
    PreservesUnknownFields,
    /// A version's schema cannot be used.
    #[error("the schema of version {version} cannot be used")]
    Schema {
        /// The version.
        version: String,
        /// Why.
        #[source]
        source: BuildError,
    },
}

/// `true` if a definition's kinds can be asked for at all.
pub fn is_served(definition: &Value) -> bool {
    conditions::is_true(definition, Kind::NamesAccepted) || conditions::is_true(definition, Kind::Established)
}

/// `true` if a definition leaves the conversion between its versions to a webhook.
pub fn converts_by_webhook(definition: &Value) -> bool {
    definition.pointer("/spec/conversion/strategy").and_then(Value::as_str) == Some("Webhook")
}

/// The kinds of a definition: every version that is served, and the one in which objects are stored; all of them, if a webhook
/// converts, because objects are in the version in which they were stored. What was built `before` from the same is taken over.
///
/// # Errors
/// As [`KindError`].
pub fn kinds(definition: &Value, before: &[CustomKind]) -> Result<Vec<CustomKind>, KindError> {
    let read = Definition::deserialize(definition)?;
    let names = &read.status.accepted_names;
    let named = [
        (&read.spec.group, "group"),
        (&names.plural, "plural"),
        (&names.singular, "singular"),
        (&names.kind, "kind"),
        (&names.list_kind, "listKind"),
    ];
    if let Some((_, what)) = named.into_iter().find(|(text, _)| text.is_empty()) {
        return Err(KindError::Missing(what));
    }
    if read.spec.preserve_unknown_fields {
        return Err(KindError::PreservesUnknownFields);
    }
    let Some(storage) = read.spec.versions.iter().find(|version| version.storage) else {
        return Err(KindError::Missing("version that is stored"));
    };
    let is_terminating = conditions::is_true(definition, Kind::Terminating);
    let webhook = read.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook");
    let mut kinds = Vec::new();
    for version in read.spec.versions.iter().filter(|version| version.served || version.storage || webhook) {
        // While the definition goes, its objects are found by the version in which they are stored.
        let is_served = version.served || is_terminating && version.storage;
        let objects = objects(&read, version, before)?;
        let row = row(&read, version, storage, &objects, is_terminating);
        let Objects { schema, expressions } = objects;
        kinds.push(CustomKind { row, schema, is_served, is_storage: version.storage, expressions });
    }
    kinds.sort_by(|left, right| order::compare(&right.row.version, &left.row.version));
    Ok(kinds)
}

/// What objects of a version are.
#[derive(Clone, Debug)]
struct Objects {
    schema: Schema,
    expressions: Option<Arc<KindExpressions>>,
}

/// The objects of a version: as before, if all that their schema is made from is as it was.
fn objects(read: &Definition, version: &Version, before: &[CustomKind]) -> Result<Objects, KindError> {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api.as_ref()).unwrap_or(&anything);
    let names = &read.status.accepted_names;
    let source = Source {
        group: &read.spec.group,
        version: &version.name,
        kind: &names.kind,
        list_kind: &names.list_kind,
        plural: &names.plural,
        path: "schema.openAPIV3Schema",
        schema,
    };
    if let Some(known) = before.iter().find(|kind| kind.row.version == version.name)
        && known.schema.made().is_some_and(|made| made.fingerprint() == source.fingerprint())
    {
        return Ok(Objects { schema: known.schema.clone(), expressions: known.expressions.clone() });
    }
    let schema = Schema::of_definition(&source)
        .map_err(|source| KindError::Schema { version: version.name.clone(), source })?;
    let has_expressions = schema.made().is_some_and(Made::has_validations);
    let expressions = has_expressions.then(|| Arc::new(KindExpressions::of(schema.clone())));
    Ok(Objects { schema, expressions })
}

fn row(
    read: &Definition,
    version: &Version,
    storage: &Version,
    objects: &Objects,
    is_terminating: bool,
) -> Resource {
    let (spec, names) = (&read.spec, &read.status.accepted_names);
    let scope = if spec.scope == "Cluster" { Scope::Cluster } else { Scope::Namespaced };
    let api = (spec.group.as_str(), version.name.as_str());
    let mut row = Resource::made(api, &names.plural, &names.singular, &names.kind, scope);
    row.list_kind = names.list_kind.as_str().into();
    row.message = objects.schema.made().map(Made::message_name).unwrap_or_default().into();
    row.short_names = names.short_names.iter().collect::<Names>();
    row.categories = names.categories.iter().collect::<Names>();
    row.storage_api_version = format!("{}/{}", spec.group, storage.name).into();
    row.is_terminating = is_terminating;
    if is_terminating {
        row.verbs = ENDING_VERBS;
    }
    row.columns = columns::columns(&version.additional_printer_columns).into();
    let fields = version.selectable_fields.iter().map(|field| selectable(&field.json_path));
    row.selectable_fields = fields.collect::<Vec<_>>().into();
    if version.deprecated {
        let usual = || format!("{}/{} {} is deprecated", spec.group, version.name, names.kind);
        row.deprecation = version.deprecation_warning.clone().unwrap_or_else(usual).into();
    }
    let subresources = version.subresources.as_ref();
    let has_status = subresources.is_some_and(|subresources| subresources.status.is_some());
    let scale = subresources.and_then(|subresources| subresources.scale.as_ref());
    row.subresources = subresources_of(has_status, scale.is_some());
    if let Some(scale) = scale {
        row.scale = scale::paths(scale);
    }
    let Objects { schema, expressions } = objects.clone();
    let rules: Arc<dyn Rules> = Arc::new(CustomRules::new(schema, expressions, scale.cloned()));
    row.strategy = strategy(has_status, rules).into();
    row
}

fn subresources_of(has_status: bool, has_scale: bool) -> &'static [Subresource] {
    match (has_status, has_scale) {
        (true, true) => &[STATUS, SCALE],
        (true, false) => &[STATUS],
        (false, true) => &[SCALE],
        (false, false) => &[],
    }
}

fn selectable(path: &str) -> SelectableField {
    SelectableField {
        label: path.strip_prefix('.').unwrap_or(path).into(),
        pointer: scale::pointer(path).into(),
        fallback: "".into(),
        absent: "".into(),
    }
}

fn strategy(has_status: bool, rules: Arc<dyn Rules>) -> Strategy {
    Strategy {
        generation: if has_status { Generation::Content } else { Generation::ContentAndStatus },
        keeps_status: has_status,
        allow_unconditional_update: false,
        prepare_for_create: if has_status { without_status } else { |_| {} },
        warnings: |new| finalizer_warnings(new, &Value::Null),
        warnings_on_update: finalizer_warnings,
        rules: Some(rules),
        ..resources::strategy::GENERIC
    }
}

/// A new object has no status at all, where built-in ones have an empty one.
fn without_status(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
}

/// What is said of new finalizers whose names may be others' too.
fn finalizer_warnings(new: &Value, old: &Value) -> Vec<String> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    const PREFER: &str = "prefer a domain-qualified finalizer name";
    const CONFLICTS: &str = "to avoid accidental conflicts with other finalizer writers";
    let had = machinery::metadata::Metadata::of(old).finalizers();
    let mut added = machinery::metadata::Metadata::of(new).finalizers();
    added.retain(|name| !had.contains(name));
    added.sort_unstable();
    added.dedup();
    let mut warnings = Vec::new();
    for name in added {
        let quoted = machinery::field::quote(name);
        let broken = machinery::names::qualified_name(name);
        warnings.extend(broken.iter().map(|why| format!("metadata.finalizers: {quoted}: {why}")));
        if !name.contains('/') && !STANDARD.contains(&name) {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            warnings.push(format!("metadata.finalizers: {quoted}: {PREFER}{path} {CONFLICTS}"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests;
