//! Messages that no encoder of ours writes: each is read as Go's generated code reads it, or refused.
//!
//! Source: the `Unmarshal` functions of `k8s.io/api/*/generated.pb.go`, and protobuf's encoding.

use super::*;

/// A field of bytes.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("a short field");
    [&[number << 3 | 2, length], content].concat()
}

fn varint(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3], value].concat()
}

/// A row: what it is, its parts, and what comes of it.
type Row<'a> = (&'a str, &'a [&'a [u8]], Result<Value, &'a str>);

fn check_each((group, version, kind): (&str, &str, &str), rows: &[Row<'_>]) {
    let schema = crate::builtin().kind(group, version, kind).expect("a kind");
    let wrong = rows.iter().filter_map(|(name, parts, expected)| {
        let found = decode_message(schema, &parts.concat()).map_err(|error| error.to_string());
        let is_right = match (expected, &found) {
            (Ok(expected), Ok(found)) => expected == found,
            (Err(part), Err(error)) => error.contains(part),
            _ => false,
        };
        (!is_right).then(|| format!("{name}: {found:?}"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const CONFIG_MAP: (&str, &str, &str) = ("", "v1", "ConfigMap");

#[test]
fn fields_come_in_any_order_and_number() {
    let name = |text: &str| bytes(1, &bytes(1, text.as_bytes()));
    let label = |key: &[u8], value: &[u8]| bytes(1, &bytes(11, &[key, value].concat()));
    check_each(
        CONFIG_MAP,
        &[
            ("nothing at all", &[], Ok(json!({"metadata": {}}))),
            (
                "a text twice: the last counts",
                &[&name("a"), &name("b")],
                Ok(json!({"metadata": {"name": "b"}})),
            ),
            (
                "a message in two parts is one",
                &[&name("a"), &bytes(1, &bytes(3, b"ns")), &label(&bytes(1, b"k"), &bytes(2, b"v"))],
                Ok(json!({"metadata": {"name": "a", "namespace": "ns", "labels": {"k": "v"}}})),
            ),
            (
                "the entries of a map come together from all parts",
                &[
                    &label(&bytes(1, b"k"), &bytes(2, b"v")),
                    &label(&bytes(1, b"l"), &bytes(2, b"w")),
                    &label(&bytes(1, b"k"), &bytes(2, b"x")),
                ],
                Ok(json!({"metadata": {"labels": {"k": "x", "l": "w"}}})),
            ),
            (
                "an entry's value before its key",
                &[&label(&bytes(2, b"v"), &bytes(1, b"k"))],
                Ok(json!({"metadata": {"labels": {"k": "v"}}})),
            ),
            ("an entry of nothing", &[&label(b"", b"")], Ok(json!({"metadata": {"labels": {"": ""}}}))),
            (
                "what is not known is left out",
                &[&bytes(15, b"what?"), &name("a"), &varint(14, &[1])],
                Ok(json!({"metadata": {"name": "a"}})),
            ),
            (
                "a high number that is not known",
                &[&[0xfa, 0xff, 0xff, 0xff, 0x0f, 0x01, 0x00], &name("a")],
                Ok(json!({"metadata": {"name": "a"}})),
            ),
            (
                "eight bytes and four that are not known",
                &[&[15 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8], &[15 << 3 | 5, 1, 2, 3, 4], &name("a")],
                Ok(json!({"metadata": {"name": "a"}})),
            ),
            (
                "a group that is not known, with another in it",
                &[&[15 << 3 | 3, 0x08, 0x01, 0x13, 0x12, 0x01, 0x00, 0x14, 15 << 3 | 4], &name("a")],
                Ok(json!({"metadata": {"name": "a"}})),
            ),
            (
                "a switch that is on in an odd way",
                &[&varint(4, &[0xff, 0x01])],
                Ok(json!({"metadata": {}, "immutable": true})),
            ),
            ("a switch that is off", &[&varint(4, &[0])], Ok(json!({"metadata": {}, "immutable": false}))),
        ],
    );
}

#[test]
fn numbers_have_many_forms() {
    let scale = |spec: &[u8]| bytes(2, spec);
    let replicas = |value: i64| Ok(json!({"metadata": {}, "spec": {"replicas": value}, "status": {}}));
    check_each(
        ("autoscaling", "v1", "Scale"),
        &[
            ("one byte", &[&scale(&varint(1, &[5]))], replicas(5)),
            ("longer than need be", &[&scale(&varint(1, &[0x85, 0x80, 0x80, 0x00]))], replicas(5)),
            (
                "below nothing",
                &[&scale(&varint(1, &[0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]))],
                replicas(-5),
            ),
            ("twice: the last counts", &[&scale(&[varint(1, &[5]), varint(1, &[6])].concat())], replicas(6)),
            ("in two parts", &[&scale(&varint(1, &[5])), &scale(b"")], replicas(5)),
            (
                "beyond 32 bits",
                &[&scale(&varint(1, &[0x80, 0x80, 0x80, 0x80, 0x10]))],
                Err("integer overflow"),
            ),
            ("without end", &[&scale(&varint(1, &[0x80; 11]))], Err("integer overflow")),
            ("as text", &[&scale(&bytes(1, b"5"))], Err("wrong wireType")),
            ("as eight bytes", &[&scale(&[1 << 3 | 1, 5, 0, 0, 0, 0, 0, 0, 0])], Err("wrong wireType")),
            ("as four bytes", &[&scale(&[1 << 3 | 5, 5, 0, 0, 0])], Err("wrong wireType")),
            ("as a group", &[&scale(&[1 << 3 | 3, 1 << 3 | 4])], Err("wrong wireType")),
            ("a message as a number", &[&varint(2, &[5])], Err("wrong wireType")),
        ],
    );
}

#[test]
fn what_is_no_message_is_refused() {
    check_each(
        CONFIG_MAP,
        &[
            ("a tag that is cut off", &[&[0x80]], Err("unexpected EOF")),
            ("a length that is cut off", &[&[0x0a]], Err("unexpected EOF")),
            ("a length beyond the end", &[&[0x0a, 0x05, 0x00]], Err("unexpected EOF")),
            (
                "a length beyond all memory",
                &[&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]],
                Err("unexpected EOF"),
            ),
            (
                "a length below nothing",
                &[&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]],
                Err("unexpected EOF"),
            ),
            ("field 0", &[&[0x02, 0x00]], Err("illegal tag 0")),
            ("wire type 6", &[&[0x0e]], Err("illegal wireType")),
            ("wire type 7", &[&[15 << 3 | 7]], Err("illegal wireType")),
            ("a group's end alone", &[&[15 << 3 | 4]], Err("end group for non-group")),
            ("a group without end", &[&[15 << 3 | 3, 0x08, 0x01]], Err("unexpected EOF")),
            ("a group of a wire type that is none", &[&[15 << 3 | 3, 0x0f]], Err("illegal wireType")),
            ("groups without end", &[&[15 << 3 | 3; 4096]], Err("unexpected EOF")),
            ("a tag without end", &[&[0x80; 11]], Err("integer overflow")),
            ("a name that is no text", &[&bytes(1, &bytes(1, b"\xff\xfe"))], Err("text is not UTF-8")),
            ("labels as a number", &[&bytes(1, &[11 << 3, 0x01])], Err("wrong wireType")),
            ("the inner message is cut off", &[&bytes(1, &[0x0a, 0x02, b'a'])], Err("unexpected EOF")),
        ],
    );
}

#[test]
fn special_types_are_as_strict() {
    let amount = |inner: &[u8]| {
        let entry = [bytes(1, b"cpu"), bytes(2, inner)].concat();
        bytes(2, &bytes(1, &entry))
    };
    check_each(
        ("", "v1", "ResourceQuota"),
        &[
            (
                "an amount",
                &[&amount(&bytes(1, b"100m"))],
                Ok(json!({"metadata": {}, "spec": {"hard": {"cpu": "100m"}}, "status": {}})),
            ),
            (
                "no amount",
                &[&amount(b"")],
                Ok(json!({"metadata": {}, "spec": {"hard": {"cpu": "0"}}, "status": {}})),
            ),
            ("an amount that is none", &[&amount(&bytes(1, b"many"))], Err("quantit")),
            ("an amount as a number", &[&amount(&varint(1, &[5]))], Err("wrong wireType")),
        ],
    );
    let created = |inner: &[u8]| bytes(1, &bytes(8, inner));
    check_each(
        CONFIG_MAP,
        &[
            ("no time", &[&created(b"")], Ok(json!({"metadata": {}}))),
            (
                "a time",
                &[&created(&varint(1, &[1]))],
                Ok(json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:01Z"}})),
            ),
            (
                "a time beyond the year 9999",
                &[&created(&varint(1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]))],
                Err("time out of range"),
            ),
        ],
    );
}
