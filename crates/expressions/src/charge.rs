//! The costs of calls at run time, by their arguments.
//!
//! Source: cel-go's `interpreter/runtimecost.go`; `k8s.io/apiserver/pkg/cel/library/cost.go` (`CallCost`); cel-go's
//! `ext/lists.go`, version 3.

use crate::value::{Map, NamedFormat, Object, Value};

/// An authorizer's answer: two are all that an expression can afford.
pub(crate) const CHECK: u64 = 350_000;
pub(crate) const LIST_MADE: u64 = 10;
pub(crate) const MAP_MADE: u64 = 30;
pub(crate) const OBJECT_MADE: u64 = 40;
/// What going through a text costs, by character.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// What a regular expression costs, by character.
pub(crate) const REGEX: f64 = 0.25;

/// A size times a factor, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream, which reckons in doubles; the cast saturates"
)]
pub(crate) fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// What a call has cost. `args` has a member's target first.
pub(crate) fn call(function: &str, overload: Option<&str>, args: &[Value<'_>], result: &Value<'_>) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Value::size);
    list_call(overload, args, result).unwrap_or_else(|| match function {
        "check" => CHECK,
        "fieldSelector" | "labelSelector" => selector(size(1)),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal),
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => scaled(size(0), TRAVERSAL),
        "replace" | "split" | "ip.isCanonical" => scaled(size(0), 2.0 * TRAVERSAL),
        "join" => scaled(result.size(), 2.0 * TRAVERSAL),
        "find" | "findAll" => regex(size(0), size(1)),
        "ip" if overload == Some("cidr_ip") => 1,
        "ip" => scaled(size(0), TRAVERSAL),
        "containsIP" => {
            let parsed =
                if overload == Some("cidr_contains_ip_string") { scaled(size(1), TRAVERSAL) } else { 0 };
            scaled(size(0) * 2, TRAVERSAL) + parsed
        }
        "containsCIDR" => {
            let parsed =
                if overload == Some("cidr_contains_cidr_string") { scaled(size(1), TRAVERSAL) } else { 0 };
            scaled(size(0) * 2, TRAVERSAL) + scaled(size(0), TRAVERSAL) + 1 + parsed
        }
        "validate" => match args.first() {
            Some(Value::Format(NamedFormat { pattern_size, .. })) => regex(size(1), *pattern_size),
            _ => 1,
        },
        _ => standard(overload, args),
    })
}

/// Functions of the language itself, by overload; when it is not known which it is, everything costs 1.
fn standard(overload: Option<&str>, args: &[Value<'_>]) -> u64 {
    let size = |index: usize| args.get(index).map_or(1, Value::size);
    match overload {
        Some(
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format",
        ) => scaled(size(0), TRAVERSAL),
        Some("in_list") => size(1),
        Some("compare_string" | "compare_bytes") => scaled(size(0).min(size(1)), TRAVERSAL),
        Some("add_string" | "add_bytes") => scaled(size(0).saturating_add(size(1)), TRAVERSAL),
        Some("matches_string") => regex(size(0), size(1)),
        Some("contains_string") => scaled(size(0), TRAVERSAL).saturating_mul(scaled(size(1), TRAVERSAL)),
        _ => 1,
    }
}

/// What a comparison of two values costs.
pub(crate) fn equality(one: &Value<'_>, other: &Value<'_>) -> u64 {
    match one {
        Value::Quantity(_)
        | Value::Ip(_)
        | Value::Cidr(_)
        | Value::Format(_)
        | Value::Url(_)
        | Value::Semver(_)
        | Value::Authorizer(_)
        | Value::PathCheck(_)
        | Value::GroupCheck(_)
        | Value::ResourceCheck(_)
        | Value::Decision(_) => 1,
        // Sizes of texts count characters, which takes as long as to compare them: bytes bound them.
        _ => scaled(one.size().min(other.size()), TRAVERSAL),
    }
}

fn regex(text: u64, pattern: u64) -> u64 {
    scaled(text.saturating_add(1), TRAVERSAL).saturating_mul(scaled(pattern, REGEX))
}

/// A selector is read, and has a requirement for every two characters at most.
pub(crate) fn selector(length: u64) -> u64 {
    LIST_MADE + scaled(length, TRAVERSAL) + scaled(length, 0.5).saturating_mul(LIST_MADE + OBJECT_MADE)
}

/// Lists that are made.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as upstream, which reckons in doubles; the cast saturates"
)]
fn list_call(overload: Option<&str>, args: &[Value<'_>], result: &Value<'_>) -> Option<u64> {
    let size = |index: usize| args.get(index).map_or(1, Value::size);
    let compared = |index: usize| {
        let first = match args.get(index) {
            Some(Value::List(list)) => list.get(0),
            _ => None,
        };
        let is_text = matches!(first, Some(Value::String(_) | Value::Bytes(_)));
        (if is_text { 2.0 + TRAVERSAL } else { 2.0 }, size(index).saturating_mul(size(index)))
    };
    if let Some("list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list") =
        overload
    {
        let factor = if overload == Some("list_sets_equivalent_list") { 2 } else { 1 };
        return Some(size(0).saturating_mul(size(1)).saturating_mul(factor).saturating_add(1));
    }
    let (factor, size) = match overload? {
        "list_slice" | "lists_range" | "list_reverse" => (1.0, result.size()),
        "list_flatten" => (1.0, size(0)),
        "list_flatten_int" => match args.get(1) {
            Some(Value::Int(depth)) => (*depth as f64, size(0)),
            _ => (1.0, size(0)),
        },
        "list_distinct" | "list_sort" => compared(0),
        "list_sort_by" => compared(1),
        _ => return None,
    };
    Some(((size as f64 * factor) as u64).saturating_add(LIST_MADE + 1))
}

/// What going through a value and all that is in it costs.
fn traversal(value: &Value<'_>) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "as upstream, which reckons in doubles"
    )]
    let of_bytes = |bytes: usize| (bytes as f64 * TRAVERSAL) as u64;
    let inner = |value: &Value<'_>| stacker::maybe_grow(64 << 10, 1 << 20, || traversal(value));
    let entries = |map: &Map<'_>| {
        map.entries()
            .iter()
            .fold(0_u64, |sum, (key, value)| sum.saturating_add(inner(key)).saturating_add(inner(value)))
    };
    match value {
        Value::String(text) => of_bytes(text.len()),
        Value::Bytes(bytes) => of_bytes(bytes.len()),
        Value::List(list) => list.iter().fold(0_u64, |sum, element| sum.saturating_add(inner(&element))),
        Value::Map(map) => entries(map),
        Value::Object(Object::Json { members, .. }) => entries(&Map::Json { members, value: None }),
        _ => 1,
    }
}
