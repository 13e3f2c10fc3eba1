//! Connection tracking: forgetting flows without an end of their own, which would keep going to an endpoint that is gone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::libc;

use super::{ACK, DUMP, Encoder, Socket, find_attribute};
use crate::Result;
use crate::nfproto::TableFamily;

const SUBSYSTEM: u16 = 1;
const GET: u16 = SUBSYSTEM << 8 | 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_V4_SOURCE: u16 = 1;
const IP_V4_DESTINATION: u16 = 2;
const IP_V6_SOURCE: u16 = 3;
const IP_V6_DESTINATION: u16 = 4;
const PROTO_NUMBER: u16 = 1;
const PROTO_SOURCE_PORT: u16 = 2;
const PROTO_DESTINATION_PORT: u16 = 3;

/// The destination of a flow, and the address that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The transport protocol's number.
    pub protocol: u8,
    /// Address and port that the sender sends to.
    pub destination: (IpAddr, u16),
    /// Address and port that what is sent comes to in the end.
    pub answering: (IpAddr, u16),
}

/// Forgets every flow of a family (of both, with [`TableFamily::Inet`]) that `is_stale`, and returns how many there were.
pub fn flush_flows(family: TableFamily, is_stale: impl Fn(&Flow) -> bool) -> Result<usize> {
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    let family = match family {
        TableFamily::Ipv4 => libc::AF_INET,
        TableFamily::Ipv6 => libc::AF_INET6,
        TableFamily::Inet => libc::AF_UNSPEC,
    };
    let header = |family: i32| [family as u8, 0, 0, 0];
    let mut dump = Encoder::message(GET, 0);
    dump.raw(&header(family));
    let flows = socket.request(dump, DUMP, || "list tracked connections".into())?;
    let mut flushed = 0;
    for answer in &flows {
        let Some(attributes) = answer.get(4..) else { continue };
        let (Some(original), Some(reply)) =
            (find_attribute(attributes, TUPLE_ORIGINAL), find_attribute(attributes, TUPLE_REPLY))
        else {
            continue;
        };
        let Some(flow) = flow(original, reply).filter(&is_stale) else {
            continue;
        };
        let own = if flow.destination.0.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let mut delete = Encoder::message(DELETE, 0);
        delete.raw(&header(own)).bytes(TUPLE_ORIGINAL | libc::NLA_F_NESTED as u16, original);
        match socket.request(delete, ACK, || format!("forget a flow to {}", flow.destination.0)) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => flushed += 1,
        }
    }
    Ok(flushed)
}

pub(super) fn flow(original: &[u8], reply: &[u8]) -> Option<Flow> {
    let address = |tuple, (v4, v6)| {
        let addresses = find_attribute(tuple, TUPLE_IP)?;
        let v4 = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(find_attribute(addresses, v4)?).ok()?).into());
        let v6 = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(find_attribute(addresses, v6)?).ok()?).into());
        v4().or_else(v6)
    };
    let port = |tuple, kind| {
        let bytes: [u8; 2] = find_attribute(find_attribute(tuple, TUPLE_PROTO)?, kind)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    };
    let (source, destination) = ((IP_V4_SOURCE, IP_V6_SOURCE), (IP_V4_DESTINATION, IP_V6_DESTINATION));
    Some(Flow {
        protocol: *find_attribute(find_attribute(reply, TUPLE_PROTO)?, PROTO_NUMBER)?.first()?,
        destination: (address(original, destination)?, port(original, PROTO_DESTINATION_PORT)?),
        answering: (address(reply, source)?, port(reply, PROTO_SOURCE_PORT)?),
    })
}
