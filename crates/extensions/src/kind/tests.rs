use jiff::Timestamp;
use serde_json::json;

use super::*;

fn definition(versions: Value) -> Value {
    json!({"metadata": {"name": "foos.example.com", "uid": "u"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions},
        "status": {"acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList",
            "shortNames": ["fo"], "categories": ["all"]},
            "conditions": [{"type": "NamesAccepted", "status": "True"}]}})
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}}}}}})
}

fn one(version: Value) -> CustomKind {
    kinds(&definition(json!([version])), None).unwrap().remove(0)
}

#[test]
fn a_version_becomes_a_row() {
    let mut older = version("v1beta1", false, json!({"type": "object"}));
    older["deprecated"] = json!(true);
    let mut newer = version("v1", true, json!({"type": "object"}));
    newer["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n"}});
    newer["selectableFields"] = json!([{"jsonPath": ".spec.a/b"}]);
    let all = kinds(&definition(json!([older, newer])), None).unwrap();
    let [first, second] = all.as_slice() else { panic!("{}", all.len()) };
    assert_eq!((&*first.row.version, first.is_storage, first.is_served), ("v1", true, true));
    assert_eq!(first.row.storage_prefix, "/registry/example.com/foos/");
    assert_eq!(first.row.message, "com.example.v1.Foo");
    let names: Vec<_> = first.row.subresources.iter().map(|subresource| subresource.name).collect();
    assert_eq!(names, ["status", "scale"]);
    assert_eq!((&*first.row.scale.spec_replicas, &*first.row.scale.selector), ("/spec/replicas", ""));
    let field = &first.row.selectable_fields[0];
    assert_eq!((&*field.label, &*field.pointer), ("spec.a/b", "/spec/a~1b"));
    assert!(first.row.strategy.keeps_status && !second.row.strategy.keeps_status);
    assert_eq!(second.row.storage_api_version, "example.com/v1");
    assert_eq!(second.row.deprecation, "example.com/v1beta1 Foo is deprecated");
    assert_eq!(second.row.generation(), Generation::ContentAndStatus);
}

trait OfStrategy {
    fn generation(&self) -> Generation;
}

impl OfStrategy for Resource {
    fn generation(&self) -> Generation {
        self.strategy.generation
    }
}

#[test]
fn schemas_that_did_not_change_are_the_same() {
    let before = definition(json!([
        version("v1", true, json!({"type": "object"})),
        version("v2", false, json!({"type": "object"}))
    ]));
    let made = kinds(&before, None).unwrap();
    let mut after = definition(json!([
        version("v1", true, json!({"type": "object", "nullable": true})),
        version("v2", false, json!({"type": "object"}))
    ]));
    after["status"]["acceptedNames"]["shortNames"] = json!([]);
    let again = kinds(&after, Some(Before { definition: &before, kinds: &made })).unwrap();
    let arena = |kinds: &[CustomKind], version: &str| {
        Arc::clone(kinds.iter().find(|kind| kind.row.version == version).unwrap().schema.made().unwrap())
    };
    assert!(Arc::ptr_eq(&arena(&made, "v2"), &arena(&again, "v2")));
    assert!(!Arc::ptr_eq(&arena(&made, "v1"), &arena(&again, "v1")));
    after["status"]["acceptedNames"]["kind"] = json!("Bar");
    let renamed = kinds(&after, Some(Before { definition: &before, kinds: &made })).unwrap();
    assert!(!Arc::ptr_eq(&arena(&made, "v2"), &arena(&renamed, "v2")));
}

#[test]
fn what_makes_no_kind_says_why() {
    let good = definition(json!([version("v1", true, json!({"type": "object"}))]));
    for (change, expect) in [
        (("/spec/versions", json!(7)), "the definition cannot be read"),
        (("/spec/versions", json!([])), "the definition has no version that is stored"),
        (("/spec/group", json!("")), "the definition has no group"),
        (("/status/acceptedNames/kind", json!("")), "the definition has no kind"),
        (
            ("/spec/versions/0/schema/openAPIV3Schema/type", json!("no")),
            "the schema of version v1 cannot be used",
        ),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(change.0).unwrap() = change.1;
        assert_eq!(kinds(&bad, None).unwrap_err().to_string(), expect);
    }
    let mut old = good.clone();
    old["spec"]["preserveUnknownFields"] = json!(true);
    assert!(kinds(&old, None).is_err());
    for strange in [json!(null), json!([]), json!({}), json!({"spec": {"versions": [null]}})] {
        assert!(kinds(&strange, None).is_err(), "{strange}");
    }
}

