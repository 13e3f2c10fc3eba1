//! Definitions right and wrong; `real` has whole ones.

use expect_test::{Expect, expect};
use machinery::metadata;
use schema::walk::decode::{self, FieldValidation};
use schema::walk::default::Defaults;
use serde_json::{Value, json};

use crate::{Resource, defaults, find};

mod hostile;
mod real;
mod schemas;
mod updates;

fn row() -> &'static Resource {
    find("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap()
}

/// A definition as the API server has it before it is checked: decoded, defaulted, prepared.
fn prepared(definition: &Value) -> Value {
    let schema = schema::builtin().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let decoded = decode::from_value(schema, definition.clone(), FieldValidation::Strict).unwrap();
    let mut object = decoded.value;
    Defaults::new(schema::builtin(), defaults::rows()).apply(schema, &mut object);
    row().strategy.begin_create(&mut object);
    object
}

fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1", json!({}))],
        },
    })
}

/// A version; the first one there is stored.
fn version(name: &str, more: Value) -> Value {
    let mut version = json!({"name": name, "served": true, "storage": name == "v1", "schema":
        {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties":
            {"size": {"type": "integer"}}}}}}});
    if let (Some(version), Some(more)) = (version.as_object_mut(), more.as_object()) {
        version.extend(more.clone());
    }
    version
}

/// The definition of widgets with this at a pointer; what leads there is made.
fn with(pointer: &str, value: Value) -> Value {
    let mut definition = widgets();
    put(&mut definition, pointer, value);
    definition
}

fn put(definition: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    if !parent.is_empty() && definition.pointer(parent).is_none() {
        put(definition, parent, json!({}));
    }
    let parent = definition.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(list) => list[name.parse::<usize>().unwrap()] = value,
        parent => parent[name.replace("~1", "/")] = value,
    }
}

fn errors(definition: &Value) -> String {
    shown(&row().validate_create(&prepared(definition)))
}

