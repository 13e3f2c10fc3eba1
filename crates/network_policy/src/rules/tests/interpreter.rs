//! What the kernel does with a packet: the expressions that these tables use, and a panic for any other.

use std::net::IpAddr;

use sys::nftables::{Compare, Data, Expr, Field, Key, Members, Rule, Table, Verdict};

/// A packet, by the connection that it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) initiator: IpAddr,
    pub(super) responder: IpAddr,
    pub(super) protocol: u8,
    pub(super) port: u16,
}

/// Whether a packet of a tracked connection is forwarded.
pub(super) fn passes(table: &Table, packet: &Packet) -> bool {
    forwarded(table, packet, (1 << 3, 63))
}

/// Whether a packet of no connection is, with this hop limit when these chains see it.
pub(super) fn passes_untracked(table: &Table, packet: &Packet, hop_limit: u8) -> bool {
    forwarded(table, packet, (1, hop_limit))
}

fn forwarded(table: &Table, packet: &Packet, (state, hop_limit): (u32, u8)) -> bool {
    let mut bases: Vec<_> =
        table.chains.iter().filter_map(|(name, chain)| Some((chain.base?.priority, name))).collect();
    bases.sort_unstable();
    let machine = Machine { table, packet, state, hop_limit };
    bases.into_iter().all(|(_, name)| machine.chain(name) != Some(End::Drop))
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Accept,
    Drop,
}

struct Machine<'a> {
    table: &'a Table,
    packet: &'a Packet,
    state: u32,
    hop_limit: u8,
}

impl Machine<'_> {
    /// `None` if no rule decides.
    fn chain(&self, name: &str) -> Option<End> {
        for rule in &self.table.chains[name].rules {
            match self.rule(rule) {
                Some(Verdict::Accept) => return Some(End::Accept),
                Some(Verdict::Drop) => return Some(End::Drop),
                Some(Verdict::Return) => return None,
                Some(Verdict::Goto(chain)) => return self.chain(&chain),
                Some(Verdict::Jump(chain)) => {
                    let end = self.chain(&chain);
                    if end.is_some() {
                        return end;
                    }
                }
                None => {}
            }
        }
        None
    }

    fn rule(&self, rule: &Rule) -> Option<Verdict> {
        let mut registers = [0_u8; 64];
        let tracked = self.state != 1;
        for step in rule {
            let (to, value): (_, Vec<u8>) = match step {
                Expr::ConnectionState(to) => (*to, self.state.to_ne_bytes().to_vec()),
                Expr::Initiator(to, _) if tracked => (*to, octets(self.packet.initiator)),
                Expr::Responder(to, _) if tracked => (*to, octets(self.packet.responder)),
                Expr::TrackedProtocol(to) if tracked => (*to, vec![self.packet.protocol, 0, 0, 0]),
                Expr::ResponderPort(to) if tracked => {
                    let [high, low] = self.packet.port.to_be_bytes();
                    (*to, vec![high, low, 0, 0])
                }
                Expr::Initiator(..)
                | Expr::Responder(..)
                | Expr::TrackedProtocol(_)
                | Expr::ResponderPort(_) => return None,
                Expr::L4Protocol(to) => (*to, vec![self.packet.protocol]),
                Expr::HopLimit(to) => (*to, vec![self.hop_limit]),
                Expr::SourceIp(to) | Expr::SourceIpv6(to) => (*to, octets(self.packet.initiator)),
                Expr::DestinationIp(to) | Expr::DestinationIpv6(to) => (*to, octets(self.packet.responder)),
                Expr::Bitwise(reg, mask, xor) => {
                    let old = &registers[reg.offset()..];
                    (*reg, old.iter().zip(mask).zip(xor).map(|((old, mask), xor)| old & mask ^ xor).collect())
                }
                Expr::Compare(reg, compare, value) => {
                    let is_equal = registers[reg.offset()..].starts_with(value);
                    if is_equal != (*compare == Compare::Equal) {
                        return None;
                    }
                    continue;
                }
                Expr::In(set, reg) => {
                    self.find(set, &registers[reg.offset()..])?;
                    continue;
                }
                Expr::VerdictMap(set, reg) => match self.find(set, &registers[reg.offset()..])? {
                    Data::Verdict(verdict) => return Some(verdict.clone()),
                    other => panic!("{set} has {other:?}"),
                },
                Expr::Verdict(verdict) => return Some(verdict.clone()),
                other => panic!("{other:?} is not known"),
            };
            registers[to.offset()..][..value.len()].copy_from_slice(&value);
        }
        None
    }

    fn find(&self, set: &str, registers: &[u8]) -> Option<&Data> {
        let set = &self.table.sets[set];
        let length: usize = set.key.iter().map(|field| if *field == Field::Ipv6 { 16 } else { 4 }).sum();
        let wanted = &registers[..length];
        let find = |(key, data): (&Key, &_)| -> bool {
            match data {
                Data::Through(last) => key.bytes() <= wanted && wanted <= last.bytes(),
                _ => key.bytes() == wanted,
            }
        };
        let found = set.elements.iter().find(|(key, data)| find((key, data)))?;
        assert_eq!(set.members == Members::Ranges, matches!(found.1, Data::Through(_)));
        Some(found.1)
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}
