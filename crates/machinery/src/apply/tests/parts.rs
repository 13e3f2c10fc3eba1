//! The cases of structured-merge-diff's typed values: what merging, comparing and removing make of parts of objects, and
//! which paths they have. Source: its `typed/*_test.go`.
//!
//! A row is a word, what it is done with (` ; ` between two), and ` ==> ` what comes out.

use super::merges::{arena, table};
use super::*;

/// The sets of a comparison, a sign before each path.
fn signed(comparison: &Comparison<'_>) -> BTreeSet<String> {
    let sets = [("-", &comparison.removed), ("~", &comparison.modified), ("+", &comparison.added)];
    let lines =
        sets.iter().flat_map(|(sign, set)| texts(set).into_iter().map(move |path| format!("{sign}{path}")));
    lines.collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What comes out of a row about sets; they are written as `FieldsV1`.
fn of_sets(word: &str, left: &str, right: &str) -> String {
    let (left, right) = (json(left), json(right));
    let decoded = |fields| fields_v1::decode(fields).expect("a set");
    let (mut set, other) = (decoded(&left), decoded(&right));
    match word {
        "union" => set.unite(other),
        "common" => set = set.intersection(&other),
        "minus" => set.subtract(&other),
        _ => set.subtract_trees(&other),
    }
    fields_v1::encode(&set).to_string()
}

/// What a path element is written as once it has been read.
fn element(key: &str) -> String {
    match element::Element::parse(key) {
        Ok(Some(element)) => element.to_key(),
        Ok(None) => "unknown".to_owned(),
        Err(_) => "refused".to_owned(),
    }
}

fn lines(set: &BTreeSet<String>) -> String {
    match set.is_empty() {
        true => "nothing".to_owned(),
        false => set.iter().cloned().collect::<Vec<_>>().join(" "),
    }
}

/// What comes out of a row.
fn outcome(word: &str, typed: Typed<'_>, inputs: &[&str]) -> String {
    let values: Vec<Value> = inputs.iter().map(|text| json(text)).collect();
    match (word, &values[..]) {
        ("merge", [left, right]) => merge::merge(typed, left, right).to_string(),
        ("compare", [left, right]) => {
            let there = signed(&compare(typed, left, right, &|_, _| false));
            lines(&there)
        }
        ("paths", [object]) => lines(&texts(&field_set::field_set(typed, object))),
        ("remove", [object, gone]) => {
            let gone = fields_v1::decode(gone).expect("a set");
            remove::remove(typed, object, &gone).to_string()
        }
        ("today", [owned]) => {
            let mut set = fields_v1::decode(owned).expect("a set");
            reconcile::sets(typed, &mut set);
            fields_v1::encode(&set).to_string()
        }
        ("problems", [object]) => match field_set::problems(typed, object).first() {
            Some(first) => first.clone(),
            None => "none".to_owned(),
        },
        _ => panic!("{word} {inputs:?}"),
    }
}

#[test]
fn parts_are_merged_compared_and_removed_as_upstream_does() {
    let arena = |part: &Value| arena(&json!({"type": "object", "properties": {"part": part}}));
    let mut schemas = arena(&json!({"type": "object"}));
    let (mut rows, mut failures) = (0, Vec::new());
    let tables = [table("parts.txt"), table("sets.txt")];
    for line in tables
        .iter()
        .flat_map(|table| table.lines())
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
    {
        let (word, rest) = line.split_once(' ').expect("a word and more");
        if word == "schema" {
            schemas = arena(&json(rest));
            continue;
        }
        rows += 1;
        let kind = schemas.kind("example.com", "v1", "Thing").expect("a kind");
        let typed = Typed::named(kind, "part").expect("a field");
        let (inputs, expect) = rest.split_once(" ==> ").expect("an outcome");
        let found = match (word, &inputs.split(" ; ").collect::<Vec<_>>()[..]) {
            ("element", _) => element(inputs),
            ("union" | "common" | "minus" | "minus-trees", [left, right]) => of_sets(word, left, right),
            (word, inputs) => outcome(word, typed, inputs),
        };
        let is_text = matches!(word, "compare" | "paths" | "problems" | "element");
        let is_right = if is_text { found == expect } else { json(&found) == json(expect) };
        if !is_right {
            failures.push(format!("{line}\n    {found}"));
        }
    }
    assert!(failures.is_empty(), "{} of {rows} rows:\n{}", failures.len(), failures.join("\n"));
}
