//! The functions that mutating admission has beside. Source: `k8s.io/apiserver/pkg/cel/library/jsonpatch.go`.

use super::{Answer, Row, made_text, no_overload};
use crate::context::Context;
use crate::value::Value;

pub(super) const ROWS: &[Row] = &[Row {
    name: "jsonpatch.escapeKey",
    overloads: &[("string_jsonpatch_escapeKey_string", "(string) -> string")],
    body: escape,
}];

/// A segment of a JSON pointer.
fn escape<'a>(context: &mut Context, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else { return no_overload() };
    made_text(context, text.replace('~', "~0").replace('/', "~1"))
}
