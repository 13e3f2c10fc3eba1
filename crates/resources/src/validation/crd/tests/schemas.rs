//! Schemas that may stand in a definition, and those that may not.

use super::*;

/// The errors of a definition whose one version has this schema, below its path.
fn schema_errors(schema: &Value) -> String {
    let text = errors(&with("/spec/versions/0/schema/openAPIV3Schema", schema.clone()));
    text.replace("spec.validation.openAPIV3Schema", "")
}

fn property(schema: Value) -> Value {
    json!({"type": "object", "properties": {"a": schema}})
}

fn check_all(cases: impl IntoIterator<Item = Value>, expect: &Expect) {
    let texts: Vec<String> = cases
        .into_iter()
        .map(|schema| format!("{schema}\n{}", schema_errors(&property(schema.clone()))))
        .collect();
    expect.assert_eq(&texts.join("\n"));
}

#[test]
fn schemas_use_what_is_supported() {
    check_all(
        [
            json!({"type": "string", "$ref": "#/x"}),
            json!({"type": "object", "patternProperties": {"x": {}}, "definitions": {"x": {}}, "dependencies": {"x": ["y"]}}),
            json!({"type": "array", "items": [{"type": "string"}]}),
            json!({"type": "array", "items": {"type": "string"}, "additionalItems": false}),
            json!({"type": "string", "id": "x"}),
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false}),
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": true}),
            json!({"type": "null"}),
            json!({"type": "text"}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            json!({"type": "string", "x-kubernetes-embedded-resource": true}),
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            json!({"type": "string", "pattern": "a{,"}),
            json!({"type": "string", "pattern": "(?=a)"}),
        ],
        &expect![[r##"
            {"$ref":"#/x","type":"string"}
            .properties[a].$ref: Forbidden: $ref is not supported
            {"definitions":{"x":{}},"dependencies":{"x":["y"]},"patternProperties":{"x":{}},"type":"object"}
            .properties[a].patternProperties: Forbidden: patternProperties is not supported
            .properties[a].definitions: Forbidden: definitions is not supported
            .properties[a].dependencies: Forbidden: dependencies is not supported
            {"items":[{"type":"string"}],"type":"array"}
            .properties[a].items: Forbidden: items must be a schema object and not an array
            {"additionalItems":false,"items":{"type":"string"},"type":"array"}
            .properties[a].additionalItems: Forbidden: additionalItems is not supported
            {"id":"x","type":"string"}
            .properties[a].id: Forbidden: id is not supported
            {"items":{"type":"string"},"type":"array","uniqueItems":true}
            .properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic
            {"additionalProperties":{"type":"string"},"properties":{"b":{"type":"string"}},"type":"object"}
            .properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive
            {"additionalProperties":false,"properties":{"b":{"type":"string"}},"type":"object"}
            .properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive
            {"additionalProperties":true,"properties":{"b":{"type":"string"}},"type":"object"}

            {"type":"null"}
            .properties[a].type: Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", "string"
            .properties[a].type: Forbidden: type cannot be set to null, use nullable as an alternative
            {"type":"text"}
            .properties[a].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"
            {"type":"object","x-kubernetes-preserve-unknown-fields":false}
            .properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined
            {"type":"string","x-kubernetes-embedded-resource":true}
            .properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields
            .properties[a].type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true
            {"type":"object","x-kubernetes-embedded-resource":true}
            .properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields
            {"pattern":"a{,","type":"string"}

            {"pattern":"(?=a)","type":"string"}
            .properties[a].pattern: Invalid value: "(?=a)": must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?=`"##]],
    );
}

#[test]
fn the_root_says_what_objects_have() {
    let cases = [
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "object", "nullable": true}),
        json!({"type": "object", "properties": {"kind": {"type": "integer"}, "metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        json!({"type": "object", "properties": {"apiVersion": {"type": "string", "default": "x"}, "metadata": {"type": "object", "default": {}, "properties": {"name": {"type": "string", "default": "x"}}}}}),
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}}}),
    ];
    let texts: Vec<String> =
        cases.iter().map(|schema| format!("{schema}\n{}", schema_errors(schema))).collect();
    expect![[r#"
        {"items":{"type":"string"},"type":"array"}
        .type: Invalid value: "array": must be object at the root
        {"nullable":true,"type":"object"}
        .nullable: Forbidden: nullable cannot be true at the root
        {"properties":{"kind":{"type":"integer"},"metadata":{"properties":{"labels":{"type":"object"}},"type":"object"}},"type":"object"}
        .properties[kind].type: Invalid value: "integer": must be string
        .properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified
        {"properties":{"apiVersion":{"default":"x","type":"string"},"metadata":{"default":{},"properties":{"name":{"default":"x","type":"string"}},"type":"object"}},"type":"object"}
        .properties[apiVersion].default: Forbidden: must not be set in top-level apiVersion
        .properties[metadata].default: Forbidden: must not be set in top-level metadata
        .properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata
        {"properties":{"metadata":{"properties":{"name":{"maxLength":3,"type":"string"}},"type":"object"}},"type":"object"}
    "#]].assert_eq(&texts.join("\n"));

    let with_status = |schema: Value| {
        let more = json!({"subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}});
        errors(&with("/spec/versions/0", version("v1", more)))
    };
    let texts = [
        with_status(
            json!({"type": "object", "description": "x", "required": ["spec"], "x-kubernetes-validations": [{"rule": "true"}]}),
        ),
        with_status(json!({"type": "object", "maxProperties": 3})),
        with_status(json!({"type": "object", "oneOf": [{"required": ["a"]}]})),
        with_status(json!({"type": "string"})),
    ];
    expect![[r#"

        spec.validation.openAPIV3Schema: Invalid value: {"maxProperties":3,"type":"object"}: only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled
        spec.validation.openAPIV3Schema: Invalid value: {"oneOf":[{"required":["a"]}],"type":"object"}: only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled
        spec.validation.openAPIV3Schema.type: Invalid value: "string": only "object" is allowed as the type at the root of the schema if the status subresource is enabled
        spec.validation.openAPIV3Schema.type: Invalid value: "string": must be object at the root"#]].assert_eq(&texts.join("\n"));
}

#[test]
fn lists_and_maps_say_how_they_merge() {
    let map = |keys: Value, item: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": item});
    let object =
        |property: Value| json!({"type": "object", "required": ["k"], "properties": {"k": property}});
    check_all(
        [
            json!({"type": "object", "x-kubernetes-list-type": "set"}),
            json!({"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-list-type": "atomic", "x-kubernetes-map-type": "atomic"}),
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"}),
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-map-type": "atomic"}),
            json!({"type": "object", "x-kubernetes-map-type": "whole"}),
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["k"]}),
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["k"]}),
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            json!({"type": "array", "items": {"type": "object", "x-kubernetes-map-type": "atomic"}, "x-kubernetes-list-type": "set"}),
            json!({"type": "array", "items": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, "x-kubernetes-list-type": "set"}),
            json!({"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}),
            map(json!([]), object(json!({"type": "string"}))),
            map(json!(["k"]), json!({"type": "string"})),
            map(json!(["k"]), object(json!({"type": "object"}))),
            map(json!(["k", "k"]), object(json!({"type": "string"}))),
            map(json!(["k", "none"]), object(json!({"type": "string"}))),
            map(json!(["k"]), object(json!({"type": "string", "nullable": true}))),
            map(json!(["k"]), json!({"type": "object", "properties": {"k": {"type": "string"}}})),
            map(
                json!(["k"]),
                json!({"type": "object", "properties": {"k": {"type": "string", "default": "x"}}}),
            ),
            map(json!(["k"]), object(json!({"type": "string"}))),
        ],
        &expect![[r#"
            {"type":"object","x-kubernetes-list-type":"set"}
            .properties[a].type: Invalid value: "object": must be array if x-kubernetes-list-type is specified
            {"x-kubernetes-list-type":"atomic","x-kubernetes-map-type":"atomic","x-kubernetes-preserve-unknown-fields":true}
            .properties[a].type: Required value: must be object if x-kubernetes-map-type is specified
            .properties[a].type: Required value: must be array if x-kubernetes-list-type is specified
            {"items":{"type":"string"},"type":"array","x-kubernetes-list-type":"bag"}
            .properties[a].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map"
            {"items":{"type":"string"},"type":"array","x-kubernetes-map-type":"atomic"}
            .properties[a].type: Invalid value: "array": must be object if x-kubernetes-map-type is specified
            {"type":"object","x-kubernetes-map-type":"whole"}
            .properties[a].x-kubernetes-map-type: Unsupported value: "whole": supported values: "atomic", "granular"
            {"items":{"type":"string"},"type":"array","x-kubernetes-list-map-keys":["k"]}
            .properties[a].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty
            {"items":{"type":"string"},"type":"array","x-kubernetes-list-map-keys":["k"],"x-kubernetes-list-type":"set"}
            .properties[a].x-kubernetes-list-type: Invalid value: "set": must be map if x-kubernetes-list-map-keys is non-empty
            {"items":{"type":"object"},"type":"array","x-kubernetes-list-type":"set"}
            .properties[a].items.x-kubernetes-map-type: Invalid value: "null": must be atomic as item of a list with x-kubernetes-list-type=set
            {"items":{"type":"object","x-kubernetes-map-type":"atomic"},"type":"array","x-kubernetes-list-type":"set"}

            {"items":{"items":{"type":"string"},"type":"array","x-kubernetes-list-type":"set"},"type":"array","x-kubernetes-list-type":"set"}
            .properties[a].items.x-kubernetes-list-type: Invalid value: "set": must be atomic as item of a list with x-kubernetes-list-type=set
            {"items":{"nullable":true,"type":"string"},"type":"array","x-kubernetes-list-type":"set"}
            .properties[a].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set
            {"items":{"properties":{"k":{"type":"string"}},"required":["k"],"type":"object"},"type":"array","x-kubernetes-list-map-keys":[],"x-kubernetes-list-type":"map"}
            .properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map
            {"items":{"type":"string"},"type":"array","x-kubernetes-list-map-keys":["k"],"x-kubernetes-list-type":"map"}
            .properties[a].items.type: Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map
            {"items":{"properties":{"k":{"type":"object"}},"required":["k"],"type":"object"},"type":"array","x-kubernetes-list-map-keys":["k"],"x-kubernetes-list-type":"map"}
            .properties[a].items.properties[k].type: Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map
            {"items":{"properties":{"k":{"type":"string"}},"required":["k"],"type":"object"},"type":"array","x-kubernetes-list-map-keys":["k","k"],"x-kubernetes-list-type":"map"}
            .properties[a].x-kubernetes-list-map-keys: Invalid value: ["k","k"]: must not contain duplicate entries
            {"items":{"properties":{"k":{"type":"string"}},"required":["k"],"type":"object"},"type":"array","x-kubernetes-list-map-keys":["k","none"],"x-kubernetes-list-type":"map"}
            .properties[a].x-kubernetes-list-map-keys: Invalid value: ["k","none"]: entries must all be names of item properties
            {"items":{"properties":{"k":{"nullable":true,"type":"string"}},"required":["k"],"type":"object"},"type":"array","x-kubernetes-list-map-keys":["k"],"x-kubernetes-list-type":"map"}
            .properties[a].items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be nullable
            {"items":{"properties":{"k":{"type":"string"}},"type":"object"},"type":"array","x-kubernetes-list-map-keys":["k"],"x-kubernetes-list-type":"map"}
            .properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property
            {"items":{"properties":{"k":{"default":"x","type":"string"}},"type":"object"},"type":"array","x-kubernetes-list-map-keys":["k"],"x-kubernetes-list-type":"map"}

            {"items":{"properties":{"k":{"type":"string"}},"required":["k"],"type":"object"},"type":"array","x-kubernetes-list-map-keys":["k"],"x-kubernetes-list-type":"map"}
        "#]],
    );
}

#[test]
fn defaults_are_what_the_schema_asks_for() {
    let object = |default: Value| {
        json!({"type": "object", "default": default, "required": ["r"], "properties": {
            "r": {"type": "integer", "maximum": 3},
            "l": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        }})
    };
    check_all(
        [
            json!({"type": "integer", "default": "x"}),
            json!({"type": "string", "default": null}),
            json!({"type": "string", "enum": ["a", "b"], "default": "c"}),
            json!({"type": "string", "pattern": "^a+$", "maxLength": 2, "default": "aaab"}),
            json!({"type": "number", "default": 1}),
            json!({"x-kubernetes-int-or-string": true, "default": true}),
            object(json!({"r": 1})),
            object(json!({})),
            object(json!({"r": 4, "l": ["a", 1]})),
            object(json!({"r": 1, "more": 2})),
            json!({"type": "array", "default": [1], "items": {"type": "string", "default": 2}}),
            json!({"type": "object", "additionalProperties": {"type": "string"}, "default": {"x": 1}}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": {"x": 1}}),
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"metadata": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}}}}),
        ],
        &expect![[r#"
            {"default":"x","type":"integer"}
            .properties[a].default: Invalid value: "string":  in body must be of type integer: "string"
            {"default":null,"type":"string"}

            {"default":"c","enum":["a","b"],"type":"string"}
            .properties[a].default: Unsupported value: "c": supported values: "a", "b"
            {"default":"aaab","maxLength":2,"pattern":"^a+$","type":"string"}
            .properties[a].default: Too long: may not be more than 2 bytes
            {"default":1,"type":"number"}

            {"default":true,"x-kubernetes-int-or-string":true}
            .properties[a].default: Invalid value: "boolean":  in body must be of type integer,string: "boolean"
            {"default":{"r":1},"properties":{"l":{"items":{"type":"string"},"maxItems":1,"type":"array"},"r":{"maximum":3,"type":"integer"}},"required":["r"],"type":"object"}

            {"default":{},"properties":{"l":{"items":{"type":"string"},"maxItems":1,"type":"array"},"r":{"maximum":3,"type":"integer"}},"required":["r"],"type":"object"}
            .properties[a].default.r: Required value
            {"default":{"l":["a",1],"r":4},"properties":{"l":{"items":{"type":"string"},"maxItems":1,"type":"array"},"r":{"maximum":3,"type":"integer"}},"required":["r"],"type":"object"}
            .properties[a].default.l[1]: Invalid value: "integer": l[1] in body must be of type string: "integer"
            .properties[a].default.l: Too many: 2: must have at most 1 item
            .properties[a].default.r: Invalid value: 4: r in body should be less than or equal to 3
            {"default":{"more":2,"r":1},"properties":{"l":{"items":{"type":"string"},"maxItems":1,"type":"array"},"r":{"maximum":3,"type":"integer"}},"required":["r"],"type":"object"}
            .properties[a].default: Invalid value: {"more":2,"r":1}: must not have unknown fields
            {"default":[1],"items":{"default":2,"type":"string"},"type":"array"}
            .properties[a].default[0]: Invalid value: "integer": [0] in body must be of type string: "integer"
            .properties[a].items.default: Invalid value: "integer":  in body must be of type string: "integer"
            {"additionalProperties":{"type":"string"},"default":{"x":1},"type":"object"}
            .properties[a].default.x: Invalid value: "integer": x in body must be of type string: "integer"
            {"default":{"x":1},"type":"object","x-kubernetes-preserve-unknown-fields":true}

            {"properties":{"metadata":{"additionalProperties":{"default":"x","type":"string"},"type":"object"}},"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}
            .properties[a].properties[metadata].additionalProperties.default: Forbidden: must not be set inside additionalProperties applying to object metadata"#]],
    );
}

#[test]
fn formats_of_numbers_hold_for_defaults() {
    check_all(
        [
            json!({"type": "integer", "format": "int32", "default": 3_000_000_000_u32}),
            json!({"type": "integer", "format": "int32", "default": i32::MIN}),
            json!({"type": "integer", "format": "int64", "default": i64::MAX}),
            json!({"type": "integer", "format": "unheard-of", "default": 3_000_000_000_u32}),
            json!({"type": "integer", "format": "int32", "default": true}),
            json!({"type": "number", "format": "float", "default": 1e300}),
            json!({"type": "number", "format": "double", "default": 1e300}),
        ],
        &expect![[r#"
            {"default":3000000000,"format":"int32","type":"integer"}
            .properties[a].default: Invalid value: "": Checked value must be of type integer with format int32 in 
            {"default":-2147483648,"format":"int32","type":"integer"}

            {"default":9223372036854775807,"format":"int64","type":"integer"}

            {"default":3000000000,"format":"unheard-of","type":"integer"}

            {"default":true,"format":"int32","type":"integer"}
            .properties[a].default: Invalid value: "":  in body must be of type int32: ""
            {"default":1e+300,"format":"float","type":"number"}
            .properties[a].default: Invalid value: "": Checked value must be of type number with format float in 
            {"default":1e+300,"format":"double","type":"number"}
        "#]],
    );
}

#[test]
fn rules_in_cel_are_there_and_can_be_shown() {
    let rules = |rules: Value| {
        json!({"type": "object", "x-kubernetes-validations": rules, "properties": {
            "b": {"type": "string"}, "c.d": {"type": "object", "additionalProperties": {"type": "string"}},
        }})
    };
    check_all(
        [
            rules(json!([{"rule": " "}, {"rule": "true"}])),
            rules(
                json!([{"rule": "true", "message": " "}, {"rule": "true", "message": "a\nb"}, {"rule": "true &&\ntrue"}]),
            ),
            rules(json!([{"rule": "true &&\ntrue", "message": "m"}])),
            rules(json!([{"rule": "true", "messageExpression": " "}])),
            rules(
                json!([{"rule": "true", "reason": "Wrong"}, {"rule": "true", "reason": "FieldValueDuplicate"}]),
            ),
            rules(json!([{"rule": "true", "fieldPath": " "}, {"rule": "true", "fieldPath": ".b\n"}])),
            rules(json!([{"rule": "true", "fieldPath": ".b"}, {"rule": "true", "fieldPath": "['c.d'].x"}])),
            rules(
                json!([{"rule": "true", "fieldPath": "b"}, {"rule": "true", "fieldPath": ".x"}, {"rule": "true", "fieldPath": ".b.x"}]),
            ),
            rules(json!([{"rule": "self == oldSelf", "optionalOldSelf": true}])),
        ],
        &expect![[r#"
            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"rule":" "},{"rule":"true"}]}
            .properties[a].x-kubernetes-validations[0].rule: Required value: rule is not specified
            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"message":" ","rule":"true"},{"message":"a\nb","rule":"true"},{"rule":"true &&\ntrue"}]}
            .properties[a].x-kubernetes-validations[0].message: Invalid value: " ": must be non-empty if specified
            .properties[a].x-kubernetes-validations[1].message: Invalid value: "a\nb": must not contain line breaks
            .properties[a].x-kubernetes-validations[2].message: Required value: message must be specified if rule contains line breaks
            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"message":"m","rule":"true &&\ntrue"}]}

            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"messageExpression":" ","rule":"true"}]}
            .properties[a].x-kubernetes-validations[0].messageExpression: Required value: messageExpression must be non-empty if specified
            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"reason":"Wrong","rule":"true"},{"reason":"FieldValueDuplicate","rule":"true"}]}
            .properties[a].x-kubernetes-validations[0].reason: Unsupported value: "Wrong": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"
            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"fieldPath":" ","rule":"true"},{"fieldPath":".b\n","rule":"true"}]}
            .properties[a].x-kubernetes-validations[0].fieldPath: Invalid value: " ": must be non-empty if specified
            .properties[a].x-kubernetes-validations[0].fieldPath: Invalid value: " ": must be a valid path
            .properties[a].x-kubernetes-validations[1].fieldPath: Invalid value: ".b\n": must not contain line breaks
            .properties[a].x-kubernetes-validations[1].fieldPath: Invalid value: ".b\n": must be a valid path
            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"fieldPath":".b","rule":"true"},{"fieldPath":"['c.d'].x","rule":"true"}]}

            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"fieldPath":"b","rule":"true"},{"fieldPath":".x","rule":"true"},{"fieldPath":".b.x","rule":"true"}]}
            .properties[a].x-kubernetes-validations[0].fieldPath: Invalid value: "b": must be a valid path
            .properties[a].x-kubernetes-validations[1].fieldPath: Invalid value: ".x": must be a valid path
            .properties[a].x-kubernetes-validations[2].fieldPath: Invalid value: ".b.x": must be a valid path
            {"properties":{"b":{"type":"string"},"c.d":{"additionalProperties":{"type":"string"},"type":"object"}},"type":"object","x-kubernetes-validations":[{"optionalOldSelf":true,"rule":"self == oldSelf"}]}
        "#]],
    );
}

#[test]
fn formats_that_nothing_checks_are_warned_of() {
    let formats = |formats: &[(&str, &str)]| {
        let properties: serde_json::Map<_, _> = formats
            .iter()
            .map(|(ty, format)| (format!("{ty}-{format}"), json!({"type": ty, "format": format})))
            .collect();
        prepared(&with(
            "/spec/versions/0/schema/openAPIV3Schema",
            json!({"type": "object", "properties": properties}),
        ))
    };
    let known = formats(&[
        ("string", "date-time"),
        ("string", "k8s-short-name"),
        ("integer", "int32"),
        ("number", "double"),
        ("string", "uuid3"),
    ]);
    assert_eq!((row().strategy.warnings)(&known), Vec::<String>::new());
    let unknown =
        formats(&[("string", "int32"), ("string", "quantity"), ("integer", "date"), ("object", "uuid")]);
    let all = [
        "unrecognized format \"date\"",
        "unrecognized format \"uuid\"",
        "unrecognized format \"int32\"",
        "unrecognized format \"quantity\"",
    ];
    assert_eq!((row().strategy.warnings)(&unknown), all);
    assert_eq!((row().strategy.warnings_on_update)(&unknown, &unknown), Vec::<String>::new());
    assert_eq!((row().strategy.warnings_on_update)(&unknown, &known), all);
}
