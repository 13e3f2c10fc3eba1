//! The objects of a new cluster: namespaces, priority classes, the `kubernetes` Service, RBAC defaults, flow control.
//!
//! Everything is created as clients create it, as `system:apiserver`; what is there already is left alone.

pub(crate) mod api_services;
pub(crate) mod flow;
mod rbac;
mod service_cidr;

use std::collections::BTreeSet;

use futures::future::try_join_all;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::api::Api;
use crate::kinds::GroupVersionResource;
use crate::status::{Error, Result};
use crate::write::loopback::{ensure, put};

const PRIORITY_CLASSES: GroupVersionResource<'_> =
    GroupVersionResource::new("scheduling.k8s.io", "v1", "priorityclasses");
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates what is missing.
///
/// # Errors
/// When the store or the cache fail.
pub async fn run(api: &Api) -> Result<()> {
    let namespaces = NAMESPACES.map(|name| {
        ensure(api, GroupVersionResource::core("namespaces"), "", json!({"metadata": {"name": name}}))
    });
    try_join_all(namespaces).await?;
    let classes = priority_classes().map(|class| ensure(api, PRIORITY_CLASSES, "", class));
    try_join_all(classes).await?;
    try_join_all(rbac::defaults()?.into_iter().map(|wanted| rbac::reconcile(api, wanted))).await?;
    service_cidr::service_range(api).await?;
    kubernetes_service(api).await?;
    let ca = String::from_utf8_lossy(&api.config.client_ca_pem).into_owned();
    let mut authentication = json!({
        "metadata": {"name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": ca},
    });
    for (key, value) in api.config.options.front_proxy.iter().flat_map(|proxy| proxy.published()) {
        authentication["data"][key] = value.into();
    }
    put(api, GroupVersionResource::core("configmaps"), "kube-system", authentication).await?;
    flow::maintain(api).await?;
    api_services::run(api).await?;
    token_tracking(api).await?;
    api.bootstrapped();
    info!("bootstrap objects are there");
    Ok(())
}

fn priority_classes() -> [Value; 2] {
    let class = |name: &str, value: i64, description: &str| {
        json!({
            "metadata": {"name": name},
            "value": value,
            "description": description,
        })
    };
    [
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
}

/// Since when the use of tokens in Secrets is recorded.
async fn token_tracking(api: &Api) -> Result<()> {
    let object = json!({
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking"},
        "data": {"since": api.clock.now().strftime("%Y-%m-%d").to_string()},
    });
    ensure(api, GroupVersionResource::core("configmaps"), "kube-system", object).await
}

/// The `kubernetes` Service at the first address of the range, and where it leads.
async fn kubernetes_service(api: &Api) -> Result<()> {
    let address =
        api.config.service_cidrs.main().nth(1).map(|address| address.to_string()).unwrap_or_default();
    let endpoint = api.config.advertise_address;
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": labels},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": endpoint.port()}],
        },
    });
    ensure(api, GroupVersionResource::core("services"), "default", service).await?;
    if api.config.options.is_one_of_many {
        return crate::lease::begin(api).await;
    }
    crate::lease::kubernetes_endpoints(api, &BTreeSet::from([endpoint.ip()])).await
}

/// Waits for bootstrap to succeed, with backoff, and says so once.
pub async fn run_until_done(api: &Api) {
    let mut backoff =
        base::Backoff::new(std::time::Duration::from_millis(50), std::time::Duration::from_secs(5), 0.1);
    loop {
        match run(api).await {
            Ok(()) => return,
            Err(error) => report(&error),
        }
        tokio::time::sleep(backoff.next(&api.random)).await;
    }
}

fn report(error: &Error) {
    warn!(%error, "bootstrap failed; it is tried again");
}
