//! Texts: searched, cut, joined. Positions count characters.
//!
//! Source: cel-go's `ext/strings.go`, version 2.

use super::{Answer, Row, fail, made_list, made_text, no_overload, texts};
use crate::context::{Context, EvalError};
use crate::value::{Text, Value};

const TEST: &str = "string.(string) -> bool";

pub(super) const ROWS: &[Row] = &[
    Row { name: "contains", overloads: &[("contains_string", TEST)], body: contains },
    Row { name: "startsWith", overloads: &[("starts_with_string", TEST)], body: starts_with },
    Row { name: "endsWith", overloads: &[("ends_with_string", TEST)], body: ends_with },
    Row { name: "charAt", overloads: &[("char_at", "string.(int) -> string")], body: char_at },
    Row {
        name: "indexOf",
        overloads: &[
            ("index_of", "string.(string) -> int"),
            ("index_of", "string.(string, int) -> int"),
            ("list_index_of", "list(A).(A) -> int"),
        ],
        body: index_of,
    },
    Row {
        name: "lastIndexOf",
        overloads: &[
            ("last_index_of", "string.(string) -> int"),
            ("last_index_of", "string.(string, int) -> int"),
            ("list_last_index_of", "list(A).(A) -> int"),
        ],
        body: last_index_of,
    },
    Row { name: "lowerAscii", overloads: &[("lower_ascii", "string.() -> string")], body: lower },
    Row { name: "upperAscii", overloads: &[("upper_ascii", "string.() -> string")], body: upper },
    Row {
        name: "replace",
        overloads: &[
            ("replace", "string.(string, string) -> string"),
            ("replace", "string.(string, string, int) -> string"),
        ],
        body: replace,
    },
    Row {
        name: "split",
        overloads: &[
            ("split", "string.(string) -> list(string)"),
            ("split", "string.(string, int) -> list(string)"),
        ],
        body: split,
    },
    Row {
        name: "substring",
        overloads: &[("substring", "string.(int) -> string"), ("substring", "string.(int, int) -> string")],
        body: substring,
    },
    Row { name: "trim", overloads: &[("trim", "string.() -> string")], body: trim },
    Row {
        name: "join",
        overloads: &[("join", "list(string).() -> string"), ("join", "list(string).(string) -> string")],
        body: join,
    },
    Row { name: "strings.quote", overloads: &[("strings_quote", "(string) -> string")], body: quote },
];

fn pair<'s, 'a>(args: &'s [Value<'a>]) -> Result<(&'s Text<'a>, &'s Text<'a>), EvalError> {
    match args {
        [Value::String(one), Value::String(other)] => Ok((one, other)),
        _ => Err(EvalError::NoOverload),
    }
}

fn contains<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    pair(args).map(|(text, part)| Value::Bool(text.contains(&**part)))
}

fn starts_with<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    pair(args).map(|(text, part)| Value::Bool(text.starts_with(&**part)))
}

fn ends_with<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    pair(args).map(|(text, part)| Value::Bool(text.ends_with(&**part)))
}

/// A part of a text: of an object's text without a copy.
fn part<'a>(context: &mut Context, text: &Text<'a>, range: std::ops::Range<usize>) -> Answer<'a> {
    match text {
        Text::Borrowed(text) => Ok(Value::String(Text::Borrowed(text.get(range).unwrap_or_default()))),
        Text::Shared(text) => made_text(context, text.get(range).unwrap_or_default().to_owned()),
    }
}

/// The byte at which a character begins; the end for the one after the last.
fn byte_at(text: &str, character: i64) -> Option<usize> {
    let character = usize::try_from(character).ok()?;
    text.char_indices().map(|(byte, _)| byte).chain(std::iter::once(text.len())).nth(character)
}

fn length(text: &str) -> i64 {
    i64::try_from(text.chars().count()).unwrap_or(i64::MAX)
}

fn out_of_range(index: i64) -> EvalError {
    format!("index out of range: {index}").into()
}

fn char_at<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text), Value::Int(index)] = args else { return no_overload() };
    let begin = byte_at(text, *index).ok_or_else(|| out_of_range(*index))?;
    let end = byte_at(text, index.saturating_add(1)).unwrap_or(begin);
    part(context, text, begin..end)
}

