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

/// Forgets every UDP flow whose (original destination address, answering address, answering port) `is_stale`, and
/// returns how many there were.
pub fn flush_udp_flows(is_stale: impl Fn(Ipv4Addr, Ipv4Addr, u16) -> bool) -> Result<usize> {
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
        let Some((destination, answering, port)) = udp_flow(original, reply) else { continue };
        if !is_stale(destination, answering, port) {
            continue;
        }
        let mut delete = Encoder::message(DELETE, 0);
        delete.raw(&family).bytes(TUPLE_ORIGINAL | libc::NLA_F_NESTED as u16, original);
        match socket.request(delete, ACK, || format!("forget a UDP flow to {destination}")) {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => flushed += 1,
        }
    }
    Ok(flushed)
}

fn udp_flow(original: &[u8], reply: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr, u16)> {
    let address = |tuple, kind| {
        let bytes: [u8; 4] = find_attribute(find_attribute(tuple, TUPLE_IP)?, kind)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    let proto = find_attribute(reply, TUPLE_PROTO)?;
    if find_attribute(proto, PROTO_NUMBER)? != [libc::IPPROTO_UDP as u8] {
        return None;
    }
    let port = u16::from_be_bytes(find_attribute(proto, PROTO_SOURCE_PORT)?.try_into().ok()?);
    Some((address(original, IP_V4_DESTINATION)?, address(reply, IP_V4_SOURCE)?, port))
}
