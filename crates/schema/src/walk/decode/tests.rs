use super::*;
use expect_test::{Expect, expect};

mod upstream;

fn check(kind: (&str, &str, &str), input: &str, validation: FieldValidation, expect: &Expect) {
    let schema = crate::builtin().kind(kind.0, kind.1, kind.2).expect("a kind");
    let text = match from_json(schema, input.as_bytes(), validation) {
        Ok(decoded) => {
            let warnings: String = decoded.warnings.iter().map(|line| format!("\nwarning: {line}")).collect();
            format!("{}{warnings}", decoded.value)
        }
        Err(error) => format!("error: {error}"),
    };
    expect.assert_eq(&text);
}

const POD: (&str, &str, &str) = ("", "v1", "Pod");
const DEPLOYMENT: (&str, &str, &str) = ("apps", "v1", "Deployment");

#[test]
fn unknown_and_duplicate_fields_are_refused_when_strict() {
    check(
        DEPLOYMENT,
        r#"{"spec": {"foo": 1, "replicas": 1, "replicas": 2, "template": {"spec": {"containers": [{"bar": 1}]}}}}"#,
        FieldValidation::Strict,
        &expect![[
            r#"error: strict decoding error: unknown field "spec.foo", duplicate field "spec.replicas", unknown field "spec.template.spec.containers[0].bar""#
        ]],
    );
}

/// Source: the bodies of upstream's `field_validation_test.go`.
#[test]
fn what_is_unknown_and_comes_twice_is_told_once_and_in_upstreams_order() {
    check(
        DEPLOYMENT,
        r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "dupename", "name": "a", "unknownMeta": "m"},
            "spec": {"unknown1": "val1", "unknownDupe": "valDupe", "unknownDupe": "valDupe2", "paused": true, "paused": false,
            "template": {"spec": {"containers": [{"name": "nginx", "unknownNested": "val1", "imagePullPolicy": "Always",
            "imagePullPolicy": "Never"}]}}}}"#,
        FieldValidation::Strict,
        &expect![[
            r#"error: strict decoding error: duplicate field "metadata.name", unknown field "metadata.unknownMeta", unknown field "spec.unknown1", unknown field "spec.unknownDupe", duplicate field "spec.paused", unknown field "spec.template.spec.containers[0].unknownNested", duplicate field "spec.template.spec.containers[0].imagePullPolicy""#
        ]],
    );
    check_custom(
        &serde_json::json!({"type": "object", "properties": {"knownField1": {"type": "string"},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"},
                "containerPort": {"type": "integer"}, "protocol": {"type": "string"}, "hostPort": {"type": "integer"}}}},
            "embeddedObj": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}),
        r#"{"metadata": {"name": "dupename", "name": "a", "unknownMeta": "metaVal"}, "spec": {"unknown1": "val1",
            "unknownDupe": "valDupe", "unknownDupe": "valDupe2", "knownField1": "val1", "knownField1": "val2",
            "ports": [{"name": "portName", "hostPort": 8081, "hostPort": 8082, "unknownNested": "val"}],
            "embeddedObj": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "my-cm", "unknownEmbeddedMeta": "foo"}}}}"#,
        &expect![[r#"
            {"metadata":{"name":"a"},"spec":{"embeddedObj":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"my-cm"}},"knownField1":"val2","ports":[{"hostPort":8082,"name":"portName"}]}}
            warning: duplicate field "metadata.name"
            warning: duplicate field "spec.unknownDupe"
            warning: duplicate field "spec.knownField1"
            warning: duplicate field "spec.ports[0].hostPort"
            warning: unknown field "metadata.unknownMeta"
            warning: unknown field "spec.ports[0].unknownNested"
            warning: unknown field "spec.unknown1"
            warning: unknown field "spec.unknownDupe"
            warning: unknown field "spec.embeddedObj.metadata.unknownEmbeddedMeta""#]],
    );
}

