//! Values as Go prints them.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

#[expect(clippy::expect_used, reason = "a test of this module uses the expression")]
static PRINTABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[ \p{L}\p{M}\p{N}\p{P}\p{S}]$").expect("an expression that is part of the program")
});

/// The type of a value that Go has decoded from JSON, as `%T` prints it.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `true` if a character can be seen, or is a plain space, as Go's `unicode.IsPrint` has it.
pub fn is_print(c: char) -> bool {
    matches!(c, ' '..='~') || (!c.is_ascii() && PRINTABLE.is_match(c.encode_utf8(&mut [0; 4])))
}

/// `text` in double quotes, escaped as Go's `%q` does.
pub fn quote(text: &str) -> String {
    const ESCAPES: [(char, char); 9] = [
        ('"', '"'),
        ('\\', '\\'),
        ('\n', 'n'),
        ('\t', 't'),
        ('\r', 'r'),
        ('\u{7}', 'a'),
        ('\u{8}', 'b'),
        ('\u{b}', 'v'),
        ('\u{c}', 'f'),
    ];
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let escape = ESCAPES.iter().find(|(escaped, _)| *escaped == c);
        match (escape, u32::from(c)) {
            (Some((_, letter)), _) => out.extend(['\\', *letter]),
            (None, _) if is_print(c) => out.push(c),
            (None, code) if code < 0x80 => out.push_str(&format!("\\x{code:02x}")),
            (None, code) if code < 0x1_0000 => out.push_str(&format!("\\u{code:04x}")),
            (None, code) => out.push_str(&format!("\\U{code:08x}")),
        }
    }
    out.push('"');
    out
}

/// `text` in double quotes, as Go's package `time` puts it into its errors: byte for byte beyond ASCII.
pub(crate) fn quote_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=0x7f => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

/// A floating-point number as `%v` has it: with an exponent from a million on, or if it is very small.
pub(crate) fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_seen_is_printable() {
        for c in ['a', ' ', '~', 'é', '世', '№', '\u{301}', '🙂'] {
            assert!(super::is_print(c), "{c:?}");
        }
        for c in ['\n', '\t', '\u{7f}', '\u{a0}', '\u{200b}', '\u{2028}', '\u{e000}', '\u{378}'] {
            assert!(!super::is_print(c), "{c:?}");
        }
    }

    #[test]
    fn quotes_are_go_s() {
        for (text, expect) in [
            ("plain é 世 🙂", r#""plain é 世 🙂""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("\n\t\r", r#""\n\t\r""#),
            ("\u{7}\u{8}\u{b}\u{c}", r#""\a\b\v\f""#),
            ("\0\u{1b}\u{7f}", r#""\x00\x1b\x7f""#),
            ("\u{a0}\u{200b}\u{e0001}", r#""\u00a0\u200b\U000e0001""#),
            ("e\u{301}", "\"e\u{301}\""),
        ] {
            assert_eq!(super::quote(text), expect, "{text:?}");
        }
    }

    #[test]
    fn numbers_read_as_go_prints_them() {
        let cases = [
            (10.0, "10"),
            (-0.5, "-0.5"),
            (123_456.0, "123456"),
            (1e6, "1e+06"),
            (1_234_567.5, "1.2345675e+06"),
            (1e21, "1e+21"),
            (1.5e-5, "1.5e-05"),
        ];
        for (number, text) in cases {
            assert_eq!(super::float(number), text);
        }
    }
}
