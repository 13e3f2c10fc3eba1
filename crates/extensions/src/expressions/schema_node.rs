//! A schema as rules see it, a tree of nodes: what stands where, of which type and how large, and which rules are about it.
//!
//! Rules see what has a type. A field without one is not there for them, nor is a list or a map of such; unknown fields
//! that are kept are not either.
//! Source: `SchemaDeclType` of `k8s.io/apiserver/pkg/cel/common`, `WithTypeAndObjectMeta` of the API server for extensions.

use std::collections::BTreeMap;

use expressions::{Declared, Field, ListKind};
use schema::build::definition::field_path::{Fields, Notation};
use schema::rules::Validation;
use serde_json::Value;

use super::rule::{Rule, Work};

/// What a whole resource has, whatever its schema says: each a text, apart from the metadata.
const OWN: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// A node of a schema, with those below it.
#[derive(Debug, Default)]
pub(super) struct SchemaNode {
    /// The type in JSON; empty if none is said.
    pub(super) ty: Box<str>,
    /// The type in CEL; `None` if rules see nothing here.
    pub(super) declared: Option<Declared>,
    /// The rules about the value here.
    pub(super) rules: Vec<Rule>,
    /// The fields.
    pub(super) properties: BTreeMap<String, Self>,
    /// The elements.
    pub(super) items: Option<Box<Self>>,
    /// The values of a map.
    pub(super) values: Option<Box<Self>>,
    /// The fields by which elements are told apart; `None` if they are not.
    pub(super) keys: Option<Vec<String>>,
    /// What stands here if nothing is said.
    pub(super) default: Option<Value>,
    /// How often what is right below can be there for each time that this is; `None` if nobody says.
    pub(super) times_max: Option<u64>,
    /// Whether there is a rule here or below.
    pub(super) has_rules: bool,
    /// Places here and below.
    parts: usize,
}

/// Whether a node is that of a whole resource, which has a kind and metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Root {
    Resource,
    Part,
}

impl SchemaNode {
    /// The places of a schema that is structural, and so not too deep.
    pub(super) fn of(schema: &Value, root: Root) -> Self {
        let part = |schema: &Value| {
            let is_embedded =
                schema.get("x-kubernetes-embedded-resource").and_then(Value::as_bool) == Some(true);
            Self::of(schema, if is_embedded { Root::Resource } else { Root::Part })
        };
        let object = |name: &str| schema.get(name).filter(|value| value.is_object());
        let properties = object("properties").and_then(Value::as_object).into_iter().flatten();
        let mut node = Self {
            ty: text(schema, "type").into(),
            properties: properties.map(|(name, schema)| (name.clone(), part(schema))).collect(),
            items: object("items").map(|schema| Box::new(part(schema))),
            values: object("additionalProperties").map(|schema| Box::new(part(schema))),
            keys: keys(schema),
            default: schema.get("default").filter(|value| !value.is_null()).cloned(),
            times_max: times_max(schema),
            rules: rules(schema),
            ..Self::default()
        };
        node.declared = node.declare(schema, root);
        node.has_rules = !node.rules.is_empty() || node.below().any(|part| part.has_rules);
        node.parts = node.below().fold(1, |sum, part| sum.saturating_add(part.parts));
        node
    }

    /// The places right below.
    fn below(&self) -> impl Iterator<Item = &Self> {
        self.properties.values().chain(self.items.as_deref()).chain(self.values.as_deref())
    }

    /// Compiles all rules, children's first.
    pub(super) fn compile(&mut self, work: &mut Work) {
        if !self.has_rules {
            return;
        }
        let below =
            self.properties.values_mut().chain(self.items.as_deref_mut()).chain(self.values.as_deref_mut());
        below.for_each(|part| part.compile(work));
        if let (Some(declared), false) = (&self.declared, self.rules.is_empty()) {
            work.of_type(self.parts);
            Rule::compile_all(&mut self.rules, declared, work);
        }
    }

