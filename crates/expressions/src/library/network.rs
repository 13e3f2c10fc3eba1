//! Addresses and ranges of addresses.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library` (ip, cidr).

use std::net::IpAddr;
use std::sync::Arc;

use cel::extractors::This;
use cel::objects::Opaque;
use cel::{Context, DeclarationError, ExecutionError, Value};

use super::{Answer, wrong};

/// An address, never one of IPv4 in the clothes of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address(IpAddr);

impl Opaque for Address {
    fn runtime_type_name(&self) -> &str {
        "net.IP"
    }
}

/// A range as it was written, host bits included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    address: IpAddr,
    bits: u32,
}

impl Opaque for Range {
    fn runtime_type_name(&self) -> &str {
        "net.CIDR"
    }
}

/// Adds the functions.
pub(super) fn add(context: &mut Context<'_, '_>) -> Result<(), DeclarationError> {
    context.add_function("ip", |text: Arc<String>| -> Answer { Ok(made(Address(address("ip", &text)?))) })?;
    context.add_function("isIP", |text: Arc<String>| address("isIP", &text).is_ok())?;
    context.add_function("ip.isCanonical", |text: Arc<String>| {
        address("ip.isCanonical", &text).map(|address| address.to_string() == *text)
    })?;
    for (name, holds) in QUESTIONS {
        context.add_function(name, move |This(one): This<Arc<dyn Opaque>>| {
            held::<Address>(name, &*one).map(|address| holds(address.0))
        })?;
    }
    context.add_function("family", |This(one): This<Arc<dyn Opaque>>| {
        held::<Address>("family", &*one).map(|address| if address.0.is_ipv4() { 4_i64 } else { 6 })
    })?;
    context.add_function("cidr", |text: Arc<String>| -> Answer { Ok(made(Range::parse(&text)?)) })?;
    context.add_function("isCIDR", |text: Arc<String>| Range::parse(&text).is_ok())?;
    context.add_function("containsIP", |This(one): This<Arc<dyn Opaque>>, other: Value| {
        let range = held::<Range>("containsIP", &*one)?;
        let other = match &other {
            Value::String(text) => address("containsIP", text)?,
            Value::Opaque(other) => held::<Address>("containsIP", &**other)?.0,
            other => return Err(wrong("containsIP", &other.type_of().to_string())),
        };
        Ok(range.contains(other))
    })?;
    context.add_function("containsCIDR", |This(one): This<Arc<dyn Opaque>>, other: Value| {
        let range = held::<Range>("containsCIDR", &*one)?;
        let other = match &other {
            Value::String(text) => Range::parse(text)?,
            Value::Opaque(other) => *held::<Range>("containsCIDR", &**other)?,
            other => return Err(wrong("containsCIDR", &other.type_of().to_string())),
        };
        Ok(range.bits <= other.bits && range.contains(other.address))
    })?;
    context.add_function("prefixLength", |This(one): This<Arc<dyn Opaque>>| {
        held::<Range>("prefixLength", &*one).map(|range| i64::from(range.bits))
    })?;
    context.add_function("masked", |This(one): This<Arc<dyn Opaque>>| -> Answer {
        let range = held::<Range>("masked", &*one)?;
        Ok(made(Range { address: range.first(range.address), bits: range.bits }))
    })
}

/// A question to an address: its name, and the answer.
type Question = (&'static str, fn(IpAddr) -> bool);

const QUESTIONS: &[Question] = &[
    ("isUnspecified", |address| address.is_unspecified()),
    ("isLoopback", |address| address.is_loopback()),
    ("isLinkLocalMulticast", is_link_local_multicast),
    ("isLinkLocalUnicast", is_link_local_unicast),
    ("isGlobalUnicast", |address| {
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        !(address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || is_broadcast
            || is_link_local_unicast(address))
    }),
];

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, ExecutionError> {
        let failed = || ExecutionError::function_error("cidr", format!("CIDR {text:?} parse error"));
        let (written, bits) = text.split_once('/').ok_or_else(failed)?;
        let address = address("cidr", written)?;
        let is_plain = !bits.is_empty() && (bits == "0" || !bits.starts_with(['0', '+']));
        let bits = bits.parse().ok().filter(|bits| is_plain && *bits <= width(address)).ok_or_else(failed)?;
        Ok(Self { address, bits })
    }

    /// The first address of the range of this size that `address` is in.
    fn first(self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && self.first(address) == self.first(self.address)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address that a text says; a zone, and one of IPv4 as one of IPv6, are none.
fn address(function: &str, text: &str) -> Result<IpAddr, ExecutionError> {
    let failed = |why: &str| ExecutionError::function_error(function, format!("IP Address {text:?} {why}"));
    match text.parse() {
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            Err(failed("is an IPv4-mapped IPv6 address, which is not allowed"))
        }
        Ok(address) => Ok(address),
        Err(error) => Err(failed(&format!("parse error during conversion from string: {error}"))),
    }
}

fn made(value: impl Opaque) -> Value {
    Value::Opaque(Arc::new(value))
}

fn held<'v, T: Opaque>(function: &str, value: &'v dyn Opaque) -> Result<&'v T, ExecutionError> {
    value.downcast_ref::<T>().ok_or_else(|| wrong(function, value.runtime_type_name()))
}
