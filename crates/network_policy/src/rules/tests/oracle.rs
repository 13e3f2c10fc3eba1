//! What upstream's text says about a connection, read from the objects themselves and by nothing that rules are made with.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::endpoints::{Endpoint, Locality, State};

type Labels = BTreeMap<String, String>;

/// A Pod, or an address that is no Pod's.
#[derive(Clone, Debug)]
pub(super) struct Someone {
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
}

impl Someone {
    pub(super) fn outside(ip: IpAddr) -> Self {
        Self { name: String::new(), endpoint: Endpoint { addresses: vec![ip], ..Endpoint::default() } }
    }

    pub(super) fn is_pod(&self) -> bool {
        !self.name.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) namespaces: BTreeMap<String, Labels>,
    pub(super) pods: Vec<Someone>,
    pub(super) policies: BTreeMap<String, NetworkPolicy>,
}

impl World {
    pub(super) fn put(&mut self, object: NetworkPolicy) {
        let [namespace, name] =
            [&object.metadata.namespace, &object.metadata.name].map(|it| it.clone().unwrap());
        self.policies.insert(format!("{namespace}/{name}"), object);
    }

    /// Whether `from` may begin a connection to `to`, as far as this Node decides.
    pub(super) fn allows(&self, from: &Someone, to: &Someone, protocol: u8, port: u16) -> bool {
        let (client, server) = (&from.endpoint, &to.endpoint);
        if client.addresses == server.addresses {
            return true;
        }
        let is_judged = |it: &Someone| it.is_pod() && it.endpoint.locality == Locality::Here;
        let says = |wanted: &str, pod: &Endpoint, peer: &Someone| {
            let specs: Vec<&NetworkPolicySpec> =
                self.selecting(pod).filter(|spec| is_about(spec, wanted)).collect();
            let lets = |spec: &&NetworkPolicySpec| {
                let rules: Vec<_> = match wanted {
                    "Ingress" => spec
                        .ingress
                        .iter()
                        .flatten()
                        .map(|rule| (rule.from.clone(), rule.ports.clone()))
                        .collect(),
                    _ => spec
                        .egress
                        .iter()
                        .flatten()
                        .map(|rule| (rule.to.clone(), rule.ports.clone()))
                        .collect(),
                };
                rules.into_iter().any(|(peers, ports)| {
                    let (peers, ports) = (peers.unwrap_or_default(), ports.unwrap_or_default());
                    let is_peer =
                        peers.is_empty() || peers.iter().any(|it| self.is_peer(it, &pod.namespace, peer));
                    is_peer
                        && (ports.is_empty() || ports.iter().any(|it| is_port(it, server, protocol, port)))
                })
            };
            specs.is_empty() || specs.iter().any(lets)
        };
        (!is_judged(from) || says("Egress", client, to)) && (!is_judged(to) || says("Ingress", server, from))
    }

    fn selecting<'a>(&'a self, pod: &'a Endpoint) -> impl Iterator<Item = &'a NetworkPolicySpec> {
        static NONE: NetworkPolicySpec =
            NetworkPolicySpec { egress: None, ingress: None, pod_selector: None, policy_types: None };
        let own = self.policies.values().filter(|it| it.metadata.namespace.as_ref() == Some(&pod.namespace));
        let specs = own.map(|it| it.spec.as_ref().unwrap_or(&NONE));
        specs.filter(|spec| spec.pod_selector.as_ref().is_none_or(|it| is_selected(it, &pod.labels)))
    }

    fn is_peer(&self, peer: &NetworkPolicyPeer, own: &str, other: &Someone) -> bool {
        if let Some(block) = &peer.ip_block {
            let ip = other.endpoint.addresses[0];
            let all: Option<Vec<bool>> = block.except.iter().flatten().map(|cidr| is_in(ip, cidr)).collect();
            return is_in(ip, &block.cidr) == Some(true) && all.is_some_and(|all| !all.contains(&true));
        }
        let endpoint = &other.endpoint;
        if !other.is_pod() || endpoint.state == State::Over {
            return false;
        }
        let is_there = match &peer.namespace_selector {
            Some(selector) => is_selected(selector, &self.namespaces[&endpoint.namespace]),
            None => peer.pod_selector.is_some() && endpoint.namespace == own,
        };
        is_there && peer.pod_selector.as_ref().is_none_or(|selector| is_selected(selector, &endpoint.labels))
    }
}

fn is_about(spec: &NetworkPolicySpec, wanted: &str) -> bool {
    match spec.policy_types.as_deref() {
        None | Some([]) => wanted == "Ingress" || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
        Some(types) => types.iter().any(|it| it == wanted),
    }
}

fn is_port(wanted: &NetworkPolicyPort, server: &Endpoint, protocol: u8, port: u16) -> bool {
    let numbers = [("TCP", 6), ("UDP", 17), ("SCTP", 132)];
    let named = wanted.protocol.as_deref().unwrap_or("TCP");
    if !numbers.contains(&(named, protocol)) {
        return false;
    }
    match (&wanted.port, wanted.end_port) {
        (None, _) => true,
        (Some(IntOrString::Int(first)), last) => {
            let is_valid = |port: i32| (0..=65_535).contains(&port);
            let last = last.unwrap_or(*first);
            is_valid(*first) && is_valid(last) && (*first..=last).contains(&i32::from(port))
        }
        (Some(IntOrString::String(name)), _) => {
            let is_it =
                |it: &&crate::NamedPort| it.name == *name && it.protocol == protocol && it.port == port;
            server.state == State::Running && server.ports.iter().any(|it| is_it(&it))
        }
    }
}

/// `None` for what is no network.
fn is_in(ip: IpAddr, cidr: &str) -> Option<bool> {
    let (network, bits) = cidr.split_once('/')?;
    let (network, bits): (IpAddr, u32) = (network.parse().ok()?, bits.parse().ok()?);
    Some(match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            (ip.to_bits() ^ network.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            (ip.to_bits() ^ network.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    })
}

fn is_selected(selector: &LabelSelector, labels: &Labels) -> bool {
    let pairs = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    pairs
        && selector.match_expressions.iter().flatten().all(|it| {
            let value = labels.get(&it.key);
            let is_one = value.is_some_and(|value| it.values.iter().flatten().any(|other| other == value));
            match it.operator.as_str() {
                "In" => is_one,
                "NotIn" => !is_one,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
