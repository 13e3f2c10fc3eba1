//! Random schemas and values: whatever they are, no walk panics, and what holds of all holds of them.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{arena, source};
use crate::build::{BuildError, build};
use crate::openapi::{Arenas, Resource, v2, v3};
use crate::walk::decode::{self, FieldValidation};
use crate::walk::{declared, nulls::Nulls, validate, visit};

const SEED: u64 = 0x6b6e_6172_7200_0016;
const ROUNDS: usize = 400;
const NAMES: [&str; 7] = ["a", "b", "spec", "metadata", "apiVersion", "kind", "ü.x"];
const PATTERNS: [&str; 5] = ["^a*$", "[", "(?=a)", "\\d{1,3}", "a{1,1000}"];
const FORMATS: [&str; 6] = ["int32", "date-time", "uri", "email", "unheard-of", "cidr"];

fn pick<'a>(rng: &mut Rng, all: &[&'a str]) -> &'a str {
    rng.choice(all).copied().unwrap_or_default()
}

/// A schema that is structural more often than not.
fn schema(rng: &mut Rng, depth: usize) -> Value {
    let ty = pick(
        rng,
        &["object", "object", "array", "string", "integer", "number", "boolean", "", "map", "either"],
    );
    let mut schema = match ty {
        "object" if depth > 0 => {
            let count = rng.usize(0..4);
            let properties: crate::Object =
                (0..count).map(|_| (pick(rng, &NAMES).to_owned(), self::schema(rng, depth - 1))).collect();
            json!({"type": "object", "properties": properties, "required": [pick(rng, &NAMES)]})
        }
        "array" if depth > 0 => {
            let kind = pick(rng, &["atomic", "set", "map"]);
            json!({"type": "array", "items": self::schema(rng, depth - 1), "x-kubernetes-list-type": kind,
                "x-kubernetes-list-map-keys": [pick(rng, &NAMES)], "uniqueItems": rng.bool(), "maxItems": rng.i64(0..4)})
        }
        "map" if depth > 0 => json!({"type": "object", "additionalProperties": self::schema(rng, depth - 1)}),
        "either" => json!({"x-kubernetes-int-or-string": true}),
        "string" => json!({"type": "string", "maxLength": rng.i64(-1..5), "format": pick(rng, &FORMATS)}),
        "integer" | "number" => {
            json!({"type": ty, "maximum": rng.f64() * 10.0, "multipleOf": rng.i64(-1..3), "format": pick(rng, &FORMATS)})
        }
        "boolean" => json!({"type": "boolean"}),
        _ => json!({"x-kubernetes-preserve-unknown-fields": true}),
    };
    if rng.u8(..) < 40 {
        schema["default"] = value(rng, 2);
    }
    if rng.u8(..) < 40 {
        schema["nullable"] = true.into();
    }
    if rng.u8(..) < 20 {
        schema["x-kubernetes-embedded-resource"] = true.into();
    }
    if rng.u8(..) < 20 {
        schema["pattern"] = pick(rng, &PATTERNS).into();
    }
    if rng.u8(..) < 40 {
        schema[pick(rng, &["anyOf", "oneOf", "allOf"])] =
            json!([{"required": [pick(rng, &NAMES)]}, {"enum": [value(rng, 1)]}]);
    }
    schema
}

/// Any JSON.
fn value(rng: &mut Rng, depth: usize) -> Value {
    match rng.u8(0..if depth == 0 { 7 } else { 10 }) {
        0 => Value::Null,
        1 => rng.bool().into(),
        2 => rng.i64(..).into(),
        3 => rng.u64(..).into(),
        4 => (rng.f64() * 1e3).into(),
        5 => rng.i64(-3..3).into(),
        6 => pick(rng, &["", "a", "aaaaaa", "12", "2020-01-01T00:00:00Z", "v1"]).into(),
        7 => (0..rng.usize(0..4)).map(|_| value(rng, depth - 1)).collect(),
        _ => {
            let count = rng.usize(0..5);
            let fields = (0..count).map(|_| (pick(rng, &NAMES).to_owned(), value(rng, depth - 1)));
            Value::Object(fields.collect::<Vec<_>>().into_iter().collect())
        }
    }
}

#[test]
fn no_walk_panics_and_what_holds_of_all_holds_of_random_schemas() {
    let (mut built, mut refused, mut valid, mut invalid) = (0, 0, 0, 0);
    for round in 0..ROUNDS {
        let mut rng = Rng::with_seed(SEED + u64::try_from(round).expect("small"));
        let whole =
            json!({"type": "object", "properties": {"spec": schema(&mut rng, 4), "a": schema(&mut rng, 2)}});
        let schemas = match build(&source(&whole)) {
            Ok(schemas) => schemas,
            Err(BuildError::NotStructural(violations)) => {
                assert!(!violations.is_empty(), "refused for nothing in round {round}");
                refused += 1;
                continue;
            }
            Err(other) => panic!("round {round}: {other}"),
        };
        built += 1;
        let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
        for _ in 0..10 {
            let body =
                json!({"spec": value(&mut rng, 4), "a": value(&mut rng, 3), "kind": "Foo"}).to_string();
            let Ok(decoded) = decode::from_json(kind, body.as_bytes(), FieldValidation::Warn) else {
                continue;
            };
            let again = decode::from_value(kind, decoded.value.clone(), FieldValidation::Strict);
            assert_eq!(
                again.map(|again| again.value).as_ref(),
                Ok(&decoded.value),
                "pruned twice in round {round}"
            );
            let mut object = decoded.value;
            declared::apply(kind, &mut object).expect("little memory");
            let before = object.clone();
            declared::apply(kind, &mut object).expect("little memory");
            assert_eq!(object, before, "defaulted twice in round {round}");
            Nulls::new(&schemas).fill(kind, &mut object);
            assert_eq!(object, before, "nulls in round {round}");
            visit::objects(kind, &object, &mut |_, _, _| {});
            let findings = validate::validate(kind, &object);
            if findings.violations.is_empty() { valid += 1 } else { invalid += 1 }
        }
        let resource = Resource {
            group: "example.com",
            version: "v1",
            kind: "Foo",
            plural: "foos",
            namespaced: true,
            verbs: &["get", "list"],
            is_deletion_answered: false,
            subresources: &[],
        };
        if round % 40 == 0 {
            let arenas = [crate::builtin(), &schemas];
            v2::to_protobuf(&v2::document(Arenas::Several(&arenas), &[resource], &[]));
            v3::to_protobuf(&v3::document(Arenas::Several(&arenas), "example.com", "v1", &[resource]));
        }
    }
    let seen = [built, refused, valid, invalid];
    assert!(seen.iter().all(|count| *count > 20), "the rounds do not vary: {seen:?}");
}

#[test]
fn hostile_values_end_in_time() {
    let schemas = arena(
        &json!({"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set",
        "uniqueItems": true, "items": {"type": "string", "pattern": "^(a+)+$", "anyOf": [{"enum": ["b"]}, {"enum": ["c"]}]}}}),
    );
    let kind = schemas.kind("example.com", "v1", "Foo").expect("a kind");
    let items: Vec<String> = (0..10_000).map(|number| format!("{}{number}", "a".repeat(20))).collect();
    let object = json!({"spec": {"k": items, "l": vec!["a"; 10_000]}});
    let started = std::time::Instant::now();
    let findings = validate::validate(kind, &object);
    assert!(findings.left_out > 0 && findings.violations.len() <= 1100);
    assert!(started.elapsed().as_secs() < 60, "it took {:?}", started.elapsed());
}
