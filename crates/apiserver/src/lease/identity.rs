//! A Lease in `kube-system` for every API server, by which people and controllers know which ones there are.
//!
//! Its name follows from the server's, so a server that comes back has the same, under a holder of its own. Those that
//! nobody renews any more are removed. Upstream renews every ten seconds a Lease that lasts an hour; here it is every
//! ten minutes, which is as good and lets disks sleep. Source: KEP-1965,
//! `pkg/controlplane/controller/apiserverleasegc`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::metadata::{self, Metadata};
use serde_json::{Value, json};
use tracing::warn;

use super::storage_versions;
use crate::api::Api;
use crate::kinds::GroupVersionResource;
use crate::request::of_server;
use crate::request_info::Verb;
use crate::status::Result;
use crate::write::delete;
use crate::write::loopback::put;
use crate::write::options::DeleteOptions;

const NAMESPACE: &str = "kube-system";
const RESOURCE: GroupVersionResource<'_> = GroupVersionResource::new("coordination.k8s.io", "v1", "leases");
const LABEL: &str = "apiserver.kubernetes.io/identity";
const LABEL_VALUE: &str = "kube-apiserver";
/// Source: `--identity-lease-duration-seconds`.
const DURATION_SECONDS: i64 = 3600;
const RENEW_EVERY: Duration = Duration::from_secs(600);
/// After a renewal that failed.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Renews this server's Lease for ever.
pub(crate) async fn follow(api: &Api) {
    if api.config.options.hostname.is_empty() {
        return;
    }
    api.wait_bootstrapped().await;
    let name = name(&api.config.options.hostname);
    let holder = format!("{name}_{}", api.random.uuid());
    let mut is_published = false;
    loop {
        let renewed = renew(api, &name, &holder).await;
        if let Err(failure) = &renewed {
            warn!(%failure, "this server's identity Lease was not renewed");
        }
        is_published = is_published || renewed.is_ok() && publish(api, &name).await;
        let wait = if renewed.is_ok() && is_published { RENEW_EVERY } else { RETRY_AFTER };
        remove_stale(api).await;
        tokio::time::sleep(wait).await;
    }
}

/// Writes what this server says under its identity, and says whether that was done.
async fn publish(api: &Api, name: &str) -> bool {
    match storage_versions::publish(api, name).await {
        Ok(()) => true,
        Err(failure) => {
            warn!(%failure, "this server's StorageVersions were not written");
            false
        }
    }
}

/// `apiserver-` and half of the host name's SHA-256.
fn name(hostname: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = ring::digest::digest(&ring::digest::SHA256, hostname.as_bytes());
    let mut name = "apiserver-".to_owned();
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in digest.as_ref().iter().take(16) {
        bits = bits << 8 | u32::from(*byte);
        count += 8;
        while count >= 5 {
            count -= 5;
            name.push(char::from(ALPHABET[(bits >> count & 31) as usize]));
        }
    }
    if count > 0 {
        name.push(char::from(ALPHABET[(bits << (5 - count) & 31) as usize]));
    }
    name
}

async fn renew(api: &Api, name: &str, holder: &str) -> Result<()> {
    let lease = json!({
        "metadata": {
            "name": name,
            "labels": {LABEL: LABEL_VALUE, "kubernetes.io/hostname": api.config.options.hostname},
        },
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": metadata::micro_time(api.clock.now()),
        },
    });
    put(api, RESOURCE, NAMESPACE, lease).await
}

async fn remove_stale(api: &Api) {
    let GroupVersionResource { group, version, resource } = RESOURCE;
    let Some(kind) = api.kind(group, version, resource) else { return };
    let all = kind.cache().list(&kind.key(NAMESPACE, ""), 0).objects;
    for lease in all.iter().map(|object| kind.value(object)) {
        if !is_stale(&lease, api.clock.now()) {
            continue;
        }
        let Some((request, _)) = of_server(api, RESOURCE, NAMESPACE, lease.clone(), Verb::Delete) else {
            continue;
        };
        match delete::delete(api, &request, &DeleteOptions::default()).await {
            Ok(_) => {}
            Err(failure) if failure.reason == "NotFound" => {}
            Err(failure) => warn!(lease = Metadata::of(&lease).name(), %failure, "a Lease was not removed"),
        }
    }
}

/// Whether a Lease is an API server's and has ended.
fn is_stale(lease: &Value, now: Timestamp) -> bool {
    if Metadata::of(lease).label(LABEL) != Some(LABEL_VALUE) {
        return false;
    }
    let renewed = lease.pointer("/spec/renewTime").and_then(Value::as_str);
    let renewed = renewed.and_then(|text| text.parse::<Timestamp>().ok());
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64);
    match (renewed, seconds) {
        (Some(renewed), Some(seconds)) => now > renewed + SignedDuration::from_secs(seconds),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_follows_from_the_hosts() {
        let name = name("a");
        assert_eq!(name, "apiserver-zklycewkdo64v6wcggzzui64ju");
        assert_ne!(name, self::name("b"));
    }

    #[test]
    fn what_nobody_renews_is_stale() {
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let check = |renewed: &str, label: &str, expected: bool| {
            let lease = json!({
                "metadata": {"name": "x", "labels": {LABEL: label}},
                "spec": {"leaseDurationSeconds": 3600, "renewTime": renewed},
            });
            assert_eq!(is_stale(&lease, now), expected, "{renewed} {label}");
        };
        check("2026-06-01T11:30:00.000000Z", LABEL_VALUE, false);
        check("2026-06-01T10:59:00.000000Z", LABEL_VALUE, true);
        check("2026-06-01T10:59:00.000000Z", "other", false);
        check("", LABEL_VALUE, true);
    }
}
