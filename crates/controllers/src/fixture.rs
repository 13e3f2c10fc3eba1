//! YAML fixtures for the table tests: minimal objects in, a plan as text out.

use serde::de::DeserializeOwned;

/// Reads one YAML value.
pub(crate) fn parse<T: DeserializeOwned>(yaml: &str) -> T {
    let value: serde_json::Value = serde_saphyr::from_str(yaml).unwrap();
    serde_json::from_value(value).unwrap()
}
