//! CertificateSigningRequests for the cluster's own signers: which are approved by themselves, and who gets what.
//!
//! Requests of kubelets are approved if RBAC lets their sender ask for such; everything else people approve. Signing
//! is done by the setting [`auth::issuing::Signers`]; without it nothing is signed.
//! Source: `pkg/controller/certificates`, `pkg/apis/certificates/helpers.go`.

pub mod approving;
pub mod cleaner;
pub mod pod_cleaner;
pub mod serving;
pub mod signing;

use std::collections::BTreeSet;

use auth::signing::{Asked, RequestError};
use controller::metadata::name;
use controller::request::{ApiRequest, Verb};
use controller::{Action, ResourceRef};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

/// Clients of the API server that people approve.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Kubelets as clients of the API server.
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Kubelets as servers.
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// What the oldest API's requests are for; nothing is checked.
const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// The rule of a signer that a request breaks. The request's condition says so, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Violation {
    /// What is asked for cannot be read.
    #[error(transparent)]
    Unreadable(#[from] RequestError),
    /// A rule that names nothing of the request.
    #[error("{0}")]
    Rule(&'static str),
    #[error("subject common name is not {0}")]
    CommonName(String),
    #[error("the node name {0:?} is reserved")]
    ReservedName(String),
    #[error("invalid usage for client certificate: {0}")]
    ClientUsage(String),
    /// There must be these, the last one or not.
    #[error("usages did not match [{}]", .0.join(" "))]
    Usages(Vec<String>),
}

/// Whether the condition is there and true.
fn has(request: &CertificateSigningRequest, condition_type: &str) -> bool {
    let conditions = request.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == condition_type && condition.status == "True")
}

fn has_certificate(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// The request with one more condition.
fn with_condition(
    request: &CertificateSigningRequest,
    condition_type: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> CertificateSigningRequest {
    let mut new = request.clone();
    let conditions = new.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: condition_type.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(Time(now)),
        last_transition_time: None,
    });
    new
}

/// Approves a request by itself.
fn approve(request: &CertificateSigningRequest, message: &str, now: Timestamp) -> Action {
    Action::Request(Box::new(ApiRequest {
        verb: Verb::Update,
        resource: ResourceRef::of::<CertificateSigningRequest>(),
        namespace: String::new(),
        name: name(&request.metadata).to_owned(),
        subresource: "approval",
        body: json!(with_condition(request, "Approved", "AutoApproved", message, now)),
    }))
}

fn usages(request: &CertificateSigningRequest) -> Vec<String> {
    request.spec.usages.clone().unwrap_or_default()
}

/// What is wrong with a kubelet's request for a client's certificate.
fn check_kubelet_client(asked: &Asked, usages: &[String]) -> Result<(), Violation> {
    check_organization(asked)?;
    let unwanted = [
        (!asked.dns_names.is_empty(), "DNS subjectAltNames are not allowed"),
        (!asked.emails.is_empty(), "Email subjectAltNames are not allowed"),
        (!asked.ips.is_empty(), "IP subjectAltNames are not allowed"),
        (!asked.uris.is_empty(), "URI subjectAltNames are not allowed"),
    ];
    refuse_first(&unwanted)?;
    check_usages(usages, "client auth")?;
    check_node_name(asked)
}

/// What is wrong with a kubelet's request for a server's certificate.
fn check_kubelet_serving(asked: &Asked, usages: &[String]) -> Result<(), Violation> {
    check_organization(asked)?;
    let unwanted = [
        (asked.dns_names.is_empty() && asked.ips.is_empty(), "DNS or IP subjectAltName is required"),
        (!asked.emails.is_empty(), "Email subjectAltNames are not allowed"),
        (!asked.uris.is_empty(), "URI subjectAltNames are not allowed"),
    ];
    refuse_first(&unwanted)?;
    check_usages(usages, "server auth")?;
    check_node_name(asked)
}

/// The one user that a signer of ours makes certificates for: a part of a Node beside its kubelet.
fn user_of_node(signer: &str) -> Option<&'static str> {
    match signer {
        auth::PROXY_SIGNER => Some(auth::PROXY_USER),
        auth::INGRESS_SIGNER => Some(auth::INGRESS_USER),
        _ => None,
    }
}

/// What is wrong with a Node's request for the certificate of such a part.
fn check_user(asked: &Asked, usages: &[String], user: &str) -> Result<(), Violation> {
    if asked.common_name != user {
        return Err(Violation::CommonName(user.to_owned()));
    }
    let has_names = [&asked.dns_names, &asked.emails, &asked.uris].iter().any(|names| !names.is_empty());
    let unwanted = [
        (!asked.organizations.is_empty() || asked.has_more, "the subject must be a common name only"),
        (has_names || !asked.ips.is_empty(), "subjectAltNames are not allowed"),
    ];
    refuse_first(&unwanted)?;
    check_usages(usages, "client auth")
}

/// What is wrong with the usages of a client's certificate.
fn check_client(usages: &[String]) -> Result<(), Violation> {
    let is_known =
        |usage: &&String| matches!(usage.as_str(), "digital signature" | "key encipherment" | "client auth");
    if let Some(usage) = usages.iter().find(|usage| !is_known(usage)) {
        return Err(Violation::ClientUsage(usage.clone()));
    }
    if usages.iter().any(|usage| usage == "client auth") {
        return Ok(());
    }
    Err(Violation::Rule("missing required usage for client certificate: client auth"))
}

