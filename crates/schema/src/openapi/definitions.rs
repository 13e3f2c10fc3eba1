//! Definitions of messages, and of everything that they refer to.

use super::META;
use super::arenas::Arenas;
use super::descriptions::Index;
use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Field, List, ListKind, Schemas, Type};
use crate::rules::Location;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Which version of OpenAPI.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    V2,
    V3,
}

impl Flavour {
    /// A reference to a definition.
    pub(super) fn reference(self, name: &str) -> Value {
        let prefix = match self {
            Flavour::V2 => "#/definitions/",
            Flavour::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{prefix}{name}")})
    }
}

/// Collects definitions by name.
pub(super) struct Definitions<'a> {
    pub(super) flavour: Flavour,
    pub(super) descriptions: &'a Index<'a>,
    arenas: Arenas<'a>,
    kinds: BTreeMap<&'a str, Vec<Value>>,
    queue: Vec<SchemaRef<'a>>,
    done: Object,
}

const APIEXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// A message of which one field says which other one is set: the end of its name, that field, and for each other
/// field the value that stands for it.
type Union = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Source: `x-kubernetes-unions` in upstream's OpenAPI.
const UNIONS: &[Union] = &[
    (".core.v1.AppArmorProfile", "type", &[("localhostProfile", "LocalhostProfile")]),
    (".core.v1.SeccompProfile", "type", &[("localhostProfile", "LocalhostProfile")]),
    (".flowcontrol.v1.LimitResponse", "type", &[("queuing", "Queuing")]),
    (
        ".flowcontrol.v1.PriorityLevelConfigurationSpec",
        "type",
        &[("exempt", "Exempt"), ("limited", "Limited")],
    ),
    (
        ".flowcontrol.v1.Subject",
        "kind",
        &[("group", "Group"), ("serviceAccount", "ServiceAccount"), ("user", "User")],
    ),
];

impl<'a> Definitions<'a> {
    pub(super) fn new(flavour: Flavour, arenas: Arenas<'a>, descriptions: &'a Index<'a>) -> Self {
        let mut kinds = BTreeMap::<&str, Vec<Value>>::new();
        for (kind, schema) in arenas.kinds() {
            let gvk = json!({"group": kind.group, "kind": kind.kind, "version": kind.version});
            kinds.entry(schema.message_name()).or_default().push(gvk);
        }
        Self { flavour, descriptions, arenas, kinds, queue: Vec::new(), done: Object::new() }
    }

    /// Adds a message, if the arena has it, and all that it refers to.
    pub(super) fn add(&mut self, name: &str) {
        if let Some(schema) = self.arenas.message(name) {
            self.message(schema);
        }
        while let Some(schema) = self.queue.pop() {
            let definition = self.definition(schema);
            self.done.insert(schema.message_name().to_owned(), definition);
        }
    }

    pub(super) fn finish(self) -> Object {
        self.done
    }

    pub(super) fn message(&mut self, schema: SchemaRef<'a>) -> Value {
        let name = schema.message_name();
        if !self.done.contains_key(name) {
            // Marked before it is made, since messages may hold themselves.
            self.done.insert(name.to_owned(), Value::Null);
            self.queue.push(schema);
        }
        self.flavour.reference(name)
    }

    fn plain(&mut self, name: &str, mut definition: Value) -> Value {
        if let Some(text) = self.descriptions.get(name, "") {
            definition["description"] = text.into();
        }
        self.done.entry(name).or_insert(definition);
        self.flavour.reference(name)
    }

