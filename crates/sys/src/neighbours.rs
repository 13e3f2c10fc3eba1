//! Tells the neighbours of a link that an address is here now: gratuitous ARP (RFC 5227, section 3), and of IPv6 an
//! unsolicited neighbour advertisement (RFC 4861, section 7.2.6). And hears who says that of an address of ours
//! ([`conflicts`]).

pub mod conflicts;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

use crate::{Doing, Result};

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const BROADCAST: [u8; 6] = [0xff; 6];
/// The hardware address of [`ALL_NODES`].
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ICMPV6: u8 = 58;

/// Sends one announcement from a link with this hardware address, in the calling thread's network namespace.
///
/// # Errors
/// The kernel does not send it. A link that is down has no neighbours, and is none.
pub fn announce(link: u32, mac: [u8; 6], ip: IpAddr) -> Result<()> {
    let doing = || format!("announce {ip} to the neighbours");
    let fd = open(0).doing(doing)?;
    let (protocol, frame) = match ip {
        IpAddr::V4(ip) => (ARP, request(mac, ip)),
        IpAddr::V6(ip) => (IPV6, advertisement(mac, ip)),
    };
    match send(&fd, (link, protocol), &frame) {
        Err(error) if error.raw_os_error() != Some(libc::ENETDOWN) => Err(error).doing(doing),
        _ => Ok(()),
    }
}

/// A socket for frames of one protocol; for sending alone with none.
fn open(protocol: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call with integers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol.to_be())) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn place((link, protocol): (u32, u16)) -> libc::sockaddr_ll {
    // SAFETY: all zeroes are a valid address.
    let mut place: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    place.sll_family = libc::AF_PACKET as u16;
    place.sll_ifindex = link as i32;
    place.sll_protocol = protocol.to_be();
    place
}

fn send(fd: &OwnedFd, to: (u32, u16), frame: &[u8]) -> io::Result<()> {
    let (to, length) = (place(to), size_of::<libc::sockaddr_ll>() as libc::socklen_t);
    // SAFETY: frame and address are ours and as long as is said.
    let sent = unsafe {
        libc::sendto(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), length)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An Ethernet frame with a request for the address by its holder.
fn request(mac: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    request_of(mac, ip, ip)
}

/// An Ethernet frame with a request for an address by somebody.
fn request_of(mac: [u8; 6], sender: Ipv4Addr, ip: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, lengths of both kinds of addresses, a request.
    const HEAD: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
    let (sender, ip) = (sender.octets(), ip.octets());
    [&BROADCAST[..], &mac, &ARP.to_be_bytes(), &HEAD, &mac, &sender, &[0; 6], &ip].concat()
}

/// An Ethernet frame with an advertisement to all nodes, which replaces what they know of the address.
fn advertisement(mac: [u8; 6], ip: Ipv6Addr) -> Vec<u8> {
    // Type and code; nobody asked, and it overrides; the target, and its hardware address (option 2).
    let message = |sum: u16| {
        [&[136, 0][..], &sum.to_be_bytes(), &[0x20, 0, 0, 0], &ip.octets(), &[2, 1], &mac].concat()
    };
    let unsummed = message(0);
    let length = unsummed.len() as u16;
    let ends = [ip.octets(), ALL_NODES.octets()].concat();
    let pseudo_header = [&ends[..], &u32::from(length).to_be_bytes(), &[0, 0, 0, ICMPV6]].concat();
    let sum = checksum(&[pseudo_header, unsummed].concat());
    // Version 6; the hop limit says that it comes from this link.
    let header = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[ICMPV6, 255], &ends].concat();
    [&ALL_NODES_MAC[..], &mac, &IPV6.to_be_bytes(), &header, &message(sum)].concat()
}

/// The internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|two| two.try_into().map_or(0, u16::from_be_bytes));
    let sum: u32 = words.map(u32::from).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

    #[test]
    fn an_announcement_asks_everybody_for_the_own_address() {
        let frame = request(MAC, Ipv4Addr::new(192, 0, 2, 9));
        assert_eq!(frame.len(), 42);
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 8, 6]);
        assert_eq!(frame[14..28], [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7]);
        assert_eq!(frame[28..], [192, 0, 2, 9, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
    }

    #[test]
    fn an_advertisement_overrides_what_all_nodes_know() {
        let ip: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let frame = advertisement(MAC, ip);
        assert_eq!(frame.len(), 14 + 40 + 32);
        assert_eq!(frame[..14], [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 0x86, 0xdd]);
        assert_eq!(frame[14..22], [0x60, 0, 0, 0, 0, 32, 58, 255]);
        assert_eq!((&frame[22..38], &frame[38..54]), (&ip.octets()[..], &ALL_NODES.octets()[..]));
        assert_eq!((&frame[54..56], &frame[58..62]), (&[136, 0][..], &[0x20, 0, 0, 0][..]));
        assert_eq!((&frame[62..78], &frame[78..]), (&ip.octets()[..], &[2, 1, 2, 0, 0, 0, 0, 7][..]));
        // A sum over what the checksum is of, with it, is nothing.
        let whole = [&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &frame[54..]].concat();
        assert_eq!(checksum(&whole), 0);
    }
    /// Source: RFC 1071, section 3, and sums that carry twice.
    #[test]
    fn sums_are_those_of_the_internet() {
        for (name, bytes, sum) in [
            ("the RFC's own", &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7][..], 0x220d),
            ("nothing", &[], 0xffff),
            ("zeroes", &[0; 8], 0xffff),
            ("ones", &[0xff; 8], 0),
            ("one that carries", &[0xff, 0xff, 0x00, 0x01], 0xfffe),
            ("one that carries again", &[0xff, 0xff, 0xff, 0xff, 0x00, 0x01], 0xfffe),
            // The head of a packet of IPv4, as in every textbook.
            (
                "a header",
                &[0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7],
                0xb861,
            ),
        ] {
            assert_eq!(checksum(bytes), sum, "{name}");
        }
        // However long: nothing is lost between the words.
        assert_eq!(checksum(&[0xff, 0xfe].repeat(30_000)), 30_000);
    }
}
