//! The reasons why a Pod goes where it goes, or nowhere: which plugin refused which Nodes, and what each gave to the
//! best of the others.
//!
//! One is made for each decision, and told with its span: names and scores of few Nodes, and of all the number.
//! Source: `Diagnosis` of kube-scheduler's framework.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::plugins::Refusal;
use crate::queue::Rejectors;
use crate::timings::Timings;

/// Nodes that are named for each reason.
const NAMES_MAX: usize = 3;
/// Nodes whose scores are told.
const SCORED_MAX: usize = 3;
/// How much is told; spans keep no more.
const TEXT_BYTES_MAX: usize = 500;

/// The findings of one decision.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// By plugin and reason.
    refusals: BTreeMap<(&'static str, String), Refused>,
    /// How many Nodes can take the Pod, of those that were looked at.
    feasible: usize,
    scored: Vec<Scored>,
    /// How long it took.
    pub(crate) timings: Timings,
}

#[derive(Clone, Debug, Default)]
struct Refused {
    count: usize,
    names: Vec<String>,
}

/// The scores that the plugins gave to a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scored {
    /// The Node.
    pub node: String,
    /// Plugin and score, weighed.
    pub scores: Vec<(&'static str, i64)>,
}

impl Diagnosis {
    /// One that learns how long the decision takes, too.
    pub(crate) fn timed(timings: Timings) -> Self {
        Self { timings, ..Self::default() }
    }

    /// A plugin refuses a Node.
    pub fn refuse(&mut self, node: &str, plugin: &'static str, refusal: Refusal) {
        for reason in refusal.reasons {
            let refused = self.refusals.entry((plugin, reason)).or_default();
            refused.count += 1;
            if refused.names.len() < NAMES_MAX {
                refused.names.push(node.to_owned());
            }
        }
    }

    /// A plugin refuses all Nodes, whatever they are like.
    pub fn refuse_all(&mut self, plugin: &'static str, why: &str, nodes: usize) {
        self.refusals.entry((plugin, why.to_owned())).or_default().count = nodes;
    }

    /// So many Nodes can take the Pod; `best` has the first of them, the chosen one first.
    pub fn choose(&mut self, feasible: usize, best: impl Iterator<Item = Scored>) {
        self.feasible = feasible;
        self.scored = best.take(SCORED_MAX).collect();
    }

    /// The plugins that refused the Pod somewhere.
    pub fn rejectors(&self) -> Rejectors {
        self.refusals.keys().map(|(plugin, _)| *plugin).collect()
    }

    /// The number of Nodes by reason, as users read it: `1 Insufficient cpu, 2 node(s) were unschedulable`.
    pub fn reasons(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for ((_, reason), refused) in &self.refusals {
            *counts.entry(reason).or_default() += refused.count;
        }
        let mut all: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        all.sort();
        all.join(", ")
    }

    /// All of it in one line, for `knarr why` and `knarr trace`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for scored in &self.scored {
            let sum: i64 = scored.scores.iter().map(|(_, score)| score).sum();
            let parts: Vec<_> =
                scored.scores.iter().map(|(plugin, score)| format!("{plugin} {score}")).collect();
            match parts.is_empty() {
                // There was nothing to choose from.
                true => push(&mut text, format_args!("{}", scored.node)),
                false => push(&mut text, format_args!("{}: {sum} = {}", scored.node, parts.join(" + "))),
            }
        }
        if self.feasible > self.scored.len() {
            push(&mut text, format_args!("{} more can take it", self.feasible - self.scored.len()));
        }
        for ((plugin, reason), refused) in &self.refusals {
            let mut names = refused.names.join(", ");
            if refused.names.is_empty() {
                names = "every Node".to_owned();
            } else if refused.count > refused.names.len() {
                names += &format!(" and {} more", refused.count - refused.names.len());
            }
            push(&mut text, format_args!("{plugin} refuses {names}: {reason}"));
        }
        text
    }
}

/// Adds a part, if there is room for it.
fn push(text: &mut String, part: std::fmt::Arguments<'_>) {
    let before = text.len();
    let separator = if text.is_empty() { "" } else { "; " };
    let written = write!(text, "{separator}{part}");
    if written.is_err() || text.len() > TEXT_BYTES_MAX {
        text.truncate(before);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(diagnosis: &Diagnosis, expected: Expect) {
        expected.assert_eq(&diagnosis.text());
    }

    #[test]
    fn refusals_are_told_by_plugin_and_reason() {
        let mut diagnosis = Diagnosis::default();
        for node in ["a", "b", "c", "d", "e"] {
            diagnosis.refuse(node, "NodeResourcesFit", Refusal::passing("Insufficient cpu"));
        }
        diagnosis.refuse("f", "TaintToleration", Refusal::lasting("node(s) had untolerated taint(s)"));
        check(
            &diagnosis,
            expect![
                "NodeResourcesFit refuses a, b, c and 2 more: Insufficient cpu; TaintToleration refuses f: node(s) had untolerated taint(s)"
            ],
        );
        assert_eq!(diagnosis.rejectors(), ["NodeResourcesFit", "TaintToleration"].into());
        assert_eq!(diagnosis.reasons(), "1 node(s) had untolerated taint(s), 5 Insufficient cpu");
        let mut diagnosis = Diagnosis::default();
        diagnosis.refuse_all("VolumeBinding", "persistentvolumeclaim \"a\" not found", 3);
        check(
            &diagnosis,
            expect![[r#"VolumeBinding refuses every Node: persistentvolumeclaim "a" not found"#]],
        );
    }

    #[test]
    fn scores_are_told_of_the_best() {
        let scored = |node: &str, cpu| Scored {
            node: node.to_owned(),
            scores: vec![("TaintToleration", 300), ("NodeResourcesFit", cpu)],
        };
        let mut diagnosis = Diagnosis::default();
        diagnosis
            .choose(9, ["a", "b", "c", "d"].into_iter().zip(0..).map(|(node, less)| scored(node, 50 - less)));
        check(
            &diagnosis,
            expect![
                "a: 350 = TaintToleration 300 + NodeResourcesFit 50; b: 349 = TaintToleration 300 + NodeResourcesFit 49; c: 348 = TaintToleration 300 + NodeResourcesFit 48; 6 more can take it"
            ],
        );
        let mut diagnosis = Diagnosis::default();
        diagnosis.choose(1, std::iter::once(Scored { node: "a".to_owned(), scores: Vec::new() }));
        check(&diagnosis, expect!["a"]);
    }

    #[test]
    fn a_hostile_number_of_reasons_is_cut_at_a_whole_part() {
        let mut diagnosis = Diagnosis::default();
        for number in 0..1000 {
            diagnosis.refuse(
                "a",
                "NodeResourcesFit",
                Refusal::passing(format!("Insufficient ä.example/{number}")),
            );
        }
        assert!(diagnosis.text().len() <= TEXT_BYTES_MAX);
        assert!(diagnosis.text().ends_with(char::is_numeric));
    }
}
