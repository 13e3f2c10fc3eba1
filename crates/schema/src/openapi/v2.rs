//! OpenAPI v2 (Swagger): one document for all group-versions, as JSON or as protobuf.
//!
//! kubectl before 1.30 knows only this one; newer ones and helm fall back on it.

use super::definitions::{Definitions, Flavour};
use super::descriptions::Descriptions;
use super::operations::{Forms, META, Operation, paths};
use super::{LEVEL, Resource, gnostic};
use crate::rows::Schemas;
use serde_json::{Value, json};

/// The media type of the protobuf form in an answer.
///
/// Clients ask for it with `@` in place of the second dot, which no media type may have, and which they could
/// not parse in the answer.
pub const PROTOBUF_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document.
pub fn document(schemas: &Schemas, resources: &[Resource<'_>]) -> Value {
    let descriptions = Descriptions::unpack();
    let index = descriptions.index();
    let mut definitions = Definitions::new(Flavour::V2, schemas, &index);
    for name in ["APIGroupList", "APIResourceList", "DeleteOptions", "Patch", "Status", "WatchEvent"] {
        definitions.add(&format!("{META}.{name}"));
    }
    let paths = paths(schemas, resources, &mut definitions, Forms { path_item, render });
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": LEVEL},
        "paths": paths,
        "definitions": definitions.finish(),
    })
}

/// The document in protobuf (`openapi.v2.Document` of gnostic).
pub fn to_protobuf(document: &Value) -> Vec<u8> {
    gnostic::document(document)
}

fn path_item(path: &str) -> Value {
    let parameters: Vec<Value> = ["name", "namespace", "path"]
        .iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| json!({"name": name, "in": "path", "required": true, "type": "string", "uniqueItems": true}))
        .collect();
    json!({ "parameters": parameters })
}

fn render(operation: &Operation<'_>) -> Value {
    let query = operation
        .query
        .iter()
        .map(|(name, ty)| json!({"name": name, "in": "query", "type": ty, "uniqueItems": true}));
    let body = operation.body.iter().map(|message| {
        let schema = Flavour::V2.reference(message);
        json!({"name": "body", "in": "body", "required": operation.method != "delete", "schema": schema})
    });
    let (group, version, kind) = operation.gvk;
    let mut ok = json!({"description": "OK"});
    if let (Some(message), Value::Object(ok)) = (&operation.answer, &mut ok) {
        ok.insert("schema".into(), Flavour::V2.reference(message));
    }
    json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "consumes": ["*/*"],
        "produces": ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"],
        "parameters": body.chain(query).collect::<Vec<Value>>(),
        "responses": {"200": ok, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    })
}
