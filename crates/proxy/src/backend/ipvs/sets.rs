//! The sets that rules beside IPVS look up, under kube-proxy's names. Source: `pkg/proxy/ipvs/ipset.go`.

use machinery::net::Family;
use sys::netlink::ipset::{Kind, NAME_BYTES_MAX};

/// A set; of each there is one for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Set {
    /// An endpoint that reaches itself.
    LoopBack,
    /// Addresses and ports inside.
    ClusterIp,
    /// Those from outside, by their own words; and those of them that lead to endpoints here only.
    ExternalIp,
    ExternalIpLocal,
    /// Those of load balancers; and those of them that lead to endpoints here only, and that only some may reach.
    LoadBalancer,
    LoadBalancerLocal,
    LoadBalancerFirewall,
    /// Who may.
    SourceCidr,
    SourceIp,
    /// Ports of Nodes by protocol; and those of them that lead to endpoints here only.
    NodePortTcp,
    NodePortLocalTcp,
    NodePortUdp,
    NodePortLocalUdp,
    NodePortSctp,
    NodePortLocalSctp,
    /// What only Pods and the host may reach, as nothing is here; and what nobody may.
    NoLocal,
    NoLocalInside,
    /// The addresses that the host has for Services.
    Addresses,
}

impl Set {
    pub(crate) const ALL: [Self; 18] = [
        Self::LoopBack,
        Self::ClusterIp,
        Self::ExternalIp,
        Self::ExternalIpLocal,
        Self::LoadBalancer,
        Self::LoadBalancerLocal,
        Self::LoadBalancerFirewall,
        Self::SourceCidr,
        Self::SourceIp,
        Self::NodePortTcp,
        Self::NodePortLocalTcp,
        Self::NodePortUdp,
        Self::NodePortLocalUdp,
        Self::NodePortSctp,
        Self::NodePortLocalSctp,
        Self::NoLocal,
        Self::NoLocalInside,
        Self::Addresses,
    ];

    /// Those of ports of Nodes with a protocol: all, and those that lead to endpoints here only.
    pub(crate) fn of_node_ports(protocol: u8) -> (Self, Self) {
        match protocol {
            17 => (Self::NodePortUdp, Self::NodePortLocalUdp),
            132 => (Self::NodePortSctp, Self::NodePortLocalSctp),
            _ => (Self::NodePortTcp, Self::NodePortLocalTcp),
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::LoopBack | Self::SourceIp => Kind::IpPortIp,
            Self::SourceCidr => Kind::IpPortNet,
            Self::NodePortTcp | Self::NodePortLocalTcp | Self::NodePortUdp | Self::NodePortLocalUdp => {
                Kind::Port
            }
            Self::Addresses => Kind::Ip,
            _ => Kind::IpPort,
        }
    }

    /// Its name among those of a family.
    pub(crate) fn name(self, family: Family) -> String {
        let name = match self {
            Self::LoopBack => "LOOP-BACK",
            Self::ClusterIp => "CLUSTER-IP",
            Self::ExternalIp => "EXTERNAL-IP",
            Self::ExternalIpLocal => "EXTERNAL-IP-LOCAL",
            Self::LoadBalancer => "LOAD-BALANCER",
            Self::LoadBalancerLocal => "LOAD-BALANCER-LOCAL",
            Self::LoadBalancerFirewall => "LOAD-BALANCER-FW",
            Self::SourceCidr => "LOAD-BALANCER-SOURCE-CIDR",
            Self::SourceIp => "LOAD-BALANCER-SOURCE-IP",
            Self::NodePortTcp => "NODE-PORT-TCP",
            Self::NodePortLocalTcp => "NODE-PORT-LOCAL-TCP",
            Self::NodePortUdp => "NODE-PORT-UDP",
            Self::NodePortLocalUdp => "NODE-PORT-LOCAL-UDP",
            Self::NodePortSctp => "NODE-PORT-SCTP-HASH",
            Self::NodePortLocalSctp => "NODE-PORT-LOCAL-SCTP-HASH",
            Self::NoLocal => "NO-LOCAL",
            Self::NoLocalInside => "NO-LOCAL-INSIDE",
            Self::Addresses => "IPVS-IPS",
        };
        let mut name = match family {
            Family::V4 => format!("KUBE-{name}"),
            Family::V6 => format!("KUBE-6-{name}"),
        };
        // As upstream: the longest is cut.
        name.truncate(NAME_BYTES_MAX);
        name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_upstreams_and_each_sets_own() {
        let all =
            [Family::V4, Family::V6].into_iter().flat_map(|family| Set::ALL.map(|set| set.name(family)));
        let names: BTreeSet<String> = all.collect();
        assert_eq!(names.len(), 2 * Set::ALL.len());
        assert_eq!(Set::SourceCidr.name(Family::V6), "KUBE-6-LOAD-BALANCER-SOURCE-CID");
        assert_eq!(Set::NodePortLocalSctp.name(Family::V4), "KUBE-NODE-PORT-LOCAL-SCTP-HASH");
    }
}
