//! What hostile expressions may not do: panic, run for ever, or take memory without end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{Activation, Budget, Declared, Environment, EvalError, JsonBudget, Library, ListKind, Value};

fn environment() -> Environment {
    let declared = Declared::list(Declared::string(None), ListKind::Atomic, None).named("selfType");
    Environment::new().declared("self", declared).with(Library::Bindings)
}

/// Compiles and evaluates, whatever comes of it. What runs for ever is ended by the tests' time-out.
fn run(expression: &str) -> Result<(), String> {
    let list = serde_json::json!(["a", "b", "c"]);
    let declared = Declared::list(Declared::string(None), ListKind::Atomic, None);
    environment().compile(expression).map_err(|error| error.to_string()).and_then(|program| {
        let activation = Activation::new().with("self", Value::declared(&list, &declared));
        let evaluation = program.evaluate(&activation, &mut Budget::default());
        evaluation.result.map(drop).map_err(|error| error.to_string())
    })
}

fn fails(expression: &str, part: &str) {
    let error = run(expression).expect_err(expression.get(..60).unwrap_or(expression));
    assert!(error.contains(part), "{error}");
}

const LIMIT: &str = "operation cancelled: actual cost limit exceeded";

#[test]
fn depth_is_bounded() {
    let limit = "expression recursion limit exceeded: 250";
    fails(&format!("{}1{} == 1", "(".repeat(5000), ")".repeat(5000)), limit);
    fails(&format!("{}1{} == []", "[".repeat(5000), "]".repeat(5000)), limit);
    fails(&format!("{}1{} == {{}}", "{1:".repeat(5000), "}".repeat(5000)), limit);
    fails(&format!("{}1 == 1", "1 + ".repeat(5000)), limit);
    fails(&format!("self{}", ".a".repeat(5000)), limit);
    fails(&format!("self{}", "[0]".repeat(5000)), limit);
    fails(&format!("{}true", "true ? true : ".repeat(5000)), limit);
    let nested = (0..300).fold("true".to_owned(), |inner, level| format!("[1].all(x{level}, {inner})"));
    fails(&nested, limit);
    assert_eq!(run(&format!("{}true", "!".repeat(9000))), Ok(()));
    assert_eq!(run(&format!("{}true", "true && ".repeat(2000))), Ok(()));
    assert_eq!(run(&format!("{}false || true", "false || ".repeat(2000))), Ok(()));
    let nested = (0..100).fold("true".to_owned(), |inner, level| format!("[1].all(x{level}, {inner})"));
    assert_eq!(run(&nested), Ok(()));
    let lists = format!("{}1{} != []", "[".repeat(200), "]".repeat(200));
    assert!(run(&lists).is_err() || run(&lists) == Ok(()));
    fails(&"a".repeat(100_001), "expression code point size exceeds limit: size: 100001, limit 100000");
}

#[test]
fn costs_and_memory_are_bounded() {
    let list = format!("[{}]", vec!["self[0]"; 100].join(","));
    let nested = |depth: usize| {
        (0..depth).fold("true".to_owned(), |inner, level| format!("{list}.all(x{level}, {inner})"))
    };
    fails(&nested(4), LIMIT);
    // Texts and lists that double, which costs next to nothing.
    let doubled = |first: &str| {
        let inner = (0..60).rev().fold("size(v60) == 0".to_owned(), |inner, level| {
            format!("cel.bind(v{}, v{level} + v{level}, {inner})", level + 1)
        });
        format!("cel.bind(v0, {first}, {inner})")
    };
    fails(&doubled("self[0]"), LIMIT);
    fails(&doubled("self"), LIMIT);
    let chained = format!("[self]{}.size() == 1", ".map(a, a + a)".repeat(60));
    fails(&chained, LIMIT);
    let long = "a".repeat(5000);
    fails(&format!("'{long}'.replace('a', '{long}').replace('a', '{long}') == ''"), LIMIT);
    fails("lists.range(9223372036854775807).size() == 0", LIMIT);
    fails(
        "lists.range(100000).map(x, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' + string(x)).size() == 0",
        LIMIT,
    );
    fails("lists.range(50000).distinct() == []", LIMIT);
    fails("sets.contains(lists.range(50000), lists.range(50000))", LIMIT);
    assert_eq!(run("lists.range(5000).transformMap(i, v, i + v).size() == 5000"), Ok(()));
    // Types that double.
    let typed = format!(
        "{}.size() == 1",
        (0..60).fold("[1]".to_owned(), |inner, _| format!("{inner}.map(a, {{a: a}})"))
    );
    assert!(run(&typed).is_err());
    // What `optMap` is applied to is written twice.
    let copied = (0..40)
        .fold("optional.of(1)".to_owned(), |inner, level| format!("{inner}.optMap(x{level}, x{level})"));
    fails(&format!("{copied}.hasValue()"), "nodes");
}

#[test]
fn regular_expressions_are_bounded() {
    fails("'a'.matches('(((a{1000}){1000}){1000}){1000}')", "invalid matches argument");
    fails("self[0].find(self.map(x, '(a{1000}){1000}')[0]) == ''", "Illegal regex");
    fails("lists.range(20000).exists(x, 'a'.matches('(a{100}){10}' + string(x)))", "cost limit exceeded");
    assert_eq!(run("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!'.matches('^(a+)+$') == false"), Ok(()));
}

