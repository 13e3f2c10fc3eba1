//! The rules beside IPVS, which look all things up in sets and so never change: kube-proxy's chains, under its names.
//!
//! IPVS takes a packet for a local address of its choosing and translates its destination, behind the chain INPUT or, for the
//! host's own, before `filter` sees OUTPUT. So what must not come in is stopped in INPUT, and what the host must not send
//! already in `mangle`. What is masqueraded is marked in PREROUTING and OUTPUT, as ever.
//! Source: `pkg/proxy/ipvs/proxier.go`.

use machinery::net::Family;

use super::sets::Set;
use crate::backend::iptables::render::{
    CANARY, FIREWALL, FORWARD, MARK_MASQ, POSTROUTING, REFUSE_TCP, SERVICES, Scope, common_jumps,
    common_rules, forward, nobody, to_services,
};
use crate::backend::iptables::rules::Frame;
use crate::backend::iptables::table::{Jump, Table};

const SOURCE_RANGES: &str = "KUBE-SOURCE-RANGES-FIREWALL";
const NODE_PORT: &str = "KUBE-NODE-PORT";
const LOAD_BALANCER: &str = "KUBE-LOAD-BALANCER";
const FILTER: &str = "KUBE-IPVS-FILTER";

/// All chains.
pub(crate) const CHAINS: [(Table, &str); 15] = [
    (Table::Mangle, FIREWALL),
    (Table::Mangle, SOURCE_RANGES),
    (Table::Mangle, CANARY),
    (Table::Filter, SERVICES),
    (Table::Filter, FORWARD),
    (Table::Filter, FIREWALL),
    (Table::Filter, SOURCE_RANGES),
    (Table::Filter, FILTER),
    (Table::Filter, CANARY),
    (Table::Nat, SERVICES),
    (Table::Nat, POSTROUTING),
    (Table::Nat, NODE_PORT),
    (Table::Nat, LOAD_BALANCER),
    (Table::Nat, MARK_MASQ),
    (Table::Nat, CANARY),
];

/// All ways to them.
pub(crate) fn jumps() -> Vec<Jump> {
    let new = "-m conntrack --ctstate NEW";
    let mut jumps = vec![
        Jump {
            table: Table::Mangle,
            from: "OUTPUT",
            to: FIREWALL,
            only: new,
            comment: "kubernetes load balancer firewall",
        },
        Jump {
            table: Table::Filter,
            from: "INPUT",
            to: FILTER,
            only: "",
            comment: "kubernetes ipvs access filter",
        },
    ];
    jumps.extend(to_services());
    jumps.extend(common_jumps());
    jumps
}

pub(crate) fn frame(scope: Scope<'_>) -> Frame {
    let of = |(table, chain)| (table, chain, rules(table, chain, scope));
    Frame { jumps: jumps(), chains: CHAINS.into_iter().map(of).collect() }
}

/// Matches what is in a set.
fn is_in(set: Set, family: Family, by: &str) -> String {
    format!("-m set --match-set {} {by}", set.name(family))
}

fn rules(table: Table, chain: &str, scope: Scope<'_>) -> Vec<String> {
    let has = |set: Set, by: &str| is_in(set, scope.family, by);
    let pods = scope.not_from_pods();
    match (table, chain) {
        (Table::Nat, SERVICES) => vec![
            format!("-s {} -j RETURN", scope.loopback()),
            format!("{} -j {LOAD_BALANCER}", has(Set::LoadBalancer, "dst,dst")),
            format!("{} {pods}-j {MARK_MASQ}", has(Set::ClusterIp, "dst,dst")),
            format!("{} -j {MARK_MASQ}", has(Set::ExternalIp, "dst,dst")),
            format!("{} -m addrtype --src-type LOCAL -j {MARK_MASQ}", has(Set::ExternalIpLocal, "dst,dst")),
            format!("-m addrtype --dst-type LOCAL -j {NODE_PORT}"),
        ],
        (Table::Nat, LOAD_BALANCER) => vec![
            // The host's own packets have the address as their source, which no other Node knows to be this one's.
            format!("-m addrtype --src-type LOCAL -j {MARK_MASQ}"),
            format!("{} -j RETURN", has(Set::LoadBalancerLocal, "dst,dst")),
            format!("-j {MARK_MASQ}"),
        ],
        (Table::Nat, NODE_PORT) => node_ports(scope.family),
        (Table::Nat, POSTROUTING) => {
            let itself = "-m comment --comment \"Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose\"";
            let mut rules = vec![format!("{itself} {} -j MASQUERADE", has(Set::LoopBack, "dst,dst,src"))];
            rules.extend(common_rules(chain, &scope.config.cluster_id));
            rules
        }
        (Table::Mangle, FIREWALL) => {
            vec![format!("{} -j {SOURCE_RANGES}", has(Set::LoadBalancerFirewall, "dst,dst"))]
        }
        (Table::Filter, FIREWALL) => vec![
            format!("{} -j {SOURCE_RANGES}", has(Set::LoadBalancerFirewall, "dst,dst")),
            format!("{} -j DROP", has(Set::NoLocalInside, "dst,dst")),
            format!("{} {pods}-m addrtype ! --src-type LOCAL -j DROP", has(Set::NoLocal, "dst,dst")),
        ],
        (_, SOURCE_RANGES) => vec![
            format!("{} -j RETURN", has(Set::SourceCidr, "dst,dst,src")),
            format!("{} -j RETURN", has(Set::SourceIp, "dst,dst,src")),
            "-j DROP".to_owned(),
        ],
        (Table::Filter, FILTER) => access(scope.family),
        (Table::Filter, FORWARD) => forward(),
        (Table::Filter, SERVICES) => nobody(scope),
        _ => common_rules(chain, &scope.config.cluster_id),
    }
}

/// Marks what comes by ports of Nodes, but for what comes from elsewhere and leads to endpoints here only.
fn node_ports(family: Family) -> Vec<String> {
    let mut rules = Vec::new();
    for (protocol, number, by) in [("tcp", 6, "dst"), ("udp", 17, "dst"), ("sctp", 132, "dst,dst")] {
        let (all, local) = Set::of_node_ports(number);
        let local = is_in(local, family, by);
        rules.push(format!("-p {protocol} {local} -m addrtype --src-type LOCAL -j {MARK_MASQ}"));
        rules.push(format!("-p {protocol} {local} -j RETURN"));
        rules.push(format!("-p {protocol} {} -j {MARK_MASQ}", is_in(all, family, by)));
    }
    rules
}

/// Of the addresses that the host has for Services only their ports are open: what else listens on it is not at them.
fn access(family: Family) -> Vec<String> {
    let open = [Set::LoadBalancer, Set::ClusterIp, Set::ExternalIp, Set::ExternalIpLocal];
    let mut rules: Vec<String> =
        open.into_iter().map(|set| format!("{} -j RETURN", is_in(set, family, "dst,dst"))).collect();
    let own = format!("-m conntrack --ctstate NEW {}", is_in(Set::Addresses, family, "dst"));
    rules.push(format!("-p tcp {own} -j {REFUSE_TCP}"));
    rules.push(format!("{own} -j REJECT"));
    rules
}
