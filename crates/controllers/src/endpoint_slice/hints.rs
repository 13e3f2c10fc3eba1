//! For whom each endpoint is meant: the hints that proxies go by.
//!
//! Two ways lead there. `spec.trafficDistribution` keeps traffic in the zone or on the node of each endpoint. The
//! annotation of the topology mode, which counts before it, gives each zone as many endpoints as its nodes have of all
//! CPUs, and stays off where a zone would be asked for a fifth more than its share.
//! Source: `k8s.io/endpointslice/{trafficdist,topologycache}`, KEP-2433, KEP-3015, KEP-4444.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::EventType;
use controller::metadata::{annotation, label};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForNode, ForZone};
use machinery::quantity::Quantity;

use super::Wanted;

const ZONE: &str = "topology.kubernetes.io/zone";
const MODE: &str = "service.kubernetes.io/topology-mode";
const MODE_OF_OLD: &str = "service.kubernetes.io/topology-aware-hints";
/// Nodes whose CPUs are not for Pods of users.
const NOT_COUNTED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
/// A zone has enough where its endpoints times this over that are its share: an overload of a fifth.
const OVERLOAD: (i128, i128) = (6, 5);

/// Millis of CPU by zone, where they are known of all nodes that are ready and there are two zones at least.
pub type Shares = Option<BTreeMap<String, i128>>;

/// What nodes have.
pub(super) fn shares(nodes: &[Arc<Node>]) -> Shares {
    let mut shares: BTreeMap<String, i128> = BTreeMap::new();
    for node in nodes.iter().filter(|node| is_counted(node) && is_ready(node)) {
        let zone = label(&node.metadata, ZONE).filter(|zone| !zone.is_empty())?;
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let cpu = allocatable.and_then(|all| all.get("cpu")?.0.parse::<Quantity>().ok())?;
        let milli = Some(i128::from(cpu.milli_value())).filter(|milli| *milli > 0)?;
        *shares.entry(zone.to_owned()).or_default() += milli;
    }
    Some(shares).filter(|shares| shares.len() > 1)
}

fn is_counted(node: &Node) -> bool {
    NOT_COUNTED.iter().all(|role| label(&node.metadata, role).is_none())
}

/// Whether the node's Ready condition is true.
pub(super) fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|one| one.type_ == "Ready").is_some_and(|ready| ready.status == "True")
}

/// Whether zones are to have their shares of the Service's endpoints.
pub(super) fn wants_shares(service: &Service) -> bool {
    let mode = annotation(&service.metadata, MODE_OF_OLD).or_else(|| annotation(&service.metadata, MODE));
    matches!(mode, Some("Auto" | "auto"))
}

/// What is told of the Service.
pub(super) type Told = (EventType, &'static str, String);

/// Sets the hints of all endpoints of one address type. Returns whether zones have their shares now, as they did
/// before if `had_shares`.
pub(super) fn hint(
    service: &Service,
    shares: &Shares,
    had_shares: bool,
    family: &str,
    wanted: &mut [Wanted],
) -> (bool, Option<Told>) {
    if wants_shares(service) {
        return match share_out(shares, wanted) {
            Ok(()) => {
                let message = format!("Topology Aware Hints has been enabled, addressType: {family}");
                let told = (EventType::Normal, "TopologyAwareHintsEnabled", message);
                (true, (!had_shares).then_some(told))
            }
            Err(why) => {
                endpoints(wanted).for_each(|endpoint| endpoint.hints = None);
                (false, Some(disabled(&format!("{why}, addressType: {family}"))))
            }
        };
    }
    let distribution = service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref());
    for endpoint in endpoints(wanted) {
        endpoint.hints = distribution.filter(|_| is_usable(endpoint)).and_then(|how| close(how, endpoint));
    }
    let message = format!("Topology Aware Hints has been disabled, addressType: {family}");
    (false, had_shares.then(|| disabled(&message)))
}

