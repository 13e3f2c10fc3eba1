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

/// `text` in double quotes, escaped as Go's `%q` does for what names and labels can hold.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() && u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
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
