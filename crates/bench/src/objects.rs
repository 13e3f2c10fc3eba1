//! The objects that rows make.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::load::{Call, Job};

pub(crate) const NAMESPACE: &str = "bench";
const VALUE_BYTES: usize = 1_000;

/// Makes the namespace that everything else is in.
pub(crate) fn namespace() -> Call {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    Call::post("/api/v1/namespaces".to_owned(), namespace.to_string())
}

/// The path of the namespace's objects of a core resource.
pub(crate) fn collection(plural: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/{plural}")
}

/// Makes ConfigMaps.
pub(crate) fn create_config_maps() -> Job {
    Arc::new(|number| Call::post(collection("configmaps"), config_map(number).to_string()))
}

/// Makes a ConfigMap with labels.
pub(crate) fn create_labelled(number: usize, labels: &Value) -> Call {
    let mut object = config_map(number);
    object["metadata"]["labels"] = labels.clone();
    Call::post(collection("configmaps"), object.to_string())
}

/// The path of a ConfigMap.
pub(crate) fn config_map_path(number: usize) -> String {
    format!("{}/load-{number}", collection("configmaps"))
}

/// The configuration that one of so many clients applies to a ConfigMap.
pub(crate) fn applied(number: usize, clients: usize) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": format!("load-{number}"), "labels": { "applied": "true" } },
        "data": { "applied": format!("by one of {clients}") },
    })
    .to_string()
}

/// A ConfigMap with about 1 kB of data.
fn config_map(number: usize) -> Value {
    let value = format!("{number:0>VALUE_BYTES$}");
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": format!("load-{number}"), "namespace": NAMESPACE },
        "data": { "value": value },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_has_1_kb_of_data() {
        let made = config_map(7);
        assert_eq!(made["metadata"]["name"], "load-7");
        assert_eq!(made["data"]["value"].as_str().map(str::len), Some(VALUE_BYTES));
    }
}
