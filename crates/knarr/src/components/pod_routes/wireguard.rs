//! The overlay by WireGuard in the kernel: packets for another Node's Pods travel encrypted, and come from whom they say.
//!
//! A Node's private key is made here, kept in a file for root alone, and replaced by another when its days are over. Its public
//! key is on the Node's object, where the Node alone may write it. A link has one key: until the others have heard of a new
//! one, a moment later, there is no way to this Node. A key that two Nodes show is the elder's. To a Node without a key nothing
//! is sent, and never in the clear: its route leads to the link, which has nobody for it.
//!
//! Source: flannel's `wireguard`, whose port is the default.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use auth::pki;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use machinery::net::Family;
use serde::{Deserialize, Serialize};
use sys::netlink::Route;
use sys::netlink::wireguard::{Change, Device, Key, Peer, Wireguard};

use super::end::{End, Made, below, header_bytes};
use super::{Way, internal_ips};
use crate::layout::Layout;

/// What a packet's journey from an address adds: the outer headers of IP and UDP, and WireGuard's own with its seal.
pub(super) fn overhead_bytes(node_ip: IpAddr) -> u32 {
    header_bytes(node_ip) + 8 + 32
}

/// A Node's public key, on its object.
pub(super) const PUBLIC_KEY: &str = "network.knarr.io/wireguard-public-key";
/// Ways through translators of addresses are kept open.
const KEEPALIVE_SECONDS: u16 = 25;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Whose key is which, by the addresses of the Nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    known: BTreeMap<IpAddr, Key>,
    /// Nodes that are Ready without one that counts, and why.
    without: BTreeMap<IpAddr, &'static str>,
}

