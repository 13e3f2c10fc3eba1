//! Tells the neighbours of a link that an address is here now (gratuitous ARP, RFC 5227, section 3).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::libc;

use crate::{Doing, Result};

const ARP: u16 = 0x0806;
const BROADCAST: [u8; 6] = [0xff; 6];

/// Sends one announcement from a link with this hardware address, in the calling thread's network namespace.
///
/// # Errors
/// The kernel does not send it. A link that is down has no neighbours, and is none.
pub fn announce(link: u32, mac: [u8; 6], ip: Ipv4Addr) -> Result<()> {
    let doing = || format!("announce {ip} to the neighbours");
    // SAFETY: plain system call with integers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error()).doing(doing);
    }
    // SAFETY: the descriptor is new and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let frame = frame(mac, ip);
    // SAFETY: all zeroes are a valid address.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = link as i32;
    to.sll_protocol = ARP.to_be();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: frame and address are ours and as long as is said.
    let sent = unsafe {
        libc::sendto(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), length)
    };
    match io::Error::last_os_error() {
        error if sent < 0 && error.raw_os_error() != Some(libc::ENETDOWN) => Err(error).doing(doing),
        _ => Ok(()),
    }
}

/// An Ethernet frame with a request for the address by its holder.
fn frame(mac: [u8; 6], ip: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, lengths of both kinds of addresses, a request.
    const HEAD: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
    let ip = ip.octets();
    [&BROADCAST[..], &mac, &ARP.to_be_bytes(), &HEAD, &mac, &ip, &[0; 6], &ip].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_asks_everybody_for_the_own_address() {
        let frame = frame([2, 0, 0, 0, 0, 7], Ipv4Addr::new(192, 0, 2, 9));
        assert_eq!(frame.len(), 42);
        assert_eq!(frame[..14], [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 8, 6]);
        assert_eq!(frame[14..28], [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7]);
        assert_eq!(frame[28..], [192, 0, 2, 9, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
    }
}
