//! Upstream's cases for objects of custom kinds, in tables: what is pruned and filled in, what comes twice, which values
//! are right, and what is said of those that are not.
//!
//! A table has cases: `# NAME`, `schema JSON`, and rows. A schema is that of a field, `schema root` that of the object.

use serde_json::{Value, json};

use super::decode::{FieldValidation, from_json};
use super::{declared, validate};
use crate::SchemaRef;
use crate::build::{Source, build};
use crate::rows::Schemas;
use crate::rules::violation::{Problem, Violation};

/// The schema of a case, and where it stands.
struct Case<'t> {
    name: &'t str,
    schemas: Schemas,
    is_root: bool,
}

impl<'t> Case<'t> {
    /// The case; one whose schema cannot be used is a failure, and its rows are passed over.
    fn new(name: &'t str, text: &str, failures: &mut Vec<String>) -> Option<Self> {
        let root = text.strip_prefix("root ");
        let schema = json(root.unwrap_or(text));
        let schema =
            if root.is_some() { schema } else { json!({"type": "object", "properties": {"part": schema}}) };
        let source = Source {
            group: "example.com",
            version: "v1",
            kind: "Foo",
            list_kind: "FooList",
            plural: "foos",
            path: "",
            schema: &schema,
        };
        match build(&source) {
            Ok(schemas) => Some(Self { name, schemas, is_root: root.is_some() }),
            Err(why) => {
                failures.push(format!("{name}: {why:?}"));
                None
            }
        }
    }

    fn kind(&self) -> SchemaRef<'_> {
        self.schemas.kind("example.com", "v1", "Foo").expect("a kind")
    }

    fn whole(&self, text: &str) -> Value {
        if self.is_root { json(text) } else { json!({ "part": json(text) }) }
    }

    fn part<'v>(&self, object: &'v Value) -> &'v Value {
        if self.is_root { object } else { &object["part"] }
    }

    /// The path without the field of the case.
    fn bare<'p>(&self, path: &'p str) -> &'p str {
        if self.is_root {
            return path;
        }
        let path = path.strip_prefix("part").unwrap_or(path);
        path.strip_prefix('.').unwrap_or(path)
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn table(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/walk/tests").join(name);
    std::fs::read_to_string(path).expect("a table")
}

fn lines(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.map(|line| line.split_once(' ').unwrap_or((line, "")))
}

/// As upstream prints it.
fn printed(violation: &Violation) -> String {
    let Violation { path, problem, value, detail, max, supported } = violation;
    let path = if path.is_empty() { "<nil>" } else { path.as_str() };
    let (unit, bytes) = if *max == 1 { ("item", "byte") } else { ("items", "bytes") };
    match problem {
        Problem::Required => format!("{path}: Required value"),
        Problem::NotSupported => {
            let supported = supported.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
            format!("{path}: Unsupported value: {value}: supported values: {supported}")
        }
        Problem::TooLong => format!("{path}: Too long: may not be more than {max} {bytes}"),
        Problem::TooMany => format!("{path}: Too many: {value}: must have at most {max} {unit}"),
        _ => format!("{path}: Invalid value: {value}: {detail}"),
    }
}

fn sorted(mut lines: Vec<String>) -> String {
    lines.sort();
    lines.join("; ")
}

