//! Which of the addresses that a cloud knows a Node by are shown.

use std::net::IpAddr;

use controller::metadata::{name, uid};
use controller::{Action, Patch};
use k8s_openapi::api::core::v1::Node;
use machinery::net::legacy_ip;
use serde_json::json;

use crate::message::addresses;
use crate::provider::{Refusal, nonsense};
use crate::v1::NodeAddress;

/// The addresses that the Node's operator has given it. Source: `AnnotationAlphaProvidedIPAddr`.
pub(super) const PROVIDED: &str = "alpha.kubernetes.io/provided-node-ip";
const HOSTNAME: &str = "Hostname";

/// Writes a Node's addresses, if they are others than it has; a cloud that says none changes nothing.
///
/// # Errors
/// The cloud does not know the address that the operator has given.
pub(super) fn patch(node: &Node, of_cloud: &[NodeAddress]) -> Result<Option<Action>, Refusal> {
    let (meta, before) = (&node.metadata, addresses(node));
    let wanted = wanted(node, &before, of_cloud)?;
    if of_cloud.is_empty() || wanted == before {
        return Ok(None);
    }
    let mut list = vec![json!({"$patch": "replace"})];
    list.extend(wanted.iter().map(|one| json!({"type": one.r#type, "address": one.address})));
    let patch = json!({"metadata": {"uid": uid(meta)}, "status": {"addresses": list}});
    Ok(Some(Action::patch_status::<Node>("", name(meta), Patch::Strategic(patch))))
}

/// Source: `updateNodeAddress`, `GetNodeAddressesFromNodeIP`.
fn wanted(
    node: &Node,
    before: &[NodeAddress],
    of_cloud: &[NodeAddress],
) -> Result<Vec<NodeAddress>, Refusal> {
    let mut all = of_cloud.to_vec();
    if !all.iter().any(|one| one.r#type == HOSTNAME) {
        // Its kubelet has said it.
        all.extend(before.iter().filter(|one| one.r#type == HOSTNAME).cloned());
    }
    let given = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PROVIDED));
    let Some(given) = given else { return Ok(all) };
    let mut first: Vec<NodeAddress> = Vec::new();
    for ip in node_ips(given)? {
        let is_it = |one: &&NodeAddress| legacy_ip(&one.address) == Some(ip);
        let found = first.len();
        first.extend(all.iter().filter(is_it).cloned());
        if first.len() == found {
            return nonsense(format!("failed to get node address from cloud provider that matches ip: {ip}"));
        }
    }
    // Of a type with an address that was given, the others are nobody's.
    let others = all.into_iter().filter(|one| !first.iter().any(|known| known.r#type == one.r#type));
    let others: Vec<NodeAddress> = others.collect();
    first.extend(others);
    Ok(first)
}

/// One address, or one of each family.
fn node_ips(text: &str) -> Result<Vec<IpAddr>, Refusal> {
    let wrong = || Refusal::nonsense(format!("failed to parse node IP {text:?}"));
    let ips: Vec<IpAddr> =
        text.split(',').map(|ip| legacy_ip(ip.trim()).ok_or_else(wrong)).collect::<Result<_, _>>()?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [one, other] if one.is_ipv4() != other.is_ipv4() => Ok(ips),
        _ => Err(wrong()),
    }
}
