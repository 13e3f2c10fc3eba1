//! The steps that turn one table into another, as a transaction.

use std::collections::BTreeMap;

use super::{Base, Data, Key, Rule, Set, Table};

/// The changes that turn one table into another of the same name and family.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    pub(super) made_chains: BTreeMap<&'a str, Option<Base>>,
    pub(super) made_sets: BTreeMap<&'a str, &'a Set>,
    /// Chains whose rules go.
    pub(super) emptied_chains: Vec<&'a str>,
    pub(super) elements: BTreeMap<&'a str, Elements<'a>>,
    /// Rules of new and of emptied chains.
    pub(super) rules: BTreeMap<&'a str, &'a [Rule]>,
    pub(super) gone_sets: Vec<&'a str>,
    pub(super) gone_chains: Vec<&'a str>,
}

/// What changes in a set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Elements<'a> {
    pub(super) set: &'a Set,
    pub(super) gone: Vec<(&'a Key, &'a Data)>,
    pub(super) made: Vec<(&'a Key, &'a Data)>,
}

impl<'a> Changes<'a> {
    /// Compares two tables whole.
    pub fn between(previous: &'a Table, next: &'a Table) -> Self {
        let mut changes = Self::default();
        for (name, chain) in &next.chains {
            let old = previous.chains.get(name);
            changes.chain(name, old.map(|old| old.rules.as_slice()), chain.base, &chain.rules);
        }
        static NONE: BTreeMap<Key, Data> = BTreeMap::new();
        for (name, set) in &next.sets {
            let old = previous.sets.get(name);
            if old.is_none() {
                changes.made_sets.insert(name, set);
            }
            changes.set(name, set, old.map_or(&NONE, |old| &old.elements));
        }
        changes.gone_sets = gone(&previous.sets, &next.sets);
        changes.gone_chains = gone(&previous.chains, &next.chains);
        for name in &changes.gone_chains {
            if previous.chains.get(*name).is_some_and(|chain| !chain.rules.is_empty()) {
                changes.emptied_chains.push(name);
            }
        }
        changes.emptied_chains.sort_unstable();
        changes
    }

    /// `true` if nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// A chain that is there from now on, and the rules that it had.
    pub(super) fn chain(
        &mut self,
        name: &'a str,
        old: Option<&[Rule]>,
        base: Option<Base>,
        rules: &'a [Rule],
    ) {
        if old.is_none() {
            self.made_chains.insert(name, base);
        }
        if old == Some(rules) {
            return;
        }
        if old.is_some_and(|old| !old.is_empty()) {
            self.emptied_chains.push(name);
        }
        if !rules.is_empty() {
            self.rules.insert(name, rules);
        }
    }

    /// A set that is there from now on, and the elements that it had.
    pub(super) fn set(&mut self, name: &'a str, set: &'a Set, old: &'a BTreeMap<Key, Data>) {
        let gone = old.iter().filter(|(key, data)| set.elements.get(key) != Some(data)).collect();
        let made = set.elements.iter().filter(|(key, data)| old.get(key) != Some(data)).collect();
        self.add(name, Elements { set, gone, made });
    }

    pub(super) fn add(&mut self, name: &'a str, elements: Elements<'a>) {
        if !elements.gone.is_empty() || !elements.made.is_empty() {
            self.elements.insert(name, elements);
        }
    }
}

/// What only `previous` has.
fn gone<'a, T>(previous: &'a BTreeMap<String, T>, next: &BTreeMap<String, T>) -> Vec<&'a str> {
    previous.keys().filter(|name| !next.contains_key(*name)).map(String::as_str).collect()
}
