//! Amounts. Source: `k8s.io/apiserver/pkg/cel/library` (quantity, version 1).

use std::cmp::Ordering;

use machinery::quantity::{Format, Quantity};

use super::{Answer, Row, fail, no_overload};
use crate::context::Context;
use crate::value::Value;

/// Billionths of one.
const NANO: i128 = 1_000_000_000;

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
];

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

/// The amount as an `int`, if it is one.
fn integer(amount: Quantity) -> Option<i64> {
    amount.is_whole().then(|| i64::try_from(amount.to_nanos() / NANO).ok()).flatten()
}

fn is_integer<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    Ok(Value::Bool(integer(*amount).is_some()))
}

fn as_integer<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    integer(*amount).map_or_else(|| fail("cannot convert value to integer"), |number| Ok(Value::Int(number)))
}

#[expect(clippy::cast_precision_loss, reason = "the name says so")]
fn as_float<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Quantity(amount)] = args else { return no_overload() };
    let nanos = amount.to_nanos();
    Ok(Value::Double(if amount.is_whole() { (nanos / NANO) as f64 } else { nanos as f64 / 1e9 }))
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
