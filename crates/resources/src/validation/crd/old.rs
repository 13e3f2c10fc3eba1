//! The parts of the stored definition that an update may leave as they are.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use schema::build::definition::Kept;
use serde_json::Value;

use super::At;
use crate::definition::ca_bundle_error;

/// The versions of conversion reviews that there are.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The stored definition; there is none when one is created.
pub(super) struct Old<'a> {
    object: Option<&'a Value>,
    versions: BTreeMap<&'a str, At<'a>>,
    /// Whether all its versions have a schema.
    pub(super) has_schemas: bool,
    /// Whether it keeps fields that no schema has.
    pub(super) preserves: bool,
    kept: OnceCell<Kept>,
    /// Whether its conversion reviews have a version that there is.
    pub(super) has_review_version: bool,
    /// Whether certificates that cannot be read may stand in it.
    pub(super) takes_any_bundle: bool,
}

impl<'a> Old<'a> {
    /// None: everything is checked; only certificates come later, by other controllers.
    pub(super) fn none() -> Self {
        Self {
            object: None,
            versions: BTreeMap::new(),
            has_schemas: true,
            preserves: false,
            kept: OnceCell::from(Kept::default()),
            has_review_version: true,
            takes_any_bundle: true,
        }
    }

    pub(super) fn of(object: &'a Value) -> Self {
        let root = At::root(object);
        let spec = root.get("spec");
        let schemas = || spec.get("versions").items().map(|v| v.get("schema").get("openAPIV3Schema").value);
        let is_established = root
            .get("status")
            .get("conditions")
            .items()
            .any(|c| c.get("type").text() == "Established" && c.get("status").text() == "True");
        let hook = spec.get("conversion").get("webhook");
        Self {
            object: Some(object),
            versions: spec.get("versions").items().map(|v| (v.get("name").text(), v)).collect(),
            has_schemas: schemas().all(|schema| !schema.is_null()),
            preserves: spec.get("preserveUnknownFields").flag(),
            kept: OnceCell::new(),
            has_review_version: has_review_version(&hook.get("conversionReviewVersions")),
            takes_any_bundle: !is_established || ca_bundle_error(hook.get("clientConfig").value).is_some(),
        }
    }

    /// The definition, if there was one.
    pub(super) fn definition(&self) -> Option<At<'a>> {
        self.object.map(At::root)
    }

    /// What its schemas do not have; looked at when a new one lacks something, too.
    pub(super) fn kept(&self) -> Kept {
        *self.kept.get_or_init(|| {
            let versions = At::root(self.object.unwrap_or(&Value::Null)).get("spec").get("versions");
            let schemas = versions.items().map(|v| v.get("schema").get("openAPIV3Schema").value);
            Kept::of(schemas.filter(|schema| !schema.is_null()))
        })
    }

    /// The version of this name.
    pub(super) fn version(&self, name: &str) -> Option<&At<'a>> {
        self.versions.get(name)
    }
}

/// Whether there is such a version among these, or none at all.
fn has_review_version(versions: &At<'_>) -> bool {
    versions.is_empty() || versions.items().any(|version| REVIEW_VERSIONS.contains(&version.text()))
}
