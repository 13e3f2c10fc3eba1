//! Signs what was approved, for the cluster's own signers.
//!
//! Source: `pkg/controller/certificates/signer/signer.go`.

use auth::issuing::{IssueError, Signer};
use auth::signing::Asked;
use controller::{Action, Controller, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::{
    CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY, check_client, check_kubelet_client,
    check_kubelet_serving, has, has_certificate, usages, with_condition,
};
use crate::object::name;

/// The controller's row. Keys are CertificateSigningRequests.
pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-signing-controller",
    queue: "certificate_signing",
    sources: |_| vec![Source::itself::<CertificateSigningRequest>()],
    reconcile: |informers, key, now| {
        let request = informers.informer::<CertificateSigningRequest>().get(key);
        let (Some(request), Some(signer)) = (request, informers.setting::<Signer>()) else {
            return Plan::nothing();
        };
        plan(&request, now, |request| {
            let wanted = request.spec.expiration_seconds.map(i64::from);
            signer.sign(&request.spec.request.0, &usages(request), wanted, now)
        })
    },
};

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
    let Ok(asked) = Asked::of_pem(&request.spec.request.0) else { return plan };
    let Some(checked) = check(request, &asked) else { return plan };
    if let Err(why) = checked {
        let failed = with_condition(request, ("Failed", "SignerValidationFailure", &why), now);
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

/// Whether the request keeps the rules of its signer; `None` for signers that are not ours.
fn check(request: &CertificateSigningRequest, asked: &Asked) -> Option<Result<(), String>> {
    let usages = usages(request);
    match request.spec.signer_name.as_str() {
        KUBELET_CLIENT => Some(check_kubelet_client(asked, &usages)),
        KUBELET_SERVING => Some(check_kubelet_serving(asked, &usages)),
        CLIENT => Some(check_client(&usages)),
        LEGACY => Some(Ok(())),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fixture::{noon, parse, render};

    /// A request with a key that nobody has any more, for `CN=system:node:a, O=system:nodes`.
    const NODE_REQUEST: &str = include_str!("node_request.pem");

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
        let approved = with_condition(&request(), ("Approved", "R", "m"), noon());
        check(&approved, &["update certificatesigningrequests/status r", "\"certificate\":\"UEVN\""]);
        let mut signed = approved.clone();
        signed.status.get_or_insert_default().certificate = Some(ByteString(b"PEM".to_vec()));
        check(&signed, &[]);
        check(&with_condition(&approved, ("Denied", "R", "m"), noon()), &[]);
        let mut foreign = approved;
        foreign.spec.signer_name = "example.com/s".into();
        check(&foreign, &[]);
    }

    #[test]
    fn what_breaks_the_signers_rules_fails() {
        let mut approved = with_condition(&request(), ("Approved", "R", "m"), noon());
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
