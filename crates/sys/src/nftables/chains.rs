//! The chains, of any owner, that are hooked into the path of packets, to explain why packets do not arrive.

use nix::libc;

use crate::Result;
use crate::netlink::{DUMP, Encoder, Socket, find_attribute, str_of};

const SUBSYSTEM: u16 = 10;
const GET_CHAIN: u16 = 4;
const FAMILY_ALL: u8 = 0;
const FAMILY_INET: u8 = 1;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
// Source: `include/uapi/linux/netfilter/nf_tables.h`.
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const HOOK_NUMBER: u16 = 1;

/// The packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `ip`
    Ipv4,
    /// `ip6`
    Ipv6,
    /// `inet`: IPv4 and IPv6
    Inet,
    /// Anything else.
    Other,
}

/// A chain that the kernel calls by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseChain {
    /// Of its table.
    pub family: Family,
    /// Its table's name.
    pub table: String,
    /// Its own name.
    pub name: String,
    /// The hook: `NF_INET_FORWARD` is 2.
    pub hook: u32,
    /// The fate of packets that no rule decides about: 0 drops, 1 accepts.
    pub policy: u32,
}

/// The base chains in the calling thread's network namespace, of every family.
pub fn base_chains() -> Result<Vec<BaseChain>> {
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    let mut request = Encoder::message(SUBSYSTEM << 8 | GET_CHAIN, 0);
    request.raw(&[FAMILY_ALL, 0, 0, 0]);
    let answers = socket.request(request, DUMP, || "list nftables chains".into())?;
    Ok(answers.iter().filter_map(|answer| parse(answer)).collect())
}

/// `None` for a chain that only other chains jump to.
pub(super) fn parse(answer: &[u8]) -> Option<BaseChain> {
    let attributes = answer.get(4..)?;
    let number = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?));
    Some(BaseChain {
        family: match *answer.first()? {
            FAMILY_IPV4 => Family::Ipv4,
            FAMILY_IPV6 => Family::Ipv6,
            FAMILY_INET => Family::Inet,
            _ => Family::Other,
        },
        hook: number(find_attribute(find_attribute(attributes, CHAIN_HOOK)?, HOOK_NUMBER)?)?,
        policy: number(find_attribute(attributes, CHAIN_POLICY)?)?,
        table: str_of(find_attribute(attributes, CHAIN_TABLE)?),
        name: str_of(find_attribute(attributes, CHAIN_NAME)?),
    })
}
