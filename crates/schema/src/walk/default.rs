//! The default walk: calls the rows of each message on every object of that type, outer before inner.
//!
//! A row sees one object and no more. Parts of the schema below which no row applies are not entered.

use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Schemas, Type};
use serde_json::Value;

/// Fills in the defaults of one object.
pub type Row = fn(&mut Object);

/// Rows by message, resolved against one arena.
pub struct Defaults {
    rows: Vec<Vec<Row>>,
    /// Whether a row applies to the message or below it.
    reaches: Vec<bool>,
}

impl Defaults {
    /// Resolves rows; those for messages that the arena does not have are left out.
    pub fn new<'r>(schemas: &Schemas, rows: impl IntoIterator<Item = &'r (&'r str, Row)>) -> Self {
        let count = schemas.messages.len();
        let mut resolved = Self { rows: vec![Vec::new(); count], reaches: vec![false; count] };
        for (name, row) in rows {
            let Some(schema) = schemas.message(name) else { continue };
            let index = usize::from(schema.index);
            if let (Some(rows), Some(reaches)) =
                (resolved.rows.get_mut(index), resolved.reaches.get_mut(index))
            {
                rows.push(*row);
                *reaches = true;
            }
        }
        resolved.spread(schemas);
        resolved
    }

    /// Marks all messages from which a row can be reached.
    fn spread(&mut self, schemas: &Schemas) {
        loop {
            let before = self.reaches.iter().filter(|reaches| **reaches).count();
            for (index, message) in schemas.messages.iter().enumerate() {
                let below = message.fields.iter().any(|field| self.enters(schemas, field.ty));
                if let Some(reaches) = self.reaches.get_mut(index) {
                    *reaches |= below;
                }
            }
            if before == self.reaches.iter().filter(|reaches| **reaches).count() {
                return;
            }
        }
    }

    fn enters(&self, schemas: &Schemas, ty: Type) -> bool {
        match ty {
            Type::Message(index) => self.reaches.get(usize::from(index)).copied().unwrap_or(false),
            Type::List(index) => self.enters(schemas, schemas.item(index)),
            Type::Map(index) => self.enters(schemas, schemas.map(index)),
            _ => false,
        }
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
        if !self.enters(schemas, Type::Message(index)) {
            return;
        }
        for row in self.rows.get(usize::from(index)).into_iter().flatten() {
            row(object);
        }
        for (name, value) in object.iter_mut() {
            if let Some(field) = schema.field(name)
                && self.enters(schemas, field.ty)
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
