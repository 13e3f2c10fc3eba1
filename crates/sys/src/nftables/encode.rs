//! The netlink form of chains, sets, elements and rules. Numbers are those of `linux/netfilter/nf_tables.h`.

use super::expression::{Compare, Expr, Reg};
use super::{Base, ChainKind, Data, Field, Key, Members, Rule, Set, SetValue, TableFamily, Verdict};
use crate::netlink::Encoder;

const IPV6: u8 = TableFamily::Ipv6 as u8;
const INET: u8 = TableFamily::Inet as u8;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const LIST_ELEM: u16 = 1;
const VERDICT_REGISTER: u32 = 0;
const VERDICT_TYPE: u32 = 0xffff_ff00;
const SET_INTERVAL: u32 = 0x4;
const SET_MAP: u32 = 0x8;
const SET_TIMEOUT: u32 = 0x10;
const SET_EVAL: u32 = 0x20;
const CT_STATE: u32 = 0;
const CT_PROTOCOL: u32 = 10;
const CT_SOURCE_PORT: u32 = 11;
const CT_SOURCE_IPV4: u32 = 19;
const CT_SOURCE_IPV6: u32 = 21;
/// Directions of a tracked connection.
const ORIGINAL: u8 = 0;
const REPLY: u8 = 1;
/// Keys that the packet path may put into one set.
const DYNAMIC_ELEMENTS_MAX: u32 = 65_535;

impl Field {
    fn len(self) -> u32 {
        match self {
            Self::Ipv4 | Self::Index => 4,
            Self::Ipv6 => 16,
            Self::Protocol => 1,
            Self::Port => 2,
        }
    }

    /// The type's number in `nft`, so that it can list the set. A plain integer has no size there, and ends it where it is
    /// part of a key: numbers are marks.
    fn type_number(self) -> u32 {
        match self {
            Self::Ipv4 => 7,
            Self::Ipv6 => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Index => 19,
        }
    }
}

/// Length in bytes: parts of a concatenation are padded to registers.
fn fields_len(fields: &[Field]) -> u32 {
    match fields {
        [one] => one.len(),
        many => many.iter().map(|field| field.len().next_multiple_of(4)).sum(),
    }
}

fn fields_type(fields: &[Field]) -> u32 {
    fields.iter().fold(0, |number, field| number << 6 | field.type_number())
}

pub(super) fn chain(out: &mut Encoder, table: &str, name: &str, base: Option<&Base>) {
    const POLICY_ACCEPT: u32 = 1;
    out.str(1, table).str(3, name);
    if let Some(base) = base {
        out.nest(4, |hook| {
            hook.be32(1, base.hook as u32).be32(2, base.priority as u32);
        });
        out.be32(5, POLICY_ACCEPT).str(
            7,
            match base.kind {
                ChainKind::Filter => "filter",
                ChainKind::Nat => "nat",
            },
        );
    }
}

/// A chain for what arrives at the link that it is named after, before anything else sees it.
pub(super) fn ingress_chain(out: &mut Encoder, table: &str, link: &str) {
    const INGRESS: u32 = 0;
    const POLICY_ACCEPT: u32 = 1;
    out.str(1, table).str(3, link).nest(4, |hook| {
        hook.be32(1, INGRESS).be32(2, 0).str(3, link);
    });
    out.be32(5, POLICY_ACCEPT).str(7, "filter");
}

pub(super) fn set(out: &mut Encoder, table: &str, name: &str, id: u32, set: &Set) {
    let mut flags = 0;
    if set.value != SetValue::None {
        flags |= SET_MAP;
    }
    if set.members == Members::Ranges {
        flags |= SET_INTERVAL;
    }
    if set.timeout.is_some() {
        flags |= SET_TIMEOUT | SET_EVAL;
    }
    out.str(1, table).str(2, name).be32(3, flags);
    out.be32(4, fields_type(&set.key)).be32(5, fields_len(&set.key));
    match &set.value {
        SetValue::None => {}
        SetValue::Verdict => {
            out.be32(6, VERDICT_TYPE).be32(7, 0);
        }
        SetValue::Fields(fields) => {
            out.be32(6, fields_type(fields)).be32(7, fields_len(fields));
        }
    }
    if let Some(timeout) = set.timeout {
        out.nest(9, |description| {
            description.be32(1, DYNAMIC_ELEMENTS_MAX);
        });
        out.be64(11, timeout.as_millis() as u64);
    }
    out.be32(10, id);
}

