//! Nodes' addresses for Services: those of all Nodes that take part, of each of the Service's families the external ones if
//! any Node has some.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use controller::load_balancer::{NODE_ADDRESSES, is_candidate, is_ready};
use controller::metadata::{key, name};
use k8s_openapi::api::core::v1::{Node, Service};
use machinery::net::Family;

use super::port_owners::PortOwners;
use super::{Given, Refusal, Snapshot, families, ingress, is_local, service_of, spec_of};

/// What is looked at of a Node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Facts {
    is_candidate: bool,
    is_ready: bool,
    addresses: Vec<(String, String)>,
}

impl Facts {
    pub(super) fn of(node: &Node) -> Self {
        let addresses =
            node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
        Self {
            is_candidate: is_candidate(node),
            is_ready: is_ready(node),
            addresses: addresses.map(|one| (one.type_.clone(), one.address.clone())).collect(),
        }
    }
}

fn addresses(node: &Node, kind: &str, families: &[Family]) -> Vec<IpAddr> {
    let all = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let all = all.filter(|address| address.type_ == kind);
    let all = all.filter_map(|address| address.address.parse::<IpAddr>().ok());
    all.filter(|ip| families.contains(&Family::of(*ip))).collect()
}

/// Nodes that may take part. If none of them is ready, those that are not: they may be fine, and cut off from us only.
fn candidates(nodes: &[Arc<Node>]) -> Vec<&Arc<Node>> {
    let all: Vec<&Arc<Node>> = nodes.iter().filter(|node| is_candidate(node)).collect();
    let ready: Vec<&Arc<Node>> = all.iter().copied().filter(|node| is_ready(node)).collect();
    if ready.is_empty() { all } else { ready }
}

/// The names of Nodes with a ready endpoint of the Service.
fn nodes_with_endpoints<'a>(service: &Service, snapshot: &'a Snapshot) -> BTreeSet<&'a str> {
    let own = key(&service.metadata);
    let slices = snapshot.slices.iter().filter(|slice| service_of(slice).as_ref() == Some(&own));
    let endpoints = slices.flat_map(|slice| &slice.endpoints);
    let ready = endpoints.filter(|endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    });
    ready.filter_map(|endpoint| endpoint.node_name.as_deref()).collect()
}

/// Gives the addresses of Nodes, and takes the Service's ports there.
pub(super) fn give(
    service: &Service,
    snapshot: &Snapshot,
    owners: &mut PortOwners,
) -> Result<Given, Refusal> {
    let mut nodes = candidates(&snapshot.nodes);
    if nodes.is_empty() {
        return Err(Refusal::NoNodes);
    }
    if let Some(conflict) = owners.conflict(service) {
        return Err(Refusal::Failed(conflict));
    }
    owners.take(service);
    if is_local(service) {
        let with_endpoints = nodes_with_endpoints(service, snapshot);
        nodes.retain(|node| with_endpoints.contains(name(&node.metadata)));
        if nodes.is_empty() {
            return Err(Refusal::NoEndpoints);
        }
    }
    let families = families(service);
    let current = ingress(service);
    let mut refused = Vec::new();
    nodes.retain(|node| {
        let has = |kind| addresses(node, kind, &families).iter().any(|ip| current.contains(ip));
        // Who was there first stays.
        let conflict = owners
            .conflict_on(service, name(&node.metadata))
            .filter(|_| !has("InternalIP") && !has("ExternalIP"));
        let is_free = conflict.is_none();
        refused.extend(conflict);
        is_free
    });
    if let ([], Some(first)) = (nodes.as_slice(), refused.first()) {
        return Err(Refusal::Failed(first.clone()));
    }
    let of = |kind: &str, family: Family| -> BTreeSet<IpAddr> {
        nodes.iter().flat_map(|node| addresses(node, kind, &[family])).collect()
    };
    let mut given = Vec::new();
    for family in families {
        let external = of("ExternalIP", family);
        given.extend(if external.is_empty() { of("InternalIP", family) } else { external });
    }
    if given.is_empty() {
        return Err(Refusal::Failed("no Node has an address of the Service's families".to_owned()));
    }
    let mut message = "reached at the addresses of Nodes".to_owned();
    if spec_of(service).is_some_and(|spec| spec.load_balancer_ip.as_ref().is_some_and(|ip| !ip.is_empty())) {
        message.push_str("; there is no pool that spec.loadBalancerIP could be of");
    }
    for conflict in refused {
        message.push_str("; ");
        message.push_str(&conflict);
    }
    Ok(Given { reason: NODE_ADDRESSES, addresses: given, message })
}
