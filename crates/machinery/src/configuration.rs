//! Files that configure a component.
//!
//! They are read as values first: what a type's decoder of YAML is compiled to is many times its decoder of values. The place
//! of an error is the field's path, which upstream tells, too.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A configuration that is not of its form.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// A text that is no YAML.
    #[error(transparent)]
    Yaml(#[from] Box<serde_saphyr::Error>),
    /// A field that does not fit; the path is empty for the whole.
    #[error("{}{why}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
    Field {
        /// Such as `profiles[0].schedulerName`.
        path: String,
        /// What is expected, and what is there.
        why: serde_json::Error,
    },
}

/// Reads YAML, which JSON is, too.
///
/// # Errors
/// As [`FormError`].
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, FormError> {
    from_value(serde_saphyr::from_str(text).map_err(Box::new)?)
}

/// What is in a value. A field that is null is one that is not there, and null is what has no fields, as Go reads it.
///
/// # Errors
/// [`FormError::Field`].
pub fn from_value<T: DeserializeOwned>(mut value: Value) -> Result<T, FormError> {
    leave_out_nulls(&mut value);
    let value = if value.is_null() { Value::Object(Map::new()) } else { value };
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default();
        FormError::Field { path, why: error.into_inner() }
    })
}

fn leave_out_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(leave_out_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::{Expect, expect};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    #[allow(dead_code, reason = "only whether they can be read is looked at")]
    struct File {
        kind: String,
        time_out: Option<u8>,
        rules: Vec<File>,
        extra: BTreeMap<String, bool>,
    }

    fn check(text: &str, expect: Expect) {
        expect.assert_eq(&match read::<File>(text) {
            Ok(file) => format!("{file:?}"),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        });
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_path() {
        check(
            "{kind: A, timeOut: 5, rules: [{}], extra: {a: true}}",
            expect![[
                r#"File { kind: "A", time_out: Some(5), rules: [File { kind: "", time_out: None, rules: [], extra: {} }], extra: {"a": true} }"#
            ]],
        );
        check(
            "kind: A\nrules:\n- timeOut: soon",
            expect![[r#"rules[0].timeOut: invalid type: string "soon", expected u8"#]],
        );
        check(
            "rules: [{}, {kind: 1}]",
            expect!["rules[1].kind: invalid type: integer `1`, expected a string"],
        );
        check(
            "rules: [{}, {rules: [{timeOut: 256}]}]",
            expect!["rules[1].rules[0].timeOut: invalid value: integer `256`, expected u8"],
        );
        check("timeOut: 1.5", expect!["timeOut: invalid type: floating point `1.5`, expected u8"]);
        check(
            "extra: {a: true, 'b c': no}",
            expect![[r#"File { kind: "", time_out: None, rules: [], extra: {"a": true, "b c": false} }"#]],
        );
        check(
            "rules: [{colour: red}]",
            expect![
                "rules[0].colour: unknown field `colour`, expected one of `kind`, `timeOut`, `rules`, `extra`"
            ],
        );
        check(
            "rules: [nothing]",
            expect![[r#"rules[0]: invalid type: string "nothing", expected struct File"#]],
        );
        check("- kind: A", expect!["[0]: invalid type: map, expected a string"]);
        check("nothing", expect![[r#"invalid type: string "nothing", expected struct File"#]]);
        check("rules: [null]", expect!["rules[0]: invalid type: null, expected struct File"]);
        for nothing in ["", "{}", "null", "# nothing", "kind: null\ntimeOut:\nrules:\nextra:\n"] {
            let file = read::<File>(nothing).expect("a file that says nothing");
            assert_eq!(format!("{file:?}"), format!("{:?}", File::default()));
        }
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_line() {
        check("kind: [", expect!["error: line 1 column 7: unclosed bracket '['"]);
        check(
            "kind: A\nkind: B",
            expect![
                "error: line 2 column 1: duplicate mapping key: kind, set DuplicateKeyPolicy in Options if acceptable"
            ],
        );
        check(
            "kind: A\n---\nkind: B",
            expect![
                "error: line 3 column 1: multiple YAML documents detected; use from_str_multiple or from_str_multiple_with_options"
            ],
        );
        check(&"[".repeat(100_000), expect!["error: line 1 column 256: recursion limit exceeded"]);
    }
}
