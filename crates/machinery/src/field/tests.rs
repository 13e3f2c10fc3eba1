use super::*;

#[test]
fn errors_read_as_upstream_prints_them() {
    let path = Path::new("spec").child("containers").index(0).child("name");
    let cases = [
        (
            FieldError::invalid(&path, "A\"b", "must be lower case"),
            r#"spec.containers[0].name: Invalid value: "A\"b": must be lower case"#,
        ),
        (
            FieldError::invalid(&path, -1, "must be greater than or equal to 0"),
            "spec.containers[0].name: Invalid value: -1: must be greater than or equal to 0",
        ),
        (FieldError::required(&path, ""), "spec.containers[0].name: Required value"),
        (
            FieldError::not_supported(&path, "x", &["A", "B"]),
            r#"spec.containers[0].name: Unsupported value: "x": supported values: "A", "B""#,
        ),
        (FieldError::duplicate(&path, "x"), r#"spec.containers[0].name: Duplicate value: "x""#),
        (FieldError::too_long(&path, 63), "spec.containers[0].name: Too long: may not be more than 63 bytes"),
        (
            FieldError::invalid(&path, &serde_json::json!({"a": 1}), "field is immutable"),
            r#"spec.containers[0].name: Invalid value: {"a":1}: field is immutable"#,
        ),
    ];
    for (error, text) in cases {
        assert_eq!(error.to_string(), text);
    }
}

/// Source: `TestErrorFormatting` of upstream's `util/validation/field`.
#[test]
fn every_kind_of_error_has_its_words() {
    let at = Path::new("path.to.field");
    let shown = |value: serde_json::Value| FieldError::invalid(&at, &value, "the details");
    for (error, reason, text) in [
        (FieldError::required(&at, "the details"), "FieldValueRequired", "Required value: the details"),
        (FieldError::forbidden(&at, "the details"), "FieldValueForbidden", "Forbidden: the details"),
        (FieldError::forbidden(&at, ""), "FieldValueForbidden", "Forbidden"),
        (FieldError::too_long(&at, 1), "FieldValueTooLong", "Too long: may not be more than 1 byte"),
        (FieldError::too_long(&at, 2), "FieldValueTooLong", "Too long: may not be more than 2 bytes"),
        (FieldError::too_long(&at, 0), "FieldValueTooLong", "Too long: may not be more than 0 bytes"),
        (FieldError::too_many(&at, 2, 1), "FieldValueTooMany", "Too many: 2: must have at most 1 item"),
        (FieldError::too_many(&at, 3, 2), "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
        (FieldError::internal(&at, "the error"), "InternalError", "Internal error: the error"),
        (
            FieldError::invalid(&at, "the value", "the details"),
            "FieldValueInvalid",
            "Invalid value: \"the value\": the details",
        ),
        (
            FieldError::invalid(&at, -42, "the details"),
            "FieldValueInvalid",
            "Invalid value: -42: the details",
        ),
        (
            FieldError::invalid(&at, true, "the details"),
            "FieldValueInvalid",
            "Invalid value: true: the details",
        ),
        (
            shown(serde_json::json!(["one", "two"])),
            "FieldValueInvalid",
            "Invalid value: [\"one\",\"two\"]: the details",
        ),
        (
            shown(serde_json::json!({"a": true})),
            "FieldValueInvalid",
            "Invalid value: {\"a\":true}: the details",
        ),
        (shown(serde_json::json!("x\ty")), "FieldValueInvalid", "Invalid value: \"x\\ty\": the details"),
        (
            FieldError::invalid(&at, None, "the details"),
            "FieldValueInvalid",
            "Invalid value: null: the details",
        ),
        (FieldError::invalid_unshown(&at, "the details"), "FieldValueInvalid", "Invalid value: the details"),
        (
            FieldError::type_invalid(&at, "a", "the details"),
            "FieldValueTypeInvalid",
            "Invalid value: \"a\": the details",
        ),
        (FieldError::not_supported(&at, "v", &[]), "FieldValueNotSupported", "Unsupported value: \"v\""),
        (
            FieldError::not_supported(&at, "v", &["a"]),
            "FieldValueNotSupported",
            "Unsupported value: \"v\": supported values: \"a\"",
        ),
        (FieldError::duplicate(&at, "v"), "FieldValueDuplicate", "Duplicate value: \"v\""),
        (FieldError::duplicate_unshown(&at), "FieldValueDuplicate", "Duplicate value"),
        (FieldError::not_found(&at, "v"), "FieldValueNotFound", "Not found: \"v\""),
    ] {
        assert_eq!((error.to_string(), error.reason.as_str()), (format!("path.to.field: {text}"), reason));
    }
}

/// Source: `TestPath`, `TestPathMultiArg`.
#[test]
fn paths_are_written_as_upstream_writes_them() {
    let path = Path::new("a").child("b").child("c");
    for (path, text) in [
        (Path::default(), "<nil>"),
        (Path::new("x"), "x"),
        (Path::default().child("x"), "x"),
        (path.clone(), "a.b.c"),
        (path.index(0), "a.b.c[0]"),
        (path.index(1).child("y"), "a.b.c[1].y"),
        (path.key("k"), "a.b.c[k]"),
        (path.key("a/b.c").child("z").index(2), "a.b.c[a/b.c].z[2]"),
        (path.key(""), "a.b.c[]"),
    ] {
        assert_eq!(path.to_string(), text);
    }
}

/// A body can break a million rules: of very many the first are told, and the others counted.
#[test]
fn of_very_many_errors_the_first_are_told() {
    let one = |index: usize| FieldError::required(&Path::new("spec").index(index), "");
    let errors: FieldErrors = (0..1500).map(one).collect();
    assert_eq!((errors.len(), errors.left_out()), (1000, 500));
    assert_eq!(errors.last().map(ToString::to_string).as_deref(), Some("spec[999]: Required value"));
    let mut none = FieldErrors::new();
    none.leave_out(3);
    assert!(none.is_empty() && none.left_out() == 3);
    assert_eq!(FieldErrors::from(one(7)).into_iter().count(), 1);
}
