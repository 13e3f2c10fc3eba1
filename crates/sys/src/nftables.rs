//! nftables over netlink: a table as a value, and its atomic replacement in the kernel.
//!
//! A [`Table`] describes one table of a family whole. [`apply`] turns what the kernel has into it in one transaction: packets
//! see the old table or the new one. Given what was applied before, only the difference is sent, and what the
//! packet path itself put into sets with a timeout stays. Who commits often keeps a [`Connection`].
//! A [`Draft`] is a table that knows what has changed since the last commit, so that nothing is compared.

mod batch;
mod chains;
mod changes;
mod connection;
mod draft;
mod encode;
mod expression;
mod owner;
pub mod port;
mod watch;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub use crate::nfproto::TableFamily;
pub use batch::{
    apply, apply_changes, change, delete_table, delete_table_of, has_element, replace, replace_all,
    table_names, table_names_of, try_table,
};
pub use chains::{BaseChain, Family, base_chains};
pub use changes::Changes;
pub use connection::Connection;
pub use draft::Draft;
pub use expression::{Compare, Expr, Reg, destination_in, l4_protocol, load, source_in, when};
pub use owner::Owner;
pub use watch::{Flushes, TableWatch, Taken};

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The packets that it sees.
    pub family: TableFamily,
    /// Its name.
    pub name: String,
    /// Its chains by name.
    pub chains: BTreeMap<String, Chain>,
    /// Its sets and maps by name.
    pub sets: BTreeMap<String, Set>,
}

/// A chain: one that packets enter from a hook, or one that other chains send them to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The hook at which packets enter.
    pub base: Option<Base>,
    /// Its rules in order.
    pub rules: Vec<Rule>,
}

/// A rule: expressions from left to right, as far as they match.
pub type Rule = Vec<Expr>;

/// The place at which packets enter a chain. The chain's policy is accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The purpose of the chain.
    pub kind: ChainKind,
    /// The hook in the stack.
    pub hook: Hook,
    /// Order among the chains of a hook: -100 is `dstnat`, 0 `filter`, 100 `srcnat`.
    pub priority: i32,
}

/// The purpose of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// Let through or not.
    Filter,
    /// Rewrite addresses; sees a connection's first packet only.
    Nat,
}

/// The hook of a base chain in the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

/// A set (no value) or map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The fields of a key.
    pub key: Vec<Field>,
    /// The type of the value of a key.
    pub value: SetValue,
    /// Rules add elements, which end after this time; `elements` is not used then.
    pub timeout: Option<Duration>,
    /// The meaning of an element.
    pub members: Members,
    /// Elements by key.
    pub elements: BTreeMap<Key, Data>,
}

/// The meaning of a set's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Members {
    /// Their keys.
    #[default]
    Keys,
    /// All keys from theirs to the one in their [`Data::Through`]. No two overlap.
    Ranges,
}

/// The type of the values of a set's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SetValue {
    /// Nothing: a plain set.
    #[default]
    None,
    /// A verdict (`vmap`).
    Verdict,
    /// Data.
    Fields(Vec<Field>),
}

/// Part of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// IPv4 address.
    Ipv4,
    /// IPv6 address: four registers.
    Ipv6,
    /// Number of the transport protocol.
    Protocol,
    /// Port of the transport protocol.
    Port,
    /// A number, as [`Expr::Random`] makes.
    Index,
}

/// A key or value, encoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub(crate) Vec<u8>);

/// The value of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing: an element of a plain set.
    None,
    /// A verdict.
    Verdict(Verdict),
    /// Data.
    Value(Key),
    /// The last key of a range; of sets of [`Members::Ranges`].
    Through(Key),
}

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on its way.
    Accept,
    /// It is gone.
    Drop,
    /// Back to the chain that jumped here.
    Return,
    /// Through another chain, and back.
    Jump(String),
    /// Through another chain instead of this one.
    Goto(String),
}

impl Key {
    /// An empty key, to which parts are added in order.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an address.
    #[must_use]
    pub fn ip(mut self, ip: Ipv4Addr) -> Self {
        self.0.extend(ip.octets());
        self
    }

    /// Adds an address of either family.
    #[must_use]
    pub fn address(mut self, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => self.0.extend(ip.octets()),
            IpAddr::V6(ip) => self.0.extend(ip.octets()),
        }
        self
    }

    /// The parts one behind the other, each filled up to registers.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds a transport protocol's number.
    #[must_use]
    pub fn protocol(mut self, protocol: u8) -> Self {
        self.0.extend([protocol, 0, 0, 0]);
        self
    }

    /// Adds a port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.0.extend(port.to_be_bytes());
        self.0.extend([0; 2]);
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn index(mut self, index: u32) -> Self {
        self.0.extend(index.to_ne_bytes());
        self
    }
}

impl Table {
    /// An empty table.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds an empty set whose elements are ranges of keys of one field.
    pub fn range_set(&mut self, name: &str, key: Field) {
        let set = Set { key: vec![key], members: Members::Ranges, ..Set::default() };
        self.sets.insert(name.to_owned(), set);
    }

    /// Adds a rule to a chain, which is made if it is new.
    pub fn rule(&mut self, chain: &str, rule: Rule) {
        self.chains.entry(chain.to_owned()).or_default().rules.push(rule);
    }

    /// Adds an empty base chain.
    pub fn base_chain(&mut self, name: &str, kind: ChainKind, hook: Hook, priority: i32) {
        let base = Some(Base { kind, hook, priority });
        self.chains.insert(name.to_owned(), Chain { base, rules: Vec::new() });
    }

    /// Adds an empty set or map.
    pub fn set(&mut self, name: &str, key: &[Field], value: SetValue) {
        self.sets.insert(name.to_owned(), Set { key: key.to_vec(), value, ..Set::default() });
    }

    /// Adds a set that rules put keys into, which stay for `timeout` after their last use.
    pub fn dynamic_set(&mut self, name: &str, key: &[Field], timeout: Duration) {
        let set = Set { key: key.to_vec(), timeout: Some(timeout), ..Set::default() };
        self.sets.insert(name.to_owned(), set);
    }

    /// Adds an element to a set that was added before.
    pub fn element(&mut self, set: &str, key: Key, data: Data) {
        if let Some(set) = self.sets.get_mut(set) {
            set.elements.insert(key, data);
        }
    }
}

#[cfg(test)]
mod tests;
