//! Null, empty and missing at every path of a schema.

#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]

use std::collections::{BTreeSet, VecDeque};

use schema::{SchemaRef, Shape, Type, TypeRef};
use serde_json::{Value, json};

/// A step into a value.
#[derive(Clone, Debug)]
pub enum Step {
    Field(String),
    /// The first element of a list.
    Item,
    /// An entry of a map.
    Entry,
}

/// Something that is done to an object.
#[derive(Clone, Debug)]
pub struct Nothing {
    /// The type of object and its field that this is about.
    pub about: (&'static str, String),
    pub path: Vec<Step>,
    pub value: Value,
}

impl Nothing {
    pub fn text(&self) -> String {
        let steps = self.path.iter().map(|step| match step {
            Step::Field(name) => name.as_str(),
            Step::Item => "[0]",
            Step::Entry => "[key]",
        });
        format!("{} = {}", steps.collect::<Vec<_>>().join("."), self.value)
    }

    pub fn apply(&self, object: &mut Value) {
        let mut at = object;
        for step in &self.path {
            at = match step {
                Step::Field(name) => {
                    if !at.is_object() {
                        *at = json!({});
                    }
                    at.as_object_mut().unwrap().entry(name.clone()).or_insert(Value::Null)
                }
                Step::Entry => {
                    if !at.is_object() {
                        *at = json!({});
                    }
                    let map = at.as_object_mut().unwrap();
                    let key = map.keys().next().cloned().unwrap_or_else(|| "key".to_owned());
                    map.entry(key).or_insert(Value::Null)
                }
                Step::Item => {
                    if at.as_array().is_none_or(Vec::is_empty) {
                        *at = json!([null]);
                    }
                    &mut at.as_array_mut().unwrap()[0]
                }
            };
        }
        *at = self.value.clone();
    }
}

/// What may stand for nothing in a field of this type.
fn nothings(ty: TypeRef<'_>) -> Vec<Value> {
    let mut all = vec![Value::Null];
    match ty.shape() {
        Shape::Object(_) => all.push(json!({})),
        Shape::List(item, ..) => {
            all.extend([json!([]), json!([null])]);
            all.extend(nothings(item).into_iter().skip(1).map(|inner| json!([inner])));
        }
        Shape::Map(value) => {
            all.extend([json!({}), json!({"key": null})]);
            all.extend(nothings(value).into_iter().skip(1).map(|inner| json!({"key": inner})));
        }
        Shape::Json => all.extend([json!({}), json!({"a": null})]),
        Shape::Scalar => match ty.ty {
            Type::Bool => all.push(json!(false)),
            Type::Int32 | Type::Int64 | Type::Double => all.push(json!(0)),
            Type::IntOrString => all.extend([json!(0), json!("")]),
            Type::String => all.extend([json!(""), json!("Other")]),
            Type::Bytes => all.push(json!("")),
            Type::Quantity => all.extend([json!("0"), json!(0)]),
            Type::Time | Type::MicroTime => {
                all.extend([json!("0001-01-01T00:00:00Z"), json!("9999-12-31T23:59:59Z")]);
            }
            Type::Duration => all.push(json!("0s")),
            _ => all.push(json!({})),
        },
    }
    all
}

/// Every change of one row: each type of object at the first path that leads to it.
pub fn changes(schema: SchemaRef<'static>) -> Vec<Nothing> {
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    let mut queue = VecDeque::from([(schema, Vec::new())]);
    while let Some((schema, path)) = queue.pop_front() {
        if !seen.insert(schema.message_name()) {
            continue;
        }
        for field in schema.fields() {
            let mut path: Vec<Step> = path.clone();
            path.push(Step::Field(field.name.to_string()));
            let mut ty = schema.field_type(&field.name).unwrap();
            let about = (schema.message_name(), field.name.to_string());
            let of_type = nothings(ty).into_iter();
            found.extend(of_type.map(|value| Nothing { about: about.clone(), path: path.clone(), value }));
            loop {
                ty = match ty.shape() {
                    Shape::List(item, ..) => {
                        path.push(Step::Item);
                        item
                    }
                    Shape::Map(item) => {
                        path.push(Step::Entry);
                        item
                    }
                    Shape::Object(inner) => {
                        queue.push_back((inner, path));
                        break;
                    }
                    Shape::Scalar | Shape::Json => break,
                }
            }
        }
    }
    found
}

/// An object with nulls at every path at once, as `leaf` or in lists and maps.
pub fn full_of_nulls(schema: SchemaRef<'static>, is_leaf: bool) -> Value {
    let mut object = json!({});
    for change in changes(schema) {
        let is_null = change.value.is_null();
        let is_inner = change.value == json!([null]) || change.value == json!({"key": null});
        if if is_leaf { is_null } else { is_inner } {
            change.apply(&mut object);
        }
    }
    object
}
