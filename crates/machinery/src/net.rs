//! Addresses and networks of both families: [`Cidr`], and the two ways in which API fields write them.
//!
//! The arithmetic is `ipnet`'s; which texts are taken is Kubernetes'. New fields are strict ([`std::str::FromStr`]).
//! Fields of old kinds are read the way they always were ([`legacy_ip`], [`Cidr::legacy`]): IPv4 numbers may have leading
//! zeros (and stay decimal), IPv6 addresses may wrap IPv4 ones.
//! Source: `k8s.io/apimachinery/pkg/util/validation/ip.go`, KEP-4858.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// One of the two kinds of addresses. Source: `core/v1` `IPFamily`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// 32 bits.
    V4,
    /// 128 bits.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// `IPv4` or `IPv6`, as the API names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The family that the API names so.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.as_str() == name)
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// A network: an address, as it was written, and how many bits of it are fixed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cidr(IpNet);

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Self, CidrError> {
        text.parse()
    }
}

impl Cidr {
    /// `None` for more bits than the family has.
    pub fn new(address: impl Into<IpAddr>, bits: u8) -> Option<Self> {
        IpNet::new(address.into(), bits).ok().map(Self)
    }

    /// The network in a field of an old kind; a wrapped IPv4 network is unwrapped where its prefix covers the wrapping.
    pub fn legacy(text: &str) -> Option<Self> {
        let (written, bits) = text.split_once('/')?;
        if bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let bits: u8 = bits.parse().ok()?;
        if !written.contains(':') {
            return Self::new(legacy_ip(written)?, bits);
        }
        let whole = Self::new(written.parse::<Ipv6Addr>().ok()?, bits)?;
        let unwrapped = legacy_ip(written).filter(IpAddr::is_ipv4).zip(bits.checked_sub(96));
        Some(unwrapped.and_then(|(address, bits)| Self::new(address, bits)).unwrap_or(whole))
    }

    /// The address as it was written.
    pub fn address(self) -> IpAddr {
        self.0.addr()
    }

    /// The number of fixed bits.
    pub fn bits(self) -> u8 {
        self.0.prefix_len()
    }

    /// The family.
    pub fn family(self) -> Family {
        Family::of(self.address())
    }

    /// Address and bits of an IPv4 network.
    pub fn v4(self) -> Option<(Ipv4Addr, u8)> {
        match self.0 {
            IpNet::V4(network) => Some((network.addr(), network.prefix_len())),
            IpNet::V6(_) => None,
        }
    }

    /// The network itself: its first address, and no bits beyond the prefix.
    #[must_use]
    pub fn network(self) -> Self {
        Self(self.0.trunc())
    }

    /// The first address.
    pub fn first(self) -> IpAddr {
        self.0.network()
    }

    /// The last address: of IPv4, the one for all.
    pub fn last(self) -> IpAddr {
        self.0.broadcast()
    }

    /// `true` if an address is inside. Addresses of the other family never are.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }

    /// `true` if a whole network is inside; every one has itself.
    pub fn covers(self, other: Self) -> bool {
        self.0.contains(&other.0)
    }

    /// `true` if any address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The number of addresses; no more than fit into the number.
    pub fn size(self) -> u64 {
        1_u64.checked_shl(u32::from(self.0.max_prefix_len() - self.bits())).unwrap_or(u64::MAX)
    }

    /// The address at `offset` from the first, if it is inside.
    pub fn nth(self, offset: u64) -> Option<IpAddr> {
        if offset >= self.size() {
            return None;
        }
        match self.first() {
            IpAddr::V4(first) => {
                let address = first.to_bits().checked_add(u32::try_from(offset).ok()?)?;
                Some(Ipv4Addr::from_bits(address).into())
            }
            IpAddr::V6(first) => {
                first.to_bits().checked_add(offset.into()).map(|address| Ipv6Addr::from_bits(address).into())
            }
        }
    }

