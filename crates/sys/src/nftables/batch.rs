//! One transaction: the messages that turn one table into another, sent as a batch.

use std::io;
use std::time::Duration;

use nix::libc;

use super::changes::{Changes, Elements};
use super::{Data, Field, Key, Rule, Set, Table, TableFamily, encode};
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
const TABLE_FLAGS: u16 = 2;
pub(super) const FAMILY_NETDEV: u8 = 5;
const APPEND: u16 = libc::NLM_F_APPEND as u16;
/// An attribute's length is 16 bits; an element takes less than 400 bytes.
const ELEMENTS_PER_MESSAGE: usize = 150;
const ANSWER_WAIT_SECONDS: libc::time_t = 30;
/// How long a kernel that is busy is left alone before it is asked again, and again.
const PAUSES_MILLIS: [u64; 4] = [5, 20, 80, 320];

/// Makes the kernel's table equal to `next`, in one transaction.
///
/// `previous` is what this process applied last, `None` if it does not know: then the table is replaced whole. If the
/// kernel's table is not what `previous` says (someone changed it), the table is replaced whole, too.
pub fn apply(previous: Option<&Table>, next: &Table) -> Result<()> {
    if previous == Some(next) {
        return Ok(());
    }
    if let Some(previous) = previous.filter(|previous| can_change(previous, next)) {
        match apply_changes(next, &Changes::between(previous, next)) {
            Err(error) => {
                tracing::warn!(table = next.name, %error, "cannot change nftables table, replacing it")
            }
            done => return done,
        }
    }
    replace(next)
}

/// Makes the kernel's table this one, whatever it was, in one transaction.
pub fn replace(next: &Table) -> Result<()> {
    replace_all(std::slice::from_ref(next))
}

/// Makes the kernel's tables of these names and families these, whatever they were, in one transaction.
pub fn replace_all(next: &[Table]) -> Result<()> {
    replacing(next, 0).map_or(Ok(()), Batch::commit)
}

/// The transaction that replaces tables, the new ones with these flags; `None` if there is nothing to do.
pub(super) fn replacing(next: &[Table], flags: u32) -> Option<Batch<'_>> {
    let first = next.first()?;
    let mut batch = Batch::of(first.family as u8, &first.name);
    for table in next {
        batch.go_on(table.family as u8, &table.name);
        batch.table(NEW_TABLE, CREATE);
        batch.table(DELETE_TABLE, 0);
        batch.message(NEW_TABLE, CREATE, |out, name| {
            out.str(1, name);
            if flags != 0 {
                out.be32(TABLE_FLAGS, flags);
            }
        });
        let empty = Table { family: table.family, ..Table::new(table.name.clone()) };
        batch.change(&Changes::between(&empty, table));
    }
    Some(batch)
}

/// Sends changes that lead to `next`, in one transaction. Fails if the kernel's table is not what they start from.
pub fn apply_changes(next: &Table, changes: &Changes<'_>) -> Result<()> {
    with_changes(next, changes).map_or(Ok(()), Batch::commit)
}

/// The transaction for [`apply_changes`]; `None` if there is nothing to do.
pub(super) fn with_changes<'a>(next: &'a Table, changes: &Changes<'_>) -> Option<Batch<'a>> {
    if changes.is_empty() {
        return None;
    }
    let mut batch = Batch::of(next.family as u8, &next.name);
    batch.change(changes);
    Some(batch)
}

/// Makes parts of the kernel's tables, which are as `previous` says, as `next` says, in one transaction; both have the same
/// tables in the same order. What neither names is left alone; sets that only have elements of others are in both, without
/// those.
///
/// # Errors
/// The kernel's tables are not what `previous` says, or something has another definition: then nothing is different.
pub fn change(previous: &[Table], next: &[Table]) -> Result<()> {
    changing(previous, next)?.map_or(Ok(()), Batch::commit)
}

