//! The default walk: calls the rows of each message on every object of that type, outer before inner.
//!
//! A row sees one object and no more. Parts of the schema below which no row applies are not entered.

use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Schemas, Type};
use crate::walk::reachable::Reachable;
use serde_json::Value;

/// A function that fills in the defaults of one object.
pub type Row = fn(&mut Object);

/// Rows by message, resolved against one arena.
pub struct Defaults {
    rows: Vec<Vec<Row>>,
    reach: Reachable,
}

impl Defaults {
    /// Resolves rows; those for messages that the arena does not have are left out.
    pub fn new<'r>(schemas: &Schemas, rows: impl IntoIterator<Item = &'r (&'r str, Row)>) -> Self {
        let mut resolved: Vec<Vec<Row>> = vec![Vec::new(); schemas.messages.len()];
        for (name, row) in rows {
            let Some(schema) = schemas.message(name) else { continue };
            if let Some(rows) = resolved.get_mut(usize::from(schema.index)) {
                rows.push(*row);
            }
        }
        let reach =
            Reachable::of(schemas, |index, _| resolved.get(index).is_some_and(|rows| !rows.is_empty()));
        Self { rows: resolved, reach }
    }

    /// Fills in the defaults of `value` and of all objects in it.
    pub fn apply(&self, schema: SchemaRef<'_>, value: &mut Value) {
        self.value(schema.schemas, Type::Message(schema.index), value);
    }

    fn value(&self, schemas: &Schemas, ty: Type, value: &mut Value) {
        match (ty, value) {
            (Type::Message(index), Value::Object(object)) => self.object(schemas, index, object),
            (Type::List(index), Value::Array(items)) => {
                let item = schemas.item(index);
                items.iter_mut().for_each(|value| self.value(schemas, item, value));
            }
            (Type::Map(index), Value::Object(entries)) => {
                let ty = schemas.map(index);
                entries.values_mut().for_each(|value| self.value(schemas, ty, value));
            }
            _ => {}
        }
    }

    fn object(&self, schemas: &Schemas, index: u16, object: &mut Object) {
        let Some(schema) = schemas.at(index) else { return };
        if !self.reach.enters(schemas, Type::Message(index)) {
            return;
        }
        for row in self.rows.get(usize::from(index)).into_iter().flatten() {
            row(object);
        }
        for (name, value) in object.iter_mut() {
            if let Some(field) = schema.field(name)
                && self.reach.enters(schemas, field.ty)
            {
                self.value(schemas, field.ty, value);
            }
        }
    }
}

/// Fills in defaults once; for repeated use keep a [`Defaults`].
pub fn apply(schema: SchemaRef<'_>, value: &mut Value, rows: &[(&str, Row)]) {
    Defaults::new(schema.schemas, rows).apply(schema, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: (&str, &str, &str), input: Value, rows: &[(&str, Row)], expect: Value) {
        let schema = crate::builtin().kind(kind.0, kind.1, kind.2).expect("a kind");
        let mut value = input;
        apply(schema, &mut value, rows);
        assert_eq!(value, expect);
    }

    #[test]
    fn every_object_of_a_message_is_visited_outer_before_inner() {
        fn container(object: &mut Object) {
            object.insert("imagePullPolicy".into(), "Always".into());
        }
        fn pod(object: &mut Object) {
            object.entry("containers").or_insert_with(|| json!([{"name": "late"}]));
        }
        check(
            ("apps", "v1", "Deployment"),
            json!({"spec": {"template": {"spec": {"initContainers": [{"name": "a"}]}}}}),
            &[("io.k8s.api.core.v1.Container", container), ("io.k8s.api.core.v1.PodSpec", pod)],
            json!({"spec": {"template": {"spec": {
                "containers": [{"name": "late", "imagePullPolicy": "Always"}],
                "initContainers": [{"name": "a", "imagePullPolicy": "Always"}],
            }}}}),
        );
    }
}
