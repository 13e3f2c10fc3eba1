//! `/metrics`: what the kubelet has counted, with what is so at this moment.

use std::sync::atomic::Ordering;

use http::Method;

use super::{Server, summary};
use crate::metrics::Level;
use crate::pod::identity::identity;
use crate::stats::disk;

/// Paths that are counted under their own name.
const PATHS: [&str; 16] = [
    "healthz",
    "pods",
    "runningpods",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "stats",
    "configz",
    "logs",
    "debug",
    "checkpoint",
    "containerLogs",
    "exec",
    "attach",
    "portForward",
];
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

/// Method, path, kind of server, and whether the request may last. As few values as there are handlers, whatever is
/// asked for. Source: `getMetricBucket`, `getMetricMethodBucket` of upstream's `pkg/kubelet/server`.
pub(super) fn request_labels(method: &Method, path: &str) -> [&'static str; 4] {
    let mut parts = path.trim_matches('/').split('/');
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    let is_path = |known: &&&str| match second {
        Some(second) if first == "metrics" => known.split_once('/') == Some((first, second)),
        _ => **known == first,
    };
    let method = METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or("other");
    let path = PATHS.iter().find(is_path).copied().unwrap_or("other");
    let is_long = matches!(path, "exec" | "attach" | "portForward" | "containerLogs");
    [method, path, "readwrite", if is_long { "true" } else { "false" }]
}

pub(super) async fn render(server: &Server) -> String {
    let (context, metrics) = (&server.context, &server.context.metrics);
    metrics.set_counts(&summary::counts(server).await);
    metrics.set_volumes(&summary::volumes(server).await);
    let (now, config) = (context.clock.now(), &context.config);
    metrics.set_pod_certificates(&context.volumes.certificates.count(now));
    metrics.set_certificate(Level::ClientCertificate, config.client_certificate_ends, now);
    let serving = config.server.as_ref().and_then(|server| server.certificate_ends);
    metrics.set_certificate(Level::ServerCertificate, serving, now);
    if metrics.is_listening.load(Ordering::Relaxed) {
        metrics.set(Level::EventsLastSeen, &[], context.clock.now());
    }
    let (intents, records) = context.image_store.pulls.records.counts().await;
    metrics.set(Level::PullIntents, &[], intents);
    metrics.set(Level::PulledRecords, &[], records);
    let (all, by_driver) = context.resources.dra.in_use();
    metrics.clear(Level::ClaimsInUse);
    metrics.set(Level::ClaimsInUse, &["<any>"], all);
    for (driver, count) in by_driver {
        metrics.set(Level::ClaimsInUse, &[&driver], count);
    }
    if let Some((shared, by_node)) =
        context.resources.cpus.as_ref().map(crate::node_resources::cpu::CpuManager::split)
    {
        metrics.set(Level::CpusShared, &[], shared * 1000);
        metrics.set(Level::CpusExclusive, &[], by_node.iter().map(|(_, count)| count).sum::<usize>());
        for (node, count) in by_node {
            metrics.set(Level::CpusPerNode, &[&node.to_string()], count);
        }
    }
    look_at_host(server).await;
    // What the process counts as a client is in a registry of its own, since parts beside the kubelet share it.
    metrics.registry.render() + &context.informers.metrics().registry().render()
}

/// What the host has to be asked for.
async fn look_at_host(server: &Server) {
    let metrics = &server.context.metrics;
    let all: Vec<_> = summary::all(server).iter().map(|pod| identity(pod)).collect();
    let config = server.context.config.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let logs = all.into_iter().map(|(name, namespace, uid)| {
            let found = disk::logs(&config.log_dir(&namespace, &name, &uid));
            (name, namespace, uid, found)
        });
        (logs.collect::<Vec<_>>(), sys::cgroup::Cgroups::detect().map(|cgroups| cgroups.version()))
    });
    let Ok((logs, version)) = looked.await else { return };
    metrics.clear(Level::LogBytes);
    for (name, namespace, uid, found) in logs {
        for (container, size) in found {
            metrics.set(Level::LogBytes, &[&uid, &namespace, &name, &container], size.bytes);
        }
    }
    if let Ok(version) = version {
        let number = if version == sys::cgroup::Version::V1 { 1_u32 } else { 2 };
        metrics.set(Level::CgroupVersion, &[], number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_asked_for_there_are_few_series() {
        let hostile = Method::from_bytes(b"BREW").unwrap();
        for (method, path, expect) in [
            (Method::GET, "/metrics", ["GET", "metrics", "readwrite", "false"]),
            (Method::GET, "/metrics/cadvisor", ["GET", "metrics/cadvisor", "readwrite", "false"]),
            (Method::GET, "/metrics/none", ["GET", "other", "readwrite", "false"]),
            (Method::POST, "/exec/shop/web/main", ["POST", "exec", "readwrite", "true"]),
            (Method::GET, "/pods/", ["GET", "pods", "readwrite", "false"]),
            (hostile, "/1", ["other", "other", "readwrite", "false"]),
        ] {
            assert_eq!(request_labels(&method, path), expect, "{method} {path}");
        }
    }
}
