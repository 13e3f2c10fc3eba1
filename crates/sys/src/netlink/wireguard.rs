//! WireGuard in the kernel: the key and the port of a link, and its peers, by generic netlink.
//!
//! A link is of kind `wireguard`. Its public key is the kernel's to compute: it is read back. A peer is who has a key: packets
//! for its networks go to its endpoint, and what comes from it has a source in them.
//!
//! Source: `include/uapi/linux/wireguard.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use nix::libc;

use super::generic::{self, HEADER_BYTES, message, u16_of};
use super::overlay::new_link;
use super::route::{Route, ip_of, octets};
use super::{DUMP, Encoder, Socket, attributes, find_attribute};
use crate::Result;

const NAME: &str = "wireguard";
const VERSION: u8 = 1;
const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;

const DEVICE_NAME: u16 = 2;
const DEVICE_PRIVATE_KEY: u16 = 3;
const DEVICE_PUBLIC_KEY: u16 = 4;
const DEVICE_PORT: u16 = 6;
const DEVICE_PEERS: u16 = 8;

const PEER_PUBLIC_KEY: u16 = 1;
const PEER_FLAGS: u16 = 3;
const PEER_ENDPOINT: u16 = 4;
const PEER_KEEPALIVE: u16 = 5;
const PEER_NETWORKS: u16 = 9;
const REMOVE: u32 = 1;
const REPLACE_NETWORKS: u32 = 2;

const NETWORK_FAMILY: u16 = 1;
const NETWORK_ADDRESS: u16 = 2;
const NETWORK_BITS: u16 = 3;

/// An attribute's length is 16 bits; a peer of ours takes about 120 bytes.
const PEERS_PER_MESSAGE: usize = 200;

/// A key of Curve25519.
pub type Key = [u8; 32];

/// Somebody whom a link has packets for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's address.
    pub endpoint: SocketAddr,
    /// The networks behind it, of both families.
    pub networks: BTreeSet<(IpAddr, u8)>,
    /// Seconds after which a silent way there is kept open, through translators of addresses.
    pub keepalive_seconds: u16,
}

/// The settings of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The key that others know it by; all zeroes while it has none.
    pub public_key: Key,
    /// The UDP port that it listens on.
    pub port: u16,
    /// Its peers by their keys, and nothing of one that has no endpoint.
    pub peers: BTreeMap<Key, Option<Peer>>,
}

/// A change of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is there, and like this.
    Set(Key, Peer),
    /// It is gone.
    Remove(Key),
}

/// A connection to WireGuard in the calling thread's network namespace.
#[derive(Debug)]
pub struct Wireguard {
    socket: Socket,
    family: u16,
}

impl Wireguard {
    /// Connects; the kernel loads its module if it has one.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no WireGuard.
    pub fn open() -> Result<Self> {
        let (socket, family) = generic::open(NAME, || "find WireGuard in the kernel".to_owned())?;
        Ok(Self { socket, family })
    }

    /// The settings of the link of this name.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn device(&mut self, name: &str) -> Result<Device> {
        let mut request = message(self.family, GET_DEVICE, VERSION);
        request.str(DEVICE_NAME, name);
        let answers = self.socket.request(request, DUMP, || format!("look at WireGuard link {name}"))?;
        let mut device = Device::default();
        answers.iter().for_each(|answer| device.read(answer.get(HEADER_BYTES..).unwrap_or_default()));
        Ok(device)
    }

    /// Gives a link its private key and its port. Peers stay, and are told the new key by a handshake.
    pub fn set_key(&mut self, name: &str, private_key: &Key, port: u16) -> Result<()> {
        let mut request = message(self.family, SET_DEVICE, VERSION);
        request.str(DEVICE_NAME, name).bytes(DEVICE_PRIVATE_KEY, private_key);
        request.bytes(DEVICE_PORT, &port.to_ne_bytes());
        self.socket.call(request, || format!("give WireGuard link {name} its key"))
    }

    /// Changes a link's peers, in this order.
    pub fn change(&mut self, name: &str, changes: &[Change]) -> Result<()> {
        for some in changes.chunks(PEERS_PER_MESSAGE) {
            let request = change_request(self.family, name, some);
            self.socket.call(request, || format!("change the peers of WireGuard link {name}"))?;
        }
        Ok(())
    }
}

