//! The columns of a custom kind's Tables: the name, and what JSONPaths find.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor`.

use std::sync::Arc;

use jiff::Timestamp;
use machinery::duration;
use machinery::jsonpath::{JsonPath, printed};
use resources::columns::{Cell, Column, Description, GENERIC};
use serde_json::Value;

use crate::definition;

/// All columns. Those from the first one on whose path cannot be read are left out.
pub(super) fn columns(written: &[definition::Column]) -> Vec<Column> {
    let name = GENERIC.iter().take(1).cloned();
    if written.is_empty() {
        let age = GENERIC.iter().skip(1).map(|age| Column { r#type: "date".into(), ..age.clone() });
        return name.chain(age).collect();
    }
    name.chain(written.iter().map_while(column)).collect()
}

fn column(written: &definition::Column) -> Option<Column> {
    let path = JsonPath::parse(&written.json_path).ok()?;
    let told = match written.description.as_str() {
        "" => format!("Custom resource definition column (in JSONPath format): {}", written.json_path),
        told => told.to_owned(),
    };
    let form = written.r#type.clone();
    let cell = move |object: &Value, now: Timestamp| match path.first(object) {
        Ok(Some(value)) => cell(&form, &value, now),
        _ => Value::Null,
    };
    Some(Column {
        name: written.name.as_str().into(),
        r#type: written.r#type.as_str().into(),
        format: written.format.as_str().into(),
        priority: written.priority,
        told: Description::Text(told.into()),
        cell: Cell::Made(Arc::new(cell)),
    })
}

/// What a column of this type shows of a value; null for what is of another type.
fn cell(form: &str, value: &Value, now: Timestamp) -> Value {
    match (form, value) {
        ("string", value) => printed(value).into(),
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(number) => number.into(),
            #[expect(clippy::cast_possible_truncation, reason = "Go truncates, too")]
            None => number.as_f64().map(|float| float as i64).into(),
        },
        ("number", Value::Number(_)) => value.as_f64().into(),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.as_str() {
            "" | "null" => duration::age(None, now).into(),
            text => match text.parse() {
                Ok(time) => duration::age(Some(time), now).into(),
                Err(_) => "<invalid>".into(),
            },
        },
        _ => Value::Null,
    }
}
