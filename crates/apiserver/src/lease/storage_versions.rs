//! The versions in which this server stores resources, for the others of its cluster and for who migrates: its entry in the
//! StorageVersion of each built-in resource. Written once, if the feature StorageVersionAPI is on.
//!
//! The server has its identity Lease before, or a controller would take its entries out. Unlike upstream's it keeps no write
//! waiting until they are there, and says nothing of custom kinds. Source: `apiserver/pkg/storageversion`; KEP-2339.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{ServerStorageVersion, StorageVersionStatus};
use machinery::features::Feature;
use machinery::metadata;
use resources::{Resource, storage_versions};
use serde_json::{Value, json};

use crate::api::Api;
use crate::kinds::GroupVersionResource;
use crate::status::{Error, Result};
use crate::write::Decoded;
use crate::write::loopback::ensure;

const RESOURCE: GroupVersionResource<'_> =
    GroupVersionResource::new("internal.apiserver.k8s.io", "v1alpha1", "storageversions");

/// Writes the entries of the server that has this identity.
///
/// # Errors
/// If one could not be written.
pub(super) async fn publish(api: &Api, server: &str) -> Result<()> {
    if !Feature::StorageVersionApi.is_on() {
        return Ok(());
    }
    for (name, entry) in entries(resources::table(), server) {
        let object = json!({"metadata": {"name": name}, "spec": {}});
        ensure(api, RESOURCE, "", object).await?;
        let mut put = |old: &Value| with_entry(old, entry.clone(), api.clock.now()).map(Decoded::of_server);
        api.loopback.change_status(api, RESOURCE, ("", &name), &mut put).await?;
    }
    Ok(())
}

/// A server's entries, by the names of StorageVersions. Resources that share their objects have one, under the first name.
fn entries(table: &[Resource], server: &str) -> BTreeMap<String, ServerStorageVersion> {
    let mut stores = BTreeMap::<&str, Vec<&Resource>>::new();
    for row in table.iter().filter(|row| row.is_stored()) {
        stores.entry(&row.storage_prefix).or_default().push(row);
    }
    let entry = |rows: Vec<&Resource>| {
        let place = |row: &Resource| (row.group.to_string(), row.plural.to_string());
        let first = rows.iter().filter(|row| row.is_served()).min_by_key(|row| place(row))?;
        let is_served =
            |row: &&&Resource| row.is_served() && row.group == first.group && row.plural == first.plural;
        let group = if first.group.is_empty() { "core" } else { &*first.group };
        let entry = ServerStorageVersion {
            api_server_id: Some(server.to_owned()),
            decodable_versions: Some(rows.iter().map(|row| row.api_version()).collect()),
            encoding_version: Some(first.storage_api_version.to_string()),
            served_versions: Some(rows.iter().filter(is_served).map(|row| row.api_version()).collect()),
        };
        Some((format!("{group}.{}", first.plural), entry))
    };
    stores.into_values().filter_map(entry).collect()
}

/// The StorageVersion with a server's entry, and nothing else changed but what follows from it.
fn with_entry(old: &Value, entry: ServerStorageVersion, now: Timestamp) -> Result<Value> {
    let status = old.get("status").cloned().unwrap_or_else(|| json!({}));
    let unreadable = |_| Error::internal("the status of a StorageVersion cannot be read");
    let mut status: StorageVersionStatus = serde_json::from_value(status).map_err(unreadable)?;
    let generation = old.pointer("/metadata/generation").and_then(Value::as_i64);
    storage_versions::put(&mut status, entry, generation, now);
    let mut new = old.clone();
    metadata::remove(&mut new, "resourceVersion");
    new["status"] = json!(status);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_has_an_entry_and_those_that_share_their_objects_have_one() {
        let all = entries(resources::table(), "apiserver-a");
        let told = |name: &str| {
            let entry = all.get(name)?;
            let list =
                |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
            let encoding = entry.encoding_version.as_deref().unwrap_or_default();
            Some(format!("{encoding}; {}; {}", list(&entry.decodable_versions), list(&entry.served_versions)))
        };
        for (name, expect) in [
            ("core.pods", Some("v1; v1; v1")),
            ("apps.deployments", Some("apps/v1; apps/v1; apps/v1")),
            ("core.events", Some("v1; v1 events.k8s.io/v1; v1")),
            ("events.k8s.io.events", None),
            (
                "autoscaling.horizontalpodautoscalers",
                Some("autoscaling/v2; autoscaling/v2 autoscaling/v1; autoscaling/v2 autoscaling/v1"),
            ),
            // Reviews are never stored, and what no feature has turned on is not served.
            ("authorization.k8s.io.subjectaccessreviews", None),
            ("internal.apiserver.k8s.io.storageversions", None),
        ] {
            assert_eq!(told(name).as_deref(), expect, "{name}");
        }
        let is_whole = |entry: &ServerStorageVersion| {
            let known = entry.decodable_versions.iter().flatten();
            known.clone().any(|version| Some(version) == entry.encoding_version.as_ref())
                && entry
                    .served_versions
                    .iter()
                    .flatten()
                    .all(|served| known.clone().any(|version| version == served))
        };
        let broken: Vec<_> = all.iter().filter(|(_, entry)| !is_whole(entry)).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}
