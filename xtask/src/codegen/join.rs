//! Joins protobuf messages with OpenAPI definitions into one table.
//!
//! A protobuf field is the OpenAPI property of the same name, case and punctuation aside. A message field
//! without a property is one that Go embeds (`json:",inline"`): its fields appear in JSON beside its siblings,
//! and the row remembers the field numbers that lead to them. A property without a protobuf field (`kind` and
//! `apiVersion`) has the number 0.

use super::openapi::{Definition, Definitions};
use super::pb;
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What is written.
#[derive(Default)]
pub(super) struct Table {
    /// The messages in order of name.
    pub(super) messages: Vec<MessageRow>,
    /// The distinct list types.
    pub(super) lists: Vec<ListRow>,
    /// The distinct types of map values.
    pub(super) maps: Vec<Type>,
    /// The kinds in order.
    pub(super) kinds: Vec<KindRow>,
}

/// One message.
pub(super) struct MessageRow {
    pub(super) name: String,
    pub(super) atomic: bool,
    pub(super) fields: Vec<FieldRow>,
}

/// One field.
pub(super) struct FieldRow {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) number: u32,
    pub(super) via: Vec<u32>,
    pub(super) flags: Vec<&'static str>,
    pub(super) merge_key: String,
    pub(super) default: String,
}

/// A type; messages by name, lists and maps by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Plain(&'static str),
    Message(String),
    List(usize),
    Wrapped(usize),
    Map(usize),
}

/// A list's facts.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ListRow {
    pub(super) item: Type,
    pub(super) kind: String,
    pub(super) keys: Vec<String>,
}

/// Group, version, kind and message.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KindRow {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) message: String,
}

/// Kinds that no OpenAPI document of upstream has: options, discovery and webhook reviews.
const EXTRA_KINDS: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "List", "io.k8s.apimachinery.pkg.apis.meta.v1.List"),
    (
        "meta.k8s.io",
        "v1",
        "PartialObjectMetadata",
        "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata",
    ),
    (
        "meta.k8s.io",
        "v1",
        "PartialObjectMetadataList",
        "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadataList",
    ),
    ("meta.k8s.io", "v1", "DeleteOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"),
    ("meta.k8s.io", "v1", "CreateOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.CreateOptions"),
    ("meta.k8s.io", "v1", "UpdateOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.UpdateOptions"),
    ("meta.k8s.io", "v1", "PatchOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.PatchOptions"),
    ("meta.k8s.io", "v1", "GetOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.GetOptions"),
    ("meta.k8s.io", "v1", "ListOptions", "io.k8s.apimachinery.pkg.apis.meta.v1.ListOptions"),
    ("meta.k8s.io", "v1", "WatchEvent", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"),
    ("admission.k8s.io", "v1", "AdmissionReview", "io.k8s.api.admission.v1.AdmissionReview"),
    (
        "apidiscovery.k8s.io",
        "v2",
        "APIGroupDiscoveryList",
        "io.k8s.api.apidiscovery.v2.APIGroupDiscoveryList",
    ),
    (
        "apidiscovery.k8s.io",
        "v2beta1",
        "APIGroupDiscoveryList",
        "io.k8s.api.apidiscovery.v2beta1.APIGroupDiscoveryList",
    ),
];

/// Lists that Go leaves out of JSON when they are empty, but whose defaults tell an empty one from none: it is kept until
/// validation, which refuses it.
const KEPT_EMPTY: &[(&str, &str)] = &[("io.k8s.api.autoscaling.v2.hpascalingrules", "policies")];

/// Types with an encoding of their own.
const PLAIN: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.quantity", "Quantity"),
    ("io.k8s.apimachinery.pkg.util.intstr.intorstring", "IntOrString"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.time", "Time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.microtime", "MicroTime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.duration", "Duration"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.fieldsv1", "FieldsV1"),
    ("io.k8s.apimachinery.pkg.runtime.rawextension", "Json"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.json", "Json"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.jsonschemapropsorarray", "PropsOrArray"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.jsonschemapropsorbool", "PropsOrBool"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.jsonschemapropsorstringarray",
        "PropsOrStrings",
    ),
];

struct Joiner<'a> {
    messages: BTreeMap<String, &'a pb::Message>,
    definitions: &'a Definitions,
    zero: BTreeMap<String, BTreeSet<&'a str>>,
    table: Table,
    queue: Vec<String>,
    seen: BTreeSet<String>,
}

