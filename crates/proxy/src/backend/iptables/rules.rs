//! Rules as values, and the input of `iptables-restore` that leads from what there is to what shall be.
//!
//! What a Service port comes to is of two kinds: chains of its own, and rules in chains that all share, whose order among
//! each other says nothing. So a change of one touches nobody else's: its chains are written anew, its shared rules deleted
//! and put in front of the frame's, which come last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::names::PREFIXES;
use super::saved::Saved;
use super::table::{Jump, Table};

/// A rule in a chain that all Service ports share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shared {
    pub(crate) table: Table,
    pub(crate) chain: &'static str,
    pub(crate) rule: String,
}

/// What some Service ports come to in the tables of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Chains of the table `nat` that are one Service port's own: rules in order.
    pub(crate) own: BTreeMap<String, Vec<String>>,
    pub(crate) shared: BTreeSet<Shared>,
}

impl Rules {
    pub(super) fn share(&mut self, table: Table, chain: &'static str, rule: String) {
        self.shared.insert(Shared { table, chain, rule });
    }

    fn of(&self, table: Table) -> impl Iterator<Item = &Shared> {
        self.shared.iter().filter(move |rule| rule.table == table)
    }
}

/// What is there without any Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    pub(crate) jumps: Vec<Jump>,
    /// Chains with their rules in order, which come after those that Services share.
    pub(crate) chains: Vec<(Table, &'static str, Vec<String>)>,
}

/// Whether a chain of the table `nat` is one Service port's.
fn is_own(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// What makes the difference; nothing if there is none.
pub(crate) fn difference(before: &Rules, after: &Rules) -> String {
    let mut text = String::new();
    for table in [Table::Filter, Table::Nat] {
        let mut body = Vec::new();
        let own = |rules: &Rules| if table == Table::Nat { rules.own.clone() } else { BTreeMap::new() };
        let (old, new) = (own(before), own(after));
        let gone: Vec<&String> = old.keys().filter(|name| !new.contains_key(*name)).collect();
        let fresh: Vec<_> = new.iter().filter(|(name, rules)| old.get(*name) != Some(rules)).collect();
        body.extend(gone.iter().copied().chain(fresh.iter().map(|(name, _)| *name)).map(declared));
        let shared = |rule: &Shared| format!("{} {}", rule.chain, rule.rule);
        body.extend(
            before
                .of(table)
                .filter(|rule| !after.shared.contains(rule))
                .map(|rule| format!("-D {}", shared(rule))),
        );
        body.extend(
            after
                .of(table)
                .filter(|rule| !before.shared.contains(rule))
                .map(|rule| format!("-I {}", shared(rule))),
        );
        for (name, rules) in fresh {
            body.extend(rules.iter().map(|rule| format!("-A {name} {rule}")));
        }
        body.extend(gone.iter().map(|name| format!("-X {name}")));
        add_table(&mut text, table, &body);
    }
    text
}

/// What makes this be there, and nothing else of ours, given what is there now. A chain of ours that is wanted no longer and
/// that somebody else's rule leads to stays, without rules.
pub(crate) fn whole(frame: &Frame, rules: &Rules, saved: &Saved, all: &Known) -> String {
    let mut text = String::new();
    for table in Table::ALL {
        let mut body = Vec::new();
        let chains = || frame.chains.iter().filter(|(of, ..)| *of == table);
        let own = if table == Table::Nat { rules.own.clone() } else { BTreeMap::new() };
        let is_wanted =
            |name: &String| own.contains_key(name) || chains().any(|(_, chain, _)| *chain == name.as_str());
        let stale: Vec<&String> =
            saved.chains(table).filter(|name| all.has(table, name) && !is_wanted(name)).collect();
        body.extend(chains().map(|(_, name, _)| declared(name)));
        body.extend(stale.iter().copied().chain(own.keys()).map(declared));
        let is_jump = |jumps: &[Jump], from: &str, to: &str| {
            jumps.iter().any(|jump| (jump.table, jump.from, jump.to) == (table, from, to))
        };
        let mut held = BTreeSet::new();
        for (from, to, line) in saved.rules(table).filter(|(from, ..)| !all.has(table, from)) {
            if is_jump(&all.jumps, from, to) && !is_jump(&frame.jumps, from, to) {
                body.push(format!("-D {line}"));
            } else {
                held.insert(to);
            }
        }
        for jump in frame.jumps.iter().filter(|jump| jump.table == table && !saved.has_jump(jump)) {
            body.push(jump.inserted());
        }
        for (_, name, last) in chains() {
            let shared = rules.of(table).filter(|rule| rule.chain == *name).map(|rule| &rule.rule);
            body.extend(shared.chain(last).map(|rule| format!("-A {name} {rule}")));
        }
        for (name, rules) in &own {
            body.extend(rules.iter().map(|rule| format!("-A {name} {rule}")));
        }
        body.extend(
            stale.iter().filter(|name| !held.contains(name.as_str())).map(|name| format!("-X {name}")),
        );
        add_table(&mut text, table, &body);
    }
    text
}

/// All that any mode may have in iptables.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) jumps: Vec<Jump>,
    pub(crate) chains: BTreeSet<(Table, &'static str)>,
}

impl Known {
    fn has(&self, table: Table, name: &str) -> bool {
        self.chains.iter().any(|known| *known == (table, name)) || (table == Table::Nat && is_own(name))
    }
}

impl Jump {
    fn inserted(&self) -> String {
        let Self { from, to, only, comment, .. } = self;
        let only = if only.is_empty() { String::new() } else { format!("{only} ") };
        format!("-I {from} {only}-m comment --comment \"{comment}\" -j {to}")
    }
}

/// A chain that is there and has no rules.
fn declared(name: impl std::fmt::Display) -> String {
    format!(":{name} - [0:0]")
}

fn add_table(text: &mut String, table: Table, body: &[String]) {
    if body.is_empty() {
        return;
    }
    // Writing to a String cannot fail.
    _ = writeln!(text, "*{}", table.name());
    for line in body {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("COMMIT\n");
}
