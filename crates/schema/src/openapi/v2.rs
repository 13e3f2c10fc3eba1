//! OpenAPI v2 (Swagger): one document for all group-versions, as JSON or as protobuf.
//!
//! kubectl before 1.30 knows only this one; newer ones and helm fall back on it.

use super::META;
use super::arenas::Arenas;
use super::definitions::{Definitions, Flavour};
use super::descriptions::Descriptions;
use super::operations::{Forms, Operation, discovery, paths};
use super::plain::Plain;
use super::{LEVEL, Resource, gnostic, root_path};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The media type of the protobuf form in an answer.
///
/// Clients ask for it with `@` in place of the second dot, which no media type may have, and which they could
/// not parse in the answer.
pub const PROTOBUF_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The document.
pub fn document<'a>(schemas: impl Into<Arenas<'a>>, resources: &[Resource<'_>], plain: &[Plain]) -> Value {
    let arenas = schemas.into();
    let descriptions = Descriptions::unpack();
    let index = descriptions.index();
    let mut definitions = Definitions::new(Flavour::V2, arenas, &index);
    for name in ["APIGroupList", "APIResourceList", "DeleteOptions", "Patch", "Status", "WatchEvent"] {
        definitions.add(&format!("{META}.{name}"));
    }
    let mut paths = paths(arenas, resources, &mut definitions, Forms { path_item, render });
    for plain in plain {
        definitions.add(&plain.answer);
        paths.insert(format!("/{}/", plain.path), json!({"get": render_plain(plain)}));
    }
    let versions: BTreeSet<(&str, &str)> = resources.iter().map(|row| (row.group, row.version)).collect();
    for (group, version) in versions {
        let (id, tag) = discovery(group, version);
        let get = get("get available resources", &id, &tag, MEDIA_TYPES, &format!("{META}.APIResourceList"));
        paths.insert(format!("/{}/", root_path(group, version)), json!({"get": get}));
    }
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

fn render_plain(plain: &Plain) -> Value {
    get(plain.description, &plain.id, &plain.tag, plain.media_types, &plain.answer)
}

/// A GET of what is no resource; `answer` is a message, or empty for text.
fn get(description: &str, id: &str, tag: &str, types: &[&str], answer: &str) -> Value {
    let schema = match answer {
        "" => json!({"type": "string"}),
        message => Flavour::V2.reference(message),
    };
    json!({
        "description": description,
        "operationId": id,
        "tags": [tag],
        "consumes": types,
        "produces": types,
        "schemes": ["https"],
        "responses": {
            "200": {"description": "OK", "schema": schema},
            "401": {"description": "Unauthorized"},
        },
    })
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
        "produces": MEDIA_TYPES,
        "parameters": body.chain(query).collect::<Vec<Value>>(),
        "responses": {"200": ok, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    })
}
