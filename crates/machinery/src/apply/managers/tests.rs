use super::*;
use expect_test::{Expect, expect};
use serde_json::json;

fn entry(manager: &str, time: &str, field: &str) -> Value {
    json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
           "fieldsType": "FieldsV1", "fieldsV1": {format!("f:{field}"): {}}})
}

fn check(list: &[Value], expect: Expect) {
    let mut managers = Managers::decode(list).unwrap();
    managers.cap();
    let lines: Vec<String> = managers
        .encode()
        .iter()
        .map(|entry| format!("{} {} {}", entry["manager"], entry["time"], entry["fieldsV1"]))
        .collect();
    expect.assert_eq(&lines.join("\n"));
}

#[test]
fn entries_are_sorted_by_operation_time_and_name() {
    let mut applied = entry("z", "2024-01-03T00:00:00Z", "a");
    applied["operation"] = json!("Apply");
    check(
        &[entry("b", "2024-01-02T00:00:00Z", "a"), entry("a", "2024-01-02T00:00:00Z", "b"), applied],
        expect![[r#"
            "z" "2024-01-03T00:00:00Z" {"f:a":{}}
            "a" "2024-01-02T00:00:00Z" {"f:b":{}}
            "b" "2024-01-02T00:00:00Z" {"f:a":{}}"#]],
    );
}

#[test]
fn the_oldest_updates_are_merged_beyond_ten() {
    let list: Vec<Value> = (10..22)
        .map(|n| entry(&format!("m{n}"), &format!("2024-01-{n}T00:00:00Z"), &format!("f{n}")))
        .collect();
    check(
        &list,
        expect![[r#"
            "ancient-changes" "2024-01-12T00:00:00Z" {"f:f10":{},"f:f11":{},"f:f12":{}}
            "m13" "2024-01-13T00:00:00Z" {"f:f13":{}}
            "m14" "2024-01-14T00:00:00Z" {"f:f14":{}}
            "m15" "2024-01-15T00:00:00Z" {"f:f15":{}}
            "m16" "2024-01-16T00:00:00Z" {"f:f16":{}}
            "m17" "2024-01-17T00:00:00Z" {"f:f17":{}}
            "m18" "2024-01-18T00:00:00Z" {"f:f18":{}}
            "m19" "2024-01-19T00:00:00Z" {"f:f19":{}}
            "m20" "2024-01-20T00:00:00Z" {"f:f20":{}}
            "m21" "2024-01-21T00:00:00Z" {"f:f21":{}}"#]],
    );
}

#[test]
fn invalid_entries_are_refused() {
    let refused = |change: fn(&mut Value)| {
        let mut value = entry("a", "2024-01-01T00:00:00Z", "x");
        change(&mut value);
        Managers::decode(&[value]).err().map(|error| error.to_string())
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(refused(|e| e["operation"] = json!("Guess")), text("operation must be `Apply` or `Update`"));
    assert_eq!(refused(|e| e["apiVersion"] = json!("")), text("apiVersion must not be empty"));
    assert!(refused(|e| e["fieldsType"] = json!("X")).is_some());
    assert!(refused(|e| e["fieldsV1"] = json!({"x": {}})).is_some());
}

/// An entry in words: manager, version, hour and fields.
fn in_words(text: &str) -> Value {
    let mut words = text.split(' ');
    let [manager, version, hour] = [(); 3].map(|()| words.next().expect("a word"));
    let fields: Map<String, Value> = words.map(|field| (format!("f:{field}"), json!({}))).collect();
    json!({"manager": manager, "operation": "Update", "apiVersion": version, "time": format!("2024-01-01T{hour:0>2}:00:00Z"),
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

/// Source: `TestCapUpdateManagers` of upstream's `managedfields/internal`, whose most is three.
#[test]
fn the_oldest_of_each_version_are_merged() {
    for (name, input, expect) in [
        (
            "one version",
            "update1 v1 1 a; update2 v1 2 b; update3 v1 3 c; update4 v1 4 d",
            "ancient-changes v1 2 a b; update3 v1 3 c; update4 v1 4 d",
        ),
        (
            "one version that was merged before",
            "ancient-changes v1 2 a b; update3 v1 3 c; update4 v1 4 d; update5 v1 5 e",
            "ancient-changes v1 3 a b c; update4 v1 4 d; update5 v1 5 e",
        ),
        (
            "two versions",
            "update1 v1 1 a; update2 v2 2 b; update3 v1 3 c; update4 v1 4 d; update5 v1 5 e",
            "update2 v2 2 b; ancient-changes v1 4 a c d; update5 v1 5 e",
        ),
        (
            "three versions, one merged before",
            "update2 v2 2 b; ancient-changes v1 4 a c d; update5 v1 5 e; update6 v3 6 f; update7 v2 7 g",
            "ancient-changes v1 5 a c d e; update6 v3 6 f; ancient-changes v2 7 b g",
        ),
        (
            "three versions, two merged before",
            "ancient-changes v1 5 a c d e; update6 v3 6 f; ancient-changes v2 7 b g; update8 v3 8 h",
            "ancient-changes v1 5 a c d e; ancient-changes v2 7 b g; ancient-changes v3 8 f h",
        ),
        (
            "four versions, of which none can be merged",
            "ancient-changes v1 5 a c d e; update6 v3 6 f; ancient-changes v2 7 b g; update8 v4 8 h",
            "ancient-changes v1 5 a c d e; update6 v3 6 f; ancient-changes v2 7 b g; update8 v4 8 h",
        ),
        (
            "few enough",
            "update1 v1 1 a; update2 v1 2 b; update3 v1 3 c",
            "update1 v1 1 a; update2 v1 2 b; update3 v1 3 c",
        ),
    ] {
        let list = |text: &str| text.split("; ").map(in_words).collect::<Vec<_>>();
        let input = list(input);
        let mut managers = Managers::decode(&input).expect("entries");
        managers.cap_to(3);
        assert_eq!(managers.encode(), list(expect), "{name}");
        let again = managers.encode();
        let mut again = Managers::decode(&again).expect("entries");
        again.cap_to(3);
        assert_eq!(again.encode(), list(expect), "{name}, once more");
    }
}

/// Source: `TestSortEncodedManagedFields`. Entries as operation, time, manager and subresource.
#[test]
fn entries_have_upstreams_order() {
    for (name, input, expect) in [
        ("none", "", ""),
        ("in order", "Apply - a; Update 2001 a", "Apply - a; Update 2001 a"),
        ("without a time first", "Apply 2001 c; Apply - b; Apply - a", "Apply - a; Apply - b; Apply 2001 c"),
        ("applied first", "Update 2001 a; Apply - a", "Apply - a; Update 2001 a"),
        (
            "the newest last",
            "Update 2002 c; Apply - a; Update 2001 d; Apply - b",
            "Apply - a; Apply - b; Update 2001 d; Update 2002 c",
        ),
        (
            "by name at one time",
            "Update 2001 d; Apply - b; Update 2001 c; Apply - a",
            "Apply - a; Apply - b; Update 2001 c; Update 2001 d",
        ),
        (
            "all of it",
            "Update 2001 c; Apply - a; Apply - g; Update 2002 f; Apply - i; Update 2002 d; Apply - h; Update 2003 e; Apply - b",
            "Apply - a; Apply - b; Apply - g; Apply - h; Apply - i; Update 2001 c; Update 2002 d; Update 2002 f; Update 2003 e",
        ),
        (
            "by subresource",
            "Apply - a status; Apply - a scale; Apply - a",
            "Apply - a; Apply - a scale; Apply - a status",
        ),
    ] {
        let list = |text: &str| {
            let entry = |text: &str| {
                let words: Vec<&str> = text.split(' ').collect();
                let mut entry = json!({"operation": words[0], "manager": words[2], "apiVersion": "v1",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:x": {}}});
                if words[1] != "-" {
                    entry["time"] = json!(format!("{}-01-01T01:00:00Z", words[1]));
                }
                if let Some(subresource) = words.get(3) {
                    entry["subresource"] = json!(subresource);
                }
                entry
            };
            text.split("; ").filter(|text| !text.is_empty()).map(entry).collect::<Vec<_>>()
        };
        let input = list(input);
        assert_eq!(Managers::decode(&input).expect("entries").encode(), list(expect), "{name}");
    }
}

/// Source: `TestRoundTripManagedFields`. Made anew, and not as they were.
#[test]
fn sets_are_written_as_they_are_read() {
    for fields in [
        json!({"v:3": {"f:alsoPi": {}}, "v:3.1415": {"f:pi": {}}, "v:false": {"f:notTrue": {}}}),
        json!({"i:5": {"f:i": {}}}),
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}, "f:name": {}}}}}),
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"nginx\"}": {".": {}, "f:image": {},
            "f:ports": {"i:0": {"f:containerPort": {}}}}}}}}}),
        json!({"f:spec": {"f:names": {"f:shortNames": {"i:0": {}}}, "f:versions": {"k:{\"name\":\"v1\"}": {"f:served": {}}}}}),
        json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}}}}),
        json!({"f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}}}),
        json!({"f:": {}, "f:f:": {}, "f:k:{}": {}, "f:.": {}}),
        json!({}),
    ] {
        let entry = json!({"manager": "foo", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields});
        let list = [entry.clone()];
        let mut managers = Managers::decode(&list).expect("entries");
        managers.retain_sets(|_, _| Some(true));
        assert_eq!(managers.encode(), [entry], "{fields}");
    }
}