impl Route {
    /// Makes a link of kind `wireguard`, down and without a key.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel has none, `EEXIST` if there is a link of this name.
    pub fn create_wireguard(&mut self, name: &str, mtu: u32) -> Result<()> {
        let request = new_link(name, mtu, NAME, |_| ());
        self.0.call(request, || format!("create WireGuard link {name}"))
    }
}

fn change_request(family: u16, name: &str, changes: &[Change]) -> Encoder {
    let mut request = message(family, SET_DEVICE, VERSION);
    request.str(DEVICE_NAME, name).nest(DEVICE_PEERS, |peers| {
        for change in changes {
            peers.nest(0, |peer| match change {
                Change::Remove(key) => {
                    peer.bytes(PEER_PUBLIC_KEY, key).u32(PEER_FLAGS, REMOVE);
                }
                Change::Set(key, wanted) => encode_peer(peer, key, wanted),
            });
        }
    });
    request
}

fn encode_peer(encoder: &mut Encoder, key: &Key, peer: &Peer) {
    encoder.bytes(PEER_PUBLIC_KEY, key).u32(PEER_FLAGS, REPLACE_NETWORKS);
    encoder.bytes(PEER_ENDPOINT, &socket_address(peer.endpoint));
    encoder.bytes(PEER_KEEPALIVE, &peer.keepalive_seconds.to_ne_bytes());
    encoder.nest(PEER_NETWORKS, |networks| {
        for (network, bits) in &peer.networks {
            networks.nest(0, |one| {
                let family = if network.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
                one.bytes(NETWORK_FAMILY, &(family as u16).to_ne_bytes());
                one.bytes(NETWORK_ADDRESS, &octets(*network)).u8(NETWORK_BITS, *bits);
            });
        }
    });
}

/// `struct sockaddr_in`, or `sockaddr_in6`.
fn socket_address(address: SocketAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let (family, port) = ((family as u16).to_ne_bytes(), address.port().to_be_bytes());
    // Behind the port there are eight bytes of nothing; or a flow before the address, and a scope behind it.
    let ip = match address.ip() {
        IpAddr::V4(ip) => [&ip.octets()[..], &[0; 8]].concat(),
        IpAddr::V6(ip) => [&[0; 4], &ip.octets()[..], &[0; 4]].concat(),
    };
    [&family[..], &port, &ip].concat()
}

