//! What a new cluster has beside namespaces, roles and the `kubernetes` Service: the range of service
//! addresses and a record of each group and version that is served.

use machinery::metadata;
use serde_json::{Value, json};

use crate::api::Api;
use crate::kinds::Part;
use crate::request::of_server;
use crate::request_info::Verb;
use crate::status::Result;
use crate::write::Decoded;
use crate::write::change::change;
use crate::write::own::ensure;

const DEFAULT: &str = "kubernetes";

/// Which group an unqualified name is looked for first, and then which of its versions: upstream's numbers.
const PRIORITIES: &[(&str, &str, i64, i64)] = &[
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 5),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v1", 17_500, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 12),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
    ("resource.k8s.io", "v1", 15_900, 15),
];

/// A resource and an object of it.
type Row = ((&'static str, &'static str, &'static str), Value);

/// Creates what is missing.
///
/// # Errors
/// When the store or the cache fail.
pub(super) async fn run(api: &Api) -> Result<()> {
    let created = rows()
        .into_iter()
        .map(|((group, version, resource), object)| ensure(api, group, version, resource, "", object));
    futures::future::try_join_all(created).await.map(drop)
}

/// Makes the range of service addresses, and says that addresses can be had from it.
///
/// # Errors
/// When the store or the cache fail.
pub(super) async fn service_range(api: &Api) -> Result<()> {
    let ranges: Vec<String> = api.config.service_cidrs.iter().map(|range| range.to_string()).collect();
    let object = json!({"metadata": {"name": DEFAULT}, "spec": {"cidrs": ranges}});
    ensure(api, "networking.k8s.io", "v1", "servicecidrs", "", object.clone()).await?;
    service_range_is_ready(api, object).await
}

fn rows() -> Vec<Row> {
    PRIORITIES.iter().map(api_service).collect()
}

fn api_service((group, version, group_priority, version_priority): &(&str, &str, i64, i64)) -> Row {
    let object = json!({
        "metadata": {
            "name": format!("{version}.{group}"),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        },
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": group_priority,
            "versionPriority": version_priority,
        },
    });
    (("apiregistration.k8s.io", "v1", "apiservices"), object)
}

async fn service_range_is_ready(api: &Api, range: Value) -> Result<()> {
    let Some((request, _)) =
        of_server(api, ("networking.k8s.io", "v1", "servicecidrs"), "", range, Verb::Update)
    else {
        return Ok(());
    };
    let request = request.below("status");
    api.cache.fresh().await?;
    let is_ready = |range: &Value| range.pointer("/status/conditions/0").is_some();
    if request.kind.cache().get(&request.key()).is_some_and(|range| is_ready(&range.value())) {
        return Ok(());
    }
    let condition = json!({
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": metadata::time(api.clock.now()),
    });
    change(api, &request, Part::Status, |old| {
        let mut new = old.clone();
        metadata::remove(&mut new, "resourceVersion");
        if let Some(map) = new.as_object_mut() {
            map.insert("status".to_owned(), json!({"conditions": [condition]}));
        }
        Ok(Decoded::of_server(new))
    })
    .await?;
    Ok(())
}