fn shown(errors: &[machinery::field::FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn check(definition: &Value, expect: &Expect) {
    expect.assert_eq(&errors(definition));
}

#[test]
fn a_definition_is_defaulted_and_starts_without_a_status() {
    let mut definition = widgets();
    definition["status"] =
        json!({"storedVersions": ["v9"], "conditions": [{"type": "Established", "status": "True"}]});
    put(
        &mut definition,
        "/spec/conversion",
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "a", "namespace": "b"}}}}),
    );
    let object = prepared(&definition);
    assert_eq!(
        object["spec"]["names"],
        json!({"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"})
    );
    assert_eq!(object["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(object["status"]["conditions"], json!([]));
    assert_eq!(object["metadata"]["generation"], 1);
    assert_eq!(object.pointer("/spec/conversion/webhook/clientConfig/service/port"), Some(&json!(443)));
    assert_eq!(prepared(&widgets())["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(shown(&row().validate_create(&object)), "");
}

#[test]
fn names_and_groups_are_told_apart() {
    check(&widgets(), &expect![[""]]);
    let cases = [
        ("/spec/group", json!("example")),
        ("/spec/group", json!("Example.com")),
        ("/spec/group", json!("")),
        ("/spec/scope", json!("")),
        ("/spec/scope", json!("Everywhere")),
        ("/spec/names/plural", json!("")),
        ("/spec/names/kind", json!("")),
        ("/spec/names/kind", json!("Wid get")),
        ("/spec/names/listKind", json!("Widget")),
        ("/spec/names/singular", json!("Widget")),
        ("/spec/names/shortNames", json!(["w", "W"])),
        ("/spec/names/categories", json!(["all", ""])),
        ("/spec/preserveUnknownFields", json!(true)),
    ];
    let texts: Vec<String> = cases
        .into_iter()
        .map(|(pointer, value)| format!("{pointer} {value}\n{}", errors(&with(pointer, value.clone()))))
        .collect();
    expect![[r#"
        /spec/group "example"
        metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group
        spec.group: Invalid value: "example": should be a domain with at least one dot
        /spec/group "Example.com"
        metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group
        spec.group: Invalid value: "Example.com": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        /spec/group ""
        metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group
        spec.group: Required value
        /spec/scope ""
        spec.scope: Required value
        /spec/scope "Everywhere"
        spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced"
        /spec/names/plural ""
        metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group
        spec.names.plural: Required value
        /spec/names/kind ""
        spec.names.singular: Required value
        spec.names.kind: Required value
        spec.names.listKind: Required value
        /spec/names/kind "Wid get"
        spec.names.singular: Invalid value: "wid get": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.names.kind: Invalid value: "Wid get": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.names.listKind: Invalid value: "Wid getList": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        /spec/names/listKind "Widget"
        spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same
        /spec/names/singular "Widget"
        spec.names.singular: Invalid value: "Widget": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        /spec/names/shortNames ["w","W"]
        spec.names.shortNames[1]: Invalid value: "W": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        /spec/names/categories ["all",""]
        spec.names.categories[1]: Invalid value: "": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        /spec/preserveUnknownFields true
        spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"#]].assert_eq(&texts.join("\n"));
}

#[test]
fn versions_are_told_apart_and_one_is_stored() {
    let cases = [
        ("none", json!([])),
        ("two of a name", json!([version("v1", json!({})), version("v1", json!({"storage": false}))])),
        ("two that are stored", json!([version("v1", json!({})), version("v2", json!({"storage": true}))])),
        ("none that is stored", json!([version("v2", json!({}))])),
        ("a name that is none", json!([version("v1", json!({})), version("V2", json!({}))])),
        ("no schema", json!([version("v1", json!({"schema": null})), version("v2", json!({"schema": {}}))])),
    ];
    let texts: Vec<String> = cases
        .into_iter()
        .map(|(name, versions)| {
            let text = errors(&with("/spec/versions", versions)).replace(&json!({}).to_string(), "{}");
            let lines = text.lines().map(|line| {
                if line.len() > 300 { format!("{}…", line.get(..80).unwrap()) } else { line.to_owned() }
            });
            format!("{name}\n{}", lines.collect::<Vec<_>>().join("\n"))
        })
        .collect();
    expect![[r#"
        none
        spec.versions: Invalid value: []: must have exactly one version marked as storage version
        status.storedVersions: Invalid value: []: must have at least one stored version
        two of a name
        spec.versions: Invalid value: [{"name":"v1","schema":{"openAPIV3Schema":{"proper…
        two that are stored
        spec.versions: Invalid value: [{"name":"v1","schema":{"openAPIV3Schema":{"proper…
        status.storedVersions: Invalid value: ["v1"]: must have the storage version v2
        none that is stored
        spec.versions: Invalid value: [{"name":"v2","schema":{"openAPIV3Schema":{"properties":{"spec":{"properties":{"size":{"type":"integer"}},"type":"object"}},"type":"object"}},"served":true,"storage":false}]: must have exactly one version marked as storage version
        status.storedVersions: Invalid value: []: must have at least one stored version
        a name that is none
        spec.versions[1].name: Invalid value: "V2": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        no schema
        spec.versions[0].schema.openAPIV3Schema: Required value
        spec.versions[1].schema.openAPIV3Schema: Required value"#]].assert_eq(&texts.join("\n"));
}

#[test]
fn what_a_version_says_is_checked() {
    let cases = [
        json!({"deprecationWarning": "gone"}),
        json!({"deprecated": true, "deprecationWarning": ""}),
        json!({"deprecated": true, "deprecationWarning": "a\tb"}),
        json!({"deprecated": true, "deprecationWarning": "x".repeat(257)}),
        json!({"deprecated": true, "deprecationWarning": "use v2"}),
        json!({"subresources": {"scale": {"specReplicasPath": "", "statusReplicasPath": "status"}}}),
        json!({"subresources": {"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": ".spec.a", "labelSelectorPath": ".metadata.a"}}}),
        json!({"subresources": {"scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a", "labelSelectorPath": ""}}}),
        json!({"additionalPrinterColumns": [{"name": "", "type": "", "jsonPath": ""}]}),
        json!({"additionalPrinterColumns": [{"name": "A", "type": "text", "format": "uuid", "jsonPath": "spec"}]}),
        json!({"additionalPrinterColumns": [{"name": "A", "type": "date", "format": "date-time", "jsonPath": ".metadata.annotations['a']"}]}),
        json!({"selectableFields": [{"jsonPath": ""}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.size"}]}),
        json!({"selectableFields": [{"jsonPath": ".spec"}, {"jsonPath": ".spec.none"}, {"jsonPath": ".spec['size']"}, {"jsonPath": ".metadata.name"}]}),
    ];
    let texts: Vec<String> = cases
        .into_iter()
        .map(|more| {
            let shown = more.to_string();
            let shown = shown.get(..shown.len().min(200)).unwrap_or_default();
            format!("{shown}\n{}", errors(&with("/spec/versions/0", version("v1", more.clone()))))
        })
        .collect();
    expect![[r#"
        {"deprecationWarning":"gone"}
        spec.versions[0].deprecationWarning: Invalid value: "gone": can only be set for deprecated versions
        {"deprecated":true,"deprecationWarning":""}
        spec.versions[0].deprecationWarning: Invalid value: "": must not be an empty string
        {"deprecated":true,"deprecationWarning":"a\tb"}
        spec.versions[0].deprecationWarning: Invalid value: "a\tb": must only contain printable UTF-8 characters; non-printable character found at index 1
        {"deprecated":true,"deprecationWarning":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        spec.versions[0].deprecationWarning: Invalid value: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": must be <= 256 characters long
        {"deprecated":true,"deprecationWarning":"use v2"}

        {"subresources":{"scale":{"specReplicasPath":"","statusReplicasPath":"status"}}}
        spec.subresources.scale.specReplicasPath: Required value
        spec.subresources.scale.statusReplicasPath: Invalid value: "status": must be a simple json path starting with .
        {"subresources":{"scale":{"labelSelectorPath":".metadata.a","specReplicasPath":".status.a","statusReplicasPath":".spec.a"}}}
        spec.subresources.scale.specReplicasPath: Invalid value: ".status.a": should be a json path under .spec
        spec.subresources.scale.statusReplicasPath: Invalid value: ".spec.a": should be a json path under .status
        spec.subresources.scale.labelSelectorPath: Invalid value: ".metadata.a": should be a json path under either .spec or .status
        {"subresources":{"scale":{"labelSelectorPath":"","specReplicasPath":".spec.a","statusReplicasPath":".status.a"}}}

        {"additionalPrinterColumns":[{"jsonPath":"","name":"","type":""}]}
        spec.additionalPrinterColumns[0].name: Required value
        spec.additionalPrinterColumns[0].type: Required value: must be one of boolean,date,integer,number,string
        spec.additionalPrinterColumns[0].JSONPath: Required value
        {"additionalPrinterColumns":[{"format":"uuid","jsonPath":"spec","name":"A","type":"text"}]}
        spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string
        spec.additionalPrinterColumns[0].format: Invalid value: "uuid": must be one of byte,date,date-time,double,float,int32,int64,password
        spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with .
        {"additionalPrinterColumns":[{"format":"date-time","jsonPath":".metadata.annotations['a']","name":"A","type":"date"}]}

        {"selectableFields":[{"jsonPath":""},{"jsonPath":".spec.size"},{"jsonPath":".spec.size"}]}
        spec.selectableFields[0].jsonPath: Required value
        spec.selectableFields[2].jsonPath: Duplicate value: ".spec.size"
        {"selectableFields":[{"jsonPath":".spec"},{"jsonPath":".spec.none"},{"jsonPath":".spec['size']"},{"jsonPath":".metadata.name"}]}
        spec.selectableFields[0].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.
        spec.selectableFields[1].jsonPath: Invalid value: ".spec.none": is an invalid path: does not refer to a valid field
        spec.selectableFields[2].jsonPath: Invalid value: ".spec['size']": is an invalid path: array notation is not allowed
        spec.selectableFields[3].jsonPath: Invalid value: ".metadata.name": is an invalid path: does not refer to a valid field"#]].assert_eq(&texts.join("\n"));
}

#[test]
fn there_are_at_most_eight_selectable_fields() {
    let of = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("f{n}")).collect();
        let properties: serde_json::Map<_, _> =
            names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
        let fields: Vec<Value> = names.iter().map(|name| json!({"jsonPath": format!(".{name}")})).collect();
        with(
            "/spec/versions/0",
            version(
                "v1",
                json!({"selectableFields": fields, "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}),
            ),
        )
    };
    check(&of(8), &expect![[""]]);
    check(&of(9), &expect![["spec.selectableFields: Too many: 9: must have at most 8 items"]]);
    let nine = prepared(&of(9));
    assert_eq!(shown(&row().validate_update(&updated(&nine), &nine)), "", "they were nine before");
}

/// The same object as an update of itself.
fn updated(object: &Value) -> Value {
    let mut new = object.clone();
    metadata::set(&mut new, "resourceVersion", "1");
    new
}

#[test]
fn versions_that_say_the_same_share_it() {
    let two = |first: Value, second: Value| {
        with("/spec/versions", json!([version("v1", first), version("v2", second)]))
    };
    let wrong = json!({"openAPIV3Schema": {"type": "array"}});
    check(
        &two(json!({"schema": wrong}), json!({"schema": wrong})),
        &expect![[r#"
        spec.validation.openAPIV3Schema.items: Required value: must be specified
        spec.validation.openAPIV3Schema.type: Invalid value: "array": must be object at the root"#]],
    );
    check(
        &two(json!({"schema": wrong}), json!({})),
        &expect![[r#"
        spec.versions[0].schema.openAPIV3Schema.items: Required value: must be specified
        spec.versions[0].schema.openAPIV3Schema.type: Invalid value: "array": must be object at the root"#]],
    );
    let fields = json!([{"jsonPath": ".spec.size"}]);
    check(&two(json!({"selectableFields": fields}), json!({"selectableFields": fields})), &expect![[""]]);
    check(
        &two(
            json!({"selectableFields": fields}),
            json!({"selectableFields": fields, "schema": {"openAPIV3Schema": {"type": "object"}}}),
        ),
        &expect![[
            r#"spec.selectableFields: Invalid value: "": may only be set when validations.schema is included"#
        ]],
    );
    check(
        &two(json!({"selectableFields": fields}), json!({})),
        &expect![[
            r#"spec.versions[0].selectableFields: Invalid value: "": may only be set when `version.schema.openAPIV3Schema` is not included"#
        ]],
    );
}

#[test]
fn a_webhook_can_be_called() {
    let cases = [
        json!({"strategy": ""}),
        json!({"strategy": "Magic"}),
        json!({"strategy": "None", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}}),
        json!({"strategy": "Webhook"}),
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": []}}),
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://user@a/?x#y"}, "conversionReviewVersions": ["v2", "v2", "V3"]}}),
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "c", "port": 0}}, "conversionReviewVersions": ["v1", "v9"]}}),
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://a/b", "caBundle": "YWJj"}, "conversionReviewVersions": ["v1"]}}),
    ];
    let texts: Vec<String> = cases
        .into_iter()
        .map(|conversion| format!("{conversion}\n{}", errors(&with("/spec/conversion", conversion.clone()))))
        .collect();
    expect![[r#"
        {"strategy":""}
        spec.conversion.strategy: Required value
        {"strategy":"Magic"}
        spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook"
        {"strategy":"None","webhook":{"clientConfig":{},"conversionReviewVersions":["v1"]}}
        spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook
        spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook
        {"strategy":"Webhook"}
        spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook
        spec.conversion.conversionReviewVersions: Required value
        {"strategy":"Webhook","webhook":{"clientConfig":{},"conversionReviewVersions":[]}}
        spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required
        spec.conversion.conversionReviewVersions: Required value
        {"strategy":"Webhook","webhook":{"clientConfig":{"url":"http://user@a/?x#y"},"conversionReviewVersions":["v2","v2","V3"]}}
        spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]
        spec.conversion.webhookClientConfig.url: Invalid value: "user": user information is not permitted in the URL
        spec.conversion.webhookClientConfig.url: Invalid value: "y": fragments are not permitted in the URL
        spec.conversion.webhookClientConfig.url: Invalid value: "x": query parameters are not permitted in the URL
        spec.conversion.conversionReviewVersions[1]: Invalid value: "v2": duplicate version
        spec.conversion.conversionReviewVersions[2]: Invalid value: "V3": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        spec.conversion.conversionReviewVersions: Invalid value: ["v2","v2","V3"]: must include at least one of v1, v1beta1
        {"strategy":"Webhook","webhook":{"clientConfig":{"service":{"name":"a","namespace":"b","path":"c","port":0}},"conversionReviewVersions":["v1","v9"]}}
        spec.conversion.webhookClientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive
        spec.conversion.webhookClientConfig.service.path: Invalid value: "c": must start with a '/'
        spec.conversion.webhookClientConfig.service.path: Invalid value: "c": segment[0] may not be empty
        {"strategy":"Webhook","webhook":{"clientConfig":{"caBundle":"YWJj","url":"https://a/b"},"conversionReviewVersions":["v1"]}}
    "#]].assert_eq(&texts.join("\n"));
}

#[test]
fn groups_of_the_community_need_a_word() {
    let cases = [
        json!({}),
        json!({"api-approved.kubernetes.io": "yes"}),
        json!({"api-approved.kubernetes.io": "https://example.com/1"}),
        json!({"api-approved.kubernetes.io": "unapproved"}),
    ];
    let texts: Vec<String> = cases
        .into_iter()
        .map(|annotations| {
            let mut definition = with("/spec/group", json!("x.k8s.io"));
            definition["metadata"] = json!({"name": "widgets.x.k8s.io", "annotations": annotations});
            errors(&definition)
        })
        .collect();
    expect![[r#"
        metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111
        metadata.annotations[api-approved.kubernetes.io]: Invalid value: "yes": protected groups must have approval annotation "api-approved.kubernetes.io" with either a URL or a reason starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111

    "#]].assert_eq(&texts.join("\n"));
}