#[test]
fn unknown_fields_are_pruned_with_a_warning() {
    check(
        ("", "v1", "ConfigMap"),
        r#"{"data": {"a": "b", "a": "c"}, "foo": {"bar": [1]}}"#,
        FieldValidation::Warn,
        &expect![[r#"
            {"data":{"a":"c"},"metadata":{}}
            warning: duplicate field "data.a"
            warning: unknown field "foo""#]],
    );
}

#[test]
fn wrong_types_are_told_as_go_tells_them() {
    let cases: &[(&str, Expect)] = &[
        (
            r#"{"spec": {"replicas": "a"}}"#,
            expect![
                "error: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
            ],
        ),
        (
            r#"{"spec": {"replicas": 3000000000}}"#,
            expect![
                "error: json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32"
            ],
        ),
        (
            r#"{"spec": []}"#,
            expect![
                "error: json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec"
            ],
        ),
        (
            r#"{"spec": {"template": {"spec": {"containers": [{"name": 1}]}}}}"#,
            expect![
                "error: json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.name of type string"
            ],
        ),
        (
            r#"{"metadata": {"labels": {"a": true}}}"#,
            expect![
                "error: json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string"
            ],
        ),
        (r#"[]"#, expect!["error: json: cannot unmarshal array into Go value of type v1.Deployment"]),
        (
            r#"{"metadata": {"creationTimestamp": "soon"}}"#,
            expect![[
                r#"error: parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006""#
            ]],
        ),
    ];
    for (input, expect) in cases {
        check(DEPLOYMENT, input, FieldValidation::Ignore, expect);
    }
}

#[test]
fn scalars_with_a_notation_are_checked() {
    let cases: &[(&str, Expect)] = &[
        (
            r#"{"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}"#,
            expect![[
                r#"{"metadata":{},"spec":{"containers":[{"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]},"status":{}}"#
            ]],
        ),
        (
            r#"{"spec": {"containers": [{"resources": {"limits": {"cpu": "1x"}}}]}}"#,
            expect![
                "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ],
        ),
        (
            r#"{"metadata": {"creationTimestamp": "2024-01-02T03:04:05.5+01:00"}}"#,
            expect![[r#"{"metadata":{"creationTimestamp":"2024-01-02T02:04:05Z"},"spec":{},"status":{}}"#]],
        ),
    ];
    for (input, expect) in cases {
        check(POD, input, FieldValidation::Ignore, expect);
    }
    check(
        ("", "v1", "Secret"),
        r#"{"data": {"a": "aG!k"}}"#,
        FieldValidation::Ignore,
        &expect!["error: illegal base64 data at input byte 2"],
    );
}

#[test]
fn the_result_is_what_go_would_write() {
    check(
        POD,
        r#"{"metadata": {"creationTimestamp": null, "labels": {}}, "spec": {"hostNetwork": false,
            "enableServiceLinks": false, "volumes": [{"name": "a", "emptyDir": {}}], "nodeName": ""}}"#,
        FieldValidation::Strict,
        &expect![[
            r#"{"metadata":{},"spec":{"enableServiceLinks":false,"volumes":[{"emptyDir":{},"name":"a"}]},"status":{}}"#
        ]],
    );
}

#[test]
fn deep_nesting_and_garbage_are_refused() {
    let deep = format!("{{\"data\": {}", "[".repeat(100_000));
    check(
        ("apps", "v1", "ControllerRevision"),
        &deep,
        FieldValidation::Ignore,
        &expect!["error: exceeded max depth"],
    );
    check(POD, "{", FieldValidation::Ignore, &expect!["error: unexpected end of JSON input"]);
    check(
        POD,
        "{} {}",
        FieldValidation::Ignore,
        &expect!["error: invalid character '{' after top-level value"],
    );
}

#[test]
fn custom_resource_definitions_keep_their_unions() {
    check(
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        r#"{"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"a": {"type": "array", "items": {"type": "string", "default": {"x": [1]}}}},
            "additionalProperties": true}}}]}}"#,
        FieldValidation::Strict,
        &expect![[
            r#"{"metadata":{},"spec":{"names":{},"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"additionalProperties":true,"properties":{"a":{"items":{"default":{"x":[1]},"type":"string"},"type":"array"}},"type":"object"}}}]},"status":{"acceptedNames":{}}}"#
        ]],
    );
}

#[test]
fn every_kind_decodes_an_empty_object() {
    for (kind, schema) in crate::builtin().kinds() {
        let decoded = from_json(schema, b"{}", FieldValidation::Strict);
        assert!(decoded.is_ok(), "{}/{} {}", kind.group, kind.version, kind.kind);
    }
}

/// What a custom kind is decoded to, with the schema of its `spec`.
fn check_custom(spec: &serde_json::Value, input: &str, expect: &Expect) {
    let schemas = crate::build::tests::arena(spec);
    let schema = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let text = match from_json(schema, input.as_bytes(), FieldValidation::Warn) {
        Ok(decoded) => {
            let warnings: String = decoded.warnings.iter().map(|line| format!("\nwarning: {line}")).collect();
            format!("{}{warnings}", decoded.value)
        }
        Err(error) => format!("error: {error}"),
    };
    expect.assert_eq(&text);
}

