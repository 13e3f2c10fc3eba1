//! A Service's external addresses are from outside: none that the cluster, its Nodes or its API servers have, and none
//! that means another machine on every machine.
//!
//! Otherwise whoever may write Services takes what others send to these addresses (CVE-2020-8554), if only because a
//! NodePort is not enough for him. Upstream leaves this to policies. Addresses that a Service has already may stay, so
//! that it can be changed: what became the cluster's own later is not served by the proxy.

use std::collections::BTreeMap;
use std::net::IpAddr;

use machinery::field::{FieldError, FieldErrors, Path};
use machinery::metadata::Metadata;
use machinery::net::{Cidr, legacy_ip};
use serde_json::Value;

use super::{Context, Operation, text};
use crate::addresses;
use crate::cluster::Cluster;
use crate::status::{Error, Result};

/// Our own load balancer, which gives Services the Nodes' addresses, with ports that nobody has there. What it may write is
/// bound by the proxy, too: never a place where the API server listens.
const LOAD_BALANCER: &str = "system:serviceaccount:kube-system:servicelb-controller";

/// Refuses new external addresses that belong to somebody.
pub(super) fn validate(context: &Context<'_>, service: &Value) -> Result<()> {
    if !context.is_core_kind("services") || context.operation == Operation::Delete {
        return Ok(());
    }
    let had = context.old.map(external).unwrap_or_default();
    let new = external(service).into_iter().filter(|one| !had.iter().any(|old| old.is_same(one)));
    let new: Vec<External> = new.collect();
    if new.is_empty() {
        return Ok(());
    }
    let mut own = Own::of(context.cluster);
    if context.request.user().name == LOAD_BALANCER {
        own.are_nodes_given = true;
    }
    let mut errors = FieldErrors::new();
    for one in &new {
        if let Some(why) = own.refusal(one) {
            errors.push(FieldError::invalid(&one.path, one.shown.as_str(), &why));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(context.request.kind.kind_subject(), Metadata::of(service).name(), &errors))
}

/// A field that an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    ExternalIps,
    LoadBalancerIp,
    Ingress,
    /// The load balancer's own, which only says where clients go: no node takes what is sent there. Source: KEP-1860.
    ProxyIngress,
}

/// An address of a Service outside of the cluster.
struct External {
    field: Field,
    path: Path,
    shown: String,
    ip: IpAddr,
}

impl External {
    fn is_same(&self, other: &Self) -> bool {
        self.field == other.field && self.ip == other.ip
    }
}

/// All that a Service has. What is no address has been refused, or is not looked at by anybody.
fn external(service: &Value) -> Vec<External> {
    let mut found = Vec::new();
    let mut take = |field: Field, path: Path, shown: &str| {
        if let Some(ip) = legacy_ip(shown) {
            found.push(External { field, path, shown: shown.to_owned(), ip });
        }
    };
    let list = |pointer: &str| service.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let spec = Path::new("spec");
    for (index, ip) in list("/spec/externalIPs").enumerate() {
        take(Field::ExternalIps, spec.child("externalIPs").index(index), ip.as_str().unwrap_or_default());
    }
    take(Field::LoadBalancerIp, spec.child("loadBalancerIP"), text(service, "/spec/loadBalancerIP"));
    let status = Path::new("status").child("loadBalancer").child("ingress");
    for (index, ingress) in list("/status/loadBalancer/ingress").enumerate() {
        let is_proxy = text(ingress, "/ipMode") == "Proxy";
        let field = if is_proxy { Field::ProxyIngress } else { Field::Ingress };
        take(field, status.index(index).child("ip"), text(ingress, "/ip"));
    }
    found
}

/// What belongs to the cluster.
#[derive(Debug, Default)]
struct Own {
    service_ranges: Vec<Cidr>,
    pod_ranges: Vec<Cidr>,
    cluster: Vec<IpAddr>,
    /// And whose it is.
    nodes: BTreeMap<IpAddr, String>,
    /// Whether Nodes' addresses may be a load balancer's.
    are_nodes_given: bool,
}

impl Own {
    fn of(cluster: &Cluster) -> Self {
        let config = &cluster.config;
        let mut own = Self {
            service_ranges: addresses::service_networks(cluster),
            pod_ranges: config.options.pod_cidrs.clone(),
            cluster: addresses::alive(cluster).into_iter().chain(config.bind.map(|bind| bind.ip())).collect(),
            nodes: BTreeMap::new(),
            are_nodes_given: false,
        };
        own.service_ranges.extend(config.service_cidrs.iter());
        let nodes = cluster.kind("", "v1", "nodes");
        let nodes = nodes.map(|kind| kind.cache().list(kind.prefix(), 0).objects);
        for node in nodes.unwrap_or_default() {
            own.add_node(&node.part(&["/metadata/name", "/spec/podCIDRs", "/status/addresses"]));
        }
        own
    }

    fn add_node(&mut self, node: &Value) {
        let list = |pointer: &str| node.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        self.pod_ranges.extend(list("/spec/podCIDRs").filter_map(|range| Cidr::legacy(range.as_str()?)));
        let addresses = list("/status/addresses").filter_map(|address| legacy_ip(text(address, "/address")));
        for address in addresses {
            self.nodes.insert(address, Metadata::of(node).name().to_owned());
        }
    }

    /// Why an address cannot be a Service's external one; `None` if it can.
    fn refusal(&self, external: &External) -> Option<String> {
        let ip = external.ip;
        let range = |ranges: &[Cidr]| ranges.iter().find(|range| range.contains(ip)).copied();
        if let Some(what) = special(ip) {
            return Some(format!("may not be {what}"));
        }
        if let Some(range) = range(&self.service_ranges) {
            return Some(format!("may not be in the range of cluster IPs {range}"));
        }
        if let Some(range) = range(&self.pod_ranges) {
            return Some(format!("may not be in the range of Pods {range}"));
        }
        let is_node = self.nodes.contains_key(&ip);
        if external.field == Field::ProxyIngress
            || (external.field == Field::Ingress && is_node && self.are_nodes_given)
        {
            return None;
        }
        if self.cluster.contains(&ip) {
            return Some("may not be an address of the API server".to_owned());
        }
        self.nodes.get(&ip).map(|node| format!("may not be an address of Node {node:?}"))
    }
}

/// Addresses that are no single machine's.
fn special(ip: IpAddr) -> Option<&'static str> {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    match ip {
        _ if ip.is_loopback() => Some("a loopback address"),
        _ if is_link_local => Some("a link-local address"),
        _ if ip.is_unspecified() => Some("unspecified"),
        _ if ip.is_multicast() => Some("a multicast address"),
        IpAddr::V4(ip) if ip.is_broadcast() => Some("the broadcast address"),
        _ => None,
    }
}