#[test]
fn budgets_are_for_many_and_flags_end_folds() {
    let program = environment().compile("self.all(x, self.all(y, x != y || x == y))").expect("an expression");
    let list = serde_json::json!(["a", "b", "c"]);
    let declared = Declared::list(Declared::string(None), ListKind::Atomic, None);
    let activation = Activation::new().with("self", Value::declared(&list, &declared));
    let mut budget = Budget::new(200);
    let first = program.evaluate(&activation, &mut budget);
    assert!(first.result.is_ok() && first.cost > 50 && budget.remaining() == 200 - first.cost);
    while budget.remaining() > 0 {
        let next = program.evaluate(&activation, &mut budget);
        assert!(next.result.is_ok() || budget.remaining() == 0);
    }
    assert_eq!(program.evaluate(&activation, &mut budget).result.expect_err("no budget"), EvalError::Budget);
    let flag = Arc::new(AtomicBool::new(true));
    let mut budget = Budget::default().interrupted_by(flag);
    assert_eq!(
        program.evaluate(&activation, &mut budget).result.expect_err("interrupted"),
        EvalError::Interrupted
    );
    let mut small = Budget::default().per_call(10);
    assert_eq!(
        program.evaluate(&activation, &mut small).result.expect_err("too costly"),
        EvalError::CostLimit
    );
}

/// What expressions are put together from.
const PARTS: &[&str] = &[
    "self",
    "x",
    "1",
    "-1",
    "9223372036854775807",
    "1u",
    "1.5",
    "'a'",
    "b'a'",
    "''",
    "null",
    "true",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ".",
    ",",
    ":",
    "?",
    " + ",
    " - ",
    " * ",
    " / ",
    " % ",
    " == ",
    " < ",
    " && ",
    " || ",
    "!",
    " in ",
    ".size()",
    ".all(x, ",
    ".map(x, ",
    ".filter(x, ",
    ".exists(i, v, ",
    ".transformMap(k, v, ",
    ".?a",
    "[?0]",
    "[0]",
    ".substring(",
    ".split(",
    ".replace(",
    ".indexOf(",
    ".lastIndexOf(",
    ".charAt(",
    ".format([",
    ".matches('",
    "duration('1s')",
    "timestamp('2020-01-01T00:00:00Z')",
    "optional.of(1)",
    ".optMap(x, ",
    "dyn(",
    "int(",
    "string(",
    "has(",
    "lists.range(",
    ".slice(",
    ".flatten(",
    ".sortBy(x, ",
    ".join(",
    "quantity('1')",
    ".add(",
    "ip('::1')",
    "cidr('10.0.0.0/8')",
    ".containsIP(",
    "url('http://a/?b=%')",
    ".getQuery()",
    "semver('1.0.0')",
    "\\",
    "'",
    "\"",
    "`a-b`",
    "r'\\'",
    "\u{1f600}",
    "'\\u00e9'",
    "0x",
    "1e",
    "//",
    "\n",
    "cel.bind(y, ",
    "y",
];

/// Expressions put together and taken apart by chance: nothing of it may panic.
#[test]
fn whatever_is_written_nothing_panics() {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % u64::try_from(bound).expect("small")).expect("small")
    };
    let list = serde_json::json!(["ü", "b", ""]);
    let declared = Declared::list(Declared::string(None), ListKind::Atomic, None);
    let environment = environment();
    let activation = Activation::new().with("self", Value::declared(&list, &declared));
    let mut evaluated = 0;
    for _ in 0..20_000 {
        let mut text: String = (0..1 + next(9)).map(|_| PARTS[next(PARTS.len())]).collect();
        let (opened, closed) = (text.matches('(').count(), text.matches(')').count());
        text.push_str(&"]".repeat(text.matches('[').count().saturating_sub(text.matches(']').count())));
        text.push_str(&")".repeat(opened.saturating_sub(closed)));
        if let Ok(program) = environment.compile(&text) {
            evaluated += 1;
            drop(program.evaluate(&activation, &mut Budget::default()));
        }
    }
    assert!(evaluated > 100, "only {evaluated} expressions were any");
}

/// Equal parts of a value are one as long as it is a value, and many in JSON.
#[test]
fn what_is_written_as_json_is_bounded() {
    let value = Value::list(vec![Value::text("x".repeat(1 << 20)); 40]);
    assert!(
        value
            .to_json(&mut JsonBudget::default())
            .is_err_and(|why| why.to_string() == "the value is too large")
    );
    let twice = |value: Value<'static>| Value::list(vec![value.clone(), value]);
    let doubled = |times: usize| (0..times).fold(Value::Int(1), |value, _| twice(value));
    assert!(doubled(5).to_json(&mut JsonBudget::default()).is_ok());
    assert!(doubled(60).to_json(&mut JsonBudget::default()).is_err());
    let deep = (0..5000).fold(Value::Null, |value, _| Value::list(vec![value]));
    assert!(deep.to_json(&mut JsonBudget::default()).is_err());
    let mut budget = JsonBudget::default();
    let large = Value::text("x".repeat(10 << 20));
    assert_eq!([0; 3].map(|_| large.to_json(&mut budget).is_ok()), [true, true, false]);
    let json = serde_json::json!({"a-b": ["x".repeat(20 << 20)], "c": {"d": "x".repeat(5 << 20)}});
    assert!(Value::of(&json).to_json(&mut JsonBudget::default()).is_err());
    let small = serde_json::json!({"a-b": [1, {"c": null}]});
    assert_eq!(Value::of(&small).to_json(&mut JsonBudget::default()), Ok(small.clone()));
    let unlike = |value: Value<'static>| value.to_json(&mut JsonBudget::default()).unwrap_err().to_string();
    assert_eq!(unlike(Value::Type("int".into())), "type has no form in JSON");
    assert_eq!(unlike(Value::Double(f64::NAN)), "double has no form in JSON");
}
