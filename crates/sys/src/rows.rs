//! Tables of this crate's tests: sections of rows, each a name, perhaps bytes in hexadecimal, and what comes of them.
//!
//! `//` begins a remark, `#` a section, `-` a row; its lines are bytes up to the one with `=`, behind which is the outcome.

use std::fmt::Write as _;

#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) outcome: String,
}

pub(crate) fn rows(table: &'static str) -> Vec<Row> {
    let (mut rows, mut section) = (Vec::<Row>::new(), "");
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        if let Some(title) = line.strip_prefix("# ") {
            section = title;
        } else if let Some(name) = line.strip_prefix("- ") {
            rows.push(Row { section, name, ..Row::default() });
        } else {
            let row = rows.last_mut().expect("a row");
            match line.strip_prefix("= ") {
                Some(outcome) => outcome.clone_into(&mut row.outcome),
                None if row.outcome.is_empty() => row.bytes.extend(hex(line)),
                None => write!(row.outcome, " {line}").unwrap(),
            }
        }
    }
    assert!(rows.iter().all(|row| !row.outcome.is_empty()), "every row has an outcome");
    rows
}

/// Bytes that are written in hexadecimal, with spaces as it pleases.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    assert!(digits.len().is_multiple_of(2), "whole bytes: {text}");
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
    digits.chunks(2).map(|pair| byte(pair).unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
}

pub(crate) fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Attributes in words: each its number and, in braces, those in it; or a text; or bytes in hexadecimal. They have to be
/// whole, and what fills them up to the next has to be zeroes.
pub(crate) fn shown(mut bytes: &[u8]) -> String {
    const NESTED: u16 = 0x8000;
    let mut words = Vec::new();
    while let [low, high, kind_low, kind_high, rest @ ..] = bytes {
        let length = usize::from(u16::from_ne_bytes([*low, *high])) - 4;
        let kind = u16::from_ne_bytes([*kind_low, *kind_high]);
        let (value, filled) = rest.split_at(length);
        let (filling, next) = filled.split_at(length.next_multiple_of(4) - length);
        assert!(filling.iter().all(|byte| *byte == 0), "filled up with {filling:?}");
        let number = kind & !NESTED;
        words.push(match value {
            inner if kind & NESTED != 0 => format!("{number}{{{}}}", shown(inner)),
            [text @ .., 0] if !text.is_empty() && text.iter().all(u8::is_ascii_graphic) => {
                format!("{number}={}", String::from_utf8_lossy(text))
            }
            bytes => format!("{number}={}", in_hex(bytes)),
        });
        bytes = next;
    }
    assert!(bytes.is_empty(), "{bytes:?} is no attribute");
    words.join(" ")
}
