//! OpenAPI v3: an index, and a document per group-version.

use super::META;
use super::arenas::Arenas;
use super::definitions::{Definitions, Flavour};
use super::descriptions::{Descriptions, FINGERPRINT};
use super::operations::{Forms, Operation, discovery, paths};
use super::plain::Plain;
use super::{LEVEL, Resource, gnostic3, root_path};
use crate::Object;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// Those of custom kinds: the last one is for built-in ones only.
const CUSTOM_PATCH_TYPES: [&str; 3] = [PATCH_TYPES[0], PATCH_TYPES[1], PATCH_TYPES[2]];

/// The hash of a group-version's document, made from what the document is made from; `arenas` are the fingerprints of
/// schemas that were made at run time.
pub fn hash(group: &str, version: &str, resources: &[Resource<'_>], arenas: &str) -> String {
    digest(&format!("{group}/{version} {resources:?}{arenas}"))
}

/// The hash of what is made from `source` by this program.
fn digest(source: &str) -> String {
    let input = format!("{LEVEL} {} {source}", env!("CARGO_PKG_VERSION"));
    let input = [input.as_bytes(), &FINGERPRINT].concat();
    Sha256::digest(input).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        write!(text, "{byte:02X}").ok();
        text
    })
}

/// The URL of a group-version's document, as [`root_path`] spells it, with this hash.
pub fn url(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{path}?hash={hash}")
}

/// The index at `/openapi/v3`: each group-version with its hash.
pub fn index<'g>(documents: impl IntoIterator<Item = (&'g str, &'g str)>) -> Vec<u8> {
    let paths: Object = documents
        .into_iter()
        .map(|(path, hash)| (path.to_owned(), json!({"serverRelativeURL": url(path, hash)})))
        .collect();
    json!({ "paths": paths }).to_string().into_bytes()
}

/// The document of one group-version.
pub fn document<'a>(
    schemas: impl Into<Arenas<'a>>,
    group: &str,
    version: &str,
    resources: &[Resource<'_>],
) -> Vec<u8> {
    let arenas = schemas.into();
    let descriptions = Descriptions::unpack();
    let index = descriptions.index();
    let mut definitions = Definitions::new(Flavour::V3, arenas, &index);
    for name in ["APIResourceList", "DeleteOptions", "Patch", "Status", "WatchEvent"] {
        definitions.add(&format!("{META}.{name}"));
    }
    let mut paths = paths(arenas, resources, &mut definitions, Forms { path_item, render });
    let (id, tag) = discovery(group, version);
    paths.insert(
        format!("/{}/", root_path(group, version)),
        json!({"get": {
            "description": "get available resources",
            "operationId": id,
            "tags": [tag],
            "responses": responses(Some(&format!("{META}.APIResourceList"))),
        }}),
    );
    whole(paths, definitions.finish()).to_string().into_bytes()
}

/// The document of a path that is no resource.
pub fn plain_document<'a>(schemas: impl Into<Arenas<'a>>, plain: &Plain) -> Vec<u8> {
    let arenas = schemas.into();
    let descriptions = Descriptions::unpack();
    let index = descriptions.index();
    let mut definitions = Definitions::new(Flavour::V3, arenas, &index);
    definitions.add(&plain.answer);
    let schema = match plain.answer.as_str() {
        "" => json!({"type": "string"}),
        message => Flavour::V3.reference(message),
    };
    let types = plain.media_types.iter();
    let content: Object = types.map(|ty| ((*ty).to_owned(), json!({"schema": schema}))).collect();
    let get = json!({
        "description": plain.description,
        "operationId": plain.id,
        "tags": [plain.tag],
        "responses": {
            "200": {"description": "OK", "content": content},
            "401": {"description": "Unauthorized"},
        },
    });
    let mut paths = Object::new();
    paths.insert(format!("/{}/", plain.path), json!({"get": get}));
    whole(paths, definitions.finish()).to_string().into_bytes()
}

/// The hash of such a document.
pub fn plain_hash(plain: &Plain) -> String {
    digest(&format!("{plain:?}"))
}

/// The media type of the protobuf form in an answer; clients ask for it with `@` in place of the second dot, too.
pub const PROTOBUF_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// A document in protobuf (`openapi.v3.Document` of gnostic).
pub fn to_protobuf(document: &[u8]) -> Vec<u8> {
    gnostic3::document(&serde_json::from_slice(document).unwrap_or_default())
}

/// A document of these paths and schemas.
fn whole(paths: Object, schemas: Object) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": LEVEL},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {
                "description": "Bearer Token authentication", "type": "apiKey", "in": "header", "name": "authorization",
            }},
        },
    })
}

fn path_item(path: &str) -> Value {
    let parameters: Vec<Value> = ["name", "namespace", "path"]
        .iter()
        .filter(|name| path.contains(&format!("{{{name}}}")))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    json!({ "parameters": parameters })
}

fn render(operation: &Operation<'_>) -> Value {
    let parameters: Vec<Value> = operation
        .query
        .iter()
        .map(|(name, ty)| json!({"name": name, "in": "query", "schema": {"type": ty, "uniqueItems": true}}))
        .collect();
    let (group, version, kind) = operation.gvk;
    let mut out = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": responses(operation.answer.as_deref()),
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    });
    if let (Some(message), Value::Object(out)) = (&operation.body, &mut out) {
        let types: &[&str] = match operation.method {
            "patch" if operation.is_custom => &CUSTOM_PATCH_TYPES,
            "patch" => &PATCH_TYPES,
            _ => &["*/*"],
        };
        let is_required = operation.method != "delete";
        out.insert(
            "requestBody".into(),
            json!({"content": content(types, message), "required": is_required}),
        );
    }
    out
}

fn responses(message: Option<&str>) -> Value {
    let mut ok = json!({"description": "OK"});
    if let (Some(message), Value::Object(ok)) = (message, &mut ok) {
        ok.insert("content".into(), content(MEDIA_TYPES, message));
    }
    json!({"200": ok, "401": {"description": "Unauthorized"}})
}

fn content(types: &[&str], message: &str) -> Value {
    let schema = json!({"schema": Flavour::V3.reference(message)});
    Value::Object(types.iter().map(|ty| ((*ty).to_owned(), schema.clone())).collect())
}
