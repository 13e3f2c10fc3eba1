//! The discovery of resources: `/api`, `/apis`, per group and version, and aggregated.
//!
//! Made from what is served; the aggregated form, which is made once for each of its states, carries an ETag, the plain ones
//! come in every format.
//! Source: KEP-3352 (aggregated discovery), `metav1.APIResourceList`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::Snapshot;
use crate::body::{Body, serialised, text};
use crate::kinds::Kind;
use crate::negotiate::Accept;
use crate::status::{Error, Result};

/// The versions of the aggregated form, newest first.
const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

/// The aggregated documents, each made when it is first asked for: as it is sent, because all clients ask for it again and
/// again, and a tree of hundreds of kinds takes ten times the room.
#[derive(Default)]
pub struct Documents {
    core: [OnceLock<Document>; AGGREGATED.len()],
    named: [OnceLock<Document>; AGGREGATED.len()],
}

/// A document and its tag.
#[derive(Clone)]
struct Document {
    json: Bytes,
    etag: String,
}

impl Documents {
    /// The document of the core group, or of all others, in one of [`AGGREGATED`].
    fn get(&self, snapshot: &Snapshot, groups: Groups, index: usize) -> Option<&Document> {
        let documents = if groups == Groups::Core { &self.core } else { &self.named };
        let version = AGGREGATED.get(index)?;
        Some(documents.get(index)?.get_or_init(|| Document::of(&aggregated(snapshot, groups, version))))
    }
}

/// Which groups a document is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Groups {
    Core,
    Named,
}

impl Groups {
    /// These groups in discovery's order, and the versions of each.
    fn of(self, snapshot: &Snapshot) -> Vec<(&str, Vec<&str>)> {
        let mut all = snapshot.group_versions();
        all.retain(|(group, _)| group.is_empty() == (self == Self::Core));
        all
    }
}

impl Document {
    fn of(value: &Value) -> Self {
        let json = value.to_string();
        let hash = digest(&SHA256, json.as_bytes());
        let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        Self { json: json.into(), etag: format!("\"{hex}\"") }
    }
}

/// Answers a discovery path. `address` is where clients find the server.
///
/// # Errors
/// 404 if it is none, 406 if the client takes none of the formats.
pub fn discover(
    snapshot: &Snapshot,
    path: &str,
    headers: &HeaderMap,
    address: SocketAddr,
) -> Result<Response<Body>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let aggregated = |groups| {
        let index = wanted_aggregated(headers)?;
        let document = snapshot.discovery().get(snapshot, groups, index)?;
        Some(aggregated_response(document, index, headers))
    };
    let value = match parts.as_slice() {
        ["api"] => match aggregated(Groups::Core) {
            Some(response) => return Ok(response),
            None => json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address.to_string()}],
            }),
        },
        ["apis"] => match aggregated(Groups::Named) {
            Some(response) => return Ok(response),
            None => {
                let groups = Groups::Named.of(snapshot);
                let groups: Vec<Value> =
                    groups.iter().map(|(group, versions)| group_document(group, versions)).collect();
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            }
        },
        ["api", version] => resource_list(snapshot, "", version)?,
        ["apis", group] => {
            let all = snapshot.group_versions();
            let found = all.iter().find(|(name, _)| name == group && !group.is_empty());
            let (_, versions) = found.ok_or_else(Error::unknown_path)?;
            let mut document = group_document(group, versions);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            document
        }
        ["apis", group, version] => resource_list(snapshot, group, version)?,
        _ => return Err(Error::unknown_path()),
    };
    Ok(serialised(StatusCode::OK, Accept::plain(headers)?.format, &value))
}

fn wanted_aggregated(headers: &HeaderMap) -> Option<usize> {
    let accept = headers.get(ACCEPT)?.to_str().ok()?;
    accept.split(',').find_map(|clause| {
        if !clause.contains("as=APIGroupDiscoveryList") {
            return None;
        }
        let parameters: Vec<&str> = clause.split(';').map(str::trim).collect();
        AGGREGATED.iter().position(|version| parameters.contains(&format!("v={version}").as_str()))
    })
}

fn aggregated_response(document: &Document, index: usize, headers: &HeaderMap) -> Response<Body> {
    let Document { json, etag } = document;
    let version = AGGREGATED.get(index).copied().unwrap_or_default();
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut response = match is_known {
        true => text(StatusCode::NOT_MODIFIED, "application/json", Bytes::new()),
        false => text(StatusCode::OK, "application/json", json.clone()),
    };
    let content_type = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    let header_map = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&content_type) {
        header_map.insert(CONTENT_TYPE, value);
    }
    if let Ok(value) = HeaderValue::from_str(etag) {
        header_map.insert(ETAG, value);
    }
    header_map.insert(VARY, HeaderValue::from_static("Accept"));
    header_map.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

