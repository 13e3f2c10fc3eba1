//! A NetworkPolicy as it is meant: defaults applied, texts read, what cannot be read left out and told.
//!
//! What is not understood allows nothing. Source: `NetworkPolicySpec`, networking/v1.

use std::collections::{BTreeMap, BTreeSet};

use controller::selector::{Labels, selects};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery::net::Cidr;

use crate::ranges::{Block, Ranges};

/// The direction of a connection, seen from the Pods that a policy selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To them.
    Ingress,
    /// From them.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// A NetworkPolicy object, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// The namespace, whose Pods it selects.
    pub namespace: String,
    /// `namespace/name`.
    pub key: String,
    selector: LabelSelector,
    ingress: Option<Vec<Rule>>,
    egress: Option<Vec<Rule>>,
    /// Parts that cannot be understood, by their path, and so allow nothing.
    pub problems: Vec<String>,
}

/// Connections that are let through: from or to one of the peers, on one of the ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// `None` is everybody.
    pub peers: Option<Peers>,
    /// `None` is every port of every protocol.
    pub ports: Option<Ports>,
}

/// The peers on the other end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peers {
    /// Selected Pods.
    pub pods: Vec<PeerSelector>,
    /// Addresses.
    pub blocks: Vec<Block>,
}

/// Pods of some namespaces.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerSelector {
    /// Where.
    pub namespaces: Namespaces,
    /// The selector of their Pods.
    pub pods: LabelSelector,
}

/// Namespaces of a peer.
#[derive(Clone, Debug, PartialEq)]
pub enum Namespaces {
    /// The policy's.
    Own(String),
    /// By their labels.
    Selected(LabelSelector),
}

/// Ports of who answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// By the protocol's number.
    pub numbers: BTreeMap<u8, Ranges<u16>>,
    /// Names that containers give to their ports, by the protocol's number.
    pub names: BTreeSet<(u8, String)>,
}

impl PeerSelector {
    /// `true` if a Pod is meant, of a namespace with these labels; of one that is not known, none is by labels.
    pub fn selects(&self, namespace: &str, of_namespace: Option<&Labels>, labels: &Labels) -> bool {
        let is_there = match &self.namespaces {
            Namespaces::Own(own) => own == namespace,
            Namespaces::Selected(selector) => of_namespace.is_some_and(|all| selects(selector, Some(all))),
        };
        is_there && selects(&self.pods, Some(labels))
    }
}

impl Policy {
    /// Reads an object.
    pub fn of(object: &NetworkPolicy) -> Self {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let key = format!("{namespace}/{}", object.metadata.name.as_deref().unwrap_or_default());
        let spec = object.spec.clone().unwrap_or_default();
        let mut policy =
            Self { namespace, key, selector: spec.pod_selector.unwrap_or_default(), ..Self::default() };
        let (ingress, egress) = (spec.ingress.unwrap_or_default(), spec.egress.unwrap_or_default());
        // Source: the default of `policyTypes`, which the server writes down.
        let types = spec.policy_types.filter(|types| !types.is_empty());
        let is_of = |name: &str, default: bool| {
            types.as_ref().map_or(default, |types| types.iter().any(|it| it == name))
        };
        if is_of("Ingress", true) {
            let rules = ingress.into_iter().map(|rule| (rule.from, rule.ports)).enumerate();
            policy.ingress = Some(rules.map(|(at, rule)| policy.rule("ingress", at, rule)).collect());
        }
        if is_of("Egress", !egress.is_empty()) {
            let rules = egress.into_iter().map(|rule| (rule.to, rule.ports)).enumerate();
            policy.egress = Some(rules.map(|(at, rule)| policy.rule("egress", at, rule)).collect());
        }
        policy
    }

    /// The rules for a direction; `None` if the policy leaves it alone.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    /// `true` if it is about Pods of its namespace with these labels.
    pub fn selects(&self, labels: &Labels) -> bool {
        selects(&self.selector, Some(labels))
    }

    /// Absent and empty lists are no restriction.
    fn rule(&mut self, name: &str, at: usize, (peers, ports): RuleFields) -> Rule {
        let (peers, ports) = (peers.unwrap_or_default(), ports.unwrap_or_default());
        let path = format!("spec.{name}[{at}]");
        Rule {
            peers: (!peers.is_empty()).then(|| self.peers(&path, peers)),
            ports: (!ports.is_empty()).then(|| self.ports(&path, ports)),
        }
    }

    fn peers(&mut self, path: &str, fields: Vec<NetworkPolicyPeer>) -> Peers {
        let mut peers = Peers::default();
        for field in fields {
            if let Some(block) = field.ip_block {
                let except = block.except.unwrap_or_default();
                let read: Option<Vec<Cidr>> = except.iter().map(|text| Cidr::legacy(text)).collect();
                match Cidr::legacy(&block.cidr).zip(read) {
                    Some((cidr, except)) => peers.blocks.push(Block { cidr, except }),
                    None => self.problems.push(format!("{path}: ipBlock {} is no network", block.cidr)),
                }
                continue;
            }
            let namespaces = match (field.namespace_selector, &field.pod_selector) {
                (Some(selector), _) => Namespaces::Selected(selector),
                (None, Some(_)) => Namespaces::Own(self.namespace.clone()),
                (None, None) => {
                    self.problems.push(format!("{path}: a peer says nothing"));
                    continue;
                }
            };
            peers.pods.push(PeerSelector { namespaces, pods: field.pod_selector.unwrap_or_default() });
        }
        peers
    }

    fn ports(&mut self, path: &str, fields: Vec<NetworkPolicyPort>) -> Ports {
        let mut ports = Ports::default();
        for field in fields {
            let protocol = match field.protocol.as_deref() {
                None | Some("" | "TCP") => 6,
                Some("UDP") => 17,
                Some("SCTP") => 132,
                Some(other) => {
                    self.problems.push(format!("{path}: protocol {other} is not known"));
                    continue;
                }
            };
            let number = |port: i32| u16::try_from(port).ok();
            let range = match field.port {
                None => Some((0, u16::MAX)),
                Some(IntOrString::String(name)) => {
                    ports.names.insert((protocol, name));
                    continue;
                }
                Some(IntOrString::Int(first)) => number(first).zip(number(field.end_port.unwrap_or(first))),
            };
            match range.filter(|(first, last)| first <= last) {
                Some((first, last)) => ports.numbers.entry(protocol).or_default().add(first, last),
                None => self.problems.push(format!("{path}: a port is out of range")),
            }
        }
        ports
    }
}

/// Peers and ports of a rule.
type RuleFields = (Option<Vec<NetworkPolicyPeer>>, Option<Vec<NetworkPolicyPort>>);
