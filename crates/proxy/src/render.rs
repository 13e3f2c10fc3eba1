//! The table: one lookup finds a Service by address, protocol and port; one more finds an endpoint by a random number.
//!
//! Chains: `services` (from prerouting and output) looks up; `service/...` chooses among the endpoints for traffic
//! from inside, `external/...` among those for traffic from outside, which `firewall/...` lets through. Sets:
//! `service-ips`, `node-ports` hold what has endpoints; `refused-ips`, `refused-ports` what has none; `endpoints` and
//! `sticky` have the endpoints of all Services, by the number of the row and that of the endpoint: the kernel finds an
//! element as fast however many there are, and a set the slower the more there are. What a row comes to follows from the
//! row alone ([`service`]), so that a change of one needs no other.

mod service;

use std::net::Ipv4Addr;

use sys::nftables::{
    ChainKind, Compare, Data, Expr, Field, Hook, Key, Reg, Rule, SetValue, Table, Verdict, destination_in,
    l4_protocol, source_in, when,
};

use crate::services::Part;
use crate::{Config, NodePortAddresses};

/// Packets with this mark leave with the node's address. The same bit as upstream's.
const MASQUERADE_MARK: u32 = 0x4000;
const TCP: u8 = 6;

/// The table that says all of this.
pub(crate) fn whole(part: &Part, config: &Config) -> Table {
    let mut table = frame(config);
    add(&mut table, part, config);
    table
}

/// What the table has because of this, and nothing else: to be compared with what it has because of something else.
pub(crate) fn part(part: &Part, config: &Config) -> Table {
    let mut table = sets(config);
    add(&mut table, part, config);
    table
}

fn add(table: &mut Table, part: &Part, config: &Config) {
    for ip in &part.loops {
        table.element("hairpin", Key::new().ip(*ip).ip(*ip), Data::None);
    }
    for row in &part.rows {
        service::add(table, row, config);
    }
}

fn sets(config: &Config) -> Table {
    let mut table = Table::new(config.table_name());
    table.set("service-ips", &[Field::Ipv4, Field::Protocol, Field::Port], SetValue::Verdict);
    table.set("node-ports", &[Field::Protocol, Field::Port], SetValue::Verdict);
    table.set("refused-ips", &[Field::Ipv4, Field::Protocol, Field::Port], SetValue::None);
    table.set("refused-ports", &[Field::Protocol, Field::Port], SetValue::None);
    table.set("hairpin", &[Field::Ipv4, Field::Ipv4], SetValue::None);
    let endpoint = SetValue::Fields(vec![Field::Ipv4, Field::Port]);
    table.set("endpoints", &[Field::Index, Field::Index], endpoint);
    table.set("sticky", &[Field::Index, Field::Index], SetValue::Verdict);
    table
}

/// What is there without any Service.
fn frame(config: &Config) -> Table {
    let mut table = sets(config);
    frame_nat(&mut table, config);
    frame_refusals(&mut table, config);
    table
}

fn frame_nat(table: &mut Table, config: &Config) {
    let to_services = || vec![Expr::Verdict(Verdict::Jump("services".into()))];
    table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -100);
    table.rule("prerouting", to_services());
    table.base_chain("output", ChainKind::Nat, Hook::Output, -100);
    table.rule("output", to_services());
    let mut by_ip = load_destination();
    by_ip.push(Expr::VerdictMap("service-ips".into(), Reg::R0));
    table.rule("services", by_ip);
    for mut by_port in to_node_ports(config) {
        by_port.extend([
            Expr::L4Protocol(Reg::R0),
            Expr::DestinationPort(Reg::R1),
            Expr::VerdictMap("node-ports".into(), Reg::R0),
        ]);
        table.rule("services", by_port);
    }

    table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 100);
    let mut marked = when(Expr::Mark(Reg::R0), MASQUERADE_MARK, Compare::NotEqual, 0);
    marked.extend([
        Expr::Mark(Reg::R0),
        Expr::Bitwise(Reg::R0, (!MASQUERADE_MARK).to_ne_bytes().to_vec(), vec![0; 4]),
        Expr::SetMark(Reg::R0),
        Expr::Masquerade,
    ]);
    table.rule("postrouting", marked);
    // A Pod that reaches itself through a Service must not see its own address as the client's.
    let mut hairpin = when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0);
    hairpin.extend([
        Expr::SourceIp(Reg::R0),
        Expr::DestinationIp(Reg::R1),
        Expr::In("hairpin".into(), Reg::R0),
        Expr::Masquerade,
    ]);
    table.rule("postrouting", hairpin);
}

/// Nothing answers for a Service without endpoints, nor for an address of the Service range that is nobody's: the
/// client learns so at once, and the packet goes nowhere.
fn frame_refusals(table: &mut Table, config: &Config) {
    let nobody = config.services().map(|(network, prefix)| {
        let mut nobody = destination_in(network, prefix, Compare::Equal);
        nobody.extend(when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::NotEqual, Expr::LOCAL));
        nobody.push(Expr::Verdict(Verdict::Goto("refuse".into())));
        nobody
    });
    let mut refused = load_destination();
    refused.extend([Expr::In("refused-ips".into(), Reg::R0), Expr::Verdict(Verdict::Goto("refuse".into()))]);
    for (name, hook) in [("filter-forward", Hook::Forward), ("filter-output", Hook::Output)] {
        table.base_chain(name, ChainKind::Filter, hook, 0);
        if let Some(nobody) = &nobody {
            table.rule(name, nobody.clone());
        }
        table.rule(name, refused.clone());
    }
    table.base_chain("filter-input", ChainKind::Filter, Hook::Input, 0);
    table.rule("filter-input", refused);
    for mut port in to_node_ports(config) {
        port.extend([
            Expr::L4Protocol(Reg::R0),
            Expr::DestinationPort(Reg::R1),
            Expr::In("refused-ports".into(), Reg::R0),
            Expr::Verdict(Verdict::Goto("refuse".into())),
        ]);
        table.rule("filter-input", port);
    }
    let mut reset = l4_protocol(TCP);
    reset.push(Expr::RejectTcpReset);
    table.rule("refuse", reset);
    table.rule("refuse", vec![Expr::RejectPortUnreachable]);
}

fn load_destination() -> Rule {
    vec![Expr::DestinationIp(Reg::R0), Expr::L4Protocol(Reg::R1), Expr::DestinationPort(Reg::R2)]
}

/// Goes on with what is for ports of this Node; a rule for each network. Never for loopback, whose packets cannot leave
/// the host.
fn to_node_ports(config: &Config) -> Vec<Rule> {
    let to = |(network, prefix): &(Ipv4Addr, u8)| {
        let mut rule = when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::Equal, Expr::LOCAL);
        rule.extend(destination_in(Ipv4Addr::new(127, 0, 0, 0), 8, Compare::NotEqual));
        if *prefix > 0 {
            rule.extend(destination_in(*network, *prefix, Compare::Equal));
        }
        rule
    };
    match &config.node_port_addresses {
        NodePortAddresses::Primary => vec![to(&(config.node_ip, 32))],
        NodePortAddresses::Networks(networks) => networks.iter().map(to).collect(),
    }
}

/// Goes on with what Pods send, or with all else; with everything in a cluster whose Pods have no IPv4 addresses.
fn from_pods(config: &Config, compare: Compare) -> Vec<Expr> {
    config.pods().map(|(network, prefix)| source_in(network, prefix, compare)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