fn place<'a>(index: Option<usize>) -> Answer<'a> {
    Ok(Value::Int(index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1)))
}

fn index_of<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (text, part, from) = match args {
        [Value::List(list), item] => return place(list.iter().position(|element| element.equals(item))),
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        _ => return no_overload(),
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Some(begin) = byte_at(text, from) else { return Ok(Value::Int(-1)) };
    let found = text.get(begin..).unwrap_or_default().find(&**part);
    let character = found.map(|byte| text.get(..begin + byte).unwrap_or_default().chars().count());
    place(character)
}

fn last_index_of<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (text, part, until) = match args {
        [Value::List(list), item] => {
            let back = list.iter().rev().position(|element| element.equals(item));
            return place(back.map(|back| list.len() - 1 - back));
        }
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(until)] => (text, part, Some(*until)),
        _ => return no_overload(),
    };
    let count = length(text);
    if part.is_empty() {
        return Ok(Value::Int(until.unwrap_or(count)));
    }
    let until = match until {
        None => count,
        Some(until) if until < 0 => return Err(out_of_range(until)),
        Some(until) if until >= count => return Ok(Value::Int(-1)),
        Some(until) => until,
    };
    // The last place at which the part may begin.
    let end = byte_at(text, until.saturating_add(length(part)).min(count)).unwrap_or(text.len());
    let found = text.get(..end).unwrap_or_default().rfind(&**part);
    place(found.map(|byte| text.get(..byte).unwrap_or_default().chars().count()))
}

fn lower<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => made_text(context, text.to_ascii_lowercase()),
        _ => no_overload(),
    }
}

fn upper<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => made_text(context, text.to_ascii_uppercase()),
        _ => no_overload(),
    }
}

fn replace<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (text, old, new, limit) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, usize::MAX),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
            (text, old, new, usize::try_from(*limit).unwrap_or(usize::MAX))
        }
        _ => return no_overload(),
    };
    let found = text.matches(&**old).take(limit).count();
    // Before it is made: the result can be much larger than all that it is made of.
    context.allocate(text.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Value::text(text.replacen(&**old, new, found)))
}

fn split<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return no_overload(),
    };
    let limit = if limit < 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
    let mut parts = Vec::new();
    let mut rest = 0;
    while parts.len() < limit {
        let tail = text.get(rest..).unwrap_or_default();
        let found = if separator.is_empty() {
            let first = tail.chars().next().map(char::len_utf8);
            first.filter(|first| *first < tail.len()).map(|first| (first, first))
        } else {
            tail.find(&**separator).map(|found| (found, found + separator.len()))
        };
        let Some((end, next)) = found.filter(|_| parts.len() + 1 < limit) else {
            if !(separator.is_empty() && tail.is_empty()) {
                parts.push(part(context, text, rest..text.len())?);
            }
            break;
        };
        parts.push(part(context, text, rest..rest + end)?);
        rest += next;
    }
    made_list(context, parts)
}

fn substring<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (text, begin, end) = match args {
        [Value::String(text), Value::Int(begin)] => (text, *begin, length(text)),
        [Value::String(text), Value::Int(begin), Value::Int(end)] => (text, *begin, *end),
        _ => return no_overload(),
    };
    if args.len() == 3 && begin > end {
        return fail(format!("invalid substring range. start: {begin}, end: {end}"));
    }
    let first = byte_at(text, begin).ok_or_else(|| out_of_range(begin))?;
    let last = byte_at(text, end).ok_or_else(|| out_of_range(end))?;
    part(context, text, first..last)
}

fn trim<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    let begin = text.len() - text.trim_start().len();
    part(context, text, begin..begin + text.trim().len())
}

fn join<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return no_overload(),
    };
    let parts = texts(list).map_err(|_| EvalError::from("join: invalid input: not a string"))?;
    let bytes: usize = parts.iter().map(|part| part.len().saturating_add(separator.len())).sum();
    context.allocate(bytes)?;
    let mut joined = String::with_capacity(bytes);
    for (index, part) in parts.iter().enumerate() {
        joined.push_str(if index == 0 { "" } else { separator });
        joined.push_str(part);
    }
    Ok(Value::text(joined))
}

fn quote<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    made_text(context, quoted)
}
