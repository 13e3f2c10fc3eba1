//! Upstream's cases for schemas in definitions: `# NAME`, a schema behind what is asked of it, and what is wrong with it.
//! Source: `TestValidateCustomResourceDefinitionValidation`.

use serde_json::Value;

use super::*;

/// What is asked of a schema, by upstream's options in one word each.
fn strictness(words: &[&str]) -> Strictness {
    let asks = |word: &str| words.contains(&word);
    Strictness {
        has_status: asks("status"),
        may_be_loose: !asks("structural"),
        kept: Kept {
            types: !asks("types"),
            structure: !asks("structural"),
            defaults: !asks("defaults"),
            sets: !asks("sets"),
            keys: !asks("keys"),
        },
    }
}

#[test]
fn schemas_are_refused_where_upstream_refuses_them() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/build/definition/tests/definitions.txt");
    let text = std::fs::read_to_string(path).expect("a table");
    let mut lines = text.lines().filter(|line| !line.starts_with("//"));
    let (mut rows, mut failures) = (0, Vec::new());
    while let Some(name) = lines.next() {
        let [asked, expect] = [(); 2].map(|()| lines.next().expect("a line"));
        let (words, json) = asked.split_at(asked.find('{').expect("a schema"));
        let schema: Value = serde_json::from_str(json).expect("a schema");
        let source = Source {
            group: "example.com",
            version: "v1",
            kind: "Foo",
            list_kind: "FooList",
            plural: "foos",
            path: "schema",
            schema: &schema,
        };
        let checked = check(&source, strictness(&words.split(' ').collect::<Vec<_>>()));
        let told = |violation: &Violation| format!("{:?} {}", violation.problem, violation.path);
        let mut told: Vec<String> = checked.violations.iter().map(told).collect();
        told.sort();
        let told = if told.is_empty() { "right".to_owned() } else { told.join("; ") };
        rows += 1;
        if told != expect {
            failures.push(format!("{name}\n    {asked}\n    {expect}\n    {told}"));
        }
    }
    assert!(rows > 40, "{rows} rows");
    assert!(failures.is_empty(), "{} of {rows} rows:\n{}", failures.len(), failures.join("\n"));
}
