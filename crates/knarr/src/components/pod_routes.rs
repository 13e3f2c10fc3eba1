//! Routes to the Pods of other Nodes: each range of a Node lies behind its address of the same family, which must be on a
//! network of this host; or, with an overlay ([`overlay`]), behind the one address that is reached from it in any way. Made when Nodes come, taken back when they go and
//! by `knarr reset`. What cannot be made is tried again, and told: on the Node ([`availability`]), by an event, and once in
//! the log.
//!
//! Source: flannel's `host-gw`, kubenet.

mod availability;
mod end;
mod losses;
mod overlay;
mod vxlan;
mod wireguard;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use auth::pki;
use base::Backoff;
use controller::record::{self, Recorder};
use controller::{EventType, Informers};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use machinery::net::{Cidr, Cidrs, Family};
use serde::{Deserialize, Serialize};
use sys::netlink::{NewRoute, Route};

use crate::layout::Layout;
pub(super) use availability::PodNetwork;
use end::Made;
pub(crate) use losses::missing;
use losses::{Losses, tell_of_loss};
pub(super) use overlay::{Overlay, pod_mtu};

/// One route, as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PodRoute {
    pub(crate) destination: (IpAddr, u8),
    pub(crate) gateway: IpAddr,
}

/// A route, and the first of the ranges of the Node that it leads to, by which an overlay knows the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    route: PodRoute,
    node: (IpAddr, u8),
}

/// Which of a Node's addresses its ranges are behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gateways {
    /// Of a range's family.
    Own,
    /// Of this family, for all ranges: an overlay has one outside.
    Outer(Family),
}

/// How soon is tried again what could not be made or told, in the first place and at last.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Whose routes, and where they are told.
pub(super) struct Follower {
    pub(super) own_name: String,
    pub(super) cluster: Cidrs,
    pub(super) layout: Layout,
    pub(super) network: PodNetwork,
    /// What packets go through, if it is no plain routes.
    pub(super) overlay: Option<Overlay>,
    /// All Nodes.
    pub(super) informers: Informers,
    /// The kubelet's, who may write to its own Node.
    pub(super) kubelet: Informers,
}

/// Routes that could not be made: why, by the address that they lead to.
type Failures = BTreeMap<IpAddr, String>;

