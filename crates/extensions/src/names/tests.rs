use serde_json::json;

use super::*;

/// Plural, singular, kind and list kind, then short names; those that are empty are not there.
fn names(all: &[&str]) -> Value {
    let fields = ["plural", "singular", "kind", "listKind"];
    let mut names: Map<String, Value> = fields
        .iter()
        .zip(all)
        .filter(|(_, name)| !name.is_empty())
        .map(|(field, name)| ((*field).to_owned(), (*name).into()))
        .collect();
    if let Some(short) = all.get(4..).filter(|short| !short.is_empty()) {
        names.insert("shortNames".to_owned(), short.into());
    }
    names.into()
}

fn definition(group: &str, wanted: &[&str], had: &[&str]) -> Value {
    json!({"spec": {"group": group, "names": names(wanted)}, "status": {"acceptedNames": names(had)}})
}

const GROUP: &str = "bravo.com";
const ALL: &[&str] = &["alfa", "delta", "Echo", "FoxtrotList", "golf", "hotel"];
const OLD: &[&str] = &["zulu", "yankee", "Xray", "WhiskeyList", "victor", "uniform"];

/// What a definition that wants `ALL` and has `had` gets beside one of these names, and the conflict that is told.
fn check(had: &[&str], other: &[&str], got: &[&str], conflict: Option<(&'static str, &str)>) {
    let definition = definition(GROUP, ALL, had);
    let other = self::definition(GROUP, &[], other);
    let given = give(&definition, &Taken::of(GROUP, [&other, &definition]));
    let mut wanted = names(got);
    for field in ["plural", "kind"] {
        if wanted.get(field).is_none() {
            wanted[field] = json!("");
        }
    }
    assert_eq!(given.names, wanted, "beside {other}");
    assert_eq!(given.conflict, conflict.map(|(reason, message)| (reason, message.to_owned())));
}

#[test]
fn names_that_nobody_has_are_given() {
    check(&[], &[], ALL, None);
    check(ALL, &[], ALL, None);
    check(OLD, &[], ALL, None);
    check(&[], &["india", "Echo", "delta", "FoxtrotLists"], ALL, None);
    let elsewhere = definition("charlie.com", ALL, ALL);
    let mine = definition(GROUP, ALL, &[]);
    assert_eq!(give(&mine, &Taken::of(GROUP, [&elsewhere])).conflict, None);
    check(&["alfa", "delta", "Echo", "FoxtrotList", "golf", "hotel", "old"], &[], ALL, None);
}

#[test]
fn a_name_is_only_one_definitions() {
    let in_use = |reason, message| Some((reason, message));
    check(
        &[],
        &["india", "alfa"],
        &["", "delta", "Echo", "FoxtrotList", "golf", "hotel"],
        in_use("PluralConflict", "\"alfa\" is already in use"),
    );
    check(
        &[],
        &["india", "indias", "", "", "delta"],
        &["alfa", "", "Echo", "FoxtrotList", "golf", "hotel"],
        in_use("SingularConflict", "\"delta\" is already in use"),
    );
    check(
        &[],
        &["india", "indias", "", "", "hotel"],
        &ALL[..4],
        in_use("ShortNamesConflict", "\"hotel\" is already in use"),
    );
    check(
        &[],
        &["golf", "hotel"],
        &ALL[..4],
        in_use("ShortNamesConflict", "[\"golf\" is already in use, \"hotel\" is already in use]"),
    );
    check(
        &[],
        &["india", "indias", "", "Echo"],
        &["alfa", "delta", "", "FoxtrotList", "golf", "hotel"],
        in_use("KindConflict", "\"Echo\" is already in use"),
    );
    check(
        &[],
        &["india", "indias", "FoxtrotList", ""],
        &["alfa", "delta", "Echo", "", "golf", "hotel"],
        in_use("ListKindConflict", "\"FoxtrotList\" is already in use"),
    );
}

#[test]
fn what_cannot_be_had_stays_as_it_was_and_the_last_conflict_is_told() {
    let told = Some(("ListKindConflict", "\"FoxtrotList\" is already in use"));
    check(
        OLD,
        &["india", "indias", "FoxtrotList", "", "delta"],
        &["alfa", "yankee", "Echo", "WhiskeyList", "golf", "hotel"],
        told,
    );
    check(
        OLD,
        &["india", "indias", "FoxtrotList", "", "delta", "golf"],
        &["alfa", "yankee", "Echo", "WhiskeyList", "victor", "uniform"],
        told,
    );
}

#[test]
fn categories_are_everybodys() {
    let mut first = definition(GROUP, ALL, ALL);
    first["status"]["acceptedNames"]["categories"] = json!(["all"]);
    let mut second = definition(GROUP, &["a", "b", "C", "CList"], &[]);
    second["spec"]["names"]["categories"] = json!(["all"]);
    let given = give(&second, &Taken::of(GROUP, [&first]));
    assert_eq!(given.conflict, None);
    assert_eq!(given.names["categories"], json!(["all"]));
}

#[test]
fn a_definition_that_says_nothing_panics_nobody() {
    for broken in [
        json!(null),
        json!([]),
        json!({"spec": 1}),
        json!({"spec": {"names": []}, "status": {"acceptedNames": "x"}}),
    ] {
        let given = give(&broken, &Taken::of("", [&broken]));
        assert_eq!(given.conflict, None);
        assert_eq!(given.names, json!({"plural": "", "kind": ""}));
    }
}
