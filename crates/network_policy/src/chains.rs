//! The chains and sets of one policy: pure.
//!
//! A chain accepts what the policy lets through in a direction, and lets all else return. Sets of Pods and of named ports
//! are shared by all policies with the same selector or name; those of numbers by all with the same numbers.

use std::collections::BTreeMap;

use machinery::net::Family;
use sha2::{Digest, Sha256};
use sys::nftables::{Data, Expr, Field, Key, Members, Rule, Set, Verdict};

use crate::frame::{field, key, named_port_in, peer_in, port, port_in, protocol};
use crate::policy::{self, Direction, Namespaces, PeerSelector, Peers, Policy, Ports};
use crate::ranges::{Ranges, address, addresses};

/// Longer names are cut; the kernel takes 255 bytes.
const NAME_BYTES_MAX: usize = 180;

/// What one policy needs, by name.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Its chains.
    pub(crate) chains: BTreeMap<String, Vec<Rule>>,
    /// Sets of Pods.
    pub(crate) pods: BTreeMap<String, PeerSelector>,
    /// Sets of the ports that Pods give a name, with the protocol and that name.
    pub(crate) names: BTreeMap<String, (u8, String)>,
    /// Sets that never change.
    pub(crate) numbers: BTreeMap<String, Set>,
}

impl Parts {
    /// For addresses of one family.
    pub(crate) fn of(policy: &Policy, family: Family) -> Self {
        let mut parts = Self::default();
        for direction in Direction::ALL {
            let Some(rules) = policy.rules(direction) else { continue };
            let chain = policy_chain(direction, &policy.key);
            parts.chains.insert(chain.clone(), Vec::new());
            for (at, rule) in rules.iter().enumerate() {
                parts.rule(&chain, &format!("{chain}#{at}"), rule, (direction, family));
            }
        }
        parts
    }

    fn rule(&mut self, chain: &str, below: &str, rule: &policy::Rule, way: (Direction, Family)) {
        let peers = rule.peers.as_ref().map_or_else(|| vec![Vec::new()], |peers| self.peers(peers, way));
        let ports = rule.ports.as_ref().map_or_else(|| vec![Vec::new()], |ports| self.ports(ports, way.1));
        let accept = || Expr::Verdict(Verdict::Accept);
        if peers.len() < 2 || ports.len() < 2 {
            let rules =
                peers.iter().flat_map(|peer| ports.iter().map(|port| [peer.clone(), port.clone()].concat()));
            let accepting = rules.map(|rule| [rule, vec![accept()]].concat()).collect::<Vec<_>>();
            self.chains.entry(chain.to_owned()).or_default().extend(accepting);
            return;
        }
        let ports = ports.into_iter().map(|port| [port, vec![accept()]].concat()).collect();
        self.chains.insert(below.to_owned(), ports);
        let jump = || vec![Expr::Verdict(Verdict::Jump(below.to_owned()))];
        let jumps = peers.into_iter().map(|peer| [peer, jump()].concat());
        self.chains.entry(chain.to_owned()).or_default().extend(jumps);
    }

    /// A way to match each kind of peer; none if nobody is one.
    fn peers(&mut self, peers: &Peers, (direction, family): (Direction, Family)) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut sets: Vec<String> = Vec::new();
        for selector in &peers.pods {
            let name = format!("pods/{}", digest(&selector_text(selector)));
            self.pods.insert(name.clone(), selector.clone());
            sets.push(name);
        }
        let blocks = addresses(&peers.blocks, family);
        if !blocks.is_empty() {
            let through = |bits| key(address(bits, family));
            sets.push(self.numbers(
                "addresses",
                field(family),
                blocks.iter().map(|(a, b)| (through(a), through(b))),
            ));
        }
        sets.sort();
        sets.dedup();
        rules.extend(sets.iter().map(|set| peer_in(set, direction, family)));
        rules
    }

    /// A way to match each kind of port; none if there is none.
    fn ports(&mut self, ports: &Ports, family: Family) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (number, ranges) in &ports.numbers {
            rules.push([protocol(*number), self.port_numbers(ranges)].concat());
        }
        for (number, name) in &ports.names {
            let set = cut(&format!("port/{number}/{name}"));
            rules.push(named_port_in(&set, family));
            self.names.insert(set, (*number, name.clone()));
        }
        rules
    }

    fn port_numbers(&mut self, ranges: &Ranges<u16>) -> Rule {
        let mut all = ranges.iter();
        match (all.next(), all.next()) {
            (Some((0, u16::MAX)), _) => Vec::new(),
            (Some((first, last)), None) if first == last => port(first),
            _ => {
                let key = |number| Key::new().port(number);
                port_in(&self.numbers("ports", Field::Port, ranges.iter().map(|(a, b)| (key(a), key(b)))))
            }
        }
    }

    fn numbers(&mut self, kind: &str, field: Field, ranges: impl Iterator<Item = (Key, Key)>) -> String {
        let elements: BTreeMap<Key, Data> =
            ranges.map(|(first, last)| (first, Data::Through(last))).collect();
        let name = format!("{kind}/{}", digest(&format!("{elements:?}")));
        let set = Set { key: vec![field], members: Members::Ranges, elements, ..Set::default() };
        self.numbers.insert(name.clone(), set);
        name
    }
}

/// The chain of a policy.
pub(crate) fn policy_chain(direction: Direction, policy: &str) -> String {
    cut(&format!("{}/{policy}", direction.name()))
}

/// The chain of Pods that these policies, and no others, select for a direction; and its rules.
pub(crate) fn pod_chain(direction: Direction, policies: &[&str]) -> (String, Vec<Rule>) {
    let name = format!("{}/{}", direction.name(), digest(&policies.join(" ")));
    let jump = |policy: &&str| vec![Expr::Verdict(Verdict::Jump(policy_chain(direction, policy)))];
    let rules = policies.iter().map(jump).chain([vec![Expr::Verdict(Verdict::Drop)]]);
    (name, rules.collect())
}

/// The same for the same meaning: JSON, so that nobody's labels can make two of them one.
fn selector_text(selector: &PeerSelector) -> String {
    let json = |value| serde_json::to_string(value).unwrap_or_default();
    match &selector.namespaces {
        Namespaces::Own(namespace) => format!("{} in {:?}", json(&selector.pods), namespace),
        Namespaces::Selected(namespaces) => format!("{} in {}", json(&selector.pods), json(namespaces)),
    }
}

/// A name that fits.
fn cut(name: &str) -> String {
    if name.len() <= NAME_BYTES_MAX {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_BYTES_MAX / 2).filter(char::is_ascii).collect();
    format!("{start}~{}", digest(name))
}

fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
