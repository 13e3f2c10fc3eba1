//! Operators: arithmetics that tell when they overflow, comparisons across types of numbers, membership, indices.

use std::cmp::Ordering;

use super::{Answer, Row, fail, made_list, made_text, no_overload};
use crate::context::{Context, EvalError};
use crate::types::ListKind;
use crate::value::{List, Moment, Object, Value, number, text};

const ORDERED: &str = "(<bool|int|uint|double|timestamp|duration>, <>) -> bool";
const CROSSED: [(&str, &str); 6] = [
    ("compare_int_uint", "(int, uint) -> bool"),
    ("compare_int_double", "(int, double) -> bool"),
    ("compare_uint_int", "(uint, int) -> bool"),
    ("compare_uint_double", "(uint, double) -> bool"),
    ("compare_double_int", "(double, int) -> bool"),
    ("compare_double_uint", "(double, uint) -> bool"),
];
const COMPARE: &[(&str, &str)] = &[
    ("compare_scalar", ORDERED),
    ("compare_string", "(string, string) -> bool"),
    ("compare_bytes", "(bytes, bytes) -> bool"),
    CROSSED[0],
    CROSSED[1],
    CROSSED[2],
    CROSSED[3],
    CROSSED[4],
    CROSSED[5],
];

pub(super) const ROWS: &[Row] = &[
    // What decides which operands are evaluated at all is no function's to do.
    Row { name: "_?_:_", overloads: &[("conditional", "(bool, A, A) -> A")], body: unplanned },
    Row { name: "_&&_", overloads: &[("logical_and", "(bool, bool) -> bool")], body: unplanned },
    Row { name: "_||_", overloads: &[("logical_or", "(bool, bool) -> bool")], body: unplanned },
    Row {
        name: "@not_strictly_false",
        overloads: &[("not_strictly_false", "(bool) -> bool")],
        body: unplanned,
    },
    Row { name: "!_", overloads: &[("logical_not", "(bool) -> bool")], body: not },
    Row { name: "_==_", overloads: &[("equals", "(A, A) -> bool")], body: equals },
    Row { name: "_!=_", overloads: &[("not_equals", "(A, A) -> bool")], body: differs },
    Row { name: "_<_", overloads: COMPARE, body: less },
    Row { name: "_<=_", overloads: COMPARE, body: at_most },
    Row { name: "_>_", overloads: COMPARE, body: greater },
    Row { name: "_>=_", overloads: COMPARE, body: at_least },
    Row {
        name: "_+_",
        overloads: &[
            ("add_bytes", "(bytes, bytes) -> bytes"),
            ("add_number", "(<double|int|uint>, <>) -> <>"),
            ("add_list", "(list(A), list(A)) -> list(A)"),
            ("add_string", "(string, string) -> string"),
            ("add_duration", "(duration, duration) -> duration"),
            ("add_time", "(duration, timestamp) -> timestamp"),
            ("add_time", "(timestamp, duration) -> timestamp"),
        ],
        body: add,
    },
    Row {
        name: "_-_",
        overloads: &[
            ("subtract", "(<double|int|uint|duration>, <>) -> <>"),
            ("subtract_time", "(timestamp, duration) -> timestamp"),
            ("subtract_time", "(timestamp, timestamp) -> duration"),
        ],
        body: subtract,
    },
    Row { name: "_*_", overloads: &[("multiply", "(<double|int|uint>, <>) -> <>")], body: multiply },
    Row { name: "_/_", overloads: &[("divide", "(<double|int|uint>, <>) -> <>")], body: divide },
    Row { name: "_%_", overloads: &[("modulo", "(<int|uint>, <>) -> <>")], body: modulo },
    Row { name: "-_", overloads: &[("negate", "(<double|int>) -> <>")], body: negate },
    Row {
        name: "_[_]",
        overloads: &[
            ("index_list", "(list(A), int) -> A"),
            ("index_map", "(map(A, B), A) -> B"),
            ("optional_list_index_int", "(optional(list(V)), int) -> optional(V)"),
            ("optional_map_index_value", "(optional(map(K, V)), K) -> optional(V)"),
        ],
        body: indexed,
    },
    Row {
        name: "@in",
        overloads: &[("in_list", "(A, list(A)) -> bool"), ("in_map", "(A, map(A, B)) -> bool")],
        body: is_in,
    },
    Row {
        name: "size",
        overloads: &[
            ("size", "(<bytes|list(A)|map(A, B)|string>) -> int"),
            ("size", "<bytes|list(A)|map(A, B)|string>.() -> int"),
        ],
        body: size,
    },
];

