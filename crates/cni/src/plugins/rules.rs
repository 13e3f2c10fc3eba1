//! The Pod network's nftables table: masquerading and host ports, shared by the plugins that have rules in it.
//!
//! In the node's process the rules are in memory. A commit makes the kernel wait for its packet path (about 16 ms), so
//! changes that come meanwhile go into the next one together. Plugins that are programs of their own keep the rules in a
//! [file](in_file), whose lock lets one of them at a time change the table.

mod in_file;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use sys::nftables::{
    self, ChainKind, Compare, Data, Expr, Field, Hook, Key, Reg, SetValue, Table, Verdict, destination_in,
    source_in, when,
};

use crate::network::{Attachment, BuiltinConfig};
use crate::types::CniError;

type Cidr = (Ipv4Addr, u8);

/// What is only to be reached from the host itself.
const LOOPBACK: Cidr = (Ipv4Addr::new(127, 0, 0, 0), 8);
/// Its link, as the kernel compares names.
const LOOPBACK_LINK: &[u8; 16] = b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// The priority of what sees packets first, before their addresses are translated back. Source: `NF_IP_PRI_RAW`.
const BEFORE_TRACKING: i32 = -300;

/// A port of the host and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Port {
    pub(super) protocol: u8,
    pub(super) host_ip: Option<Ipv4Addr>,
    pub(super) host_port: u16,
    pub(super) pod: Ipv4Addr,
    pub(super) pod_port: u16,
    #[serde(default)]
    pub(super) masqueraded: Masqueraded,
}

/// A map's name, and the fields of its keys.
type Map = (&'static str, &'static [Field]);

/// Ports of every address of the host, and those of one.
const PORTS: Map = ("ports", &[Field::Protocol, Field::Port]);
const ADDRESS_PORTS: Map = ("address-ports", &[Field::Ipv4, Field::Protocol, Field::Port]);

impl Port {
    /// The map that it is in, and by which key.
    fn element(&self) -> (Map, Key) {
        let (map, key) = match self.host_ip {
            Some(ip) => (ADDRESS_PORTS, Key::new().ip(ip)),
            None => (PORTS, Key::new()),
        };
        (map, key.protocol(self.protocol).port(self.host_port))
    }
}

/// Whose connections to a host port come to the Pod with an address of the host. Source: portmap's `snat` and `masqAll`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Masqueraded {
    /// Nobody's: the Pod's own to itself, and the host's from its loopback addresses, come to nothing.
    Nobody,
    /// Those that would come to nothing otherwise.
    #[default]
    Needy,
    /// Also those from elsewhere, of which the Pod cannot tell then whose they are.
    Everybody,
}

/// What the table is made of, by whose it is ([`owner_of`], [`owner_network`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules {
    /// What leaves the first network for anywhere but the second gets the host's address.
    pub(super) masquerade: BTreeMap<String, (Cidr, Cidr)>,
    /// Host ports.
    pub(super) ports: BTreeMap<String, Vec<Port>>,
}

/// A Pod's interface, as the owner of rules: no container's id has a slash.
pub(super) fn owner_of(attachment: &Attachment) -> String {
    format!("{}/{}", attachment.container_id, attachment.ifname)
}

/// All Pods of a network together.
pub(super) fn owner_network(name: &str) -> String {
    format!("/{name}")
}

/// The table of one network.
#[derive(Debug)]
pub(crate) struct TableOwner {
    name: String,
    file: Option<PathBuf>,
    state: Mutex<State>,
    committed: Condvar,
}

/// What is in the kernel, and what waits.
#[derive(Default)]
struct State {
    rules: Rules,
    applied: Option<Table>,
    is_committing: bool,
    next_ticket: u64,
    waiting: Vec<(u64, Change)>,
    outcomes: BTreeMap<u64, Result<(), Refused>>,
}

type Change = Box<dyn FnOnce(&mut Rules) + Send>;

