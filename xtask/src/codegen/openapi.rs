//! Reads the OpenAPI definitions.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The definitions by lower-case name, since prost changes the case of acronyms.
pub(super) type Definitions = BTreeMap<String, Definition>;

/// One definition.
pub(super) struct Definition {
    /// The name as OpenAPI spells it.
    pub(super) name: String,
    /// The schema.
    pub(super) schema: Value,
}

impl Definition {
    /// The properties by name.
    pub(super) fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.schema["properties"].as_object().into_iter().flatten()
    }

    /// Whether a field must be there.
    pub(super) fn is_required(&self, field: &str) -> bool {
        self.schema["required"].as_array().is_some_and(|all| all.iter().any(|name| name == field))
    }
}

/// Reads the file of definitions.
pub(super) fn read(file: &Path) -> Result<Definitions> {
    let mut document: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let all = document["$defs"].as_object_mut().context("no $defs")?;
    let all = std::mem::take(all);
    Ok(all.into_iter().map(|(name, schema)| (name.to_lowercase(), Definition { name, schema })).collect())
}
