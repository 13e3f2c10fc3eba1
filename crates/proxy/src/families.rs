//! Tests are written with IPv4 addresses and hold in both families (`testkit::ipv6`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use machinery::net::Family;

use crate::{Config, IpvsOptions, Mode, NodePortAddresses};

pub(crate) const BOTH: [Family; 2] = [Family::V4, Family::V6];

/// An address in a family.
pub(crate) fn ip(family: Family, ip: impl Into<Ipv4Addr>) -> IpAddr {
    match family {
        Family::V4 => ip.into().into(),
        Family::V6 => testkit::ipv6::address(ip.into()).into(),
    }
}

/// A text with addresses and networks in a family.
pub(crate) fn told(family: Family, text: &str) -> String {
    match family {
        Family::V4 => text.to_owned(),
        Family::V6 => testkit::ipv6::text(text),
    }
}

/// Address and port.
pub(crate) fn socket(family: Family, text: &str) -> SocketAddr {
    let (address, port) = text.rsplit_once(':').unwrap();
    SocketAddr::new(told(family, address).parse().unwrap(), port.parse().unwrap())
}

pub(crate) fn ipvs_options(scheduler: &str) -> IpvsOptions {
    IpvsOptions { scheduler: scheduler.into(), exclude_cidrs: Vec::new(), strict_arp: false }
}

/// A Node in a cluster of these families.
pub(crate) fn config(families: &[Family]) -> Config {
    let all = |text: &str| families.iter().map(|family| told(*family, text)).collect::<Vec<_>>().join(",");
    let each = |v4: [u8; 4]| families.iter().map(|family| ip(*family, v4)).collect();
    Config {
        cluster_id: "test".into(),
        node_name: "node-a".into(),
        node_ips: each([192, 0, 2, 1]),
        service_cidrs: all("10.43.0.0/16").parse().unwrap(),
        cluster_cidrs: all("10.42.0.0/16").parse().unwrap(),
        local_addresses: each([10, 43, 0, 10]),
        mode: Mode::Nftables,
        node_port_addresses: NodePortAddresses::Primary,
        healthz_address: None,
        metrics_address: None,
    }
}
