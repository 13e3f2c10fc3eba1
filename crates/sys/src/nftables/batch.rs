//! One transaction: the messages that turn one table into another, sent as a batch.

use std::collections::BTreeMap;
use std::io;

use nix::libc;

use super::{Data, Field, Key, Rule, Set, Table, encode};
use crate::netlink::{
    ACK, CREATE, DUMP, Encoder, REQUEST, Socket, Verdict, find_attribute, messages, str_of,
};
use crate::{Doing, Error, Result};

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
pub(super) const NEW_TABLE: u16 = 0;
const GET_TABLE: u16 = 1;
pub(super) const DELETE_TABLE: u16 = 2;
pub(super) const NEW_CHAIN: u16 = 3;
pub(super) const DELETE_CHAIN: u16 = 5;
pub(super) const NEW_RULE: u16 = 6;
const DELETE_RULE: u16 = 8;
const NEW_SET: u16 = 9;
const DELETE_SET: u16 = 11;
const NEW_ELEMENTS: u16 = 12;
const GET_ELEMENTS: u16 = 13;
const DELETE_ELEMENTS: u16 = 14;
const FAMILY_IPV4: u8 = 2;
pub(super) const FAMILY_NETDEV: u8 = 5;
const APPEND: u16 = libc::NLM_F_APPEND as u16;
/// An attribute's length is 16 bits; an element takes less than 400 bytes.
const ELEMENTS_PER_MESSAGE: usize = 150;
const ANSWER_WAIT_SECONDS: libc::time_t = 30;

/// Makes the kernel's table equal to `next`, in one transaction.
///
/// `previous` is what this process applied last, `None` if it does not know: then the table is replaced whole. If the
/// kernel's table is not what `previous` says (someone changed it), the table is replaced whole, too.
pub fn apply(previous: Option<&Table>, next: &Table) -> Result<()> {
    if previous == Some(next) {
        return Ok(());
    }
    if let Some(previous) = previous.filter(|previous| can_change(previous, next)) {
        let mut batch = Batch::new(&next.name);
        batch.change(previous, next);
        match batch.commit() {
            Err(error) => {
                tracing::warn!(table = next.name, %error, "cannot change nftables table, replacing it")
            }
            done => return done,
        }
    }
    let mut batch = Batch::new(&next.name);
    batch.table(NEW_TABLE, CREATE);
    batch.table(DELETE_TABLE, 0);
    batch.table(NEW_TABLE, CREATE);
    batch.change(&Table::new(next.name.clone()), next);
    batch.commit()
}

/// Whether there can be tables: makes one of this name and deletes it, in one transaction.
pub fn try_table(name: &str) -> Result<()> {
    let mut batch = Batch::new(name);
    batch.table(NEW_TABLE, CREATE);
    batch.table(DELETE_TABLE, 0);
    batch.commit()
}

/// Deletes a table. No error if there is none, or can be none.
pub fn delete_table(name: &str) -> Result<()> {
    // Made if it is not there: another may delete it at the same time.
    if table_names()?.iter().any(|known| known == name) { try_table(name) } else { Ok(()) }
}

/// The names of all IPv4 tables in the calling thread's network namespace. None if the kernel has no nftables.
pub fn table_names() -> Result<Vec<String>> {
    tables_of(FAMILY_IPV4)
}

pub(super) fn tables_of(family: u8) -> Result<Vec<String>> {
    let mut request = Encoder::message(SUBSYSTEM << 8 | GET_TABLE, 0);
    request.raw(&[family, 0, 0, 0]);
    let listed = Socket::open(libc::NETLINK_NETFILTER)
        .and_then(|mut socket| socket.request(request, DUMP, || "list nftables tables".into()));
    let answers = match listed {
        // Without nfnetlink, and without nf_tables.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::EINVAL)) => {
            return Ok(Vec::new());
        }
        listed => listed?,
    };
    Ok(answers.iter().filter_map(|answer| find_attribute(answer.get(4..)?, 1)).map(str_of).collect())
}

/// Whether a set or map in the calling thread's network namespace has this key, of these fields; not if there is no such
/// set.
pub fn has_element(table: &str, set: &str, fields: &[Field], key: &Key) -> Result<bool> {
    let shape = Set { key: fields.to_vec(), ..Set::default() };
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    let mut request = Encoder::message(SUBSYSTEM << 8 | GET_ELEMENTS, 0);
    request.raw(&[FAMILY_IPV4, 0, 0, 0]).str(1, table).str(2, set).nest(3, |list| {
        encode::element(list, &shape, key, None);
    });
    match socket.request(request, ACK, || format!("look into set {set} of nftables table {table}")) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether chains and sets of one name have one definition, so that contents are all there is to change.
fn can_change(previous: &Table, next: &Table) -> bool {
    let same_chains = next
        .chains
        .iter()
        .all(|(name, chain)| previous.chains.get(name).is_none_or(|old| old.base == chain.base));
    let same_sets = next.sets.iter().all(|(name, set)| {
        previous
            .sets
            .get(name)
            .is_none_or(|old| (&old.key, &old.value, old.timeout) == (&set.key, &set.value, set.timeout))
    });
    previous.name == next.name && same_chains && same_sets
}

pub(super) struct Batch<'a> {
    family: u8,
    table: &'a str,
    out: Encoder,
    sequence: u32,
    last_start: usize,
}

impl<'a> Batch<'a> {
    fn new(table: &'a str) -> Self {
        Self::of(FAMILY_IPV4, table)
    }

