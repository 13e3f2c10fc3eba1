//! The merge of a mutating policy's configuration into an object: it is merged as an applied one is, but nobody comes
//! to own anything by it, nothing is removed, and nothing atomic may be named: all else in that would be lost.
//!
//! Source: `ApplyStructuredMergeDiff` of `k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch`.

use schema::SchemaRef;
use serde_json::Value;

use super::merge::merge;
use super::typed::{Atom, Typed, Values};
use super::{ApplyError, field_set, listed};

/// Merges a configuration into an object of this schema.
///
/// # Errors
/// If the configuration does not fit the schema, or names something atomic.
pub fn merge_unowned(schema: SchemaRef<'_>, live: &Value, config: &Value) -> Result<Value, ApplyError> {
    let root = Typed::root(schema);
    let problems = field_set::problems(root, config);
    if !problems.is_empty() {
        let why = format!("failed to convert patch object to typed object: {}", listed(&problems));
        return Err(ApplyError::Invalid(why));
    }
    let mut found = Vec::new();
    atomics(root, config, "", &mut found);
    if !found.is_empty() {
        let paths = found.join(", ");
        let why =
            format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}");
        return Err(ApplyError::Invalid(why));
    }
    Ok(merge(root, live, config))
}

/// The paths of all values that are only replaced as a whole. Entries of maps are not looked at, as upstream.
fn atomics(typed: Typed<'_>, value: &Value, path: &str, found: &mut Vec<String>) {
    let is_atomic = match (typed.values(), value) {
        (Values::Any, value) => value.is_array(),
        (Values::Object(_) | Values::Map(_), Value::Object(_)) | (Values::List(_), Value::Array(_)) => {
            matches!(typed.atom(), Atom::Leaf)
        }
        _ => return,
    };
    if is_atomic {
        found.push(path.to_owned());
    }
    match (typed.values(), value) {
        (Values::Object(schema), Value::Object(members)) => {
            for (name, value) in members {
                if let Some(item) = Typed::named(schema, name) {
                    atomics(item, value, &format!("{path}.{name}"), found);
                }
            }
        }
        (Values::List(item), Value::Array(items)) => {
            for (index, value) in items.iter().enumerate() {
                atomics(item, value, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: (&str, &str, &str), live: Value, config: Value, expected: Result<Value, &str>) {
        let (group, version, name) = kind;
        let schema = schema::builtin().kind(group, version, name).unwrap();
        let merged = merge_unowned(schema, &live, &config);
        let merged = merged.map_err(|error| error.to_string());
        assert_eq!(merged, expected.map_err(str::to_owned), "{config}");
    }

    const POD: (&str, &str, &str) = ("", "v1", "Pod");

    #[test]
    fn lists_and_maps_merge_by_their_keys() {
        check(
            POD,
            json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x"]}, "spec": {
                "containers": [{"name": "web", "image": "one", "env": [{"name": "A", "value": "1"}]}],
                "nodeSelector": null,
            }}),
            json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["y"]}, "spec": {
                "containers": [
                    {"name": "sidecar", "image": "two"},
                    {"name": "web", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]},
                ],
            }}),
            Ok(json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]}, "spec": {
                "containers": [
                    {"name": "sidecar", "image": "two"},
                    {"name": "web", "image": "one", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]},
                ],
                "nodeSelector": null,
            }})),
        );
    }

    #[test]
    fn what_is_null_names_nothing_but_scalars() {
        check(
            ("apps", "v1", "Deployment"),
            json!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": 3, "paused": true}}),
            json!({"metadata": {"labels": null}, "spec": {"replicas": null}}),
            Ok(json!({"metadata": {"labels": {"a": "1"}}, "spec": {"replicas": null, "paused": true}})),
        );
        check(
            POD,
            json!({"spec": {"hostname": "x"}}),
            json!({"spec": null}),
            Ok(json!({"spec": {"hostname": "x"}})),
        );
        check(POD, json!({"spec": {"hostname": "x"}}), json!({}), Ok(json!({"spec": {"hostname": "x"}})));
    }

    #[test]
    fn what_is_atomic_may_not_be_named() {
        let refused = |kind, config: Value, paths: &str| {
            let text =
                format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}");
            check(kind, json!({}), config, Err(&text));
        };
        refused(
            POD,
            json!({"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "a", "command": ["x"]}]}}),
            ".spec.containers[0].command, .spec.nodeSelector",
        );
        refused(
            ("apps", "v1", "Deployment"),
            json!({"spec": {"selector": {"matchLabels": {}}}}),
            ".spec.selector",
        );
        refused(("", "v1", "Service"), json!({"spec": {"selector": {}}}), ".spec.selector");
        refused(POD, json!({"spec": {"tolerations": []}}), ".spec.tolerations");
        refused(
            ("networking.k8s.io", "v1", "Ingress"),
            json!({"spec": {"defaultBackend": {"resource": {"kind": "x", "name": "y"}}}}),
            ".spec.defaultBackend.resource",
        );
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_refused() {
        let refused = |config: Value, why: &str| {
            let text = format!("failed to convert patch object to typed object: {why}");
            check(POD, json!({}), config, Err(&text));
        };
        refused(json!({"spec": {"colour": 1}}), ".spec.colour: field not declared in schema");
        refused(json!({"spec": 1}), ".spec: expected map, got &{1}");
        refused(
            json!({"spec": {"containers": [{"name": "a"}, {"name": "a"}], "priority": "x"}}),
            "errors:\n  .spec.containers: duplicate entries for key [name=\"a\"]\n  .spec.priority: expected numeric (int \
             or float), got string",
        );
        refused(
            json!({"spec": {"containers": [{"image": "a"}]}}),
            ".spec.containers: element 0: associative list with keys has an element that omits all key fields [\"name\"] \
             (and doesn't have default values for any key fields)",
        );
    }
}
