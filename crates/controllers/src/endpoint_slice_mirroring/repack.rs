//! The subsets of Endpoints in their one true form: each port with all its addresses, ports with the same addresses together.
//!
//! An address that is not ready anywhere is not ready. Source: `pkg/api/v1/endpoints/util.go`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset};
use k8s_openapi::api::discovery::v1::EndpointPort;

/// Ports, and the addresses that have all of them.
pub(super) struct Subset {
    /// As a slice has them.
    pub(super) ports: Vec<EndpointPort>,
    /// Ready ones first; with whether they are.
    pub(super) addresses: Vec<(EndpointAddress, bool)>,
}

/// Name, number, protocol and application protocol.
type PortKey = (String, i32, String, Option<String>);
/// Address, and the uid of what it is of.
type AddressKey = (String, Option<String>);
type Addresses = BTreeMap<AddressKey, (EndpointAddress, bool)>;

pub(super) fn repack(subsets: &[EndpointSubset]) -> Vec<Subset> {
    let mut by_port: BTreeMap<Option<PortKey>, Addresses> = BTreeMap::new();
    for subset in subsets {
        for port in keys(subset) {
            let known = by_port.entry(port).or_default();
            let ready = subset.addresses.iter().flatten().map(|address| (address, true));
            let others = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
            for (address, is_ready) in ready.chain(others) {
                let uid = address.target_ref.as_ref().and_then(|target| target.uid.clone());
                let entry = known.entry((address.ip.clone(), uid));
                entry.or_insert_with(|| (address.clone(), true)).1 &= is_ready;
            }
        }
    }
    let mut groups: Vec<(Vec<EndpointPort>, Addresses)> = Vec::new();
    for (key, addresses) in by_port {
        let port = key.map(|(name, port, protocol, app_protocol)| EndpointPort {
            name: Some(name),
            port: Some(port),
            protocol: Some(protocol),
            app_protocol,
        });
        let is_same = |known: &Addresses| {
            known.len() == addresses.len()
                && known.iter().zip(&addresses).all(|((a, (_, is)), (b, (_, shall)))| a == b && is == shall)
        };
        match groups.iter_mut().find(|(ports, known)| port.is_some() && !ports.is_empty() && is_same(known)) {
            Some((ports, _)) => ports.extend(port),
            None => groups.push((port.into_iter().collect(), addresses)),
        }
    }
    let groups = groups.into_iter().filter(|(_, addresses)| !addresses.is_empty());
    groups
        .map(|(ports, addresses)| {
            let mut addresses: Vec<_> = addresses.into_values().collect();
            addresses.sort_by_key(|(_, is_ready)| !is_ready);
            Subset { ports, addresses }
        })
        .collect()
}

/// The ports of a subset; one of its own kind stands for none.
fn keys(subset: &EndpointSubset) -> Vec<Option<PortKey>> {
    let ports = subset.ports.as_deref().unwrap_or_default();
    if ports.is_empty() {
        return vec![None];
    }
    let key = |port: &k8s_openapi::api::core::v1::EndpointPort| {
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        (port.name.clone().unwrap_or_default(), port.port, protocol, port.app_protocol.clone())
    };
    ports.iter().map(|port| Some(key(port))).collect()
}
