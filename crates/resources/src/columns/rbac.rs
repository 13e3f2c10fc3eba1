//! RBAC and certificates.

use serde_json::Value;

use super::{AGE, Column, NAME, column, list, text, text_or, wide};

/// RoleBindings.
pub const ROLE_BINDING: &[Column] = &[
    NAME,
    ROLE.says(
        "RoleRef can reference a Role in the current namespace or a ClusterRole in the global \
         namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
    ),
    AGE,
    USERS.says("Users in the roleBinding"),
    GROUPS.says("Groups in the roleBinding"),
    SERVICE_ACCOUNTS.says("ServiceAccounts in the roleBinding"),
];

/// ClusterRoleBindings.
pub const CLUSTER_ROLE_BINDING: &[Column] = &[
    NAME,
    ROLE.says(
        "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be \
         resolved, the Authorizer must return an error.",
    ),
    AGE,
    USERS.says("Users in the clusterRoleBinding"),
    GROUPS.says("Groups in the clusterRoleBinding"),
    SERVICE_ACCOUNTS.says("ServiceAccounts in the clusterRoleBinding"),
];

const ROLE: Column =
    column("Role", |o, _| format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into());
const USERS: Column = wide("Users", |o, _| subjects(o, "User"));
const GROUPS: Column = wide("Groups", |o, _| subjects(o, "Group"));
const SERVICE_ACCOUNTS: Column = wide("ServiceAccounts", |o, _| subjects(o, "ServiceAccount"));

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

/// As v1beta1 says it, which upstream's printer takes its texts from.
const SIGNER: &str = "Requested signer for the request. It is a qualified name in the form: \
`scope-hostname.io/name`. If empty, it will be defaulted:
 1. If it's a kubelet client certificate, it is assigned
    \"kubernetes.io/kube-apiserver-client-kubelet\".
 2. If it's a kubelet serving certificate, it is assigned
    \"kubernetes.io/kubelet-serving\".
 3. Otherwise, it is assigned \"kubernetes.io/legacy-unknown\".
Distribution of trust for signers happens out of band. You can select on this field using `spec.signerName`.";

/// CertificateSigningRequests.
pub const CERTIFICATE_SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    column("SignerName", |o, _| text_or(o, "/spec/signerName", "<none>").into()).says(SIGNER),
    column("Requestor", |o, _| text(o, "/spec/username").into()).says("Base64-encoded PKCS#10 CSR data"),
    column("RequestedDuration", |o, _| match o.pointer("/spec/expirationSeconds").and_then(Value::as_i64) {
        Some(seconds) => machinery::duration::human(seconds).into(),
        None => "<none>".into(),
    })
    .of("io.k8s.api.certificates.v1.CertificateSigningRequestSpec", "expirationSeconds"),
    column("Condition", |o, _| request_condition(o).into())
        .says("Conditions applied to the request, such as approval or denial."),
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
pub const CLUSTER_TRUST_BUNDLE: &[Column] = &[
    NAME,
    column("SignerName", |o, _| text_or(o, "/spec/signerName", "<none>").into())
        .of("io.k8s.api.certificates.v1beta1.ClusterTrustBundleSpec", "signerName"),
];
