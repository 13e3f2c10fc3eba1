//! UDP has no end of connection: flows to endpoints that are gone are forgotten, so that clients get another.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::service_port::{Here, Target, service_ports};

const UDP: u8 = 17;

/// Where UDP Services lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UdpTargets {
    endpoints: BTreeSet<Target>,
    /// Addresses of Services that have endpoints.
    served: BTreeSet<Ipv4Addr>,
}

impl UdpTargets {
    pub(crate) fn of(services: &[Arc<Service>], slices: &[Arc<EndpointSlice>], here: Here<'_>) -> Self {
        let mut targets = Self::default();
        for row in service_ports(services, slices, here).into_iter().filter(|row| row.protocol == UDP) {
            let external = row.endpoints();
            if !external.is_empty() || !row.internal.is_empty() {
                targets.served.extend(row.cluster_ips.iter().chain(row.outside_ips()));
            }
            targets.endpoints.extend(external.iter().chain(&row.internal));
        }
        targets
    }

    /// Whether a flow to `destination`, which `answering` answers, must be forgotten now that `next` holds: its
    /// endpoint is gone, or it went nowhere and the Service has endpoints now.
    fn is_stale(&self, next: &Self, destination: Ipv4Addr, answering: Target) -> bool {
        if destination == answering.0 {
            return next.served.contains(&destination) && !self.served.contains(&destination);
        }
        self.endpoints.contains(&answering) && !next.endpoints.contains(&answering)
    }

    /// Forgets the flows that are stale.
    pub(crate) fn flush(&self, next: &Self) -> sys::Result<()> {
        if self.endpoints.is_subset(&next.endpoints) && next.served.is_subset(&self.served) {
            return Ok(());
        }
        let count =
            sys::netlink::flush_udp_flows(|flow| self.is_stale(next, flow.destination.0, flow.answering))?;
        tracing::debug!(count, "stale udp flows forgotten");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_to_endpoints_that_are_gone_and_to_services_that_came_up_are_stale() {
        let ip = |last| Ipv4Addr::new(10, 0, 0, last);
        let before = UdpTargets { endpoints: [(ip(1), 53), (ip(2), 53)].into(), served: [ip(100)].into() };
        let after = UdpTargets { endpoints: [(ip(2), 53)].into(), served: [ip(100), ip(101)].into() };
        for (name, destination, answering, stale) in [
            ("endpoint gone", ip(100), (ip(1), 53), true),
            ("endpoint there", ip(100), (ip(2), 53), false),
            ("straight to a Pod", ip(1), (ip(1), 53), false),
            ("unanswered before", ip(101), (ip(101), 53), true),
            ("of nobody here", ip(9), (ip(8), 53), false),
        ] {
            assert_eq!(before.is_stale(&after, destination, answering), stale, "{name}");
        }
    }
}
