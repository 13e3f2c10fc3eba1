//! `meta.k8s.io/v1 Table`: what `kubectl get` prints.

use machinery::metadata::Metadata;
use resources::columns::Column;
use serde_json::{Value, json};

use super::partial;
use crate::answer::Listed;
use crate::kinds::Kind;
use crate::negotiate::View;
use crate::request::Request;

/// The part of an object that a row carries beside its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// The metadata; the default.
    Metadata,
    /// The whole object.
    Object,
}

/// The form in which a Table is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The part of objects that rows carry.
    pub include: Include,
    /// The Table's `apiVersion`.
    pub meta_version: &'static str,
}

impl Form {
    /// Reads `includeObject` and `Accept`.
    pub fn of(request: &Request) -> Self {
        let include = match request.info.query.get("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        Self { include, meta_version: request.accept.meta_version }
    }
}

/// The Table of one object; of one that is not the kind's, such as a Scale, its own.
pub fn one(request: &Request, mut object: Value, now: jiff::Timestamp) -> Value {
    crate::codec::strip_nulls(&mut object);
    let metadata = json!({"resourceVersion": Metadata::of(&object).resource_version()});
    let form = Form::of(request);
    let is_of_kind = object.get("kind").is_some_and(|kind| kind == request.kind.kind());
    let of = match object.get("kind").and_then(Value::as_str) {
        _ if is_of_kind => request.kind.columns(),
        Some("Scale") => resources::columns::SCALE,
        _ => resources::columns::CREATED_AT,
    };
    let rows = vec![row_of(of, object, form, now)];
    table_of(of, form, rows, metadata)
}

/// The Table of a collection.
pub fn many(request: &Request, listed: &Listed, metadata: Value, now: jiff::Timestamp) -> Value {
    let form = Form::of(request);
    let kind = &request.kind;
    let rows = listed.objects.iter().map(|object| row(kind, kind.value(object), form, now)).collect();
    table(kind, form, rows, metadata, true)
}

/// A list of what is not stored, in the view that is asked for.
pub fn unstored(request: &Request, items: &[Value], now: jiff::Timestamp) -> Value {
    let kind = &request.kind;
    let metadata = json!({});
    match request.accept.view {
        View::Table => {
            let form = Form::of(request);
            let rows = items.iter().map(|item| row(kind, item.clone(), form, now)).collect();
            table(kind, form, rows, metadata, true)
        }
        _ => json!({
            "kind": kind.list_kind(),
            "apiVersion": kind.api_version(),
            "metadata": metadata,
            "items": items,
        }),
    }
}

/// A Table with these rows; `with_columns` says whether the columns are described.
pub fn table(kind: &Kind, form: Form, rows: Vec<Value>, metadata: Value, with_columns: bool) -> Value {
    table_of(if with_columns { kind.columns() } else { &[] }, form, rows, metadata)
}

fn table_of(columns: &[Column], form: Form, rows: Vec<Value>, metadata: Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": form.meta_version,
        "metadata": metadata,
        "columnDefinitions": described(columns),
        "rows": rows,
    })
}

/// The descriptions of a kind's columns.
pub fn columns(kind: &Kind) -> Value {
    described(kind.columns())
}

fn described(columns: &[Column]) -> Value {
    columns.iter().map(column).collect()
}

fn column(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.r#type,
        "format": column.format,
        "description": column.description(),
        "priority": column.priority,
    })
}

/// One row of a Table.
pub fn row(kind: &Kind, object: Value, form: Form, now: jiff::Timestamp) -> Value {
    row_of(kind.columns(), object, form, now)
}

fn row_of(columns: &[Column], mut object: Value, form: Form, now: jiff::Timestamp) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell(&object, now)).collect();
    match form.include {
        Include::None => json!({"cells": cells}),
        Include::Metadata => json!({"cells": cells, "object": partial(object, form.meta_version)}),
        Include::Object => {
            crate::codec::fill_nulls(&mut object);
            json!({"cells": cells, "object": object})
        }
    }
}
