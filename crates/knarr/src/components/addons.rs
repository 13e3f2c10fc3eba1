//! Objects that every cluster has because of how knarr is built: the Service that stands for its DNS.
//!
//! Each Node answers at that address itself, so the Service has no selector; it keeps the address from being given
//! to anything else, and says where DNS is to those who look for it.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::Settings;

/// Creates what is not there.
///
/// # Errors
/// If the API server refuses, other than because it is there.
pub(super) async fn ensure(client: kube::Client, settings: &Settings) -> Result<()> {
    let ip = settings.args.cluster_dns.to_string();
    let service: Service = serde_json::from_value(json!({
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {
                "k8s-app": "kube-dns",
                "kubernetes.io/cluster-service": "true",
                "kubernetes.io/name": "CoreDNS",
            },
        },
        "spec": {
            "clusterIP": ip,
            "ports": [
                { "name": "dns", "port": 53, "protocol": "UDP" },
                { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
            ],
        },
    }))?;
    let api: Api<Service> = Api::namespaced(client, "kube-system");
    // One that is there has its address; to ask for that again is an error of its own.
    if api.get_opt("kube-dns").await.context("read the kube-dns Service")?.is_some() {
        return Ok(());
    }
    match api.create(&PostParams::default(), &service).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => Err(error).context("create the kube-dns Service"),
    }
}
