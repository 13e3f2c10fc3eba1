//! Values that are there or not. Source: cel-go's `cel/library.go`, `common/types/optional.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Answer, Row, fail, made_list, no_overload, shown};
use crate::context::Context;
use crate::value::{Entries, Map, Value};

pub(super) const ROWS: &[Row] = &[
    Row { name: "optional.of", overloads: &[("optional_of", "(V) -> optional(V)")], body: of },
    Row {
        name: "optional.ofNonZeroValue",
        overloads: &[("optional_ofNonZeroValue", "(V) -> optional(V)")],
        body: of_non_zero,
    },
    Row { name: "optional.none", overloads: &[("optional_none", "() -> optional(V)")], body: none },
    Row { name: "value", overloads: &[("optional_value", "optional(V).() -> V")], body: value },
    Row { name: "hasValue", overloads: &[("optional_hasValue", "optional(V).() -> bool")], body: has_value },
    // Which of the two is evaluated is no function's to say: the plan knows these.
    Row {
        name: "or",
        overloads: &[("optional_or_optional", "optional(V).(optional(V)) -> optional(V)")],
        body: unplanned,
    },
    Row {
        name: "orValue",
        overloads: &[("optional_orValue_value", "optional(V).(V) -> V")],
        body: unplanned,
    },
    Row {
        name: "_?._",
        overloads: &[("select_optional_field", "(dyn, string) -> optional(V)")],
        body: unplanned,
    },
    Row {
        name: "_[?_]",
        overloads: &[
            ("list_optindex_optional_int", "(list(V), int) -> optional(V)"),
            ("optional_list_optindex_optional_int", "(optional(list(V)), int) -> optional(V)"),
            ("map_optindex_optional_value", "(map(K, V), K) -> optional(V)"),
            ("optional_map_optindex_optional_value", "(optional(map(K, V)), K) -> optional(V)"),
        ],
        body: unplanned,
    },
    Row {
        name: "optional.unwrap",
        overloads: &[("optional_unwrap", "(list(optional(V))) -> list(V)")],
        body: unwrap,
    },
    Row {
        name: "unwrapOpt",
        overloads: &[("optional_unwrapOpt", "list(optional(V)).() -> list(V)")],
        body: unwrap,
    },
    Row {
        name: "cel.@mapInsert",
        overloads: &[
            ("@mapInsert_map_key_value", "(map(K, V), K, V) -> map(K, V)"),
            ("@mapInsert_map_map", "(map(K, V), map(K, V)) -> map(K, V)"),
        ],
        body: insert,
    },
];

fn unplanned<'a>(_: &mut Context, _: &[Value<'a>]) -> Answer<'a> {
    no_overload()
}

fn of<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    args.first().map_or_else(no_overload, |value| Ok(Value::some(value.clone())))
}

fn of_non_zero<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let Some(value) = args.first() else { return no_overload() };
    Ok(if value.is_zero() { Value::Optional(None) } else { Value::some(value.clone()) })
}

fn none<'a>(_: &mut Context, _: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Optional(None))
}

fn value<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => fail("optional.none() dereference"),
        _ => no_overload(),
    }
}

fn has_value<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => no_overload(),
    }
}

fn unwrap<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list)] = args else { return no_overload() };
    let mut values = Vec::new();
    for element in list.iter() {
        match element {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            _ => return fail("value is not optional"),
        }
    }
    made_list(context, values)
}

/// The map with more entries; none may be there already.
fn insert<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (map, added) = match args {
        [Value::Map(map), key, value] => (map, vec![(key.clone(), value.clone())]),
        [Value::Map(map), Value::Map(added)] => (map, added.entries()),
        _ => return no_overload(),
    };
    context.allocate(map.len().saturating_mul(size_of::<Value<'_>>()))?;
    let mut by_key: BTreeMap<_, _> =
        map.entries().into_iter().filter_map(|(key, value)| Some((key.key()?, value))).collect();
    for (key, value) in added {
        let Some(known) = key.key() else { return fail("unsupported key type") };
        if map.contains(&key) || by_key.insert(known, value).is_some() {
            return fail(format!("insert failed: key {} already exists", shown(&key)));
        }
    }
    Ok(Value::Map(Map::Shared(Arc::new(Entries { by_key, other: None }))))
}
