//! Whether this Node is on the network of the others. Pure.
//!
//! Two Nodes that have no route to each other are both right. The younger one is the one that came to the wrong place:
//! it says `NetworkUnavailable`, and is no reason for others to say so. The eldest is always available.
//!
//! Source: `updateNetworkingCondition` of upstream's route controller, which looks from outside and sees one side only.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::internal_ips;

const TYPE: &str = "NetworkUnavailable";
const NO_ROUTE: &str = "NoRouteCreated";
const ROUTE: &str = "RouteCreated";

/// Who attaches this Node's Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodNetwork {
    /// The built-in network, which needs the routes.
    BuiltIn,
    /// The same over other networks, whatever lies between the Nodes.
    Overlay,
    /// Another one, which says for itself whether it is available.
    Foreign,
}

/// The condition that the Node `own_name` shall have, if it is not what it has. `missing` are the addresses of Nodes whose
/// Pods it has no route to.
pub(super) fn condition(
    network: PodNetwork,
    own_name: &str,
    nodes: &[Arc<Node>],
    missing: &BTreeSet<IpAddr>,
    now: Timestamp,
) -> Option<NodeCondition> {
    let own = nodes.iter().find(|node| name(node) == own_name)?;
    let has = known(own);
    let has_reason = has.and_then(|condition| condition.reason.as_deref());
    match network {
        // What we have said ourselves must not outlive our network.
        PodNetwork::Foreign if has_reason != Some(NO_ROUTE) => return None,
        // Nobody to reach, and nothing said yet.
        PodNetwork::BuiltIn | PodNetwork::Overlay if has.is_none() && nodes.len() < 2 => return None,
        _ => {}
    }
    let unreachable = match network {
        PodNetwork::BuiltIn => unreachable(own, nodes, missing, "is on no network of this host"),
        PodNetwork::Overlay => unreachable(own, nodes, missing, "is not reached from this host"),
        PodNetwork::Foreign => Vec::new(),
    };
    let (status, reason, message) = match unreachable.is_empty() {
        true => ("False", ROUTE, "RouteController created a route".to_owned()),
        false => ("True", NO_ROUTE, format!("no route to the Pods of {}", unreachable.join(", "))),
    };
    let is_same = has.is_some_and(|has| has.status == status && has.message.as_deref() == Some(&message));
    let changed_at = has.filter(|has| has.status == status).and_then(|has| has.last_transition_time.clone());
    (!is_same).then(|| NodeCondition {
        type_: TYPE.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(changed_at.unwrap_or(Time(now))),
    })
}

/// The available Nodes that were there before `own` and are not reached from it.
fn unreachable(own: &Node, nodes: &[Arc<Node>], missing: &BTreeSet<IpAddr>, why: &str) -> Vec<String> {
    let age = |node: &Node| (node.metadata.creation_timestamp.clone(), name(node).to_owned());
    let counts = |node: &&Arc<Node>| {
        age(node) < age(own) && known(node).is_none_or(|condition| condition.status != "True")
    };
    let mut found: Vec<String> = nodes
        .iter()
        .filter(counts)
        .filter_map(|node| Some((node, internal_ips(node).find(|ip| missing.contains(ip))?)))
        .map(|(node, ip)| format!("{} ({ip} {why})", name(node)))
        .collect();
    found.sort();
    found
}

