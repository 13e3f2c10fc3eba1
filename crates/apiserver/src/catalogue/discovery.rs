//! Which resources there are: `/api`, `/apis`, per group and version, and aggregated.
//!
//! Made from what is served, once for each of its states; the aggregated form carries an ETag, the plain ones come in
//! every format.
//! Source: KEP-3352 (aggregated discovery), `metav1.APIResourceList`.

use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::Snapshot;
use crate::body::{Body, json, serialised, text};
use crate::kinds::Kind;
use crate::negotiate::Accept;
use crate::status::{Error, Result};

/// What is asked for most.
pub struct Documents {
    core_versions: Value,
    groups: Value,
    aggregated_core: [(Value, String); 2],
    aggregated_groups: [(Value, String); 2],
}

/// The versions of the aggregated form, newest first.
const AGGREGATED: [&str; 2] = ["v2", "v2beta1"];

impl Documents {
    /// The documents of what is served.
    pub fn of(snapshot: &Snapshot) -> Self {
        let with_etag = |value: Value| {
            let hash = digest(&SHA256, value.to_string().as_bytes());
            let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
            (value, format!("\"{hex}\""))
        };
        let all = snapshot.group_versions();
        let (core, named): (Vec<_>, Vec<_>) = all.into_iter().partition(|(group, _)| group.is_empty());
        let groups: Vec<Value> =
            named.iter().map(|(group, versions)| group_document(group, versions)).collect();
        Self {
            core_versions: json!({"kind": "APIVersions", "versions": ["v1"]}),
            groups: json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
            aggregated_core: AGGREGATED.map(|version| with_etag(aggregated(snapshot, &core, version))),
            aggregated_groups: AGGREGATED.map(|version| with_etag(aggregated(snapshot, &named, version))),
        }
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
    let documents = snapshot.discovery();
    let value = match parts.as_slice() {
        ["api"] => match wanted_aggregated(headers) {
            Some(index) => return Ok(aggregated_response(&documents.aggregated_core, index, headers)),
            None => {
                let mut versions = documents.core_versions.clone();
                versions["serverAddressByClientCIDRs"] =
                    json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": address.to_string()}]);
                versions
            }
        },
        ["apis"] => match wanted_aggregated(headers) {
            Some(index) => return Ok(aggregated_response(&documents.aggregated_groups, index, headers)),
            None => documents.groups.clone(),
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

fn aggregated_response(
    documents: &[(Value, String); 2],
    index: usize,
    headers: &HeaderMap,
) -> Response<Body> {
    let [newest, older] = documents;
    let ((value, etag), version) = if index == 0 { (newest, "v2") } else { (older, "v2beta1") };
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut response = if is_known {
        text(StatusCode::NOT_MODIFIED, "application/json", "")
    } else {
        json(StatusCode::OK, value)
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

fn aggregated(snapshot: &Snapshot, groups: &[(&str, Vec<&str>)], version: &str) -> Value {
    let items: Vec<Value> =
        groups.iter().map(|(group, versions)| aggregated_group(snapshot, group, versions)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(snapshot: &Snapshot, group: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            if let Some(learned) = snapshot.learned(group, version) {
                return learned.aggregated(version);
            }
            let resources: Vec<Value> =
                kinds_of(snapshot, group, version).into_iter().map(aggregated_resource).collect();
            json!({"version": version, "freshness": "Current", "resources": resources})
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
