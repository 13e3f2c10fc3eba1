//! Flows of UDP have no end of their own: those to endpoints that are gone are forgotten, so that clients get another.
//!
//! What leads to a Service without endpoints is let be, and so are flows to Services that are gone.
//! Source: `CleanStaleEntries` of upstream's `pkg/proxy/conntrack`.

use std::collections::{BTreeMap, BTreeSet};

use machinery::net::Family;
use sys::netlink::Flow;

use crate::service_port::{ServicePort, Target, UDP};
use crate::services::{Difference, Part};
use crate::table_family;

/// Where UDP ports of Services of one family lead that have endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowTargets {
    addresses: BTreeMap<Target, BTreeSet<Target>>,
    node_ports: BTreeMap<u16, BTreeSet<Target>>,
}

impl FlowTargets {
    pub(crate) fn of(part: &Part, family: Family) -> Self {
        let mut targets = Self::default();
        let is_of =
            |port: &ServicePort| (port.family, port.protocol) == (family, UDP) && !port.staying.is_empty();
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

    fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.node_ports.is_empty()
    }

    /// Whether a flow must be forgotten: it goes to an address or a port of Nodes that leads elsewhere than to who answers it,
    /// or it went nowhere. Whose address a port of Nodes is asked for at is not looked at.
    fn is_stale(&self, flow: &Flow) -> bool {
        let by_address = self.addresses.get(&flow.destination);
        let by_port = self.node_ports.get(&flow.destination.1);
        let mut leads = by_address.into_iter().chain(by_port);
        flow.protocol == UDP && leads.any(|endpoints| !endpoints.contains(&flow.answering))
    }
}

/// Forgets the flows of a family that a change makes stale. How many there were.
pub(crate) fn flush(difference: &Difference, family: Family) -> sys::Result<usize> {
    match changed(difference, family) {
        None => Ok(0),
        Some(targets) => sys::netlink::flush_flows(table_family(family), |flow| targets.is_stale(flow)),
    }
}

/// Where ports lead after a change; `None` if it changes nothing about flows.
fn changed(difference: &Difference, family: Family) -> Option<FlowTargets> {
    let [before, after] = [&difference.before, &difference.after].map(|part| FlowTargets::of(part, family));
    (before != after && !after.is_empty()).then_some(after)
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
        let to = |endpoints: &[u8]| endpoints.iter().map(|to| (ip(*to), 53)).collect();
        let targets = FlowTargets {
            addresses: [((ip(100), 53), to(&[2])), ((ip(101), 53), to(&[2, 101]))].into(),
            node_ports: [(30_053, to(&[2]))].into(),
        };
        for (name, destination, answering, is_stale) in [
            ("endpoint gone", (ip(100), 53), (ip(1), 53), true),
            ("endpoint there", (ip(100), 53), (ip(2), 53), false),
            ("another port of the endpoint", (ip(100), 53), (ip(2), 54), true),
            ("another port of the address", (ip(100), 54), (ip(1), 53), false),
            ("straight to a Pod", (ip(1), 53), (ip(1), 53), false),
            ("unanswered before", (ip(100), 53), (ip(100), 53), true),
            ("answered where it was sent to, which serves", (ip(101), 53), (ip(101), 53), false),
            ("of a Service that is gone or has no endpoints", (ip(102), 53), (ip(1), 53), false),
            ("by a port of the Node", (ip(200), 30_053), (ip(1), 53), true),
            ("by a port of the Node, still", (ip(200), 30_053), (ip(2), 53), false),
            ("to that port of anybody", (ip(1), 30_053), (ip(1), 30_053), true),
            ("of nobody here", (ip(9), 53), (ip(8), 53), false),
        ] {
            for (protocol, may_be) in [(UDP, true), (6, false), (132, false)] {
                let flow = Flow { protocol, destination, answering };
                assert_eq!(targets.is_stale(&flow), is_stale && may_be, "{network} {name} {protocol}");
            }
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

    /// Source: `TestCleanStaleEntries` of upstream's `pkg/proxy/conntrack`.
    #[test]
    fn flows_are_forgotten_that_go_to_no_endpoint_that_serves() {
        const TCP: u8 = 6;
        const SCTP: u8 = 132;
        for family in BOTH {
            let of = |text: &str| socket(family, text);
            let targets =
                changed(&Difference { after: part(family), ..Difference::default() }, family).unwrap();
            let stale = |protocol: u8, destination: &str, answering: &str| {
                let [destination, answering] =
                    [of(destination), of(answering)].map(|it| (it.ip(), it.port()));
                targets.is_stale(&Flow { protocol, destination, answering })
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
                for protocol in [TCP, UDP, SCTP] {
                    let is_forgotten = protocol == UDP && !stays;
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
                assert!(stale(UDP, &service, &service), "{address}: it went nowhere");
                assert!(!stale(UDP, &other, &other), "{address}");
                assert!(!stale(TCP, &service, &service) && !stale(SCTP, &service, &service), "{address}");
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
            assert_eq!(changed(&Difference { before, after }, family), None);
        }
    }

    #[test]
    fn services_that_have_no_endpoints_and_services_that_go_end_no_flow() {
        for family in BOTH {
            let (before, mut empty) = (part(family), part(family));
            for row in &mut empty.rows {
                Arc::make_mut(row).port.staying = Arc::new([]);
            }
            let nothing = Part::default;
            for (name, before, after) in [
                ("endpoints go", before.clone(), empty.clone()),
                ("the Service goes", before.clone(), nothing()),
                ("a Service comes without endpoints", nothing(), empty),
                ("nothing was and nothing is", nothing(), nothing()),
            ] {
                assert_eq!(changed(&Difference { before, after }, family), None, "{name}");
            }
            let came = Difference { before: nothing(), after: before };
            assert!(changed(&came, family).is_some(), "endpoints come");
        }
    }
}
