use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::build::tests::arena;

/// What is wrong with a `spec`, by its schema.
fn found(schema: &Value, spec: &Value) -> Vec<String> {
    let schemas = arena(schema);
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let object = json!({ "spec": spec });
    let findings = validate(kind, &object);
    assert_eq!(findings.left_out, 0);
    let line = |violation: &Violation| {
        let Violation { path, problem, value, detail, max, supported } = violation;
        match problem {
            Problem::Required | Problem::Duplicate => format!("{path}: {problem:?} {value}"),
            Problem::NotSupported => format!("{path}: {problem:?} {value} {supported:?}"),
            Problem::TooLong | Problem::TooMany => format!("{path}: {problem:?} {value} {max}"),
            _ => format!("{path}: {problem:?} {value}: {detail}"),
        }
    };
    findings.repeated.iter().chain(&findings.violations).map(line).collect()
}

fn check(schema: &Value, spec: &Value, expect: &Expect) {
    expect.assert_eq(&found(schema, spec).join("\n"));
}

/// Values that are right and values that are not.
fn sort_out(schema: &Value, right: &[Value], wrong: &[Value]) {
    for value in right {
        assert_eq!(found(schema, value), [""; 0], "{value} by {schema}");
    }
    for value in wrong {
        assert_ne!(found(schema, value), [""; 0], "{value} by {schema}");
    }
}

