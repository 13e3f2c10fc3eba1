//! The packets that a link may send into the host: a chain of the `netdev` family where its packets arrive, before
//! bridges and neighbours see them.
//!
//! A chain is named after its link. It may outlive the link, and is then in force for the next one of that name, until it
//! is deleted or made anew.

use std::net::{IpAddr, Ipv6Addr};

use nix::libc;

use super::batch::{
    Batch, DELETE_CHAIN, DELETE_TABLE, FAMILY_NETDEV, NEW_CHAIN, NEW_RULE, NEW_TABLE, tables_of,
};
use super::{Compare, Expr, Reg, Rule, Verdict, base_chains, encode};
use crate::Result;
use crate::netlink::CREATE;

const IPV4: [u8; 2] = 0x0800_u16.to_be_bytes();
const ARP: [u8; 2] = 0x0806_u16.to_be_bytes();
const IPV6: [u8; 2] = 0x86dd_u16.to_be_bytes();
const ICMPV6: u8 = libc::IPPROTO_ICMPV6 as u8;
// Source: RFC 4861, section 4.
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// The owner of a link, by its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its addresses. With one of IPv6 it has the link-local one that its hardware address makes, too.
    pub ips: &'a [IpAddr],
    /// The hardware address of the host, which routes all that it sends.
    pub gateway: [u8; 6],
    /// The addresses of the host that it may ask for.
    pub gateways: &'a [IpAddr],
}

/// Lets a link send packets of its owner to the host, and ARP and neighbour discovery that say who it is, and nothing else:
/// not to neighbours on the same bridge, past what the host decides about routed packets, nor to all of them; and nothing of
/// a family that its owner has no address of.
///
/// # Errors
/// The kernel refuses, which [`is_unsupported`] explains.
pub fn guard(table: &str, link: &str, owner: &Owner<'_>) -> Result<()> {
    release(table, link)?;
    guard_all(table, [(link, *owner)])
}

/// The same for links that have no such chain, in one transaction: all of them or none.
///
/// # Errors
/// As [`guard`]; a link is not there.
pub fn guard_all<'a>(table: &str, owners: impl IntoIterator<Item = (&'a str, Owner<'a>)>) -> Result<()> {
    let mut batch = Batch::of(FAMILY_NETDEV, table);
    batch.table(NEW_TABLE, CREATE);
    for (link, owner) in owners {
        batch.message(NEW_CHAIN, CREATE, |out, table| encode::ingress_chain(out, table, link));
        for rule in rules(&owner) {
            batch.append_rule(NEW_RULE, link, &rule);
        }
    }
    batch.commit()
}

fn is(value: &[u8]) -> Expr {
    Expr::Compare(Reg::R0, Compare::Equal, value.to_vec())
}

fn is_not(value: &[u8]) -> Expr {
    Expr::Compare(Reg::R0, Compare::NotEqual, value.to_vec())
}

/// Goes on for frames that carry this.
fn of(kind: [u8; 2]) -> [Expr; 2] {
    [Expr::EtherType(Reg::R0), is(&kind)]
}

fn drop() -> Expr {
    Expr::Verdict(Verdict::Drop)
}

fn rules(owner: &Owner<'_>) -> Vec<Rule> {
    let v4 = |ip: &IpAddr| if let IpAddr::V4(ip) = ip { Some(ip.octets()) } else { None };
    let v6 = |ip: &IpAddr| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None };
    let own_v4: Vec<[u8; 4]> = owner.ips.iter().filter_map(v4).collect();
    let own_v6: Vec<Ipv6Addr> = owner.ips.iter().filter_map(v6).collect();
    let mut kinds: Vec<[u8; 2]> = Vec::new();
    kinds.extend([IPV4, ARP].iter().filter(|_| !own_v4.is_empty()));
    kinds.extend([IPV6].iter().filter(|_| !own_v6.is_empty()));
    let mut rules = vec![
        vec![Expr::SourceMac(Reg::R0), is_not(&owner.mac), drop()],
        unless(&[], Expr::EtherType(Reg::R0), &kinds),
    ];
    if !own_v4.is_empty() {
        rules.extend(ipv4_rules(owner, &own_v4));
    }
    if !own_v6.is_empty() {
        let gateways: Vec<Ipv6Addr> = owner.gateways.iter().filter_map(v6).collect();
        rules.extend(ipv6_rules(owner, &own_v6, &gateways));
    }
    rules
}

/// Unless one of them is what was loaded, the packet is dropped.
fn unless<const N: usize>(when: &[Expr], load: Expr, values: &[[u8; N]]) -> Rule {
    let none = values.iter().map(|value| is_not(value));
    when.iter().cloned().chain([load]).chain(none).chain([drop()]).collect()
}

