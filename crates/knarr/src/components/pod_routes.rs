//! Routes to the Pods of other Nodes: each Node's range lies behind its address, which must be on a network of this
//! host. Made when Nodes come, taken back when they go and by `knarr reset`.
//!
//! Source: flannel's `host-gw`, kubenet.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result};
use auth::pki;
use controller::Informers;
use k8s_openapi::api::core::v1::Node;
use machinery::net::Cidr;
use serde::{Deserialize, Serialize};
use sys::netlink::{NewRoute, Route};

use crate::layout::Layout;

/// One route, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Kept {
    destination: (Ipv4Addr, u8),
    gateway: Ipv4Addr,
}

/// Follows the Nodes for ever.
pub(super) async fn follow(informers: Informers, own_name: String, cluster: Cidr, layout: Layout) {
    let nodes = informers.informer::<Node>();
    let mut changes = nodes.subscribe();
    nodes.synced().await;
    let mut made = None;
    loop {
        let wanted = wanted(&own_name, cluster, &nodes.list());
        if made.as_ref() != Some(&wanted) {
            let (layout, now) = (layout.clone(), wanted.clone());
            match tokio::task::spawn_blocking(move || apply(&layout, &now)).await {
                Ok(Ok(())) => made = Some(wanted),
                Ok(Err(error)) => tracing::warn!(error = format!("{error:#}"), "Pods of other Nodes"),
                Err(error) => tracing::error!(%error, "Pods of other Nodes"),
            }
        }
        changes.next().await;
    }
}

/// What is behind which address. Only ranges of the cluster are believed.
fn wanted(own_name: &str, cluster: Cidr, nodes: &[Arc<Node>]) -> Vec<Kept> {
    let is_inside = |cidr: Cidr| cidr.bits() > cluster.bits() && cluster.covers(cidr);
    let others = nodes.iter().filter(|node| node.metadata.name.as_deref() != Some(own_name));
    // A range belongs to the first Node that has it.
    let mut routes = BTreeMap::new();
    for node in others {
        let destination = node.spec.as_ref().and_then(|spec| Cidr::legacy(spec.pod_cidr.as_deref()?));
        let Some((destination, gateway)) = destination.zip(internal_ip(node)) else { continue };
        if let Some(destination) = destination.network().v4().filter(|_| is_inside(destination)) {
            routes.entry(destination).or_insert(gateway);
        }
    }
    routes.into_iter().map(|(destination, gateway)| Kept { destination, gateway }).collect()
}

fn internal_ip(node: &Node) -> Option<Ipv4Addr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()
}

/// Makes what is wanted, and takes back what was made before and is not wanted. The file knows of both in between.
fn apply(layout: &Layout, wanted: &[Kept]) -> Result<()> {
    let before = read(layout)?;
    let stale: Vec<Kept> = before.into_iter().filter(|route| !wanted.contains(route)).collect();
    keep(layout, &[wanted, &stale].concat())?;
    let mut table = Route::open()?;
    for route in &stale {
        table.delete_route(&request(route))?;
    }
    let mut failed = Vec::new();
    for route in wanted {
        if let Err(error) = table.add_route(&request(route)) {
            failed.push(format!("{error}: is {} on a network of this host?", route.gateway));
        }
    }
    keep(layout, wanted)?;
    if failed.is_empty() { Ok(()) } else { Err(anyhow::anyhow!(failed.join("; "))) }
}

/// Takes back all that were made.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn remove(layout: &Layout) -> Result<()> {
    let mut table = Route::open()?;
    for route in read(layout)? {
        table.delete_route(&request(&route))?;
    }
    Ok(())
}

fn request(route: &Kept) -> NewRoute {
    NewRoute {
        destination: Some((route.destination.0.into(), route.destination.1)),
        gateway: Some(route.gateway.into()),
        ..NewRoute::default()
    }
}

fn read(layout: &Layout) -> Result<Vec<Kept>> {
    let path = layout.pod_routes();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
}

fn keep(layout: &Layout, routes: &[Kept]) -> Result<()> {
    Ok(pki::write_file(&layout.pod_routes(), &serde_json::to_vec(routes)?, 0o600)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cidr: &str, ip: &str) -> Arc<Node> {
        let node = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"podCIDR": cidr},
            "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip}]},
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn every_other_nodes_range_is_behind_its_address() {
        let nodes = [
            node("a", "10.42.0.0/24", "192.0.2.11"),
            node("b", "10.42.1.0/24", "192.0.2.12"),
            node("c", "10.42.1.0/24", "192.0.2.13"),
            node("d", "192.0.2.0/24", "192.0.2.14"),
            node("e", "10.42.0.0/16", "192.0.2.15"),
            node("f", "10.42.7.0/24", "no address"),
            node("g", "", "192.0.2.17"),
        ];
        let found = wanted("a", "10.42.0.0/16".parse().unwrap(), &nodes);
        let b = Kept { destination: ([10, 42, 1, 0].into(), 24), gateway: [192, 0, 2, 12].into() };
        assert_eq!(found, [b]);
    }
}