#[test]
fn fields_are_pruned_and_filled_in_as_upstream_does() {
    let (mut name, mut case, mut outcome) = ("", None, Ok(Value::Null));
    let (mut warnings, mut rows, mut failures) = (Vec::new(), 0, Vec::new());
    let text = table("fields.txt");
    for (word, rest) in lines(&text) {
        let case: &Case<'_> = match word {
            "#" => {
                name = rest;
                continue;
            }
            "schema" => {
                case = Case::new(name, rest, &mut failures);
                continue;
            }
            _ => match &case {
                Some(case) => case,
                None => continue,
            },
        };
        if word == "sent" {
            let sent = case.whole(rest).to_string();
            let decoded = from_json(case.kind(), sent.as_bytes(), FieldValidation::Warn);
            outcome = decoded.map_err(|error| error.to_string()).map(|decoded| {
                warnings = decoded.warnings;
                decoded.value
            });
            continue;
        }
        if word == "given" {
            let mut object = case.whole(rest);
            declared::apply(case.kind(), &mut object).expect("little memory");
            outcome = Ok(object);
            continue;
        }
        let unknown = |warning: &String| {
            let path = warning.strip_prefix("unknown field \"").and_then(|rest| rest.strip_suffix('"'));
            case.bare(path.unwrap_or(warning)).to_owned()
        };
        let (found, expect) = match (word, &outcome) {
            ("unknown", _) => {
                let paths = rest.split(' ').filter(|path| !path.is_empty()).map(str::to_owned);
                (sorted(warnings.iter().map(unknown).collect()), sorted(paths.collect()))
            }
            ("refused", Err(_)) => continue,
            ("refused", Ok(object)) => (object.to_string(), "refused".to_owned()),
            (_, Ok(object)) => (case.part(object).to_string(), json(rest).to_string()),
            (_, Err(why)) => (why.clone(), rest.to_owned()),
        };
        rows += 1;
        if found != expect {
            failures.push(format!("{}: {word} {expect}\n    {found}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {rows} rows:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn elements_come_once_where_upstream_says_so() {
    let (mut name, mut case, mut object) = ("", None, Value::Null);
    let mut failures = Vec::new();
    let text = table("lists.txt");
    for (word, rest) in lines(&text) {
        match word {
            "#" => name = rest,
            "schema" => case = Case::new(name, rest, &mut failures),
            "value" => object = json(rest),
            _ => {
                let Some(case): &Option<Case<'_>> = &case else { continue };
                let findings = validate::validate(case.kind(), &object);
                let told = |violation: &Violation| format!("{:?} {}", violation.problem, violation.path);
                let told = sorted(findings.repeated.iter().map(told).collect());
                if told != if rest == "nothing" { "" } else { rest } {
                    failures.push(format!("{name}: {rest}\n    {told}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Rows are `right VALUE` and `wrong VALUE`; below a wrong one, everything that is said of it may stand, indented.
#[test]
fn values_are_right_or_wrong_as_upstream_says() {
    let (mut name, mut case) = ("", None);
    let (mut told, mut expect): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let (mut rows, mut failures) = (0, Vec::new());
    let text = table("values.txt");
    for (word, rest) in lines(&text).chain([("#", "")]) {
        if !word.is_empty() && !expect.is_empty() {
            let (told, expect) = (sorted(std::mem::take(&mut told)), sorted(std::mem::take(&mut expect)));
            if told != expect {
                failures.push(format!("{name}:\n    {expect}\n    {told}"));
            }
        }
        match word {
            "#" => name = rest,
            "schema" => case = Case::new(name, rest, &mut failures),
            "" => expect.push(rest.trim().to_owned()),
            _ => {
                let Some(case): &Option<Case<'_>> = &case else { continue };
                let object = case.whole(rest);
                told = validate::validate(case.kind(), &object).violations.iter().map(printed).collect();
                rows += 1;
                if told.is_empty() != (word == "right") {
                    failures.push(format!("{name}: {word} {rest}\n    {told:?}"));
                }
            }
        }
    }
    assert!(rows > 400, "{rows} rows");
    assert!(failures.is_empty(), "{} of {rows} rows:\n{}", failures.len(), failures.join("\n"));
}

/// Rows are `taken OBJECT` and `refused OBJECT`: an object comes in place of the last that was taken, under a schema that
/// may have become stricter since.
#[test]
fn what_was_there_before_the_schema_changed_may_stay() {
    let (mut name, mut case, mut old) = ("", None, Value::Null);
    let mut failures = Vec::new();
    let text = table("ratcheting.txt");
    for (word, rest) in lines(&text) {
        match word {
            "#" => (name, old) = (rest, Value::Null),
            "schema" => case = Case::new(name, rest, &mut failures),
            _ => {
                let Some(case): &Option<Case<'_>> = &case else { continue };
                let kind = case.kind();
                let mut new = json(rest);
                declared::apply(kind, &mut new).expect("little memory");
                let findings = match old.is_null() {
                    true => validate::validate(kind, &new),
                    false => validate::validate_update(kind, &new, &old),
                };
                let told = findings.violations.iter().chain(&findings.repeated).map(printed).collect();
                let told = sorted(told);
                if told.is_empty() != (word == "taken") {
                    failures.push(format!("{name}: {word} {rest}\n    {told}"));
                }
                if told.is_empty() {
                    old = new;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
