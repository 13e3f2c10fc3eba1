//! What clients learn before they do anything: discovery in its three forms, OpenAPI v3 and v2.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixtures::{collection, served};
use crate::server::{self, TestServer, start};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use resources::Resource;
use serde_json::{Value, json};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList;v=";

async fn get(server: &TestServer, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
    let service = server.server.service();
    let response = server::send(service, Some(server::admin()), "GET", path, headers, "").await;
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
}

async fn json_of(server: &TestServer, path: &str, accept: &str) -> Value {
    let (code, _, body) = get(server, path, &[("accept", accept)]).await;
    assert_eq!(code, 200, "{path}");
    serde_json::from_slice(&body).unwrap()
}

fn root(row: &Resource) -> String {
    match &*row.group {
        "" => format!("/api/{}", row.version),
        group => format!("/apis/{group}/{}", row.version),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

/// The second request of a client that has kept the first one's answer.
async fn is_kept(server: &TestServer, path: &str, accept: &str) {
    let (_, headers, _) = get(server, path, &[("accept", accept)]).await;
    let tag = text(&headers, "etag");
    assert!(tag.len() > 10 && tag.starts_with('"') && tag.ends_with('"'), "{path}: {tag}");
    let known = [("accept", accept), ("if-none-match", tag)];
    let (code, headers, body) = get(server, path, &known).await;
    assert_eq!((code.as_u16(), body.len(), text(&headers, "etag")), (304, 0, tag), "{path}");
    let other = [("accept", accept), ("if-none-match", "\"other\"")];
    assert_eq!(get(server, path, &other).await.0, 200, "{path}");
}

#[tokio::test]
async fn plain_documents_have_every_row_with_its_subresources() {
    let server = start(None).await;
    let groups = json_of(&server, "/apis", "*/*").await;
    let versions: BTreeSet<String> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["versions"].as_array().unwrap())
        .map(|version| version["groupVersion"].as_str().unwrap().to_owned())
        .collect();
    let mut documents = BTreeMap::new();
    for root in served().map(root).collect::<BTreeSet<_>>() {
        let document = json_of(&server, &root, "*/*").await;
        documents.insert(root, document);
    }
    for row in served() {
        assert!(row.group.is_empty() || versions.contains(&row.api_version()), "{}", row.api_version());
        let document = &documents[&root(row)];
        assert_eq!(
            (&document["kind"], &document["groupVersion"]),
            (&json!("APIResourceList"), &json!(row.api_version()))
        );
        let find = |name: &str| {
            document["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned()
        };
        let found = find(&row.plural).unwrap_or_else(|| panic!("{} is not discovered", row.plural));
        assert_eq!((&found["kind"], &found["verbs"]), (&json!(row.kind), &json!(row.verbs)));
        assert_eq!(found["namespaced"], row.is_namespaced());
        assert_eq!(found.get("storageVersionHash").is_some(), row.is_stored(), "{}", row.plural);
        for subresource in row.subresources {
            let found = find(&format!("{}/{}", row.plural, subresource.name)).expect("a subresource");
            assert_eq!(found["verbs"], json!(subresource.verbs));
        }
    }
    let pods = &documents["/api/v1"]["resources"];
    let pods = pods.as_array().unwrap().iter().find(|resource| resource["name"] == "pods").unwrap();
    assert_eq!(pods["storageVersionHash"], "xPOwRZ+Yhw8=", "as upstream's");
    server.stop().await;
}

#[tokio::test]
async fn plain_documents_come_in_every_format() {
    let server = start(None).await;
    for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/", "/api/v1/"] {
        let plain = json_of(&server, path, "application/json").await;
        let (_, headers, yaml) = get(&server, path, &[("accept", "application/yaml")]).await;
        assert_eq!(text(&headers, "content-type"), "application/yaml");
        assert_eq!(serde_saphyr::from_slice::<Value>(&yaml).unwrap(), plain, "{path}");
        let protobuf = "application/vnd.kubernetes.protobuf";
        let (_, headers, bytes) = get(&server, path, &[("accept", protobuf)]).await;
        assert_eq!(text(&headers, "content-type"), protobuf, "{path}");
        let envelope = schema::proto::open(&bytes).unwrap();
        assert_eq!(envelope.kind, plain["kind"], "{path}");
        let (code, _, body) = get(&server, path, &[("accept", "image/png")]).await;
        assert_eq!(code, 406, "{path}: {}", String::from_utf8_lossy(&body));
    }
    for path in ["/apis/none", "/apis/apps/v9", "/api/v9", "/apix"] {
        assert_eq!(get(&server, path, &[]).await.0, 404, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn aggregated_documents_have_every_row_and_a_tag() {
    let server = start(None).await;
    for version in ["v2", "v2beta1"] {
        let accept = format!("{AGGREGATED}{version},application/json");
        let mut found = BTreeSet::new();
        for path in ["/api", "/apis"] {
            let (_, headers, body) = get(&server, path, &[("accept", &accept)]).await;
            let kind = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
            assert_eq!(text(&headers, "content-type"), kind);
            assert_eq!(text(&headers, "vary"), "Accept");
            let document: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(document["apiVersion"], format!("apidiscovery.k8s.io/{version}"));
            for group in document["items"].as_array().unwrap() {
                let name = group["metadata"]["name"].as_str().unwrap_or_default();
                for served in group["versions"].as_array().unwrap() {
                    assert_eq!(served["freshness"], "Current");
                    for resource in served["resources"].as_array().unwrap() {
                        let subresources = resource["subresources"].as_array().map_or(0, Vec::len);
                        found.insert(format!(
                            "{name} {} {} {subresources}",
                            served["version"], resource["resource"]
                        ));
                    }
                }
            }
            is_kept(&server, path, &accept).await;
        }
        let expect: BTreeSet<String> = served()
            .map(|row| format!("{} {:?} {:?} {}", row.group, row.version, row.plural, row.subresources.len()))
            .collect();
        assert_eq!(found, expect);
    }
    // Who knows none of the versions gets the plain one.
    let accept = format!("{AGGREGATED}v9,application/json");
    assert_eq!(json_of(&server, "/apis", &accept).await["kind"], "APIGroupList");
    server.stop().await;
}

/// Every reference in a document has its definition.
pub(crate) fn check_references(document: &Value, definitions: &Value, prefix: &str) {
    match document {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get("$ref") {
                let name = reference.strip_prefix(prefix).expect("the prefix");
                assert!(definitions[name].is_object(), "{name} is missing");
            }
            object.values().for_each(|value| check_references(value, definitions, prefix));
        }
        Value::Array(items) => items.iter().for_each(|value| check_references(value, definitions, prefix)),
        _ => {}
    }
}

/// The operations of a row are what it allows, and say of what kind they are.
fn check_operations(row: &Resource, paths: &Value) {
    let path = collection(row).replace("/namespaces/default/", "/namespaces/{namespace}/");
    let item = format!("{path}/{{name}}");
    let operations = [
        ("list", &path, "get", "labelSelector"),
        ("create", &path, "post", "fieldValidation"),
        ("deletecollection", &path, "delete", "propagationPolicy"),
        ("get", &item, "get", "pretty"),
        ("update", &item, "put", "dryRun"),
        ("patch", &item, "patch", "force"),
        ("delete", &item, "delete", "gracePeriodSeconds"),
    ];
    for (verb, path, method, parameter) in operations {
        let operation = &paths[path][method];
        assert_eq!(operation.is_object(), row.allows(verb), "{path} {method}");
        if row.allows(verb) {
            let kind = json!({"group": row.group, "version": row.version, "kind": row.kind});
            assert_eq!(operation["x-kubernetes-group-version-kind"], kind, "{path} {method}");
            let parameters = operation["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|p| p["name"] == parameter), "{path} {method}: {parameter}");
        }
    }
    for subresource in row.subresources {
        assert!(paths[format!("{item}/{}", subresource.name)].is_object(), "{path} {}", subresource.name);
    }
}

#[tokio::test]
async fn openapi_v3_has_a_document_per_group_version_that_is_whole() {
    let server = start(None).await;
    let index = json_of(&server, "/openapi/v3", "*/*").await;
    let mut ids = BTreeSet::new();
    let mut expect: BTreeSet<String> =
        served().map(|row| root(row).trim_start_matches('/').to_owned()).collect();
    expect.extend(
        served()
            .map(|row| &*row.group)
            .filter(|group| !group.is_empty())
            .map(|group| format!("apis/{group}")),
    );
    let plain = ["api", "apis", "version", ".well-known/openid-configuration", "openid/v1/jwks"];
    expect.extend(plain.map(str::to_owned));
    let found: BTreeSet<String> = index["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(found, expect);
    for (path, entry) in index["paths"].as_object().unwrap() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        let (code, headers, body) = get(&server, url, &[("accept", "application/json")]).await;
        assert_eq!((code.as_u16(), text(&headers, "cache-control")), (200, "public, immutable"), "{url}");
        assert_eq!(format!("\"{}\"", url.split_once("hash=").unwrap().1), text(&headers, "etag"));
        let document: Value = serde_json::from_slice(&body).unwrap();
        check_references(&document, &document["components"]["schemas"], "#/components/schemas/");
        for row in served().filter(|row| root(row).trim_start_matches('/') == path) {
            check_operations(row, &document["paths"]);
        }
        for (path, item) in document["paths"].as_object().unwrap() {
            let is_read = path.ends_with('/') && !path.contains('{');
            assert!(!is_read || get(&server, path, &[]).await.0 == 200, "{path} is there");
            for operation in item.as_object().unwrap().values().filter(|value| value.is_object()) {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(ids.insert(id.clone()), "{id} comes twice");
            }
        }
    }
    is_kept(&server, "/openapi/v3/apis/apps/v1", "application/json").await;
    let (code, headers, _) = get(&server, "/openapi/v3/apis/apps/v1?hash=old", &[]).await;
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!((code.as_u16(), text(&headers, "location")), (301, url));
    assert_eq!(get(&server, "/openapi/v3/apis/apps/v9", &[]).await.0, 404);
    is_kept(&server, "/openapi/v3", "application/json").await;
    for wish in ["v3@v1.0+protobuf", "v3.v1.0+protobuf"] {
        let accept = format!("application/json;q=0.5, application/com.github.proto-openapi.spec.{wish}");
        let (_, headers, body) = get(&server, url, &[("accept", &accept)]).await;
        let expect = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
        assert_eq!((text(&headers, "content-type"), text(&headers, "vary")), (expect, "Accept"));
        assert!(body.starts_with(b"\x0a\x053.0.0"), "the version is the first field");
    }
    for path in ["/openapi/v2", url] {
        assert_eq!(get(&server, path, &[("accept", "application/yaml")]).await.0, 406, "{path}");
        assert_eq!(get(&server, path, &[("accept", "text/html, */*;q=0.1")]).await.0, 200, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn openapi_v2_is_one_document_in_two_forms() {
    let server = start(None).await;
    let document = json_of(&server, "/openapi/v2", "application/json").await;
    assert_eq!(document["swagger"], "2.0");
    check_references(&document, &document["definitions"], "#/definitions/");
    // Measures cannot be written: clients that still ask for v2 do so to write.
    for row in served().filter(|row| row.group != "metrics.k8s.io") {
        check_operations(row, &document["paths"]);
    }
    is_kept(&server, "/openapi/v2", "application/json").await;
    for wish in ["v2@v1.0+protobuf", "v2.v1.0+protobuf"] {
        let accept = format!("application/com.github.proto-openapi.spec.{wish}");
        let (_, headers, body) = get(&server, "/openapi/v2", &[("accept", &accept)]).await;
        let expect = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
        assert_eq!(text(&headers, "content-type"), expect);
        assert!(body.starts_with(b"\x0a\x032.0"), "the version is the first field");
        is_kept(&server, "/openapi/v2", &accept).await;
    }
    let (_, headers, packed) = get(&server, "/openapi/v2", &[("accept-encoding", "gzip")]).await;
    assert_eq!(text(&headers, "content-encoding"), "gzip");
    let mut plain = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut plain).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), document);
    server.stop().await;
}