/// Joins everything that is reachable from the definitions and the extra kinds.
pub(super) fn join(messages: &[pb::Message], definitions: &Definitions, zero: &str) -> Result<Table> {
    let mut joiner = Joiner {
        messages: messages.iter().map(|message| (message.name.to_lowercase(), message)).collect(),
        definitions,
        zero: read_zero(zero),
        table: Table::default(),
        queue: Vec::new(),
        seen: BTreeSet::new(),
    };
    for (name, definition) in definitions {
        if PLAIN.iter().all(|(plain, _)| plain != name) {
            joiner.reference(&definition.name);
        }
        joiner.kinds(definition);
    }
    for (group, version, kind, message) in EXTRA_KINDS {
        joiner.reference(message);
        joiner.kind(group, version, kind, message);
    }
    while let Some(name) = joiner.queue.pop() {
        let row = joiner.message(&name).with_context(|| format!("join {name}"))?;
        joiner.table.messages.push(row);
    }
    let mut table = joiner.table;
    table.messages.sort_by(|a, b| a.name.cmp(&b.name));
    table.kinds.sort();
    table.kinds.dedup();
    Ok(table)
}

fn read_zero(text: &str) -> BTreeMap<String, BTreeSet<&str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            (words.next().unwrap_or_default().to_lowercase(), words.collect())
        })
        .collect()
}

