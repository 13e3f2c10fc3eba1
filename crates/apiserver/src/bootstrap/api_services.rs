//! The APIServices of a new cluster: a record of each group and version that is served.

use serde_json::{Value, json};

use crate::api::Api;
use crate::catalogue::priorities::PRIORITIES;
use crate::kinds::GroupVersionResource;
use crate::status::Result;
use crate::write::loopback::ensure;

/// Says which APIServices are this server's own.
pub(crate) const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Its value where they are put right when the server starts.
pub(crate) const ON_START: &str = "onstart";

/// Creates what is missing.
///
/// # Errors
/// When the store or the cache fail.
pub(super) async fn run(api: &Api) -> Result<()> {
    let resource = GroupVersionResource::new("apiregistration.k8s.io", "v1", "apiservices");
    let created = api_services().map(|object| ensure(api, resource, "", object));
    futures::future::try_join_all(created).await.map(drop)
}

/// The APIServices of built-in group-versions.
pub(crate) fn api_services() -> impl Iterator<Item = Value> {
    PRIORITIES.iter().map(|(group, version, of_group, of_version)| {
        api_service((group, version), (*of_group, *of_version), ON_START)
    })
}

/// The APIService of a group-version that this server serves.
pub(crate) fn api_service((group, version): (&str, &str), priorities: (i64, i64), managed: &str) -> Value {
    json!({
        "metadata": {"name": format!("{version}.{group}"), "labels": {MANAGED: managed}},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": priorities.0,
            "versionPriority": priorities.1,
        },
    })
}
