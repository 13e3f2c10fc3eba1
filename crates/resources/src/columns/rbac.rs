//! RBAC and certificates.

use serde_json::Value;

use super::{AGE, Column, NAME, column, list, text, wide};

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

/// A denial goes before an approval.
fn request_condition(request: &Value) -> String {
    let has = |kind: &str| list(request, "/status/conditions").iter().any(|c| text(c, "/type") == kind);
    let mut states = vec![if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }];
    if has("Failed") {
        states.push("Failed");
    }
    if !text(request, "/status/certificate").is_empty() {
        states.push("Issued");
    }
    states.join(",")
}

/// ClusterTrustBundles.
pub const CLUSTER_TRUST_BUNDLE: &[Column] =
    &[NAME, column("SignerName", |o, _| text(o, "/spec/signerName").into())];