    fn declare(&self, schema: &Value, root: Root) -> Option<Declared> {
        if schema.get("x-kubernetes-int-or-string").and_then(Value::as_bool) == Some(true) {
            return Some(Declared::int_or_string(None));
        }
        match &*self.ty {
            "boolean" => Some(Declared::boolean()),
            "integer" => Some(Declared::integer()),
            "number" => Some(Declared::double()),
            "string" => Some(string(schema)),
            "array" => {
                let element = self.items.as_ref()?.declared.clone()?;
                let kind = match (text(schema, "x-kubernetes-list-type"), &self.keys) {
                    ("set", _) => ListKind::Set,
                    (_, Some(keys)) => ListKind::Map(keys.iter().map(|key| key.as_str().into()).collect()),
                    _ => ListKind::Atomic,
                };
                Some(Declared::list(element, kind, number(schema, "maxItems")))
            }
            "object" => match &self.values {
                Some(values) => {
                    Some(Declared::map(values.declared.clone()?, number(schema, "maxProperties")))
                }
                None => Some(self.declare_object(schema, root)),
            },
            _ => None,
        }
    }

    fn declare_object(&self, schema: &Value, root: Root) -> Declared {
        let required: Vec<&str> = texts(schema, "required").collect();
        let mut fields = BTreeMap::new();
        for (name, part) in &self.properties {
            let Some(declared) = part.declared.clone() else { continue };
            let is_required = part.default.is_none() && required.contains(&name.as_str());
            fields.insert(name.as_str(), Field { name: name.clone(), declared, is_required });
        }
        if root == Root::Resource {
            for name in OWN {
                let is_required = required.contains(&name);
                fields.insert(name, Field { name: name.to_owned(), declared: own(name), is_required });
            }
        }
        Declared::object(fields.into_values())
    }
}

/// The type of what every resource has.
fn own(name: &str) -> Declared {
    if name != "metadata" {
        return Declared::string(None);
    }
    let field =
        |name: &str| Field { name: name.to_owned(), declared: Declared::string(None), is_required: false };
    Declared::object(["name", "generateName"].map(field))
}

fn string(schema: &Value) -> Declared {
    let length_max = number(schema, "maxLength");
    match text(schema, "format") {
        "byte" => return Declared::bytes(length_max),
        "duration" => return Declared::duration(),
        "date" => return Declared::date(),
        "date-time" => return Declared::timestamp(),
        _ => {}
    }
    let allowed = schema.get("enum").and_then(Value::as_array).filter(|values| !values.is_empty());
    match allowed {
        Some(values) if length_max.is_none() => {
            let longest = values.iter().filter_map(Value::as_str).map(str::len).max().unwrap_or_default();
            Declared::string_of(u64::try_from(longest).unwrap_or(u64::MAX))
        }
        _ => Declared::string(length_max),
    }
}

fn keys(schema: &Value) -> Option<Vec<String>> {
    let is_map = text(schema, "x-kubernetes-list-type") == "map";
    is_map.then(|| texts(schema, "x-kubernetes-list-map-keys").map(str::to_owned).collect())
}

fn times_max(schema: &Value) -> Option<u64> {
    let is_map = schema.get("additionalProperties").is_some_and(|values| !values.is_null());
    match text(schema, "type") {
        "array" => number(schema, "maxItems"),
        "object" if is_map => number(schema, "maxProperties"),
        _ => Some(1),
    }
}

fn rules(schema: &Value) -> Vec<Rule> {
    let written = schema.get("x-kubernetes-validations").and_then(Value::as_array);
    let Some(written) = written.filter(|written| !written.is_empty()) else { return Vec::new() };
    let validations: Vec<Validation> = written.iter().map(validation).collect();
    let has_paths = validations.iter().any(|rule| !rule.field_path.is_empty());
    let fields = has_paths.then(|| Fields::of(schema)).flatten();
    let field = |path: &str| {
        let found = fields.as_ref()?.find(path, Notation::Brackets).ok()?;
        Some(found.path.strip_prefix('.').unwrap_or(&found.path).to_owned())
    };
    let rule = |validation: Validation| {
        let field = Some(&*validation.field_path).filter(|path| !path.is_empty()).and_then(field);
        Rule::new(validation, field)
    };
    validations.into_iter().map(rule).collect()
}

fn validation(written: &Value) -> Validation {
    let text = |name: &str| text(written, name).to_owned();
    Validation {
        rule: text("rule"),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: written.get("optionalOldSelf").and_then(Value::as_bool),
    }
}

fn text<'v>(schema: &'v Value, name: &str) -> &'v str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn texts<'v>(schema: &'v Value, name: &str) -> impl Iterator<Item = &'v str> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// A bound; what is negative bounds as nothing does.
fn number(schema: &Value, name: &str) -> Option<u64> {
    let number = schema.get(name)?;
    number.as_u64().or_else(|| number.as_f64().map(|_| 0))
}