    /// The networks of `bits` in this one, in order; none if it is smaller itself.
    pub fn subnets(self, bits: u8) -> impl Iterator<Item = Self> {
        self.0.subnets(bits).into_iter().flatten().map(Self)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} must be a network, such as 10.43.0.0/16 or fd43::/112")]
pub struct CidrError(String);

/// Leading zeros, signs and wrapped IPv4 addresses are refused.
impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let read = || {
            let (address, bits) = text.split_once('/')?;
            let is_plain = bits == "0" || bits.starts_with(|first: char| ('1'..='9').contains(&first));
            let is_wrapped = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
            let address =
                address.parse::<IpAddr>().ok().filter(|address| is_plain && !is_wrapped(address))?;
            Self::new(address, bits.parse().ok()?)
        };
        read().ok_or_else(|| CidrError(text.to_owned()))
    }
}

/// The address that a field of an old kind stands for; a wrapped IPv4 address is unwrapped.
pub fn legacy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        let ip: Ipv6Addr = text.parse().ok()?;
        return Some(ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4));
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// One network, or one of each family: what a cluster's Pods or Services have. The first one's family is the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cidrs {
    main: Cidr,
    other: Option<Cidr>,
}

impl Cidrs {
    /// Of one network, or of one of each family; `None` of anything else.
    pub fn of_list(cidrs: &[Cidr]) -> Option<Self> {
        match *cidrs {
            [main] => Some(main.into()),
            [main, other] if main.family() != other.family() => Some(Self { main, other: Some(other) }),
            _ => None,
        }
    }

    /// The networks, the main family's first.
    pub fn iter(self) -> impl Iterator<Item = Cidr> {
        [self.main].into_iter().chain(self.other)
    }

    /// The network of the main family.
    pub fn main(self) -> Cidr {
        self.main
    }

    /// The network of a family.
    pub fn of(self, family: Family) -> Option<Cidr> {
        self.iter().find(|cidr| cidr.family() == family)
    }

    /// `true` if an address is in one of them.
    pub fn contains(self, address: IpAddr) -> bool {
        self.iter().any(|cidr| cidr.contains(address))
    }

    /// `true` if any address is in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.iter().any(|one| other.iter().any(|other| one.overlaps(other)))
    }
}

impl From<Cidr> for Cidrs {
    fn from(cidr: Cidr) -> Self {
        Self { main: cidr, other: None }
    }
}

impl From<Cidrs> for String {
    fn from(cidrs: Cidrs) -> Self {
        cidrs.to_string()
    }
}

impl TryFrom<String> for Cidrs {
    type Error = CidrsError;

    fn try_from(text: String) -> Result<Self, CidrsError> {
        text.parse()
    }
}

impl fmt::Display for Cidrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.main.fmt(f)?;
        self.other.map_or(Ok(()), |other| write!(f, ",{other}"))
    }
}

/// A text that is no such list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrsError {
    /// A part of it is no network.
    #[error(transparent)]
    Cidr(#[from] CidrError),
    /// Two are of one family.
    #[error("{0:?} must have one network, or one of each family: 10.42.0.0/16,fd42::/56")]
    Families(String),
}

/// Networks with commas between them.
impl FromStr for Cidrs {
    type Err = CidrsError;