fn unplanned<'a>(_: &mut Context, _: &[Value<'a>]) -> Answer<'a> {
    no_overload()
}

fn not<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Bool(yes)] => Ok(Value::Bool(!yes)),
        _ => no_overload(),
    }
}

fn equals<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [one, other] => Ok(Value::Bool(one.equals(other))),
        _ => no_overload(),
    }
}

fn differs<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [one, other] => Ok(Value::Bool(!one.equals(other))),
        _ => no_overload(),
    }
}

fn compared<'a>(args: &[Value<'a>], holds: fn(Ordering) -> bool) -> Answer<'a> {
    let [one, other] = args else { return no_overload() };
    match one.order(other) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if [one, other]
            .iter()
            .any(|number| matches!(number, Value::Double(number) if number.is_nan())) =>
        {
            fail("NaN values cannot be ordered")
        }
        None => no_overload(),
    }
}

fn less<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    compared(args, Ordering::is_lt)
}

fn at_most<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    compared(args, Ordering::is_le)
}

fn greater<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    compared(args, Ordering::is_gt)
}

fn at_least<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    compared(args, Ordering::is_ge)
}

fn int<'a>(number: Option<i64>) -> Answer<'a> {
    number.map(Value::Int).ok_or_else(|| EvalError::from("integer overflow"))
}

fn uint<'a>(number: Option<u64>) -> Answer<'a> {
    number.map(Value::Uint).ok_or_else(|| EvalError::from("unsigned integer overflow"))
}

fn duration<'a>(nanos: Option<i64>) -> Answer<'a> {
    nanos.map(Value::Duration).ok_or_else(|| EvalError::from("duration overflow"))
}

/// A moment so many nanoseconds later.
fn later<'a>(moment: Moment, nanos: Option<i64>) -> Answer<'a> {
    let moment = nanos.and_then(|nanos| moment.later(nanos));
    moment.map(Value::Timestamp).ok_or_else(|| EvalError::from("timestamp overflow"))
}

pub(super) fn add<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [one, other] = args else { return no_overload() };
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => int(one.checked_add(*other)),
        (Value::Uint(one), Value::Uint(other)) => uint(one.checked_add(*other)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(one + other)),
        (Value::Duration(one), Value::Duration(other)) => duration(one.checked_add(*other)),
        (Value::Timestamp(moment), Value::Duration(nanos))
        | (Value::Duration(nanos), Value::Timestamp(moment)) => later(*moment, Some(*nanos)),
        (Value::String(one), Value::String(other)) => made_text(context, format!("{}{}", &**one, &**other)),
        (Value::Bytes(one), Value::Bytes(other)) => {
            context.allocate(one.len().saturating_add(other.len()))?;
            Ok(Value::Bytes([&**one, &**other].concat().into()))
        }
        (Value::List(one), Value::List(other)) => joined(context, one, other),
        _ => no_overload(),
    }
}

/// Both lists; of sets and lists by keys, what both have once, as `x-kubernetes-list-type` says of the first.
fn joined<'a>(context: &mut Context, one: &List<'a>, other: &List<'a>) -> Answer<'a> {
    let mut elements: Vec<Value<'a>> = one.iter().collect();
    match one.kind() {
        ListKind::Atomic => elements.extend(other.iter()),
        ListKind::Set => {
            let key_of = |element: &Value<'a>| crate::value::set_key(element).unwrap_or_default();
            let mut known: std::collections::HashSet<String> = elements.iter().map(key_of).collect();
            elements.extend(other.iter().filter(|element| known.insert(key_of(element))));
        }
        ListKind::Map(keys) => {
            let key_of = |element: &Value<'a>| crate::value::key_of(element, keys);
            let mut places: std::collections::HashMap<String, usize> =
                elements.iter().enumerate().map(|(place, element)| (key_of(element), place)).collect();
            for element in other.iter() {
                match places.get(&key_of(&element)).and_then(|place| elements.get_mut(*place)) {
                    Some(known) => *known = element,
                    None => {
                        places.insert(key_of(&element), elements.len());
                        elements.push(element);
                    }
                }
            }
        }
    }
    match one.kind() {
        ListKind::Atomic => made_list(context, elements),
        kind => {
            context.allocate(elements.len().saturating_mul(size_of::<Value<'_>>()))?;
            Ok(Value::List(List::Kept { elements: elements.into(), kind }))
        }
    }
}

fn subtract<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [one, other] = args else { return no_overload() };
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => int(one.checked_sub(*other)),
        (Value::Uint(one), Value::Uint(other)) => uint(one.checked_sub(*other)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(one - other)),
        (Value::Duration(one), Value::Duration(other)) => duration(one.checked_sub(*other)),
        (Value::Timestamp(moment), Value::Duration(nanos)) => later(*moment, nanos.checked_neg()),
        (Value::Timestamp(one), Value::Timestamp(other)) => {
            duration(i64::try_from(one.nanos() - other.nanos()).ok())
        }
        _ => no_overload(),
    }
}

