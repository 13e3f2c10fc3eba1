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
