use machinery::metadata::Metadata;
use resources::definition::{Expressions as _, VersionSchema};
use schema::build::{Source, build};
use serde_json::json;

use super::*;

mod objects;
mod real;

/// What is said of a schema's rules.
fn said(schema: &Value) -> Vec<String> {
    said_of(schema, false)
}

fn source(schema: &Value) -> Source<'_> {
    Source {
        group: "example.com",
        version: "v1",
        kind: "Foo",
        list_kind: "FooList",
        plural: "foos",
        path: "s",
        schema,
    }
}

/// The expressions of a kind with this schema.
fn expressions_of(schema: &Value) -> KindExpressions {
    KindExpressions::of(Schema::of_definition(&source(schema)).expect("a structural schema"))
}

fn said_of(schema: &Value, is_unchanged: bool) -> Vec<String> {
    let arena = build(&source(schema)).expect("a structural schema");
    let root = arena.kind("example.com", "v1", "Foo").expect("a kind");
    let version = VersionSchema { path: "s", schema, root, old_spec: None, is_unchanged };
    Cel.check(&version).iter().map(ToString::to_string).collect()
}

/// A schema whose field `f` has rules.
fn field(mut schema: Value, rules: &[&str]) -> Value {
    let rules: Vec<Value> = rules.iter().map(|rule| json!({"rule": rule})).collect();
    schema["x-kubernetes-validations"] = rules.into();
    json!({"type": "object", "properties": {"f": schema}})
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn schemas_become_types() {
    let text = json!({"type": "string"});
    let map = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let metadata = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    for (schema, rule) in [
        (json!({"type": "integer"}), "self + 1 > 0"),
        (json!({"type": "number"}), "self + 1.0 > 0.0"),
        (json!({"type": "boolean"}), "self"),
        (json!({"type": "string", "maxLength": 9}), "self.startsWith('a')"),
        (json!({"type": "string", "format": "date"}), "self > timestamp('2020-01-01T00:00:00Z')"),
        (json!({"type": "string", "format": "date-time"}), "self.getFullYear() > 2000"),
        (json!({"type": "string", "format": "duration"}), "self < duration('1h')"),
        (json!({"type": "string", "format": "byte"}), "self == b'abc'"),
        (json!({"x-kubernetes-int-or-string": true}), "type(self) == int ? self > 0 : self == '5%'"),
        (
            json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}}),
            "self.all(x, x != '')",
        ),
        (map.clone(), "self['a'] > 0"),
        (object(json!({"a-b": text, "namespace": text})), "self.a__dash__b == self.__namespace__"),
        (
            metadata.clone(),
            "self.metadata.name == self.metadata.generateName && self.kind != self.apiVersion",
        ),
    ] {
        assert_eq!(said(&field(schema.clone(), &[rule])), [""; 0], "{rule} of {schema}");
    }
    for (schema, rule, part) in [
        (json!({"type": "integer"}), "self", "cel expression must evaluate to a bool"),
        (
            json!({"type": "integer"}),
            "self + 'a' == ''",
            "found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (json!({"type": "integer"}), "self >", "Syntax error"),
        (
            object(json!({"a": {"x-kubernetes-preserve-unknown-fields": true}})),
            "has(self.a)",
            "undefined field 'a'",
        ),
        (object(json!({"a b": text})), "has(self.a)", "undefined field 'a'"),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            "self.x == 1",
            "undefined field 'x'",
        ),
        (metadata, "self.metadata.labels == {}", "undefined field 'labels'"),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            "true",
            "unable to convert structural schema to CEL declarations",
        ),
        (map, "self.all(k, self[k] == '')", "found no matching overload for '_==_'"),
        (text, "other == 1", "undeclared reference to 'other'"),
    ] {
        let said = said(&field(schema.clone(), &[rule]));
        assert!(said.len() == 1 && said[0].contains(part), "{rule} of {schema}: {said:#?}");
    }
    assert_eq!(
        said(&json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name != ''"}]})),
        [""; 0]
    );
}

