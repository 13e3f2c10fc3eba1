//! Addresses and ranges of addresses. Source: `k8s.io/apiserver/pkg/cel/library` (ip, cidr).

use std::net::IpAddr;

use super::{Answer, Row, no_overload};
use crate::context::Context;
use crate::value::{Range, Value, address};

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
    Row {
        name: "isLoopback",
        overloads: &[("ip_is_loopback", OF_IP)],
        body: |_, args| ask(args, |ip| ip.is_loopback()),
    },
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
    Row {
        name: "prefixLength",
        overloads: &[("cidr_prefix_length", "net.CIDR.() -> int")],
        body: prefix_length,
    },
    Row { name: "masked", overloads: &[("cidr_masked", "net.CIDR.() -> net.CIDR")], body: masked },
];

fn ip<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Ip(address(text)?)),
        [Value::Cidr(range)] => Ok(Value::Ip(range.address())),
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

fn cidr<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Cidr(Range::parse(text)?))
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
    Ok(Value::Bool(range.covers(other)))
}

fn prefix_length<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Cidr(range)] = args else { return no_overload() };
    Ok(Value::Int(i64::from(range.bits())))
}

fn masked<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Cidr(range)] = args else { return no_overload() };
    Ok(Value::Cidr(range.masked()))
}
