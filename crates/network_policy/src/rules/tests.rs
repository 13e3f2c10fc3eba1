//! Tables are judged by what they do to packets: an interpreter of rules against an oracle that knows the API's text only.

mod interpreter;
mod oracle;

use std::net::IpAddr;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};
use sys::nftables::Changes;

use super::*;
use crate::pod::NamedPort;
use interpreter::{Packet, passes};
use oracle::{Someone, World};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ICMPV6: u8 = 58;
const BOTH: [Family; 2] = [Family::V4, Family::V6];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn policy(value: Value) -> NetworkPolicy {
    serde_json::from_value(value).expect("a policy")
}

fn put(rules: &mut Rules, object: &NetworkPolicy) {
    let policy = Policy::of(object);
    rules.policy(&policy.key.clone(), Some(Arc::new(policy)));
}

/// Three Pods in each of three namespaces as upstream's suite has them, one Pod elsewhere, one on the host's network.
fn world(family: Family) -> World {
    let mut world = World::default();
    for (number, namespace) in ["x", "y", "z"].into_iter().enumerate() {
        let labels = [("ns", namespace), ("kubernetes.io/metadata.name", namespace)];
        world.namespaces.insert(namespace.into(), labels.map(|(k, v)| (k.into(), v.into())).into());
        for (at, pod) in ["a", "b", "c"].into_iter().enumerate() {
            world.pods.push(someone(family, (namespace, pod), number * 10 + at + 1, Locality::Here));
        }
    }
    world.pods.push(someone(family, ("x", "far"), 101, Locality::Elsewhere));
    let mut over = someone(family, ("x", "over"), 102, Locality::Here);
    over.endpoint.state = State::Over;
    world.pods.push(over);
    // Nobody's address: a Node's, or one outside.
    world.pods.push(Someone::outside(address(family, 200)));
    world
}

fn address(family: Family, last: usize) -> IpAddr {
    match family {
        Family::V4 => ip(&format!("10.42.0.{last}")),
        Family::V6 => ip(&format!("fd42::{last:x}")),
    }
}

fn someone(family: Family, (namespace, pod): (&str, &str), last: usize, locality: Locality) -> Someone {
    let ports = [(TCP, "serve-80-tcp", 80), (TCP, "serve-81-tcp", 81), (UDP, "serve-80-udp", 80)];
    let ports = ports.map(|(protocol, name, port)| NamedPort { name: name.into(), protocol, port });
    Someone {
        name: format!("{namespace}/{pod}"),
        endpoint: Endpoint {
            namespace: namespace.into(),
            labels: [("pod".to_owned(), pod.to_owned())].into(),
            addresses: vec![address(family, last)],
            ports: ports.to_vec(),
            locality,
            state: State::Running,
        },
    }
}

fn rules_of(world: &World, family: Family) -> Rules {
    let mut rules = Rules::new("policies", family);
    world.namespaces.iter().for_each(|(name, labels)| rules.namespace(name, Some(labels.clone())));
    for pod in world.pods.iter().filter(|pod| pod.is_pod()) {
        rules.endpoint(&pod.name, Some(pod.endpoint.clone()));
    }
    world.policies.values().for_each(|object| put(&mut rules, object));
    rules
}

/// Every pair, protocol and port: the table does what the oracle says.
fn compare(world: &World, table: &Table, why: &str) {
    for from in &world.pods {
        for to in &world.pods {
            for (protocol, port) in
                [(TCP, 80), (TCP, 81), (TCP, 82), (UDP, 80), (UDP, 81), (SCTP, 80), (SCTP, 8080), (1, 0)]
            {
                let (initiator, responder) = (from.endpoint.addresses[0], to.endpoint.addresses[0]);
                let packet = Packet { initiator, responder, protocol, port };
                let expect = world.allows(from, to, protocol, port);
                let context = || format!("{why}: {} to {} {protocol}/{port}: {table:#?}", from.name, to.name);
                assert_eq!(passes(table, &packet), expect, "{}", context());
            }
        }
    }
}

