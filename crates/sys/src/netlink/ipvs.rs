//! IPVS, the kernel's balancer: virtual servers, and the real servers behind each, by generic netlink.
//!
//! What is for a virtual server must be for an address of the host. Real servers are reached by translation (`masq`). One
//! with weight 0 keeps the connections that it has and gets no others.
//!
//! Source: `include/uapi/linux/ip_vs.h`.

use std::net::IpAddr;

use nix::libc;

use super::generic::{self, HEADER_BYTES, message, u16_of};
use super::route::octets;
use super::{ACK, DUMP, Encoder, Socket, find_attribute, str_of, u32_of};
use crate::Result;

const NAME: &str = "IPVS";
const VERSION: u8 = 1;
const NEW_SERVICE: u8 = 1;
const SET_SERVICE: u8 = 2;
const DELETE_SERVICE: u8 = 3;
const GET_SERVICE: u8 = 4;
const NEW_DESTINATION: u8 = 5;
const SET_DESTINATION: u8 = 6;
const DELETE_DESTINATION: u8 = 7;
const GET_DESTINATION: u8 = 8;

const SERVICE: u16 = 1;
const DESTINATION: u16 = 2;

const SERVICE_FAMILY: u16 = 1;
const SERVICE_PROTOCOL: u16 = 2;
const SERVICE_ADDRESS: u16 = 3;
const SERVICE_PORT: u16 = 4;
const SERVICE_SCHEDULER: u16 = 6;
const SERVICE_FLAGS: u16 = 7;
const SERVICE_TIMEOUT: u16 = 8;
const SERVICE_NETMASK: u16 = 9;

const DESTINATION_ADDRESS: u16 = 1;
const DESTINATION_PORT: u16 = 2;
const DESTINATION_METHOD: u16 = 3;
const DESTINATION_WEIGHT: u16 = 4;
const DESTINATION_UPPER: u16 = 5;
const DESTINATION_LOWER: u16 = 6;
const DESTINATION_ACTIVE: u16 = 7;
const DESTINATION_INACTIVE: u16 = 8;
const DESTINATION_FAMILY: u16 = 11;

/// `IP_VS_SVC_F_PERSISTENT`
const PERSISTENT: u32 = 1;
/// `IP_VS_SVC_F_SCHED2`: for `mh`, whose choice follows from the client's port, too.
const BY_PORT: u32 = 0x10;
/// `IP_VS_CONN_F_MASQ`
const MASQUERADE: u32 = 0;

/// The address of a virtual server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VirtualAddress {
    /// Its address.
    pub ip: IpAddr,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// Its port.
    pub port: u16,
}

/// The settings of a virtual server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// The scheduling algorithm, such as `rr`.
    pub scheduler: String,
    /// For how many seconds a client stays with what was chosen for it.
    pub persistence_seconds: Option<u32>,
    /// `true` if a client's port says as much as its address.
    pub is_by_port: bool,
}

/// A real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
    /// The share of connections; with 0 no new ones.
    pub weight: u32,
    /// The connections that it has; only read.
    pub connections: u32,
}

/// A connection to IPVS of the calling thread's network namespace.
#[derive(Debug)]
pub struct Ipvs {
    socket: Socket,
    family: u16,
}

impl Ipvs {
    /// Connects; the kernel loads its module if it has one.
    ///
    /// # Errors
    /// `ENOENT` if the kernel has no IPVS.
    pub fn open() -> Result<Self> {
        let (socket, family) = generic::open(NAME, || "find IPVS in the kernel".to_owned())?;
        Ok(Self { socket, family })
    }

    /// All virtual servers that have an address.
    pub fn services(&mut self) -> Result<Vec<(VirtualAddress, Service)>> {
        let request = message(self.family, GET_SERVICE, VERSION);
        let answers = self.socket.request(request, DUMP, || "list virtual servers".into())?;
        Ok(answers.iter().filter_map(|answer| read_service(answer.get(HEADER_BYTES..)?)).collect())
    }

