//! `FieldsV1`: a set of paths as a JSON object of JSON objects, whose keys are path elements and `.` for the path
//! itself where something is below it.
//!
//! Source: `FieldsV1` of meta/v1; KEP-555.

use serde_json::{Map, Value};

use super::element::{Element, ElementError};
use super::set::Set;

/// The key that says that the path up to here is a member.
const SELF: &str = ".";

/// Reads a set.
///
/// # Errors
/// If a key is no path element.
pub fn decode(fields: &Value) -> Result<Set<'_>, ElementError> {
    match fields {
        Value::Object(map) => children(map),
        _ => Ok(Set::new()),
    }
}

fn children(map: &Map<String, Value>) -> Result<Set<'_>, ElementError> {
    let mut set = Set::new();
    for (key, value) in map.iter().filter(|(key, _)| *key != SELF) {
        let Some(element) = Element::parse(key)? else { continue };
        let (is_member, below) = match value {
            Value::Object(inner) => {
                let below = children(inner)?;
                (below.is_empty() || inner.contains_key(SELF), below)
            }
            _ => (true, Set::new()),
        };
        set.attach(element, is_member, below);
    }
    Ok(set)
}

/// Writes a set.
pub fn encode(set: &Set<'_>) -> Value {
    Value::Object(set.nodes().iter().map(|node| (node.element.to_key(), below(node))).collect())
}

fn below(node: &super::set::Node<'_>) -> Value {
    if node.children.is_empty() {
        return Value::Object(Map::new());
    }
    let mut map: Map<String, Value> =
        node.children.nodes().iter().map(|node| (node.element.to_key(), below(node))).collect();
    if node.is_member {
        map.insert(SELF.to_owned(), Value::Object(Map::new()));
    }
    Value::Object(map)
}

/// A set as JSON text in the order of its elements, which is upstream's: keys by their values, not by their texts.
pub fn in_order(fields: &Value) -> String {
    let mut out = Vec::new();
    write_in_order(fields, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// As [`in_order`], at the end of `out`.
pub fn write_in_order(fields: &Value, out: &mut Vec<u8>) {
    let Value::Object(map) = fields else { return write(fields, out) };
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    // Texts of names are in order already, and nearly all elements are names.
    if map.keys().filter(|key| !key.starts_with("f:")).nth(1).is_some() {
        entries.sort_by(|(left, _), (right, _)| place(left).cmp(&place(right)));
    }
    out.push(b'{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(key, out);
        out.push(b':');
        write_in_order(value, out);
    }
    out.push(b'}');
}

/// Where a key stands: what is no element comes last.
fn place(key: &str) -> (bool, bool, Option<Element<'_>>) {
    let element = Element::parse(key).ok().flatten();
    (key != SELF, element.is_none(), element)
}

fn write(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    // Values that came from JSON always become JSON.
    out.extend(serde_json::to_vec(value).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_are_written_in_upstreams_order() {
        let fields = json!({
            r#"k:{"port":443}"#: {}, r#"k:{"port":80}"#: {}, "i:1": {}, r#"v:"a""#: {}, "v:10": {}, "v:9": {},
            "f:b": {"f:z": {}, ".": {}}, ".": {}, "what": {},
        });
        let expect = r#"{".":{},"f:b":{".":{},"f:z":{}},"k:{\"port\":80}":{},"k:{\"port\":443}":{},"v:9":{},"v:10":{},"v:\"a\"":{},"i:1":{},"what":{}}"#;
        assert_eq!(in_order(&fields), expect);
    }

    fn check(fields: Value, paths: &[&str]) {
        let set = decode(&fields).unwrap();
        assert_eq!(set.paths().iter().map(ToString::to_string).collect::<Vec<_>>(), paths);
        assert_eq!(encode(&set), fields);
    }

    #[test]
    fn a_set_survives_both_ways() {
        check(
            json!({
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:finalizers": {r#"v:"a""#: {}}},
                "f:spec": {"f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}}}},
            }),
            &[
                ".metadata.labels",
                r#".metadata.finalizers[="a"]"#,
                ".metadata.labels.app",
                r#".spec.ports[port=80,protocol="TCP"]"#,
                r#".spec.ports[port=80,protocol="TCP"].port"#,
            ],
        );
        check(json!({}), &[]);
    }

    #[test]
    fn what_is_no_element_is_refused() {
        assert!(decode(&json!({"metadata": {}})).is_err());
        assert!(decode(&json!({"f:metadata": {"k:{": {}}})).is_err());
    }
}