#[test]
fn what_is_wrong_with_rules_is_said_as_upstream_does() {
    let schema = field(json!({"type": "integer"}), &["self & 1"]);
    let rule = r#"{"Rule":"self + '\u003c'","Message":"m","MessageExpression":"","Reason":"FieldValueForbidden","FieldPath":"","OptionalOldSelf":null}"#;
    assert!(said(&schema)[0].starts_with(
        "s.properties[f].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self \\u0026 1\""
    ));
    let mut schema = field(json!({"type": "integer"}), &["self + '<'"]);
    let written = &mut schema["properties"]["f"]["x-kubernetes-validations"][0];
    written["message"] = json!("m");
    written["reason"] = json!("FieldValueForbidden");
    let all = said(&schema);
    assert!(
        all[0].contains(&format!(
            "Invalid value: {rule}: compilation failed: ERROR: <input>:1:6: found no matching overload"
        )),
        "{all:#?}"
    );

    let with = |name: &str, value: Value, rule: &str| {
        let mut schema = field(json!({"type": "integer"}), &[rule]);
        schema["properties"]["f"]["x-kubernetes-validations"][0][name] = value;
        said(&schema)
    };
    for (name, value, rule, part) in [
        ("messageExpression", json!("1"), "self > 0", "].messageExpression: Invalid value: {\"Rule\""),
        ("messageExpression", json!("1"), "self > 0", "messageExpression must evaluate to a string"),
        ("messageExpression", json!("'a' +"), "self > 0", "messageExpression compilation failed: ERROR"),
        (
            "optionalOldSelf",
            json!(true),
            "self > 0",
            "].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
        ("optionalOldSelf", json!(false), "self > 0", "may not be set"),
        ("optionalOldSelf", json!(true), "oldSelf == self", "found no matching overload"),
    ] {
        let said = with(name, value, rule);
        assert!(said[0].contains(part), "{said:#?}");
    }
    assert_eq!(with("optionalOldSelf", json!(true), "oldSelf.orValue(1) <= self"), [""; 0]);
    assert_eq!(
        with("messageExpression", json!("self < -9 ? 'far too few' : 'too few'"), "self > 0"),
        [""; 0]
    );
}

#[test]
fn old_values_are_asked_for_only_where_there_can_be_any() {
    let list = |kind: &str| {
        let mut list = json!({"type": "array", "maxItems": 5, "items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}});
        match kind {
            "" => {}
            "map" => {
                list["x-kubernetes-list-type"] = json!("map");
                list["x-kubernetes-list-map-keys"] = json!(["k"]);
            }
            kind => list["x-kubernetes-list-type"] = json!(kind),
        }
        list
    };
    assert_eq!(said(&object(json!({"l": list("map")}))), [""; 0]);
    for kind in ["", "atomic"] {
        assert_eq!(
            said(&object(json!({"l": list(kind)}))),
            [
                "s.properties[l].items.properties[v].x-kubernetes-validations[0].rule: Invalid value: \"self >= oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[l]"
            ],
            "{kind}"
        );
    }
}

#[test]
fn costs_are_bounded_for_each_rule_and_for_all() {
    let free = json!({"type": "array", "items": {"type": "string"}});
    let schema = field(free.clone(), &["self.all(x, self.all(y, x == y))"]);
    assert_eq!(
        said(&schema),
        [
            "s.properties[f].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
            "s.properties[f].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
        ]
    );
    // A stored schema may cost what it costs, up to the bound of all.
    assert!(said_of(&schema, true).iter().all(|line| !line.contains("estimated rule cost exceeds")));
    let bounded = json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}});
    assert_eq!(said(&field(bounded, &["self.all(x, self.all(y, x == y))"])), [""; 0]);
    // A rule costs as often as it can be evaluated.
    let nested = |inner: Value| object(json!({"l": {"type": "array", "items": inner}}));
    let inner =
        |length: u64| field(json!({"type": "string", "maxLength": length}), &["self.contains('abcdefgh')"]);
    assert_eq!(said(&nested(inner(5))), [""; 0]);
    let all = said(&nested(inner(1000)));
    assert!(all[0].starts_with("s.properties[l].items.properties[f].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of "), "{all:#?}");
    let message = json!({"type": "object", "properties": {"f": {"type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": [{"rule": "true", "messageExpression": "self.all(x, self.all(y, x == y)) ? 'a' : 'b'"}]}}});
    assert!(
        said(&message)[0]
            .contains("].messageExpression: Forbidden: estimated messageExpression cost exceeds")
    );
}