fn check(name: &str, policies: &[Value]) {
    for family in [Family::V4, Family::V6] {
        let mut world = world(family);
        for (at, spec) in policies.iter().enumerate() {
            let spec = spec
                .to_string()
                .replace("10.42.0.", if family == Family::V6 { "fd42::" } else { "10.42.0." });
            let spec =
                if family == Family::V6 { spec.replace("/32", "/128").replace("/24", "/64") } else { spec };
            let mut object: Value = serde_json::from_str(&spec).expect("JSON");
            let namespace = object["namespace"].take();
            let metadata = json!({"namespace": namespace.as_str().unwrap_or("x"), "name": format!("p{at}")});
            world.put(policy(json!({"metadata": metadata, "spec": object})));
        }
        compare(&world, rules_of(&world, family).draft.table(), name);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn lists_that_are_absent_empty_or_odd_mean_what_the_api_says() {
    let to_a = || json!({"matchLabels": {"pod": "a"}});
    for (name, spec) in [
        ("ingress is denied", json!({"podSelector": {}, "policyTypes": ["Ingress"]})),
        ("ingress is denied by default", json!({"podSelector": {}})),
        ("egress is denied", json!({"podSelector": {}, "policyTypes": ["Egress"]})),
        ("all is denied", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})),
        (
            "egress by default, when there are rules",
            json!({"podSelector": to_a(), "egress": [{"ports": [{"port": 80}]}]}),
        ),
        (
            "egress rules without their type",
            json!({"podSelector": to_a(), "policyTypes": ["Ingress"], "egress": [{}]}),
        ),
        (
            "ingress rules without their type",
            json!({"podSelector": to_a(), "policyTypes": ["Egress"], "ingress": [{}]}),
        ),
        ("an empty rule", json!({"podSelector": to_a(), "ingress": [{}]})),
        ("an empty list of peers", json!({"podSelector": to_a(), "ingress": [{"from": [], "ports": []}]})),
        (
            "an empty podSelector",
            json!({"podSelector": to_a(), "ingress": [{"from": [{"podSelector": {}}]}]}),
        ),
        (
            "an empty namespaceSelector",
            json!({"podSelector": to_a(), "ingress": [{"from": [{"namespaceSelector": {}}]}]}),
        ),
        ("a peer that says nothing", json!({"podSelector": to_a(), "ingress": [{"from": [{}]}]})),
        (
            "a port without number",
            json!({"podSelector": to_a(), "ingress": [{"ports": [{"protocol": "UDP"}]}]}),
        ),
        ("a port without protocol", json!({"podSelector": to_a(), "ingress": [{"ports": [{"port": 80}]}]})),
        ("a range", json!({"podSelector": to_a(), "ingress": [{"ports": [{"port": 80, "endPort": 81}]}]})),
        (
            "a range that ends before",
            json!({"podSelector": to_a(), "ingress": [{"ports": [{"port": 81, "endPort": 80}]}]}),
        ),
        (
            "a number that is no port",
            json!({"podSelector": to_a(), "ingress": [{"ports": [{"port": 65616}, {"port": -1}]}]}),
        ),
        (
            "an unknown protocol",
            json!({"podSelector": to_a(), "ingress": [{"ports": [{"port": 80, "protocol": "ICMP"}]}]}),
        ),
        ("an unknown name", json!({"podSelector": to_a(), "ingress": [{"ports": [{"port": "nobody"}]}]})),
        (
            "a name of another protocol",
            json!({"podSelector": to_a(), "ingress": [{"ports": [{"port": "serve-80-tcp", "protocol": "UDP"}]}]}),
        ),
        (
            "bad networks",
            json!({"podSelector": to_a(), "ingress": [{"from": [{"ipBlock": {"cidr": "10.42.0.0"}}, {"ipBlock": {"cidr": "nonsense/8"}}]}]}),
        ),
        (
            "a bad exception",
            json!({"podSelector": to_a(), "ingress": [{"from": [{"ipBlock": {"cidr": "10.42.0.0/24", "except": ["x"]}}]}]}),
        ),
        (
            "an exception outside",
            json!({"podSelector": to_a(), "ingress": [{"from": [{"ipBlock": {"cidr": "10.42.0.0/24", "except": ["192.168.0.0/16"]}}]}]}),
        ),
        (
            "bits behind the prefix",
            json!({"podSelector": to_a(), "ingress": [{"from": [{"ipBlock": {"cidr": "10.42.0.7/24"}}]}]}),
        ),
        (
            "an unknown operator",
            json!({"podSelector": to_a(), "ingress": [{"from": [{"podSelector": {"matchExpressions": [{"key": "pod", "operator": "Like", "values": ["b"]}]}}]}]}),
        ),
        ("no spec", json!({})),
    ] {
        check(name, &[spec]);
    }
}

