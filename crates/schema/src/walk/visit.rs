//! Visits every object in a value with its message and its path.

use crate::Object;
use crate::arena::SchemaRef;
use crate::rows::{Message, Schemas, Type};
use serde_json::Value;

/// Calls `visit` on `value` and on all typed objects in it, outer before inner.
///
/// The path is as users see it, such as `spec.containers[0]`; the outermost one is empty.
pub fn objects(schema: SchemaRef<'_>, value: &Value, visit: &mut dyn FnMut(&Message, &str, &Object)) {
    let mut path = String::new();
    walk(schema.schemas, Type::Message(schema.index), value, &mut path, visit);
}

fn walk(
    schemas: &Schemas,
    ty: Type,
    value: &Value,
    path: &mut String,
    visit: &mut dyn FnMut(&Message, &str, &Object),
) {
    let length = path.len();
    match (ty, value) {
        (Type::Message(index), Value::Object(object)) => {
            let Some(schema) = schemas.at(index) else { return };
            visit(schema.message, path, object);
            for (name, value) in object {
                let Some(field) = schema.field(name) else { continue };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                walk(schemas, field.ty, value, path, visit);
                path.truncate(length);
            }
        }
        (Type::List(index), Value::Array(items)) => {
            for (at, value) in items.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                walk(schemas, schemas.item(index), value, path, visit);
                path.truncate(length);
            }
        }
        (Type::Map(index), Value::Object(entries)) => {
            for (key, value) in entries {
                path.push_str(&format!("[{key}]"));
                walk(schemas, schemas.map(index), value, path, visit);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