/// The transaction for [`change`]; `None` if there is nothing to do.
pub(super) fn changing<'a>(previous: &[Table], next: &'a [Table]) -> Result<Option<Batch<'a>>> {
    if previous == next {
        return Ok(None);
    }
    let pairs = || std::iter::zip(previous, next);
    let (Some(first), true) =
        (next.first(), previous.len() == next.len() && pairs().all(|(old, new)| can_change(old, new)))
    else {
        let name = next.first().map_or("", |table| &table.name);
        let error = io::Error::new(io::ErrorKind::InvalidInput, "a chain or set has another definition");
        return Err(Error::new(format!("change nftables table {name}"), error));
    };
    let mut batch = Batch::of(first.family as u8, &first.name);
    let changes = pairs().map(|(old, new)| (new, Changes::between(old, new)));
    let changes: Vec<_> = changes.filter(|(_, changes)| !changes.is_empty()).collect();
    for (table, changes) in &changes {
        batch.go_on(table.family as u8, &table.name);
        batch.change(changes);
    }
    Ok((!changes.is_empty()).then_some(batch))
}

/// A test for tables: makes one of this name and deletes it, in one transaction.
pub fn try_table(name: &str) -> Result<()> {
    make_and_delete(TableFamily::Ipv4, name)
}

fn make_and_delete(family: TableFamily, name: &str) -> Result<()> {
    let mut batch = Batch::of(family as u8, name);
    batch.table(NEW_TABLE, CREATE);
    batch.table(DELETE_TABLE, 0);
    batch.commit()
}

/// Deletes an IPv4 table. No error if there is none, or can be none.
pub fn delete_table(name: &str) -> Result<()> {
    delete_table_of(TableFamily::Ipv4, name)
}

/// Deletes a table. No error if there is none, or can be none.
pub fn delete_table_of(family: TableFamily, name: &str) -> Result<()> {
    // Made if it is not there: another may delete it at the same time.
    let is_there = table_names_of(family)?.iter().any(|known| known == name);
    if is_there { make_and_delete(family, name) } else { Ok(()) }
}

/// The names of all IPv4 tables in the calling thread's network namespace. None if the kernel has no nftables.
pub fn table_names() -> Result<Vec<String>> {
    table_names_of(TableFamily::Ipv4)
}

