//! The types of a kind's objects, as expressions are checked with them: from the schema, built-in or custom.
//!
//! Source: `SchemaDeclType` of `k8s.io/apiserver/pkg/cel/common`, over the OpenAPI schemas that clients see.

use std::collections::HashMap;

use expressions::{Declared, Field, ListKind};
use schema::rules::Location;
use schema::{SchemaRef, Schemas, Type};

/// The type of a kind's objects; objects in it are named after it.
pub(super) fn declared(schema: SchemaRef<'_>, name: &str) -> Declared {
    let mut types = Types { schemas: schema.schemas(), known: HashMap::new(), within: Vec::new() };
    types.of(schema.as_type().ty, None).named(name)
}

struct Types<'s> {
    schemas: &'s Schemas,
    /// Objects by their index.
    known: HashMap<u16, Declared>,
    /// What objects the current one is in: some are made of themselves.
    within: Vec<u16>,
}

impl Types<'_> {
    fn of(&mut self, ty: Type, location: Option<Location>) -> Declared {
        match ty {
            Type::Bool => Declared::boolean(),
            Type::Int32 | Type::Int64 => Declared::integer(),
            Type::Double => Declared::double(),
            Type::String => self.text(location),
            Type::Quantity | Type::Duration => Declared::string(None),
            Type::Bytes => Declared::bytes(None),
            Type::Time | Type::MicroTime => Declared::timestamp(),
            Type::FieldsV1 => Declared::object([]),
            Type::List(index) | Type::Wrapped(index) => {
                let item = self.schemas.list(index).map_or(Type::Json, |list| list.item);
                Declared::list(self.of(item, Some(Location::Item(index))), ListKind::Atomic, None)
            }
            Type::Map(index) => {
                let value = self.schemas.map(index);
                Declared::map(self.of(value, Some(Location::Value(index))), None)
            }
            Type::Message(index) => self.object(index),
            // What can be anything, and what can be one of two.
            _ => Declared::dynamic(),
        }
    }

    /// Texts of custom kinds can stand for something else.
    fn text(&self, location: Option<Location>) -> Declared {
        let format = location.and_then(|location| self.schemas.rules(location)?.checks.format.as_ref());
        match format.map(|format| format.name.as_str()) {
            Some("byte") => Declared::bytes(None),
            Some("duration") => Declared::duration(),
            Some("date") => Declared::date(),
            Some("date-time") => Declared::timestamp(),
            _ => Declared::string(None),
        }
    }

    fn object(&mut self, index: u16) -> Declared {
        if let Some(known) = self.known.get(&index) {
            return known.clone();
        }
        let Some(message) = self.schemas.at(index).filter(|_| !self.within.contains(&index)) else {
            return Declared::dynamic();
        };
        self.within.push(index);
        let fields = message.fields().iter().enumerate().map(|(at, field)| {
            let location = u16::try_from(at).ok().map(|at| Location::Field(index, at));
            let declared = self.of(field.ty, location);
            Field { name: field.name.to_string(), declared, is_required: field.is_required() }
        });
        let fields: Vec<Field> = fields.collect();
        self.within.pop();
        let declared = Declared::object(fields);
        self.known.insert(index, declared.clone());
        declared
    }
}

#[cfg(test)]
mod tests {
    use expressions::Environment;

    use super::*;

    #[test]
    fn fields_of_built_in_kinds_have_their_types() {
        let check =
            |(group, version, kind): (&str, &str, &str), expression: &str, expect: Result<&str, &str>| {
                let schema = schema::builtin().kind(group, version, kind).unwrap();
                let environment = Environment::new().declared("object", declared(schema, kind));
                let found = environment.compile(expression).map(|program| program.kind().to_string());
                let found = found.map_err(|failure| failure.to_string());
                match (&found, expect) {
                    (Ok(found), Ok(expect)) => assert_eq!(found, expect, "{expression}"),
                    (Err(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
                    _ => panic!("{expression}: {found:?}"),
                }
            };
        const DEPLOYMENT: (&str, &str, &str) = ("apps", "v1", "Deployment");
        for (kind, expression, expect) in [
            (DEPLOYMENT, "object.spec.replicas", Ok("int")),
            (DEPLOYMENT, "object.metadata.labels", Ok("map(string, string)")),
            (DEPLOYMENT, "object.metadata.creationTimestamp", Ok("timestamp")),
            (DEPLOYMENT, "object.spec.template.spec.containers[0].resources.limits['cpu']", Ok("string")),
            (DEPLOYMENT, "object.spec.template.spec.containers[0].ports[0].containerPort + 1", Ok("int")),
            (DEPLOYMENT, "object.spec.strategy.rollingUpdate.maxSurge", Ok("dyn")),
            (DEPLOYMENT, "object.apiVersion + object.kind", Ok("string")),
            (DEPLOYMENT, "object.spec.replica", Err("undefined field 'replica'")),
            (
                DEPLOYMENT,
                "object.spec.replicas > '1'",
                Err("found no matching overload for '_>_' applied to '(int, string)'"),
            ),
            (DEPLOYMENT, "object.spec == 1", Err("applied to '(Deployment.spec, int)'")),
            (DEPLOYMENT, "object.spec == null", Ok("bool")),
            (("", "v1", "Secret"), "object.data['a']", Ok("bytes")),
            (("", "v1", "ConfigMap"), "object.data.a == 1", Err("applied to '(string, int)'")),
            (
                ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
                "object.spec.versions[0].schema.openAPIV3Schema.properties['a'].type",
                Ok("dyn"),
            ),
        ] {
            check(kind, expression, expect);
        }
    }
}
