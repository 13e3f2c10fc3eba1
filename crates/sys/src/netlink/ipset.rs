//! Sets of the kernel's ipset, which rules of iptables look addresses and ports up in.
//!
//! Source: `include/uapi/linux/netfilter/ipset/ip_set.h`.

use std::net::IpAddr;

use nix::libc;

use super::route::{ip_of, octets};
use super::{ACK, CREATE, DUMP, EXCL, Encoder, Socket, attributes, find_attribute, str_of};
use crate::{Error, Result};

const SUBSYSTEM: u16 = 6;
const PROTOCOL_VERSION: u8 = 6;
const CREATE_SET: u8 = 2;
const DESTROY_SET: u8 = 3;
const LIST_SETS: u8 = 7;
const ADD: u8 = 9;
const DELETE: u8 = 10;

const PROTOCOL: u16 = 1;
const SET_NAME: u16 = 2;
const TYPE_NAME: u16 = 3;
const REVISION: u16 = 4;
const FAMILY: u16 = 5;
const FLAGS: u16 = 6;
const DATA: u16 = 7;
const ELEMENTS: u16 = 8;

const DATA_IP: u16 = 1;
const DATA_PORT: u16 = 4;
const DATA_PORT_TO: u16 = 5;
const DATA_PROTOCOL: u16 = 7;
const DATA_MOST: u16 = 19;
const DATA_IP2: u16 = 20;
const DATA_BITS2: u16 = 21;
const IP_V4: u16 = 1;
const IP_V6: u16 = 2;
/// `NLA_F_NET_BYTEORDER`, which ipset insists on.
const NETWORK_ORDER: u16 = 0x4000;
/// Only names.
const LIST_NAMES: u32 = 2;

/// Names have at most this many bytes.
pub const NAME_BYTES_MAX: usize = 31;
/// Elements of a set at most: far more than a Node has ports of Services.
const ELEMENTS_MAX: u32 = 1 << 20;
/// From here on errors are ipset's own. Source: `enum ipset_errno`.
const PRIVATE_ERRORS: i32 = 4096;
/// `IPSET_ERR_EXIST`: an element is there, or is not.
const ELEMENT_ERROR: i32 = PRIVATE_ERRORS + 7;

/// The type of a set's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `hash:ip`
    Ip,
    /// `hash:ip,port`
    IpPort,
    /// `hash:ip,port,ip`
    IpPortIp,
    /// `hash:ip,port,net`
    IpPortNet,
    /// `bitmap:port`
    Port,
}

/// An element: of each part as much as the set's kind has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element {
    /// An address.
    pub ip: Option<IpAddr>,
    /// Number of the transport protocol, 0 if the set has none, and a port.
    pub port: Option<(u8, u16)>,
    /// Another address, or a network: with its length in bits.
    pub other: Option<(IpAddr, u8)>,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Ip => "hash:ip",
            Self::IpPort => "hash:ip,port",
            Self::IpPortIp => "hash:ip,port,ip",
            Self::IpPortNet => "hash:ip,port,net",
            Self::Port => "bitmap:port",
        }
    }

    /// The oldest that can do what is needed: with protocols, one that knows SCTP.
    fn revision(self) -> u8 {
        match self {
            Self::Ip | Self::Port => 0,
            Self::IpPort | Self::IpPortIp | Self::IpPortNet => 1,
        }
    }
}

/// A connection to ipset of the calling thread's network namespace.
#[derive(Debug)]
pub struct Ipset(Socket);

impl Ipset {
    /// Connects. That the kernel has no ipset is told by what is asked of it.
    pub fn open() -> Result<Self> {
        Socket::open(libc::NETLINK_NETFILTER).map(Self)
    }

    /// The names of all sets. None if the kernel has no ipset.
    pub fn names(&mut self) -> Result<Vec<String>> {
        let mut request = message(LIST_SETS, 0);
        request.be32(FLAGS | NETWORK_ORDER, LIST_NAMES);
        let answers = match self.0.request(request, DUMP, || "list sets of ipset".into()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(Vec::new()),
            other => other?,
        };
        let name = |answer: &Vec<u8>| Some(str_of(find_attribute(answer.get(4..)?, SET_NAME)?));
        Ok(answers.iter().filter_map(name).collect())
    }

    /// Makes a set.
    ///
    /// # Errors
    /// `EEXIST` if there is one of the name.
    pub fn create(&mut self, name: &str, kind: Kind, is_v6: bool) -> Result<()> {
        self.call(create_request(name, kind, is_v6), || format!("create set {name} of {}", kind.name()))
    }