    pub(super) fn of(family: u8, table: &'a str) -> Self {
        let mut batch = Self { family, table, out: Encoder::default(), sequence: 0, last_start: 0 };
        batch.frame(BATCH_BEGIN);
        batch
    }

    fn frame(&mut self, kind: u16) {
        self.sequence += 1;
        self.out.begin(kind, REQUEST, self.sequence);
        let [high, low] = SUBSYSTEM.to_be_bytes();
        self.out.raw(&[0, 0, high, low]);
        self.out.end();
    }

    pub(super) fn message(&mut self, kind: u16, flags: u16, fill: impl FnOnce(&mut Encoder, &str)) {
        self.sequence += 1;
        self.last_start = self.out.len();
        self.out.begin(SUBSYSTEM << 8 | kind, REQUEST | flags, self.sequence);
        self.out.raw(&[self.family, 0, 0, 0]);
        fill(&mut self.out, self.table);
        self.out.end();
    }

    /// Puts a rule behind those that its chain has.
    pub(super) fn append_rule(&mut self, kind: u16, chain: &str, rule: &Rule) {
        self.message(kind, CREATE | APPEND, |out, table| encode::rule(out, table, chain, rule));
    }

    pub(super) fn table(&mut self, kind: u16, flags: u16) {
        self.message(kind, flags, |out, table| {
            out.str(1, table);
        });
    }

    /// Order matters: what is referred to exists before, and nothing refers any more to what goes.
    fn change(&mut self, previous: &Table, next: &Table) {
        for (name, chain) in added(&previous.chains, &next.chains) {
            self.message(NEW_CHAIN, CREATE, |out, table| {
                encode::chain(out, table, name, chain.base.as_ref())
            });
        }
        for (id, (name, set)) in added(&previous.sets, &next.sets).enumerate() {
            self.message(NEW_SET, CREATE, |out, table| encode::set(out, table, name, id as u32 + 1, set));
        }
        for (name, chain) in &previous.chains {
            if next.chains.get(name) != Some(chain) && !chain.rules.is_empty() {
                self.message(DELETE_RULE, 0, |out, table| {
                    out.str(1, table).str(2, name);
                });
            }
        }
        let none = Set::default();
        for (name, set) in &next.sets {
            self.change_elements(name, previous.sets.get(name).unwrap_or(&none), set);
        }
        for (name, chain) in &next.chains {
            if previous.chains.get(name) != Some(chain) {
                for rule in &chain.rules {
                    self.append_rule(NEW_RULE, name, rule);
                }
            }
        }
        for (name, _) in added(&next.sets, &previous.sets) {
            self.message(DELETE_SET, 0, |out, table| {
                out.str(1, table).str(2, name);
            });
        }
        for (name, _) in added(&next.chains, &previous.chains) {
            self.message(DELETE_CHAIN, 0, |out, table| {
                out.str(1, table).str(3, name);
            });
        }
    }

    fn change_elements(&mut self, name: &str, previous: &Set, next: &Set) {
        let gone: Vec<(&Key, Option<&Data>)> = previous
            .elements
            .iter()
            .filter(|(key, data)| next.elements.get(key) != Some(data))
            .map(|(key, _)| (key, None))
            .collect();
        let new: Vec<(&Key, Option<&Data>)> = next
            .elements
            .iter()
            .filter(|(key, data)| previous.elements.get(key) != Some(data))
            .map(|(key, data)| (key, Some(data)))
            .collect();
        for (kind, flags, elements) in [(DELETE_ELEMENTS, 0, gone), (NEW_ELEMENTS, CREATE, new)] {
            for part in elements.chunks(ELEMENTS_PER_MESSAGE) {
                self.message(kind, flags, |out, table| {
                    out.str(1, table).str(2, name).nest(3, |list| {
                        part.iter().for_each(|(key, data)| encode::element(list, next, key, *data));
                    });
                });
            }
        }
    }

    /// Sends everything. The last message asks for an answer, which comes after those of all that failed.
    pub(super) fn commit(mut self) -> Result<()> {
        let table = self.table;
        let doing = || format!("change nftables table {table}");
        let last = self.sequence;
        self.frame(BATCH_END);
        let mut bytes = self.out.into_bytes();
        if let Some([low, high]) = bytes.get_mut(self.last_start + 6..self.last_start + 8) {
            let flags = u16::from_ne_bytes([*low, *high]) | ACK;
            [*low, *high] = flags.to_ne_bytes();
        }
        let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
        let room = i32::try_from(bytes.len() * 2 + (1 << 16)).unwrap_or(i32::MAX);
        socket.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room).doing(doing)?;
        socket.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 1 << 20).doing(doing)?;
        socket.set_receive_timeout(ANSWER_WAIT_SECONDS).doing(doing)?;
        socket.send(&bytes).doing(doing)?;
        let mut failure: Option<io::Error> = None;
        loop {
            for answer in messages(socket.receive().doing(doing)?) {
                if let Verdict::Failed(error) = answer.verdict() {
                    tracing::debug!(table, message = answer.sequence, %error, "nftables message refused");
                    failure.get_or_insert(error);
                }
                // An error for the whole batch carries the first number.
                if answer.sequence == last || answer.sequence == 1 {
                    return failure.map_or(Ok(()), |error| Err(Error::new(doing(), error)));
                }
            }
        }
    }
}

/// What `next` has and `previous` has not.
fn added<'a, T>(
    previous: &'a BTreeMap<String, T>,
    next: &'a BTreeMap<String, T>,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    next.iter().filter(|(name, _)| !previous.contains_key(*name))
}