#[test]
fn types_are_told_as_upstream_tells_them() {
    let cases = [
        (
            json!({"type": "integer"}),
            json!("x"),
            expect![[r#"spec: TypeInvalid "string": spec in body must be of type integer: "string""#]],
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            expect![[r#"
                spec: TypeInvalid "number": spec in body must be of type integer: "number"
                : Invalid "": Checked value must be of type integer (default format) in spec"#]],
        ),
        (
            json!({"type": "string"}),
            json!(1),
            expect![[r#"spec: TypeInvalid "integer": spec in body must be of type string: "integer""#]],
        ),
        (
            json!({"type": "boolean"}),
            json!({}),
            expect![[r#"spec: TypeInvalid "object": spec in body must be of type boolean: "object""#]],
        ),
        (
            json!({"type": "object"}),
            json!([]),
            expect![[r#"spec: TypeInvalid "array": spec in body must be of type object: "array""#]],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!([null]),
            expect![[r#"spec[0]: TypeInvalid "null": spec[0] in body must be of type string: "null""#]],
        ),
        (
            json!({"type": "string"}),
            json!(null),
            expect![[r#"spec: TypeInvalid "null": spec in body must be of type string: "null""#]],
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            expect![[
                r#"spec: TypeInvalid "boolean": spec in body must be of type integer,string: "boolean""#
            ]],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!(1),
            expect![[r#"spec: TypeInvalid "int64": spec in body must be of type date: "int64""#]],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!("x"),
            expect![[r#"spec: TypeInvalid "x": spec in body must be of type date: "x""#]],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"a.b": 1}),
            expect![[
                r#"spec.a.b: TypeInvalid "integer": spec.a.b in body must be of type string: "integer""#
            ]],
        ),
    ];
    for (schema, value, expect) in cases {
        check(&schema, &value, &expect);
    }
}

#[test]
fn rules_of_numbers_are_told_as_upstream_tells_them() {
    let cases = [
        (
            json!({"type": "integer", "maximum": 10}),
            json!(11),
            expect!["spec: Invalid 11: spec in body should be less than or equal to 10"],
        ),
        (
            json!({"type": "integer", "maximum": 10, "exclusiveMaximum": true}),
            json!(10),
            expect!["spec: Invalid 10: spec in body should be less than 10"],
        ),
        (
            json!({"type": "number", "minimum": 0.5}),
            json!(0.25),
            expect!["spec: Invalid 0.25: spec in body should be greater than or equal to 0.5"],
        ),
        (
            json!({"type": "number", "minimum": 1e21, "exclusiveMinimum": true}),
            json!(1e21),
            expect!["spec: Invalid 1e+21: spec in body should be greater than 1e+21"],
        ),
        (
            json!({"type": "number", "maximum": 1e6}),
            json!(1_000_000.5),
            expect!["spec: Invalid 1000000.5: spec in body should be less than or equal to 1e+06"],
        ),
        (
            json!({"type": "number", "maximum": 1e6}),
            json!(1_000_001),
            expect!["spec: Invalid 1000001: spec in body should be less than or equal to 1000000"],
        ),
        // A whole number is compared with what is whole of the bound.
        (
            json!({"type": "number", "maximum": 1.5}),
            json!(2),
            expect!["spec: Invalid 2: spec in body should be less than or equal to 1"],
        ),
        (json!({"type": "number", "minimum": 0.5}), json!(0), expect![""]),
        (
            json!({"type": "number", "maximum": 0.5, "exclusiveMaximum": true}),
            json!(0),
            expect!["spec: Invalid 0: spec in body should be less than 0"],
        ),
    ];
    for (schema, value, expect) in cases {
        check(&schema, &value, &expect);
    }
}

#[test]
fn divisors_and_formats_of_numbers_are_told_as_upstream_tells_them() {
    let cases = [
        (
            json!({"type": "number", "multipleOf": 0.5}),
            json!(1),
            expect!["spec: Invalid 0: factor MultipleOf declared for spec must be positive: 0"],
        ),
        (json!({"type": "number", "multipleOf": 0.5}), json!(1.5), expect![""]),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(4),
            expect!["spec: Invalid 4: spec in body should be a multiple of 3"],
        ),
        (
            json!({"type": "integer", "multipleOf": -3}),
            json!(4),
            expect!["spec: Invalid -3: factor MultipleOf declared for spec must be positive: -3"],
        ),
        (
            json!({"type": "integer", "maximum": 1.5}),
            json!(1),
            expect![[
                r#": Invalid "": Maximum boundary value must be of type integer (default format) in spec"#
            ]],
        ),
    ];
    for (schema, value, expect) in cases {
        check(&schema, &value, &expect);
    }
}

#[test]
fn formats_of_numbers_say_nothing_about_objects() {
    const BEYOND: &str = r#"spec: TypeInvalid "number": spec in body must be of type integer: "number"
: Invalid "": Checked value must be of type integer (default format) in spec"#;
    let integer = |format: &str| json!({"type": "integer", "format": format});
    for format in ["int32", "int64", "uint32", "double", "unheard-of", ""] {
        for held in [json!(i32::MAX), json!(-2_147_483_649_i64), json!(3_000_000_000_u32), json!(i64::MIN)] {
            assert_eq!(found(&integer(format), &held), [""; 0], "{held} of {format:?}");
        }
        for beyond in [json!(9_223_372_036_854_775_808_u64), json!(-1e30), json!(0.5)] {
            assert_eq!(found(&integer(format), &beyond).join("\n"), BEYOND, "{beyond} of {format:?}");
        }
        let of_flag = found(&integer(format), &json!(true));
        assert_eq!(
            of_flag,
            [r#"spec: TypeInvalid "boolean": spec in body must be of type integer: "boolean""#]
        );
    }
    for format in ["float", "double"] {
        assert_eq!(found(&json!({"type": "number", "format": format}), &json!(1e300)), [""; 0], "{format}");
    }
    check(
        &json!({"type": "integer", "format": "int32", "maximum": 3_000_000_000_u32}),
        &json!(4_000_000_000_u32),
        &expect!["spec: Invalid 4000000000: spec in body should be less than or equal to 3000000000"],
    );
}

#[test]
fn rules_of_texts_are_told_as_upstream_tells_them() {
    let cases = [
        (
            json!({"type": "string", "maxLength": 2, "pattern": "a"}),
            json!("äöü"),
            expect!["spec: TooLong null 2"],
        ),
        (
            json!({"type": "string", "minLength": 2, "pattern": "a"}),
            json!("ä"),
            expect![[r#"spec: Invalid "ä": spec in body should be at least 2 chars long"#]],
        ),
        (
            json!({"type": "string", "pattern": "^a$"}),
            json!("b"),
            expect![[r#"spec: Invalid "b": spec in body should match '^a$'"#]],
        ),
        (
            json!({"type": "string", "enum": ["a", "b"]}),
            json!("c"),
            expect![[r#"spec: NotSupported "c" ["a", "b"]"#]],
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            expect![[r#"spec: NotSupported 3 ["1", "2"]"#]],
        ),
    ];
    for (schema, value, expect) in cases {
        check(&schema, &value, &expect);
    }
}

#[test]
fn rules_of_lists_and_objects_are_told_as_upstream_tells_them() {
    let cases = [
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 2}),
            json!([""]),
            expect!["spec: Invalid 1: spec in body should have at least 2 items"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["", ""]),
            expect!["spec: TooMany 2 1"],
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            json!(["", ""]),
            expect![[r#"spec: Invalid "": spec in body shouldn't contain duplicates"#]],
        ),
        (
            json!({"type": "object", "additionalProperties": true, "minProperties": 1}),
            json!({}),
            expect!["spec: Invalid 0: spec in body should have at least 1 properties"],
        ),
        (
            json!({"type": "object", "additionalProperties": true, "maxProperties": 1}),
            json!({"a": 1, "b": 1}),
            expect!["spec: TooMany 2 1"],
        ),
        (
            json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            expect![[r#"
            spec.a: Required null
            spec.b: Required null"#]],
        ),
    ];
    for (schema, value, expect) in cases {
        check(&schema, &value, &expect);
    }
}

#[test]
fn numbers_at_the_edges_are_told_apart() {
    let (max, min) = (i64::MAX, i64::MIN);
    sort_out(
        &json!({"type": "integer"}),
        &[json!(max), json!(min), json!(1.0)],
        &[json!(u64::MAX), json!(1e300), json!(1.1)],
    );
    sort_out(&json!({"type": "number"}), &[json!(f64::MAX), json!(max), json!(u64::MAX)], &[json!("1")]);
    sort_out(
        &json!({"type": "integer", "maximum": 9_007_199_254_740_992u64}),
        &[json!(9_007_199_254_740_992u64)],
        &[json!(9_007_199_254_740_993u64)],
    );
    sort_out(&json!({"type": "number", "multipleOf": 0.1}), &[json!(0.3)], &[json!(0.35), json!(5)]);
    sort_out(&json!({"type": "integer", "enum": [1]}), &[json!(1), json!(1.0)], &[json!(2), json!("1")]);
    sort_out(&json!({"type": "integer", "multipleOf": -1}), &[], &[json!(min)]);
    sort_out(&json!({"type": "integer", "multipleOf": 0}), &[], &[json!(0)]);
}

#[test]
fn null_is_right_only_where_it_is_allowed() {
    sort_out(
        &json!({"type": "string", "nullable": true, "pattern": "a", "minLength": 1}),
        &[json!(null)],
        &[json!("")],
    );
    sort_out(
        &json!({"type": "string", "nullable": true, "enum": ["a", null]}),
        &[json!("a")],
        &[json!(null), json!("b")],
    );
    sort_out(&json!({"x-kubernetes-preserve-unknown-fields": true}), &[json!(null), json!([null])], &[]);
}

#[test]
fn of_several_ways_the_one_that_got_furthest_says_why() {
    let ways = json!([{"required": ["a"]}, {"required": ["b"], "properties": {"b": {"maximum": 1}}}]);
    let schema = |junctor: &str| json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, junctor: ways});
    check(
        &schema("anyOf"),
        &json!({"b": 2}),
        &expect![[r#"
        : Invalid "": "spec" must validate at least one schema (anyOf)
        spec.b: Invalid 2: spec.b in body should be less than or equal to 1"#]],
    );
    check(
        &schema("oneOf"),
        &json!({"b": 2}),
        &expect![[r#"
        : Invalid "": "spec" must validate one and only one schema (oneOf). Found none valid
        spec.b: Invalid 2: spec.b in body should be less than or equal to 1"#]],
    );
    check(
        &schema("oneOf"),
        &json!({"a": 1, "b": 1}),
        &expect![[
            r#": Invalid "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]],
    );
    check(
        &schema("allOf"),
        &json!({"b": 2}),
        &expect![[r#"
        spec.a: Required null
        spec.b: Invalid 2: spec.b in body should be less than or equal to 1
        : Invalid "": "spec" must validate all the schemas (allOf). None validated"#]],
    );
    check(
        &schema("allOf"),
        &json!({"b": 1}),
        &expect![[r#"
        spec.a: Required null
        : Invalid "": "spec" must validate all the schemas (allOf)"#]],
    );
    let not = json!({"type": "array", "items": {"type": "string"}, "not": {"items": {"enum": ["a"]}}});
    check(&not, &json!(["a"]), &expect![[r#": Invalid "": "spec" must not validate the schema (not)"#]]);
    sort_out(&schema("anyOf"), &[json!({"a": 1}), json!({"b": 1}), json!({"a": 1, "b": 1})], &[json!({})]);
    sort_out(&schema("oneOf"), &[json!({"a": 1}), json!({"b": 1}), json!({"a": 1, "b": 2})], &[json!({})]);
    sort_out(&not, &[json!(["a", "b"])], &[json!([])]);
}

#[test]
fn whole_numbers_or_texts_may_have_rules_by_type() {
    let schema = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": "^[0-9]+%$", "maximum": 5});
    sort_out(&schema, &[json!(5), json!("50%")], &[json!(6), json!("x"), json!(1.5), json!({})]);
}

#[test]
fn elements_of_sets_and_maps_come_once() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"x-kubernetes-preserve-unknown-fields": true}});
    check(
        &set,
        &json!(["a", "a", "a", {"x": [1]}, {"x": [1]}, 1, 1]),
        &expect![[r#"
        spec[1]: Duplicate "a"
        spec[4]: Duplicate {"x":[1]}
        spec[6]: Duplicate 1"#]],
    );
    sort_out(&set, &[json!(["1", 1, null, "null", true, "true"])], &[json!([null, null])]);
    let map = |keys: Value| {
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"}}}})
    };
    check(
        &map(json!(["name"])),
        &json!([{"name": "a"}, {"name": "a", "x": 1}, {}, {"x": 1}]),
        &expect![[r#"
        spec[1]: Duplicate {"name":"a"}
        spec[3]: Duplicate {}"#]],
    );
    let both = map(json!(["name", "protocol"]));
    sort_out(
        &both,
        &[json!([{"name": "a", "protocol": "TCP"}, {"name": "a", "protocol": "UDP"}, {"name": "a"}])],
        &[],
    );
    check(
        &both,
        &json!([{"name": "a"}, "x"]),
        &expect![[r#"
        spec[1]: Invalid "x": must be an object for an array of list-type map
        spec[1]: TypeInvalid "string": spec[1] in body must be of type object: "string""#]],
    );
    // After defaulting, what was left out is the same as what was written.
    let schemas = arena(&both);
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let mut object = json!({"spec": [{"name": "a", "protocol": "TCP"}, {"name": "a"}]});
    crate::walk::declared::apply(kind, &mut object).expect("little memory");
    assert_eq!(validate(kind, &object).repeated.len(), 1);
    let nested = json!({"type": "object", "additionalProperties": set});
    check(&nested, &json!({"k": ["a", "a"]}), &expect![[r#"spec[k][1]: Duplicate "a""#]]);
}

#[test]
fn resources_within_are_handed_back_and_metadata_has_the_rules_of_its_schema() {
    let schemas = arena(
        &json!({"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true,
        "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}}}}),
    );
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let object = json!({"spec": [{"kind": "A"}, {"metadata": {"name": "abcd"}}]});
    let findings = validate(kind, &object);
    assert_eq!(findings.resources.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["spec[0]", "spec[1]"]);
    assert_eq!(
        findings.violations.iter().map(|violation| &violation.path).collect::<Vec<_>>(),
        ["spec[1].metadata.name"]
    );
}

#[test]
fn no_object_makes_more_errors_than_can_be_read() {
    let choices: Vec<String> = (0..20_000).map(|number| format!("choice-{number}")).collect();
    let schemas = arena(&json!({"type": "array", "items": {"type": "string", "enum": choices}}));
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let object = json!({"spec": vec!["x"; 20_000]});
    let findings = validate(kind, &object);
    assert_eq!(findings.violations.len() + findings.left_out, 20_000);
    assert!(findings.violations.len() < 100, "each repeats the choices: {}", findings.violations.len());
    let object = json!({"spec": vec!["choice-19999"; 20_000]});
    assert!(validate(kind, &object).violations.is_empty());
}

#[test]
fn what_was_wrong_and_stays_as_it_was_is_let_be() {
    let schemas = arena(&json!({"type": "object", "maxProperties": 4, "properties": {
        "short": {"type": "string", "maxLength": 1},
        "atomic": {"type": "array", "items": {"type": "integer", "maximum": 1}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer", "maximum": 1}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 1}},
        "way": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "allOf": [{"properties": {"a": {"enum": ["x"]}}}]}}}));
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    for (name, old, new, expect) in [
        ("as it was", json!({"short": "long"}), json!({"short": "long"}), vec![]),
        ("another is wrong", json!({"short": "long"}), json!({"short": "other"}), vec!["spec.short"]),
        ("beside it", json!({"short": "long"}), json!({"short": "long", "atomic": [1]}), vec![]),
        ("new", json!({}), json!({"short": "long"}), vec!["spec.short"]),
        ("elements without keys", json!({"atomic": [7]}), json!({"atomic": [7, 1]}), vec!["spec.atomic[0]"]),
        (
            "elements with keys",
            json!({"keyed": [{"name": "a", "size": 7}, {"name": "b", "size": 7}]}),
            json!({"keyed": [{"name": "c", "size": 7}, {"name": "b", "size": 8}, {"name": "a", "size": 7}]}),
            vec!["spec.keyed[0].size", "spec.keyed[1].size"],
        ),
        ("entries", json!({"map": {"a": 7}}), json!({"map": {"a": 7, "b": 7}}), vec!["spec.map.b"]),
        (
            "of the whole",
            json!({"1": 1, "2": 1, "3": 1, "4": 1, "5": 1}),
            json!({"1": 1, "2": 1, "3": 1, "4": 1, "5": 2}),
            vec!["spec"],
        ),
        ("ways", json!({"way": {"a": "y"}}), json!({"way": {"a": "y"}, "short": "x"}), vec![]),
        (
            "a part of what ways are about",
            json!({"way": {"a": "y"}}),
            json!({"way": {"a": "y", "b": ""}}),
            vec!["spec.way.a", ""],
        ),
        ("null before", json!({"short": null}), json!({"short": "long"}), vec!["spec.short"]),
        (
            "another type before",
            json!({"keyed": "x"}),
            json!({"keyed": [{"name": "a", "size": 7}]}),
            vec!["spec.keyed[0].size"],
        ),
    ] {
        let object = |spec: Value| json!({ "spec": spec });
        let (old, new) = (object(old), object(new));
        let findings = validate_update(kind, &new, &old);
        let paths: Vec<&str> = findings.violations.iter().map(|violation| &*violation.path).collect();
        assert_eq!(paths, expect, "{name}");
        let of_field = validate_field(kind, "spec", &new["spec"], Some(&old["spec"]));
        assert_eq!(of_field.violations, findings.violations, "{name}");
    }
    let value = json!({"short": "long"});
    let alone = validate_field(kind, "spec", &value, None);
    assert_eq!(alone.violations.len(), 1);
    assert!(validate_field(kind, "nothing", &json!(1), None).violations.is_empty());
}
