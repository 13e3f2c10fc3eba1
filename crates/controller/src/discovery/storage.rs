//! In which version objects are stored, of resources that are served in several: whoever follows all objects asks for that
//! one, so that nothing has to be converted for it, by a webhook least of all.
//!
//! Only the documents of single group-versions tell, by a hash. Where they do not, the preferred version it is; where they
//! cannot be had, the one that was meant before.
//! Source: `StorageVersionHash` of `k8s.io/apiserver/pkg/endpoints/discovery`.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::document::{Discovered, Discovery, Told};
use crate::ask_error::AskError;
use crate::resource_ref::ResourceRef;
use crate::sender::Sender;

/// How many group-versions are asked, and how long a document may be.
const DOCUMENTS_MAX: usize = 256;
const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// How many bytes of a digest a hash has.
const HASH_BYTES: usize = 8;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    resources: Option<Vec<Listed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    #[serde(default)]
    storage_version_hash: String,
}

/// The hashes of a group-version, by plural.
type Hashes = HashMap<String, String>;

/// What is served, with each resource in the version in which its objects are stored, as far as that is told; `before` is what
/// this was the last time.
pub(super) async fn preferring_stored(sender: &Sender, told: &Told, before: &Discovery) -> Discovery {
    let mut found = told.found.clone();
    let mut known: HashMap<String, Option<Hashes>> = HashMap::new();
    for other in &told.others {
        let place = (&other.resource.group, &other.resource.plural);
        let is_it = |one: &&mut Discovered| (&one.resource.group, &one.resource.plural) == place;
        let Some(own) = found.resources.iter_mut().find(is_it) else { continue };
        let api_version = own.resource.api_version();
        if !known.contains_key(&api_version) {
            if known.len() == DOCUMENTS_MAX {
                break;
            }
            let hashes = fetch(sender, &own.resource).await;
            let hashes = hashes.inspect_err(|error| {
                tracing::debug!(api_version, %error, "the stored versions cannot be had");
            });
            known.insert(api_version.clone(), hashes.ok());
        }
        let is_stored = match known.get(&api_version).and_then(Option::as_ref) {
            Some(hashes) => hashes.get(&other.resource.plural) == Some(&hash_of(&other.resource)),
            None => before.resources.iter().any(|one| one.resource == other.resource),
        };
        if is_stored {
            *own = other.clone();
        }
    }
    found
}

async fn fetch(sender: &Sender, resource: &ResourceRef) -> Result<Hashes, AskError> {
    let root = if resource.group.is_empty() { "api" } else { "apis" };
    let request = http::Request::get(format!("/{root}/{}", resource.api_version())).body(Body::empty());
    let response = sender.send(request.map_err(AskError::no_answer)?).await.map_err(AskError::no_answer)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, DOCUMENT_BYTES_MAX).collect().await.map_err(AskError::no_answer)?;
    let body = body.to_bytes();
    if !head.status.is_success() {
        return Err(AskError::refused(head.status, &body));
    }
    let list: List = serde_json::from_slice(&body)?;
    let told = list.resources.into_iter().flatten().filter(|one| !one.storage_version_hash.is_empty());
    Ok(told.map(|one| (one.name, one.storage_version_hash)).collect())
}

/// What a server tells of resources that are stored in this version.
pub(super) fn hash_of(resource: &ResourceRef) -> String {
    let ResourceRef { group, version, kind, .. } = resource;
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    STANDARD.encode(digest.get(..HASH_BYTES).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_upstreams() {
        let of = |group: &str, version: &str, kind: &str| {
            let text = str::to_owned;
            hash_of(&ResourceRef {
                group: text(group),
                version: text(version),
                kind: text(kind),
                plural: String::new(),
                namespaced: true,
            })
        };
        assert_eq!(of("", "v1", "Pod"), "xPOwRZ+Yhw8=");
        assert_ne!(of("apps", "v1", "Deployment"), of("apps", "v2", "Deployment"));
    }
}
