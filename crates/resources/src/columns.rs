//! The output of `kubectl get`: the columns of a Table, per kind.
//!
//! Names, order, formats and priorities are upstream's. A cell is a pure function of the object and the time.
//! Source: `k8s.io/kubernetes/pkg/printers/internalversion`.

mod apps;
mod core;
mod extension;
mod metrics;
mod networking;
mod node;
mod pod;
mod policy;
mod rbac;
mod storage;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use machinery::duration;
use machinery::labels::Selector;
use machinery::metadata::Metadata;
use serde_json::{Map, Value};

use crate::row_values::{Text, set};

pub use apps::*;
pub use core::*;
pub use extension::*;
pub use metrics::{NODE_METRICS, POD_METRICS};
pub use networking::*;
pub use node::NODE;
pub use pod::POD;
pub use policy::*;
pub use rbac::*;
pub use storage::*;

/// One column of a Table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The heading.
    pub name: Text,
    /// OpenAPI type of the cells: `string`, `integer`, `number`, `boolean`, `date`.
    pub r#type: Text,
    /// OpenAPI format; `name` for the column that names the object.
    pub format: Text,
    /// 0 for always, 1 for `-o wide` only.
    pub priority: i32,
    /// The description of the column.
    pub told: Description,
    /// The cell of an object.
    pub cell: Cell,
}

/// The description of a column, in the API's words.
#[derive(Clone, Debug)]
pub enum Description {
    /// These.
    Text(Text),
    /// Those that the OpenAPI documents have of a definition's field.
    Field(&'static str, &'static str),
}

impl Column {
    const fn says(mut self, text: &'static str) -> Self {
        set(&mut self.told, Description::Text(Text::Static(text)));
        self
    }

    const fn of(mut self, definition: &'static str, field: &'static str) -> Self {
        set(&mut self.told, Description::Field(definition, field));
        self
    }

    pub(crate) fn field(&self) -> Option<(&'static str, &'static str)> {
        match self.told {
            Description::Text(_) => None,
            Description::Field(definition, field) => Some((definition, field)),
        }
    }
}

/// Kinds without columns of their own.
pub const GENERIC: &[Column] = &[NAME, AGE];

/// Kinds that show when they were made instead of how long ago.
pub const CREATED_AT: &[Column] =
    &[NAME, column("Created At", created_at).typed("date", "").of(META, "creationTimestamp")];

/// The function of a cell that is made at run time.
pub type MadeCell = dyn Fn(&Value, Timestamp) -> Value + Send + Sync;

/// The source of a cell: the object and the time.
#[derive(Clone)]
pub enum Cell {
    /// By a function of the program.
    Pure(fn(&Value, Timestamp) -> Value),
    /// By what was made at run time, such as a JSONPath of a CustomResourceDefinition.
    Made(Arc<MadeCell>),
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pure(_) => "Pure",
            Self::Made(_) => "Made",
        })
    }
}

const fn column(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column {
        name: Text::Static(name),
        r#type: Text::Static("string"),
        format: Text::Static(""),
        priority: 0,
        told: Description::Text(Text::Static("")),
        cell: Cell::Pure(cell),
    }
}

impl Column {
    /// Another type, and a format.
    const fn typed(mut self, r#type: &'static str, format: &'static str) -> Self {
        set(&mut self.r#type, Text::Static(r#type));
        set(&mut self.format, Text::Static(format));
        self
    }

    /// The cell of an object.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.cell {
            Cell::Pure(cell) => cell(object, now),
            Cell::Made(cell) => cell(object, now),
        }
    }
}

/// A column that only `-o wide` shows.
const fn wide(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    let mut column = column(name, cell);
    column.priority = 1;
    column
}

/// A column of yes and no.
const fn boolean(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    column(name, cell).typed("boolean", "")
}

/// A column of whole numbers.
const fn integer(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    column(name, cell).typed("integer", "")
}

/// The definition of every object's metadata.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const NAME: Column =
    column("Name", |o, _| Metadata::of(o).name().into()).typed("string", "name").of(META, "name");
const AGE: Column = column("Age", |o, now| duration::age(Metadata::of(o).creation_timestamp(), now).into())
    .of(META, "creationTimestamp");

fn created_at(object: &Value, _: Timestamp) -> Value {
    Metadata::of(object).text("creationTimestamp").into()
}

/// The text at `pointer`, or empty.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text at `pointer`, or `otherwise` when it is absent or empty.
fn text_or<'a>(object: &'a Value, pointer: &str, otherwise: &'a str) -> &'a str {
    match text(object, pointer) {
        "" => otherwise,
        text => text,
    }
}

/// The number at `pointer`, or 0.
fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// The flag at `pointer`, or false.
fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// The list at `pointer`, or an empty one.
fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn map<'a>(object: &'a Value, pointer: &str) -> Option<&'a Map<String, Value>> {
    object.pointer(pointer).and_then(Value::as_object)
}

fn len(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

/// How long ago the time at `pointer` was.
fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    duration::age(text(object, pointer).parse().ok(), now)
}

/// Joined by commas; `otherwise` for nothing.
fn joined<'a>(texts: impl IntoIterator<Item = &'a str>, otherwise: &str) -> String {
    let texts: Vec<_> = texts.into_iter().collect();
    if texts.is_empty() { otherwise.to_owned() } else { texts.join(",") }
}

/// The first three, and how many more there are.
fn first_three(texts: &[String], otherwise: &str) -> String {
    const SHOWN: usize = 3;
    if texts.is_empty() {
        return otherwise.to_owned();
    }
    let shown: Vec<_> = texts.iter().take(SHOWN).map(String::as_str).collect();
    match texts.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{} + {more} more...", shown.join(",")),
        _ => shown.join(","),
    }
}

/// `a=b,c=d`, or `<none>`.
fn labels(map: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<_> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

/// A `LabelSelector` in query form.
fn selector(object: &Value, pointer: &str) -> String {
    match Selector::from_label_selector(object.pointer(pointer)) {
        Ok(selector) if selector.is_everything() || selector.requirements().is_empty() => "<none>".to_owned(),
        Ok(selector) => selector.to_string(),
        Err(_) => "<error>".to_owned(),
    }
}

/// The status of the condition `kind`: `True`, `False`, `Unknown`, or empty without one.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let condition = list(object, "/status/conditions").iter().find(|c| text(c, "/type") == kind);
    condition.map_or("", |c| text(c, "/status"))
}

fn template_texts(object: &Value, field: &str) -> Value {
    joined(list(object, "/spec/template/spec/containers").iter().map(|c| text(c, field)), "").into()
}

const CONTAINERS: Column =
    wide("Containers", |o, _| template_texts(o, "/name")).says("Names of each container in the template.");
const IMAGES: Column = wide("Images", |o, _| template_texts(o, "/image"))
    .says("Images referenced by each container in the template.");
const SELECTOR: Column = wide("Selector", |o, _| selector(o, "/spec/selector").into());

#[cfg(test)]
mod tests;
