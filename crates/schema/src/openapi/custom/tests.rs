use expect_test::expect_file;

use super::*;
use crate::build::{Source, build};
use crate::openapi::{Arenas, Resource, v2, v3};

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

fn resource(list_kind: &str) -> (Schemas, Resource<'static>) {
    let schema = json!({
        "type": "object", "description": "A schedule.", "required": ["spec"],
        "x-kubernetes-validations": [{"rule": "self.spec.replicas > 0", "message": "must run"}],
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}},
            "spec": {
                "type": "object", "required": ["schedule", "nothing"],
                "oneOf": [{"required": ["schedule"]}, {"properties": {"replicas": {"minimum": 3}}}],
                "properties": {
                    "schedule": {"type": "string", "title": "When", "pattern": "^[*0-9]+$", "minLength": 1, "example": "*"},
                    "replicas": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10, "exclusiveMaximum": true,
                        "multipleOf": 1, "default": 1},
                    "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                    "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "nothing": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
                    "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "minItems": 1, "maxItems": 5, "items": {"type": "object", "required": ["name"],
                        "properties": {"name": {"type": "string", "format": "hostname"}, "value": {"type": "number"}}}},
                    "labels": {"type": "object", "x-kubernetes-map-type": "atomic", "maxProperties": 2,
                        "additionalProperties": {"type": "string", "nullable": true}},
                    "free": {"type": "object", "additionalProperties": true},
                    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                        "properties": {"known": {"type": "boolean"}}},
                    "any": {"x-kubernetes-preserve-unknown-fields": true},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties":
                        {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                    "defaulted": {"type": "object", "default": {"a": 1, "unknown": 2}, "properties": {"a": {"type": "integer"}},
                        "externalDocs": {"url": "https://example.com", "description": "more"}},
                },
            },
        },
    });
    let (group, version, kind, plural) = ("stable.example.com", "v1", "CronTab", "crontabs");
    let source = Source { group, version, kind, list_kind, plural, path: "", schema: &schema };
    let resource = Resource {
        group,
        version,
        kind,
        plural,
        namespaced: true,
        verbs: VERBS,
        is_deletion_answered: false,
        subresources: &[],
    };
    (build(&source).expect("a schema"), resource)
}

fn own(definitions: &Value) -> String {
    let names = ["CronTab", "CronTabList"].map(|kind| format!("com.example.stable.v1.{kind}"));
    let own: Object = names.into_iter().map(|name| (name.clone(), definitions[&name].clone())).collect();
    serde_json::to_string_pretty(&own).expect("JSON") + "\n"
}

#[test]
fn a_custom_kind_is_published_as_it_was_written() {
    let (custom, resource) = resource("CronTabList");
    let arenas = [crate::builtin(), &custom];
    let bytes = v3::document(&arenas[..], resource.group, resource.version, &[resource]);
    let document: Value = serde_json::from_slice(&bytes).expect("JSON");
    expect_file!["testdata/v3.json"].assert_eq(&own(&document["components"]["schemas"]));
    let document = v2::document(&arenas[..], &[resource], &[]);
    expect_file!["testdata/v2.json"].assert_eq(&own(&document["definitions"]));
}

#[test]
fn documents_with_custom_kinds_have_all_that_they_refer_to() {
    let (custom, resource) = resource("CronTabs");
    let arenas = [crate::builtin(), &custom];
    let bytes = v3::document(Arenas::Several(&arenas), resource.group, resource.version, &[resource]);
    let document: Value = serde_json::from_slice(&bytes).expect("JSON");
    crate::openapi::tests::check_references(
        &document,
        &document["components"]["schemas"],
        "#/components/schemas/",
    );
    let path = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs";
    let answer =
        &document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(
        answer, "#/components/schemas/com.example.stable.v1.CronTabs",
        "lists have names of their own"
    );
    let document = v2::document(Arenas::Several(&arenas), &[resource], &[]);
    crate::openapi::tests::check_references(&document, &document["definitions"], "#/definitions/");
}

/// The numbers are those of gnostic's `OpenAPIv2.proto` and `OpenAPIv3.proto`.
#[test]
fn rules_are_there_in_protobuf_too() {
    let (custom, resource) = resource("CronTabList");
    let arenas = [crate::builtin(), &custom];
    let v2 = v2::to_protobuf(&v2::document(&arenas[..], &[resource], &[]));
    let v3 = v3::to_protobuf(&v3::document(&arenas[..], resource.group, resource.version, &[resource]));
    let find = |haystack: &[u8], needle: &[u8]| haystack.windows(needle.len()).any(|window| window == needle);
    let text = |number: u16, text: &str| {
        let mut out = Vec::new();
        crate::proto::wire::bytes(&mut out, number, text.as_bytes());
        out
    };
    let int = |number: u16, value: i64| {
        let mut out = Vec::new();
        crate::proto::wire::int(&mut out, number, value);
        out
    };
    for (document, [pattern, title], counts) in [(&v2, [13, 3], [13, 14, 15]), (&v3, [17, 9], [17, 18, 19])] {
        assert!(find(document, &text(pattern, "^[*0-9]+$")), "the pattern");
        assert!(find(document, &text(title, "When")), "the title");
        let [_, most, least] = counts;
        assert!(find(document, &[int(most, 5), int(least, 1)].concat()), "how many elements a list has");
    }
}

/// kubectl sends the patch that the document says, when it applies once more.
#[test]
fn a_custom_kind_takes_no_strategic_merge_patch() {
    let (custom, resource) = resource("CronTabList");
    let builtin =
        Resource { group: "apps", version: "v1", kind: "Deployment", plural: "deployments", ..resource };
    let arenas = [crate::builtin(), &custom];
    for (resource, expect) in [(resource, false), (builtin, true)] {
        let (group, version, plural) = (resource.group, resource.version, resource.plural);
        let document = v3::document(&arenas[..], group, version, &[resource]);
        let document: Value = serde_json::from_slice(&document).expect("JSON");
        let path = format!("/apis/{group}/{version}/namespaces/{{namespace}}/{plural}/{{name}}");
        let content = &document["paths"][&path]["patch"]["requestBody"]["content"];
        assert!(content["application/merge-patch+json"].is_object(), "{plural}: {content}");
        assert_eq!(content["application/strategic-merge-patch+json"].is_object(), expect, "{plural}");
    }
}