fn known(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == TYPE)
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const A: [u8; 4] = [192, 0, 2, 11];
    const B: [u8; 4] = [198, 51, 100, 12];
    const C: [u8; 4] = [192, 0, 2, 13];

    /// Nodes `a`, `b` and `c`, in the order in which they came, with what they say of their network.
    fn nodes(said: [Option<(&str, &str)>; 3]) -> Vec<Arc<Node>> {
        let node = |number: usize, name: &str, ip: [u8; 4]| {
            let said = said[number];
            let said = said.map(|(status, reason)| {
                let message = if reason == ROUTE { "RouteController created a route" } else { "other" };
                json!({"type": TYPE, "status": status, "reason": reason, "message": message,
                       "lastTransitionTime": "2026-01-01T10:00:00Z"})
            });
            let node = json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T0{number}:00:00Z")},
                "status": {
                    "addresses": [{"type": "InternalIP", "address": IpAddr::from(ip).to_string()}],
                    "conditions": said.into_iter().collect::<Vec<Value>>(),
                },
            });
            Arc::new(serde_json::from_value(node).unwrap())
        };
        vec![node(0, "a", A), node(1, "b", B), node(2, "c", C)]
    }

    /// What is the case, on whose network, which Node, among whom, whom it does not reach, and what it shall say.
    type Row<'a> = (&'a str, PodNetwork, &'a str, Vec<Arc<Node>>, &'a [[u8; 4]], Option<&'a str>);

    #[test]
    fn the_younger_of_two_that_do_not_reach_each_other_is_unavailable() {
        let (well, ill) = (Some(("False", ROUTE)), Some(("True", NO_ROUTE)));
        let to_a = "True NoRouteCreated no route to the Pods of a (192.0.2.11 is on no network of this host)";
        let reached = "False RouteCreated RouteController created a route";
        let (own, foreign) = (PodNetwork::BuiltIn, PodNetwork::Foreign);
        let not_reached = to_a.replace("is on no network of", "is not reached from");
        let rows: [Row<'_>; 13] = [
            ("all reached, nothing said yet", own, "b", nodes([None; 3]), &[], Some(reached)),
            ("all reached, and said so", own, "b", nodes([well; 3]), &[], None),
            ("an elder one is not reached", own, "b", nodes([well, None, None]), &[A], Some(to_a)),
            (
                "over an overlay",
                PodNetwork::Overlay,
                "b",
                nodes([well, None, None]),
                &[A],
                Some(&not_reached),
            ),
            ("it was reached before", own, "b", nodes([well; 3]), &[A, C], Some(to_a)),
            ("a younger one is not reached", own, "a", nodes([well, None, None]), &[B], None),
            (
                "an elder one is not, that is itself unavailable",
                own,
                "c",
                nodes([well, ill, well]),
                &[B],
                None,
            ),
            (
                "an elder one is not, that says it is well",
                own,
                "c",
                nodes([well, well, well]),
                &[B],
                Some(
                    "True NoRouteCreated no route to the Pods of b (198.51.100.12 is on no network of this host)",
                ),
            ),
            ("it is reached again", own, "b", nodes([well, ill, None]), &[], Some(reached)),
            ("alone, nothing said", own, "a", nodes([None; 3])[..1].to_vec(), &[], None),
            ("no Node of its own yet", own, "d", nodes([None; 3]), &[A], None),
            ("another's network", foreign, "b", nodes([None; 3]), &[A], None),
            ("ours of before", foreign, "b", nodes([None, ill, None]), &[A], Some(reached)),
        ];
        for (case, network, own, nodes, missing, expected) in rows {
            let missing = missing.iter().map(|ip| IpAddr::from(*ip)).collect();
            let found = condition(network, own, &nodes, &missing, "2026-01-01T12:00:00Z".parse().unwrap());
            let said = found.map(|it| [it.status, it.reason.unwrap(), it.message.unwrap()].join(" "));
            assert_eq!(said.as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn a_condition_is_as_old_as_its_status() {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let at = |said, missing: &[[u8; 4]]| {
            let missing = missing.iter().map(|ip| IpAddr::from(*ip)).collect();
            let nodes = nodes([None, Some((said, NO_ROUTE)), None]);
            condition(PodNetwork::BuiltIn, "b", &nodes, &missing, now)
                .unwrap()
                .last_transition_time
                .unwrap()
                .0
        };
        assert_eq!(at("True", &[A]), "2026-01-01T10:00:00Z".parse().unwrap(), "another message");
        assert_eq!(at("True", &[]), now, "another status");
    }
}
