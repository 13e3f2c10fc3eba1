//! OpenAPI documents, made from the schema and the rows of what is served.
//!
//! What clients read out of them: kubectl applies with the patch strategies and merge keys of the definitions,
//! finds out from the parameters of PATCH operations whether the server knows `fieldValidation` and `dryRun`,
//! and `explain` finds kinds through the GET operations. There is no reference without its definition: one
//! dangling reference breaks whole clients. `explain` shows the descriptions.

mod arenas;
mod custom;
mod definitions;
mod descriptions;
mod gnostic;
mod gnostic3;
mod operations;
pub mod plain;
pub mod v2;
pub mod v3;

use std::collections::HashMap;

pub use arenas::Arenas;

/// The API level that documents state.
const LEVEL: &str = "v1.35.0";
/// What the names of the types of metadata begin with.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// A served resource.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    /// The group, empty for core.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The plural name in paths.
    pub plural: &'a str,
    /// `true` if it lies in namespaces.
    pub namespaced: bool,
    /// The verbs as discovery lists them: `create`, `delete`, `deletecollection`, `get`, `list`, `patch`, ...
    pub verbs: &'a [&'a str],
    /// `true` if a DELETE is answered with the object, not with a Status.
    pub is_deletion_answered: bool,
    /// Its subresources.
    pub subresources: &'a [Subresource<'a>],
}

/// A subresource; its kind may be of another group.
#[derive(Clone, Copy, Debug)]
pub struct Subresource<'a> {
    /// The last part of the path.
    pub name: &'a str,
    /// The group of the kind.
    pub group: &'a str,
    /// The version of the kind.
    pub version: &'a str,
    /// The kind; if it is empty, group, version and kind are the resource's.
    pub kind: &'a str,
    /// The verbs as discovery lists them.
    pub verbs: &'a [&'a str],
}

/// The descriptions of definitions' fields, as in the documents; those that have none are left out.
pub fn descriptions_of<'a>(
    fields: impl Iterator<Item = (&'a str, &'a str)>,
) -> HashMap<(&'a str, &'a str), String> {
    let descriptions = descriptions::Descriptions::unpack();
    let index = descriptions.index();
    fields.filter_map(|field| Some((field, index.get(field.0, field.1)?))).collect()
}

/// The path of a group-version, such as `api/v1` or `apis/apps/v1`.
pub fn root_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

#[cfg(test)]
mod tests;