fn disabled(message: &str) -> Told {
    (EventType::Warning, "TopologyAwareHintsDisabled", message.to_owned())
}

fn endpoints(wanted: &mut [Wanted]) -> impl Iterator<Item = &mut Endpoint> {
    wanted.iter_mut().flat_map(|wanted| &mut wanted.endpoints)
}

fn is_usable(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
}

/// For whom an endpoint is under `spec.trafficDistribution`.
fn close(how: &str, endpoint: &Endpoint) -> Option<EndpointHints> {
    let for_nodes = match how {
        "PreferClose" | "PreferSameZone" => None,
        "PreferSameNode" => endpoint.node_name.as_ref().map(|name| vec![ForNode { name: name.clone() }]),
        _ => return None,
    };
    let for_zones = endpoint.zone.as_ref().map(|name| vec![ForZone { name: name.clone() }]);
    (for_nodes.is_some() || for_zones.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}

fn for_zone(zone: &str) -> Option<EndpointHints> {
    Some(EndpointHints {
        for_zones: Some(vec![ForZone { name: zone.to_owned() }]),
        ..EndpointHints::default()
    })
}

/// How many endpoints a zone may have. Everything is counted in parts of an endpoint, of which there are as many in one
/// as there are millis of CPU.
#[derive(Debug)]
struct Allocation {
    /// In whole endpoints.
    minimum: i128,
    /// In whole endpoints.
    maximum: i128,
    /// In parts.
    desired: i128,
}

/// Why endpoints have no hints. The Service's event says so, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum NoHints {
    #[error("One or more endpoints do not have a zone specified")]
    NoZone,
    #[error("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")]
    Nodes,
    #[error("Insufficient number of endpoints ({count} endpoints, {zones} zones)")]
    TooFew { count: usize, zones: usize },
    #[error(
        "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
         ({count} endpoints, {zones} zones)"
    )]
    Overload { count: usize, zones: usize },
}

/// Gives each zone its share of the endpoints.
///
/// # Errors
/// Why it cannot be done.
fn share_out(shares: &Shares, wanted: &mut [Wanted]) -> Result<(), NoHints> {
    let count = wanted.iter().flat_map(|wanted| &wanted.endpoints).filter(|one| is_usable(one)).count();
    let (allocations, parts) = allocations(shares, count)?;
    let mut hinted = BTreeMap::new();
    let mut open: Vec<&mut Wanted> = Vec::new();
    for wanted in wanted {
        match keep(wanted, &hinted, &allocations) {
            Some(kept) => {
                kept.into_iter().for_each(|(zone, count)| *hinted.entry(zone).or_default() += count)
            }
            None => open.push(wanted),
        }
    }
    let mut free: Vec<&mut Endpoint> =
        open.into_iter().flat_map(|wanted| &mut wanted.endpoints).filter(|one| is_usable(one)).collect();
    for endpoint in &mut free {
        let zone = endpoint.zone.clone().filter(|zone| !zone.is_empty());
        let zone = zone.ok_or(NoHints::NoZone)?;
        endpoint.hints = for_zone(&zone);
        *hinted.entry(zone).or_default() += 1;
    }
    let (mut giving, mut receiving) = transfers(&allocations, &hinted, parts);
    for endpoint in free {
        let Some(left) = endpoint.zone.as_ref().and_then(|zone| giving.get_mut(zone)) else { continue };
        let Some((zone, missing)) = receiving.iter_mut().find(|(_, missing)| **missing > 0) else { break };
        if *left > 0 {
            *left -= 1;
            *missing -= 1;
            endpoint.hints = for_zone(zone);
        }
    }
    Ok(())
}

type Allocations = BTreeMap<String, Allocation>;
/// Whole endpoints by zone.
type Counts = BTreeMap<String, i128>;

