//! The statements of a CustomResourceDefinition about itself that its validation and its status judge alike; and the
//! checker of its expressions.

use std::fmt::Debug;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{FieldErrors, quote};
use machinery::metadata::Metadata;
use schema::SchemaRef;
use schema::rules::format::Format;
use serde_json::Value;
use x509_parser::pem::Pem;

/// A checker of the expressions in definitions (`x-kubernetes-validations`): whether they compile, and what they cost.
/// It is asked about schemas in which nothing else is wrong, by `validation::crd`'s functions.
pub trait Expressions: Debug + Send + Sync {
    /// What is wrong with the expressions of a schema.
    fn check(&self, schema: &VersionSchema<'_>) -> FieldErrors;
}

/// A schema of a definition whose expressions are to be checked.
#[derive(Clone, Copy, Debug)]
pub struct VersionSchema<'a> {
    /// The path of the schema, such as `spec.versions[0].schema.openAPIV3Schema`.
    pub path: &'a str,
    /// The schema (`JSONSchemaProps`).
    pub schema: &'a Value,
    /// The objects that it describes; group, version and kind are not the definition's.
    pub root: SchemaRef<'a>,
    /// The `spec` of the stored definition: expressions that it has may be in versions of old.
    pub old_spec: Option<&'a Value>,
    /// `true` if the stored definition has the very same schema; its expressions may cost what they cost.
    pub is_unchanged: bool,
}

/// A check that takes every expression.
#[derive(Clone, Copy, Debug)]
pub struct AnyExpression;

impl Expressions for AnyExpression {
    fn check(&self, _: &VersionSchema<'_>) -> FieldErrors {
        FieldErrors::new()
    }
}

/// The annotation of definitions in the community's groups: where the API was reviewed, or that it was not.
pub const APPROVAL_ANNOTATION: &str = "api-approved.kubernetes.io";

/// The meaning of that annotation.
///
/// Source: `GetAPIApprovalState` of `k8s.io/apiextensions-apiserver/pkg/apihelpers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// The address of the review.
    Approved,
    /// That there was none, and why.
    Bypassed,
    /// Nothing.
    Missing,
    /// Something else.
    Invalid,
}

/// `true` if the community keeps a group to itself.
///
/// Source: `IsProtectedCommunityGroup`.
pub fn is_protected_group(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group.strip_suffix(own).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// The approval by a definition's annotation, and its reason in upstream's words.
pub fn approval(definition: &Value) -> (Approval, String) {
    const RULE: &str = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let text = Metadata::of(definition).annotation(APPROVAL_ANNOTATION).unwrap_or_default();
    match text {
        "" => (Approval::Missing, format!("{RULE}, {SEE}")),
        _ if text.starts_with("unapproved") => (Approval::Bypassed, format!("not approved: {}", quote(text))),
        _ if is_address(text) => (Approval::Approved, format!("approved in {text}")),
        _ => {
            let form = "with either a URL or a reason starting with \"unapproved\"";
            (Approval::Invalid, format!("{RULE} {form}, {SEE}"))
        }
    }
}

/// Whether a text is a URL with a host.
fn is_address(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    !host.is_empty() && Format::of("uri", &["string"]).is_some_and(|uri| uri.is_met_by(text))
}

/// The defect of the `caBundle` of a webhook's `clientConfig`; none if there is no bundle.
///
/// Source: `ValidateCABundle` of `k8s.io/apiserver/pkg/util/webhook`.
pub fn ca_bundle_error(client_config: &Value) -> Option<String> {
    let text = client_config.get("caBundle")?.as_str().filter(|text| !text.is_empty())?;
    let bundle = STANDARD.decode(text).unwrap_or_default();
    let (mut blocks, mut malformed) = (0_usize, false);
    for block in Pem::iter_from_buffer(&bundle) {
        let Ok(block) = block else { break };
        blocks += 1;
        if block.label == "CERTIFICATE" {
            match block.parse_x509() {
                Ok(_) => return None,
                Err(_) => malformed = true,
            }
        }
    }
    let why = match (blocks, malformed) {
        (0, _) => "unable to parse bytes as PEM block",
        (_, true) => "failed to parse certificate: x509: malformed certificate",
        (_, false) => "no valid certificate authority data seen",
    };
    Some(format!("unable to load root certificates: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_of_the_community_are_protected() {
        for group in ["k8s.io", "apps.k8s.io", "kubernetes.io", "a.b.kubernetes.io"] {
            assert!(is_protected_group(group), "{group}");
        }
        for group in ["", "io", "notk8s.io", "k8s.io.example.com", "x-k8s.io", "sigs.x-k8s.io"] {
            assert!(!is_protected_group(group), "{group}");
        }
    }

    #[test]
    fn an_approval_is_an_address_or_an_excuse() {
        for (text, wanted) in [
            ("", Approval::Missing),
            ("unapproved, an experiment", Approval::Bypassed),
            ("unapproved", Approval::Bypassed),
            ("https://github.com/kubernetes/kubernetes/pull/78458", Approval::Approved),
            ("custom://host", Approval::Approved),
            ("https://", Approval::Invalid),
            ("https:///path", Approval::Invalid),
            ("https://user@/path", Approval::Invalid),
            ("://host", Approval::Invalid),
            ("/pull/78458", Approval::Invalid),
            ("github.com/kubernetes", Approval::Invalid),
            ("https://a b/", Approval::Invalid),
            ("bork", Approval::Invalid),
        ] {
            let definition = json!({"metadata": {"annotations": {APPROVAL_ANNOTATION: text}}});
            assert_eq!(approval(&definition).0, wanted, "{text}");
        }
        assert_eq!(approval(&json!({})).0, Approval::Missing);
    }

    #[test]
    fn a_bundle_has_a_certificate() {
        let of = |bundle: &[u8]| ca_bundle_error(&json!({"caBundle": STANDARD.encode(bundle)}));
        let pem =
            |label: &str, text: &str| format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
        assert_eq!(ca_bundle_error(&json!({})), None);
        assert_eq!(of(b""), None);
        for (bundle, why) in [
            ("nothing".to_owned(), "unable to parse bytes as PEM block"),
            (pem("RSA KEY", "AAAA"), "no valid certificate authority data seen"),
            (pem("CERTIFICATE", "AAAA"), "failed to parse certificate: x509: malformed certificate"),
        ] {
            assert_eq!(of(bundle.as_bytes()), Some(format!("unable to load root certificates: {why}")));
        }
        assert!(ca_bundle_error(&json!({"caBundle": "not base64"})).is_some());
    }
}
