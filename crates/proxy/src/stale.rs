//! UDP has no end of connection: flows to endpoints that are gone are forgotten, so that clients get another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::service_port::Target;
use crate::services::{Difference, Part};

const UDP: u8 = 17;

/// Where ports of UDP Services lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UdpTargets {
    places: BTreeMap<(Ipv4Addr, u16), BTreeSet<Target>>,
    node_ports: BTreeMap<u16, BTreeSet<Target>>,
}

impl UdpTargets {
    pub(crate) fn of(part: &Part) -> Self {
        let mut targets = Self::default();
        for row in part.rows.iter().filter(|row| row.port.protocol == UDP) {
            let endpoints: BTreeSet<Target> = row.port.all_targets().copied().collect();
            for ip in row.leads.cluster_ips.iter().chain(row.leads.outside_ips()) {
                targets.places.insert((*ip, row.port.port), endpoints.clone());
            }
            if let Some(port) = row.leads.node_port {
                targets.node_ports.insert(port, endpoints);
            }
        }
        targets
    }

    fn at(&self, place: (Ipv4Addr, u16)) -> Option<&BTreeSet<Target>> {
        self.places.get(&place).or_else(|| self.node_ports.get(&place.1))
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

    fn is_empty(&self) -> bool {
        self.places.is_empty() && self.node_ports.is_empty()
    }
}

/// Forgets the flows that a change makes stale. How many there were.
pub(crate) fn flush(difference: &Difference) -> sys::Result<usize> {
    let (before, after) = (UdpTargets::of(&difference.before), UdpTargets::of(&difference.after));
    if before == after || (before.is_empty() && after.is_empty()) {
        return Ok(0);
    }
    sys::netlink::flush_udp_flows(|flow| before.is_stale(&after, flow.destination, flow.answering))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_to_endpoints_that_are_gone_and_to_services_that_came_up_are_stale() {
        let ip = |last| Ipv4Addr::new(10, 0, 0, last);
        let targets = |places: &[(u8, &[u8])], node_port: &[u8]| UdpTargets {
            places: places
                .iter()
                .map(|(place, to)| ((ip(*place), 53), to.iter().map(|to| (ip(*to), 53)).collect()))
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
            assert_eq!(before.is_stale(&after, destination, answering), stale, "{name}");
        }
    }
}
