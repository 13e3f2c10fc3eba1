//! What updates may change, and what they may leave as it is.

use super::*;

/// The errors of an update, of definitions as they would be stored.
fn update_errors(old: &Value, new: &Value) -> String {
    shown(&row().validate_update(&updated(&prepared(new)), &prepared(old)))
}

fn established(mut definition: Value) -> Value {
    definition["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    definition
}

#[test]
fn group_and_plural_stay_and_what_is_served_keeps_its_kind() {
    let old = prepared(&widgets());
    let change = |pointer: &str, value: Value| {
        let mut new = updated(&old);
        put(&mut new, pointer, value);
        new
    };
    let cases = [
        ("/spec/group", json!("example.org")),
        ("/spec/names/plural", json!("gadgets")),
        ("/spec/names/kind", json!("Gadget")),
        ("/spec/scope", json!("Cluster")),
        ("/spec/names/shortNames", json!(["w"])),
        ("/spec/names/singular", json!("w")),
    ];
    let mut texts = Vec::new();
    for (pointer, value) in cases {
        let new = change(pointer, value);
        texts.push(format!("{pointer}\n{}", shown(&row().validate_update(&new, &old))));
        let before = established(old.clone());
        texts.push(format!("established\n{}", shown(&row().validate_update(&new, &before))));
    }
    expect![[r#"
        /spec/group
        spec.group: Invalid value: "example.org": field is immutable
        established
        spec.group: Invalid value: "example.org": field is immutable
        /spec/names/plural
        spec.names.plural: Invalid value: "gadgets": field is immutable
        established
        spec.names.plural: Invalid value: "gadgets": field is immutable
        /spec/names/kind

        established
        spec.names.kind: Invalid value: "Gadget": field is immutable
        /spec/scope

        established
        spec.scope: Invalid value: "Cluster": field is immutable
        /spec/names/shortNames

        established

        /spec/names/singular

        established
    "#]]
    .assert_eq(&texts.join("\n"));
}

#[test]
fn an_update_keeps_the_status_and_remembers_what_was_stored() {
    let mut old = established(prepared(&widgets()));
    old["metadata"]["uid"] = json!("u");
    let mut new = with(
        "/spec/versions",
        json!([version("v1", json!({"storage": false})), version("v2", json!({"storage": true}))]),
    );
    new["metadata"]["resourceVersion"] = json!("1");
    new["status"] = json!({"storedVersions": []});
    row().strategy.begin_update(&mut new, &old);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(new["status"]["conditions"], old["status"]["conditions"]);
    assert_eq!(new["metadata"]["generation"], 2);

    let mut gone = updated(&old);
    gone["spec"]["versions"] = json!([version("v2", json!({"storage": true}))]);
    row().strategy.begin_update(&mut gone, &old);
    expect![[r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#]].assert_eq(&shown(&row().validate_update(&gone, &old)));
}

#[test]
fn a_status_has_names_that_could_be_names() {
    let old = prepared(&widgets());
    let mut new = updated(&old);
    new["status"]["acceptedNames"] =
        json!({"plural": "Widgets", "kind": "Wid get", "listKind": "Wid get", "shortNames": ["W"]});
    expect![[r#"
        status.acceptedNames.plural: Invalid value: "Widgets": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        status.acceptedNames.kind: Invalid value: "Wid get": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        status.acceptedNames.listKind: Invalid value: "Wid get": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        status.acceptedNames.shortNames[0]: Invalid value: "W": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        status.acceptedNames.listKind: Invalid value: "Wid get": kind and listKind may not be the same"#]].assert_eq(&shown(&row().validate_status_update(&new, &old)));
    let now = jiff::Timestamp::UNIX_EPOCH;
    let mut sent = updated(&old);
    sent["spec"]["group"] = json!("other.org");
    sent["metadata"]["labels"] = json!({"a": "b"});
    sent["status"]["storedVersions"] = json!(["v1", "v0"]);
    row().strategy.begin_status_update(&mut sent, &old, now);
    assert_eq!(sent["spec"], old["spec"]);
    assert_eq!(sent["metadata"].get("labels"), None);
    assert_eq!(sent["status"]["storedVersions"], json!(["v1", "v0"]));
}

#[test]
fn what_was_wrong_before_may_stay_wrong() {
    let schema = |schema: Value| with("/spec/versions/0/schema/openAPIV3Schema", schema);
    let property = |of: Value| schema(json!({"type": "object", "properties": {"a": of}}));
    let set =
        property(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}));
    let keys = property(
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
    );
    let unpruned =
        property(json!({"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "string"}}}));
    let types = property(json!({"type": "text"}));
    let mut community = with("/spec/group", json!("x.k8s.io"));
    community["metadata"]["name"] = json!("widgets.x.k8s.io");
    let reviews = with(
        "/spec/conversion",
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a/b"}, "conversionReviewVersions": ["v9"]}}),
    );
    for (name, definition) in [
        ("set", set),
        ("keys", keys),
        ("unpruned", unpruned),
        ("types", types),
        ("community", community),
        ("reviews", reviews),
    ] {
        assert_ne!(errors(&definition), "", "{name}: a new one is refused");
        assert_ne!(update_errors(&widgets(), &definition), "", "{name}: nor may it become wrong");
        assert_eq!(update_errors(&definition, &definition), "", "{name}: it may stay");
    }
}

#[test]
fn what_keeps_unknown_fields_goes_on_doing_so() {
    let mut loose = with("/spec/preserveUnknownFields", json!(true));
    put(&mut loose, "/spec/versions/0/schema/openAPIV3Schema", json!({"properties": {"a": {}}}));
    assert_eq!(update_errors(&loose, &loose), "");
    let mut mended = loose.clone();
    mended["spec"]["preserveUnknownFields"] = json!(false);
    expect![[r#"
        spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields
        spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root"#]].assert_eq(&update_errors(&loose, &mended));
    let mut defaulting = loose.clone();
    put(&mut defaulting, "/spec/versions/0/schema/openAPIV3Schema/properties/a", json!({"default": 1}));
    expect![[r#"
        spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema
        spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields
        spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root"#]].assert_eq(&update_errors(&loose, &defaulting));
    let mut bare = with("/spec/preserveUnknownFields", json!(true));
    put(&mut bare, "/spec/versions/0/schema", json!({}));
    assert_eq!(update_errors(&bare, &bare), "");
    bare["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a/b"}, "conversionReviewVersions": ["v1"]}});
    expect![[r#"spec.conversion.strategy: Invalid value: "Webhook": must be None if spec.preserveUnknownFields is true"#]].assert_eq(&update_errors(&bare, &bare));
}

#[test]
fn certificates_are_read_once_a_definition_is_established() {
    let hook = |bundle: &str| {
        let client = json!({"url": "https://a/b", "caBundle": bundle});
        prepared(&with(
            "/spec/conversion",
            json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}),
        ))
    };
    let (none, wrong) = (hook(""), hook("YWJj"));
    let check = |new: &Value, old: &Value| shown(&row().validate_update(&updated(new), old));
    assert_eq!(check(&wrong, &none), "", "nobody is called yet");
    expect![[r#"spec.conversion.webhookClientConfig.caBundle: Invalid value: "YWJj": unable to load root certificates: unable to parse bytes as PEM block"#]].assert_eq(&check(&wrong, &established(none)));
    assert_eq!(check(&wrong, &established(wrong.clone())), "", "it was wrong before");
}
