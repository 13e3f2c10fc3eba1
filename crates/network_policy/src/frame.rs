//! What a table has without any policy, and the steps that its rules are made of.
//!
//! A packet is judged by the connection that it belongs to, as the kernel tracks it: who began it, and who answers after all
//! translation, at which port. So replies have the verdict of what they answer, in both directions and at any time, and a
//! Service is judged by the Pod behind it. What belongs to no connection gets nowhere near a Pod that is isolated.
//!
//! Two chains see what the host forwards, one after the other: `egress` sends what a Pod of this Node began through the
//! chain of that Pod, `ingress` what such a Pod answers. What a chain accepts goes on to the other. The host's own packets
//! are not forwarded: between a Pod and its Node everything passes, probes among it.
//!
//! The connection of an IPv6 packet is found behind all its extension headers and of whole packets only, so that neither
//! headers nor fragments hide what is in it. Neighbour discovery is no connection, and is between the ends of a link: it has
//! the hop limit that no router passes on. Only a bridge forwards it, where the kernel shows bridged packets to these chains
//! (`br_netfilter`), and nobody is cut off from that.

use std::net::IpAddr;

use machinery::net::Family;
use sys::nftables::{
    ChainKind, Compare, Expr, Field, Hook, Key, Reg, Rule, SetValue, Table, TableFamily, Verdict,
    l4_protocol, when,
};

use crate::policy::Direction;

/// Addresses with any rules.
pub(crate) const ISOLATED: &str = "isolated";
/// Pairs of one address with itself, of those.
pub(crate) const OWN: &str = "own";
/// After the refusals of Services without endpoints, which are at 0.
const PRIORITY: i32 = 10;
const ICMPV6: u8 = 58;
/// A router has taken one away. Source: RFC 4861, section 11.2.
const HOP_LIMIT_OF_LINK: u8 = 255;

/// The table without policies.
pub(crate) fn frame(name: &str, family: Family) -> Table {
    let mut table = Table { family: table_family(family), ..Table::new(name) };
    let ip = field(family);
    table.set(ISOLATED, &[ip], SetValue::None);
    table.set(OWN, &[ip, ip], SetValue::None);
    for (direction, priority) in [(Direction::Egress, PRIORITY), (Direction::Ingress, PRIORITY + 1)] {
        let name = direction.name();
        table.set(name, &[ip], SetValue::Verdict);
        table.base_chain(name, ChainKind::Filter, Hook::Forward, priority);
        if direction == Direction::Egress {
            let mut untracked = when(Expr::ConnectionState(Reg::R0), Expr::UNTRACKED, Compare::NotEqual, 0);
            untracked.push(Expr::Verdict(Verdict::Goto("untracked".into())));
            table.rule(name, untracked);
        }
        // A Pod reaches itself, also through a Service.
        let pair = [Expr::Initiator(Reg::R0, ip), Expr::Responder(Reg::R0.after(ip), ip)];
        let own = [Expr::In(OWN.into(), Reg::R0), Expr::Verdict(Verdict::Accept)];
        table.rule(name, pair.into_iter().chain(own).collect());
        table.rule(name, vec![subject(direction, family), Expr::VerdictMap(name.into(), Reg::R0)]);
    }
    if family == Family::V6 {
        let mut discovery = l4_protocol(ICMPV6);
        discovery.extend([
            Expr::HopLimit(Reg::R0),
            Expr::Compare(Reg::R0, Compare::Equal, vec![HOP_LIMIT_OF_LINK]),
            Expr::Verdict(Verdict::Accept),
        ]);
        table.rule("untracked", discovery);
    }
    for end in [packet_source(family), packet_destination(family)] {
        table.rule("untracked", vec![end, Expr::In(ISOLATED.into(), Reg::R0), Expr::Verdict(Verdict::Drop)]);
    }
    table
}

/// The `nftables` family for addresses of one.
pub(crate) fn table_family(family: Family) -> TableFamily {
    match family {
        Family::V4 => TableFamily::Ipv4,
        Family::V6 => TableFamily::Ipv6,
    }
}

/// The field that an address is.
pub(crate) fn field(family: Family) -> Field {
    match family {
        Family::V4 => Field::Ipv4,
        Family::V6 => Field::Ipv6,
    }
}

fn packet_source(family: Family) -> Expr {
    match family {
        Family::V4 => Expr::SourceIp(Reg::R0),
        Family::V6 => Expr::SourceIpv6(Reg::R0),
    }
}

fn packet_destination(family: Family) -> Expr {
    match family {
        Family::V4 => Expr::DestinationIp(Reg::R0),
        Family::V6 => Expr::DestinationIpv6(Reg::R0),
    }
}

/// Loads the Pod that policies for a direction are about.
pub(crate) fn subject(direction: Direction, family: Family) -> Expr {
    match direction {
        Direction::Ingress => Expr::Responder(Reg::R0, field(family)),
        Direction::Egress => Expr::Initiator(Reg::R0, field(family)),
    }
}

/// Goes on if the other end is in a set.
pub(crate) fn peer_in(set: &str, direction: Direction, family: Family) -> Rule {
    let load = match direction {
        Direction::Ingress => Expr::Initiator(Reg::R0, field(family)),
        Direction::Egress => Expr::Responder(Reg::R0, field(family)),
    };
    vec![load, Expr::In(set.to_owned(), Reg::R0)]
}

/// Goes on if the protocol is this one.
pub(crate) fn protocol(number: u8) -> Rule {
    vec![Expr::TrackedProtocol(Reg::R0), Expr::Compare(Reg::R0, Compare::Equal, vec![number])]
}

/// Goes on if the port is this one.
pub(crate) fn port(number: u16) -> Rule {
    vec![Expr::ResponderPort(Reg::R0), Expr::Compare(Reg::R0, Compare::Equal, number.to_be_bytes().to_vec())]
}

/// Goes on if the port is in a set.
pub(crate) fn port_in(set: &str) -> Rule {
    vec![Expr::ResponderPort(Reg::R0), Expr::In(set.to_owned(), Reg::R0)]
}

/// The fields of a set of named ports.
pub(crate) fn named_fields(family: Family) -> [Field; 3] {
    [field(family), Field::Protocol, Field::Port]
}

/// Goes on if who answers gives the port a name: it is in the set.
pub(crate) fn named_port_in(set: &str, family: Family) -> Rule {
    let protocol = Reg::R0.after(field(family));
    vec![
        Expr::Responder(Reg::R0, field(family)),
        Expr::TrackedProtocol(protocol),
        Expr::ResponderPort(protocol.after(Field::Protocol)),
        Expr::In(set.to_owned(), Reg::R0),
    ]
}

/// The key of an address.
pub(crate) fn key(ip: IpAddr) -> Key {
    Key::new().address(ip)
}
