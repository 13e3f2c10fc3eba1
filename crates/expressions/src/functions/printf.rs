//! `'%s has %d'.format([name, count])`.
//!
//! Source: cel-go's `ext/formatting.go`, the grammar that version 2 of the strings library has.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use machinery::field::quote;

use super::{Answer, Row, fail, made_text, no_overload};
use crate::context::{Context, EvalError};
use crate::value::{Value, text};

/// Digits after the point that may be asked for.
const PRECISION_MAX: usize = 1000;

pub(super) const ROWS: &[Row] = &[Row {
    name: "format",
    overloads: &[("string_format", "string.(list(dyn)) -> string")],
    body: format_text,
}];

fn format_text<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(pattern), Value::List(values)] = args else { return no_overload() };
    let mut out = String::new();
    let mut rest = pattern.chars().peekable();
    let mut next = 0;
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        if rest.peek() == Some(&'%') {
            rest.next();
            out.push('%');
            continue;
        }
        let Some(value) = values.get(next) else { return fail(format!("index {next} out of range")) };
        let (verb, precision) = written(&mut rest)?;
        next += 1;
        clause(&mut out, verb, precision, &value)?;
        context.allocate(out.len().saturating_sub(pattern.len()))?;
    }
    made_text(context, out)
}

/// What follows a percent sign: a verb, and how many digits it asks for.
pub(crate) fn written(rest: &mut Peekable<Chars<'_>>) -> Result<(char, Option<usize>), String> {
    let mut precision = None;
    if rest.next_if_eq(&'.').is_some() {
        let mut digits = String::new();
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let why = match digits.parse() {
            _ if rest.peek().is_none() => "could not find end of precision specifier".to_owned(),
            Ok(count) if count <= PRECISION_MAX => {
                precision = Some(count);
                String::new()
            }
            _ => {
                let what = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
                let digits = quote(&digits);
                format!("error while converting precision to integer: strconv.Atoi: parsing {digits}: {what}")
            }
        };
        if !why.is_empty() {
            return Err(format!("could not parse formatting clause: error while parsing precision: {why}"));
        }
    }
    match rest.next() {
        Some(verb) if "sdfexXbo".contains(verb) => Ok((verb, precision)),
        Some(verb) => {
            Err(format!("could not parse formatting clause: unrecognized formatting clause \"{verb}\""))
        }
        None => Err("unexpected end of string".to_owned()),
    }
}

/// What is told of a value that a verb is not for.
pub(crate) fn refusal(verb: char, name: &str) -> String {
    let allowed = match verb {
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "only integers and bools can be formatted as binary",
        'o' => "octal clause can only be used on integers",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
    };
    format!("error during formatting: {allowed}, was given {name}")
}

fn unsupported(verb: char, value: &Value<'_>) -> EvalError {
    refusal(verb, &value.type_name()).into()
}

fn clause(
    out: &mut String,
    verb: char,
    precision: Option<usize>,
    value: &Value<'_>,
) -> Result<(), EvalError> {
    let broken = |_: std::fmt::Error| EvalError::from("error during formatting");
    match verb {
        's' => stringified(out, value),
        'd' => match value {
            Value::Int(number) => write!(out, "{number}").map_err(broken),
            Value::Uint(number) => write!(out, "{number}").map_err(broken),
            other => Err(unsupported(verb, other)),
        },
        'f' | 'e' => {
            let number = match value {
                Value::Double(number) => *number,
                Value::String(text) if matches!(&**text, "NaN" | "Infinity" | "-Infinity") => {
                    out.push_str(match &**text {
                        "NaN" => "NaN",
                        "Infinity" => "∞",
                        _ => "-∞",
                    });
                    return Ok(());
                }
                other => return Err(unsupported(verb, other)),
            };
            let digits = precision.unwrap_or(6);
            if !number.is_finite() {
                out.push_str(special(number));
                return Ok(());
            }
            if verb == 'f' {
                out.push_str(&grouped(&format!("{number:.digits$}")));
                return Ok(());
            }
            // Upstream takes the digits for the width here, which is never too small.
            scientific(out, number, 6);
            Ok(())
        }
        'b' => match value {
            Value::Bool(yes) => write!(out, "{}", u8::from(*yes)).map_err(broken),
            Value::Int(number) => signed(out, *number, |number| format!("{number:b}")),
            Value::Uint(number) => write!(out, "{number:b}").map_err(broken),
            other => Err(unsupported(verb, other)),
        },
        'o' => match value {
            Value::Int(number) => signed(out, *number, |number| format!("{number:o}")),
            Value::Uint(number) => write!(out, "{number:o}").map_err(broken),
            other => Err(unsupported(verb, other)),
        },
        _ => hexadecimal(out, verb, value),
    }
}

