//! Real packets between Pods of the built-in network, under the rules that policies come to: the connectivity matrix of
//! upstream's suite (`test/e2e/network/netpol`), a row per case of it, and what else packets can do.
//!
//! Everything is in network namespaces of the test's own, which lead nowhere.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

mod cases;
mod lan;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cases::{CASES, Case};
use lan::{Datagram, Lan, Probe};
use machinery::net::Family;

const BOTH: [Family; 2] = [Family::V4, Family::V6];
/// So long does a packet take that is let through, at first.
const TIMEOUT: [Duration; 3] = [Duration::from_millis(100), Duration::from_secs(2), Duration::from_secs(20)];

/// Every probe does what is expected: what arrives must not is a failure at once; what should is tried again for longer.
fn check(lan: &Lan, name: &str, allows: impl Fn(&Probe) -> bool) {
    let mut left = lan.probes();
    for timeout in TIMEOUT {
        let arrived = lan.try_all(&left, timeout);
        let results: Vec<(Probe, bool)> = left.into_iter().zip(arrived).collect();
        let leaked: Vec<&Probe> = results
            .iter()
            .filter(|(probe, arrived)| *arrived && !allows(probe))
            .map(|(probe, _)| probe)
            .collect();
        assert!(leaked.is_empty(), "{name}: arrives and must not: {leaked:#?}");
        left =
            results.into_iter().filter(|(probe, arrived)| !arrived && allows(probe)).map(|it| it.0).collect();
        if left.is_empty() {
            return;
        }
    }
    panic!("{name}: does not arrive: {left:#?}");
}

#[test]
fn the_matrix_of_upstreams_suite_holds() {
    matrix(Family::V4);
}

#[test]
fn the_matrix_of_upstreams_suite_holds_in_ipv6() {
    matrix(Family::V6);
}

fn matrix(family: Family) {
    let mut lan = Lan::new(family);
    check(&lan, "no policy", |_| true);
    for Case { name, policies, allows } in CASES {
        let keys = lan.put(policies);
        check(&lan, name, allows);
        lan.remove(&keys);
    }
    check(&lan, "no policy any more", |_| true);
}

/// What hangs on a policy, a namespace or a Pod follows when that changes.
#[test]
fn changes_are_followed() {
    for lan in BOTH.map(Lan::new) {
        follow(lan);
    }
}

fn follow(mut lan: Lan) {
    let only_b = "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}, namespaceSelector: {matchLabels: {team: one}}}]}]}}";
    lan.put(only_b);
    let allows = |namespace: &'static str, pod: &'static str| {
        move |it: &Probe| !it.is_to("x", "a") || it.is_from(namespace, pod) || it.is_to_itself()
    };
    check(&lan, "nobody has the label", |it| !it.is_to("x", "a") || it.is_to_itself());
    lan.label_namespace("y", &[("team", "one")]);
    check(&lan, "the namespace has it", allows("y", "b"));
    lan.label_namespace("y", &[]);
    lan.label_namespace("z", &[("team", "one")]);
    check(&lan, "another has it", allows("z", "b"));
    lan.label_pod("z", "b", "other");
    lan.label_pod("z", "c", "b");
    check(&lan, "another Pod has it", allows("z", "c"));
    lan.label_pod("x", "a", "free");
    check(&lan, "the policy does not select it any more", |_| true);
    lan.label_pod("x", "c", "a");
    check(&lan, "it selects another", |it| !it.is_to("x", "c") || it.is_from("z", "c") || it.is_to_itself());
    lan.put("- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, policyTypes: [Egress]}}");
    check(&lan, "it says something else", |it| it.client_namespace() != "x" || it.is_to_itself());
    lan.restart();
    check(&lan, "made anew by another process", |it| it.client_namespace() != "x" || it.is_to_itself());
    lan.remove(&["x/p".to_owned()]);
    check(&lan, "it is gone", |_| true);
}

/// Both directions of a connection have one verdict, which follows the policies: nothing goes on that nobody may begin.
#[test]
fn a_connection_ends_when_it_is_not_let_through_any_more() {
    for lan in BOTH.map(Lan::new) {
        end_connections(lan);
    }
}

fn end_connections(mut lan: Lan) {
    let deny = "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}}}";
    let allow = "- {metadata: {namespace: x, name: q}, spec: {podSelector: {matchLabels: {pod: a}}, \
                 ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}}";
    lan.put(deny);
    lan.put(allow);
    let (client, server) = (lan.pod("x", "b"), lan.pod("x", "a"));
    let mut stream = lan.inside(client, || TcpStream::connect((server.ip, 7)).unwrap());
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut ask = |timeout| {
        stream.set_read_timeout(Some(timeout)).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read(&mut [0; 1]).is_ok_and(|read| read == 1)
    };
    assert!(ask(Duration::from_secs(20)), "let through");
    lan.remove(&["x/q".to_owned()]);
    assert!(!ask(Duration::from_millis(300)), "not any more");
    lan.put(allow);
    // What was sent meanwhile is sent again by the kernel.
    assert!(ask(Duration::from_secs(60)), "again");
}

/// A Service is judged by the Pod behind it, and a Pod reaches itself through one.
#[test]
fn services_are_judged_by_the_pod_that_answers() {
    for lan in BOTH.map(Lan::new) {
        judge_services(lan);
    }
}

