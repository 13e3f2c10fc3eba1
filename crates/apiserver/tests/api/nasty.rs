//! Input that nobody in their right mind sends, made from the table and the schema.

#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of it")]

use std::collections::{BTreeSet, VecDeque};

use base::Random;
use resources::Resource;
use schema::{SchemaRef, Shape};

use crate::fixtures::{self, served};

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The longest body that is read.
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Bytes of some content type, and what they are.
pub type Body = (&'static str, &'static str, Vec<u8>);

/// The seeds of a run: those that every run has, and a new one.
pub fn seeds() -> Vec<u64> {
    torture::seeds(&[7, 1_000_003], 1)
}

/// Every row that something can be sent to.
pub fn writable() -> impl Iterator<Item = &'static Resource> {
    served().filter(|row| row.allows("create"))
}

fn cut(random: &Random, bytes: &[u8], from: usize) -> Vec<u8> {
    let span = u64::try_from(bytes.len() - from).unwrap();
    bytes[..from + usize::try_from(random.below(span)).unwrap()].to_vec()
}

fn noise(random: &Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

/// Bodies that are no object of the row, whichever way they are read.
pub fn bodies(row: &Resource, random: &Random) -> Vec<Body> {
    let object = fixtures::of(row).unwrap();
    let json = object.to_string().into_bytes();
    let schema = schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap();
    let proto = schema::proto::encode(schema, &object).unwrap();
    let mut bodies: Vec<Body> = vec![
        ("wrong content type", "text/plain", json.clone()),
        ("wrong content type", "application/xml", json.clone()),
        ("wrong content type", MERGE_PATCH, json.clone()),
        ("empty", JSON, Vec::new()),
        ("empty", PROTOBUF, Vec::new()),
        ("no object", JSON, b"[]".to_vec()),
        ("no object", JSON, b"5".to_vec()),
        ("no object", JSON, b"\"text\"".to_vec()),
        ("no object", JSON, b"null".to_vec()),
        ("no object", YAML, b"- a".to_vec()),
        ("two objects", JSON, [json.clone(), json.clone()].concat()),
        ("invalid UTF-8", JSON, b"{\"metadata\": {\"name\": \"\xff\xfe\"}}".to_vec()),
        ("invalid UTF-8", YAML, b"metadata: {name: \"\xff\xfe\"}".to_vec()),
        ("half a surrogate", JSON, br#"{"metadata": {"name": "\ud800"}}"#.to_vec()),
        ("protobuf without its magic", PROTOBUF, json.clone()),
        ("protobuf as JSON", JSON, proto.clone()),
        ("other kind", JSON, br#"{"apiVersion":"v1","kind":"Nonsense","metadata":{"name":"a"}}"#.to_vec()),
        ("other version", JSON, br#"{"apiVersion":"example.com/v9","metadata":{"name":"a"}}"#.to_vec()),
        ("kind is no text", JSON, br#"{"kind": {"a": 1}}"#.to_vec()),
        ("other kind", PROTOBUF, schema::proto::seal("v1", "Nonsense", b"")),
        (
            "an unknown group of fields",
            PROTOBUF,
            schema::proto::seal(&row.api_version(), &row.kind, b"\x0b\x0c"),
        ),
        (
            "a length beyond the end",
            PROTOBUF,
            schema::proto::seal(&row.api_version(), &row.kind, b"\x0a\xff\xff\xff\x7f"),
        ),
    ];
    for _ in 0..2 {
        bodies.push(("truncated", JSON, cut(random, &json, 1)));
        let is_whole = |bytes: &Vec<u8>| {
            schema::proto::open(bytes).is_ok_and(|envelope| schema::proto::decode(schema, &envelope).is_ok())
        };
        let cuts = std::iter::repeat_with(|| cut(random, &proto, 4)).take(50);
        bodies.extend(
            cuts.filter(|bytes| !is_whole(bytes)).take(1).map(|bytes| ("truncated", PROTOBUF, bytes)),
        );
        bodies.push(("random", JSON, noise(random, 200)));
        bodies.push(("random", YAML, [b"{".to_vec(), noise(random, 200)].concat()));
        bodies.push(("random", PROTOBUF, noise(random, 200)));
        bodies.push(("random", PROTOBUF, [b"k8s\0".to_vec(), noise(random, 200)].concat()));
    }
    bodies
}

/// Bodies that are small and costly.
pub fn bombs() -> Vec<Body> {
    vec![
        ("deep objects", JSON, [b"{\"metadata\":".repeat(20_000), b"}".repeat(20_000)].concat()),
        ("deep lists", JSON, b"[".repeat(100_000)),
        ("deep lists that end", JSON, [b"[".repeat(5_000), b"]".repeat(5_000)].concat()),
        ("deep lists", YAML, b"[".repeat(20_000)),
        (
            "deep blocks",
            YAML,
            (0..2000).map(|depth| " ".repeat(depth) + "a:\n").collect::<String>().into_bytes(),
        ),
        ("deep messages", PROTOBUF, deep_messages()),
        ("aliases", YAML, aliases()),
        (
            "aliases of one",
            YAML,
            format!("a: &a {}\nb: [{}]\n", "x".repeat(1000), "*a,".repeat(20_000)).into_bytes(),
        ),
        ("merge keys", YAML, format!("a: &a {{b: c}}\n{}", "<<: *a\n".repeat(20_000)).into_bytes()),
    ]
}

/// A few lines that would be a billion.
fn aliases() -> Vec<u8> {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..10 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        text.push_str(&format!("a{i}: &a{i} [{list}]\n"));
    }
    text.into_bytes()
}

/// A custom resource definition whose schema is within itself, again and again.
fn deep_messages() -> Vec<u8> {
    let mut inner = Vec::new();
    for _ in 0..2000 {
        let mut outer = vec![0x0a];
        let mut length = inner.len();
        while length >= 0x80 {
            outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        outer.push(u8::try_from(length).unwrap());
        outer.extend(inner);
        inner = outer;
    }
    schema::proto::seal("v1", "ConfigMap", &inner)
}

/// A body of `length` bytes that repeats a short text between two others.
pub fn repeated(head: &str, unit: &str, tail: &str, length: usize) -> Vec<u8> {
    let count = length.saturating_sub(head.len() + tail.len()) / unit.len();
    [head.to_owned(), unit.repeat(count), tail.to_owned()].concat().into_bytes()
}

/// Every message that a body can have, with a path to it from a row: names of fields, `0` for an element, `key` for an
/// entry.
pub fn reachable() -> Vec<(&'static Resource, Vec<String>, SchemaRef<'static>)> {
    let mut seen = BTreeSet::new();
    let mut queue: VecDeque<_> = writable()
        .map(|row| (row, Vec::new(), schema::builtin().kind(&row.group, &row.version, &row.kind).unwrap()))
        .collect();
    let mut found = Vec::new();
    while let Some((row, path, schema)) = queue.pop_front() {
        if !seen.insert(schema.message_name()) {
            continue;
        }
        for field in schema.fields() {
            let mut path: Vec<String> = path.clone();
            path.push(field.name.to_string());
            let mut ty = schema.field_type(&field.name).unwrap();
            loop {
                ty = match ty.shape() {
                    Shape::List(item, ..) => {
                        path.push("0".to_owned());
                        item
                    }
                    Shape::Map(item) => {
                        path.push("key".to_owned());
                        item
                    }
                    Shape::Object(inner) => {
                        queue.push_back((row, path, inner));
                        break;
                    }
                    Shape::Scalar | Shape::Json => break,
                }
            }
        }
        found.push((row, path, schema));
    }
    found
}

/// `value` at the end of `path`.
pub fn nested(path: &[String], value: &str) -> String {
    path.iter().rev().fold(value.to_owned(), |inner, step| match step.as_str() {
        "0" => format!("[{inner}]"),
        name => format!("{{{name:?}: {inner}}}"),
    })
}
