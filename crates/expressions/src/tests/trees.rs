//! The trees that cel-go's parser makes of expressions, in its own notation without numbers of nodes and without blanks.
//! Source: its `parser/parser_test.go`.

use crate::syntax::ast::{Call, Expr, Kind, Literal};
use crate::syntax::{Dialect, parse};

/// A text as Go quotes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\\' => quoted.extend(['\\', character]),
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

fn constant(literal: &Literal) -> String {
    match literal {
        Literal::Null => "null".to_owned(),
        Literal::Bool(flag) => flag.to_string(),
        Literal::Int(number) => number.to_string(),
        Literal::Uint(number) => format!("{number}u"),
        Literal::Double(number) => number.to_string(),
        Literal::String(text) => quoted(text),
        Literal::Bytes(bytes) => format!("b{}", quoted(&String::from_utf8_lossy(bytes))),
    }
}

fn joined<T>(parts: &[T], part: impl Fn(&T) -> String) -> String {
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

fn optional(is_optional: bool) -> &'static str {
    if is_optional { "?" } else { "" }
}

/// Several terms as the pairs that cel-go makes of them.
fn balanced(function: &str, terms: &[Expr]) -> String {
    match terms {
        [] => String::new(),
        [one] => tree(one),
        _ => {
            let (left, right) = terms.split_at(terms.len().div_ceil(2));
            format!("{function}({},{})", balanced(function, left), balanced(function, right))
        }
    }
}

fn call(Call { function, target, args }: &Call) -> String {
    if matches!(&**function, "_&&_" | "_||_") {
        return balanced(function, args);
    }
    let target = target.as_ref().map(|target| tree(target) + ".").unwrap_or_default();
    format!("{target}{function}({})", joined(args, tree))
}

fn tree(expr: &Expr) -> String {
    match &expr.kind {
        Kind::Literal(literal) => constant(literal),
        Kind::Ident(name) => name.to_string(),
        Kind::Select(select) => {
            let test = if select.is_test { "~test-only~" } else { "" };
            format!("{}.{}{test}", tree(&select.operand), select.field)
        }
        Kind::Call(called) => call(called),
        Kind::List(elements) => {
            let element =
                joined(elements, |element| optional(element.is_optional).to_owned() + &tree(&element.value));
            format!("[{element}]")
        }
        Kind::Map(entries) => {
            let entry = joined(entries, |entry| {
                format!("{}{}:{}", optional(entry.is_optional), tree(&entry.key), tree(&entry.value))
            });
            format!("{{{entry}}}")
        }
        Kind::Struct(name, fields) => {
            let field = joined(fields, |field| {
                format!("{}{}:{}", optional(field.is_optional), field.name, tree(&field.value))
            });
            format!("{name}{{{field}}}")
        }
        Kind::Fold(fold) => {
            let second = fold.second.as_ref().map(|second| format!(",{second}")).unwrap_or_default();
            let parts = [&fold.init, &fold.condition, &fold.step, &fold.result].map(tree).join(",");
            let (variable, range, accu) = (&fold.variable, tree(&fold.range), &fold.accu);
            format!("__comprehension__({variable}{second},{range},{accu},{parts})")
        }
    }
}

#[test]
fn trees_are_those_that_upstreams_parser_makes() {
    let (mut rows, mut failures) = (0, Vec::new());
    for line in
        include_str!("tables/trees.txt").lines().filter(|line| !line.is_empty() && !line.starts_with("//"))
    {
        let (text, expect) = line.rsplit_once(" ==> ").expect("a tree");
        let parsed = parse(&text.replace('⏎', "\n"), Dialect { has_bindings: false });
        let found: String = match parsed {
            Ok(parsed) => tree(&parsed.root).split_whitespace().collect(),
            Err(problems) => format!("{problems:?}"),
        };
        rows += 1;
        if found != expect {
            failures.push(format!("{line}\n    {found}"));
        }
    }
    assert!(failures.is_empty(), "{} of {rows} rows:\n{}", failures.len(), failures.join("\n"));
}
