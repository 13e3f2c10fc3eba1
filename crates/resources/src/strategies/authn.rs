//! The strategies of certificates, and of the questions about access.

use serde_json::Value;

use super::certificate;
use crate::strategy::NameRule;
use crate::strategy::{FREE_STATUS_ONLY, GENERIC, STATUS_ONLY, Strategy, Unowned, VIRTUAL};
use crate::validation as v;

/// CertificateSigningRequests; their names are free.
pub const CERTIFICATE_SIGNING_REQUEST: Strategy = Strategy {
    unowned: Unowned {
        by_object: &[&["spec"]],
        by_status: &[&["status", "conditions"]],
        by_approval: &[&["status", "certificate"]],
    },
    name_rule: NameRule::PathSegment,
    prepare_for_update: request_update,
    prepare_for_status_update: certificate::status_update,
    validate_create: v::certificates::request,
    validate_update: v::certificates::request_update,
    validate_status_update: v::certificates::request_status,
    ..FREE_STATUS_ONLY
};
/// ClusterTrustBundles; their name has the signer's in it.
pub const CLUSTER_TRUST_BUNDLE: Strategy = Strategy {
    name_rule: NameRule::PathSegment,
    allow_unconditional_update: false,
    validate_create: v::certificates::bundle,
    validate_update: v::certificates::bundle_update,
    ..GENERIC
};
/// PodCertificateRequests: what is asked for stays.
pub const POD_CERTIFICATE_REQUEST: Strategy = Strategy {
    allow_unconditional_update: false,
    validate_create: v::pod_certificates::request,
    validate_update: v::pod_certificates::request_update,
    validate_status_update: v::pod_certificates::request_status,
    ..STATUS_ONLY
};
/// SelfSubjectAccessReviews.
pub const SELF_SUBJECT_ACCESS_REVIEW: Strategy =
    Strategy { validate_create: v::review::own_access, ..VIRTUAL };
/// SubjectAccessReviews.
pub const SUBJECT_ACCESS_REVIEW: Strategy = Strategy { validate_create: v::review::access, ..VIRTUAL };
/// LocalSubjectAccessReviews.
pub const LOCAL_SUBJECT_ACCESS_REVIEW: Strategy =
    Strategy { validate_create: v::review::local_access, ..VIRTUAL };

/// The spec of a request is a record of who asked for what: it stays.
fn request_update(new: &mut Value, old: &Value) {
    if let (Some(map), Some(spec)) = (new.as_object_mut(), old.get("spec")) {
        map.insert("spec".to_owned(), spec.clone());
    }
}
