//! The cases of upstream's `patch_test.go`, with its type.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::rows::{
    Field, Int32, Json, List, ListKind, MERGE, Map, Message, REPLACE, RETAIN_KEYS, Schemas, String, Type, f, g, l, m,
};
use serde_json::Value;

use super::strategic;

const LIST: Type = Type::List(0);
const INTS: Type = Type::List(1);
const ITEM: Type = Type::Message(0);
static LISTS: [List; 2] = [l(ITEM, ListKind::Unset, &[]), l(Int32, ListKind::Unset, &[])];
static MAPS: [Type; 1] = [String];
static FIELDS: [Field; 13] = [
    f("jsonItem", Json, 0, 0),
    g("mergeItemPtr", ITEM, 0, MERGE, &[], "name", ""),
    f("mergingIntList", INTS, 0, MERGE),
    g("mergingList", LIST, 0, MERGE, &[], "name", ""),
    f("name", String, 0, 0),
    f("nonMergingIntList", INTS, 0, 0),
    f("nonMergingList", LIST, 0, 0),
    f("other", String, 0, 0),
    f("replacingItem", Json, 0, REPLACE),
    f("retainKeysMap", Type::Message(1), 0, RETAIN_KEYS),
    g("retainKeysMergingList", LIST, 0, MERGE | RETAIN_KEYS, &[], "name", ""),
    f("simpleMap", Map(0), 0, 0),
    f("value", String, 0, 0),
];
static RETAINED_FIELDS: [Field; 7] = [
    f("mergingIntList", INTS, 0, MERGE),
    g("mergingList", LIST, 0, MERGE, &[], "name", ""),
    f("name", String, 0, 0),
    f("nonMergingList", LIST, 0, 0),
    f("other", String, 0, 0),
    f("simpleMap", Map(0), 0, 0),
    f("value", String, 0, 0),
];
static MESSAGES: [Message; 2] = [m("test.MergeItem", 0, &FIELDS), m("test.RetainKeysMergeItem", 0, &RETAINED_FIELDS)];

fn schemas() -> Schemas {
    Schemas {
        messages: Cow::Borrowed(&MESSAGES),
        lists: Cow::Borrowed(&LISTS),
        maps: Cow::Borrowed(&MAPS),
        kinds: Cow::Borrowed(&[]),
        rules: BTreeMap::new(),
        fingerprint: Cow::Borrowed(""),
    }
}

#[test]
fn patches_do_what_upstreams_do() {
    let schemas = schemas();
    let schema = schemas.at(0).expect("a message");
    let json = |line: &str| -> Value { serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")) };
    let mut lines = include_str!("upstream.txt").lines().skip(2);
    let (mut rows, mut failures) = (0, Vec::new());
    while let Some(name) = lines.next() {
        let [object, patch, expect] = [(); 3].map(|()| lines.next().expect("a line"));
        let found = strategic(schema, json(object), json(patch)).map_err(|error| error.to_string());
        let is_right = match (expect.strip_prefix("! "), &found) {
            (Some(part), Err(error)) => error.contains(part),
            (Some(_), Ok(_)) => false,
            (None, found) => *found == Ok(json(expect)),
        };
        rows += 1;
        if !is_right {
            failures.push(format!("{name}\n  {object}\n  {patch}\n  {expect}\n  gave {found:?}"));
        }
    }
    assert!(rows > 190, "{rows} rows");
    assert!(failures.is_empty(), "{} of {rows}:\n{}", failures.len(), failures.join("\n"));
}