#[test]
fn factors_are_shown_as_upstream_shows_them() {
    for (cost, shown) in [
        (12_000_000, "1.200000x"),
        (15_000_000, "1.5x"),
        (1_000_000_000, "100.0x"),
        (u64::MAX, "more than 100x"),
    ] {
        let said = super::check::tests::exceeded(cost);
        assert!(said.contains(&format!("budget by factor of {shown} (")), "{said}");
    }
}

#[test]
fn defaults_keep_the_rules_about_them() {
    let schema = |default: Value| {
        let mut schema = field(object(json!({"n": {"type": "integer"}})), &["self.n > 1"]);
        schema["properties"]["f"]["default"] = default;
        schema
    };
    assert_eq!(said(&schema(json!({"n": 2}))), [""; 0]);
    assert_eq!(
        said(&schema(json!({"n": 1}))),
        ["s.properties[f].default: Invalid value: failed rule: self.n > 1"]
    );
    assert_eq!(
        said(&schema(json!({}))),
        ["s.properties[f].default: Invalid value: \"object\": no such key: n evaluating rule: self.n > 1"]
    );
    // One that is only right as long as it was there before is not right.
    let mut schema = field(json!({"type": "integer", "default": 1}), &["oldSelf.hasValue()"]);
    schema["properties"]["f"]["x-kubernetes-validations"][0]["optionalOldSelf"] = json!(true);
    assert_eq!(said(&schema).len(), 1);
}

#[test]
fn each_wrong_default_is_told_once() {
    let wrong = |default: i64| {
        let mut schema = json!({"type": "integer", "default": default});
        schema["x-kubernetes-validations"] = json!([{"rule": "self > 1"}]);
        schema
    };
    let all = said(&object(json!({"a": wrong(0), "b": wrong(1), "c": wrong(2)})));
    assert_eq!(
        all,
        [
            "s.properties[a].default: Invalid value: 0: failed rule: self > 1",
            "s.properties[b].default: Invalid value: 1: failed rule: self > 1",
        ]
    );
}

#[test]
fn many_rules_take_bounded_work() {
    // Wherever there is a rule, the type is declared with all that is below.
    let leaves: serde_json::Map<String, Value> =
        (0..20_000).map(|index| (format!("f{index}"), json!({"type": "boolean"}))).collect();
    let mut schema = object(Value::Object(leaves));
    for _ in 0..55 {
        schema = json!({"type": "object", "properties": {"x": schema}, "x-kubernetes-validations": [{"rule": "true"}]});
    }
    let all = said(&schema);
    assert!(all.len() == 1 && all[0].contains("take too long to compile"), "{all:#?}");
    // A stored one refuses objects, as nobody knows whether they are right.
    let expressions = expressions_of(&schema);
    let mut object = json!({});
    (0..55).for_each(|_| object = json!({"x": object}));
    assert!(
        expressions
            .check(&object, None)
            .iter()
            .any(|error| error.message.contains("take too long to compile"))
    );

    // A rule that is very long, and one that is nested very deeply.
    for rule in [
        format!("[{}] != []", "1, ".repeat(200_000) + "1"),
        "(".repeat(100_000),
        "!".repeat(100_000) + "true",
    ] {
        assert!(said(&field(json!({"type": "integer"}), &[&rule])).len() <= 3);
    }
    let wrong = "nobody ".repeat(200) + &"+ x".repeat(200);
    let rules: Vec<&str> = vec![&wrong; 300];
    let all = said(&field(json!({"type": "integer"}), &rules));
    assert!(all.iter().map(String::len).sum::<usize>() < 16 << 20);
}
