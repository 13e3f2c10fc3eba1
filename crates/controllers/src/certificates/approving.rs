//! Approves kubelets' requests for client certificates, if their sender may ask for such; and Nodes' requests for the
//! certificate of their proxy, which upstream's Nodes get as a ServiceAccount's token.
//!
//! Source: `pkg/controller/certificates/approver/sarapprove.go`.

use auth::signing::Asked;
use controller::{Action, Controller, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use super::{
    KUBELET_CLIENT, approve, check_kubelet_client, check_user, has, has_certificate, usages, user_of_node,
};

/// The controller's row. Keys are CertificateSigningRequests.
pub const CONTROLLER: Controller = Controller {
    name: "certificatesigningrequest-approving-controller",
    queue: "certificate_approving",
    sources: |_| vec![Source::itself::<CertificateSigningRequest>()],
    reconcile: |informers, key, now| {
        let request = informers.informer::<CertificateSigningRequest>().get(key);
        request.map_or_else(Plan::nothing, |request| plan(&request, now))
    },
};

/// Decides whether to approve: a kubelet's request, for itself or for a node to be.
pub fn plan(request: &CertificateSigningRequest, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    if has(request, "Approved") || has(request, "Denied") || has_certificate(request) {
        return plan;
    }
    let Ok(asked) = Asked::of_pem(&request.spec.request.0) else { return plan };
    if let Some(user) = user_of_node(&request.spec.signer_name) {
        let is_node = request.spec.groups.iter().flatten().any(|group| group == auth::NODES);
        if is_node && check_user(&asked, &usages(request), user).is_ok() {
            plan.push(Action::require_allowed(&may_ask(request, "selfnodeclient")));
            plan.push(approve(request, "Auto approving the certificate of a Node's own part.", now));
        }
        return plan;
    }
    if request.spec.signer_name != KUBELET_CLIENT {
        return plan;
    }
    if check_kubelet_client(&asked, &usages(request)).is_err() {
        return plan;
    }
    let is_itself = request.spec.username.as_deref() == Some(asked.common_name.as_str());
    let (subresource, message) = if is_itself {
        ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.")
    } else {
        ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")
    };
    plan.push(Action::require_allowed(&may_ask(request, subresource)));
    plan.push(approve(request, message, now));
    plan
}

/// Whether the sender may create requests of that sort.
fn may_ask(request: &CertificateSigningRequest, subresource: &str) -> SubjectAccessReviewSpec {
    let spec = &request.spec;
    SubjectAccessReviewSpec {
        user: spec.username.clone(),
        uid: spec.uid.clone(),
        groups: spec.groups.clone(),
        extra: spec.extra.clone(),
        resource_attributes: Some(ResourceAttributes {
            group: Some("certificates.k8s.io".to_owned()),
            resource: Some("certificatesigningrequests".to_owned()),
            verb: Some("create".to_owned()),
            version: Some("*".to_owned()),
            subresource: Some(subresource.to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::signing::tests::{request, request_of};
    use crate::fixture::{noon, render};

    fn check(request: &CertificateSigningRequest, subresource: Option<&str>) {
        let plan = render(&plan(request, noon()));
        let Some(subresource) = subresource else { return assert_eq!(plan, "") };
        assert!(plan.contains(&format!("\"subresource\":\"{subresource}\"")), "{plan}");
        assert!(plan.contains("update certificatesigningrequests/approval r"), "{plan}");
        assert!(plan.contains("AutoApproved"), "{plan}");
    }

    #[test]
    fn kubelets_are_approved_for_themselves_and_others_for_nodes_to_be() {
        let mut kubelet = request_of(KUBELET_CLIENT);
        kubelet.spec.usages = Some(vec!["client auth".into(), "digital signature".into()]);
        kubelet.spec.username = Some("system:node:a".into());
        check(&kubelet, Some("selfnodeclient"));
        kubelet.spec.username = Some("system:bootstrap:abcdef".into());
        check(&kubelet, Some("nodeclient"));
        kubelet.spec.usages = Some(vec!["server auth".into()]);
        check(&kubelet, None);
    }

    #[test]
    fn the_certificate_of_a_nodes_part_is_for_nodes_and_for_its_name() {
        let parts = [(auth::PROXY_SIGNER, auth::PROXY_USER), (auth::INGRESS_SIGNER, auth::INGRESS_USER)];
        for (signer, user) in parts {
            let mut request = request_of(signer);
            request.spec.usages = Some(vec!["client auth".into(), "digital signature".into()]);
            request.spec.username = Some("system:node:a".into());
            request.spec.groups = Some(vec!["system:nodes".into()]);
            check(&request, None);
            for (_, asked) in parts {
                let subject = auth::pki::Subject::user("part", asked);
                request.spec.request.0 = auth::pki::request(&subject).unwrap().0.into_bytes();
                check(&request, (asked == user).then_some("selfnodeclient"));
            }
            let subject = auth::pki::Subject::user("part", user);
            request.spec.request.0 = auth::pki::request(&subject).unwrap().0.into_bytes();
            request.spec.groups = Some(vec!["system:authenticated".into()]);
            check(&request, None);
        }
    }

    #[test]
    fn people_approve_everything_else() {
        check(&request(), None);
    }
}