/// What each zone may have of `count` endpoints, and how many parts an endpoint has.
fn allocations(shares: &Shares, count: usize) -> Result<(Allocations, i128), NoHints> {
    let shares = shares.as_ref().ok_or(NoHints::Nodes)?;
    let zones = shares.len();
    if zones > count {
        return Err(NoHints::TooFew { count, zones });
    }
    let parts: i128 = shares.values().sum();
    let all = i128::try_from(count).unwrap_or(i128::MAX);
    let of_share = |share: i128| {
        let desired = share.saturating_mul(all);
        let (over, under) = OVERLOAD;
        let enough = parts.saturating_mul(over);
        let minimum = desired.saturating_mul(under).saturating_add(enough - 1) / enough;
        Allocation { minimum, maximum: 0, desired: desired.max(minimum.saturating_mul(parts)) }
    };
    let mut allocations: Allocations =
        shares.iter().map(|(zone, share)| (zone.clone(), of_share(*share))).collect();
    let needed: i128 = allocations.values().map(|one| one.minimum).sum();
    if needed > all {
        return Err(NoHints::Overload { count, zones });
    }
    allocations.values_mut().for_each(|one| one.maximum = one.minimum + all - needed);
    Ok((allocations, parts))
}

/// Takes over the hints of a slice that does not change otherwise, and counts them, if all have some and no zone has
/// more with them than it may.
fn keep(wanted: &mut Wanted, hinted: &Counts, allocations: &Allocations) -> Option<Counts> {
    let old = wanted.slice.clone().filter(|_| wanted.has_its_endpoints())?;
    let mut counts = Counts::new();
    for endpoint in old.endpoints.iter().filter(|endpoint| is_usable(endpoint)) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_deref().filter(|zones| !zones.is_empty())?;
        for zone in zones {
            *counts.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = counts.iter().all(|(zone, count)| {
        let known = hinted.get(zone).copied().unwrap_or_default();
        allocations.get(zone).is_some_and(|allocation| known + count <= allocation.maximum)
    });
    if !fits {
        return None;
    }
    for (new, old) in wanted.endpoints.iter_mut().zip(&old.endpoints) {
        new.hints = old.hints.clone().filter(|_| is_usable(old));
    }
    Some(counts)
}

/// How many endpoints each zone gives to others, and how many it is given.
fn transfers(allocations: &Allocations, hinted: &Counts, parts: i128) -> (Counts, Counts) {
    let surplus = |zone: &String, allocation: &Allocation| {
        hinted.get(zone).copied().unwrap_or_default().saturating_mul(parts) - allocation.desired
    };
    let all = || allocations.iter().map(|(zone, allocation)| (zone.as_str(), surplus(zone, allocation)));
    let mut too_many: BTreeMap<&str, i128> = all().filter(|(_, surplus)| *surplus > 0).collect();
    let mut too_few: BTreeMap<&str, i128> =
        all().filter(|(_, surplus)| *surplus < 0).map(|(zone, surplus)| (zone, -surplus)).collect();
    let (mut giving, mut receiving) = (Counts::new(), Counts::new());
    while let (Some((giver, give)), Some((taker, take))) = (most(&mut too_many), most(&mut too_few)) {
        // A whole one on one side, and half of one on both.
        if (*give < parts && *take < parts) || 2 * *give < parts || 2 * *take < parts {
            break;
        }
        *give -= parts;
        *take -= parts;
        *giving.entry(giver.to_owned()).or_default() += 1;
        *receiving.entry(taker.to_owned()).or_default() += 1;
    }
    (giving, receiving)
}

/// The zone with the most, the first of several.
fn most<'a, 'b>(zones: &'b mut BTreeMap<&'a str, i128>) -> Option<(&'a str, &'b mut i128)> {
    let all = zones.iter_mut().map(|(zone, parts)| (*zone, parts)).filter(|(_, parts)| **parts > 0);
    all.reduce(|best, one| if *one.1 > *best.1 { one } else { best })
}

#[cfg(test)]
mod tests;