fn group_document(group: &str, versions: &[&str]) -> Value {
    let entries: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": entries.first().cloned().unwrap_or_default(), "versions": entries})
}

fn kinds_of<'a>(snapshot: &'a Snapshot, group: &str, version: &str) -> Vec<&'a Kind> {
    snapshot.discoverable().filter(|kind| kind.group() == group && kind.version() == version).collect()
}

/// Tells clients whether two versions of a resource are stored alike.
///
/// Source: `k8s.io/apiserver/pkg/endpoints/discovery`.
fn storage_version_hash(kind: &Kind) -> String {
    let version = &kind.row().storage_api_version;
    let slash = if version.contains('/') { "" } else { "/" };
    let hash = digest(&SHA256, format!("{slash}{version}/{}", kind.kind()).as_bytes());
    STANDARD.encode(hash.as_ref().get(..8).unwrap_or_default())
}

fn resource_list(snapshot: &Snapshot, group: &str, version: &str) -> Result<Value> {
    let kinds = kinds_of(snapshot, group, version);
    if kinds.is_empty() {
        return Err(Error::unknown_path());
    }
    let mut resources: Vec<Value> = Vec::new();
    for kind in &kinds {
        let row = kind.row();
        let mut resource = json!({
            "name": row.plural,
            "singularName": row.singular,
            "namespaced": kind.is_namespaced(),
            "kind": row.kind,
            "verbs": row.verbs,
        });
        if !row.short_names.is_empty() {
            resource["shortNames"] = json!(row.short_names);
        }
        if !row.categories.is_empty() {
            resource["categories"] = json!(row.categories);
        }
        if row.is_stored() {
            resource["storageVersionHash"] = storage_version_hash(kind).into();
        }
        resources.push(resource);
        for sub in row.subresources {
            let mut resource = json!({
                "name": format!("{}/{}", row.plural, sub.name),
                "singularName": "",
                "namespaced": kind.is_namespaced(),
                "kind": if sub.kind.is_empty() { &*row.kind } else { sub.kind },
                "verbs": sub.verbs,
            });
            if !sub.kind.is_empty() && (sub.group != row.group || sub.version != row.version) {
                resource["group"] = sub.group.into();
                resource["version"] = sub.version.into();
            }
            resources.push(resource);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }))
}

fn aggregated(snapshot: &Snapshot, groups: Groups, version: &str) -> Value {
    let mut kinds: BTreeMap<(&str, &str), Vec<&Kind>> = BTreeMap::new();
    for kind in snapshot.discoverable() {
        kinds.entry((kind.group(), kind.version())).or_default().push(kind);
    }
    let resources = |group: &str, version: &str| -> Vec<Value> {
        let found = kinds.get(&(group, version)).into_iter().flatten();
        found.map(|kind| aggregated_resource(kind)).collect()
    };
    let all = groups.of(snapshot);
    let items: Vec<Value> =
        all.iter().map(|(group, versions)| aggregated_group(snapshot, group, versions, resources)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(
    snapshot: &Snapshot,
    group: &str,
    versions: &[&str],
    resources: impl Fn(&str, &str) -> Vec<Value>,
) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            if let Some(discovery) = snapshot.remote_discovery(group, version) {
                return discovery.aggregated(version);
            }
            json!({"version": version, "freshness": "Current", "resources": resources(group, version)})
        })
        .collect();
    let mut metadata = json!({});
    if !group.is_empty() {
        metadata["name"] = group.into();
    }
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let row = kind.row();
    let subresources: Vec<Value> = row
        .subresources
        .iter()
        .map(|sub| {
            let (group, version, kind) = if sub.kind.is_empty() {
                (&*row.group, &*row.version, &*row.kind)
            } else {
                (sub.group, sub.version, sub.kind)
            };
            json!({
                "subresource": sub.name,
                "responseKind": {"group": group, "version": version, "kind": kind},
                "verbs": sub.verbs,
            })
        })
        .collect();
    let mut resource = json!({
        "resource": row.plural,
        "responseKind": {"group": row.group, "version": row.version, "kind": row.kind},
        "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": row.singular,
        "verbs": row.verbs,
    });
    if !row.short_names.is_empty() {
        resource["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        resource["categories"] = json!(row.categories);
    }
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}
