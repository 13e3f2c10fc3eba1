//! What is read, and what is refused in which words.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{TypeMeta, json as read_json, yaml};
use crate::walk::budget::Allowance;
use crate::walk::decode::{DecodeError, Decoded, FieldValidation};

fn told(outcome: Result<Decoded, DecodeError>) -> String {
    match outcome {
        Ok(decoded) => format!("{} {:?}", decoded.value, decoded.warnings),
        Err(failure) => format!("{failure:?}"),
    }
}

fn check_yaml(text: &str, expect: Expect) {
    expect.assert_eq(&told(yaml(text.as_bytes(), Allowance::Usual, FieldValidation::Warn)));
}

fn check_json(text: &str, expect: Expect) {
    expect.assert_eq(&told(read_json(text.as_bytes(), Allowance::Usual, FieldValidation::Warn)));
}

#[test]
fn values_are_read_as_they_are() {
    check_json(r#"{"a": null, "b": [1, {"c": "d"}]}"#, expect![[r#"{"a":null,"b":[1,{"c":"d"}]} []"#]]);
    check_yaml("a: ~\nb: [1, {c: d}, yes, 0x10]\n", expect![[r#"{"a":null,"b":[1,{"c":"d"},true,16]} []"#]]);
}

/// What is read and written again must not drift: every patch of an object does that.
#[test]
fn numbers_of_many_digits_stay_what_they_are() {
    for number in ["999999999999999999999999999999999999999999999", "0.1", "123456.78901234567", "5e-324"] {
        let read =
            |text: &str| read_json(text.as_bytes(), Allowance::Usual, FieldValidation::Warn).unwrap().value;
        let once = read(number);
        assert_eq!(read(&once.to_string()), once, "{number}");
        assert_eq!(once.as_f64(), number.parse().ok(), "{number}");
    }
}

#[test]
fn the_last_of_two_counts_and_is_warned_about() {
    check_json(r#"{"a": {"b": 1, "b": 2}}"#, expect![[r#"{"a":{"b":2}} ["duplicate field \"a.b\""]"#]]);
    check_yaml("a: {b: 1, b: 2}\n", expect![[r#"{"a":{"b":2}} ["duplicate field \"a.b\""]"#]]);
}

#[test]
fn what_is_no_text_of_its_kind_is_refused() {
    check_json("{\"a\": 1", expect![[r#"Syntax("unexpected end of JSON input")"#]]);
    check_json("{} x", expect![[r#"Syntax("invalid character 'x' after top-level value")"#]]);
    check_json(&"[".repeat(200), expect![[r#"Syntax("unexpected end of JSON input")"#]]);
    check_json(&["[".repeat(200), "]".repeat(200)].concat(), expect![[r#"Syntax("exceeded max depth")"#]]);
    let broken = told(yaml(b"a: [", Allowance::Usual, FieldValidation::Warn));
    assert!(broken.starts_with("Syntax(\"yaml: "), "{broken}");
}

#[test]
fn a_few_bytes_cannot_fill_the_memory() {
    let refused = |bytes: &[u8]| {
        let json = read_json(bytes, Allowance::Usual, FieldValidation::Ignore);
        assert_eq!(json.err(), Some(DecodeError::TooLarge));
    };
    refused(format!("[{}{{}}]", "{},".repeat(1_000_000)).as_bytes());
    refused(format!("[{}{{}}]", "{\"a\":0},".repeat(300_000)).as_bytes());
    let numbers = format!("[{}0]", "0,".repeat(50_000));
    assert!(read_json(numbers.as_bytes(), Allowance::Usual, FieldValidation::Ignore).is_ok());
}

#[test]
fn aliases_cannot_explode() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..10 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        text.push_str(&format!("a{i}: &a{i} [{list}]\n"));
    }
    let refused = yaml(text.as_bytes(), Allowance::Usual, FieldValidation::Ignore);
    assert!(matches!(refused, Err(DecodeError::Syntax(_) | DecodeError::TooLarge)), "{refused:?}");
    let plain = yaml(b"a: &a {b: c}\nd: *a\n", Allowance::Usual, FieldValidation::Ignore);
    assert_eq!(plain.map(|decoded| decoded.value), Ok(json!({"a": {"b": "c"}, "d": {"b": "c"}})));
}

#[test]
fn what_a_body_claims_to_be_is_read_without_the_rest() {
    let check = |text: &str, expect: Result<(&str, &str), &str>| {
        let found = TypeMeta::of_json(text.as_bytes());
        let found = found.as_ref().map(|meta| (&*meta.api_version, &*meta.kind));
        assert_eq!(found.map_err(ToString::to_string), expect.map_err(str::to_owned), "{text}");
    };
    check(r#"{"kind": "A", "spec": {"kind": 5}, "apiVersion": "v1", "kind": "B"}"#, Ok(("v1", "B")));
    check("null", Ok(("", "")));
    check(r#"{"kind": 5}"#, Err("json: cannot unmarshal number into Go struct field .kind of type string"));
    check(
        "[]",
        Err("json: cannot unmarshal array into Go value of type struct { APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"),
    );
    assert_eq!(TypeMeta::of_value(&Value::Null), TypeMeta::default());
}

/// Source: `resolve` of `go.yaml.in/yaml/v2`, by which upstream reads YAML 1.1, and what its values are as JSON.
#[test]
fn plain_scalars_are_what_gos_parser_takes_them_for() {
    for (text, expect) in [
        ("true", json!(true)),
        ("True", json!(true)),
        ("yes", json!(true)),
        ("on", json!(true)),
        ("y", json!(true)),
        ("No", json!(false)),
        ("OFF", json!(false)),
        ("n", json!(false)),
        ("'yes'", json!("yes")),
        ("\"on\"", json!("on")),
        ("!!str yes", json!("yes")),
        ("yess", json!("yess")),
        ("", Value::Null),
        ("~", Value::Null),
        ("null", Value::Null),
        ("Null", Value::Null),
        ("'null'", json!("null")),
        ("''", json!("")),
        ("0", json!(0)),
        ("5", json!(5)),
        ("+5", json!(5)),
        ("-5", json!(-5)),
        ("0644", json!(420)),
        ("0777", json!(511)),
        ("-010", json!(-8)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("08", json!(8)),
        ("1.0", json!(1)),
        ("1_000", json!(1000)),
        ("'0644'", json!("0644")),
        ("!!str 0644", json!("0644")),
        ("9223372036854775807", json!(9_223_372_036_854_775_807_i64)),
        ("-9223372036854775808", json!(-9_223_372_036_854_775_808_i64)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("-1.5e3", json!(-1500)),
        ("1e3", json!(1000)),
        ("1.2.3", json!("1.2.3")),
        ("1e", json!("1e")),
        ("0xZ", json!("0xZ")),
        ("0b12", json!("0b12")),
        ("12:30:45", json!("12:30:45")),
        ("2001-12-14", json!("2001-12-14")),
        ("2001-12-14T21:59:43.10Z", json!("2001-12-14T21:59:43.10Z")),
        ("10.0.0.0/8", json!("10.0.0.0/8")),
        ("1Gi", json!("1Gi")),
        ("100m", json!("100m")),
    ] {
        let read = yaml(format!("v: {text}\n").as_bytes(), Allowance::Usual, FieldValidation::Ignore);
        let read = read.map(|decoded| decoded.value["v"].clone());
        assert_eq!(read, Ok(expect), "{text}");
    }
}

#[test]
fn yaml_is_read_with_its_ways_to_write_texts_and_to_say_things_once() {
    for (text, expect) in [
        ("a: |\n  one\n  two\n", json!({"a": "one\ntwo\n"})),
        ("a: |-\n  one\n  two\n", json!({"a": "one\ntwo"})),
        ("a: >\n  one\n  two\n\n  three\n", json!({"a": "one two\nthree\n"})),
        ("a: \"x\\ty\\u00e9\"\n", json!({"a": "x\ty\u{e9}"})),
        ("a: 'it''s'\n", json!({"a": "it's"})),
        ("a: &x [1, 2]\nb: *x\n", json!({"a": [1, 2], "b": [1, 2]})),
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\n", json!({"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}})),
        ("# first\na: 1 # second\n", json!({"a": 1})),
        ("---\na: 1\n", json!({"a": 1})),
        ("%YAML 1.1\n---\na: 1\n", json!({"a": 1})),
        ("a: 1\n---\nb: 2\n", json!({"a": 1})),
        ("# none\n---\na: 1\n--- # next\nb: [\n", json!({"a": 1})),
        ("a: 1\n...\nb: 2\n", json!({"a": 1})),
        ("--- {a: 1}\n---\nb: 2\n", json!({"a": 1})),
        ("a: |\n  ---\n  x\nb: ---x\n", json!({"a": "---\nx\n", "b": "---x"})),
        ("a:\n- b\n- c\n", json!({"a": ["b", "c"]})),
        ("a:\n  - b: 1\n    c: 2\n", json!({"a": [{"b": 1, "c": 2}]})),
        ("{\"a\": [true, null, \"x\"]}", json!({"a": [true, null, "x"]})),
        ("1: a\ntwo: b\n", json!({"1": "a", "two": "b"})),
        ("[a, b]\n", json!(["a", "b"])),
    ] {
        let read = yaml(text.as_bytes(), Allowance::Usual, FieldValidation::Ignore);
        assert_eq!(read.map(|decoded| decoded.value), Ok(expect), "{text}");
    }
    for text in ["a: [1, 2\n", "a: 'x\n", "a: *nobody\n", "a: b: c\n", "a: {b\n", "- a\nb: c\n", "\u{0}"] {
        let read = yaml(text.as_bytes(), Allowance::Usual, FieldValidation::Ignore);
        assert!(
            matches!(&read, Err(DecodeError::Syntax(why)) if why.starts_with("yaml: ")),
            "{text:?}: {read:?}"
        );
    }
    assert!(yaml(&[0xff, 0xfe], Allowance::Usual, FieldValidation::Ignore).is_err());
}