#[test]
fn custom_kinds_are_pruned_where_they_do_not_preserve() {
    check_custom(
        &serde_json::json!({"type": "object", "properties": {
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "closed": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "free": {"type": "object", "additionalProperties": true},
            "empty": {"type": "object"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}}),
        r#"{"metadata": {"name": "a", "foo": 1}, "foo": 2, "spec": {
            "open": {"x": {"y": 1}, "x": {"z": 1}, "closed": {"a": "b", "c": 1}}, "any": {"x": [{"y": null}]},
            "map": {"k": {"a": "b", "c": 1}}, "free": {"k": {"a": 1}, "l": [{"b": 1}], "n": 1},
            "empty": {"x": 1}, "list": [{"a": "b", "b": 1}], "metadata": {}}}"#,
        &expect![[r#"
            {"metadata":{"name":"a"},"spec":{"any":{"x":[{"y":null}]},"empty":{},"free":{"k":{},"l":[{}],"n":1},"list":[{"a":"b"}],"map":{"k":{"a":"b"}},"open":{"closed":{"a":"b"},"x":{"z":1}}}}
            warning: duplicate field "spec.open.x"
            warning: unknown field "metadata.foo"
            warning: unknown field "foo"
            warning: unknown field "spec.empty.x"
            warning: unknown field "spec.free.k.a"
            warning: unknown field "spec.free.l[0].b"
            warning: unknown field "spec.list[0].b"
            warning: unknown field "spec.map.k.c"
            warning: unknown field "spec.metadata"
            warning: unknown field "spec.open.closed.c""#]],
    );
}

#[test]
fn custom_kinds_keep_wrong_types_and_nulls_for_validation() {
    check_custom(
        &serde_json::json!({"type": "object", "properties": {
            "number": {"type": "integer", "format": "int32"}, "text": {"type": "string"},
            "list": {"type": "array", "items": {"type": "string"}}, "map": {"type": "object", "additionalProperties":
            {"type": "integer"}}, "either": {"x-kubernetes-int-or-string": true}}}),
        r#"{"kind": "Foo", "spec": {"number": 3000000000, "text": ["a", {"b": 1}], "list": {"a": null}, "map": [null],
            "either": 1.5}}"#,
        &expect![[
            r#"{"kind":"Foo","spec":{"either":1.5,"list":{"a":null},"map":[null],"number":3000000000,"text":["a",{"b":1}]}}"#
        ]],
    );
}

#[test]
fn numbers_of_custom_kinds_are_those_of_go() {
    check_custom(
        &serde_json::json!({"x-kubernetes-preserve-unknown-fields": true}),
        r#"{"spec": [1.0, 1e3, 1.5, 9223372036854775807, 9223372036854775808, -9223372036854775808, 1e400]}"#,
        &expect![
            "error: json: cannot unmarshal number into Go struct field Foo.spec of type runtime.RawExtension"
        ],
    );
    check_custom(
        &serde_json::json!({"x-kubernetes-preserve-unknown-fields": true}),
        r#"{"spec": [1.0, 1e3, 1.5, 9223372036854775807, 9223372036854775808, -9223372036854775808]}"#,
        &expect![[r#"{"spec":[1,1000,1.5,9223372036854775807,9.223372036854776e+18,-9223372036854775808]}"#]],
    );
}

#[test]
fn metadata_of_custom_kinds_has_the_types_of_all_metadata() {
    let open = serde_json::json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    for (input, expect) in [
        (
            r#"{"metadata": {"labels": {"a": 1}}}"#,
            expect![
                "error: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
            ],
        ),
        (
            r#"{"metadata": "x"}"#,
            expect!["error: json: cannot unmarshal string into Go value of type v1.ObjectMeta"],
        ),
        (r#"[]"#, expect!["error: json: cannot unmarshal array into Go value of type v1.Foo"]),
        (
            r#"{"spec": {"metadata": {"name": 1}}}"#,
            expect![
                "error: json: cannot unmarshal number into Go struct field ObjectMeta.spec.metadata.name of type string"
            ],
        ),
        (
            r#"{"metadata": null, "spec": {"apiVersion": "v1", "kind": 1, "x": {"y": 1}, "metadata": {"name": "a", "x": 1}}}"#,
            expect![[r#"
                {"spec":{"apiVersion":"v1","kind":1,"metadata":{"name":"a"},"x":{"y":1}}}
                warning: unknown field "spec.metadata.x""#]],
        ),
    ] {
        check_custom(&open, input, &expect);
    }
}
