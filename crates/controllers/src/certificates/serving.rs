//! Approves Nodes' requests for the certificates of their kubelets' ports, each for itself and for addresses that its
//! Node object has. Upstream leaves these to people or to add-ons; without one, `kubectl logs` does not reach a Node
//! that has joined.

use std::net::IpAddr;
use std::sync::Arc;

use auth::NODE_USER_PREFIX;
use auth::signing::Asked;
use controller::{Change, Controller, Informers, Plan, Source};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;

use super::{KUBELET_SERVING, approve, check_kubelet_serving, has, has_certificate, usages};
use crate::object::name;

/// The controller's row. Keys are CertificateSigningRequests.
pub const CONTROLLER: Controller = Controller {
    name: "kubelet-serving-approving-controller",
    queue: "kubelet_serving_approving",
    sources: |_| vec![Source::itself::<CertificateSigningRequest>(), Source::of::<Node>(requests_of)],
    reconcile: |informers, key, now| {
        let nodes = informers.informer::<Node>();
        let request = informers.informer::<CertificateSigningRequest>().get(key);
        let Some(request) = request else { return Plan::nothing() };
        let node = request.spec.username.as_deref().and_then(|user| user.strip_prefix(NODE_USER_PREFIX));
        let node = node.and_then(|node| nodes.get(node));
        plan(&Snapshot { request, node }, now)
    },
};

/// The requests of a Node that came before its addresses were known here.
fn requests_of(change: &Change<Node>, informers: &Informers) -> Vec<String> {
    let addresses = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| node.status.clone()?.addresses);
    if addresses(&change.old) == addresses(&change.new) {
        return Vec::new();
    }
    let user = format!("{NODE_USER_PREFIX}{}", change.key);
    let requests = informers.informer::<CertificateSigningRequest>().list();
    let own = requests.iter().filter(|request| request.spec.username.as_deref() == Some(&user));
    own.map(|request| name(&request.metadata).to_owned()).collect()
}

/// What a decision is made from.
pub struct Snapshot {
    /// The request.
    pub request: Arc<CertificateSigningRequest>,
    /// The Node that sent it.
    pub node: Option<Arc<Node>>,
}

/// Decides whether to approve.
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let (mut plan, request) = (Plan::nothing(), &snapshot.request);
    let is_decided = has(request, "Approved") || has(request, "Denied") || has_certificate(request);
    if is_decided || request.spec.signer_name != KUBELET_SERVING {
        return plan;
    }
    let Ok(asked) = Asked::of_pem(&request.spec.request.0) else { return plan };
    let is_itself = request.spec.username.as_deref() == Some(asked.common_name.as_str());
    let is_node = request.spec.groups.iter().flatten().any(|group| group == auth::NODES);
    let names_itself = snapshot.node.as_ref().is_some_and(|node| is_at(node, &asked));
    if check_kubelet_serving(&asked, &usages(request)).is_err() || !is_itself || !is_node || !names_itself {
        return plan;
    }
    let message = "Auto approving kubelet server certificate for the Node's own addresses.";
    plan.push(approve(request, message, now));
    plan
}

/// Whether every name and address that is asked for is the Node's.
fn is_at(node: &Node, asked: &Asked) -> bool {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let ips: Vec<IpAddr> = addresses
        .filter(|address| matches!(address.type_.as_str(), "InternalIP" | "ExternalIP"))
        .filter_map(|address| address.address.parse().ok())
        .collect();
    asked.ips.iter().all(|ip| ips.contains(ip))
        && asked.dns_names.iter().all(|dns| dns == name(&node.metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::signing::tests::request_of;
    use crate::fixture::{noon, parse, render};

    fn node() -> Arc<Node> {
        Arc::new(parse(
            "{metadata: {name: a}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}",
        ))
    }

    #[test]
    fn an_address_is_the_nodes_own_or_it_is_not_approved() {
        let check = |ip: &str, dns: &[&str], expected: bool| {
            let asked = Asked {
                ips: vec![ip.parse().unwrap()],
                dns_names: dns.iter().map(|dns| (*dns).to_owned()).collect(),
                ..Asked::default()
            };
            assert_eq!(is_at(&node(), &asked), expected, "{ip} {dns:?}");
        };
        check("192.0.2.1", &["a"], true);
        check("192.0.2.1", &[], true);
        check("192.0.2.2", &["a"], false);
        check("192.0.2.1", &["kubernetes.default"], false);
    }

    #[test]
    fn only_a_node_that_is_there_is_approved_and_only_for_itself() {
        let mut request = request_of(KUBELET_SERVING);
        request.spec.usages = Some(vec!["server auth".into(), "digital signature".into()]);
        request.spec.groups = Some(vec!["system:nodes".into()]);
        request.spec.username = Some("system:node:b".into());
        let plan_of = |request: &CertificateSigningRequest, node| {
            render(&plan(&Snapshot { request: Arc::new(request.clone()), node }, noon()))
        };
        assert_eq!(plan_of(&request, Some(node())), "", "for another");
        request.spec.username = Some("system:node:a".into());
        assert_eq!(plan_of(&request, None), "", "no Node");
    }
}
