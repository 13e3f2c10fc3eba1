//! The API servers of a cluster that has several: each keeps a lease in the store for as long as it lives, and the
//! `kubernetes` Service leads to all who have one.
//!
//! Keys and values are upstream's, so that a kube-apiserver may be one of them. A lease that ends is a change like any
//! other: whoever is left hears of it and takes the dead one's address away. Source:
//! `pkg/controlplane/reconcilers/lease.go`.

pub(crate) mod identity;
mod storage_versions;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use store::StoreError;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::addresses::{PREFIX, alive, key};
use crate::api::Api;
use crate::cache::IndexKey;
use crate::kinds::GroupVersionResource;
use crate::object::encode_stored;
use crate::status::{Error, Result};
use crate::write::loopback::put;

/// How long a server that says nothing counts as alive. Source: `DefaultEndpointReconcilerTTL`.
const TTL_SECONDS: u32 = 15;
/// How often a server says that it lives. Source: `DefaultEndpointReconcilerInterval`.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// After a renewal that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long a server that stops tries to take its address away; if it fails, the lease's end does it.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Takes this server's lease and adds its address to those of the `kubernetes` Service.
///
/// # Errors
/// If the store fails.
pub(crate) async fn begin(api: &Api) -> Result<()> {
    renew(api).await.map_err(|failure| {
        warn!(%failure, "this server's lease cannot be taken");
        Error::unavailable("the store does not answer")
    })?;
    api.cache.fresh().await?;
    publish(api, &alive(api)).await
}

/// Renews the lease and follows those of others until the server stops; then takes its own back.
pub(crate) async fn follow(api: &Api) {
    tokio::select! {
        () = keep(api) => {}
        () = api.tasks.stopping() => {}
    }
    match tokio::time::timeout(GOODBYE_MAX, leave(api)).await {
        Ok(Ok(())) => {}
        Ok(Err(failure)) => warn!(%failure, "this server's address stays until its lease ends"),
        Err(_) => warn!("this server's address stays until its lease ends: the store does not answer"),
    }
}

async fn keep(api: &Api) {
    api.wait_bootstrapped().await;
    let leases = api.cache.resource(PREFIX);
    let mut due = Instant::now() + RENEW_EVERY;
    loop {
        let mut watcher = leases.watch(api.cache.revision(), IndexKey::Everything);
        loop {
            if let Err(failure) = publish(api, &alive(api)).await {
                warn!(%failure, "the addresses of the API servers cannot be written");
            }
            tokio::select! {
                () = tokio::time::sleep_until(due) => {
                    let renewed = renew(api).await;
                    let wait = if renewed.is_ok() { RENEW_EVERY } else { RETRY_AFTER };
                    if let Err(failure) = renewed {
                        warn!(%failure, "this server's lease was not renewed");
                    }
                    due = Instant::now() + wait;
                }
                events = watcher.next() => {
                    if events.is_err() {
                        break;
                    }
                }
            }
        }
    }
}

async fn leave(api: &Api) -> std::result::Result<(), Failure> {
    let own = api.config.advertise_address.ip();
    api.door.end_life(&key(own)).await?;
    let mut others = alive(api);
    others.remove(&own);
    publish(api, &others).await?;
    info!("this server's address is taken away");
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] Error),
}

/// Puts the lease's end off. The generation rises, as upstream's does, or there would be nothing to write.
async fn renew(api: &Api) -> std::result::Result<(), StoreError> {
    let own = api.config.advertise_address.ip();
    let held = api.cache.resource(PREFIX).get(&key(own)).map(|lease| lease.value()).unwrap_or_default();
    let generation = held.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(0) + 1;
    let lease = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"generation": generation},
        "subsets": [{"addresses": [{"ip": own.to_string()}]}],
    });
    let value = encode_stored(&lease).map_err(|failure| StoreError::Failed(failure.to_string()))?;
    match api.door.show_life(&key(own), value.clone(), TTL_SECONDS).await {
        // It has just ended, or an earlier renewal arrived late.
        Err(StoreError::Conflict { .. }) => api.door.show_life(&key(own), value, TTL_SECONDS).await,
        done => done,
    }
}

/// Writes where the `kubernetes` Service leads, if that is something else.
async fn publish(api: &Api, addresses: &BTreeSet<IpAddr>) -> Result<()> {
    if is_published(api, addresses) {
        return Ok(());
    }
    kubernetes_endpoints(api, addresses).await?;
    info!(?addresses, "the kubernetes Service leads to these API servers");
    Ok(())
}

fn is_published(api: &Api, addresses: &BTreeSet<IpAddr>) -> bool {
    let object = |group: &str, resource: &str| {
        let kind = api.kind(group, "v1", resource)?;
        let object = kind.cache().get(&kind.key("default", "kubernetes"))?;
        Some(kind.value(&object))
    };
    let Some((endpoints, slice)) = object("", "endpoints").zip(object("discovery.k8s.io", "endpointslices"))
    else {
        return false;
    };
    let by_endpoints = list(&endpoints, "/subsets/0/addresses").filter_map(|one| one.get("ip")?.as_str());
    let by_slice = list(&slice, "/endpoints").filter_map(|one| one.pointer("/addresses/0")?.as_str());
    let is_all = |texts: Vec<&str>| {
        let found: BTreeSet<IpAddr> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        found == *addresses
    };
    is_all(by_endpoints.collect()) && is_all(by_slice.collect())
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Where the `kubernetes` Service leads: the API servers at `addresses`.
pub(crate) async fn kubernetes_endpoints(api: &Api, addresses: &BTreeSet<IpAddr>) -> Result<()> {
    let (port, is_ipv4) = (api.config.advertise_address.port(), api.config.advertise_address.is_ipv4());
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let skip = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    let subset = json!({
        "addresses": addresses.iter().map(|ip| json!({"ip": ip.to_string()})).collect::<Vec<_>>(),
        "ports": ports,
    });
    let subsets = if addresses.is_empty() { json!([]) } else { json!([subset]) };
    let endpoints = json!({"metadata": {"name": "kubernetes", "labels": skip}, "subsets": subsets});
    put(api, GroupVersionResource::core("endpoints"), "default", endpoints).await?;
    let endpoint = |ip: &IpAddr| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}});
    let slice = json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if is_ipv4 { "IPv4" } else { "IPv6" },
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": ports,
    });
    let slices = GroupVersionResource::new("discovery.k8s.io", "v1", "endpointslices");
    put(api, slices, "default", slice).await
}
