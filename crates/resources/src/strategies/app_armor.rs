//! AppArmor profiles of a new Pod that only annotations name, as clients older than the field write them.
//!
//! Nodes look at the field alone. Source: `applyAppArmorVersionSkew` of `pkg/registry/core/pod/strategy.go`.

use serde_json::{Map, Value, json};

use crate::validation::pod_annotations::{APP_ARMOR, app_armor_profile};

/// Gives containers the profiles that annotations name, unless they have one or the Pod has the same.
pub(super) fn take_annotations(pod: &mut Value) {
    let Some(annotations) = pod.pointer("/metadata/annotations").and_then(Value::as_object) else { return };
    let is_windows = pod.pointer("/spec/os/name").and_then(Value::as_str) == Some("windows");
    if is_windows || !annotations.keys().any(|key| key.starts_with(APP_ARMOR)) {
        return;
    }
    let annotations = annotations.clone();
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile").cloned();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            take(container, &annotations, of_pod.as_ref());
        }
    }
}

fn take(container: &mut Value, annotations: &Map<String, Value>, of_pod: Option<&Value>) -> Option<()> {
    let name = container.get("name")?.as_str()?;
    let profile = app_armor_profile(annotations.get(&format!("{APP_ARMOR}{name}"))?.as_str()?)?;
    let has_own = container.pointer("/securityContext/appArmorProfile").is_some_and(|own| !own.is_null());
    if !has_own && Some(&profile) != of_pod {
        let context = container.as_object_mut()?.entry("securityContext").or_insert_with(|| json!({}));
        context.as_object_mut()?.insert("appArmorProfile".to_owned(), profile);
    }
    Some(())
}
