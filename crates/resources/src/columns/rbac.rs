//! RBAC and certificates.

use serde_json::Value;

use super::{AGE, Column, NAME, column, joined, list, text, wide};

/// RoleBindings and ClusterRoleBindings.
pub const ROLE_BINDING: &[Column] = &[
    NAME,
    column("Role", |o, _| format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into()),
    AGE,
    wide("Users", |o, _| subjects(o, "User")),
    wide("Groups", |o, _| subjects(o, "Group")),
    wide("ServiceAccounts", |o, _| subjects(o, "ServiceAccount")),
];

fn subjects(binding: &Value, kind: &str) -> Value {
    let names: Vec<_> = list(binding, "/subjects")
        .iter()
        .filter(|s| text(s, "/kind") == kind)
        .map(|s| match text(s, "/namespace") {
            namespace if kind == "ServiceAccount" && !namespace.is_empty() => {
                format!("{namespace}/{}", text(s, "/name"))
            }
            _ => text(s, "/name").to_owned(),
        })
        .collect();
    names.join(", ").into()
}

/// CertificateSigningRequests.
pub const CERTIFICATE_SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    column("SignerName", |o, _| text(o, "/spec/signerName").into()),
    column("Requestor", |o, _| text(o, "/spec/username").into()),
    column("RequestedDuration", |o, _| match o.pointer("/spec/expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => machinery::duration::human(seconds).into(),
        None => "<none>".into(),
    }),
    column("Condition", |o, _| request_condition(o).into()),
];

fn request_condition(request: &Value) -> String {
    let kinds = list(request, "/status/conditions").iter().map(|c| text(c, "/type"));
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_unstable();
    if !text(request, "/status/certificate").is_empty() {
        kinds.push("Issued");
    }
    joined(kinds, "Pending")
}