impl Joiner<'_> {
    fn kinds(&mut self, definition: &Definition) {
        let kinds = definition.schema["x-kubernetes-group-version-kind"].as_array();
        // The options and events that every group lists are looked up without their group.
        for kind in kinds.into_iter().flatten().filter(|_| kinds.is_some_and(|all| all.len() == 1)) {
            let text = |name: &str| kind[name].as_str().unwrap_or_default();
            self.kind(text("group"), text("version"), text("kind"), &definition.name);
        }
    }

    fn kind(&mut self, group: &str, version: &str, kind: &str, message: &str) {
        self.table.kinds.push(KindRow {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            message: message.into(),
        });
    }

    /// The type behind a message's name; queues messages that are new.
    fn reference(&mut self, name: &str) -> Type {
        let lower = name.to_lowercase();
        if let Some((_, plain)) = PLAIN.iter().find(|(plain, _)| *plain == lower) {
            return Type::Plain(plain);
        }
        let definition = self.definitions.get(&lower);
        let message = self.messages.get(&lower).copied();
        if let (None, Some(message)) = (definition, message)
            && let [only] = message.fields.as_slice()
            && only.name == "items"
            && only.element == "string"
        {
            let list = self.list(Type::Plain("String"), String::new(), Vec::new());
            return Type::Wrapped(list);
        }
        let name = definition.map_or_else(|| message.map_or(name, |m| m.name.as_str()), |d| d.name.as_str());
        if self.seen.insert(lower) {
            self.queue.push(name.to_owned());
        }
        Type::Message(name.to_owned())
    }

    fn list(&mut self, item: Type, kind: String, keys: Vec<String>) -> usize {
        let row = ListRow { item, kind, keys };
        position(&mut self.table.lists, row)
    }

    fn message(&mut self, name: &str) -> Result<MessageRow> {
        let lower = name.to_lowercase();
        let definition = self.definitions.get(&lower);
        let message = self.messages.get(&lower).copied();
        let mut fields = Vec::new();
        if let Some(message) = message {
            self.protobuf(message, definition, &[], &mut fields)?;
        }
        for (property, schema) in definition.into_iter().flat_map(Definition::properties) {
            if fields.iter().all(|field: &FieldRow| field.name != *property) {
                let ty = self.openapi(schema)?;
                fields.push(self.row(name, property, ty, definition, schema));
            }
        }
        if definition.is_none() && EXTRA_KINDS.iter().any(|extra| extra.3 == name) {
            for property in ["apiVersion", "kind"] {
                fields.push(self.row(name, property, Type::Plain("String"), None, &Value::Null));
            }
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let atomic = definition.is_some_and(|d| d.schema["x-kubernetes-map-type"] == "atomic")
            || message.is_some_and(|message| message.atomic);
        Ok(MessageRow { name: name.to_owned(), atomic, fields })
    }

    fn protobuf(
        &mut self,
        message: &pb::Message,
        definition: Option<&Definition>,
        via: &[u32],
        fields: &mut Vec<FieldRow>,
    ) -> Result<()> {
        for field in &message.fields {
            let wanted = squash(&field.name);
            let property = definition.and_then(|d| d.properties().find(|(name, _)| squash(name) == wanted));
            let (name, schema) = match (property, definition) {
                (Some((name, schema)), _) => (name.clone(), schema),
                (None, None) => (camel(&field.name), &Value::Null),
                (None, Some(_)) => {
                    if let Some(inner) = self.messages.get(&field.element.to_lowercase()).copied() {
                        let via: Vec<u32> = via.iter().copied().chain([field.number]).collect();
                        self.protobuf(inner, definition, &via, fields)?;
                    } else {
                        eprintln!("{}: {} is in no document", message.name, field.name);
                    }
                    continue;
                }
            };
            let ty = self.field_type(field, schema);
            let mut row = self.row(&message.name, &name, ty, definition, schema);
            row.number = field.number;
            row.via = via.to_vec();
            if let Some(default) = field.markers.get("default").and_then(|all| all.first())
                && serde_json::from_str::<Value>(default).is_ok()
            {
                row.default.clone_from(default);
            }
            fields.push(row);
        }
        Ok(())
    }

    fn field_type(&mut self, field: &pb::Field, schema: &Value) -> Type {
        let element = match field.element.as_str() {
            "bool" => Type::Plain("Bool"),
            "int32" => Type::Plain("Int32"),
            "int64" => Type::Plain("Int64"),
            "double" => Type::Plain("Double"),
            "string" => Type::Plain("String"),
            "bytes" => Type::Plain("Bytes"),
            message => self.reference(message),
        };
        let text = |extension: &str, marker: &str| {
            let marker = field.markers.get(marker).and_then(|all| all.first()).cloned();
            schema[extension].as_str().map(str::to_owned).or(marker).unwrap_or_default()
        };
        match field.shape {
            pb::Shape::Single => element,
            pb::Shape::Map => Type::Map(position(&mut self.table.maps, element)),
            pb::Shape::List => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array().map_or_else(
                    || field.markers.get("listMapKey").cloned().unwrap_or_default(),
                    |keys| keys.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                );
                let kind = text("x-kubernetes-list-type", "listType");
                Type::List(self.list(element, kind, keys))
            }
        }
    }

    /// The type of a property that protobuf does not have.
    fn openapi(&mut self, schema: &Value) -> Result<Type> {
        if let Some(reference) = schema["$ref"].as_str() {
            return Ok(self.reference(reference.rsplit('/').next().unwrap_or_default()));
        }
        let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
        Ok(match (kind, schema["format"].as_str()) {
            (Some("string"), Some("byte")) => Type::Plain("Bytes"),
            (Some("string"), _) => Type::Plain("String"),
            (Some("boolean"), _) => Type::Plain("Bool"),
            (Some("integer"), Some("int32")) => Type::Plain("Int32"),
            (Some("integer"), _) => Type::Plain("Int64"),
            (Some("number"), _) => Type::Plain("Double"),
            (Some("array"), _) => {
                let item = self.openapi(&schema["items"])?;
                let kind = schema["x-kubernetes-list-type"].as_str().unwrap_or_default().to_owned();
                Type::List(self.list(item, kind, Vec::new()))
            }
            (Some("object"), _) => {
                let value = self.openapi(&schema["additionalProperties"])?;
                Type::Map(position(&mut self.table.maps, value))
            }
            other => bail!("unknown type {other:?}"),
        })
    }

    fn row(
        &self,
        message: &str,
        name: &str,
        ty: Type,
        definition: Option<&Definition>,
        schema: &Value,
    ) -> FieldRow {
        let mut flags = Vec::new();
        let required = definition.is_some_and(|d| d.is_required(name));
        if required {
            flags.push("REQUIRED");
        }
        let known = self.zero.get(&message.to_lowercase());
        let omitted = match known {
            Some(all) => all.contains(name),
            None => !required && matches!(ty, Type::List(_) | Type::Map(_)),
        };
        let is_kept = KEPT_EMPTY.contains(&(message.to_lowercase().as_str(), name));
        if omitted && !is_kept || matches!(name, "apiVersion" | "kind") {
            flags.push("OMIT_ZERO");
        }
        if known.is_some_and(|all| all.contains(format!("{name}{{}}").as_str()))
            && matches!(ty, Type::Message(_))
        {
            flags.push("BY_VALUE");
        }
        if known.is_some_and(|all| all.contains(format!("{name}?").as_str())) {
            flags.push("NULL");
        }
        let strategy = schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
        for (word, flag) in [("merge", "MERGE"), ("retainKeys", "RETAIN_KEYS"), ("replace", "REPLACE")] {
            if strategy.split(',').any(|part| part == word) {
                flags.push(flag);
            }
        }
        if schema["x-kubernetes-map-type"] == "atomic" {
            flags.push("ATOMIC");
        }
        let merge_key = schema["x-kubernetes-patch-merge-key"].as_str().unwrap_or_default().to_owned();
        let (number, via, default) = (0, Vec::new(), String::new());
        FieldRow { name: name.to_owned(), ty, number, via, flags, merge_key, default }
    }
}

/// The index of `row`, which is added if it is new.
fn position<T: PartialEq>(rows: &mut Vec<T>, row: T) -> usize {
    rows.iter().position(|other| *other == row).unwrap_or_else(|| {
        rows.push(row);
        rows.len() - 1
    })
}

/// A name without case and punctuation.
fn squash(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// `current_hashes` as `currentHashes`.
fn camel(name: &str) -> String {
    let mut upper = false;
    let mut out = String::new();
    for c in name.chars() {
        if c == '_' {
            upper = true;
        } else {
            out.push(if std::mem::take(&mut upper) { c.to_ascii_uppercase() } else { c });
        }
    }
    out
}
