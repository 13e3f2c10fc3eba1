//! What a link may send into the host: a chain of the `netdev` family where its packets arrive, before bridges and
//! neighbours see them.
//!
//! A chain is named after its link. It may outlive the link, and is then in force for the next one of that name, until it
//! is deleted or made anew.

use std::net::Ipv4Addr;

use nix::libc;

use super::batch::{
    Batch, DELETE_CHAIN, DELETE_TABLE, FAMILY_NETDEV, NEW_CHAIN, NEW_RULE, NEW_TABLE, tables_of,
};
use super::{Compare, Expr, Reg, Rule, Verdict, base_chains, encode};
use crate::Result;
use crate::netlink::CREATE;

const IPV4: [u8; 2] = 0x0800_u16.to_be_bytes();
const ARP: [u8; 2] = 0x0806_u16.to_be_bytes();

/// Who is at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its address.
    pub ip: Ipv4Addr,
    /// The hardware address of the host, which routes all that it sends.
    pub gateway: [u8; 6],
}

/// Lets a link send IPv4 of its owner to the host, and ARP that says who it is, and nothing else: not to neighbours on the
/// same bridge, past what the host decides about routed packets, nor to all of them.
///
/// # Errors
/// The kernel refuses, which [`is_unsupported`] explains.
pub fn guard(table: &str, link: &str, owner: Owner) -> Result<()> {
    release(table, link)?;
    let mut batch = Batch::of(FAMILY_NETDEV, table);
    batch.table(NEW_TABLE, CREATE);
    batch.message(NEW_CHAIN, CREATE, |out, table| encode::ingress_chain(out, table, link));
    for rule in rules(owner) {
        batch.append_rule(NEW_RULE, link, &rule);
    }
    batch.commit()
}

fn rules(Owner { mac, ip, gateway }: Owner) -> Vec<Rule> {
    let is = |value: &[u8]| Expr::Compare(Reg::R0, Compare::Equal, value.to_vec());
    let is_not = |value: &[u8]| Expr::Compare(Reg::R0, Compare::NotEqual, value.to_vec());
    let drop = || Expr::Verdict(Verdict::Drop);
    let (kind, ip) = (|| Expr::EtherType(Reg::R0), ip.octets());
    vec![
        vec![Expr::SourceMac(Reg::R0), is_not(&mac), drop()],
        vec![kind(), is_not(&IPV4), is_not(&ARP), drop()],
        vec![kind(), is(&IPV4), Expr::SourceIp(Reg::R0), is_not(&ip), drop()],
        vec![kind(), is(&IPV4), Expr::DestinationMac(Reg::R0), is_not(&gateway), drop()],
        vec![kind(), is(&ARP), Expr::ArpSenderMac(Reg::R0), is_not(&mac), drop()],
        vec![kind(), is(&ARP), Expr::ArpSenderIp(Reg::R0), is_not(&ip), drop()],
    ]
}

/// Whether a link has such a chain in this namespace.
///
/// # Errors
/// The kernel does not say.
pub fn is_guarded(table: &str, link: &str) -> Result<bool> {
    Ok(base_chains()?.iter().any(|chain| chain.table == table && chain.name == link))
}

/// Whether a kernel that says so has no such chains.
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
