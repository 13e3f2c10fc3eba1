//! Addresses and ranges of addresses. Source: `k8s.io/apiserver/pkg/cel/library` (ip, cidr).

use std::fmt;
use std::net::IpAddr;

use super::{Answer, Row, no_overload};
use crate::evaluate::{Context, EvalError};
use crate::value::Value;

/// A range as it was written, host bits included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    address: IpAddr,
    bits: u32,
}

const OF_IP: &str = "net.IP.() -> bool";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "ip",
        overloads: &[("string_to_ip", "(string) -> net.IP"), ("cidr_ip", "net.CIDR.() -> net.IP")],
        body: ip,
    },
    Row { name: "isIP", overloads: &[("is_ip", "(string) -> bool")], body: is_ip },
    Row { name: "ip.isCanonical", overloads: &[("ip_is_canonical", "(string) -> bool")], body: is_canonical },
    Row { name: "family", overloads: &[("ip_family", "net.IP.() -> int")], body: family },
    Row {
        name: "isUnspecified",
        overloads: &[("ip_is_unspecified", OF_IP)],
        body: |_, args| ask(args, |ip| ip.is_unspecified()),
    },
    Row { name: "isLoopback", overloads: &[("ip_is_loopback", OF_IP)], body: |_, args| ask(args, |ip| ip.is_loopback()) },
    Row {
        name: "isLinkLocalMulticast",
        overloads: &[("ip_is_link_local_multicast", OF_IP)],
        body: |_, args| ask(args, is_link_local_multicast),
    },
    Row {
        name: "isLinkLocalUnicast",
        overloads: &[("ip_is_link_local_unicast", OF_IP)],
        body: |_, args| ask(args, is_link_local_unicast),
    },
    Row {
        name: "isGlobalUnicast",
        overloads: &[("ip_is_global_unicast", OF_IP)],
        body: |_, args| ask(args, is_global_unicast),
    },
    Row { name: "cidr", overloads: &[("string_to_cidr", "(string) -> net.CIDR")], body: cidr },
    Row { name: "isCIDR", overloads: &[("is_cidr", "(string) -> bool")], body: is_cidr },
    Row {
        name: "containsIP",
        overloads: &[
            ("cidr_contains_ip_string", "net.CIDR.(string) -> bool"),
            ("cidr_contains_ip_ip", "net.CIDR.(net.IP) -> bool"),
        ],
        body: contains_ip,
    },
    Row {
        name: "containsCIDR",
        overloads: &[
            ("cidr_contains_cidr_string", "net.CIDR.(string) -> bool"),
            ("cidr_contains_cidr", "net.CIDR.(net.CIDR) -> bool"),
        ],
        body: contains_cidr,
    },
    Row { name: "prefixLength", overloads: &[("cidr_prefix_length", "net.CIDR.() -> int")], body: prefix_length },
    Row { name: "masked", overloads: &[("cidr_masked", "net.CIDR.() -> net.CIDR")], body: masked },
];

/// The address that a text says; a zone, and one of IPv4 as one of IPv6, are none.
fn address(text: &str) -> Result<IpAddr, EvalError> {
    match text.parse() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed").into())
        }
        Ok(address) => Ok(address),
        Err(_) if text.contains(':') && text.contains('%') => {
            Err(format!("IP address {text:?} with zone value is not allowed").into())
        }
        Err(_) => Err(format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        )
        .into()),
    }
}

fn ip<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => address(text).map(Value::Ip),
        [Value::Cidr(range)] => Ok(Value::Ip(range.address)),
        _ => no_overload(),
    }
}

fn is_ip<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(address(text).is_ok()))
}

fn is_canonical<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(address(text)?.to_string() == **text))
}

fn family<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Ip(address)] = args else { return no_overload() };
    Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 }))
}

fn ask<'a>(args: &[Value<'a>], holds: fn(&IpAddr) -> bool) -> Answer<'a> {
    let [Value::Ip(address)] = args else { return no_overload() };
    Ok(Value::Bool(holds(address)))
}

fn is_link_local_unicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => matches!(address.octets(), [0xff, scope, ..] if scope & 0x0f == 2),
    }
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_broadcast
        || is_link_local_unicast(address))
}

impl Range {
    fn parse(text: &str) -> Result<Self, EvalError> {
        let failed = || {
            let why = format!("network address parse error during conversion from string: netip.ParsePrefix({text:?})");
            EvalError::from(why)
        };
        let (written, bits) = text.split_once('/').ok_or_else(failed)?;
        let address = address(written).map_err(|_| failed())?;
        let is_plain = !bits.is_empty() && (bits == "0" || !bits.starts_with(['0', '+']));
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| is_plain && *bits <= width).ok_or_else(failed)?;
        Ok(Self { address, bits })
    }

    /// Bytes of the prefix, as costs are reckoned with.
    pub(crate) fn size(self) -> usize {
        usize::try_from(self.bits.div_ceil(8)).unwrap_or(16)
    }

    /// The first address of the range of this size that `address` is in.
    fn first(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(self.bits)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(self.bits)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && self.first(address) == self.first(self.address)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

fn cidr<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    Range::parse(text).map(Value::Cidr)
}

fn is_cidr<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(Range::parse(text).is_ok()))
}

fn contains_ip<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (range, address) = match args {
        [Value::Cidr(range), Value::String(text)] => (range, address(text)?),
        [Value::Cidr(range), Value::Ip(address)] => (range, *address),
        _ => return no_overload(),
    };
    Ok(Value::Bool(range.contains(address)))
}

fn contains_cidr<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (range, other) = match args {
        [Value::Cidr(range), Value::String(text)] => (range, Range::parse(text)?),
        [Value::Cidr(range), Value::Cidr(other)] => (range, *other),
        _ => return no_overload(),
    };
    Ok(Value::Bool(range.bits <= other.bits && range.contains(other.address)))
}

fn prefix_length<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Cidr(range)] = args else { return no_overload() };
    Ok(Value::Int(i64::from(range.bits)))
}

fn masked<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Cidr(range)] = args else { return no_overload() };
    Ok(Value::Cidr(Range { address: range.first(range.address), bits: range.bits }))
}
