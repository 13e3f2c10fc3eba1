//! Nobody grants what they do not have.
//!
//! Source: `pkg/registry/rbac/validation`, `escalation_check.go`.

use machinery::metadata::Metadata;
use serde_json::Value;

use super::{Context, Operation};
use crate::status::Result;

/// Checks writes of roles and bindings.
pub(super) fn validate(context: &Context<'_>, object: &Value) -> Result<()> {
    let kind = &context.request.kind;
    if kind.group() != "rbac.authorization.k8s.io" || context.operation == Operation::Delete {
        return Ok(());
    }
    let unchanged = |field: &str| context.old.is_some_and(|old| old.get(field) == object.get(field));
    let is_role = matches!(kind.resource(), "roles" | "clusterroles");
    if is_role && unchanged("rules") && unchanged("aggregationRule") {
        return Ok(());
    }
    if !is_role && unchanged("roleRef") && unchanged("subjects") {
        return Ok(());
    }
    let security = &context.api.security;
    security
        .may_grant(&context.request.user, kind.resource(), object)
        .map_err(|why| context.forbidden(Metadata::of(object).name(), &why))
}
