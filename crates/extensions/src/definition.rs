//! The parts of a CustomResourceDefinition that make rows: names, versions, subresources, columns, fields.
//!
//! Definitions are validated when they are written, but what is read here may come from the store of another server:
//! nothing is taken for granted, and what is not there is nothing.

use serde::Deserialize;
use serde_json::Value;

/// A definition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Definition {
    pub spec: Spec,
    pub status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    pub group: String,
    pub scope: String,
    pub versions: Vec<Version>,
    pub conversion: Option<Conversion>,
    pub preserve_unknown_fields: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Conversion {
    pub strategy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    pub accepted_names: Names,
}

/// The names that a definition was given.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

/// A version.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    pub deprecation_warning: Option<String>,
    pub schema: Option<Validation>,
    pub subresources: Option<Subresources>,
    pub additional_printer_columns: Vec<Column>,
    pub selectable_fields: Vec<Field>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Validation {
    #[serde(rename = "openAPIV3Schema")]
    pub open_api: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Subresources {
    pub status: Option<Value>,
    pub scale: Option<Scale>,
}

/// Where the parts of a Scale are, as paths of fields with dots.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Scale {
    pub spec_replicas_path: String,
    pub status_replicas_path: String,
    pub label_selector_path: Option<String>,
}

/// A column of Tables.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Column {
    pub name: String,
    pub r#type: String,
    pub format: String,
    pub description: String,
    pub priority: i32,
    pub json_path: String,
}

/// What a field selector may name.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Field {
    pub json_path: String,
}
