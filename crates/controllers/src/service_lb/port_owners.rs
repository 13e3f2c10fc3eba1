//! The owners of the Nodes' ports: a port leads to one Service or Pod.

use std::collections::BTreeMap;

use controller::metadata::key;
use controller::pod::Pod;
use k8s_openapi::api::core::v1::Service;

use super::{Snapshot, spec_of};
use crate::pod::{is_finished, node_name};

/// A protocol and a port of all Nodes.
type Port = (String, i32);

/// A port that a Pod has of its Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    node: String,
    port: Port,
    pod: String,
}

/// The ports of Nodes, with who has them.
pub(super) struct PortOwners {
    holders: BTreeMap<Port, Holder>,
    host_ports: BTreeMap<(String, Port), String>,
}

struct Holder {
    /// The Service's key; empty for the Node itself.
    service: String,
    what: &'static str,
}

/// Protocol and number as users write them.
fn shown((protocol, port): &Port) -> String {
    format!("port {port}/{protocol}")
}

fn protocol(given: Option<&str>) -> String {
    given.filter(|text| !text.is_empty()).unwrap_or("TCP").to_owned()
}

fn ports(service: &Service) -> impl Iterator<Item = Port> {
    let ports = spec_of(service).and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    ports.map(|port| (protocol(port.protocol.as_deref()), port.port))
}

/// The ports of every Node that lead to a Service by their number alone.
pub(super) fn node_ports(service: &Service) -> Vec<Port> {
    let spec = spec_of(service);
    let ports = spec.and_then(|spec| spec.ports.as_ref()).into_iter().flatten();
    let node_ports = ports.filter_map(|port| Some((protocol(port.protocol.as_deref()), port.node_port?)));
    let check = spec.and_then(|spec| spec.health_check_node_port).map(|port| (protocol(None), port));
    node_ports.chain(check).filter(|(_, port)| *port != 0).collect()
}

/// The ports that a Pod has of its Node.
pub(super) fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = pod.spec.as_ref().filter(|_| !is_finished(pod) && !node_name(pod).is_empty()) else {
        return Vec::new();
    };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let taken = ports.filter_map(|port| Some((protocol(port.protocol.as_deref()), port.host_port?)));
    let taken = taken.filter(|(_, port)| *port != 0);
    taken.map(|port| HostPort { node: node_name(pod).to_owned(), port, pod: key(&pod.metadata) }).collect()
}

impl PortOwners {
    /// What is taken before the first Service gets any.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut holders = BTreeMap::new();
        for port in &snapshot.settings.own_ports {
            let holder = Holder { service: String::new(), what: "the Node itself" };
            holders.insert((protocol(None), i32::from(*port)), holder);
        }
        for service in &snapshot.services {
            for port in node_ports(service) {
                let holder = Holder { service: key(&service.metadata), what: "a node port of Service" };
                holders.entry(port).or_insert(holder);
            }
        }
        let host_ports = snapshot.host_ports.iter();
        let host_ports =
            host_ports.map(|one| ((one.node.clone(), one.port.clone()), one.pod.clone())).collect();
        Self { holders, host_ports }
    }

    /// Why the Service's ports are not free on any Node.
    pub(super) fn conflict(&self, service: &Service) -> Option<String> {
        let own = key(&service.metadata);
        ports(service).find_map(|port| {
            let holder = self.holders.get(&port).filter(|holder| holder.service != own)?;
            let owner = format!("{} {}", holder.what, holder.service);
            Some(format!("{} of the Nodes is taken by {}", shown(&port), owner.trim_end()))
        })
    }

    /// Why they are not free on this one.
    pub(super) fn conflict_on(&self, service: &Service, node: &str) -> Option<String> {
        ports(service).find_map(|port| {
            let shown = shown(&port);
            let pod = self.host_ports.get(&(node.to_owned(), port))?;
            Some(format!("{shown} of Node {node} is a host port of Pod {pod}"))
        })
    }

    /// Gives a Service its ports.
    pub(super) fn take(&mut self, service: &Service) {
        for port in ports(service) {
            let holder = Holder { service: key(&service.metadata), what: "the load balancer of Service" };
            self.holders.insert(port, holder);
        }
    }
}