impl Follower {
    /// Follows the Nodes for ever.
    pub(super) async fn follow(self) {
        let nodes = self.informers.informer::<Node>();
        let mut changes = nodes.subscribe();
        nodes.synced().await;
        let gateways = self.overlay.map_or(Gateways::Own, |overlay| Gateways::Outer(overlay.family()));
        let recorder = self.kubelet.recorder_on("route_controller", &self.own_name);
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.2);
        let (mut made, mut told) = (None, Failures::new());
        let mut losses = Losses::new();
        let mut were_lost = false;
        loop {
            let nodes = nodes.list();
            let wanted = wanted(&self.own_name, self.cluster, gateways, &nodes);
            let mut now = Made::default();
            // What is behind an overlay is looked at whenever there is news: somebody may have changed it.
            if made.as_ref() != Some(&wanted) || self.overlay.is_some() {
                now = self.make(&wanted, &nodes).await;
                made = now.failures.is_empty().then_some(wanted);
            }
            let failures = now.failures;
            if std::mem::take(&mut were_lost) && failures.is_empty() {
                tell_of_loss(&recorder, &self.own_name);
            }
            if told != failures {
                self.tell(&recorder, &failures);
                told.clone_from(&failures);
            }
            let is_shown = self.show(&nodes, now.public_key).await;
            let is_written = self.write(&nodes, failures.into_keys().collect()).await;
            let again_in = if made.is_some() && is_written && is_shown {
                backoff.reset();
                now.again_in
            } else {
                Some(backoff.next(self.informers.random()))
            };
            tokio::select! {
                _ = changes.next() => {}
                () = tokio::time::sleep(again_in.unwrap_or_default()), if again_in.is_some() => {}
                // An overlay that cannot be made changes links each time that it is tried.
                () = losses.next(&self.layout, self.informers.random()), if made.is_some() || self.overlay.is_none() => {
                    were_lost |= made.take().is_some();
                }
            }
        }
    }

    async fn make(&self, wanted: &[Way], nodes: &[Arc<Node>]) -> Made {
        let keys = self.overlay.map(|overlay| overlay.keys(&self.own_name, nodes)).unwrap_or_default();
        let (layout, routes, overlay) = (self.layout.clone(), wanted.to_vec(), self.overlay);
        let now = self.informers.clock().now();
        let make = move || match overlay {
            Some(overlay) => overlay.apply(&layout, &routes, &keys, now),
            None => {
                overlay::remove(&layout)?;
                let routes: Vec<PodRoute> = routes.iter().map(|way| way.route).collect();
                Ok(Made { failures: apply(&layout, &routes, None)?, ..Made::default() })
            }
        };
        let error = match tokio::task::spawn_blocking(make).await {
            Ok(Ok(made)) => return made,
            Ok(Err(error)) => format!("{error:#}"),
            Err(error) => error.to_string(),
        };
        let failures = wanted.iter().map(|way| (way.route.gateway, error.clone())).collect();
        Made { failures, ..Made::default() }
    }

    /// Says whether the Node's object has what others have to know, if there is anything.
    async fn show(&self, nodes: &[Arc<Node>], public_key: Option<String>) -> bool {
        let Some(key) = public_key else { return true };
        let own = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(&self.own_name));
        let annotations = own.and_then(|own| own.metadata.annotations.as_ref());
        if annotations.and_then(|all| all.get(wireguard::PUBLIC_KEY)) == Some(&key) {
            return true;
        }
        let patch = serde_json::json!({ "metadata": { "annotations": { wireguard::PUBLIC_KEY: key } } });
        let api: Api<Node> = Api::all(self.kubelet.client().clone());
        let patched = api.patch(&self.own_name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        if let Err(error) = &patched {
            tracing::debug!(%error, "the Node's key was not shown");
        }
        patched.is_ok()
    }

    fn tell(&self, recorder: &Recorder, failures: &Failures) {
        if failures.is_empty() {
            return tracing::info!("the Pods of all Nodes are reached");
        }
        let whose = failures.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let causes = failures.values().cloned().collect::<BTreeSet<_>>();
        let error = causes.into_iter().collect::<Vec<_>>().join("; ");
        tracing::warn!(nodes = whose, error, "no route to the Pods of other Nodes; it is tried again");
        let message = format!("Could not create routes to the Pods of the Nodes at {whose}: {error}");
        recorder.event(record::node(&self.own_name), EventType::Warning, "FailedToCreateRoute", message);
    }

    /// Says whether the Node has been told what there was to tell.
    async fn write(&self, nodes: &[Arc<Node>], missing: BTreeSet<IpAddr>) -> bool {
        let now = self.informers.clock().now();
        let own = self.own_name.as_str();
        let Some(condition) = availability::condition(self.network, own, nodes, &missing, now) else {
            return true;
        };
        let patch = Patch::Strategic(serde_json::json!({ "status": { "conditions": [condition] } }));
        let api: Api<Node> = Api::all(self.kubelet.client().clone());
        let written = api.patch_status(own, &PatchParams::default(), &patch).await;
        if let Err(error) = &written {
            tracing::debug!(%error, "the Node was not told of its network");
        }
        written.is_ok()
    }
}