/// One element of the list inside an elements message, of a range its two ends. Deletion needs no data of a map.
pub(super) fn element(out: &mut Encoder, set: &Set, key: &Key, value: &Data) {
    const INTERVAL_END: u32 = 1;
    out.nest(LIST_ELEM, |element| {
        data(element, 1, exact(&set.key, key));
        match value {
            Data::Verdict(to) => {
                element.nest(2, |data| verdict(data, to));
            }
            Data::Value(to) => {
                let fields = if let SetValue::Fields(fields) = &set.value { fields.as_slice() } else { &[] };
                data(element, 2, exact(fields, to));
            }
            Data::None | Data::Through(_) => {}
        }
    });
    let Data::Through(last) = value else { return };
    // A range to the last key of all has no end.
    if let Some(end) = after(exact(&set.key, last)) {
        out.nest(LIST_ELEM, |element| {
            element.be32(3, INTERVAL_END);
            data(element, 1, &end);
        });
    }
}

/// The next number in the order of the network, of the same length.
fn after(number: &[u8]) -> Option<Vec<u8>> {
    let mut next = number.to_vec();
    for byte in next.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(next);
        }
    }
    None
}

/// A key of one field is not padded.
fn exact<'a>(fields: &[Field], key: &'a Key) -> &'a [u8] {
    key.0.get(..fields_len(fields) as usize).unwrap_or(&key.0)
}

pub(super) fn rule(out: &mut Encoder, family: u8, table: &str, chain: &str, rule: &Rule) {
    out.str(1, table).str(2, chain).nest(4, |list| {
        rule.iter().for_each(|step| expression(list, step, family));
    });
}

fn data(out: &mut Encoder, kind: u16, value: &[u8]) {
    out.nest(kind, |data| {
        data.bytes(DATA_VALUE, value);
    });
}

fn verdict(out: &mut Encoder, verdict: &Verdict) {
    let (code, chain): (i32, Option<&str>) = match verdict {
        Verdict::Drop => (0, None),
        Verdict::Accept => (1, None),
        Verdict::Jump(chain) => (-3, Some(chain)),
        Verdict::Goto(chain) => (-4, Some(chain)),
        Verdict::Return => (-5, None),
    };
    out.nest(DATA_VERDICT, |out| {
        out.be32(1, code as u32);
        if let Some(chain) = chain {
            out.str(2, chain);
        }
    });
}

fn named(list: &mut Encoder, name: &str, fill: impl FnOnce(&mut Encoder)) {
    list.nest(LIST_ELEM, |element| {
        element.str(1, name).nest(2, fill);
    });
}