#[test]
fn the_interpreter_and_the_oracle_can_disagree() {
    let mut world = world(Family::V4);
    world.put(policy(json!({"metadata": {"namespace": "x", "name": "p"}, "spec": {"podSelector": {}}})));
    let open = Rules::new("policies", Family::V4);
    let judged = std::panic::catch_unwind(|| compare(&world, open.draft.table(), "no rules"));
    assert!(judged.is_err(), "a table without rules lets through what is denied");
}

/// Numbers from a seed, and policies with blocks of a family.
struct Dice(u64, Family);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn list(&mut self, longest: usize, mut make: impl FnMut(&mut Self) -> Value) -> Value {
        let length = self.below(longest + 1);
        (0..length).map(|_| make(self)).collect()
    }

    fn selector(&mut self, key: &str, values: &[&str]) -> Value {
        match self.below(5) {
            0 => json!({}),
            1 => {
                json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": [self.one(values)]}]})
            }
            2 => {
                json!({"matchExpressions": [{"key": key, "operator": "In", "values": [self.one(values), self.one(values)]}]})
            }
            _ => json!({"matchLabels": {key: self.one(values)}}),
        }
    }

    fn peer(&mut self) -> Value {
        let (pods, namespaces) = (["a", "b", "c", "far"], ["x", "y", "z"]);
        match self.below(4) {
            0 => json!({"podSelector": self.selector("pod", &pods)}),
            1 => json!({"namespaceSelector": self.selector("ns", &namespaces)}),
            2 => {
                json!({"podSelector": self.selector("pod", &pods), "namespaceSelector": self.selector("ns", &namespaces)})
            }
            _ => {
                let network = |dice: &mut Self| {
                    let (last, bits) = (dice.below(128), 26 + dice.below(7));
                    let bits = if dice.1 == Family::V4 { bits } else { bits + 96 };
                    json!(format!("{}/{bits}", address(dice.1, last)))
                };
                json!({"ipBlock": {"cidr": network(self), "except": self.list(2, network)}})
            }
        }
    }

    fn port(&mut self) -> Value {
        let protocol = self.one(&["TCP", "UDP", "SCTP"]);
        match self.below(4) {
            0 => json!({"protocol": protocol}),
            1 => json!({"protocol": protocol, "port": 79 + self.below(3), "endPort": 80 + self.below(3)}),
            2 => {
                json!({"protocol": protocol, "port": self.one(&["serve-80-tcp", "serve-81-tcp", "serve-80-udp", "other"])})
            }
            _ => json!({"protocol": protocol, "port": self.one(&[80, 81, 82])}),
        }
    }

    fn rule(&mut self, peers: &str) -> Value {
        json!({peers: self.list(3, Self::peer), "ports": self.list(3, Self::port)})
    }

    fn policy(&mut self) -> NetworkPolicy {
        let name = format!("p{}", self.below(3));
        let types =
            self.one(&[json!(null), json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])]);
        policy(json!({
            "metadata": {"namespace": self.one(&["x", "y"]), "name": name},
            "spec": {
                "podSelector": self.selector("pod", &["a", "b", "c"]),
                "policyTypes": types,
                "ingress": self.list(2, |dice| dice.rule("from")),
                "egress": self.list(2, |dice| dice.rule("to")),
            },
        }))
    }
}

