//! A table that knows what has changed in it since it was last committed: the cost of a commit is that of the changes,
//! however large the table is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::changes::{Changes, Elements};
use super::connection::Connection;
use super::{Chain, Data, Key, Owner, Rule, Set, Table, delete_table_of};
use crate::Result;

/// A table, and what it was like at the last commit where it is different now.
#[derive(Debug, Default)]
pub struct Draft {
    table: Table,
    /// Chains as they were; `None` if there was none.
    chains: BTreeMap<String, Option<Chain>>,
    /// Sets that have come or gone, as they were.
    sets: BTreeMap<String, Option<Set>>,
    /// Elements of the other sets, as they were.
    elements: BTreeMap<String, BTreeMap<Key, Option<Data>>>,
    is_committed: bool,
    connection: Connection,
    owner: Option<Owner>,
}

impl Draft {
    /// A table that the kernel does not have yet, or in another form.
    pub fn new(table: Table) -> Self {
        Self { table, ..Self::default() }
    }

    /// The table as it is to be.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Gives a chain these rules; it is made if it is new.
    pub fn put_chain(&mut self, name: &str, rules: Vec<Rule>) {
        let old = self.table.chains.get(name);
        if old.is_some_and(|old| old.rules == rules) {
            return;
        }
        let base = old.and_then(|old| old.base);
        let old = self.table.chains.insert(name.to_owned(), Chain { base, rules });
        self.chains.entry(name.to_owned()).or_insert(old);
    }

    /// Takes a chain away. Nothing may lead to it any more when this is committed.
    pub fn remove_chain(&mut self, name: &str) {
        if let Some(old) = self.table.chains.remove(name) {
            self.chains.entry(name.to_owned()).or_insert(Some(old));
        }
    }

    /// Adds a set or map, with its elements, unless there is one of this name.
    pub fn put_set(&mut self, name: &str, set: Set) {
        if let Entry::Vacant(place) = self.table.sets.entry(name.to_owned()) {
            place.insert(set);
            self.sets.entry(name.to_owned()).or_insert(None);
        }
    }

    /// Takes a set away. Nothing may look into it any more when this is committed.
    pub fn remove_set(&mut self, name: &str) {
        let Some(mut old) = self.table.sets.remove(name) else { return };
        if self.sets.contains_key(name) {
            return;
        }
        for (key, data) in self.elements.remove(name).unwrap_or_default() {
            match data {
                Some(data) => old.elements.insert(key, data),
                None => old.elements.remove(&key),
            };
        }
        self.sets.insert(name.to_owned(), Some(old));
    }

    /// Gives a key of a set that is there this data, or takes it out.
    pub fn put(&mut self, set: &str, key: &Key, data: Option<Data>) {
        let Some(elements) = self.table.sets.get_mut(set).map(|set| &mut set.elements) else { return };
        if elements.get(key) == data.as_ref() {
            return;
        }
        let old = match data {
            Some(data) => elements.insert(key.clone(), data),
            None => elements.remove(key),
        };
        if !self.sets.contains_key(set) {
            self.elements.entry(set.to_owned()).or_default().entry(key.clone()).or_insert(old);
        }
    }

    /// The changes since the last commit.
    pub fn changes(&self) -> Changes<'_> {
        let mut changes = Changes::default();
        for (name, old) in &self.chains {
            let old = old.as_ref().map(|old| old.rules.as_slice());
            match (self.table.chains.get(name), old) {
                (Some(chain), _) => changes.chain(name, old, chain.base, &chain.rules),
                (None, Some(old)) => {
                    changes.gone_chains.push(name);
                    if !old.is_empty() {
                        changes.emptied_chains.push(name);
                    }
                }
                (None, None) => {}
            }
        }
        for (name, old) in &self.sets {
            match (self.table.sets.get(name), old) {
                (Some(set), None) => {
                    changes.made_sets.insert(name, set);
                    changes
                        .add(name, Elements { set, gone: Vec::new(), made: set.elements.iter().collect() });
                }
                (Some(set), Some(old)) => changes.set(name, set, &old.elements),
                (None, Some(_)) => changes.gone_sets.push(name),
                (None, None) => {}
            }
        }
        for (name, old) in &self.elements {
            let Some(set) = self.table.sets.get(name) else { continue };
            let is_different = |(key, data): &(&Key, &Option<Data>)| set.elements.get(key) != data.as_ref();
            let different: Vec<_> = old.iter().filter(is_different).collect();
            let gone = different.iter().filter_map(|(key, data)| Some((*key, data.as_ref()?))).collect();
            let made = different.iter().filter_map(|(key, _)| set.elements.get_key_value(key)).collect();
            changes.add(name, Elements { set, gone, made });
        }
        changes
    }

    /// Has the kernel's table owned from the next commit on, if the kernel can do that: as long as this draft is there nobody
    /// else changes it, whoever flushes what.
    ///
    /// # Errors
    /// The kernel does not say whether it can.
    pub fn own(&mut self) -> Result<()> {
        self.owner = Owner::new(self.table.family, &self.table.name)?;
        Ok(())
    }

    /// Deletes the kernel's table; the next commit makes it whole. No error if there is none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn withdraw(&mut self) -> Result<()> {
        self.is_committed = false;
        match &mut self.owner {
            Some(owner) => owner.delete(&self.table),
            None => delete_table_of(self.table.family, &self.table.name),
        }
    }

    /// Takes the table for what the kernel has.
    fn committed(&mut self) {
        self.chains.clear();
        self.sets.clear();
        self.elements.clear();
        self.is_committed = true;
    }

    /// The kernel does not have the table any more: the next commit makes it whole.
    pub fn forget_commit(&mut self) {
        self.is_committed = false;
    }

    /// Makes the kernel's table equal to this one, in one transaction: by its changes if it was committed before, whole if
    /// not, or if the kernel's is not what it was.
    ///
    /// # Errors
    /// The kernel refuses. The next commit replaces the table whole.
    pub fn commit(&mut self) -> Result<()> {
        if self.is_committed {
            let (mut connection, mut owner) = (std::mem::take(&mut self.connection), self.owner.take());
            let changed = match &mut owner {
                Some(owner) => owner.change(&self.table, &self.changes()),
                None => connection.apply_changes(&self.table, &self.changes()),
            };
            (self.connection, self.owner) = (connection, owner);
            match changed {
                Ok(()) => {
                    self.committed();
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!(table = self.table.name, %error, "cannot change nftables table, replacing it");
                }
            }
        }
        self.is_committed = false;
        match &mut self.owner {
            Some(owner) => owner.replace(&self.table)?,
            None => self.connection.replace_all(std::slice::from_ref(&self.table))?,
        }
        self.committed();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
