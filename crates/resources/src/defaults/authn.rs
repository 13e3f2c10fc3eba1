//! RBAC and certificates.

use serde_json::{Map, Value};

use super::{Row, absent, text, unset};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("io.k8s.api.rbac.v1.RoleRef", |m| unset(m, "apiGroup", RBAC)),
    ("io.k8s.api.rbac.v1.Subject", subject),
    ("io.k8s.api.certificates.v1beta1.PodCertificateRequestSpec", |m| {
        absent(m, "maxExpirationSeconds", 86_400)
    }),
];

fn subject(subject: &mut Map<String, Value>) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        unset(subject, "apiGroup", RBAC);
    }
}
