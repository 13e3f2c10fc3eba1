//! The schema of a version, or of all.

use machinery::field::{FieldError, FieldErrors};
use schema::build::Source;
use schema::build::definition::{self, Checked, Kept, Strictness};

use super::At;
use super::old::Old;
use crate::definition::{Expressions, VersionSchema};

/// Checks a schema; `version` is where it stands in the definition, if not in all versions.
pub(super) fn check(
    schema: &At<'_>,
    (old, expressions): (&Old<'_>, &dyn Expressions),
    context: &Context<'_>,
    errors: &mut FieldErrors,
) {
    if !schema.is_set() {
        return;
    }
    let path = schema.path.to_string();
    // The arena is only for trying values in; names that break rules are not to break it.
    let source = Source {
        group: "example.com",
        version: "v1",
        kind: "Object",
        list_kind: "ObjectList",
        plural: "objects",
        path: &path,
        schema: schema.value,
    };
    let strict = Strictness { has_status: context.has_status, ..Strictness::default() };
    let mut checked = definition::check(&source, strict);
    if !checked.violations.is_empty() && old.kept() != Kept::default() {
        let kept = old.kept();
        let may_be_loose = kept.structure && context.preserves;
        checked = definition::check(&source, Strictness { may_be_loose, kept, ..strict });
    }
    let Checked { violations, left_out, arena } = checked;
    errors.extend(violations.into_iter().map(FieldError::from));
    errors.leave_out(left_out);
    let Some(arena) = arena else { return };
    let Some(root) = arena.kind(source.group, source.version, source.kind) else { return };
    let old_spec = old.definition().map(|old| old.get("spec").value);
    let is_unchanged = old
        .version(context.version)
        .is_some_and(|version| version.get("schema").get("openAPIV3Schema").value == schema.value);
    let version = VersionSchema { path: &path, schema: schema.value, root, old_spec, is_unchanged };
    errors.extend(expressions.check(&version));
}

/// What else there is to know of a schema.
pub(super) struct Context<'a> {
    /// Its version, the first one if it is that of all.
    pub(super) version: &'a str,
    /// Whether `status` is a subresource.
    pub(super) has_status: bool,
    /// Whether fields are kept that it does not have.
    pub(super) preserves: bool,
}
