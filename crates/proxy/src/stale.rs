//! Some flows have no end of their own: those to endpoints that are gone are forgotten, so that clients get another.

use std::collections::{BTreeMap, BTreeSet};

use machinery::net::Family;
use sys::netlink::Flow;

use crate::service_port::{ENDLESS, ServicePort, Target};
use crate::services::{Difference, Part};
use crate::table_family;

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
            let endpoints: BTreeSet<Target> = row.port.staying.iter().copied().collect();
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

/// A change of where ports of one protocol lead.
type Change = (u8, FlowTargets, FlowTargets);

/// Forgets the flows of a family that a change makes stale. How many there were.
pub(crate) fn flush(difference: &Difference, family: Family) -> sys::Result<usize> {
    let changes = changes(difference, family);
    if changes.is_empty() {
        return Ok(0);
    }
    sys::netlink::flush_flows(table_family(family), |flow| is_stale(&changes, flow))
}

fn changes(difference: &Difference, family: Family) -> Vec<Change> {
    let of = |protocol| {
        let of = |part| FlowTargets::of(part, family, protocol);
        (protocol, of(&difference.before), of(&difference.after))
    };
    ENDLESS.map(of).into_iter().filter(|(_, old, new)| old != new).collect()
}

fn is_stale(changes: &[Change], flow: &Flow) -> bool {
    let mut of_protocol = changes.iter().filter(|(protocol, ..)| *protocol == flow.protocol);
    of_protocol.any(|(_, old, new)| old.is_stale(new, flow.destination, flow.answering))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;
    use crate::Nodes;
    use crate::families::{BOTH, config, socket, told};
    use crate::service_port::Internal;
    use crate::services::{Changed, Services};

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
    /// A Service with an external address, a balancer's, and a port of Nodes; of the endpoints one serves, one does not, one is
    /// on its way out and serves, and one is meant for another zone.
    fn part(family: Family) -> Part {
        let yaml = |text: &str| -> Value { serde_saphyr::from_str(&told(family, text)).unwrap() };
        let service = yaml(
            "{metadata: {namespace: test, name: cleanup}, spec: {clusterIP: 10.43.1.1, externalIPs: [198.51.100.100],
              ports: [{name: t, port: 8000, protocol: TCP}, {name: u, port: 8000, protocol: UDP, nodePort: 32000},
                      {name: s, port: 8000, protocol: SCTP, nodePort: 32000}]},
              status: {loadBalancer: {ingress: [{ip: 203.0.113.4}]}}}",
        );
        let mut slice = yaml(
            "{metadata: {namespace: test, name: cleanup-0, labels: {kubernetes.io/service-name: cleanup}},
              endpoints: [
                {addresses: [10.42.0.4], conditions: {serving: true}, hints: {forZones: [{name: here}]}},
                {addresses: [10.42.1.5], conditions: {ready: false, serving: false}},
                {addresses: [10.42.0.7], conditions: {ready: false, serving: true, terminating: true}},
                {addresses: [10.42.3.8], hints: {forZones: [{name: there}]}}],
              ports: [{name: t, port: 9090, protocol: TCP}, {name: u, port: 9090, protocol: UDP},
                      {name: s, port: 9090, protocol: SCTP}]}",
        );
        slice["addressType"] = family.as_str().into();
        let nodes = Nodes { zone: Some("here".into()), ..Nodes::default() };
        let mut services = Services::new(Arc::new(config(&[family])));
        services.update(Changed {
            services: vec![(
                "test/cleanup".into(),
                None,
                Some(Arc::new(serde_json::from_value(service).unwrap())),
            )],
            slices: vec![(
                "test/cleanup-0".into(),
                None,
                Some(Arc::new(serde_json::from_value(slice).unwrap())),
            )],
            nodes: Some(nodes),
        });
        services.whole()
    }

    /// Source: `TestCleanStaleEntries` of upstream's `pkg/proxy/conntrack`; there SCTP is left to itself.
    #[test]
    fn flows_are_forgotten_that_go_to_no_endpoint_that_serves() {
        const TCP: u8 = 6;
        let [udp, sctp] = ENDLESS;
        for family in BOTH {
            let of = |text: &str| socket(family, text);
            let changes = changes(&Difference { after: part(family), ..Difference::default() }, family);
            let stale = |protocol: u8, destination: &str, answering: &str| {
                let [destination, answering] =
                    [of(destination), of(answering)].map(|it| (it.ip(), it.port()));
                is_stale(&changes, &Flow { protocol, destination, answering })
            };
            let addresses = ["10.43.1.1", "198.51.100.100", "203.0.113.4"];
            for (endpoint, stays) in [
                ("10.42.0.4:9090", true),
                ("10.42.1.5:9090", false),
                ("10.42.2.6:9090", false),
                // The same address at a port that it had before.
                ("10.42.0.4:8080", false),
                // Who ends still serves who came before, and so does who is meant for others.
                ("10.42.0.7:9090", true),
                ("10.42.3.8:9090", true),
            ] {
                for protocol in [TCP, udp, sctp] {
                    let is_forgotten = protocol != TCP && !stays;
                    for address in addresses {
                        let [service, other] = ["8000", "3000"].map(|port| format!("{address}:{port}"));
                        let case = format!("{protocol} {address} {endpoint}");
                        assert_eq!(stale(protocol, &service, endpoint), is_forgotten, "{case}");
                        assert!(!stale(protocol, &other, endpoint), "another port: {case}");
                    }
                    for node in ["192.0.2.1:32000", "192.0.2.77:32000"] {
                        assert_eq!(
                            stale(protocol, node, endpoint),
                            is_forgotten,
                            "{protocol} {node} {endpoint}"
                        );
                    }
                }
            }
            for address in addresses {
                let [service, other] = ["8000", "3000"].map(|port| format!("{address}:{port}"));
                assert!(stale(udp, &service, &service), "{address}: it went nowhere");
                assert!(!stale(udp, &other, &other) && !stale(TCP, &service, &service), "{address}");
            }
        }
    }

    #[test]
    fn what_changes_of_who_is_new_to_a_service_ends_no_flow() {
        for family in BOTH {
            let (before, mut after) = (part(family), part(family));
            for row in &mut after.rows {
                let row = Arc::make_mut(row);
                row.port.internal = Internal::Cluster(Arc::new([]));
                row.port.affinity = Some(std::time::Duration::from_secs(1));
            }
            assert_ne!(before, after);
            assert_eq!(changes(&Difference { before, after }, family), []);
        }
    }
}