/// The names of all tables of a family in the calling thread's network namespace. None if the kernel has no nftables.
pub fn table_names_of(family: TableFamily) -> Result<Vec<String>> {
    tables_of(family as u8)
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

/// `true` if a set or map in the calling thread's network namespace has this key, of these fields; not if there is no
/// such set.
pub fn has_element(family: TableFamily, table: &str, set: &str, fields: &[Field], key: &Key) -> Result<bool> {
    let shape = Set { key: fields.to_vec(), ..Set::default() };
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    let mut request = Encoder::message(SUBSYSTEM << 8 | GET_ELEMENTS, 0);
    request.raw(&[family as u8, 0, 0, 0]).str(1, table).str(2, set).nest(3, |list| {
        encode::element(list, &shape, key, &Data::None);
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
        previous.sets.get(name).is_none_or(|old| {
            (&old.key, &old.value, old.timeout, old.members)
                == (&set.key, &set.value, set.timeout, set.members)
        })
    });
    (&previous.name, previous.family) == (&next.name, next.family) && same_chains && same_sets
}

pub(super) struct Batch<'a> {
    family: u8,
    table: &'a str,
    out: Encoder,
    sequence: u32,
    last_start: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn of(family: u8, table: &'a str) -> Self {
        let mut batch = Self { family, table, out: Encoder::default(), sequence: 0, last_start: 0 };
        batch.frame(BATCH_BEGIN);
        batch
    }

    /// What follows is about this table.
    fn go_on(&mut self, family: u8, table: &'a str) {
        (self.family, self.table) = (family, table);
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
        let family = self.family;
        self.message(kind, CREATE | APPEND, |out, table| encode::rule(out, family, table, chain, rule));
    }

    pub(super) fn table(&mut self, kind: u16, flags: u16) {
        self.message(kind, flags, |out, table| {
            out.str(1, table);
        });
    }

    /// Order matters: what is referred to exists before, and nothing refers any more to what goes.
    pub(super) fn change(&mut self, changes: &Changes<'_>) {
        for (name, base) in &changes.made_chains {
            self.message(NEW_CHAIN, CREATE, |out, table| encode::chain(out, table, name, base.as_ref()));
        }
        for (id, (name, set)) in changes.made_sets.iter().enumerate() {
            self.message(NEW_SET, CREATE, |out, table| encode::set(out, table, name, id as u32 + 1, set));
        }
        for name in &changes.emptied_chains {
            self.message(DELETE_RULE, 0, |out, table| {
                out.str(1, table).str(2, name);
            });
        }
        // Before elements: the kernel looks at all that a map has for each rule that comes to use it.
        for (name, rules) in &changes.rules {
            rules.iter().for_each(|rule| self.append_rule(NEW_RULE, name, rule));
        }
        changes.elements.iter().for_each(|(name, elements)| self.change_elements(name, elements));
        for name in &changes.gone_sets {
            self.message(DELETE_SET, 0, |out, table| {
                out.str(1, table).str(2, name);
            });
        }
        for name in &changes.gone_chains {
            self.message(DELETE_CHAIN, 0, |out, table| {
                out.str(1, table).str(3, name);
            });
        }
    }

    fn change_elements(&mut self, name: &str, elements: &Elements<'_>) {
        for (kind, flags, part) in
            [(DELETE_ELEMENTS, 0, &elements.gone), (NEW_ELEMENTS, CREATE, &elements.made)]
        {
            for part in part.chunks(ELEMENTS_PER_MESSAGE) {
                self.message(kind, flags, |out, table| {
                    out.str(1, table).str(2, name).nest(3, |list| {
                        part.iter().for_each(|(key, data)| encode::element(list, elements.set, key, data));
                    });
                });
            }
        }
    }

    /// Sends everything, over a socket of its own.
    pub(super) fn commit(self) -> Result<()> {
        self.commit_over(&mut Socket::open_own(libc::NETLINK_NETFILTER)?)
    }

    /// Sends everything over a socket that has no other answers to get. The last message asks for an answer, which comes
    /// after those of all that failed. What a busy kernel refuses it is asked again.
    pub(super) fn commit_over(mut self, socket: &mut Socket) -> Result<()> {
        let table = self.table;
        let doing = || format!("change nftables table {table}");
        let last = self.sequence;
        self.frame(BATCH_END);
        let mut bytes = self.out.into_bytes();
        if let Some([low, high]) = bytes.get_mut(self.last_start + 6..self.last_start + 8) {
            let flags = u16::from_ne_bytes([*low, *high]) | ACK;
            [*low, *high] = flags.to_ne_bytes();
        }
        let room = i32::try_from(bytes.len() * 2 + (1 << 16)).unwrap_or(i32::MAX);
        socket.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room).doing(doing)?;
        socket.set_option(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 1 << 20).doing(doing)?;
        socket.set_receive_timeout(ANSWER_WAIT_SECONDS).doing(doing)?;
        let mut pauses = PAUSES_MILLIS.into_iter();
        loop {
            match (exchange(socket, &bytes, table, last), pauses.next()) {
                (Err(error), Some(pause)) if is_busy(&error) => {
                    tracing::debug!(table, %error, pause, "nftables is busy");
                    std::thread::sleep(Duration::from_millis(pause));
                }
                (done, _) => return done.doing(doing),
            }
        }
    }
}

/// Sends a batch and reads what becomes of it: the last message's number says that this is all.
fn exchange(socket: &mut Socket, bytes: &[u8], table: &str, last: u32) -> io::Result<()> {
    // Answers to a batch before that nobody has waited for to the end.
    while socket.receive_now().is_ok() {}
    socket.send(bytes)?;
    let mut failure: Option<io::Error> = None;
    loop {
        for answer in messages(socket.receive()?) {
            if let Verdict::Failed(error) = answer.verdict() {
                tracing::debug!(table, message = answer.sequence, %error, "nftables message refused");
                failure.get_or_insert(error);
            }
            // An error for the whole batch carries the first number.
            if answer.sequence == last || answer.sequence == 1 {
                return failure.map_or(Ok(()), Err);
            }
        }
    }
}

/// Whether the kernel may do a little later what it refuses now: nothing of the batch is done. What it has answered is
/// never lost, so that no batch is made twice.
fn is_busy(error: &io::Error) -> bool {
    let busy = [libc::EBUSY, libc::EAGAIN, libc::EINTR, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|number| busy.contains(&number))
}

#[cfg(test)]
mod tests;