    /// The real servers of a virtual one; none if that is not there.
    pub fn destinations(&mut self, address: VirtualAddress) -> Result<Vec<Destination>> {
        let mut request = message(self.family, GET_DESTINATION, VERSION);
        request.nest(SERVICE, |service| encode_virtual_address(service, address));
        let answers = self.socket.request(request, DUMP, || format!("list the real servers of {address}"))?;
        Ok(answers.iter().filter_map(|answer| read_destination(answer.get(HEADER_BYTES..)?)).collect())
    }

    /// Adds a virtual server.
    ///
    /// # Errors
    /// `EEXIST` if there is one; `ENOENT` if the kernel has no such scheduler.
    pub fn add_service(&mut self, address: VirtualAddress, service: &Service) -> Result<()> {
        self.call(service_request(self.family, NEW_SERVICE, address, service), || {
            format!("add virtual server {address}")
        })
    }

    /// Changes how a virtual server chooses.
    pub fn set_service(&mut self, address: VirtualAddress, service: &Service) -> Result<()> {
        self.call(service_request(self.family, SET_SERVICE, address, service), || {
            format!("change virtual server {address}")
        })
    }

    /// Deletes a virtual server with its real ones. No error if there is none.
    pub fn delete_service(&mut self, address: VirtualAddress) -> Result<()> {
        let mut request = message(self.family, DELETE_SERVICE, VERSION);
        request.nest(SERVICE, |service| encode_virtual_address(service, address));
        absent_is_fine(self.call(request, || format!("delete virtual server {address}")))
    }

    /// Adds a real server to a virtual one.
    ///
    /// # Errors
    /// `EEXIST` if it is there.
    pub fn add_destination(&mut self, address: VirtualAddress, to: &Destination) -> Result<()> {
        let request = destination_request(self.family, NEW_DESTINATION, address, to);
        self.call(request, || format!("add real server {} to {address}", to.ip))
    }

    /// Changes a real server's weight.
    pub fn set_destination(&mut self, address: VirtualAddress, to: &Destination) -> Result<()> {
        let request = destination_request(self.family, SET_DESTINATION, address, to);
        self.call(request, || format!("change real server {} of {address}", to.ip))
    }

    /// Takes a real server from a virtual one. No error if it, or that, is not there.
    pub fn delete_destination(&mut self, address: VirtualAddress, to: &Destination) -> Result<()> {
        let request = destination_request(self.family, DELETE_DESTINATION, address, to);
        absent_is_fine(self.call(request, || format!("take real server {} from {address}", to.ip)))
    }

    fn call(&mut self, request: Encoder, doing: impl Fn() -> String) -> Result<()> {
        self.socket.request(request, ACK, doing).map(drop)
    }
}

impl std::fmt::Display for VirtualAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} port {} protocol {}", self.ip, self.port, self.protocol)
    }
}

fn absent_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

fn family(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { libc::AF_INET as u16 } else { libc::AF_INET6 as u16 }
}

/// `union nf_inet_addr`: as long as the longer of both.
fn address_bytes(ip: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    let own = octets(ip);
    bytes[..own.len()].copy_from_slice(&own);
    bytes
}

fn encode_virtual_address(encoder: &mut Encoder, address: VirtualAddress) {
    encoder.bytes(SERVICE_FAMILY, &family(address.ip).to_ne_bytes());
    encoder.bytes(SERVICE_PROTOCOL, &u16::from(address.protocol).to_ne_bytes());
    encoder.bytes(SERVICE_ADDRESS, &address_bytes(address.ip));
    encoder.bytes(SERVICE_PORT, &address.port.to_be_bytes());
}

