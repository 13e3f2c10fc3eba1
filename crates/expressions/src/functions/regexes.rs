//! Regular expressions. Source: cel-go's `matches`; `k8s.io/apiserver/pkg/cel/library/regex.go`.

use super::{Answer, Row, made_list, made_text, no_overload};
use machinery::pattern::PatternError;

use crate::context::{Context, EvalError};
use crate::value::{Text, Value};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "matches",
        overloads: &[("matches", "(string, string) -> bool"), ("matches_string", "string.(string) -> bool")],
        body: matches,
    },
    Row { name: "find", overloads: &[("string_find_string", "string.(string) -> string")], body: find },
    Row {
        name: "findAll",
        overloads: &[
            ("string_find_all_string", "string.(string) -> list(string)"),
            ("string_find_all_string_int", "string.(string, int) -> list(string)"),
        ],
        body: find_all,
    },
];

fn matches<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text), Value::String(pattern)] = args else { return no_overload() };
    let pattern = context.regex(pattern)??;
    Ok(Value::Bool(pattern.is_match(text)))
}

fn illegal(error: PatternError) -> EvalError {
    format!("Illegal regex: {error}").into()
}

/// A part of a text that has been found.
fn part<'a>(context: &mut Context, text: &Text<'a>, range: std::ops::Range<usize>) -> Answer<'a> {
    match text {
        Text::Borrowed(text) => Ok(Value::String(Text::Borrowed(text.get(range).unwrap_or_default()))),
        Text::Shared(text) => made_text(context, text.get(range).unwrap_or_default().to_owned()),
    }
}

fn find<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text), Value::String(pattern)] = args else { return no_overload() };
    let found = context.regex(pattern)?.map_err(illegal)?.find_iter(text).next();
    part(context, text, found.unwrap_or(0..0))
}

fn find_all<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, usize::MAX),
        // Below zero there is no limit.
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => {
            (text, pattern, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return no_overload(),
    };
    let pattern = context.regex(pattern)?.map_err(illegal)?;
    let mut found = Vec::new();
    for range in pattern.find_iter(text).take(limit) {
        found.push(part(context, text, range)?);
    }
    made_list(context, found)
}