    fn from_str(text: &str) -> Result<Self, CidrsError> {
        let cidrs: Vec<Cidr> = text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        Self::of_list(&cidrs).ok_or_else(|| CidrsError::Families(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn old_ways_to_write_an_address_are_read() {
        let ip = |text: &str| legacy_ip(text).map(|ip| ip.to_string());
        assert_eq!(ip("010.002.000.1").as_deref(), Some("10.2.0.1"));
        assert_eq!(ip("::ffff:1.2.3.4").as_deref(), Some("1.2.3.4"));
        assert_eq!(ip("2001:DB8::1").as_deref(), Some("2001:db8::1"));
        for bad in ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "a.b.c.d", "1.2.3.4/8"] {
            assert_eq!(ip(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_old_fields_take_new_ones_refuse() {
        for (text, legacy, strict) in [
            ("10.0.0.0/8", Some("10.0.0.0/8"), true),
            ("10.9.8.7/8", Some("10.9.8.7/8"), true),
            ("0.0.0.0/0", Some("0.0.0.0/0"), true),
            ("FD00::/8", Some("fd00::/8"), true),
            ("fd00::/112", Some("fd00::/112"), true),
            ("::/128", Some("::/128"), true),
            ("010.0.0.0/8", Some("10.0.0.0/8"), false),
            ("10.0.0.0/08", Some("10.0.0.0/8"), false),
            ("::ffff:10.0.0.0/104", Some("10.0.0.0/8"), false),
            ("::ffff:10.0.0.0/64", Some("::ffff:10.0.0.0/64"), false),
            ("10.0.0.0/33", None, false),
            ("fd00::/129", None, false),
            ("10.0.0.0/+8", None, false),
            ("10.0.0.0/", None, false),
            ("10.0.0.0", None, false),
            ("/8", None, false),
            (" 10.0.0.0/8", None, false),
            ("10.0.0.0/8/8", None, false),
            ("10.0.0.0/99999999999", None, false),
        ] {
            assert_eq!(Cidr::legacy(text).map(|cidr| cidr.to_string()).as_deref(), legacy, "{text}");
            assert_eq!(text.parse::<Cidr>().is_ok(), strict, "{text}");
        }
        let told = "ten".parse::<Cidr>().unwrap_err().to_string();
        assert_eq!(told, r#""ten" must be a network, such as 10.43.0.0/16 or fd43::/112"#);
    }

    #[test]
    fn a_network_has_what_is_between_its_ends() {
        let all = cidr("0.0.0.0/0");
        assert!(all.contains(ip("255.255.255.255")) && !all.contains(ip("::1")));
        assert_eq!(all.size(), 1 << 32);
        assert_eq!(cidr("::/0").size(), u64::MAX);
        let services = cidr("10.43.0.9/16");
        assert_eq!((services.first(), services.last()), (ip("10.43.0.0"), ip("10.43.255.255")));
        assert_eq!(
            (services.network().to_string(), services.to_string()),
            ("10.43.0.0/16".into(), "10.43.0.9/16".into())
        );
        assert_eq!(services.nth(256), Some(ip("10.43.1.0")));
        assert_eq!((services.nth(65_536), cidr("10.0.0.1/32").nth(0)), (None, Some(ip("10.0.0.1"))));
        assert!(services.covers(cidr("10.43.1.0/24")) && services.covers(services) && !services.covers(all));
        assert!(all.overlaps(services) && services.overlaps(all) && !services.overlaps(cidr("10.44.0.0/16")));
        assert!(!cidr("::/0").overlaps(all));
        let halves: Vec<String> = cidr("10.42.0.0/23").subnets(24).map(|half| half.to_string()).collect();
        assert_eq!(halves, ["10.42.0.0/24", "10.42.1.0/24"]);
        assert_eq!(cidr("10.42.0.0/25").subnets(24).count(), 0);
    }

    #[test]
    fn a_list_has_one_network_of_a_family() {
        let both: Cidrs = "10.42.0.0/16, fd42::/56".parse().unwrap();
        assert_eq!((both.main().family(), both.to_string()), (Family::V4, "10.42.0.0/16,fd42::/56".into()));
        assert_eq!(both.of(Family::V6), Some(cidr("fd42::/56")));
        assert!(both.contains(ip("fd42::1")) && !both.contains(ip("10.43.0.1")));
        assert!(both.overlaps(cidr("fd42::/64").into()) && !both.overlaps(cidr("fd43::/64").into()));
        assert_eq!(serde_json::to_string(&both).unwrap(), r#""10.42.0.0/16,fd42::/56""#);
        assert_eq!(serde_json::from_str::<Cidrs>(r#""10.42.0.0/16,fd42::/56""#).unwrap(), both);
        for bad in ["10.42.0.0/16,10.43.0.0/16", "10.42.0.0/16,", "10.42.0.0/16,fd42::/56,fd43::/56"] {
            assert!(bad.parse::<Cidrs>().is_err(), "{bad}");
        }
    }
}
