//! Expressions: the steps of a rule, and the few combinations of them that rules are written with.

use std::net::IpAddr;

use super::{Field, Key, Verdict};

/// A register of four bytes; longer values take the following ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg(pub(crate) u32);

impl Reg {
    /// Registers in order: a concatenation is loaded into neighbours.
    pub const R0: Self = Self(8);
    /// The second.
    pub const R1: Self = Self(9);
    /// The third.
    pub const R2: Self = Self(10);
    /// The fourth.
    pub const R3: Self = Self(11);

    /// The number of bytes of registers before this one.
    pub fn offset(self) -> usize {
        (self.0 - Self::R0.0) as usize * 4
    }

    /// The first register behind a field that starts in this one.
    #[must_use]
    pub fn after(self, field: Field) -> Self {
        Self(self.0 + if field == Field::Ipv6 { 4 } else { 1 })
    }
}

/// The comparison of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Goes on if equal.
    Equal,
    /// Goes on if not equal.
    NotEqual,
}

/// One step of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// Loads the source address.
    SourceIp(Reg),
    /// Loads the destination address.
    DestinationIp(Reg),
    /// Loads the IPv6 source address (four registers).
    SourceIpv6(Reg),
    /// Loads the IPv6 destination address (four registers).
    DestinationIpv6(Reg),
    /// Loads the source hardware address of an Ethernet frame (two registers).
    SourceMac(Reg),
    /// Loads the destination hardware address of an Ethernet frame (two registers).
    DestinationMac(Reg),
    /// Loads what an Ethernet frame carries.
    EtherType(Reg),
    /// Loads whose hardware address an ARP packet tells (two registers).
    ArpSenderMac(Reg),
    /// Loads whose address an ARP packet tells.
    ArpSenderIp(Reg),
    /// Loads which kind of message of ICMP it is.
    IcmpType(Reg),
    /// Loads whom a message of IPv6's neighbour discovery is about (four registers).
    NeighbourTarget(Reg),
    /// Loads the transport protocol's number.
    L4Protocol(Reg),
    /// Loads the destination port.
    DestinationPort(Reg),
    /// Loads how many more routers an IPv6 packet may meet.
    HopLimit(Reg),
    /// Loads the packet mark.
    Mark(Reg),
    /// Sets the packet mark.
    SetMark(Reg),
    /// Loads the input interface's name (16 bytes: all four registers).
    InputName(Reg),
    /// Loads the output interface's name (16 bytes: all four registers).
    OutputName(Reg),
    /// Loads what kind of address the destination is for this host; see [`Expr::LOCAL`].
    DestinationKind(Reg),
    /// Loads what kind of address the source is for this host; see [`Expr::LOCAL`].
    SourceKind(Reg),
    /// Loads the status bits of the tracked connection; see [`Expr::DNATED`].
    ConnectionStatus(Reg),
    /// Loads what the packet is to its tracked connection: bits such as [`Expr::UNTRACKED`].
    ConnectionState(Reg),
    /// Loads who began the tracked connection: the address before any translation.
    Initiator(Reg, Field),
    /// Loads who answers in the tracked connection: the address after all translation.
    Responder(Reg, Field),
    /// Loads the transport protocol's number of the tracked connection.
    TrackedProtocol(Reg),
    /// Loads the port of who answers in the tracked connection: after all translation.
    ResponderPort(Reg),
    /// Loads a constant.
    Load(Reg, Vec<u8>),
    /// Compares a register with a constant.
    Compare(Reg, Compare, Vec<u8>),
    /// `register = register & mask ^ xor`.
    Bitwise(Reg, Vec<u8>, Vec<u8>),
    /// Loads a random number below this.
    Random(Reg, u32),
    /// Goes on if the key that starts in the register is in the set.
    In(String, Reg),
    /// Goes on if it is not.
    NotIn(String, Reg),
    /// Loads what the key (first register) maps to into the second; goes on if there is one.
    Map(String, Reg, Reg),
    /// Acts on the verdict that the key maps to, if any.
    VerdictMap(String, Reg),
    /// Puts the key into a set with a timeout, or starts its time anew.
    Update(String, Reg),
    /// Counts packets and bytes.
    Counter,
    /// Acts.
    Verdict(Verdict),
    /// Rewrites the destination to the address, which is of the table's family (IPv4 in one of both), and port in these
    /// registers.
    Dnat(Reg, Option<Reg>),
    /// Rewrites the source to the address of the outgoing link.
    Masquerade,
    /// Tells the sender that the port is unreachable.
    RejectPortUnreachable,
    /// Tells the sender that there is no such connection.
    RejectTcpReset,
}

impl Expr {
    /// [`Expr::DestinationKind`] and [`Expr::SourceKind`] of an address of this host (`RTN_LOCAL`).
    pub const LOCAL: u32 = 2;
    /// Bit of [`Expr::ConnectionStatus`]: the destination was rewritten (`IPS_DST_NAT`).
    pub const DNATED: u32 = 1 << 5;
    /// Bits of [`Expr::ConnectionState`]: the packet belongs to no connection that is tracked.
    pub const UNTRACKED: u32 = 1 | 1 << 6;

    /// Loads the source address of a packet of the family of `like`.
    pub fn source(to: Reg, like: IpAddr) -> Self {
        if like.is_ipv4() { Self::SourceIp(to) } else { Self::SourceIpv6(to) }
    }

    /// Loads the destination address of a packet of the family of `like`.
    pub fn destination(to: Reg, like: IpAddr) -> Self {
        if like.is_ipv4() { Self::DestinationIp(to) } else { Self::DestinationIpv6(to) }
    }
}

/// Goes on if the source is in a network.
pub fn source_in(network: impl Into<IpAddr>, prefix: u8, compare: Compare) -> Vec<Expr> {
    let network = network.into();
    in_network(Expr::source(Reg::R0, network), network, prefix, compare)
}

/// Goes on if the destination is in a network.
pub fn destination_in(network: impl Into<IpAddr>, prefix: u8, compare: Compare) -> Vec<Expr> {
    let network = network.into();
    in_network(Expr::destination(Reg::R0, network), network, prefix, compare)
}

fn in_network(load: Expr, network: IpAddr, prefix: u8, compare: Compare) -> Vec<Expr> {
    let mut bytes = match network {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let bits = |at: usize| usize::from(prefix).saturating_sub(at * 8).min(8) as u32;
    let mask: Vec<u8> = (0..bytes.len()).map(|at| !u8::MAX.checked_shr(bits(at)).unwrap_or(0)).collect();
    bytes.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte &= mask);
    let none = vec![0; mask.len()];
    vec![load, Expr::Bitwise(Reg::R0, mask, none), Expr::Compare(Reg::R0, compare, bytes)]
}

/// Goes on if the transport protocol is this one.
pub fn l4_protocol(protocol: u8) -> Vec<Expr> {
    vec![Expr::L4Protocol(Reg::R0), Expr::Compare(Reg::R0, Compare::Equal, vec![protocol])]
}

/// Goes on if a number loaded by `load` (into the first register), masked with `mask`, compares with `value`.
pub fn when(load: Expr, mask: u32, compare: Compare, value: u32) -> Vec<Expr> {
    let masked = Expr::Bitwise(Reg::R0, mask.to_ne_bytes().to_vec(), vec![0; 4]);
    vec![load, masked, Expr::Compare(Reg::R0, compare, value.to_ne_bytes().to_vec())]
}

/// Loads a constant key, of no more than 16 bytes.
pub fn load(to: Reg, key: &Key) -> Expr {
    Expr::Load(to, key.0.clone())
}