/// Changes anything, and tells the rules.
fn change(dice: &mut Dice, world: &mut World, rules: &mut Rules) -> String {
    match dice.below(10) {
        0 => {
            let namespace = dice.one(&["x", "y", "z"]);
            let labels: Labels = [("ns".to_owned(), dice.one(&["x", "y", "z"]).to_owned())].into();
            rules.namespace(namespace, Some(labels.clone()));
            world.namespaces.insert(namespace.to_owned(), labels);
            format!("labels of {namespace}")
        }
        1..=3 => {
            let at = dice.below(world.pods.len() - 1);
            let pod = &mut world.pods[at];
            pod.endpoint.labels = [("pod".to_owned(), dice.one(&["a", "b", "c"]).to_owned())].into();
            pod.endpoint.ports.rotate_left(1);
            pod.endpoint.ports.truncate(1 + dice.below(3));
            rules.endpoint(&pod.name, Some(pod.endpoint.clone()));
            format!("labels of {}", pod.name)
        }
        4 => {
            // An address goes from one Pod to another.
            let (one, other) = (dice.below(9), dice.below(9));
            for at in [one, other] {
                rules.endpoint(&world.pods[at].name, None);
            }
            let addresses = world.pods[one].endpoint.addresses.clone();
            let others = std::mem::replace(&mut world.pods[other].endpoint.addresses, addresses);
            world.pods[one].endpoint.addresses =
                if one == other { world.pods[one].endpoint.addresses.clone() } else { others };
            for at in [one, other] {
                rules.endpoint(&world.pods[at].name, Some(world.pods[at].endpoint.clone()));
            }
            format!("addresses of {one} and {other}")
        }
        5 if !world.policies.is_empty() => {
            let keys: Vec<String> = world.policies.keys().cloned().collect();
            let key = dice.one(&keys);
            world.policies.remove(&key);
            rules.policy(&key, None);
            format!("policy {key} goes")
        }
        _ => {
            let object = dice.policy();
            put(rules, &object);
            let told = format!("{object:?}");
            world.put(object);
            told
        }
    }
}

#[test]
fn whatever_changes_the_table_does_what_the_policies_say_and_is_what_a_render_of_all_makes() {
    for (seed, family) in (0..20).flat_map(|seed| BOTH.map(|family| (seed, family))) {
        let (mut dice, mut world) = (Dice(seed, family), world(family));
        let mut rules = rules_of(&world, family);
        for step in 0..12 {
            let before = rules.draft.table().clone();
            let told = change(&mut dice, &mut world, &mut rules);
            let why = format!("seed {seed}, step {step}: {told}");
            let table = rules.draft.table();
            compare(&world, table, &why);
            assert_eq!(*table, render("policies", family, &rules.known), "{why}");
            if step == 0 {
                assert_eq!(rules.draft.changes(), Changes::between(&before, table), "{why}");
            }
        }
        for key in world.policies.keys() {
            rules.policy(key, None);
        }
        assert!(rules.is_idle());
        assert_eq!(*rules.draft.table(), frame("policies", family), "seed {seed}: nothing stays");
    }
}

#[test]
fn an_address_that_two_may_have_is_a_peer_only_if_both_are() {
    let mut world = world(Family::V4);
    let allow =
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"pod": "far"}}}]}]});
    world.put(policy(json!({"metadata": {"namespace": "x", "name": "p"}, "spec": allow})));
    let mut rules = rules_of(&world, Family::V4);
    let (far, a) = (address(Family::V4, 101), address(Family::V4, 1));
    let packet = Packet { initiator: far, responder: a, protocol: TCP, port: 80 };
    assert!(passes(rules.draft.table(), &packet));
    let mut stale = someone(Family::V4, ("x", "other"), 101, Locality::Elsewhere);
    rules.endpoint("stale", Some(stale.endpoint.clone()));
    assert!(!passes(rules.draft.table(), &packet), "somebody else has the address, too");
    rules.endpoint("stale", None);
    assert!(passes(rules.draft.table(), &packet));
    // What the own network says is certain.
    stale.endpoint.locality = Locality::Here;
    stale.endpoint.labels = [("pod".to_owned(), "far".to_owned())].into();
    rules.endpoint("here", Some(stale.endpoint.clone()));
    assert!(passes(rules.draft.table(), &packet));
}