impl Keys {
    /// What other Nodes' objects say, by their addresses of this family.
    pub(super) fn of(own_name: &str, family: Family, nodes: &[Arc<Node>]) -> Self {
        let mut by_age: Vec<&Arc<Node>> = nodes.iter().collect();
        let age = |node: &Node| (node.metadata.creation_timestamp.clone(), node.metadata.name.clone());
        by_age.sort_by_key(|node| age(node));
        let (mut keys, mut taken) = (Self::default(), BTreeSet::new());
        for node in by_age {
            let shown = node.metadata.annotations.as_ref().and_then(|all| all.get(PUBLIC_KEY));
            let key = shown.map(|text| parse(text));
            let is_first = key.flatten().is_none_or(|key| taken.insert(key));
            let mut of_family = internal_ips(node).filter(|ip| Family::of(*ip) == family);
            let Some(ip) = of_family.next().filter(|_| node.metadata.name.as_deref() != Some(own_name))
            else {
                continue;
            };
            match key {
                Some(Some(key)) if is_first => drop(keys.known.insert(ip, key)),
                Some(Some(_)) => drop(keys.without.insert(ip, "its WireGuard key is another Node's")),
                Some(None) => drop(keys.without.insert(ip, "its WireGuard key is none")),
                None if is_ready(node) => drop(keys.without.insert(ip, "it has no WireGuard key")),
                None => {}
            }
        }
        keys
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// All zeroes is no key: the kernel says so of a link that has none.
fn parse(text: &str) -> Option<Key> {
    let key: Key = STANDARD.decode(text).ok()?.try_into().ok()?;
    (key != [0; 32]).then_some(key)
}

/// The file of a private key.
#[derive(Serialize, Deserialize)]
struct Kept {
    private_key: String,
    made_at: Timestamp,
}

impl Kept {
    fn new(now: Timestamp) -> Result<Self> {
        let mut key: Key = [0; 32];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut key).ok().context("make a WireGuard key")?;
        Ok(Self { private_key: STANDARD.encode(key), made_at: now })
    }

    /// Seconds until another one is to be made; `None` for never.
    fn seconds_left(&self, days: u32, now: Timestamp) -> Option<i64> {
        let age = now.as_second() - self.made_at.as_second();
        // One of the future was made by a clock that was wrong.
        (days > 0).then(|| i64::from(days) * DAY_SECONDS - age.max(0))
    }
}

/// The key of this Node and how long it is good: what is kept, or a new one.
fn own_key(layout: &Layout, days: u32, now: Timestamp) -> Result<(Key, Option<Duration>)> {
    let file = layout.agent().join("wireguard.json");
    let kept: Option<Kept> = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let good = kept.filter(|kept| {
        kept.seconds_left(days, now).is_none_or(|left| left > 0) && parse(&kept.private_key).is_some()
    });
    let kept = match good {
        Some(kept) => kept,
        None => {
            let new = Kept::new(now)?;
            pki::write_file(&file, &serde_json::to_vec(&new)?, 0o600)?;
            new
        }
    };
    let left = kept.seconds_left(days, now).and_then(|left| u64::try_from(left).ok());
    Ok((parse(&kept.private_key).context("read the WireGuard key")?, left.map(Duration::from_secs)))
}

/// What to change so that each range is behind the Node with its key, and nobody else is heard.
fn plan(wanted: &[Way], keys: &Keys, port: u16, present: &Device) -> Vec<Change> {
    let mut peers: BTreeMap<Key, Peer> = BTreeMap::new();
    for route in wanted.iter().map(|way| way.route) {
        let Some(key) = keys.known.get(&route.gateway) else { continue };
        let new = || Peer {
            endpoint: SocketAddr::new(route.gateway, port),
            networks: BTreeSet::new(),
            keepalive_seconds: KEEPALIVE_SECONDS,
        };
        peers.entry(*key).or_insert_with(new).networks.insert(route.destination);
    }
    // First away with those that are not wanted: a network belongs to whoever was given it last.
    let gone = present.peers.keys().filter(|key| !peers.contains_key(*key)).map(|key| Change::Remove(*key));
    let is_same = |key: &Key, peer: &Peer| {
        let has = present.peers.get(key).and_then(Option::as_ref);
        // Where a peer is heard from is where it is, whatever its Node says.
        has.is_some_and(|has| Peer { endpoint: peer.endpoint, ..has.clone() } == *peer)
    };
    let changed = peers.iter().filter(|(key, peer)| !is_same(key, peer));
    gone.chain(changed.map(|(key, peer)| Change::Set(*key, peer.clone()))).collect()
}

fn link_name(layout: &Layout) -> String {
    format!("kw-{}", layout.cluster_id())
}

/// Makes the link if need be, and brings its key, its peers and the routes over it up to date.
///
/// # Errors
/// The kernel refuses, or has no WireGuard.
pub(super) fn apply(
    layout: &Layout,
    end: &End,
    days: u32,
    wanted: &[Way],
    keys: &Keys,
    now: Timestamp,
) -> Result<Made> {
    let (mut route, mut wireguard) = (Route::open()?, Wireguard::open()?);
    let name = link_name(layout);
    let mtu = below(&mut route, end.node_ip)?.mtu.saturating_sub(overhead_bytes(end.node_ip));
    if route.link(&name)?.is_none() {
        route.create_wireguard(&name, mtu)?;
    }
    let (key, again_in) = own_key(layout, days, now)?;
    wireguard.set_key(&name, &key, end.port)?;
    let link = route.link(&name)?.context("find the link that was made")?;
    end.set_up(&mut route, &link, mtu)?;
    let device = wireguard.device(&name)?;
    wireguard.change(&name, &plan(wanted, keys, end.port, &device))?;
    let mut failures = end.route(layout, link.index, wanted)?;
    let gateways: BTreeSet<IpAddr> = wanted.iter().map(|way| way.route.gateway).collect();
    let without = keys.without.iter().filter(|(ip, _)| gateways.contains(*ip));
    failures.extend(without.map(|(ip, why)| (*ip, (*why).to_owned())));
    Ok(Made { failures, public_key: Some(STANDARD.encode(device.public_key)), again_in })
}

/// Takes back the link, and with it all that is on it. No error if there is none.
///
/// # Errors
/// The kernel refuses.
pub(super) fn remove(layout: &Layout) -> Result<()> {
    Ok(Route::open()?.delete_link(&link_name(layout))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::PodRoute;
    use super::*;

    const PORT: u16 = 51_820;

    fn route(range: u8, node: u8) -> Way {
        let destination = ([10, 42, range, 0].into(), 24);
        Way { route: PodRoute { destination, gateway: [192, 0, 2, node].into() }, node: destination }
    }

    fn peer(node: u8, ranges: &[u8]) -> Peer {
        Peer {
            endpoint: SocketAddr::new([192, 0, 2, node].into(), PORT),
            networks: ranges.iter().map(|range| ([10, 42, *range, 0].into(), 24)).collect(),
            keepalive_seconds: KEEPALIVE_SECONDS,
        }
    }

    fn keys(known: &[(u8, u8)]) -> Keys {
        let known = known.iter().map(|(node, key)| ([192, 0, 2, *node].into(), [*key; 32])).collect();
        Keys { known, ..Keys::default() }
    }

    /// What is the case, the routes and keys that are known, what the link has, and what to change.
    type Row<'a> = (&'a str, &'a [Way], &'a Keys, Device, Vec<Change>);

    #[test]
    fn a_link_has_the_peers_that_have_keys_and_no_others() {
        let (b, c) = (route(1, 12), route(2, 13));
        let known = keys(&[(12, 1), (13, 2)]);
        let set = |key: u8, peer: Peer| Change::Set([key; 32], peer);
        let remove = |key: u8| Change::Remove([key; 32]);
        let device = |peers: &[(u8, Option<Peer>)]| Device {
            peers: peers.iter().map(|(key, peer)| ([*key; 32], peer.clone())).collect(),
            ..Device::default()
        };
        let heard_from_elsewhere = Peer { endpoint: "198.51.100.9:4711".parse().unwrap(), ..peer(12, &[1]) };
        let quiet = Peer { keepalive_seconds: 0, ..peer(12, &[1]) };
        let v6 = PodRoute { destination: ("fd42:0:0:1::".parse().unwrap(), 64), ..b.route };
        let both = &[b, Way { route: v6, ..b }];
        let mut peer_of_both = peer(12, &[1]);
        peer_of_both.networks.insert(v6.destination);
        let rows: [Row<'_>; 11] = [
            ("a Node of both families comes", both, &known, device(&[]), vec![set(1, peer_of_both)]),
            ("alone", &[], &known, device(&[]), vec![]),
            ("a Node comes", &[b], &known, device(&[]), vec![set(1, peer(12, &[1]))]),
            ("one without a key", &[b, c], &keys(&[(12, 1)]), device(&[]), vec![set(1, peer(12, &[1]))]),
            ("nothing is new", &[b], &known, device(&[(1, Some(peer(12, &[1])))]), vec![]),
            ("one goes", &[], &known, device(&[(1, Some(peer(12, &[1])))]), vec![remove(1)]),
            ("somebody's own", &[], &known, device(&[(9, None)]), vec![remove(9)]),
            (
                "one has a new key",
                &[b],
                &keys(&[(12, 7)]),
                device(&[(1, Some(peer(12, &[1])))]),
                vec![remove(1), set(7, peer(12, &[1]))],
            ),
            (
                "one has another range",
                &[route(5, 12)],
                &known,
                device(&[(1, Some(peer(12, &[1])))]),
                vec![set(1, peer(12, &[5]))],
            ),
            (
                "heard from behind a translator",
                &[b],
                &known,
                device(&[(1, Some(heard_from_elsewhere))]),
                vec![],
            ),
            ("not kept open", &[b], &known, device(&[(1, Some(quiet))]), vec![set(1, peer(12, &[1]))]),
        ];
        for (case, wanted, keys, present, expected) in rows {
            assert_eq!(plan(wanted, keys, PORT, &present), expected, "{case}");
        }
    }

    #[test]
    fn a_key_is_the_eldest_nodes_that_shows_it() {
        let node = |name: &str, age: u8, ip: u8, key: Option<String>, ready: &str| -> Arc<Node> {
            let annotations = key.map(|key| json!({ PUBLIC_KEY: key })).unwrap_or_default();
            let node = json!({
                "metadata": {"name": name, "annotations": annotations,
                             "creationTimestamp": format!("2026-01-01T0{age}:00:00Z")},
                "status": {"addresses": [{"type": "InternalIP", "address": format!("2001:db8::{ip}")},
                                         {"type": "InternalIP", "address": format!("192.0.2.{ip}")}],
                           "conditions": [{"type": "Ready", "status": ready}]},
            });
            Arc::new(serde_json::from_value(node).unwrap())
        };
        let key = |byte: u8| Some(STANDARD.encode([byte; 32]));
        let nodes = [
            node("thief", 5, 15, key(2), "True"),
            node("own", 1, 11, key(1), "True"),
            node("b", 2, 12, key(2), "True"),
            node("as-own", 3, 13, key(1), "True"),
            node("zeroes", 3, 14, key(0), "True"),
            node("short", 3, 16, Some("AAAA".into()), "False"),
            node("no-text", 3, 17, Some("?".repeat(44)), "True"),
            node("starting", 3, 18, None, "False"),
            node("other-network", 3, 19, None, "True"),
        ];
        let found = Keys::of("own", Family::V4, &nodes);
        assert_eq!(found.known, keys(&[(12, 2)]).known);
        let without: Vec<_> =
            found.without.iter().map(|(ip, why)| format!("{ip} {why}").replace("192.0.2.", "")).collect();
        let (another, none) = ("its WireGuard key is another Node's", "its WireGuard key is none");
        assert_eq!(
            without,
            [
                format!("13 {another}"),
                format!("14 {none}"),
                format!("15 {another}"),
                format!("16 {none}"),
                format!("17 {none}"),
                "19 it has no WireGuard key".to_owned(),
            ]
        );
        let found = Keys::of("own", Family::V6, &nodes);
        assert_eq!(found.known, [("2001:db8::12".parse().unwrap(), [2; 32])].into());
    }

    #[test]
    fn a_key_is_kept_until_its_days_are_over() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        std::fs::create_dir(layout.agent()).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let start = at("2026-01-01T00:00:00Z");
        let (first, left) = own_key(&layout, 30, start).unwrap();
        assert_eq!(left, Some(Duration::from_secs(30 * 86_400)));
        let file = layout.agent().join("wireguard.json");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let (same, left) = own_key(&layout, 30, at("2026-01-30T23:59:59Z")).unwrap();
        assert_eq!((same, left), (first, Some(Duration::from_secs(1))));
        assert_eq!(own_key(&layout, 0, at("2036-01-01T00:00:00Z")).unwrap(), (first, None), "for ever");
        assert_eq!(
            own_key(&layout, 30, at("2025-06-01T00:00:00Z")).unwrap().0,
            first,
            "a clock that was wrong"
        );
        let (second, _) = own_key(&layout, 30, at("2026-01-31T00:00:00Z")).unwrap();
        assert_ne!(second, first);
        std::fs::write(&file, "{").unwrap();
        assert_ne!(own_key(&layout, 30, at("2026-01-31T00:00:00Z")).unwrap().0, second, "broken");
    }
}
