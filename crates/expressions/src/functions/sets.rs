//! Lists as sets. Source: cel-go's `ext/sets.go`.

use super::{Answer, Row, no_overload};
use crate::context::{Context, EvalError};
use crate::value::{List, Value};

const SETS: &str = "(list(T), list(T)) -> bool";

pub(super) const ROWS: &[Row] = &[
    Row { name: "sets.contains", overloads: &[("list_sets_contains_list", SETS)], body: contains },
    Row { name: "sets.equivalent", overloads: &[("list_sets_equivalent_list", SETS)], body: equivalent },
    Row { name: "sets.intersects", overloads: &[("list_sets_intersects_list", SETS)], body: intersects },
];

fn lists<'s, 'a>(args: &'s [Value<'a>]) -> Result<(&'s List<'a>, &'s List<'a>), EvalError> {
    match args {
        [Value::List(one), Value::List(other)] => Ok((one, other)),
        _ => Err(EvalError::NoOverload),
    }
}

fn has<'a>(list: &List<'a>, value: &Value<'a>) -> bool {
    list.iter().any(|element| element.equals(value))
}

fn contains<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    lists(args).map(|(one, other)| Value::Bool(other.iter().all(|element| has(one, &element))))
}

fn equivalent<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    lists(args).map(|(one, other)| {
        let is_same =
            other.iter().all(|element| has(one, &element)) && one.iter().all(|element| has(other, &element));
        Value::Bool(is_same)
    })
}

fn intersects<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    if args.len() != 2 {
        return no_overload();
    }
    lists(args).map(|(one, other)| Value::Bool(one.iter().any(|element| has(other, &element))))
}
