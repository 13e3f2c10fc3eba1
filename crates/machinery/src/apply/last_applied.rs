//! The way from client-side to server-side apply: what kubectl's annotation says was applied is kubectl's.
//!
//! Source: `lastappliedmanager.go` and `lastappliedupdater.go` of `k8s.io/apimachinery/pkg/util/managedfields`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::compare::compare;
use super::field_set::{field_set, problems};
use super::typed::Typed;
use crate::metadata::{self, Metadata};

/// kubectl's record of what it applied.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What all annotations of an object together may have.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The paths that the annotation names and that still have its values; `None` without a usable annotation.
pub(super) fn owned(root: Typed<'_>, live: &Value, api_version: &str) -> Option<BTreeSet<String>> {
    let text = recorded(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    if !problems(root, &applied).is_empty() {
        return None;
    }
    let changes = compare(root, &applied, live, &|_, _| false);
    let mut set = field_set(root, &applied);
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        set.subtract(changed);
    }
    Some(super::texts(&set))
}

/// Keeps the annotation, where there is one, at what is applied now.
pub(super) fn sync(object: &mut Value, config: &Value) {
    if recorded(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = metadata::metadata_mut(&mut config)
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = metadata::metadata_mut(object)
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let size: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn recorded(object: &Value) -> Option<&str> {
    let text = Metadata::of(object).annotations()?.get(ANNOTATION)?.as_str()?;
    Some(text).filter(|text| !text.is_empty())
}
