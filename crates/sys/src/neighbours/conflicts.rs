//! Who else says that an IPv4 address of this host is his: neighbours of a link, by ARP.
//!
//! Of IPv6 the kernel sees to it: an address that another host has is not used (RFC 4862, section 5.4).
//! Source: RFC 5227, sections 2.1.1 and 2.4.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::unix::AsyncFd;

use super::{ARP, open, place, request_of, send};
use crate::{Doing, Result};

/// Where a frame has the hardware address and the address of its sender.
const SENDER_MAC: usize = 22;
const SENDER_IP: usize = 28;
const FRAME_BYTES: usize = 42;

/// A neighbour's claim to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub ip: Ipv4Addr,
    /// The hardware address of who says that it is his.
    pub mac: [u8; 6],
}

/// A listener for claims on a link.
#[derive(Debug)]
pub struct Claims {
    socket: AsyncFd<OwnedFd>,
    mac: [u8; 6],
}

impl Claims {
    /// Hears from now on who else has an address of this host, which has it on a link with this hardware address.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(link: u32, mac: [u8; 6], ip: Ipv4Addr) -> Result<Self> {
        let doing = || format!("listen for others that have the address {ip}");
        let socket = listen(link, ip).doing(doing)?;
        #[expect(deprecated, reason = "its replacement is unsafe; an OwnedFd keeps its number for itself")]
        let socket = AsyncFd::new(socket).doing(doing)?;
        Ok(Self { socket, mac })
    }

    /// The next claim.
    ///
    /// # Errors
    /// The link is down, or gone.
    pub async fn next(&mut self) -> Result<Claim> {
        let doing = || "hear whose an address is".to_owned();
        loop {
            let mut ready = self.socket.readable().await.doing(doing)?;
            match receive(self.socket.get_ref()) {
                Ok(claim) => {
                    if let Some(claim) = claim.filter(|claim| claim.mac != self.mac) {
                        return Ok(claim);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Err(error).doing(doing),
            }
        }
    }
}

/// Asks the neighbours of a link with this hardware address who else has an address of this host; waits so long for an
/// answer.
///
/// # Errors
/// The kernel refuses. A link that is down has no neighbours.
pub fn ask(link: u32, mac: [u8; 6], ip: Ipv4Addr, wait: Duration) -> Result<Option<Claim>> {
    let doing = || format!("ask for others that have the address {ip}");
    let socket = listen(link, ip).doing(doing)?;
    let end = Instant::now() + wait;
    // Nobody learns anything from who asks in nobody's name.
    match send(&socket, (link, ARP), &request_of(mac, Ipv4Addr::UNSPECIFIED, ip)) {
        Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => return Ok(None),
        sent => sent.doing(doing)?,
    }
    loop {
        match receive(&socket) {
            Ok(Some(claim)) if claim.mac != mac => return Ok(Some(claim)),
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).doing(doing),
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::ZERO);
        poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], timeout)
            .map_err(io::Error::from)
            .doing(doing)?;
    }
}

/// A socket for ARP of those on a link who say that they have this address.
fn listen(link: u32, ip: Ipv4Addr) -> io::Result<OwnedFd> {
    // Nothing comes before the filter is there.
    let socket = open(0)?;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, SENDER_IP as u32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(ip)),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, FRAME_BYTES as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the option's value is a program of as many steps as it says, which the kernel copies.
    let set =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const program).cast(), length) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    let (place, length) = (place((link, ARP)), size_of::<libc::sockaddr_ll>() as libc::socklen_t);
    // SAFETY: the address is a packet socket's, and its length is given.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const place).cast(), length) };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