fn read_socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip = match i32::from(u16_of(bytes)?) {
        libc::AF_INET => ip_of(bytes.get(4..8)?)?,
        libc::AF_INET6 => ip_of(bytes.get(8..24)?)?,
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

impl Device {
    /// One message of several: a peer with many networks goes on in the next.
    fn read(&mut self, message: &[u8]) {
        for (kind, value) in attributes(message) {
            match kind {
                DEVICE_PUBLIC_KEY => self.public_key = value.try_into().unwrap_or(self.public_key),
                DEVICE_PORT => self.port = u16_of(value).unwrap_or(self.port),
                DEVICE_PEERS => attributes(value).for_each(|(_, peer)| self.read_peer(peer)),
                _ => {}
            }
        }
    }

    fn read_peer(&mut self, bytes: &[u8]) {
        let Some(Ok(key)) = find_attribute(bytes, PEER_PUBLIC_KEY).map(Key::try_from) else { return };
        let networks = find_attribute(bytes, PEER_NETWORKS).unwrap_or_default();
        let networks = attributes(networks).filter_map(|(_, network)| read_network(network));
        let endpoint = find_attribute(bytes, PEER_ENDPOINT).and_then(read_socket_address);
        let keepalive_seconds = find_attribute(bytes, PEER_KEEPALIVE).and_then(u16_of).unwrap_or_default();
        let new = endpoint.map(|endpoint| Peer { endpoint, networks: BTreeSet::new(), keepalive_seconds });
        let known = self.peers.entry(key).or_insert(new);
        if let Some(peer) = known {
            peer.networks.extend(networks);
        }
    }
}

fn read_network(bytes: &[u8]) -> Option<(IpAddr, u8)> {
    let ip = ip_of(find_attribute(bytes, NETWORK_ADDRESS)?)?;
    Some((ip, *find_attribute(bytes, NETWORK_BITS)?.first()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8, networks: &[[u8; 4]]) -> Peer {
        Peer {
            endpoint: SocketAddr::new([192, 0, 2, last].into(), 51_820),
            networks: networks.iter().map(|network| ((*network).into(), 24)).collect(),
            keepalive_seconds: 25,
        }
    }

    /// What the kernel would say of a link that was told this: the same attributes.
    fn told(changes: &[Change]) -> Device {
        let mut request = change_request(77, "wg0", changes);
        request.end();
        let bytes = request.into_bytes();
        let mut device = Device::default();
        device.read(&bytes[16 + HEADER_BYTES..]);
        device
    }

    #[test]
    fn a_peer_is_laid_out_as_the_kernel_has_it() {
        let mut request = change_request(77, "wg0", &[Change::Set([7; 32], peer(12, &[[10, 42, 1, 0]]))]);
        request.end();
        let bytes = request.into_bytes();
        let mut expected = Vec::new();
        // Header: length, family, flags, number, sender; command, version.
        expected.extend(140_u32.to_ne_bytes());
        expected.extend([77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
        expected.extend([8, 0, 2, 0, b'w', b'g', b'0', 0]);
        // The list of peers, and the first of them.
        expected.extend([112, 0, 8, 0x80, 108, 0, 0, 0x80]);
        expected.extend([36, 0, 1, 0].into_iter().chain([7; 32]));
        expected.extend([8, 0, 3, 0, 2, 0, 0, 0]);
        expected.extend([20, 0, 4, 0, 2, 0, 0xca, 0x6c, 192, 0, 2, 12, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([6, 0, 5, 0, 25, 0, 0, 0]);
        expected.extend([32, 0, 9, 0x80, 28, 0, 0, 0x80, 6, 0, 1, 0, 2, 0, 0, 0]);
        expected.extend([8, 0, 2, 0, 10, 42, 1, 0, 5, 0, 3, 0, 24, 0, 0, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_was_told_is_read_again() {
        let mut one = peer(12, &[[10, 42, 1, 0], [10, 42, 7, 0]]);
        one.networks.insert(("fd42:0:0:1::".parse().unwrap(), 64));
        let other = Peer { endpoint: "[2001:db8::13]:51820".parse().unwrap(), ..peer(13, &[]) };
        let device = told(&[Change::Set([1; 32], one.clone()), Change::Set([2; 32], other.clone())]);
        assert_eq!(device.peers, [([1; 32], Some(one)), ([2; 32], Some(other))].into());
        assert_eq!(told(&[Change::Remove([3; 32])]).peers, [([3; 32], None)].into());
    }

    #[test]
    fn a_peer_goes_on_in_the_next_message() {
        let mut device = told(&[Change::Set([1; 32], peer(12, &[[10, 42, 1, 0]]))]);
        let mut next = Encoder::default();
        next.nest(DEVICE_PEERS, |peers| {
            peers.nest(0, |one| encode_peer(one, &[1; 32], &peer(12, &[[10, 42, 2, 0]])));
        });
        device.read(&next.into_bytes());
        assert_eq!(device.peers[&[1; 32]], Some(peer(12, &[[10, 42, 1, 0], [10, 42, 2, 0]])));
    }

    #[test]
    fn what_is_cut_off_or_strange_is_left_out() {
        let mut request = change_request(77, "wg0", &[Change::Set([7; 32], peer(12, &[[10, 42, 1, 0]]))]);
        request.end();
        let bytes = request.into_bytes();
        for length in HEADER_BYTES + 16..bytes.len() {
            let mut device = Device::default();
            device.read(&bytes[16 + HEADER_BYTES..length]);
            assert!(device.peers.len() <= 1);
        }
        let mut strange = Encoder::default();
        strange.bytes(DEVICE_PUBLIC_KEY, &[1; 31]).bytes(DEVICE_PORT, &[1]).nest(DEVICE_PEERS, |peers| {
            peers.nest(0, |one| {
                one.bytes(PEER_PUBLIC_KEY, &[1; 33]);
            });
            peers.nest(0, |one| {
                one.bytes(PEER_PUBLIC_KEY, &[2; 32]).bytes(PEER_ENDPOINT, &[10, 0, 1]);
            });
        });
        let mut device = Device::default();
        device.read(&strange.into_bytes());
        assert_eq!(device, Device { peers: [([2; 32], None)].into(), ..Device::default() });
    }

    #[test]
    fn a_kernel_without_it_says_so() {
        match Wireguard::open() {
            Err(error) => assert!(error.is_not_found(), "{error}"),
            Ok(mut here) => assert!(here.device("lo").is_err(), "no link of the kind"),
        }
    }
}
