//! Lists: sums, extremes, order, parts.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library/lists.go`; cel-go's `ext/lists.go`, version 3.

use std::cmp::Ordering;

use super::{Answer, Row, fail, made_list, no_overload, operators};
use crate::context::{Context, EvalError};
use crate::value::{List, Value};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "isSorted",
        overloads: &[(
            "is_sorted",
            "list(<int|uint|double|bool|duration|timestamp|string|bytes>).() -> bool",
        )],
        body: is_sorted,
    },
    Row { name: "sum", overloads: &[("sum", "list(<int|uint|double|duration>).() -> <>")], body: sum },
    Row {
        name: "max",
        overloads: &[("max", "list(<int|uint|double|bool|duration|timestamp|string|bytes>).() -> <>")],
        body: max,
    },
    Row {
        name: "min",
        overloads: &[("min", "list(<int|uint|double|bool|duration|timestamp|string|bytes>).() -> <>")],
        body: min,
    },
    Row { name: "slice", overloads: &[("list_slice", "list(T).(int, int) -> list(T)")], body: slice },
    Row {
        name: "flatten",
        overloads: &[
            ("list_flatten", "list(list(T)).() -> list(T)"),
            ("list_flatten_int", "list(dyn).(int) -> list(dyn)"),
        ],
        body: flatten,
    },
    Row {
        name: "sort",
        overloads: &[(
            "list_sort",
            "list(<int|uint|double|bool|duration|timestamp|string|bytes>).() -> list(<>)",
        )],
        body: sort,
    },
    Row {
        name: "@sortByAssociatedKeys",
        overloads: &[(
            "list_sort_by",
            "list(T).(list(<int|uint|double|bool|duration|timestamp|string|bytes>)) -> list(T)",
        )],
        body: sort_by,
    },
    Row { name: "lists.range", overloads: &[("lists_range", "(int) -> list(int)")], body: range },
    Row { name: "reverse", overloads: &[("list_reverse", "list(T).() -> list(T)")], body: reverse },
    Row { name: "distinct", overloads: &[("list_distinct", "list(T).() -> list(T)")], body: distinct },
    Row { name: "first", overloads: &[("list_first", "list(V).() -> optional(V)")], body: first },
    Row { name: "last", overloads: &[("list_last", "list(V).() -> optional(V)")], body: last },
];

fn list<'s, 'a>(args: &'s [Value<'a>]) -> Result<&'s List<'a>, EvalError> {
    match args {
        [Value::List(list)] => Ok(list),
        _ => Err(EvalError::NoOverload),
    }
}

fn order<'a>(one: &Value<'a>, other: &Value<'a>) -> Result<Ordering, EvalError> {
    one.order(other).ok_or(EvalError::NoOverload)
}

fn is_sorted<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let list = list(args)?;
    for (one, other) in list.iter().zip(list.iter().skip(1)) {
        if order(&one, &other)?.is_gt() {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let mut elements = list(args)?.iter();
    let Some(first) = elements.next() else {
        // Of an empty list of what, only its type says; numbers of all types are equal to this one.
        return Ok(context.zero.clone());
    };
    if !matches!(first, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) {
        return no_overload();
    }
    elements.try_fold(first, |sum, element| operators::add(context, &[sum, element]))
}

fn extreme<'a>(args: &[Value<'a>], name: &str, wanted: Ordering) -> Answer<'a> {
    let mut elements = list(args)?.iter();
    let Some(mut best) = elements.next() else { return fail(format!("{name} called on empty list")) };
    if !best.is_comparable() {
        return no_overload();
    }
    for element in elements {
        if order(&element, &best)? == wanted {
            best = element;
        }
    }
    Ok(best)
}

fn max<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    extreme(args, "max", Ordering::Greater)
}

fn min<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    extreme(args, "min", Ordering::Less)
}

fn slice<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list), Value::Int(begin), Value::Int(end)] = args else { return no_overload() };
    let (Ok(first), Ok(last)) = (usize::try_from(*begin), usize::try_from(*end)) else {
        return fail(format!("cannot slice({begin}, {end}), negative indexes not supported"));
    };
    if first > last {
        return fail(format!(
            "cannot slice({begin}, {end}), start index must be less than or equal to end index"
        ));
    }
    if last > list.len() {
        return fail(format!("cannot slice({begin}, {end}), list is length {}", list.len()));
    }
    made_list(context, list.iter().skip(first).take(last - first).collect())
}

fn flatten<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return no_overload(),
    };
    if depth < 0 {
        return fail("level must be non-negative");
    }
    let mut flat = Vec::new();
    flattened(context, list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flattened<'a>(
    context: &mut Context,
    list: &List<'a>,
    depth: i64,
    flat: &mut Vec<Value<'a>>,
) -> Result<(), EvalError> {
    context.allocate(list.len().saturating_mul(size_of::<Value<'_>>()))?;
    for element in list.iter() {
        match element {
            Value::List(inner) if depth > 0 => {
                stacker::maybe_grow(64 << 10, 1 << 20, || flattened(context, &inner, depth - 1, flat))?;
            }
            other => flat.push(other),
        }
    }
    Ok(())
}

fn sort<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let list = list(args)?;
    sorted(context, list, list)
}

fn sort_by<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list), Value::List(keys)] = args else { return no_overload() };
    sorted(context, list, keys)
}

fn sorted<'a>(context: &mut Context, list: &List<'a>, keys: &List<'a>) -> Answer<'a> {
    let (count, known) = (list.len(), keys.len());
    if count != known {
        return fail(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {count} \
             and {known} elements respectively"
        ));
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(list.iter()).collect();
    if let Some((first, _)) = pairs.first() {
        if !first.is_comparable() {
            return fail("list elements must be comparable");
        }
        let kind = std::mem::discriminant(first);
        if pairs.iter().any(|(key, _)| std::mem::discriminant(key) != kind) {
            return fail("list elements must have the same type");
        }
    }
    pairs.sort_by(|(one, _), (other, _)| one.order(other).unwrap_or(Ordering::Equal));
    made_list(context, pairs.into_iter().map(|(_, element)| element).collect())
}

fn range<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Int(count)] = args else { return no_overload() };
    // Before it is made.
    let bytes = usize::try_from(*count).unwrap_or(0).saturating_mul(size_of::<Value<'_>>());
    context.allocate(bytes)?;
    Ok(Value::list((0..*count).map(Value::Int).collect()))
}

fn reverse<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let list = list(args)?;
    made_list(context, list.iter().rev().collect())
}

fn distinct<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for element in list(args)?.iter() {
        if !unique.iter().any(|known| known.equals(&element)) {
            unique.push(element);
        }
    }
    made_list(context, unique)
}

fn first<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Optional(list(args)?.get(0).map(Into::into)))
}

fn last<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let list = list(args)?;
    Ok(Value::Optional(list.len().checked_sub(1).and_then(|last| list.get(last)).map(Into::into)))
}
