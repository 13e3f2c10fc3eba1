//! The Pod network's nftables table: masquerading and host ports, shared by the plugins that have rules in it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sys::nftables::{
    self, ChainKind, Compare, Data, Expr, Field, Hook, Key, Reg, SetValue, Table, destination_in, source_in,
    when,
};

use crate::network::BuiltinConfig;
use crate::types::CniError;

type Cidr = (Ipv4Addr, u8);

/// A port of the host and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) protocol: u8,
    pub(super) host_ip: Option<Ipv4Addr>,
    pub(super) host_port: u16,
    pub(super) pod: Ipv4Addr,
    pub(super) pod_port: u16,
}

/// What the table is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// What leaves the first network for anywhere but the second gets the host's address.
    pub(super) masquerade: BTreeSet<(Cidr, Cidr)>,
    /// Host ports by container id and interface.
    pub(super) ports: BTreeMap<(String, String), Vec<Port>>,
}

/// The table of one network, in memory and in the kernel.
#[derive(Debug)]
pub(super) struct TableOwner {
    name: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: Rules,
    applied: Option<Table>,
}

pub(super) type Shared = Arc<TableOwner>;

/// The table of the cluster; plugins of one process share it.
pub(super) fn shared(config: &BuiltinConfig) -> Shared {
    static TABLES: Mutex<BTreeMap<std::path::PathBuf, Weak<TableOwner>>> = Mutex::new(BTreeMap::new());
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(table) = tables.get(&config.state_dir).and_then(Weak::upgrade) {
        return table;
    }
    let table = Arc::new(TableOwner { name: crate::table_name(&config.cluster_id), state: Mutex::default() });
    tables.insert(config.state_dir.clone(), Arc::downgrade(&table));
    table
}

impl TableOwner {
    /// Changes the rules, and the kernel if that makes a difference. If it fails, nothing is changed.
    pub(super) fn change(&self, change: impl FnOnce(&mut Rules)) -> Result<(), CniError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = state.rules.clone();
        change(&mut rules);
        let table = render(&self.name, &rules);
        nftables::apply(state.applied.as_ref(), &table)?;
        *state = State { rules, applied: Some(table) };
        Ok(())
    }

    pub(super) fn is_in_place(&self) -> Result<bool, CniError> {
        Ok(nftables::table_names()?.contains(&self.name))
    }
}

fn render(name: &str, rules: &Rules) -> Table {
    let mut table = Table::new(name);
    table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -101);
    table.base_chain("output", ChainKind::Nat, Hook::Output, -101);
    table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 101);
    for ((pods, prefix), (inside, inside_prefix)) in &rules.masquerade {
        let mut rule = source_in(*pods, *prefix, Compare::Equal);
        rule.extend(destination_in(*inside, *inside_prefix, Compare::NotEqual));
        rule.extend(destination_in(Ipv4Addr::new(224, 0, 0, 0), 4, Compare::NotEqual));
        rule.push(Expr::Masquerade);
        table.rule("postrouting", rule);
    }
    if rules.ports.values().any(|ports| !ports.is_empty()) {
        render_ports(&mut table, rules.ports.values().flatten());
    }
    table
}

fn render_ports<'a>(table: &mut Table, ports: impl Iterator<Item = &'a Port>) {
    let to = || SetValue::Fields(vec![Field::Ipv4, Field::Port]);
    table.set("ports", &[Field::Protocol, Field::Port], to());
    table.set("address-ports", &[Field::Ipv4, Field::Protocol, Field::Port], to());
    table.set("hairpin", &[Field::Ipv4, Field::Ipv4], SetValue::None);
    for port in ports {
        let pod = Data::Value(Key::new().ip(port.pod).port(port.pod_port));
        match port.host_ip {
            Some(ip) => {
                table.element(
                    "address-ports",
                    Key::new().ip(ip).protocol(port.protocol).port(port.host_port),
                    pod,
                );
            }
            None => table.element("ports", Key::new().protocol(port.protocol).port(port.host_port), pod),
        }
        table.element("hairpin", Key::new().ip(port.pod).ip(port.pod), Data::None);
    }
    for chain in ["prerouting", "output"] {
        let to_host = when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::Equal, Expr::LOCAL);
        let port = [Expr::L4Protocol(Reg::R1), Expr::DestinationPort(Reg::R2)];
        let dnat = Expr::Dnat(Reg::R0, Some(Reg::R1));
        let mut by_address = to_host.clone();
        by_address.push(Expr::DestinationIp(Reg::R0));
        by_address.extend(port.clone());
        by_address.extend([Expr::Map("address-ports".into(), Reg::R0, Reg::R0), dnat.clone()]);
        table.rule(chain, by_address);
        let mut any = to_host;
        any.extend(destination_in(Ipv4Addr::new(127, 0, 0, 0), 8, Compare::NotEqual));
        any.extend(port);
        any.extend([Expr::Map("ports".into(), Reg::R1, Reg::R0), dnat]);
        table.rule(chain, any);
    }
    let mut hairpin = when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0);
    hairpin.extend([Expr::SourceIp(Reg::R0), Expr::DestinationIp(Reg::R1)]);
    hairpin.extend([Expr::In("hairpin".into(), Reg::R0), Expr::Masquerade]);
    table.rule("postrouting", hairpin);
}