fn service_request(to: u16, command: u8, address: VirtualAddress, service: &Service) -> Encoder {
    let mut request = message(to, command, VERSION);
    let persistent = if service.persistence_seconds.is_some() { PERSISTENT } else { 0 };
    let flags = persistent | if service.is_by_port { BY_PORT } else { 0 };
    // `struct ip_vs_flags`: the flags, and which of them are meant.
    let flags = [flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat();
    request.nest(SERVICE, |encoder| {
        encode_virtual_address(encoder, address);
        encoder.str(SERVICE_SCHEDULER, &service.scheduler).bytes(SERVICE_FLAGS, &flags);
        encoder.u32(SERVICE_TIMEOUT, service.persistence_seconds.unwrap_or(0));
        // Whom persistence takes for one client: an address. A mask in IPv4, a length in IPv6.
        encoder.u32(SERVICE_NETMASK, if address.ip.is_ipv4() { u32::MAX } else { 128 });
    });
    request
}

fn destination_request(to: u16, command: u8, address: VirtualAddress, destination: &Destination) -> Encoder {
    let mut request = message(to, command, VERSION);
    request.nest(SERVICE, |encoder| encode_virtual_address(encoder, address));
    request.nest(DESTINATION, |encoder| {
        encoder.bytes(DESTINATION_ADDRESS, &address_bytes(destination.ip));
        encoder.bytes(DESTINATION_PORT, &destination.port.to_be_bytes());
        encoder.bytes(DESTINATION_FAMILY, &family(destination.ip).to_ne_bytes());
        if command != DELETE_DESTINATION {
            encoder.u32(DESTINATION_METHOD, MASQUERADE).u32(DESTINATION_WEIGHT, destination.weight);
            encoder.u32(DESTINATION_UPPER, 0).u32(DESTINATION_LOWER, 0);
        }
    });
    request
}

fn read_address(family: u16, bytes: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(IpAddr::from(*bytes.first_chunk::<4>()?)),
        libc::AF_INET6 => Some(IpAddr::from(*bytes.first_chunk::<16>()?)),
        _ => None,
    }
}

