//! Watches Services, EndpointSlices and the addresses of Nodes, and keeps the kernel's table equal to what they say.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Tasks};
use controller::trace::Reporter;
use controller::{Change, Informers};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use sys::nftables::{self, Table};
use tokio::sync::watch;

use crate::service_port::Here;
use crate::stale::UdpTargets;
use crate::{Config, Nodes, Rendered, prepare, render};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Changed objects named in the trace of one commit; the others of a larger batch are not.
const SPANS_PER_COMMIT_MAX: usize = 64;

/// Starts the proxy. The receiver tells how many commits the kernel has taken: 1 and more is ready.
pub fn run(informers: &Informers, config: Config, reporter: Reporter, tasks: &Tasks) -> watch::Receiver<u64> {
    let (commits, ready) = watch::channel(0);
    let informers = informers.clone();
    tasks.spawn("proxy", async move {
        let services = informers.informer::<Service>();
        let slices = informers.informer::<EndpointSlice>();
        // Not waited for: the own Node's address is known, and Services need no others. Traffic is kept in the zone when
        // that is known.
        let own = config.node_name.clone();
        let nodes = informers.informer::<Node>();
        let mut node_changes = nodes.subscribe();
        services.synced().await;
        slices.synced().await;
        let (mut service_changes, mut slice_changes) = (services.subscribe(), slices.subscribe());
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY, 0.1);
        let mut kernel = Kernel { config: Arc::new(config), applied: None, refused: BTreeSet::new() };
        let mut changed: Vec<(u64, String)> = Vec::new();
        loop {
            let start = informers.clock().now();
            // What changes while the kernel works is in the next round.
            let known = Nodes::of(&nodes.list(), &own);
            while let Err(error) = kernel.commit(services.list(), slices.list(), known.clone()).await {
                let delay = backoff.next(informers.random());
                tracing::error!(error = %describe(&error), ?delay, "cannot program services, will try again");
                tokio::time::sleep(delay).await;
            }
            backoff.reset();
            commits.send_modify(|count| *count += 1);
            let end = informers.clock().now();
            for (revision, object) in changed.drain(..).take(SPANS_PER_COMMIT_MAX) {
                reporter.span(revision, ("proxy", "rules programmed"), &object, (start, end), "");
            }
            loop {
                tokio::select! {
                    changes = service_changes.next() => note(&mut changed, "services", &changes),
                    changes = slice_changes.next() => note(&mut changed, "endpointslices", &changes),
                    _ = node_changes.next() => {
                        if Nodes::of(&nodes.list(), &own) == known {
                            continue;
                        }
                    }
                }
                break;
            }
        }
    });
    ready
}

fn note<K>(changed: &mut Vec<(u64, String)>, resource: &str, changes: &[Change<K>]) {
    changed.extend(changes.iter().map(|change| (change.revision, format!("{resource}/{}", change.key))));
}

fn describe(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// What this process has made of the kernel's table.
struct Kernel {
    config: Arc<Config>,
    applied: Option<(Table, UdpTargets)>,
    /// Addresses that lead nowhere, which the log has been told.
    refused: BTreeSet<(String, Ipv4Addr)>,
}

impl Kernel {
    /// Renders and applies. After a failure the table is replaced whole.
    async fn commit(
        &mut self,
        services: Vec<Arc<Service>>,
        slices: Vec<Arc<EndpointSlice>>,
        nodes: Nodes,
    ) -> Result<(), sys::Error> {
        let (config, before) = (self.config.clone(), self.applied.take());
        let work = move || {
            let Rendered { table, refused } = render(&services, &slices, &nodes, &config);
            let udp = UdpTargets::of(&services, &slices, Here::new(&config.node_name, &nodes));
            if before.is_none() {
                prepare(&config)?;
            }
            nftables::apply(before.as_ref().map(|(table, _)| table), &table)?;
            before.map(|(_, udp)| udp).unwrap_or_default().flush(&udp)?;
            Ok(((table, udp), refused))
        };
        let done = tokio::task::spawn_blocking(work).await;
        let (applied, refused) =
            done.map_err(|error| sys::Error::new("render services", std::io::Error::other(error)))??;
        self.applied = Some(applied);
        for (service, ip) in refused.difference(&self.refused) {
            tracing::warn!(service, %ip, "an external address of a service belongs to the cluster and leads nowhere");
        }
        self.refused = refused;
        Ok(())
    }
}