fn refuse_first(rules: &[(bool, &'static str)]) -> Result<(), Violation> {
    rules.iter().find(|(is_broken, _)| *is_broken).map_or(Ok(()), |(_, text)| Err(Violation::Rule(text)))
}

fn check_organization(asked: &Asked) -> Result<(), Violation> {
    let is_node = asked.organizations == [auth::NODES];
    if is_node { Ok(()) } else { Err(Violation::Rule("subject organization is not system:nodes")) }
}

fn check_node_name(asked: &Asked) -> Result<(), Violation> {
    let Some(node) = asked.common_name.strip_prefix(auth::NODE_USER_PREFIX) else {
        return Err(Violation::Rule("subject common name does not begin with system:node:"));
    };
    if node.is_empty() || auth::pki::is_reserved_node_name(node) {
        return Err(Violation::ReservedName(node.to_owned()));
    }
    if asked.has_more {
        return Err(Violation::Rule("the subject must be an organization and a common name only"));
    }
    Ok(())
}

/// Exactly `side` and digital signature; key encipherment too, for keys that can.
fn check_usages(usages: &[String], side: &str) -> Result<(), Violation> {
    let given: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let least = BTreeSet::from([side, "digital signature"]);
    let most = BTreeSet::from([side, "digital signature", "key encipherment"]);
    if given == least || given == most {
        return Ok(());
    }
    Err(Violation::Usages(most.into_iter().map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(checked: Result<(), Violation>) -> String {
        checked.unwrap_err().to_string()
    }

    fn kubelet() -> Asked {
        Asked {
            common_name: "system:node:a".into(),
            organizations: vec!["system:nodes".into()],
            ..Asked::default()
        }
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_kubelet_asks_for_itself_and_for_nothing_else() {
        let usages = texts(&["digital signature", "client auth"]);
        assert_eq!(check_kubelet_client(&kubelet(), &usages), Ok(()));
        type Change = fn(&mut Asked);
        let rows: [(Change, &str); 10] = [
            (|a| a.organizations.push("system:nodes".into()), "subject organization is not system:nodes"),
            (|a| a.organizations.clear(), "subject organization is not system:nodes"),
            (|a| a.has_more = true, "the subject must be an organization and a common name only"),
            (|a| a.common_name = "system:node:kubernetes".into(), "the node name \"kubernetes\" is reserved"),
            (
                |a| a.common_name = "system:node:Kubernetes.default.svc".into(),
                "the node name \"Kubernetes.default.svc\" is reserved",
            ),
            (|a| a.common_name = "system:node:".into(), "the node name \"\" is reserved"),
            (|a| a.organizations.push("other".into()), "subject organization is not system:nodes"),
            (|a| a.dns_names.push("a".into()), "DNS subjectAltNames are not allowed"),
            (|a| a.uris.push("a".into()), "URI subjectAltNames are not allowed"),
            (|a| a.common_name = "a".into(), "subject common name does not begin with system:node:"),
        ];
        for (change, text) in rows {
            let mut asked = kubelet();
            change(&mut asked);
            assert_eq!(said(check_kubelet_client(&asked, &usages)), text);
        }
        assert_eq!(
            said(check_kubelet_client(&kubelet(), &texts(&["client auth"]))),
            "usages did not match [client auth digital signature key encipherment]"
        );
    }

    #[test]
    fn a_proxy_is_nobody_but_the_proxy() {
        let proxy = || Asked { common_name: "system:kube-proxy".into(), ..Asked::default() };
        let usages = texts(&["digital signature", "client auth"]);
        assert_eq!(check_user(&proxy(), &usages, auth::PROXY_USER), Ok(()));
        type Change = fn(&mut Asked);
        let rows: [(Change, &str); 5] = [
            (|a| a.common_name = "admin".into(), "subject common name is not system:kube-proxy"),
            (|a| a.organizations.push("system:masters".into()), "the subject must be a common name only"),
            (|a| a.has_more = true, "the subject must be a common name only"),
            (|a| a.dns_names.push("a".into()), "subjectAltNames are not allowed"),
            (|a| a.ips.push("192.0.2.1".parse().unwrap()), "subjectAltNames are not allowed"),
        ];
        for (change, text) in rows {
            let mut asked = proxy();
            change(&mut asked);
            assert_eq!(said(check_user(&asked, &usages, auth::PROXY_USER)), text);
        }
        assert!(
            check_user(&proxy(), &texts(&["digital signature", "server auth"]), auth::PROXY_USER).is_err()
        );
    }

    #[test]
    fn a_server_needs_a_name_and_a_client_the_right_usage() {
        let usages = texts(&["server auth", "key encipherment", "digital signature"]);
        let text = "DNS or IP subjectAltName is required";
        assert_eq!(said(check_kubelet_serving(&kubelet(), &usages)), text);
        let named = Asked { ips: vec!["10.0.0.1".parse().unwrap()], ..kubelet() };
        assert_eq!(check_kubelet_serving(&named, &usages), Ok(()));
        assert_eq!(check_client(&texts(&["client auth", "key encipherment"])), Ok(()));
        assert_eq!(said(check_client(&usages)), "invalid usage for client certificate: server auth");
        assert_eq!(
            said(check_client(&texts(&["digital signature"]))),
            "missing required usage for client certificate: client auth"
        );
    }
}