/// What is behind which address. Only ranges of the cluster are believed, and addresses that a host may have: one of the
/// cluster's Pods would lead packets in a circle.
fn wanted(own_name: &str, cluster: Cidrs, gateways: Gateways, nodes: &[Arc<Node>]) -> Vec<Way> {
    let is_inside = |cidr: &Cidr| {
        cluster.of(cidr.family()).is_some_and(|all| cidr.bits() > all.bits() && all.covers(*cidr))
    };
    let others = nodes.iter().filter(|node| node.metadata.name.as_deref() != Some(own_name));
    // A range belongs to the first Node that has it.
    let mut routes = BTreeMap::new();
    for node in others {
        let ranges: Vec<Cidr> = ranges(node).filter(is_inside).collect();
        let Some(first) = ranges.first() else { continue };
        for range in &ranges {
            let family = match gateways {
                Gateways::Own => range.family(),
                Gateways::Outer(family) => family,
            };
            let gateway = internal_ips(node).find(|ip| Family::of(*ip) == family);
            let Some(gateway) = gateway.filter(|ip| is_hosts(*ip) && !cluster.contains(*ip)) else {
                continue;
            };
            let parts = |cidr: &Cidr| (cidr.address(), cidr.bits());
            routes.entry(parts(range)).or_insert((gateway, parts(first)));
        }
    }
    let way = |(destination, (gateway, node))| Way { route: PodRoute { destination, gateway }, node };
    routes.into_iter().map(way).collect()
}

/// A Node's own, the main one first.
fn ranges(node: &Node) -> impl Iterator<Item = Cidr> {
    let spec = node.spec.iter();
    let all = spec.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    let mut known = BTreeSet::new();
    all.filter_map(|text| Cidr::legacy(text)).map(Cidr::network).filter(move |cidr| known.insert(*cidr))
}

fn is_hosts(ip: IpAddr) -> bool {
    let is_special = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        // One of a link is another Node's on another link.
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_special)
}

fn internal_ips(node: &Node) -> impl Iterator<Item = IpAddr> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok())
}

/// Makes what is wanted, on one link if that is given, and takes back what was made before and is not wanted. The file
/// knows of both in between.
fn apply(layout: &Layout, wanted: &[PodRoute], link: Option<u32>) -> Result<Failures> {
    let before = read(layout)?;
    let is_same = before == wanted;
    let stale: Vec<PodRoute> = before.into_iter().filter(|route| !wanted.contains(route)).collect();
    if !is_same {
        keep(layout, &[wanted, &stale].concat())?;
    }
    let mut table = Route::open()?;
    for route in &stale {
        table.delete_route(&request(route))?;
    }
    let mut failures = Failures::new();
    for route in wanted {
        if let Err(error) = table.add_route(&NewRoute { link, on_link: link.is_some(), ..request(route) }) {
            failures.insert(route.gateway, error.to_string());
        }
    }
    if !is_same {
        keep(layout, wanted)?;
    }
    Ok(failures)
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
    overlay::remove(layout)
}

fn request(route: &PodRoute) -> NewRoute {
    NewRoute { destination: Some(route.destination), gateway: Some(route.gateway), ..NewRoute::default() }
}

/// What the Node in this folder wants to have.
pub(crate) fn read(layout: &Layout) -> Result<Vec<PodRoute>> {
    let path = layout.pod_routes();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
}