    fn definition(&mut self, schema: SchemaRef<'a>) -> Value {
        let message = schema.message();
        if let Some(rules) = schema.schemas.rules(Location::Root(schema.index)) {
            let mut definition = self.custom(schema, rules);
            self.stands_for(&message.name, &mut definition);
            return Value::Object(definition);
        }
        let mut properties = Object::new();
        for field in schema.fields() {
            let property = self.property(schema, field);
            properties.insert(field.name.clone().into_owned(), property);
        }
        let mut definition = Object::new();
        definition.insert("type".into(), "object".into());
        if let Some(text) = self.descriptions.get(&message.name, "") {
            definition.insert("description".into(), text.into());
        }
        if let Some((_, discriminator, fields)) =
            UNIONS.iter().find(|(name, ..)| message.name.ends_with(name))
        {
            let fields: Object =
                fields.iter().map(|(field, value)| ((*field).into(), (*value).into())).collect();
            let union = json!([{"discriminator": discriminator, "fields-to-discriminateBy": fields}]);
            definition.insert("x-kubernetes-unions".into(), union);
        }
        if !properties.is_empty() {
            definition.insert("properties".into(), Value::Object(properties));
        }
        let required: Vec<Value> = message
            .fields
            .iter()
            .filter(|field| field.is_required())
            .map(|field| (*field.name).into())
            .collect();
        if !required.is_empty() {
            definition.insert("required".into(), required.into());
        }
        self.stands_for(&message.name, &mut definition);
        if message.is_atomic() {
            definition.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        Value::Object(definition)
    }

    /// Says of which kinds the message is.
    fn stands_for(&self, message: &str, definition: &mut Object) {
        if let Some(kinds) = self.kinds.get(message) {
            definition.insert("x-kubernetes-group-version-kind".into(), kinds.clone().into());
        }
    }

    fn property(&mut self, schema: SchemaRef<'a>, field: &Field) -> Value {
        let (schemas, message) = (schema.schemas, schema.message_name());
        let apiextensions = message.starts_with(APIEXTENSIONS);
        let mut extra = Object::new();
        if let Some(text) = self.descriptions.get(message, &field.name) {
            extra.insert("description".into(), text.into());
        }
        if let Type::List(index) = field.ty
            && let Some(list) = schemas.list(index)
        {
            list_facts(list, &mut extra);
        }
        let strategies: Vec<&str> =
            [(field.merges(), "merge"), (field.retains_keys(), "retainKeys"), (field.replaces(), "replace")]
                .into_iter()
                .filter_map(|(is_set, name)| is_set.then_some(name))
                .collect();
        if !strategies.is_empty() {
            extra.insert("x-kubernetes-patch-strategy".into(), strategies.join(",").into());
        }
        if !field.merge_key.is_empty() {
            extra.insert("x-kubernetes-patch-merge-key".into(), (*field.merge_key).into());
        }
        if field.is_atomic() {
            extra.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
        if let Ok(default) = serde_json::from_str::<Value>(&field.default) {
            extra.insert("default".into(), default);
        }
        let ty = self.ty(schemas, apiextensions, field.ty);
        match ty {
            // In version 3 a reference cannot have siblings.
            Value::Object(ref object) if object.contains_key("$ref") && !extra.is_empty() => {
                if self.flavour == Flavour::V3 {
                    extra.insert("allOf".into(), json!([ty]));
                    return Value::Object(extra);
                }
                extra.extend(object.clone());
                Value::Object(extra)
            }
            Value::Object(mut object) => {
                object.append(&mut extra);
                Value::Object(object)
            }
            other => other,
        }
    }

    fn ty(&mut self, schemas: &'a Schemas, apiextensions: bool, ty: Type) -> Value {
        let v3 = self.flavour == Flavour::V3;
        match ty {
            Type::Bool => json!({"type": "boolean"}),
            Type::Int32 => json!({"type": "integer", "format": "int32"}),
            Type::Int64 => json!({"type": "integer", "format": "int64"}),
            Type::Double => json!({"type": "number", "format": "double"}),
            Type::String => json!({"type": "string"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Quantity => {
                let v3_type = json!({"oneOf": [{"type": "string"}, {"type": "number"}]});
                let definition = if v3 { v3_type } else { json!({"type": "string"}) };
                self.plain("io.k8s.apimachinery.pkg.api.resource.Quantity", definition)
            }
            Type::IntOrString => {
                let v3_type =
                    json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]});
                let definition =
                    if v3 { v3_type } else { json!({"type": "string", "format": "int-or-string"}) };
                self.plain("io.k8s.apimachinery.pkg.util.intstr.IntOrString", definition)
            }
            Type::Time => {
                self.plain(&format!("{META}.Time"), json!({"type": "string", "format": "date-time"}))
            }
            Type::MicroTime => {
                self.plain(&format!("{META}.MicroTime"), json!({"type": "string", "format": "date-time"}))
            }
            Type::Duration => self.plain(&format!("{META}.Duration"), json!({"type": "string"})),
            Type::FieldsV1 => self.plain(&format!("{META}.FieldsV1"), json!({"type": "object"})),
            Type::Json if apiextensions => self.plain(&format!("{APIEXTENSIONS}.JSON"), json!({})),
            Type::Json => {
                self.plain("io.k8s.apimachinery.pkg.runtime.RawExtension", json!({"type": "object"}))
            }
            Type::PropsOrArray => self.plain(&format!("{APIEXTENSIONS}.JSONSchemaPropsOrArray"), json!({})),
            Type::PropsOrBool => self.plain(&format!("{APIEXTENSIONS}.JSONSchemaPropsOrBool"), json!({})),
            Type::PropsOrStrings => {
                self.plain(&format!("{APIEXTENSIONS}.JSONSchemaPropsOrStringArray"), json!({}))
            }
            Type::Message(index) => match schemas.at(index) {
                Some(schema) => self.message(schema),
                None => json!({}),
            },
            Type::List(index) | Type::Wrapped(index) => {
                let items = self.ty(schemas, apiextensions, schemas.item(index));
                json!({"type": "array", "items": items})
            }
            Type::Map(index) => {
                let values = self.ty(schemas, apiextensions, schemas.map(index));
                json!({"type": "object", "additionalProperties": values})
            }
        }
    }
}

fn list_facts(list: &List, extra: &mut Object) {
    let kind = match list.kind {
        ListKind::Unset => return,
        ListKind::Atomic => "atomic",
        ListKind::Set => "set",
        ListKind::Map => "map",
    };
    extra.insert("x-kubernetes-list-type".into(), kind.into());
    if !list.keys.is_empty() {
        extra.insert("x-kubernetes-list-map-keys".into(), list.keys.iter().collect::<Value>());
    }
}
