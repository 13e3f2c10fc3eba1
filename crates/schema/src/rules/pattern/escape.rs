//! Backslashes in patterns, and characters that mean nothing but themselves.

use std::fmt::Write;

use super::error::{PatternError, Rule};

/// What a backslash introduces.
pub(super) enum Escaped {
    Char(char),
    /// The inner part of a class that case does not change.
    Class(&'static str),
    /// A class of Unicode.
    Unicode(String),
}

/// What the backslash at the beginning introduces, and how many bytes that takes.
pub(super) fn escaped(text: &str) -> Result<(Escaped, usize), PatternError> {
    let mut chars = text.chars();
    chars.next();
    let Some(c) = chars.next() else { return Err(Rule::TrailingBackslash.broken("")) };
    let shown = || Rule::Escape.broken(format!("\\{c}"));
    let class = match c {
        'd' => "0-9",
        'D' => "^0-9",
        'w' => "0-9A-Za-z_",
        'W' => "^0-9A-Za-z_",
        's' => r"\t\n\x0C\r ",
        'S' => r"^\t\n\x0C\r ",
        _ => "",
    };
    if !class.is_empty() {
        return Ok((Escaped::Class(class), 2));
    }
    let control = match c {
        'a' => '\x07',
        'f' => '\x0C',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0B',
        'p' | 'P' => return unicode(text, c == 'P'),
        'x' => return hexadecimal(text).ok_or_else(shown),
        '0'..='7' => return octal(text).ok_or_else(shown),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
        _ => return Err(shown()),
    };
    Ok((Escaped::Char(control), 2))
}

/// `\x7F` and `\x{10FFFF}`.
fn hexadecimal(text: &str) -> Option<(Escaped, usize)> {
    let rest = text.get(2..)?;
    let (digits, length) = match rest.strip_prefix('{') {
        Some(braced) => {
            let (digits, _) = braced.split_once('}')?;
            (digits, digits.len() + 4)
        }
        None => (rest.get(..2)?, 4),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
    Some((Escaped::Char(char::from_u32(code)?), length))
}

/// `\012`; one digit alone, other than 0, would refer back to a group.
fn octal(text: &str) -> Option<(Escaped, usize)> {
    let digits = text.bytes().skip(1).take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    let number = text.get(1..=digits)?;
    let is_reference = digits == 1 && number != "0";
    let code = u32::from_str_radix(number, 8).ok().filter(|_| !is_reference)?;
    Some((Escaped::Char(char::from_u32(code)?), digits + 1))
}

/// `\pL`, `\p{Greek}`, `\p{^Greek}`.
fn unicode(text: &str, is_negated: bool) -> Result<(Escaped, usize), PatternError> {
    let rest = text.get(2..).unwrap_or_default();
    let refused = |length: usize| Rule::CharacterRange.broken(text.chars().take(length).collect::<String>());
    let (name, length) = match rest.strip_prefix('{') {
        Some(braced) => match braced.split_once('}') {
            Some((name, _)) => (name, name.len() + 4),
            None => return Err(refused(text.len())),
        },
        None => {
            let length = rest.chars().next().map_or(0, char::len_utf8);
            (&rest[..length], length + 2)
        }
    };
    let (name, is_inverted) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(refused(length));
    }
    let letter = if is_negated ^ is_inverted { 'P' } else { 'p' };
    let class = format!("\\{letter}{{{name}}}");
    // Only the engine knows the names.
    match regex::Regex::new(&class) {
        Ok(_) => Ok((Escaped::Unicode(class), length)),
        Err(_) => Err(refused(length)),
    }
}

/// A character within a class, so that it means nothing but itself.
pub(super) fn push_code(out: &mut String, c: char) {
    // Writing to a string cannot fail.
    write!(out, "\\x{{{:X}}}", u32::from(c)).ok();
}