fn keep(layout: &Layout, routes: &[PodRoute]) -> Result<()> {
    Ok(pki::write_file(&layout.pod_routes(), &serde_json::to_vec(routes)?, 0o600)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "10.42.0.0/16";
    const V6: &str = "fd42::/56";
    const BOTH: &str = "10.42.0.0/16,fd42::/56";

    /// Ranges and addresses with commas between them.
    fn node(name: &str, cidrs: &str, ips: &str) -> Arc<Node> {
        let addresses = ips.split(',').map(|ip| serde_json::json!({"type": "InternalIP", "address": ip}));
        let hostname = serde_json::json!({"type": "Hostname", "address": name});
        let cidrs: Vec<&str> = cidrs.split(',').collect();
        let node = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
            "status": {"addresses": std::iter::once(hostname).chain(addresses).collect::<Vec<_>>()},
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    /// Each route, and the range that the Node is known by if that is another.
    fn routes(cluster: &str, gateways: Gateways, nodes: &[Arc<Node>]) -> Vec<String> {
        let text = |(ip, bits): (IpAddr, u8)| format!("{ip}/{bits}");
        let way = |way: &Way| {
            let known = if way.node == way.route.destination {
                String::new()
            } else {
                format!(" of {}", text(way.node))
            };
            format!("{} via {}{known}", text(way.route.destination), way.route.gateway)
        };
        wanted("a", cluster.parse().unwrap(), gateways, nodes).iter().map(way).collect()
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
            node("h", "10.42.8.0/24", "10.42.9.1"),
            node("i", "10.42.9.0/24", "224.0.0.1"),
            node("j", "10.42.10.0/24", "127.0.0.1"),
            node("k", "10.42.11.0/24", "0.0.0.0"),
            node("l", "10.42.12.0/24", "255.255.255.255"),
            node("m", "fd42::/64", "192.0.2.18"),
        ];
        assert_eq!(routes(V4, Gateways::Own, &nodes), ["10.42.1.0/24 via 192.0.2.12"]);
    }

    #[test]
    fn ranges_of_ipv6_are_behind_addresses_of_ipv6() {
        let nodes = [
            node("a", "fd42::/64", "2001:db8::11"),
            node("b", "fd42:0:0:1::/64", "2001:db8::12"),
            node("c", "fd42:0:0:2::/64", "192.0.2.13,2001:db8::13"),
            node("d", "fd42:0:0:3::/64", "192.0.2.14"),
            node("e", "fd42:0:0:4::/64", "fe80::1"),
            node("f", "fd42:0:0:5::/64", "::1"),
            node("g", "fd42:0:0:6::/64", "fd42::9"),
            node("h", "fd42:0:0:7::/64", "ff02::1"),
            node("i", "fd42:0:0:8::/64", "::ffff:192.0.2.18"),
            node("j", "fd43::/64", "2001:db8::20"),
            node("k", "fd42::/56", "2001:db8::21"),
            node("l", "10.42.1.0/24", "2001:db8::22"),
        ];
        let expect = ["fd42:0:0:1::/64 via 2001:db8::12", "fd42:0:0:2::/64 via 2001:db8::13"];
        assert_eq!(routes(V6, Gateways::Own, &nodes), expect);
    }

    #[test]
    fn nodes_of_both_families_have_a_route_of_each_and_an_overlay_has_one_outside() {
        let nodes = [
            node("a", "10.42.0.0/24,fd42::/64", "192.0.2.11,2001:db8::11"),
            node("b", "10.42.1.0/24,fd42:0:0:1::/64", "192.0.2.12,2001:db8::12"),
            node("c", "10.42.2.0/24,fd42:0:0:2::/64", "192.0.2.13"),
            node("d", "10.42.3.0/24", "192.0.2.14"),
        ];
        assert_eq!(
            routes(BOTH, Gateways::Own, &nodes),
            [
                "10.42.1.0/24 via 192.0.2.12",
                "10.42.2.0/24 via 192.0.2.13",
                "10.42.3.0/24 via 192.0.2.14",
                "fd42:0:0:1::/64 via 2001:db8::12 of 10.42.1.0/24",
            ]
        );
        assert_eq!(
            routes(BOTH, Gateways::Outer(Family::V4), &nodes),
            [
                "10.42.1.0/24 via 192.0.2.12",
                "10.42.2.0/24 via 192.0.2.13",
                "10.42.3.0/24 via 192.0.2.14",
                "fd42:0:0:1::/64 via 192.0.2.12 of 10.42.1.0/24",
                "fd42:0:0:2::/64 via 192.0.2.13 of 10.42.2.0/24",
            ]
        );
        assert_eq!(
            routes(BOTH, Gateways::Outer(Family::V6), &nodes),
            ["10.42.1.0/24 via 2001:db8::12", "fd42:0:0:1::/64 via 2001:db8::12 of 10.42.1.0/24"]
        );
    }

    #[test]
    fn the_file_of_an_earlier_version_is_read() {
        let text = r#"[{"destination":["10.42.1.0",24],"gateway":"192.0.2.12"}]"#;
        let read: Vec<PodRoute> = serde_json::from_str(text).unwrap();
        assert_eq!(
            read,
            [PodRoute { destination: ([10, 42, 1, 0].into(), 24), gateway: [192, 0, 2, 12].into() }]
        );
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