fn judge_services(mut lan: Lan) {
    lan.add_service([10, 43, 0, 1].into(), 80, ("x", "a"));
    let to_service = |namespace: &str, name: &str| lan.try_tcp((namespace, name), [10, 43, 0, 1].into(), 80);
    assert!(["a", "b"].iter().all(|name| to_service("x", name)) && to_service("y", "a"));
    lan.put(
        "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, policyTypes: [Ingress, Egress], \
         ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}}
- {metadata: {namespace: y, name: p}, spec: {podSelector: {matchLabels: {pod: b}}, \
         egress: [{to: [{ipBlock: {cidr: 10.43.0.1/32}}]}]}}",
    );
    let to_service = |namespace: &str, name: &str| lan.try_tcp((namespace, name), [10, 43, 0, 1].into(), 80);
    assert!(to_service("x", "b"), "a peer");
    assert!(!to_service("y", "a"), "no peer");
    assert!(!to_service("y", "b"), "the Service's address is nobody's");
    assert!(to_service("x", "a"), "itself");
}

/// The Node reaches its Pods and they reach it, whatever policies say; what comes from elsewhere through it does not.
#[test]
fn the_own_node_is_never_cut_off_and_what_it_forwards_is() {
    for lan in BOTH.map(Lan::new) {
        spare_the_node(lan);
    }
}

fn spare_the_node(mut lan: Lan) {
    lan.put("- {metadata: {namespace: x, name: p}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}");
    assert!(lan.node_reaches("x", "a"), "probes of the kubelet");
    assert!(lan.reaches_node("x", "a"), "the cluster's DNS");
    assert!(!lan.outside_reaches("x", "a") && lan.outside_reaches("y", "a"));
    assert!(!lan.reaches_outside("x", "a") && lan.reaches_outside("y", "a"));
    lan.put(
        "- {metadata: {namespace: x, name: q}, spec: {podSelector: {}, policyTypes: [Ingress, Egress], \
         ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.128/25]}}]}], \
         egress: [{to: [{ipBlock: {cidr: 192.0.2.2/32}}]}]}}",
    );
    assert!(lan.outside_reaches("x", "a") && lan.reaches_outside("x", "a"));
    lan.put(
        "- {metadata: {namespace: x, name: q}, spec: {podSelector: {}, policyTypes: [Ingress, Egress], \
         ingress: [{from: [{ipBlock: {cidr: 192.0.2.0/24, except: [192.0.2.2/32]}}]}]}}",
    );
    assert!(!lan.outside_reaches("x", "a") && !lan.reaches_outside("x", "a"));
}

/// ICMPv6 has no ports: rules without ports let it through. Neighbours find each other whatever policies say, also where the
/// kernel shows them what its bridge forwards.
#[test]
fn icmpv6_is_let_through_by_rules_without_ports_and_neighbours_always_find_each_other() {
    let mut lan = Lan::new(Family::V6);
    let pings = |lan: &Lan| lan.pings(("y", "a"), ("x", "a"));
    lan.settle(("y", "a"), ("x", "a"));
    assert!(pings(&lan));
    let policy = |rules: &str| {
        format!(
            "- {{metadata: {{namespace: x, name: p}}, spec: {{podSelector: {{}}, policyTypes: [Ingress, Egress], {rules}}}}}"
        )
    };
    for (rules, expect) in [
        ("ingress: []", false),
        ("ingress: [{ports: [{port: 80}, {protocol: UDP}]}]", false),
        ("ingress: [{from: [{namespaceSelector: {matchLabels: {ns: z}}}]}]", false),
        ("ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}]}]", true),
        ("ingress: [{}], egress: []", true),
    ] {
        lan.put(&policy(rules));
        assert_eq!(pings(&lan), expect, "{rules}");
    }
    lan.put(&policy("ingress: []"));
    lan.forget_neighbours();
    assert!(lan.node_reaches("x", "a"), "the node finds a Pod that nobody may reach");
    assert!(lan.reaches_node("x", "b"), "and it the node");
    lan.put(&policy("ingress: [{}], egress: [{}]"));
    lan.lead_over_the_bridge(("x", "a"), ("x", "b"));
    assert!(lan.pings(("x", "a"), ("x", "b")), "isolated Pods find each other");
}

/// What stands behind extension headers, or comes in pieces, is judged by what it is.
#[test]
fn neither_fragments_nor_extension_headers_hide_what_is_in_a_packet() {
    let mut lan = Lan::new(Family::V6);
    lan.settle(("y", "a"), ("x", "a"));
    let only_80 = "- {metadata: {namespace: x, name: p}, spec: {podSelector: {matchLabels: {pod: a}}, \
                 ingress: [{ports: [{port: 80, protocol: UDP}]}]}}";
    for policy in [None, Some(only_80)] {
        lan.put(policy.unwrap_or("[]"));
        for (port, expect) in [(80, true), (81, policy.is_none())] {
            for datagram in [Datagram::InPieces, Datagram::BehindOptions] {
                let arrived = lan.sends(("y", "a"), ("x", "a"), port, datagram);
                assert_eq!(arrived, expect, "{datagram:?} to {port} with {policy:?}");
            }
        }
    }
}
