//! Conversions between types.

use std::sync::Arc;

use machinery::duration;

use super::{Answer, Row, fail, made_text, no_overload};
use crate::context::{Context, EvalError};
use crate::value::{Moment, Text, Value, number, text};

pub(super) const ROWS: &[Row] = &[
    Row { name: "type", overloads: &[("type", "(A) -> type(A)")], body: type_of },
    Row { name: "dyn", overloads: &[("to_dyn", "(A) -> dyn")], body: same },
    Row { name: "bool", overloads: &[("to_bool", "(<bool|string>) -> bool")], body: to_bool },
    Row {
        name: "bytes",
        overloads: &[("bytes_to_bytes", "(bytes) -> bytes"), ("string_to_bytes", "(string) -> bytes")],
        body: to_bytes,
    },
    Row {
        name: "double",
        overloads: &[("to_double", "(<double|int|string|uint>) -> double")],
        body: to_double,
    },
    Row {
        name: "duration",
        overloads: &[("to_duration", "(<duration|int|string>) -> duration")],
        body: to_duration,
    },
    Row {
        name: "int",
        overloads: &[("to_int", "(<int|double|duration|string|timestamp|uint>) -> int")],
        body: to_int,
    },
    Row {
        name: "string",
        overloads: &[
            ("to_string", "(<string|bool>) -> string"),
            ("bytes_to_string", "(bytes) -> string"),
            ("to_string", "(<double|duration|int|timestamp|uint|net.IP|net.CIDR>) -> string"),
        ],
        body: to_string,
    },
    Row {
        name: "timestamp",
        overloads: &[("to_timestamp", "(<timestamp|int|string>) -> timestamp")],
        body: to_timestamp,
    },
    Row { name: "uint", overloads: &[("to_uint", "(<uint|double|int|string>) -> uint")], body: to_uint },
];

fn same<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    args.first().cloned().map_or_else(no_overload, Ok)
}

fn type_of<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    args.first().map_or_else(no_overload, |value| Ok(Value::Type(value.type_name())))
}

fn out_of_range<'a, T>(number: Option<T>, made: fn(T) -> Value<'a>, message: &'static str) -> Answer<'a> {
    number.map(made).ok_or_else(|| EvalError::from(message))
}

fn unreadable<'a>(kind: &str) -> Answer<'a> {
    fail(format!("type conversion error from 'string' to '{kind}'"))
}

fn to_bool<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Bool(yes)] => Ok(Value::Bool(*yes)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => unreadable("bool"),
        },
        _ => no_overload(),
    }
}

fn to_bytes<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::String(text)] => {
            context.allocate(text.len())?;
            Ok(Value::Bytes(Arc::from(text.as_bytes())))
        }
        _ => no_overload(),
    }
}

/// A number as Go's `ParseFloat` reads it: none beyond the range but infinity itself, and NaN without a sign.
fn go_double(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    let is_named = !text.contains(|digit: char| digit.is_ascii_digit());
    let is_good =
        if number.is_nan() { !text.starts_with(['+', '-']) } else { number.is_finite() || is_named };
    is_good.then_some(number)
}

#[expect(clippy::cast_precision_loss, reason = "that is what the conversion means")]
fn to_double<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Double(number)] => Ok(Value::Double(*number)),
        [Value::Int(number)] => Ok(Value::Double(*number as f64)),
        [Value::Uint(number)] => Ok(Value::Double(*number as f64)),
        [Value::String(text)] => match go_double(text) {
            Some(number) => Ok(Value::Double(number)),
            None => unreadable("double"),
        },
        _ => no_overload(),
    }
}

fn to_int<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Int(number)] => Ok(Value::Int(*number)),
        [Value::Uint(number)] => out_of_range(i64::try_from(*number).ok(), Value::Int, "integer overflow"),
        [Value::Double(number)] => out_of_range(number::truncated(*number), Value::Int, "integer overflow"),
        [Value::Timestamp(moment)] => Ok(Value::Int(moment.seconds())),
        [Value::Duration(nanos)] => Ok(Value::Int(*nanos)),
        [Value::String(text)] => match text.parse() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => unreadable("int"),
        },
        _ => no_overload(),
    }
}

fn to_uint<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    const MESSAGE: &str = "unsigned integer overflow";
    match args {
        [Value::Uint(number)] => Ok(Value::Uint(*number)),
        [Value::Int(number)] => out_of_range(u64::try_from(*number).ok(), Value::Uint, MESSAGE),
        [Value::Double(number)] => out_of_range(number::truncated_unsigned(*number), Value::Uint, MESSAGE),
        // Go takes no sign here, Rust takes a plus.
        [Value::String(text)] => match text.parse() {
            Ok(number) if !text.starts_with('+') => Ok(Value::Uint(number)),
            _ => unreadable("uint"),
        },
        _ => no_overload(),
    }
}

fn to_string<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [value] = args else { return no_overload() };
    let made = match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return fail("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Value::Bool(yes) => yes.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => text::double_text(*number, 6),
        Value::Duration(nanos) => text::duration_text(*nanos),
        Value::Timestamp(moment) => moment.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(range) => range.to_string(),
        _ => return no_overload(),
    };
    made_text(context, made)
}

fn to_duration<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Duration(nanos)] | [Value::Int(nanos)] => Ok(Value::Duration(*nanos)),
        [Value::String(Text::Borrowed(text))] => parsed_duration(text),
        [Value::String(text)] => parsed_duration(text),
        _ => no_overload(),
    }
}

fn parsed_duration<'a>(text: &str) -> Answer<'a> {
    duration::parse(text).map(Value::Duration).map_err(|error| EvalError::from(error.to_string()))
}

fn to_timestamp<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Timestamp(moment)] => Ok(Value::Timestamp(*moment)),
        [Value::Int(seconds)] => {
            out_of_range(Moment::new(*seconds, 0), Value::Timestamp, "timestamp overflow")
        }
        [Value::String(text)] => match Moment::parse(text) {
            Some(moment) => Ok(Value::Timestamp(moment)),
            None => {
                fail(format!("parsing time {:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse", &**text))
            }
        },
        _ => no_overload(),
    }
}
