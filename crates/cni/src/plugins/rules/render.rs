//! Rules as nftables: a table of each family, with the same chains and maps in both. Pure but for [`Tables::apply`].

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use machinery::net::{Cidr, Family};
use sys::nftables::{
    self, ChainKind, Compare, Data, Expr, Field, Hook, Key, Reg, SetValue, Table, TableFamily, Verdict, when,
};

use super::{Masqueraded, Port, Rules};

/// What is only to be reached from the host itself, of IPv4: of IPv6 the kernel sees to it.
const LOOPBACK: &str = "127.0.0.0/8";
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// Its link, as the kernel compares names.
const LOOPBACK_LINK: &[u8; 16] = b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// The priority of what sees packets first, before their addresses are translated back. Source: `NF_IP_PRI_RAW`.
const BEFORE_TRACKING: i32 = -300;

/// Maps of ports: of every address of the host, and of one.
const PORTS: &str = "ports";
const ADDRESS_PORTS: &str = "address-ports";

/// The tables of a network. One of IPv4 is there unless all its rules are of IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tables([Option<Table>; 2]);

impl Tables {
    pub(super) fn of(name: &str, rules: &Rules) -> Self {
        let [has_v4, has_v6] = FAMILIES.map(|family| {
            let pods = rules.masquerade.values().flatten().map(|(pods, _)| pods.family());
            let ports = rules.ports.values().flatten().map(|port| Family::of(port.pod));
            pods.chain(ports).any(|found| found == family)
        });
        let table = |family, is_there: bool| is_there.then(|| render(name, rules, family));
        Self([table(Family::V4, has_v4 || !has_v6), table(Family::V6, has_v6)])
    }

    /// Makes the kernel's tables these, given what was applied before, if that is known.
    pub(super) fn apply(&self, previous: Option<&Self>) -> sys::Result<()> {
        for (number, (family, table)) in FAMILIES.into_iter().zip(&self.0).enumerate() {
            let before = previous.and_then(|previous| previous.0.get(number)?.as_ref());
            match table {
                Some(table) => nftables::apply(before, table)?,
                None if previous.is_some() && before.is_none() => {}
                None => {
                    let name = self.0.iter().flatten().next().map(|table| table.name.as_str());
                    nftables::delete_table_of(family_of(family), name.unwrap_or_default())?;
                }
            }
        }
        Ok(())
    }

    /// Whether the kernel has all of them.
    pub(super) fn are_there(&self) -> sys::Result<bool> {
        for table in self.0.iter().flatten() {
            if !nftables::table_names_of(table.family)?.contains(&table.name) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Deletes all tables of this name. No error if there is none.
    pub(super) fn delete(name: &str) -> sys::Result<()> {
        FAMILIES.into_iter().try_for_each(|family| nftables::delete_table_of(family_of(family), name))
    }
}

/// The family of the table that packets of a family go through.
pub(super) fn family_of(family: Family) -> TableFamily {
    match family {
        Family::V4 => TableFamily::Ipv4,
        Family::V6 => TableFamily::Ipv6,
    }
}

fn address(family: Family) -> Field {
    match family {
        Family::V4 => Field::Ipv4,
        Family::V6 => Field::Ipv6,
    }
}

/// The map that a port is in, the fields of its keys, and by which one.
pub(super) fn element(port: &Port) -> (&'static str, Vec<Field>, Key) {
    let (map, mut fields, key) = match port.host_ip {
        Some(ip) => (ADDRESS_PORTS, vec![address(Family::of(port.pod))], Key::new().address(ip)),
        None => (PORTS, Vec::new(), Key::new()),
    };
    fields.extend([Field::Protocol, Field::Port]);
    (map, fields, key.protocol(port.protocol).port(port.host_port))
}

fn source(network: Cidr, compare: Compare) -> Vec<Expr> {
    nftables::source_in(network.address(), network.bits(), compare)
}

fn destination(network: Cidr, compare: Compare) -> Vec<Expr> {
    nftables::destination_in(network.address(), network.bits(), compare)
}

fn load_source(to: Reg, family: Family) -> Expr {
    match family {
        Family::V4 => Expr::SourceIp(to),
        Family::V6 => Expr::SourceIpv6(to),
    }
}

fn load_destination(to: Reg, family: Family) -> Expr {
    match family {
        Family::V4 => Expr::DestinationIp(to),
        Family::V6 => Expr::DestinationIpv6(to),
    }
}

fn render(name: &str, rules: &Rules, family: Family) -> Table {
    let mut table = Table { family: family_of(family), ..Table::new(name) };
    table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -101);
    table.base_chain("output", ChainKind::Nat, Hook::Output, -101);
    table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 101);
    let pairs: BTreeSet<_> = rules.masquerade.values().flatten().collect();
    for (pods, inside) in pairs.into_iter().filter(|(pods, _)| pods.family() == family) {
        let mut rule = source(*pods, Compare::Equal);
        rule.extend(destination(*inside, Compare::NotEqual));
        rule.extend(multicast(family).into_iter().flat_map(|all| destination(all, Compare::NotEqual)));
        rule.push(Expr::Masquerade);
        table.rule("postrouting", rule);
    }
    let ports: Vec<&Port> =
        rules.ports.values().flatten().filter(|port| Family::of(port.pod) == family).collect();
    if !ports.is_empty() {
        render_ports(&mut table, family, &ports);
    }
    table
}

