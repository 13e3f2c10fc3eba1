//! Explanations as whole answers: what the API says of an object and its surroundings, and what is printed.
//!
//! `## NAME` begins a case of `cases.txt`; the YAML below is its snapshot, and below `--` stands the answer. `UPDATE_EXPECT=1`
//! writes the answers anew, to be read in review.

use std::fmt::Write;

use expect_test::expect_file;

use super::*;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    subject: Value,
    /// Group and plural, if it matters.
    #[serde(default)]
    resource: (String, String),
    #[serde(default)]
    others: Vec<Value>,
    #[serde(default)]
    placed: Vec<Value>,
    #[serde(default)]
    events: Vec<Value>,
    /// Columns of the terminal.
    #[serde(default)]
    width: Option<usize>,
}

#[test]
fn every_case_has_its_answer() {
    let table = expect_file!["cases.txt"];
    let text = table.data();
    let (head, cases) = text.split_once("\n## ").expect("a case");
    let mut rendered = head.to_owned();
    for case in cases.split("\n## ") {
        let (name, body) = case.split_once('\n').expect("a body");
        let yaml = body.split("\n--\n").next().unwrap_or_default();
        let case: Case = serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{name}: {error}"));
        let snapshot = Snapshot {
            subject: case.subject,
            resource: case.resource,
            others: case.others,
            placed: case.placed,
            events: case.events,
            now: "2026-01-01T12:00:30Z".parse().expect("a time"),
            ..Snapshot::default()
        };
        let answer = explain(&snapshot).render(case.width.unwrap_or(usize::MAX));
        write!(rendered, "\n## {name}\n{}\n--\n{answer}", yaml.trim_end()).expect("a text");
    }
    table.assert_eq(&rendered);
}