fn receive(socket: &OwnedFd) -> io::Result<Option<Claim>> {
    let mut frame = [0_u8; FRAME_BYTES];
    // SAFETY: pointer and length describe the buffer.
    let got = unsafe { libc::recv(socket.as_raw_fd(), frame.as_mut_ptr().cast(), frame.len(), 0) };
    match usize::try_from(got) {
        Ok(length) => Ok(frame.get(..length).and_then(claim)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn claim(frame: &[u8]) -> Option<Claim> {
    let ip: [u8; 4] = *frame.get(SENDER_IP..)?.first_chunk()?;
    Some(Claim { ip: ip.into(), mac: *frame.get(SENDER_MAC..)?.first_chunk()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Address, Route, VethPeer};
    use crate::netns::NetNs;

    const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

    #[test]
    fn a_claim_is_whose_hardware_address_a_frame_has_and_of_less_there_is_none() {
        // RFC 826, as it is on the wire: a reply, of which the sender is told, not who is asked.
        let head = [0, 1, 8, 0, 6, 4, 0, 2];
        let frame =
            [&MACS[1][..], &MACS[0], &[8, 6], &head, &MACS[0], &OWN.octets(), &MACS[1], &OTHER.octets()];
        let frame = frame.concat();
        assert_eq!(frame.len(), FRAME_BYTES);
        let expected = Claim { ip: OWN, mac: MACS[0] };
        for length in 0..=frame.len() {
            // Up to whom it is for.
            let wanted = (length >= 32).then_some(expected);
            assert_eq!(claim(&frame[..length]), wanted, "{length} bytes");
        }
        let asked = request_of(MACS[1], Ipv4Addr::UNSPECIFIED, OWN);
        let in_nobodys_name = Claim { ip: Ipv4Addr::UNSPECIFIED, mac: MACS[1] };
        assert_eq!(claim(&asked), Some(in_nobodys_name), "who asks for an address claims none");
    }

    fn set_up(name: &str, mac: [u8; 6], ip: Ipv4Addr) -> Result<u32> {
        let mut route = Route::open()?;
        let link = route.index(name)?;
        route.set_mac(name, mac)?;
        route.add_address(Address { link, ip: ip.into(), prefix: 24 })?;
        route.set_up(name)?;
        Ok(link)
    }

    #[tokio::test]
    async fn who_has_an_address_of_ours_is_heard_and_found() {
        let [here, there] = [NetNs::anonymous().unwrap(), NetNs::anonymous().unwrap()];
        here.run(|| {
            let peer = VethPeer { name: "b", namespace: there.as_fd(), mac: None };
            Route::open()?.create_veth("a", None, None, &peer)
        })
        .unwrap();
        let link = here.run(|| set_up("a", MACS[0], OWN)).unwrap();
        there.run(|| set_up("b", MACS[1], OTHER)).unwrap();
        here.run(|| Route::open()?.wait_operational(&["a"], 5)).unwrap();
        let wait = Duration::from_millis(300);
        assert_eq!(here.run(|| ask(link, MACS[0], OWN, wait)).unwrap(), None, "nobody else has it");

        let runtime = tokio::runtime::Handle::current();
        let mut claims = here
            .run(|| {
                let _entered = runtime.enter();
                Claims::new(link, MACS[0], OWN)
            })
            .unwrap();
        let mut heard = async || tokio::time::timeout(wait, claims.next()).await.ok().map(Result::unwrap);
        let announce = |namespace: &NetNs, name: &str, mac, ip: Ipv4Addr| {
            namespace.run(|| super::super::announce(Route::open()?.index(name)?, mac, ip.into())).unwrap();
        };
        announce(&there, "b", MACS[1], OTHER);
        announce(&here, "a", MACS[0], OWN);
        assert_eq!(heard().await, None, "everybody says what is his own");
        announce(&there, "b", MACS[1], OWN);
        let claim = Claim { ip: OWN, mac: MACS[1] };
        assert_eq!(heard().await, Some(claim));
        there.run(|| set_up("b", MACS[1], OWN).map(drop)).unwrap();
        assert_eq!(here.run(|| ask(link, MACS[0], OWN, Duration::from_secs(5))).unwrap(), Some(claim));
    }
}