fn multicast(family: Family) -> Option<Cidr> {
    let text = match family {
        Family::V4 => "224.0.0.0/4",
        Family::V6 => "ff00::/8",
    };
    text.parse().ok()
}

fn render_ports(table: &mut Table, family: Family, ports: &[&Port]) {
    let ip = address(family);
    let to = || SetValue::Fields(vec![ip, Field::Port]);
    table.set(PORTS, &[Field::Protocol, Field::Port], to());
    table.set(ADDRESS_PORTS, &[ip, Field::Protocol, Field::Port], to());
    table.set("hairpin", &[ip, ip], SetValue::None);
    table.set("loopback", &[ip], SetValue::None);
    table.set("everybody", &[ip], SetValue::None);
    for port in ports {
        let (pod, (set, _, key)) = (Key::new().address(port.pod), element(port));
        table.element(set, key, Data::Value(pod.clone().port(port.pod_port)));
        match port.masqueraded {
            Masqueraded::Nobody => {}
            Masqueraded::Needy => {
                table.element("hairpin", pod.clone().address(port.pod), Data::None);
                table.element("loopback", pod, Data::None);
            }
            Masqueraded::Everybody => table.element("everybody", pod, Data::None),
        }
    }
    for chain in ["prerouting", "output"] {
        translate(table, family, chain);
    }
    masquerade(table, family);
    if family == Family::V4 {
        guard_loopback(table);
    }
}

/// Host ports are open at all addresses of the host, those of the loopback network of IPv4 too. Nothing from the loopback
/// address of IPv6 can leave the host: nobody is led to where there is no way back.
fn translate(table: &mut Table, family: Family, chain: &str) {
    let behind = Reg::R0.after(address(family));
    let mut to_host = when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::Equal, Expr::LOCAL);
    if family == Family::V6 {
        to_host.push(Expr::DestinationIpv6(Reg::R0));
        to_host.push(Expr::Compare(Reg::R0, Compare::NotEqual, Ipv6Addr::LOCALHOST.octets().to_vec()));
    }
    let port = [Expr::L4Protocol(behind), Expr::DestinationPort(behind.after(Field::Protocol))];
    let dnat = Expr::Dnat(Reg::R0, Some(behind));
    let mut by_address = to_host.clone();
    by_address.push(load_destination(Reg::R0, family));
    by_address.extend(port.clone());
    by_address.extend([Expr::Map(ADDRESS_PORTS.into(), Reg::R0, Reg::R0), dnat.clone()]);
    table.rule(chain, by_address);
    let mut any = to_host;
    any.extend(port);
    any.extend([Expr::Map(PORTS.into(), behind, Reg::R0), dnat]);
    table.rule(chain, any);
}

/// Connections of the loopback network leave the host with the host's own address, which the bridge's `route_localnet`
/// allows; so do those of a Pod to itself.
fn masquerade(table: &mut Table, family: Family) {
    let (second, to_pod) = (Reg::R0.after(address(family)), |set: &str| {
        vec![load_destination(Reg::R0, family), Expr::In(set.into(), Reg::R0)]
    });
    let own = vec![
        load_source(Reg::R0, family),
        load_destination(second, family),
        Expr::In("hairpin".into(), Reg::R0),
    ];
    let loopback = LOOPBACK.parse().ok().filter(|network: &Cidr| network.family() == family);
    let hosts = loopback.map(|network| [source(network, Compare::Equal), to_pod("loopback")].concat());
    for connections in [Some(own), hosts, Some(to_pod("everybody"))].into_iter().flatten() {
        let mut rule = when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0);
        rule.extend(connections);
        rule.push(Expr::Masquerade);
        table.rule("postrouting", rule);
    }
}

/// What comes from elsewhere in the name of the loopback network is dropped, so that `route_localnet` lets nobody at what
/// only listens there.
fn guard_loopback(table: &mut Table) {
    table.base_chain("guard", ChainKind::Filter, Hook::Prerouting, BEFORE_TRACKING);
    let Ok(loopback) = LOOPBACK.parse() else { return };
    for of_loopback in [source, destination] {
        let mut rule = vec![Expr::InputName(Reg::R0)];
        rule.push(Expr::Compare(Reg::R0, Compare::NotEqual, LOOPBACK_LINK.to_vec()));
        rule.extend(of_loopback(loopback, Compare::Equal));
        rule.push(Expr::Verdict(Verdict::Drop));
        table.rule("guard", rule);
    }
}
