//! Signs what was approved, for the cluster's own signers.
//!
//! Source: `pkg/controller/certificates/signer/signer.go`.

use auth::issuing::{IssueError, Signer, Signers};
use auth::signing::Asked;
use controller::metadata::name;
use controller::{Action, Controller, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::{
    CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, Violation, check_client, check_kubelet_client,
    check_kubelet_serving, check_user, has, has_certificate, usages, user_of_node, with_condition,
};
use crate::options::{Options, signed};

/// The controller's row. Keys are CertificateSigningRequests.
pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-signing-controller",
    queue: "certificate_signing",
    sources: |_| vec![Source::itself::<CertificateSigningRequest>()],
    reconcile: |informers, key, now| {
        let request = informers.informer::<CertificateSigningRequest>().get(key);
        let (Some(request), Some(signers)) = (request, informers.setting::<Signers>()) else {
            return Plan::nothing();
        };
        let Some(signer) = signer_of(&signers, &request.spec.signer_name) else { return Plan::nothing() };
        plan(&request, now, |request| {
            let wanted = request.spec.expiration_seconds.map(i64::from);
            let most = signed(Options::of(informers).cluster_signing_duration).as_secs();
            let seconds = wanted.unwrap_or(most).min(most);
            signer.sign(&request.spec.request.0, &usages(request), seconds, now)
        })
    },
};

/// Whose authority signs for a signer's name.
fn signer_of<'a>(signers: &'a Signers, name: &str) -> Option<&'a Signer> {
    let signer = match name {
        CLIENT | auth::PROXY_SIGNER | auth::INGRESS_SIGNER => &signers.client,
        KUBELET_CLIENT => &signers.kubelet_client,
        KUBELET_SERVING => &signers.kubelet_serving,
        LEGACY => &signers.legacy_unknown,
        _ => &None,
    };
    signer.as_deref()
}

/// Decides what becomes of a request: a certificate, made by `sign`, a failure, or nothing.
pub fn plan(
    request: &CertificateSigningRequest,
    now: Timestamp,
    sign: impl FnOnce(&CertificateSigningRequest) -> Result<String, IssueError>,
) -> Plan {
    let mut plan = Plan::nothing();
    if !has(request, "Approved")
        || has(request, "Denied")
        || has(request, "Failed")
        || has_certificate(request)
    {
        return plan;
    }
    let asked = Asked::of_pem(&request.spec.request.0);
    let checked = match &asked {
        Ok(asked) => check(request, asked),
        // Nobody asks for what cannot be read twice alike.
        Err(error) => Some(Err(Violation::Unreadable(*error))),
    };
    let Some(checked) = checked.filter(|_| is_ours(&request.spec.signer_name)) else { return plan };
    if let Err(violation) = checked {
        let message = violation.to_string();
        let failed = with_condition(request, "Failed", "SignerValidationFailure", &message, now);
        plan.push(Action::update_status(&failed));
        return plan;
    }
    match sign(request) {
        Ok(certificate) => {
            let mut signed = request.clone();
            signed.status.get_or_insert_default().certificate = Some(ByteString(certificate.into_bytes()));
            plan.push(Action::update_status(&signed));
        }
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(request = name(&request.metadata), error, "could not sign a certificate");
        }
    }
    plan
}

fn is_ours(signer: &str) -> bool {
    [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY].contains(&signer) || user_of_node(signer).is_some()
}

