//! The Pod network's nftables tables, one of each family that it has rules of: masquerading and host ports, shared by the
//! plugins that have rules in them ([`render`]).
//!
//! In the node's process the rules are in memory. A commit makes the kernel wait for its packet path (about 16 ms), so
//! changes that come meanwhile go into the next one together. Plugins that are programs of their own keep the rules in a
//! [file](in_file), whose lock lets one of them at a time change the table.

mod in_file;
mod render;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use machinery::net::{Cidr, Family};
use serde::{Deserialize, Serialize};
use sys::nftables;

use crate::attachment::{Attachment, BuiltinConfig};
use crate::types::CniError;
use render::{Tables, element, family_of};

/// A port of the host and where it leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Port {
    pub(super) protocol: u8,
    pub(super) host_ip: Option<IpAddr>,
    pub(super) host_port: u16,
    pub(super) pod: IpAddr,
    pub(super) pod_port: u16,
    #[serde(default)]
    pub(super) masqueraded: Masqueraded,
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

/// Pairs of networks by their owners.
type Masquerade = BTreeMap<String, Vec<(Cidr, Cidr)>>;

/// What the table is made of, by whose it is ([`owner_of`], [`owner_network`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules {
    /// What leaves the first network of a pair for anywhere but the second gets the host's address.
    #[serde(deserialize_with = "masquerade")]
    pub(super) masquerade: Masquerade,
    /// Host ports.
    pub(super) ports: BTreeMap<String, Vec<Port>>,
}

/// Files of earlier versions have one pair of IPv4 networks, each an address and a number of bits.
fn masquerade<'de, D>(deserializer: D) -> Result<Masquerade, D::Error>
where
    D: serde::Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Pairs(Vec<(Cidr, Cidr)>),
        Former((IpAddr, u8), (IpAddr, u8)),
    }
    let read = |stored| match stored {
        Stored::Pairs(pairs) => Some(pairs),
        Stored::Former(pods, inside) => {
            Some(vec![(Cidr::new(pods.0, pods.1)?, Cidr::new(inside.0, inside.1)?)])
        }
    };
    let all = BTreeMap::<String, Stored>::deserialize(deserializer)?;
    Ok(all.into_iter().filter_map(|(owner, stored)| Some((owner, read(stored)?))).collect())
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
    applied: Option<Tables>,
    /// The kernel does not have what was applied.
    is_lost: bool,
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

    /// Makes all of it again, since somebody has taken some from the kernel. Of programs the next one does.
    pub(super) fn again(&self) -> Result<(), CniError> {
        if self.is_in_file() {
            return Ok(());
        }
        self.lock().is_lost = true;
        self.change_in_memory(Box::new(|_| {}))
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
        let applied_before = state.applied.take();
        let previous = applied_before.filter(|_| !std::mem::take(&mut state.is_lost));
        state.is_committing = true;
        drop(state);
        let tables = Tables::of(&self.name, &rules);
        let applied = tables.apply(previous.as_ref());
        let mut state = self.lock();
        state.is_committing = false;
        let outcome = match applied {
            Ok(()) => {
                state.rules = rules;
                state.applied = Some(tables);
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
            let (set, fields, key) = element(port);
            let family = family_of(Family::of(port.pod));
            if !nftables::has_element(family, &self.name, set, &fields, &key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_kept_and_were_kept() {
        let former = r#"{"masquerade":{"/n":[["10.7.0.0",24],["10.0.0.0",8]]},"ports":{"c/eth0":[
            {"protocol":6,"host_ip":null,"host_port":80,"pod":"10.7.0.2","pod_port":8080}]}}"#;
        let former: Rules = serde_json::from_str(former).unwrap();
        let pair = |pods: &str, inside: &str| (pods.parse().unwrap(), inside.parse().unwrap());
        assert_eq!(former.masquerade["/n"], [pair("10.7.0.0/24", "10.0.0.0/8")]);
        let mut rules = former.clone();
        let both = vec![pair("10.7.0.0/24", "10.0.0.0/8"), pair("fd07::/64", "fd00::/8")];
        rules.masquerade.insert("/n".into(), both);
        for rules in [former, rules] {
            let text = serde_json::to_string(&rules).unwrap();
            assert_eq!(serde_json::from_str::<Rules>(&text).unwrap(), rules);
        }
        for bad in
            [r#"{"masquerade":{"/n":[["10.7.0.0"]]},"ports":{}}"#, r#"{"masquerade":{"/n":7},"ports":{}}"#]
        {
            assert!(serde_json::from_str::<Rules>(bad).is_err(), "{bad}");
        }
    }
}
