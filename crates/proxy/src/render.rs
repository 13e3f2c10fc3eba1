//! The tables: one lookup finds a Service by address, protocol and port; one more finds an endpoint by a random number.
//!
//! Chains: `services` (from prerouting and output) looks up; `service/...` chooses among the endpoints for traffic
//! from inside, `external/...` among those for traffic from outside, which `firewall/...` lets through. Sets:
//! `service-ips`, `node-ports` hold what has endpoints; `refused-ips`, `refused-ports` what has none; `endpoints-0` to `-63`
//! and `sticky-0` to `-63` share the endpoints of all Services, by the number of the row and that of the endpoint: the kernel
//! finds an element as fast however many there are, and a set the slower the more there are. What a row comes to follows from
//! the row alone ([`service`]), so that a change of one needs no other.
//!
//! Each family has a table of its own in the kernel's family of that name, not both one of `inet`: no rule asks what a packet
//! is, keys are as long as the family's addresses and no set has two kinds of them, and a cluster of one family has nothing of
//! the other. Both change in one transaction. The transport protocol of an IPv6 packet is what stands behind its extension
//! headers; fragments are whole again where they are translated.

mod service;

use std::net::{Ipv4Addr, Ipv6Addr};

use machinery::net::{Cidr, Family};
use sys::nftables::{
    ChainKind, Compare, Data, Expr, Field, Hook, Key, Reg, Rule, SetValue, Table, Verdict, destination_in,
    l4_protocol, source_in, when,
};

use crate::services::Part;
use crate::table_family;
use crate::{Config, bits, unspecified};

/// How many maps share the endpoints of all Services. The kernel looks at all that a map has for each rule that comes to use
/// it, and at all rules that use it for each element: one map for all would take the square of their number.
const SHARDS: u32 = 64;

/// The map that has the endpoints of the row with this number.
fn shard_of(map: &str, row: u32) -> String {
    format!("{map}-{}", row % SHARDS)
}

/// Packets with this mark leave with the node's address. The same bit as upstream's.
const MASQUERADE_MARK: u32 = 0x4000;
const TCP: u8 = 6;

/// The tables that say all of this, one of each family.
pub(crate) fn whole(part: &Part, config: &Config) -> Vec<Table> {
    made(part, config, frame)
}

/// What the tables have because of this, and nothing else: to be compared with what they have because of something else.
pub(crate) fn part(part: &Part, config: &Config) -> Vec<Table> {
    made(part, config, sets)
}

fn made(part: &Part, config: &Config, empty: fn(&Config, Family) -> Table) -> Vec<Table> {
    let of_family = |family: Family| {
        let mut table = empty(config, family);
        for ip in part.loops.iter().filter(|ip| Family::of(**ip) == family) {
            table.element("hairpin", Key::new().address(*ip).address(*ip), Data::None);
        }
        for row in part.rows.iter().filter(|row| row.port.family == family) {
            service::add(&mut table, row, config);
        }
        table
    };
    config.families().into_iter().map(of_family).collect()
}

fn sets(config: &Config, family: Family) -> Table {
    let mut table = Table { family: table_family(family), ..Table::new(config.table_name()) };
    let ip = field(family);
    table.set("service-ips", &[ip, Field::Protocol, Field::Port], SetValue::Verdict);
    table.set("node-ports", &[Field::Protocol, Field::Port], SetValue::Verdict);
    table.set("refused-ips", &[ip, Field::Protocol, Field::Port], SetValue::None);
    table.set("refused-ports", &[Field::Protocol, Field::Port], SetValue::None);
    table.set("hairpin", &[ip, ip], SetValue::None);
    let endpoint = SetValue::Fields(vec![ip, Field::Port]);
    for shard in 0..SHARDS {
        table.set(&shard_of("endpoints", shard), &[Field::Index, Field::Index], endpoint.clone());
        table.set(&shard_of("sticky", shard), &[Field::Index, Field::Index], SetValue::Verdict);
    }
    table
}

/// The field that an address is.
fn field(family: Family) -> Field {
    match family {
        Family::V4 => Field::Ipv4,
        Family::V6 => Field::Ipv6,
    }
}

/// Loads where a packet comes from.
fn source(family: Family, to: Reg) -> Expr {
    Expr::source(to, unspecified(family))
}

/// Loads where a packet goes.
fn destination(family: Family, to: Reg) -> Expr {
    Expr::destination(to, unspecified(family))
}

/// What is there without any Service.
fn frame(config: &Config, family: Family) -> Table {
    let mut table = sets(config, family);
    frame_nat(&mut table, config, family);
    frame_refusals(&mut table, config, family);
    table
}

fn frame_nat(table: &mut Table, config: &Config, family: Family) {
    let to_services = || vec![Expr::Verdict(Verdict::Jump("services".into()))];
    table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -100);
    table.rule("prerouting", to_services());
    table.base_chain("output", ChainKind::Nat, Hook::Output, -100);
    table.rule("output", to_services());
    let mut by_ip = load_destination(family);
    by_ip.push(Expr::VerdictMap("service-ips".into(), Reg::R0));
    table.rule("services", by_ip);
    for mut by_port in to_node_ports(config, family) {
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
        source(family, Reg::R0),
        destination(family, Reg::R0.after(field(family))),
        Expr::In("hairpin".into(), Reg::R0),
        Expr::Masquerade,
    ]);
    table.rule("postrouting", hairpin);
}

/// Nothing answers for a Service without endpoints, nor for an address of the Service range that is nobody's: the
/// client learns so at once, and the packet goes nowhere.
fn frame_refusals(table: &mut Table, config: &Config, family: Family) {
    let nobody = config.services(family).map(|range| {
        let mut nobody = destination_in(range.first(), range.bits(), Compare::Equal);
        nobody.extend(when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::NotEqual, Expr::LOCAL));
        nobody.push(Expr::Verdict(Verdict::Goto("refuse".into())));
        nobody
    });
    let mut refused = load_destination(family);
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
    for mut port in to_node_ports(config, family) {
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

fn load_destination(family: Family) -> Rule {
    let protocol = Reg::R0.after(field(family));
    let port = protocol.after(Field::Protocol);
    vec![destination(family, Reg::R0), Expr::L4Protocol(protocol), Expr::DestinationPort(port)]
}

/// Goes on with what is for ports of this Node; a rule for each network. Never for loopback, whose packets cannot leave
/// the host.
fn to_node_ports(config: &Config, family: Family) -> Vec<Rule> {
    let to = |network: Cidr| {
        let mut rule = when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::Equal, Expr::LOCAL);
        rule.extend(match family {
            Family::V4 => destination_in(Ipv4Addr::new(127, 0, 0, 0), 8, Compare::NotEqual),
            Family::V6 => destination_in(Ipv6Addr::LOCALHOST, bits(family), Compare::NotEqual),
        });
        if network.bits() > 0 {
            rule.extend(destination_in(network.first(), network.bits(), Compare::Equal));
        }
        rule
    };
    config.node_ports(family).into_iter().map(to).collect()
}

/// Goes on with what Pods send, or with all else; with everything in a cluster whose Pods have no addresses of the family.
fn from_pods(config: &Config, family: Family, compare: Compare) -> Vec<Expr> {
    let from = config.pods(family).map(|range| source_in(range.first(), range.bits(), compare));
    from.unwrap_or_default()
}

#[cfg(test)]
mod tests;