fn expression(list: &mut Encoder, expr: &Expr, family: u8) {
    match expr {
        Expr::SourceIp(to) => payload(list, *to, 1, 12, 4),
        Expr::DestinationIp(to) => payload(list, *to, 1, 16, 4),
        Expr::SourceIpv6(to) => payload(list, *to, 1, 8, 16),
        Expr::DestinationIpv6(to) => payload(list, *to, 1, 24, 16),
        Expr::SourceMac(to) => payload(list, *to, 0, 6, 6),
        Expr::DestinationMac(to) => payload(list, *to, 0, 0, 6),
        Expr::EtherType(to) => two(list, "meta", (1, to.0), (2, 1)),
        Expr::ArpSenderMac(to) => payload(list, *to, 1, 8, 6),
        Expr::ArpSenderIp(to) => payload(list, *to, 1, 14, 4),
        Expr::IcmpType(to) => payload(list, *to, 2, 0, 1),
        Expr::NeighbourTarget(to) => payload(list, *to, 2, 8, 16),
        Expr::DestinationPort(to) => payload(list, *to, 2, 2, 2),
        Expr::HopLimit(to) => payload(list, *to, 1, 7, 1),
        Expr::L4Protocol(to) => two(list, "meta", (1, to.0), (2, 16)),
        Expr::Mark(to) => two(list, "meta", (1, to.0), (2, 3)),
        Expr::SetMark(from) => two(list, "meta", (2, 3), (3, from.0)),
        Expr::InputName(to) => two(list, "meta", (1, to.0), (2, 6)),
        Expr::OutputName(to) => two(list, "meta", (1, to.0), (2, 7)),
        Expr::ConnectionStatus(to) => two(list, "ct", (1, to.0), (2, 2)),
        Expr::ConnectionState(to) => two(list, "ct", (1, to.0), (2, CT_STATE)),
        Expr::Initiator(to, family) => tracked(list, *to, source_key(*family), ORIGINAL),
        Expr::Responder(to, family) => tracked(list, *to, source_key(*family), REPLY),
        Expr::TrackedProtocol(to) => tracked(list, *to, CT_PROTOCOL, ORIGINAL),
        Expr::ResponderPort(to) => tracked(list, *to, CT_SOURCE_PORT, REPLY),
        Expr::DestinationKind(to) => address_kind(list, *to, 2),
        Expr::SourceKind(to) => address_kind(list, *to, 1),
        Expr::Load(to, value) => named(list, "immediate", |out| {
            data(out.be32(1, to.0), 2, value);
        }),
        Expr::Compare(from, compare, value) => named(list, "cmp", |out| {
            data(out.be32(1, from.0).be32(2, u32::from(*compare == Compare::NotEqual)), 3, value);
        }),
        Expr::Bitwise(reg, mask, xor) => named(list, "bitwise", |out| {
            out.be32(1, reg.0).be32(2, reg.0).be32(3, mask.len() as u32);
            data(out, 4, mask);
            data(out, 5, xor);
        }),
        Expr::Random(to, below) => named(list, "numgen", |out| {
            out.be32(1, to.0).be32(2, *below).be32(3, 1).be32(4, 0);
        }),
        Expr::In(set, from) => lookup(list, set, *from, None, 0),
        Expr::NotIn(set, from) => lookup(list, set, *from, None, 1),
        Expr::Map(set, from, to) => lookup(list, set, *from, Some(to.0), 0),
        Expr::VerdictMap(set, from) => lookup(list, set, *from, Some(VERDICT_REGISTER), 0),
        Expr::Update(set, from) => named(list, "dynset", |out| {
            out.str(1, set).be32(3, 1).be32(4, from.0);
        }),
        Expr::Counter => named(list, "counter", |_| {}),
        Expr::Verdict(to) => named(list, "immediate", |out| {
            out.be32(1, VERDICT_REGISTER).nest(2, |data| verdict(data, to));
        }),
        Expr::Dnat(address, port) => named(list, "nat", |out| {
            let of = if family == IPV6 { TableFamily::Ipv6 } else { TableFamily::Ipv4 };
            out.be32(1, 1).be32(2, of as u32).be32(3, address.0);
            if let Some(port) = port {
                out.be32(5, port.0);
            }
        }),
        Expr::Masquerade => named(list, "masq", |_| {}),
        Expr::RejectPortUnreachable => named(list, "reject", |out| {
            let (kind, code) = port_unreachable(family);
            out.be32(1, kind).u8(2, code);
        }),
        Expr::RejectTcpReset => named(list, "reject", |out| {
            out.be32(1, 1).u8(2, 0);
        }),
    }
}

/// What kind of address the source (1) or the destination (2) is: a result of the routing tables.
fn address_kind(list: &mut Encoder, to: Reg, of: u32) {
    const ADDRESS_TYPE: u32 = 3;
    named(list, "fib", |out| {
        out.be32(1, to.0).be32(2, ADDRESS_TYPE).be32(3, of);
    });
}

/// Type and code of a refusal: of ICMP, ICMPv6, or what nftables makes either of.
fn port_unreachable(family: u8) -> (u32, u8) {
    match family {
        INET => (2, 1),
        IPV6 => (0, 4),
        _ => (0, 3),
    }
}

fn payload(list: &mut Encoder, to: Reg, header: u32, offset: u32, length: u32) {
    named(list, "payload", |out| {
        out.be32(1, to.0).be32(2, header).be32(3, offset).be32(4, length);
    });
}

/// Who sends in a direction of a tracked connection.
fn source_key(family: Field) -> u32 {
    if family == Field::Ipv6 { CT_SOURCE_IPV6 } else { CT_SOURCE_IPV4 }
}

/// A part of what is known of the tracked connection, of one of its directions.
fn tracked(list: &mut Encoder, to: Reg, key: u32, direction: u8) {
    named(list, "ct", |out| {
        out.be32(1, to.0).be32(2, key).u8(3, direction);
    });
}

fn two(list: &mut Encoder, name: &str, first: (u16, u32), second: (u16, u32)) {
    named(list, name, |out| {
        out.be32(first.0, first.1).be32(second.0, second.1);
    });
}

fn lookup(list: &mut Encoder, set: &str, from: Reg, to: Option<u32>, flags: u32) {
    named(list, "lookup", |out| {
        out.str(1, set).be32(2, from.0);
        if let Some(to) = to {
            out.be32(3, to);
        }
        if flags != 0 {
            out.be32(5, flags);
        }
    });
}

#[cfg(test)]
mod tests;