/// Why a commit failed, for each that had a change in it.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
struct Refused(Arc<sys::Error>);

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("rules", &self.rules).finish_non_exhaustive()
    }
}

pub(crate) type Shared = Arc<TableOwner>;

/// The table of the cluster; plugins of one process share it.
pub(crate) fn shared(config: &BuiltinConfig) -> Shared {
    static TABLES: Mutex<BTreeMap<PathBuf, Weak<TableOwner>>> = Mutex::new(BTreeMap::new());
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(table) = tables.get(&config.state_dir).and_then(Weak::upgrade) {
        return table;
    }
    let table = Arc::new(TableOwner::new(crate::table_name(&config.cluster_id), None));
    tables.insert(config.state_dir.clone(), Arc::downgrade(&table));
    table
}

/// The table of a network whose plugins are programs: its rules are in `file`.
pub(crate) fn in_file(name: String, file: PathBuf) -> Shared {
    Arc::new(TableOwner::new(name, Some(file)))
}

impl TableOwner {
    fn new(name: String, file: Option<PathBuf>) -> Self {
        Self { name, file, state: Mutex::default(), committed: Condvar::new() }
    }

    /// The table's name.
    pub(super) fn table(&self) -> &str {
        &self.name
    }

    /// Whether each Pod's plugins are processes of their own.
    pub(super) fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// Changes the rules, and the kernel if that makes a difference. If it fails, nothing is changed.
    pub(super) fn change(&self, change: impl FnOnce(&mut Rules) + Send + 'static) -> Result<(), CniError> {
        match &self.file {
            Some(file) => in_file::change(&self.name, file, change),
            None => self.change_in_memory(Box::new(change)),
        }
    }