/// Whether the request keeps the rules of its signer; `None` for signers that are not ours.
fn check(request: &CertificateSigningRequest, asked: &Asked) -> Option<Result<(), Violation>> {
    let usages = usages(request);
    match request.spec.signer_name.as_str() {
        KUBELET_CLIENT => Some(check_kubelet_client(asked, &usages)),
        KUBELET_SERVING => Some(check_kubelet_serving(asked, &usages)),
        CLIENT => Some(check_client(&usages)),
        LEGACY => Some(Ok(())),
        signer => user_of_node(signer).map(|user| check_user(asked, &usages, user)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    /// A request with a key that nobody has any more, for `CN=system:node:a, O=system:nodes`.
    const NODE_REQUEST: &str = include_str!("node_request.pem");
    /// The same with its organization as T61String, which readers understand differently.
    const UNCLEAR_REQUEST: &str = include_str!("unclear_request.pem");

    pub(crate) fn request_of(signer: &str) -> CertificateSigningRequest {
        let mut request: CertificateSigningRequest =
            parse("{metadata: {name: r}, spec: {request: '', signerName: x, usages: [client auth]}}");
        request.spec.request = ByteString(NODE_REQUEST.as_bytes().to_vec());
        request.spec.signer_name = signer.to_owned();
        request
    }

    pub(crate) fn request() -> CertificateSigningRequest {
        request_of(CLIENT)
    }

    fn check(request: &CertificateSigningRequest, expect: &[&str]) {
        let plan = render(&plan(request, noon(), |_| Ok("PEM".to_owned())));
        assert_eq!(plan.is_empty(), expect.is_empty(), "{plan}");
        for part in expect {
            assert!(plan.contains(part), "{part} in {plan}");
        }
    }

    #[test]
    fn what_was_approved_is_signed_once() {
        check(&request(), &[]);
        let approved = with_condition(&request(), "Approved", "R", "m", noon());
        check(&approved, &["update certificatesigningrequests/status r", "\"certificate\":\"UEVN\""]);
        let mut signed = approved.clone();
        signed.status.get_or_insert_default().certificate = Some(ByteString(b"PEM".to_vec()));
        check(&signed, &[]);
        check(&with_condition(&approved, "Denied", "R", "m", noon()), &[]);
        let mut foreign = approved;
        foreign.spec.signer_name = "example.com/s".into();
        check(&foreign, &[]);
    }

    #[test]
    fn each_signers_name_has_its_own_authority() {
        let make = |name: &str| {
            let folder = std::env::temp_dir().join(format!("knarr-signers-{}-{name}", std::process::id()));
            let authority = auth::pki::Authority::named(&folder, name, noon()).unwrap();
            std::fs::remove_dir_all(folder).unwrap();
            let signer = Signer::new(authority.certificate_pem(), authority.key_pem()).unwrap();
            (Some(std::sync::Arc::new(signer)), authority.certificate_pem().to_owned())
        };
        let ((clients, clients_pem), (kubelets, kubelets_pem)) = (make("clients"), make("kubelets"));
        let signers = Signers {
            client: clients.clone(),
            kubelet_client: clients,
            kubelet_serving: kubelets,
            legacy_unknown: None,
        };
        let check = |name: &str, expected: Option<&str>| {
            let signed = signer_of(&signers, name)
                .map(|signer| signer.sign(NODE_REQUEST.as_bytes(), &[], 3600, noon()).unwrap());
            assert_eq!(signed.is_some(), expected.is_some(), "{name}");
            if let (Some(signed), Some(expected)) = (signed, expected) {
                assert!(auth::pki::is_issued_by(&signed, expected), "{name}");
            }
        };
        check(CLIENT, Some(&clients_pem));
        check(KUBELET_CLIENT, Some(&clients_pem));
        check(auth::PROXY_SIGNER, Some(&clients_pem));
        check(KUBELET_SERVING, Some(&kubelets_pem));
        check(LEGACY, None);
        check("example.com/s", None);
    }

    #[test]
    fn a_subject_that_cannot_be_read_fails() {
        let mut approved = with_condition(&request(), "Approved", "R", "m", noon());
        approved.spec.request = ByteString(UNCLEAR_REQUEST.as_bytes().to_vec());
        check(&approved, &["\"type\":\"Failed\"", "SignerValidationFailure", "must be UTF8String"]);
        approved.spec.signer_name = "example.com/s".into();
        check(&approved, &[]);
    }

    #[test]
    fn what_breaks_the_signers_rules_fails() {
        let mut approved = with_condition(&request(), "Approved", "R", "m", noon());
        approved.spec.usages = Some(vec!["server auth".into()]);
        check(
            &approved,
            &[
                "\"type\":\"Failed\"",
                "SignerValidationFailure",
                "invalid usage for client certificate: server auth",
            ],
        );
    }
}
