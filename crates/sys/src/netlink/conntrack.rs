//! Connection tracking: forgetting UDP flows, which would keep going to an endpoint that is gone.

use std::net::Ipv4Addr;

use nix::libc;

use super::{ACK, DUMP, Encoder, Socket, find_attribute};
use crate::Result;

const SUBSYSTEM: u16 = 1;
const GET: u16 = SUBSYSTEM << 8 | 1;
const DELETE: u16 = SUBSYSTEM << 8 | 2;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_V4_SOURCE: u16 = 1;
const IP_V4_DESTINATION: u16 = 2;
const PROTO_NUMBER: u16 = 1;
const PROTO_SOURCE_PORT: u16 = 2;
const PROTO_DESTINATION_PORT: u16 = 3;

/// Where a UDP flow goes, and who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpFlow {
    /// Address and port that the sender sends to.
    pub destination: (Ipv4Addr, u16),
    /// Address and port that what is sent comes to in the end.
    pub answering: (Ipv4Addr, u16),
}

/// Forgets every UDP flow that `is_stale`, and returns how many there were.
pub fn flush_udp_flows(is_stale: impl Fn(&UdpFlow) -> bool) -> Result<usize> {
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    let family = [libc::AF_INET as u8, 0, 0, 0];
    let mut dump = Encoder::message(GET, 0);
    dump.raw(&family);
    let flows = socket.request(dump, DUMP, || "list tracked connections".into())?;
    let mut flushed = 0;
    for flow in &flows {
        let Some(attributes) = flow.get(4..) else { continue };
        let (Some(original), Some(reply)) =
            (find_attribute(attributes, TUPLE_ORIGINAL), find_attribute(attributes, TUPLE_REPLY))
        else {
            continue;
        };
        let Some(udp) = udp_flow(original, reply).filter(&is_stale) else {
            continue;
        };
        let mut delete = Encoder::message(DELETE, 0);
        delete.raw(&family).bytes(TUPLE_ORIGINAL | libc::NLA_F_NESTED as u16, original);
        match socket.request(delete, ACK, || format!("forget a UDP flow to {}", udp.destination.0)) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => flushed += 1,
        }
    }
    Ok(flushed)
}

fn udp_flow(original: &[u8], reply: &[u8]) -> Option<UdpFlow> {
    let address = |tuple, kind| {
        let bytes: [u8; 4] = find_attribute(find_attribute(tuple, TUPLE_IP)?, kind)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    let port = |tuple, kind| {
        let bytes: [u8; 2] = find_attribute(find_attribute(tuple, TUPLE_PROTO)?, kind)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    };
    if find_attribute(find_attribute(reply, TUPLE_PROTO)?, PROTO_NUMBER)? != [libc::IPPROTO_UDP as u8] {
        return None;
    }
    Some(UdpFlow {
        destination: (address(original, IP_V4_DESTINATION)?, port(original, PROTO_DESTINATION_PORT)?),
        answering: (address(reply, IP_V4_SOURCE)?, port(reply, PROTO_SOURCE_PORT)?),
    })
}
