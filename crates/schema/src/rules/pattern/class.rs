//! Character classes: in Go only `]`, `-`, `\` and `[:` mean something within one.

use super::error::{PatternError, Rule};
use super::escape::{Escaped, escaped, push_code};

const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Writes the class that opens at `at`; returns where it ends.
pub(super) fn translate(source: &str, at: usize, out: &mut String) -> Result<usize, PatternError> {
    let text = source.get(at..).unwrap_or_default();
    let unclosed = || Rule::Bracket.broken(text);
    let mut here = 1;
    out.push('[');
    if text[here..].starts_with('^') {
        out.push('^');
        here += 1;
    }
    let first = here;
    loop {
        let rest = text.get(here..).unwrap_or_default();
        if rest.is_empty() {
            return Err(unclosed());
        }
        if rest.starts_with(']') && here > first {
            out.push(']');
            return Ok(at + here + 1);
        }
        here += match named(rest)? {
            Some(length) => {
                out.push_str(&rest[..length]);
                length
            }
            None => member(rest, out).map_err(|why| why.unwrap_or_else(unclosed))?,
        };
    }
}

/// How long the `[:alpha:]` at the beginning is, if there is one.
fn named(rest: &str) -> Result<Option<usize>, PatternError> {
    let Some((name, _)) = rest.strip_prefix("[:").and_then(|inner| inner.split_once(":]")) else {
        return Ok(None);
    };
    if NAMED.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Ok(Some(name.len() + 4));
    }
    Err(Rule::CharacterRange.broken(format!("[:{name}:]")))
}

/// Writes a character, a range or a class within the class; returns how many bytes it takes. `None` instead
/// of an error is the end of the expression.
fn member(rest: &str, out: &mut String) -> Result<usize, Option<PatternError>> {
    let (low, length) = match character(rest)? {
        (Escaped::Char(low), length) => (low, length),
        (Escaped::Class(class), length) => {
            match class.strip_prefix('^') {
                Some(_) => out.extend(["[", class, "]"]),
                None => out.push_str(class),
            }
            return Ok(length);
        }
        (Escaped::Unicode(class), length) => {
            out.push_str(&class);
            return Ok(length);
        }
    };
    push_code(out, low);
    let after = rest.get(length..).unwrap_or_default();
    let Some(end) = after.strip_prefix('-').filter(|end| !end.is_empty() && !end.starts_with(']')) else {
        return Ok(length);
    };
    let (high, end_length) = character(end)?;
    let total = length + 1 + end_length;
    match high {
        Escaped::Char(high) if high >= low => {
            out.push('-');
            push_code(out, high);
            Ok(total)
        }
        _ => Err(Some(Rule::CharacterRange.broken(&rest[..total]))),
    }
}

fn character(text: &str) -> Result<(Escaped, usize), Option<PatternError>> {
    match text.chars().next() {
        None => Err(None),
        Some('\\') => escaped(text).map_err(Some),
        Some(c) => Ok((Escaped::Char(c), c.len_utf8())),
    }
}