    /// Forgets what this owner has, if it has anything.
    pub(super) fn forget(&self, owner: String) -> Result<(), CniError> {
        if self.file.is_none() {
            let state = self.lock();
            let has = state.rules.ports.contains_key(&owner) || state.rules.masquerade.contains_key(&owner);
            if !has && state.waiting.is_empty() && !state.is_committing {
                return Ok(());
            }
        }
        self.change(move |rules| {
            rules.ports.remove(&owner);
            rules.masquerade.remove(&owner);
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever comes while nobody commits does it for all who wait.
    fn change_in_memory(&self, change: Change) -> Result<(), CniError> {
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push((ticket, change));
        loop {
            if let Some(outcome) = state.outcomes.remove(&ticket) {
                return outcome.map_err(|refused| CniError::Rules(Box::new(refused)));
            }
            state = if state.is_committing {
                self.committed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.commit(state)
            };
        }
    }

    fn commit<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let mut rules = state.rules.clone();
        let mut tickets = Vec::with_capacity(state.waiting.len());
        for (ticket, change) in std::mem::take(&mut state.waiting) {
            change(&mut rules);
            tickets.push(ticket);
        }
        let previous = state.applied.take();
        state.is_committing = true;
        drop(state);
        let table = render(&self.name, &rules);
        let applied = nftables::apply(previous.as_ref(), &table);
        let mut state = self.lock();
        state.is_committing = false;
        let outcome = match applied {
            Ok(()) => {
                state.rules = rules;
                state.applied = Some(table);
                Ok(())
            }
            Err(error) => {
                state.applied = previous;
                Err(Refused(Arc::new(error)))
            }
        };
        state.outcomes.extend(tickets.into_iter().map(|ticket| (ticket, outcome.clone())));
        self.committed.notify_all();
        state
    }

    /// Whether this owner's ports are known and in the kernel.
    pub(super) fn has_ports(&self, owner: &str, ports: &[Port]) -> Result<bool, CniError> {
        let is_known = match &self.file {
            Some(file) => in_file::read(file)?.ports.contains_key(owner),
            None => self.lock().rules.ports.contains_key(owner),
        };
        if !is_known {
            return Ok(false);
        }
        for port in ports {
            let ((set, fields), key) = port.element();
            if !nftables::has_element(&self.name, set, fields, &key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn render(name: &str, rules: &Rules) -> Table {
    let mut table = Table::new(name);
    table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -101);
    table.base_chain("output", ChainKind::Nat, Hook::Output, -101);
    table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 101);
    for ((pods, prefix), (inside, inside_prefix)) in rules.masquerade.values().collect::<BTreeSet<_>>() {
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

/// Host ports are open on the loopback network too. Its connections leave the host with the host's own address, which
/// the bridge's `route_localnet` allows; what comes from elsewhere in the name of that network is dropped, so that the
/// same setting lets nobody at what only listens there.
fn render_ports<'a>(table: &mut Table, ports: impl Iterator<Item = &'a Port>) {
    let to = || SetValue::Fields(vec![Field::Ipv4, Field::Port]);
    for (name, fields) in [PORTS, ADDRESS_PORTS] {
        table.set(name, fields, to());
    }
    table.set("hairpin", &[Field::Ipv4, Field::Ipv4], SetValue::None);
    table.set("loopback", &[Field::Ipv4], SetValue::None);
    table.set("everybody", &[Field::Ipv4], SetValue::None);
    for port in ports {
        let pod = Data::Value(Key::new().ip(port.pod).port(port.pod_port));
        let ((set, _), key) = port.element();
        table.element(set, key, pod);
        match port.masqueraded {
            Masqueraded::Nobody => {}
            Masqueraded::Needy => {
                table.element("hairpin", Key::new().ip(port.pod).ip(port.pod), Data::None);
                table.element("loopback", Key::new().ip(port.pod), Data::None);
            }
            Masqueraded::Everybody => table.element("everybody", Key::new().ip(port.pod), Data::None),
        }
    }
    for chain in ["prerouting", "output"] {
        let to_host = when(Expr::DestinationKind(Reg::R0), u32::MAX, Compare::Equal, Expr::LOCAL);
        let port = [Expr::L4Protocol(Reg::R1), Expr::DestinationPort(Reg::R2)];
        let dnat = Expr::Dnat(Reg::R0, Some(Reg::R1));
        let mut by_address = to_host.clone();
        by_address.push(Expr::DestinationIp(Reg::R0));
        by_address.extend(port.clone());
        by_address.extend([Expr::Map(ADDRESS_PORTS.0.into(), Reg::R0, Reg::R0), dnat.clone()]);
        table.rule(chain, by_address);
        let mut any = to_host;
        any.extend(port);
        any.extend([Expr::Map(PORTS.0.into(), Reg::R1, Reg::R0), dnat]);
        table.rule(chain, any);
    }
    let (loopback, prefix) = LOOPBACK;
    let to = |set: &str| vec![Expr::DestinationIp(Reg::R0), Expr::In(set.into(), Reg::R0)];
    let own = [Expr::SourceIp(Reg::R0), Expr::DestinationIp(Reg::R1), Expr::In("hairpin".into(), Reg::R0)];
    let hosts = [source_in(loopback, prefix, Compare::Equal), to("loopback")].concat();
    for connections in [own.to_vec(), hosts, to("everybody")] {
        let mut rule = when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0);
        rule.extend(connections);
        rule.push(Expr::Masquerade);
        table.rule("postrouting", rule);
    }
    table.base_chain("guard", ChainKind::Filter, Hook::Prerouting, BEFORE_TRACKING);
    for of_loopback in [source_in, destination_in] {
        let mut rule = vec![Expr::InputName(Reg::R0)];
        rule.push(Expr::Compare(Reg::R0, Compare::NotEqual, LOOPBACK_LINK.to_vec()));
        rule.extend(of_loopback(loopback, prefix, Compare::Equal));
        rule.push(Expr::Verdict(Verdict::Drop));
        table.rule("guard", rule);
    }
}
