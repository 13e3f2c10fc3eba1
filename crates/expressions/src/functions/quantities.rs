//! Amounts and versions. Source: `k8s.io/apiserver/pkg/cel/library` (quantity, semver, version 1).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use machinery::quantity::{Format, Quantity};
use semver::Version;

use super::{Answer, Row, fail, no_overload};
use crate::context::Context;
use crate::value::Value;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "quantity",
        overloads: &[("string_to_quantity", "(string) -> kubernetes.Quantity")],
        body: quantity,
    },
    Row { name: "isQuantity", overloads: &[("is_quantity_string", "(string) -> bool")], body: is_quantity },
    // Upstream documents the member, and declares the other.
    Row {
        name: "sign",
        overloads: &[
            ("quantity_sign", "kubernetes.Quantity.() -> int"),
            ("quantity_sign", "(kubernetes.Quantity) -> int"),
        ],
        body: sign,
    },
    Row {
        name: "isInteger",
        overloads: &[("quantity_is_integer", "kubernetes.Quantity.() -> bool")],
        body: is_integer,
    },
    Row {
        name: "asInteger",
        overloads: &[("quantity_get_int", "kubernetes.Quantity.() -> int")],
        body: as_integer,
    },
    Row {
        name: "asApproximateFloat",
        overloads: &[("quantity_get_float", "kubernetes.Quantity.() -> double")],
        body: as_float,
    },
    Row {
        name: "add",
        overloads: &[
            ("quantity_add", "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity"),
            ("quantity_add_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity"),
        ],
        body: add,
    },
    Row {
        name: "sub",
        overloads: &[
            ("quantity_sub", "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity"),
            ("quantity_sub_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity"),
        ],
        body: sub,
    },
    Row {
        name: "isGreaterThan",
        overloads: &[("is_greater_than", "<kubernetes.Quantity|kubernetes.Semver>.(<>) -> bool")],
        body: |_, args| compared(args, |order| Value::Bool(order.is_gt())),
    },
    Row {
        name: "isLessThan",
        overloads: &[("is_less_than", "<kubernetes.Quantity|kubernetes.Semver>.(<>) -> bool")],
        body: |_, args| compared(args, |order| Value::Bool(order.is_lt())),
    },
    Row {
        name: "compareTo",
        overloads: &[("compare_to", "<kubernetes.Quantity|kubernetes.Semver>.(<>) -> int")],
        body: |_, args| compared(args, |order| Value::Int(order as i64)),
    },
    Row {
        name: "semver",
        overloads: &[
            ("string_to_semver", "(string) -> kubernetes.Semver"),
            ("string_bool_to_semver", "(string, bool) -> kubernetes.Semver"),
        ],
        body: semver,
    },
    Row {
        name: "isSemver",
        overloads: &[
            ("is_semver_string", "(string) -> bool"),
            ("is_semver_string_bool", "(string, bool) -> bool"),
        ],
        body: is_semver,
    },
    Row {
        name: "major",
        overloads: &[("semver_major", PART)],
        body: |_, args| part(args, |version| version.major),
    },
    Row {
        name: "minor",
        overloads: &[("semver_minor", PART)],
        body: |_, args| part(args, |version| version.minor),
    },
    Row {
        name: "patch",
        overloads: &[("semver_patch", PART)],
        body: |_, args| part(args, |version| version.patch),
    },
];

const PART: &str = "kubernetes.Semver.() -> int";

fn quantity<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    match text.parse() {
        Ok(amount) => Ok(Value::Quantity(amount)),
        Err(error) => fail(error.to_string()),
    }
}

fn is_quantity<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    Ok(Value::Bool(text.parse::<Quantity>().is_ok()))
}

fn sign<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Int(amount.signum().into()))
}

fn is_integer<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Bool(amount.is_whole()))
}

fn as_integer<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    if amount.is_whole() {
        return Ok(Value::Int(amount.value()));
    }
    fail("cannot convert value to integer")
}

#[expect(clippy::cast_precision_loss, reason = "the name says so")]
fn as_float<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Double(if amount.is_whole() { amount.value() as f64 } else { amount.to_nanos() as f64 / 1e9 }))
}

fn operands(args: &[Value<'_>]) -> Option<(Quantity, Quantity)> {
    match args {
        [Value::Quantity(one), Value::Quantity(other)] => Some((*one, *other)),
        [Value::Quantity(one), Value::Int(units)] => Some((*one, Quantity::new(*units, Format::DecimalSi))),
        _ => None,
    }
}

fn add<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    operands(args).map_or_else(no_overload, |(one, other)| Ok(Value::Quantity(one.plus(other))))
}

fn sub<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    operands(args).map_or_else(no_overload, |(one, other)| Ok(Value::Quantity(one.minus(other))))
}

fn compared<'a>(args: &[Value<'a>], answer: fn(Ordering) -> Value<'a>) -> Answer<'a> {
    match args {
        [Value::Quantity(one), Value::Quantity(other)] => Ok(answer(one.cmp(other))),
        [Value::Semver(one), Value::Semver(other)] => Ok(answer(one.cmp_precedence(other))),
        _ => no_overload(),
    }
}

/// A text, and whether it is to be made good before it is read as a version.
fn written<'v>(args: &'v [Value<'_>]) -> Option<(&'v str, bool)> {
    match args {
        [Value::String(text)] => Some((text, false)),
        [Value::String(text), Value::Bool(is_loose)] => Some((text, *is_loose)),
        _ => None,
    }
}

/// A version; one that is to be made good may have a `v`, zeros in front, and fewer than three numbers.
fn version(text: &str, is_loose: bool) -> Option<Version> {
    let good = if is_loose { normal(text)?.into() } else { Cow::Borrowed(text) };
    Version::parse(&good).ok()
}

fn normal(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return None;
    }
    parts.resize(3, "0".to_owned());
    Some(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|first: char| first.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}

fn semver<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    context.allocate(size_of::<Version>())?;
    let Some((text, is_loose)) = written(args) else { return no_overload() };
    match version(text, is_loose) {
        Some(version) => Ok(Value::Semver(Arc::new(version))),
        None => fail(format!("semver parse error during conversion from string: {text:?}")),
    }
}

fn is_semver<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let Some((text, is_loose)) = written(args) else { return no_overload() };
    Ok(Value::Bool(version(text, is_loose).is_some()))
}

fn part<'a>(args: &[Value<'a>], part: fn(&Version) -> u64) -> Answer<'a> {
    let [Value::Semver(version)] = args else { return no_overload() };
    Ok(Value::Int(i64::try_from(part(version)).unwrap_or(i64::MAX)))
}
