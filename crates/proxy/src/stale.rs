//! Some flows have no end of their own: those to endpoints that are gone are forgotten, so that clients get another.

use std::collections::{BTreeMap, BTreeSet};

use machinery::net::Family;

use crate::service_port::{ServicePort, Target};
use crate::services::{Difference, Part};
use crate::table_family;

const UDP: u8 = 17;
const SCTP: u8 = 132;

/// Where ports of Services of one family and one such protocol lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowTargets {
    addresses: BTreeMap<Target, BTreeSet<Target>>,
    node_ports: BTreeMap<u16, BTreeSet<Target>>,
}

impl FlowTargets {
    pub(crate) fn of(part: &Part, family: Family, protocol: u8) -> Self {
        let mut targets = Self::default();
        let is_of = |port: &ServicePort| (port.family, port.protocol) == (family, protocol);
        for row in part.rows.iter().filter(|row| is_of(&row.port)) {
            let endpoints: BTreeSet<Target> = row.port.all_targets().copied().collect();
            for ip in row.leads.cluster_ips.iter().chain(row.leads.outside_ips()) {
                targets.addresses.insert((*ip, row.port.port), endpoints.clone());
            }
            if let Some(port) = row.leads.node_port {
                targets.node_ports.insert(port, endpoints);
            }
        }
        targets
    }

    fn at(&self, target: Target) -> Option<&BTreeSet<Target>> {
        self.addresses.get(&target).or_else(|| self.node_ports.get(&target.1))
    }

    /// Whether a flow to `destination`, which `answering` answers, must be forgotten now that `next` holds: its
    /// endpoint is gone, or it went nowhere and the Service has endpoints now.
    fn is_stale(&self, next: &Self, destination: Target, answering: Target) -> bool {
        let is_untranslated = destination == answering;
        match (next.at(destination), self.at(destination)) {
            (Some(now), _) if is_untranslated => !now.is_empty(),
            (Some(now), _) => !now.contains(&answering),
            (None, Some(before)) => before.contains(&answering),
            (None, None) => false,
        }
    }
}

/// Forgets the flows of a family that a change makes stale. How many there were.
pub(crate) fn flush(difference: &Difference, family: Family) -> sys::Result<usize> {
    let of = |protocol| {
        let of = |part| FlowTargets::of(part, family, protocol);
        (protocol, of(&difference.before), of(&difference.after))
    };
    let changed: Vec<_> = [UDP, SCTP].map(of).into_iter().filter(|(_, old, new)| old != new).collect();
    if changed.is_empty() {
        return Ok(0);
    }
    sys::netlink::flush_flows(table_family(family), |flow| {
        let mut of_protocol = changed.iter().filter(|(protocol, ..)| *protocol == flow.protocol);
        of_protocol.any(|(_, old, new)| old.is_stale(new, flow.destination, flow.answering))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_to_endpoints_that_are_gone_and_to_services_that_came_up_are_stale() {
        for network in ["10.0.0.", "fd42::"] {
            check(network);
        }
    }

    fn check(network: &str) {
        let ip = |last: u8| format!("{network}{last}").parse().unwrap();
        let targets = |addresses: &[(u8, &[u8])], node_port: &[u8]| FlowTargets {
            addresses: addresses
                .iter()
                .map(|(target, to)| ((ip(*target), 53), to.iter().map(|to| (ip(*to), 53)).collect()))
                .collect(),
            node_ports: [(30_053, node_port.iter().map(|to| (ip(*to), 53)).collect())].into(),
        };
        let before = targets(&[(100, &[1, 2]), (101, &[]), (102, &[1]), (103, &[1])], &[1]);
        let after = targets(&[(100, &[2]), (101, &[2]), (103, &[])], &[2]);
        for (name, destination, answering, stale) in [
            ("endpoint gone", (ip(100), 53), (ip(1), 53), true),
            ("endpoint there", (ip(100), 53), (ip(2), 53), false),
            ("another port of the address", (ip(100), 54), (ip(1), 53), false),
            ("straight to a Pod", (ip(1), 53), (ip(1), 53), false),
            ("unanswered before", (ip(101), 53), (ip(101), 53), true),
            ("unanswered still", (ip(103), 53), (ip(103), 53), false),
            ("the last endpoint gone", (ip(103), 53), (ip(1), 53), true),
            ("the Service gone", (ip(102), 53), (ip(1), 53), true),
            ("of the Service that is gone, to another", (ip(102), 53), (ip(9), 53), false),
            ("by a port of the Node", (ip(200), 30_053), (ip(1), 53), true),
            ("by a port of the Node, still", (ip(200), 30_053), (ip(2), 53), false),
            ("of nobody here", (ip(9), 53), (ip(8), 53), false),
        ] {
            assert_eq!(before.is_stale(&after, destination, answering), stale, "{network} {name}");
        }
    }
}