/// A number with commas between thousands, as English has them.
fn grouped(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |digits| ("-", digits));
    let (whole, rest) = digits.find('.').map_or((digits, ""), |point| digits.split_at(point));
    let mut grouped = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// A number with a power of ten, which is raised, as English has it.
fn scientific(out: &mut String, number: f64, digits: usize) {
    let text = format!("{number:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised = format!("{exponent:0>2}");
    let raised = raised.chars().filter_map(|digit| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit.to_digit(10)? as usize));
    out.push_str(mantissa);
    out.push_str("×10");
    out.push_str(sign);
    out.extend(raised);
}

fn special(number: f64) -> &'static str {
    if number.is_nan() {
        return "NaN";
    }
    if number > 0.0 { "∞" } else { "-∞" }
}

fn signed(out: &mut String, number: i64, digits: impl Fn(u64) -> String) -> Result<(), EvalError> {
    if number < 0 {
        out.push('-');
    }
    out.push_str(&digits(number.unsigned_abs()));
    Ok(())
}

fn hexadecimal(out: &mut String, verb: char, value: &Value<'_>) -> Result<(), EvalError> {
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let digits = match value {
        Value::Int(number) => {
            let sign = if *number < 0 { "-" } else { "" };
            format!("{sign}{:x}", number.unsigned_abs())
        }
        Value::Uint(number) => format!("{number:x}"),
        Value::String(text) => of_bytes(text.as_bytes()),
        Value::Bytes(bytes) => of_bytes(bytes),
        other => return Err(unsupported(verb, other)),
    };
    out.push_str(&if verb == 'X' { digits.to_uppercase() } else { digits });
    Ok(())
}

/// A value as `%s` shows it.
fn stringified(out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::String(text) => out.push_str(text),
        Value::Double(number) => out.push_str(&text::double_text(*number, 6)),
        Value::Bytes(bytes) => out.push_str(&String::from_utf8_lossy(bytes)),
        Value::Duration(nanos) => out.push_str(&text::duration_text(*nanos)),
        Value::Timestamp(moment) => out.push_str(&moment.to_string()),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Type(_) => shown(out, value)?,
        Value::List(_) | Value::Map(_) => stacker::maybe_grow(64 << 10, 1 << 20, || shown(out, value))?,
        other => return Err(unsupported('s', other)),
    }
    Ok(())
}

/// A value within lists and maps: a literal of the language.
fn shown(out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(yes) => out.push_str(&yes.to_string()),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Uint(number) => out.push_str(&number.to_string()),
        Value::Double(number) if number.is_finite() => out.push_str(&format!("{number:.6}")),
        Value::Double(number) => out.push_str(&quote(&text::double_text(*number, 6))),
        Value::Bytes(bytes) => out.push_str(&format!("b{}", quote(&String::from_utf8_lossy(bytes)))),
        Value::Duration(nanos) => out.push_str(&format!("duration({})", quote(&text::duration_text(*nanos)))),
        Value::Timestamp(moment) => out.push_str(&format!("timestamp({})", quote(&moment.to_string()))),
        Value::Type(name) => out.push_str(name),
        Value::String(text) => out.push_str(&quote(text)),
        Value::List(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                stacker::maybe_grow(64 << 10, 1 << 20, || shown(out, &element))?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.entries() {
                let (mut name, mut entry) = (String::new(), String::new());
                shown(&mut name, &key)?;
                stacker::maybe_grow(64 << 10, 1 << 20, || shown(&mut entry, &value))?;
                entries.push((name, entry));
            }
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
            let entries: Vec<_> =
                entries.into_iter().map(|(name, entry)| format!("{name}:{entry}")).collect();
            out.push('{');
            out.push_str(&entries.join(", "));
            out.push('}');
        }
        other => {
            let name = other.type_name();
            return Err(format!("error during formatting: no formatting function for {name}").into());
        }
    }
    Ok(())
}