/// Source: `TestHasFieldsType`, `TestHasAPIVersion`, `TestHasOperation`, and the texts of `DecodeManagedFields`.
#[test]
fn an_entry_says_what_it_is() {
    let good = || json!({"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:field": {}}, "manager": "foo", "operation": "Apply"});
    assert!(Managers::decode(&[good()]).is_ok());
    for (name, value, why) in [
        ("fieldsType", json!("FieldsV2"), "invalid fieldsType \"FieldsV2\" in managed fields entry 0"),
        ("fieldsType", Value::Null, "invalid fieldsType \"\" in managed fields entry 0"),
        ("apiVersion", Value::Null, "apiVersion must not be empty"),
        ("operation", json!("Invalid"), "operation must be `Apply` or `Update`"),
        ("operation", Value::Null, "operation must be `Apply` or `Update`"),
        ("operation", json!("apply"), "operation must be `Apply` or `Update`"),
    ] {
        let mut entry = good();
        entry[name] = value;
        let told = Managers::decode(&[entry]).map(drop).map_err(|error| error.to_string());
        assert_eq!(told, Err(why.to_owned()), "{name}");
    }
    for fields in
        [json!({"x": {}}), json!({"k:": {}}), json!({"k:{": {}}), json!({"i:x": {}}), json!({"v:{": {}})]
    {
        let mut entry = good();
        entry["fieldsV1"] = fields.clone();
        assert!(Managers::decode(&[entry]).is_err(), "{fields}");
    }
}
