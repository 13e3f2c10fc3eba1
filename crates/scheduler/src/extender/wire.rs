//! The reading of an extender's answers: as Go reads them, whatever the case of names; what is too long is cut.

use std::collections::BTreeMap;

use serde_json::Value;

/// The longest reason that is passed on.
const REASON_BYTES_MAX: usize = 256;
/// How many reasons there may be; users read them all in one line.
const REASONS_MAX: usize = 16;
/// What is said of a Node about which the extender says nothing, or too much.
pub(super) const REFUSED: &str = "node(s) were refused by an extender";

/// A field, whatever the case of its name; the exact one first.
pub(super) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let fields = object.as_object()?;
    fields.get(name).or_else(|| {
        let mut alike = fields.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        alike.next().map(|(_, value)| value)
    })
}

/// A text; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    field(object, name).and_then(Value::as_str).unwrap_or_default()
}

/// A list; empty if there is none.
pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What is said of each Node that was asked about.
pub(super) fn reasons(given: Option<&Value>, was_asked: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let mut seen: Vec<String> = Vec::new();
    let given = given.and_then(Value::as_object).into_iter().flatten();
    let mut reason = |why: &Value| {
        let why = shortened(why.as_str().unwrap_or_default());
        if seen.contains(&why) {
            return why;
        }
        if seen.len() == REASONS_MAX {
            return REFUSED.to_owned();
        }
        seen.push(why.clone());
        why
    };
    let asked = given.filter(|(node, _)| was_asked(node));
    asked.map(|(node, why)| (node.clone(), reason(why))).collect()
}

/// A text that users read: no longer than may be, in one line.
pub(super) fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(REASON_BYTES_MAX);
    let (start, rest) = text.split_at(end);
    let start: String = start.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if rest.is_empty() { start } else { format!("{start}...") }
}