fn multiply<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Int(one), Value::Int(other)] => int(one.checked_mul(*other)),
        [Value::Uint(one), Value::Uint(other)] => uint(one.checked_mul(*other)),
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one * other)),
        _ => no_overload(),
    }
}

fn divide<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => fail("division by zero"),
        [Value::Int(one), Value::Int(other)] => int(one.checked_div(*other)),
        [Value::Uint(one), Value::Uint(other)] => uint(one.checked_div(*other)),
        [Value::Double(one), Value::Double(other)] => Ok(Value::Double(one / other)),
        _ => no_overload(),
    }
}

fn modulo<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => fail("modulus by zero"),
        [Value::Int(one), Value::Int(other)] => int(one.checked_rem(*other)),
        [Value::Uint(one), Value::Uint(other)] => uint(one.checked_rem(*other)),
        _ => no_overload(),
    }
}

fn negate<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Int(number)] => int(number.checked_neg()),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        [Value::Duration(nanos)] => duration(nanos.checked_neg()),
        _ => no_overload(),
    }
}

fn size<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [
            value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::Object(_)),
        ] => int(i64::try_from(value.size()).ok()),
        _ => no_overload(),
    }
}

fn is_in<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [value, container] => contains(container, value).map(Value::Bool),
        _ => no_overload(),
    }
}

/// Whether a list has an element, or a map a key.
fn contains<'a>(container: &Value<'a>, value: &Value<'a>) -> Result<bool, EvalError> {
    match container {
        Value::List(list) => Ok(list.iter().any(|element| element.equals(value))),
        Value::Map(map) => Ok(map.contains(value)),
        Value::Object(object) => match value {
            Value::String(name) => Ok(object.field(name).is_some()),
            _ => Ok(false),
        },
        _ => Err(EvalError::NoOverload),
    }
}

fn indexed<'a>(_: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [container, key] => index(container, key)?.map_or_else(no_overload, Ok),
        _ => no_overload(),
    }
}

/// What stands at an index or a key.
///
/// # Errors
/// There is no such index, key, field, or container.
pub(crate) fn index<'a>(container: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
    let found = match (container, key) {
        (Value::List(list), key) => {
            let place = match key {
                Value::Int(place) => Some(*place),
                Value::Uint(place) => i64::try_from(*place).ok(),
                Value::Double(place) => number::whole(*place),
                other => return Err(format!("unsupported index type '{}' in list", other.type_name()).into()),
            };
            let Some(place) = place else {
                return Err(format!("unsupported index value {} in list", shown(key)).into());
            };
            let found = usize::try_from(place).ok().and_then(|place| list.get(place));
            return found.map(Some).ok_or_else(|| EvalError::from(format!("index out of bounds: {place}")));
        }
        (Value::Map(map), key) => map.get(key),
        (Value::Object(object), Value::String(name)) => object_field(object, name)?,
        _ => return Err(EvalError::NoOverload),
    };
    match found {
        Some(value) => Ok(Some(value)),
        None => Err(format!("no such key: {}", shown(key)).into()),
    }
}

fn object_field<'a>(object: &Object<'a>, name: &str) -> Result<Option<Value<'a>>, EvalError> {
    match object.field(name) {
        Some(value) => Ok(Some(value)),
        None if matches!(object, Object::Json { .. }) => Ok(None),
        None => Err(format!("no such field '{name}'").into()),
    }
}

/// A key as messages show it.
pub(crate) fn shown(key: &Value<'_>) -> String {
    match key {
        Value::String(text) => text.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Bool(yes) => yes.to_string(),
        Value::Double(number) => text::double_text(*number, 21),
        other => other.type_name().to_string(),
    }
}
