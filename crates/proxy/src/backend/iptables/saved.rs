//! What `iptables-save` tells of the tables of one family.

use std::collections::{BTreeMap, BTreeSet};

use super::table::{Jump, Table};

/// Chains by table, and rules: chain, where the rule leads, and the line as it was saved, without `-A`.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    chains: BTreeMap<Table, BTreeSet<String>>,
    rules: BTreeMap<Table, Vec<String>>,
}

impl Saved {
    /// Reads it; what is of another table is left out.
    pub(crate) fn read(text: &str) -> Self {
        let (mut saved, mut table) = (Self::default(), None);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('*') {
                table = Table::ALL.into_iter().find(|table| table.name() == name.trim());
            }
            let Some(table) = table else { continue };
            if let Some(chain) = line.strip_prefix(':').and_then(|line| line.split(' ').next()) {
                saved.chains.entry(table).or_default().insert(chain.to_owned());
            } else if let Some(rule) = line.strip_prefix("-A ") {
                saved.rules.entry(table).or_default().push(rule.to_owned());
            }
        }
        saved
    }

    /// The chains of a table.
    pub(crate) fn chains(&self, table: Table) -> impl Iterator<Item = &String> {
        self.chains.get(&table).into_iter().flatten()
    }

    /// The rules of a table that lead to another chain or a target: from, to, and the line that names it.
    pub(crate) fn rules(&self, table: Table) -> impl Iterator<Item = (&str, &str, &str)> {
        let lines = self.rules.get(&table).into_iter().flatten();
        lines.filter_map(|line| Some((line.split(' ').next()?, target(line)?, line.as_str())))
    }

    /// Whether there is such a way, whatever a packet has to be for it.
    pub(crate) fn has_jump(&self, jump: &Jump) -> bool {
        self.rules(jump.table).any(|(from, to, _)| (from, to) == (jump.from, jump.to))
    }

    /// Whether a chain has a rule with this comment, which has no space in it, in a table.
    pub(crate) fn has_comment(&self, table: Table, chain: &str, comment: &str) -> bool {
        let lines = self.rules.get(&table).into_iter().flatten();
        let mut of_chain = lines.filter_map(|line| line.strip_prefix(chain)?.strip_prefix(' '));
        of_chain.any(|rule| rule.split(' ').any(|word| word.trim_matches('"') == comment))
    }
}

/// Where a rule leads. Comments come before it.
fn target(rule: &str) -> Option<&str> {
    let (_, rest) = rule.rsplit_once(" -j ").or_else(|| rule.rsplit_once(" -g "))?;
    rest.split(' ').next()
}