fn read_port(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

pub(super) fn read_service(message: &[u8]) -> Option<(VirtualAddress, Service)> {
    let service = find_attribute(message, SERVICE)?;
    let of = |kind| find_attribute(service, kind);
    let address = VirtualAddress {
        ip: read_address(u16_of(of(SERVICE_FAMILY)?)?, of(SERVICE_ADDRESS)?)?,
        protocol: u8::try_from(u16_of(of(SERVICE_PROTOCOL)?)?).ok()?,
        port: read_port(of(SERVICE_PORT)?)?,
    };
    let flags = of(SERVICE_FLAGS).and_then(u32_of)?;
    let timeout = of(SERVICE_TIMEOUT).and_then(u32_of)?;
    let scheduler = str_of(of(SERVICE_SCHEDULER)?);
    let persistence_seconds = (flags & PERSISTENT != 0).then_some(timeout);
    Some((address, Service { scheduler, persistence_seconds, is_by_port: flags & BY_PORT != 0 }))
}

pub(super) fn read_destination(message: &[u8]) -> Option<Destination> {
    let destination = find_attribute(message, DESTINATION)?;
    let of = |kind| find_attribute(destination, kind);
    let count = |kind| of(kind).and_then(u32_of).unwrap_or(0);
    Some(Destination {
        ip: read_address(u16_of(of(DESTINATION_FAMILY)?)?, of(DESTINATION_ADDRESS)?)?,
        port: read_port(of(DESTINATION_PORT)?)?,
        weight: of(DESTINATION_WEIGHT).and_then(u32_of)?,
        connections: count(DESTINATION_ACTIVE).saturating_add(count(DESTINATION_INACTIVE)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn virtual_address(ip: &str) -> VirtualAddress {
        VirtualAddress { ip: ip.parse().unwrap(), protocol: 6, port: 80 }
    }

    fn bytes(mut request: Encoder) -> Vec<u8> {
        request.end();
        request.into_bytes()
    }

    #[test]
    fn a_virtual_server_is_laid_out_as_the_kernel_has_it() {
        let service =
            Service { scheduler: "rr".into(), persistence_seconds: Some(10_800), is_by_port: false };
        let mut expected = Vec::new();
        // Header: length, number, flags, sequence, sender; command, version.
        expected.extend(104_u32.to_ne_bytes());
        expected.extend([33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
        expected.extend([84, 0, 1, 0x80]);
        expected.extend([6, 0, 1, 0, 2, 0, 0, 0, 6, 0, 2, 0, 6, 0, 0, 0]);
        expected.extend([20, 0, 3, 0, 10, 43, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([6, 0, 4, 0, 0, 80, 0, 0]);
        expected.extend([7, 0, 6, 0, b'r', b'r', 0, 0]);
        expected.extend([12, 0, 7, 0, 1, 0, 0, 0, 255, 255, 255, 255]);
        expected.extend([8, 0, 8, 0, 0x30, 0x2a, 0, 0]);
        expected.extend([8, 0, 9, 0, 255, 255, 255, 255]);
        assert_eq!(bytes(service_request(33, NEW_SERVICE, virtual_address("10.43.0.5"), &service)), expected);
    }

    #[test]
    fn a_real_server_is_laid_out_as_the_kernel_has_it() {
        let to = Destination { ip: "fd42::2".parse().unwrap(), port: 8080, weight: 1, connections: 0 };
        let mut expected = Vec::new();
        expected.extend(140_u32.to_ne_bytes());
        expected.extend([33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0]);
        expected.extend([48, 0, 1, 0x80, 6, 0, 1, 0, 10, 0, 0, 0, 6, 0, 2, 0, 6, 0, 0, 0]);
        expected.extend([20, 0, 3, 0, 0xfd, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
        expected.extend([6, 0, 4, 0, 0, 80, 0, 0]);
        expected.extend([72, 0, 2, 0x80]);
        expected.extend([20, 0, 1, 0, 0xfd, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        expected.extend([6, 0, 2, 0, 0x1f, 0x90, 0, 0, 6, 0, 11, 0, 10, 0, 0, 0]);
        expected.extend([8, 0, 3, 0, 0, 0, 0, 0, 8, 0, 4, 0, 1, 0, 0, 0]);
        expected.extend([8, 0, 5, 0, 0, 0, 0, 0, 8, 0, 6, 0, 0, 0, 0, 0]);
        let request = destination_request(33, NEW_DESTINATION, virtual_address("fd43::5"), &to);
        assert_eq!(bytes(request), expected);
    }

    #[test]
    fn what_was_told_is_read_again_and_what_is_cut_off_is_left_out() {
        for (ip, persistence_seconds, is_by_port) in [("10.43.0.5", None, true), ("fd43::5", Some(60), false)]
        {
            let service = Service { scheduler: "mh".into(), persistence_seconds, is_by_port };
            let told = bytes(service_request(33, NEW_SERVICE, virtual_address(ip), &service));
            let attributes = &told[16 + HEADER_BYTES..];
            assert_eq!(read_service(attributes), Some((virtual_address(ip), service)));
            for length in 0..attributes.len() {
                assert_eq!(read_service(&attributes[..length]), None, "{length}");
            }
            let to = Destination { ip: virtual_address(ip).ip, port: 53, weight: 7, connections: 0 };
            let told = bytes(destination_request(33, NEW_DESTINATION, virtual_address(ip), &to));
            let attributes = &told[16 + HEADER_BYTES..];
            assert_eq!(read_destination(attributes), Some(to));
            for length in 0..attributes.len() {
                assert_eq!(read_destination(&attributes[..length]), None, "{length}");
            }
        }
    }

    #[test]
    fn connections_are_counted_whether_they_are_active_or_not() {
        let mut message = Encoder::default();
        message.nest(DESTINATION, |encoder| {
            encoder
                .bytes(DESTINATION_ADDRESS, &address_bytes([10, 42, 0, 2].into()))
                .bytes(DESTINATION_PORT, &[0, 80]);
            encoder.bytes(DESTINATION_FAMILY, &[2, 0]).u32(DESTINATION_WEIGHT, 0);
            encoder.u32(DESTINATION_ACTIVE, 2).u32(DESTINATION_INACTIVE, u32::MAX);
        });
        let read = read_destination(&message.into_bytes()).unwrap();
        assert_eq!((read.connections, read.weight), (u32::MAX, 0));
    }

    #[test]
    fn a_kernel_without_it_says_so() {
        match Ipvs::open() {
            Err(error) => assert!(error.is_not_found(), "{error}"),
            Ok(mut here) => assert_eq!(here.destinations(virtual_address("192.0.2.1")).unwrap(), []),
        }
    }
}
