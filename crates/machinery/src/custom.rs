//! Findings of the validation walk about objects of custom kinds, as field errors.
//!
//! Source: `kubeOpenAPIResultToFieldErrors` and `schema/objectmeta` of `k8s.io/apiextensions-apiserver/pkg/apiserver`.

use schema::rules::violation::{Problem, Violation};
use schema::walk::validate::Findings;
use serde_json::{Map, Value};

use crate::field::{FieldError, FieldErrors, Path};
use crate::names;

/// The errors of an object: what its schema says, what resources within it say of themselves, and what comes twice.
///
/// The metadata of resources within is for the caller to check.
pub fn errors(findings: Findings<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    errors.extend(findings.violations.into_iter().map(FieldError::from));
    for (path, object) in &findings.resources {
        errors.extend(resource(path, object));
    }
    errors.extend(findings.repeated.into_iter().map(FieldError::from));
    errors.leave_out(findings.left_out);
    errors
}

impl From<Violation> for FieldError {
    fn from(violation: Violation) -> Self {
        let Violation { path, problem, value, detail, max, supported } = violation;
        let path = Path::new(&path);
        let length = usize::try_from(max).unwrap_or_default();
        match problem {
            Problem::Required => Self::required(&path, &detail),
            Problem::Invalid => Self::invalid(&path, &value, &detail),
            Problem::TypeInvalid => Self::type_invalid(&path, &value, &detail),
            Problem::NotSupported => {
                let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
                Self::not_supported(&path, &value, &supported)
            }
            Problem::TooLong => Self::too_long(&path, length),
            Problem::TooMany => {
                let items = value.as_u64().and_then(|items| usize::try_from(items).ok());
                Self::too_many(&path, items.unwrap_or_default(), length)
            }
            Problem::Duplicate => Self::duplicate(&path, &value),
            Problem::Forbidden => Self::forbidden(&path, &detail),
        }
    }
}

/// The errors of a resource within an object that does not say what it is.
pub fn resource(path: &str, object: &Map<String, Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let path = if path.is_empty() { Path::default() } else { Path::new(path) };
    for (name, rule) in [("apiVersion", api_version as fn(&str) -> Option<String>), ("kind", kind)] {
        let path = path.child(name);
        let Some(value) = object.get(name) else {
            errors.push(FieldError::required(&path, ""));
            continue;
        };
        let why = match value.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => Some("must not be empty".to_owned()),
            Some(text) => rule(text),
        };
        errors.extend(why.map(|why| FieldError::invalid(&path, value, &why)));
    }
    errors
}

fn api_version(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind(text: &str) -> Option<String> {
    let broken = names::dns1035_label(&text.to_lowercase());
    let why = || format!("may have mixed case, but should otherwise match: {}", broken.join(","));
    (!broken.is_empty()).then(why)
}

#[cfg(test)]
mod tests {
    use schema::build::{Source, build};
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_of_custom_objects_read_as_upstream_prints_them() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["name"], "properties": {
            "replicas": {"type": "integer", "maximum": 10},
            "mode": {"enum": ["a", "b"], "type": "string"},
            "name": {"type": "string", "maxLength": 3},
            "few": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true},
        }}}});
        let source = Source {
            group: "example.com",
            version: "v1",
            kind: "Foo",
            list_kind: "FooList",
            plural: "foos",
            path: "",
            schema: &schema,
        };
        let schemas = build(&source).expect("a schema");
        let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
        let cases = [
            (
                json!({"replicas": 11, "name": "a"}),
                "spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10",
            ),
            (
                json!({"replicas": "x", "name": "a"}),
                r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#,
            ),
            (
                json!({"mode": "x", "name": "a"}),
                r#"spec.mode: Unsupported value: "x": supported values: "a", "b""#,
            ),
            (json!({}), "spec.name: Required value"),
            (json!({"name": "abcd"}), "spec.name: Too long: may not be more than 3 bytes"),
            (json!({"name": "a", "few": ["a", "b"]}), "spec.few: Too many: 2: must have at most 1 item"),
            (json!({"name": "a", "set": ["a", "a"]}), r#"spec.set[1]: Duplicate value: "a""#),
            (
                json!({"name": "a", "one": {"a": "", "b": ""}}),
                r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ),
            (
                json!({"name": "a", "inner": {"apiVersion": "a/b/c", "kind": "K"}}),
                r#"spec.inner.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            ),
            (json!({"name": "a", "inner": {"apiVersion": "v1"}}), "spec.inner.kind: Required value"),
        ];
        for (spec, text) in cases {
            let object = json!({"spec": spec});
            let found = errors(schema::walk::validate::validate(kind, &object));
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(texts, [text]);
        }
    }
}