#[test]
fn versions_are_served_as_they_say_whoever_converts() {
    let mut webhook = definition(json!([
        version("v1", true, json!({"type": "object"})),
        version("v2", false, json!({"type": "object"}))
    ]));
    let served = |definition: &Value| -> Vec<String> {
        let all = kinds(definition, None).unwrap();
        all.iter().filter(|kind| kind.is_served).map(|kind| kind.row.version.to_string()).collect()
    };
    for strategy in ["None", "Webhook"] {
        webhook["spec"]["conversion"] = json!({"strategy": strategy});
        assert_eq!(served(&webhook), ["v2", "v1"]);
    }
    // Whoever deletes objects finds them, whatever is served.
    for at in 0..2 {
        webhook["spec"]["versions"][at]["served"] = json!(false);
    }
    assert_eq!(served(&webhook), [""; 0]);
    assert_eq!(kinds(&webhook, None).unwrap().len(), 2, "there may be objects of each");
    webhook["status"]["conditions"] = json!([{"type": "Terminating", "status": "True"}]);
    assert_eq!(served(&webhook), ["v1"]);
}

#[test]
fn cells_are_of_the_columns_type_or_nothing() {
    let mut with_columns = version("v1", true, json!({"type": "object"}));
    let column = |name: &str, form: &str, path: &str| json!({"name": name, "type": form, "jsonPath": path});
    with_columns["additionalPrinterColumns"] = json!([
        column("a", "string", ".spec.text"),
        column("b", "string", ".spec.list"),
        column("c", "string", ".spec.none"),
        column("d", "integer", ".spec.number"),
        column("e", "integer", ".spec.text"),
        column("f", "number", ".spec.number"),
        column("g", "boolean", ".spec.flag"),
        column("h", "date", ".spec.time"),
        column("i", "date", ".spec.text"),
        column("j", "date", ".spec.missing"),
        column("k", "string", ".spec.items[?(@.x==1)].y"),
        column("l", "string", ".spec.text[0]"),
        column("m", "integer", ".spec.float")
    ]);
    let kind = one(with_columns);
    let object = json!({"metadata": {"name": "n"}, "spec": {"text": "t", "list": [1, {"a": "b"}], "none": null, "number": 3,
        "flag": false, "time": "2026-01-01T00:00:00Z", "items": [{"x": 1, "y": "z"}], "float": 2.9}});
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let cells: Vec<Value> = kind.row.columns.iter().map(|column| column.cell(&object, now)).collect();
    assert_eq!(
        Value::from(cells),
        json!([
            "n",
            "t",
            r#"[1,{"a":"b"}]"#,
            "<no value>",
            3,
            null,
            3.0,
            false,
            "60s",
            "<invalid>",
            null,
            "z",
            null,
            2
        ])
    );
    let usual = one(version("v1", true, json!({"type": "object"})));
    let headings: Vec<_> = usual.row.columns.iter().map(|column| (&*column.name, &*column.r#type)).collect();
    assert_eq!(headings, [("Name", "string"), ("Age", "date")]);
}

#[test]
fn scales_and_status_have_rules_of_their_own() {
    let mut scaled =
        version("v1", true, json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    scaled["subresources"] = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n",
        "labelSelectorPath": ".spec.selector"}});
    let kind = one(scaled);
    let rules = kind.row.strategy.rules.clone().unwrap();
    let texts =
        |errors: machinery::field::FieldErrors| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    for (spec, expect) in [
        (json!({"replicas": 3}), ""),
        (json!({}), ""),
        (
            json!({"replicas": 3_000_000_000_i64}),
            ".spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647",
        ),
        (
            json!({"replicas": "x"}),
            ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
        ),
        (
            json!({"selector": 7}),
            ".spec.selector: Invalid value: \"\": .spec.selector accessor error: 7 is of the type int64, expected string",
        ),
    ] {
        let found = texts(rules.validate_create(&json!({"spec": spec}))).join("; ");
        assert_eq!(found, expect, "{spec}");
    }
    let (old, new) =
        (json!({"status": {"n": 9}}), json!({"status": {"n": 9, "m": 1}, "spec": {"replicas": -1}}));
    assert_eq!(
        texts(rules.validate_status_update(&new, &old)),
        [""; 0],
        "what was wrong may stay, and only status counts"
    );
    let worse = texts(rules.validate_status_update(&json!({"status": {"n": 8}}), &old));
    assert_eq!(worse, ["status.n: Invalid value: 8: status.n in body should be less than or equal to 5"]);
}

#[test]
fn finalizers_that_may_be_others_are_warned_of() {
    let of = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
    let strategy = one(version("v1", true, json!({"type": "object"}))).row.strategy;
    let warned = (strategy.warnings_on_update)(&of(&["b", "a.b", "c/d", "orphan", "old"]), &of(&["old"]));
    assert_eq!(
        warned,
        [
            "metadata.finalizers: \"a.b\": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers",
            "metadata.finalizers: \"b\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
        ]
    );
}