fn ipv4_rules(owner: &Owner<'_>, own: &[[u8; 4]]) -> Vec<Rule> {
    vec![
        unless(&of(IPV4), Expr::SourceIp(Reg::R0), own),
        unless(&of(IPV4), Expr::DestinationMac(Reg::R0), &[owner.gateway]),
        unless(&of(ARP), Expr::ArpSenderMac(Reg::R0), &[owner.mac]),
        unless(&of(ARP), Expr::ArpSenderIp(Reg::R0), own),
    ]
}

/// Neighbour discovery is IPv6 itself. What its packets say beside their source is who has an address (an advertisement's
/// target), and who is a router, which no Pod is. The only packets for several receivers ask for the host's addresses.
fn ipv6_rules(owner: &Owner<'_>, own: &[Ipv6Addr], gateways: &[Ipv6Addr]) -> Vec<Rule> {
    let own: Vec<[u8; 16]> = own.iter().chain([&link_local(owner.mac)]).map(Ipv6Addr::octets).collect();
    let message = |kind: u8| -> Vec<Expr> {
        let icmp = [Expr::L4Protocol(Reg::R0), is(&[ICMPV6]), Expr::IcmpType(Reg::R0), is(&[kind])];
        of(IPV6).into_iter().chain(icmp).collect()
    };
    let dropped = |kind: u8| [message(kind), vec![drop()]].concat();
    let asks = |gateway: &Ipv6Addr| -> Rule {
        let to = [Expr::DestinationMac(Reg::R0), is(&solicited_mac(*gateway))];
        message(NEIGHBOUR_SOLICITATION)
            .into_iter()
            .chain(to)
            .chain([Expr::Verdict(Verdict::Accept)])
            .collect()
    };
    let mut rules = vec![
        unless(&of(IPV6), Expr::SourceIpv6(Reg::R0), &own),
        dropped(ROUTER_ADVERTISEMENT),
        dropped(REDIRECT),
        unless(&message(NEIGHBOUR_ADVERTISEMENT), Expr::NeighbourTarget(Reg::R0), &own),
    ];
    rules.extend(gateways.iter().map(asks));
    rules.push(unless(&of(IPV6), Expr::DestinationMac(Reg::R0), &[owner.gateway]));
    rules
}

/// The link-local address that a link makes of its hardware address. Source: RFC 4291, appendix A.
fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The hardware address of the group in which somebody asks for an address. Source: RFC 2464, section 7; RFC 4291, 2.7.1.
fn solicited_mac(ip: Ipv6Addr) -> [u8; 6] {
    let [.., d, e, f] = ip.octets();
    [0x33, 0x33, 0xff, d, e, f]
}

/// `true` if a link has such a chain in this namespace.
///
/// # Errors
/// The kernel does not say.
pub fn is_guarded(table: &str, link: &str) -> Result<bool> {
    Ok(base_chains()?.iter().any(|chain| chain.table == table && chain.name == link))
}

/// `true` if a kernel that says so has no such chains.
pub fn is_unsupported(error: &crate::Error) -> bool {
    let none = [libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT, libc::ENOENT, libc::EINVAL];
    error.raw_os_error().is_some_and(|number| none.contains(&number))
}

/// Deletes a link's chain. No error if there is none, or can be none.
///
/// # Errors
/// The kernel refuses.
pub fn release(table: &str, link: &str) -> Result<()> {
    if !tables()?.iter().any(|known| known == table) {
        return Ok(());
    }
    let mut batch = Batch::of(FAMILY_NETDEV, table);
    batch.message(DELETE_CHAIN, 0, |out, table| {
        out.str(1, table).str(3, link);
    });
    match batch.commit() {
        Err(error) if error.is_not_found() => Ok(()),
        done => done,
    }
}

/// The names of the tables with such chains.
///
/// # Errors
/// The kernel does not say.
pub fn tables() -> Result<Vec<String>> {
    tables_of(FAMILY_NETDEV)
}

/// Deletes a table with all its chains. No error if there is none, or can be none.
///
/// # Errors
/// The kernel refuses.
pub fn delete(table: &str) -> Result<()> {
    if !tables()?.iter().any(|known| known == table) {
        return Ok(());
    }
    let mut batch = Batch::of(FAMILY_NETDEV, table);
    batch.table(NEW_TABLE, CREATE);
    batch.table(DELETE_TABLE, 0);
    batch.commit()
}

#[cfg(test)]
#[path = "port/tests.rs"]
mod tests;