    /// Removes a set. No error if there is none.
    ///
    /// # Errors
    /// `EBUSY` if a rule uses it.
    pub fn destroy(&mut self, name: &str) -> Result<()> {
        let mut request = message(DESTROY_SET, 0);
        request.str(SET_NAME, name);
        match self.call(request, || format!("remove set {name}")) {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// A set's elements.
    ///
    /// # Errors
    /// `ENOENT` if there is no such set.
    pub fn elements(&mut self, name: &str) -> Result<Vec<Element>> {
        let mut request = message(LIST_SETS, 0);
        request.str(SET_NAME, name);
        let answers = self.0.request(request, DUMP, || format!("list set {name}"))?;
        let listed = answers.iter().filter_map(|answer| find_attribute(answer.get(4..)?, ELEMENTS));
        Ok(listed.flat_map(attributes).filter_map(|(_, data)| read_element(data)).collect())
    }

    /// Adds an element. No error if it is there.
    pub fn add(&mut self, name: &str, element: &Element) -> Result<()> {
        known_is_fine(self.call(element_request(ADD, name, element), || format!("add to set {name}")))
    }

    /// Removes an element. No error if it is not there.
    pub fn remove(&mut self, name: &str, element: &Element) -> Result<()> {
        known_is_fine(self.call(element_request(DELETE, name, element), || format!("remove from set {name}")))
    }

    fn call(&mut self, request: Encoder, doing: impl Fn() -> String) -> Result<()> {
        let done = self.0.request(request, ACK, &doing).map(drop);
        done.map_err(|error| match error.raw_os_error() {
            Some(code) if code >= PRIVATE_ERRORS && code != ELEMENT_ERROR => {
                Error::other(doing(), format!("ipset's error {code}"))
            }
            _ => error,
        })
    }
}

fn known_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(ELEMENT_ERROR) => Ok(()),
        other => other,
    }
}

fn message(command: u8, flags: u16) -> Encoder {
    let mut request = Encoder::message(SUBSYSTEM << 8 | u16::from(command), flags);
    // Family, version, resource.
    request.raw(&[libc::AF_INET as u8, 0, 0, 0]).u8(PROTOCOL, PROTOCOL_VERSION);
    request
}

fn create_request(name: &str, kind: Kind, is_v6: bool) -> Encoder {
    let mut request = message(CREATE_SET, CREATE | EXCL);
    let family = match (kind, is_v6) {
        (Kind::Port, _) => 0,
        (_, false) => libc::AF_INET as u8,
        (_, true) => libc::AF_INET6 as u8,
    };
    request.str(SET_NAME, name).str(TYPE_NAME, kind.name()).u8(REVISION, kind.revision()).u8(FAMILY, family);
    request.nest(DATA, |data| match kind {
        Kind::Port => {
            data.bytes(DATA_PORT | NETWORK_ORDER, &0u16.to_be_bytes());
            data.bytes(DATA_PORT_TO | NETWORK_ORDER, &u16::MAX.to_be_bytes());
        }
        _ => {
            data.be32(DATA_MOST | NETWORK_ORDER, ELEMENTS_MAX);
        }
    });
    request
}

fn element_request(command: u8, name: &str, element: &Element) -> Encoder {
    let mut request = message(command, 0);
    request.str(SET_NAME, name).nest(DATA, |data| {
        if let Some(ip) = element.ip {
            encode_ip(data, DATA_IP, ip);
        }
        if let Some((protocol, port)) = element.port {
            data.bytes(DATA_PORT | NETWORK_ORDER, &port.to_be_bytes());
            if protocol != 0 {
                data.u8(DATA_PROTOCOL, protocol);
            }
        }
        if let Some((ip, bits)) = element.other {
            encode_ip(data, DATA_IP2, ip);
            if bits < bits_of(ip) {
                data.u8(DATA_BITS2, bits);
            }
        }
    });
    request
}

fn encode_ip(encoder: &mut Encoder, kind: u16, ip: IpAddr) {
    encoder.nest(kind, |address| {
        let of_family = if ip.is_ipv4() { IP_V4 } else { IP_V6 };
        address.bytes(of_family | NETWORK_ORDER, &octets(ip));
    });
}

