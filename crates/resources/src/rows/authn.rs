//! Authentication and authorization: `authentication`, `authorization`, `rbac`, `certificates`.

use machinery::features::Feature;

use crate::columns as c;
use crate::fields;
use crate::resource::{Resource, STATUS, Scope, Subresource};
use crate::strategies as s;

const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");
const AUTHORIZATION: (&str, &str) = ("authorization.k8s.io", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");

const fn cluster(
    api: (&'static str, &'static str),
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource::new(api, plural, singular, kind, Scope::Cluster)
}

const fn namespaced(
    api: (&'static str, &'static str),
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
) -> Resource {
    Resource::new(api, plural, singular, kind, Scope::Namespaced)
}

const fn certificates(version: &'static str) -> (&'static str, &'static str) {
    ("certificates.k8s.io", version)
}

const APPROVAL: Subresource =
    Subresource { name: "approval", group: "", version: "", kind: "", verbs: &["get", "patch", "update"] };

/// The rows of this file.
pub(super) const ROWS: &[Resource] = &[
    cluster(AUTHENTICATION, "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview").virtual_kind(),
    cluster(AUTHENTICATION, "tokenreviews", "tokenreview", "TokenReview").virtual_kind(),
    namespaced(
        AUTHORIZATION,
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
        "LocalSubjectAccessReview",
    )
    .virtual_kind()
    .strategy(&s::LOCAL_SUBJECT_ACCESS_REVIEW),
    cluster(AUTHORIZATION, "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview")
        .virtual_kind()
        .strategy(&s::SELF_SUBJECT_ACCESS_REVIEW),
    cluster(AUTHORIZATION, "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview")
        .virtual_kind(),
    cluster(AUTHORIZATION, "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview")
        .virtual_kind()
        .strategy(&s::SUBJECT_ACCESS_REVIEW),
    cluster(
        certificates("v1"),
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
    )
    .short(&["csr"])
    .sub(&[APPROVAL, STATUS])
    .fields(fields::CERTIFICATE_SIGNING_REQUEST)
    .strategy(&s::CERTIFICATE_SIGNING_REQUEST)
    .columns(c::CERTIFICATE_SIGNING_REQUEST),
    cluster(certificates("v1beta1"), "clustertrustbundles", "clustertrustbundle", "ClusterTrustBundle")
        .fields(fields::CLUSTER_TRUST_BUNDLE)
        .strategy(&s::CLUSTER_TRUST_BUNDLE)
        .columns(c::CLUSTER_TRUST_BUNDLE)
        .gated(Feature::ClusterTrustBundle),
    cluster(certificates("v1alpha1"), "clustertrustbundles", "clustertrustbundle", "ClusterTrustBundle")
        .stored_as("certificates.k8s.io/v1beta1", None)
        .fields(fields::CLUSTER_TRUST_BUNDLE)
        .strategy(&s::CLUSTER_TRUST_BUNDLE)
        .columns(c::CLUSTER_TRUST_BUNDLE)
        .off(),
    namespaced(
        certificates("v1beta1"),
        "podcertificaterequests",
        "podcertificaterequest",
        "PodCertificateRequest",
    )
    .sub(&[STATUS])
    .fields(fields::POD_CERTIFICATE_REQUEST)
    .strategy(&s::POD_CERTIFICATE_REQUEST)
    .gated(Feature::PodCertificateRequest),
    cluster(RBAC, "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding")
        .strategy(&s::CLUSTER_ROLE_BINDING)
        .columns(c::CLUSTER_ROLE_BINDING),
    cluster(RBAC, "clusterroles", "clusterrole", "ClusterRole")
        .strategy(&s::CLUSTER_ROLE)
        .columns(c::CREATED_AT),
    namespaced(RBAC, "rolebindings", "rolebinding", "RoleBinding")
        .strategy(&s::ROLE_BINDING)
        .columns(c::ROLE_BINDING),
    namespaced(RBAC, "roles", "role", "Role").strategy(&s::ROLE).columns(c::CREATED_AT),
];