#[test]
fn what_no_connection_is_known_of_reaches_nobody_who_is_isolated_but_neighbour_discovery_does() {
    for family in BOTH {
        let mut world = world(family);
        let open = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{}], "egress": [{}], "policyTypes": ["Ingress", "Egress"]});
        world.put(policy(json!({"metadata": {"namespace": "x", "name": "p"}, "spec": open})));
        let rules = rules_of(&world, family);
        let [a, b, c] = [1, 2, 3].map(|last| address(family, last));
        for (from, to, expect) in [(b, a, false), (a, b, false), (b, c, true)] {
            for (protocol, hop_limit) in [(TCP, 63), (TCP, 255), (ICMPV6, 254), (ICMPV6, 255)] {
                let packet = Packet { initiator: from, responder: to, protocol, port: 80 };
                let found = interpreter::passes_untracked(rules.draft.table(), &packet, hop_limit);
                let is_discovery = family == Family::V6 && (protocol, hop_limit) == (ICMPV6, 255);
                assert_eq!(found, expect || is_discovery, "{from} to {to} {protocol} {hop_limit}");
            }
        }
    }
}

#[test]
fn a_table_knows_nothing_of_the_other_family() {
    let [v4, v6] = BOTH.map(world);
    let both = World {
        pods: std::iter::zip(&v4.pods, &v6.pods)
            .map(|(one, other)| {
                let mut pod = one.clone();
                pod.endpoint.addresses.extend(&other.endpoint.addresses);
                pod
            })
            .collect(),
        ..v4.clone()
    };
    let blocks = json!([{"ipBlock": {"cidr": "10.42.0.0/24", "except": ["10.42.0.4/31", "fd42::/64"]}},
        {"ipBlock": {"cidr": "fd42::/120", "except": ["fd42::4/127"]}}, {"podSelector": {}}]);
    let spec = json!({"podSelector": {}, "ingress": [{"from": blocks, "ports": [{"port": "serve-80-tcp"}]}]});
    let object = policy(json!({"metadata": {"namespace": "x", "name": "p"}, "spec": spec}));
    for (family, mut alone) in BOTH.into_iter().zip([v4, v6]) {
        let mut both = both.clone();
        alone.put(object.clone());
        both.put(object.clone());
        assert_eq!(rules_of(&both, family).draft.table(), rules_of(&alone, family).draft.table());
        compare(&alone, rules_of(&both, family).draft.table(), "blocks of both families");
    }
}

#[test]
fn ten_thousand_ports_and_blocks_are_one_set_each() {
    let ports: Vec<Value> = (0..10_000).map(|at| json!({"port": 1 + at * 2})).collect();
    let blocks: Vec<Value> = (0..10_000)
        .map(|at| json!({"ipBlock": {"cidr": format!("11.{}.{}.0/25", at / 256, at % 256)}}))
        .collect();
    let spec = json!({"podSelector": {}, "ingress": [{"from": blocks, "ports": ports}]});
    let huge = policy(json!({"metadata": {"namespace": "x", "name": "huge"}, "spec": spec}));
    let mut world = world(Family::V4);
    world.put(huge);
    let rules = rules_of(&world, Family::V4);
    let table = rules.draft.table();
    let chain = &table.chains["ingress/x/huge"];
    assert_eq!(chain.rules.len(), 1, "{:?}", chain.rules);
    let sizes: Vec<usize> =
        table.sets.values().map(|set| set.elements.len()).filter(|size| *size > 100).collect();
    assert_eq!(sizes, [10_000, 10_000]);
    let from =
        |text| Packet { initiator: ip(text), responder: address(Family::V4, 1), protocol: TCP, port: 81 };
    assert!(passes(table, &from("11.1.1.1")) && !passes(table, &from("11.1.1.200")));
    assert!(!passes(table, &Packet { port: 82, ..from("11.1.1.1") }));
}

#[test]
fn policies_of_long_names_have_chains_of_their_own() {
    let mut world = world(Family::V4);
    for end in ["1", "2"] {
        let name = format!("{}{end}", "n".repeat(252));
        let spec = json!({"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]});
        world.put(policy(json!({"metadata": {"namespace": "x", "name": name}, "spec": spec})));
    }
    let rules = rules_of(&world, Family::V4);
    let names: Vec<&String> = rules.draft.table().chains.keys().filter(|name| name.contains("nnn")).collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|name| name.len() < 255), "{names:?}");
    compare(&world, rules.draft.table(), "long names");
}