fn bits_of(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn read_element(data: &[u8]) -> Option<Element> {
    let ip = |kind| ip_of(attributes(find_attribute(data, kind)?).next()?.1);
    let byte = |kind| find_attribute(data, kind)?.first().copied();
    let port = find_attribute(data, DATA_PORT).and_then(|bytes| bytes.first_chunk());
    let other = ip(DATA_IP2).map(|other| (other, byte(DATA_BITS2).unwrap_or(bits_of(other))));
    let element = Element {
        ip: ip(DATA_IP),
        port: port.map(|port| (byte(DATA_PROTOCOL).unwrap_or(0), u16::from_be_bytes(*port))),
        other,
    };
    (element != Element::default()).then_some(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(mut request: Encoder) -> Vec<u8> {
        request.end();
        request.into_bytes()
    }

    #[test]
    fn a_set_is_laid_out_as_the_kernel_has_it() {
        let mut expected = Vec::new();
        expected.extend(80_u32.to_ne_bytes());
        // Number, flags, sequence, sender; family.
        expected.extend([2, 6, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
        expected.extend([5, 0, 1, 0, 6, 0, 0, 0, 6, 0, 2, 0, b'A', 0, 0, 0]);
        expected.extend([16, 0, 3, 0].iter().chain(b"bitmap:port\0"));
        expected.extend([5, 0, 4, 0, 0, 0, 0, 0, 5, 0, 5, 0, 0, 0, 0, 0]);
        expected.extend([20, 0, 7, 0x80, 6, 0, 4, 0x40, 0, 0, 0, 0, 6, 0, 5, 0x40, 255, 255, 0, 0]);
        let request = bytes(create_request("A", Kind::Port, true));
        assert_eq!(request[..4], (request.len() as u32).to_ne_bytes());
        assert_eq!(request[4..], expected[4..]);
        let hash = bytes(create_request("A", Kind::IpPort, true));
        assert!(hash.ends_with(&[
            5, 0, 4, 0, 1, 0, 0, 0, 5, 0, 5, 0, 10, 0, 0, 0, 12, 0, 7, 0x80, 8, 0, 19, 0x40, 0, 16, 0, 0
        ]));
    }

    #[test]
    fn an_element_is_laid_out_as_the_kernel_has_it() {
        let ip = |text: &str| Some(text.parse().unwrap());
        let whole = Element {
            ip: ip("10.43.0.5"),
            port: Some((6, 80)),
            other: Some(("10.0.0.0".parse().unwrap(), 8)),
        };
        let data = [
            &[52, 0, 7, 0x80, 12, 0, 1, 0x80, 8, 0, 1, 0x40, 10, 43, 0, 5][..],
            &[6, 0, 4, 0x40, 0, 80, 0, 0, 5, 0, 7, 0, 6, 0, 0, 0],
            &[12, 0, 20, 0x80, 8, 0, 1, 0x40, 10, 0, 0, 0, 5, 0, 21, 0, 8, 0, 0, 0],
        ]
        .concat();
        let request = bytes(element_request(ADD, "A", &whole));
        assert!(request.ends_with(&data), "{request:?}");
        let host = Element { other: Some(("fd42::1".parse().unwrap(), 128)), ..Element::default() };
        let data =
            [&[28, 0, 7, 0x80, 24, 0, 20, 0x80, 20, 0, 2, 0x40, 0xfd, 0x42][..], &[0; 13], &[1]].concat();
        assert!(
            bytes(element_request(DELETE, "A", &host)).ends_with(&data),
            "a single address has no length"
        );
    }

    #[test]
    fn what_was_told_is_read_again_and_what_is_cut_off_is_no_other_element() {
        let [ip, other] = ["10.43.0.5", "10.0.0.0"].map(|text| text.parse().unwrap());
        let port = Element { port: Some((0, 30_080)), ..Element::default() };
        let whole = Element { ip: Some(ip), port: Some((17, 53)), other: Some((other, 8)) };
        for element in [port, whole, Element { other: Some((other, 32)), ..whole }] {
            let told = bytes(element_request(ADD, "A", &element));
            let data = find_attribute(&told[20..], DATA).unwrap();
            assert_eq!(read_element(data), Some(element));
            for length in 0..data.len() {
                let read = read_element(&data[..length]);
                assert!(read != Some(element) || length + 8 > data.len(), "{length}: {read:?}");
            }
        }
    }

    #[test]
    fn a_kernel_without_it_has_no_sets() {
        assert!(Ipset::open().unwrap().names().is_ok());
    }
}
