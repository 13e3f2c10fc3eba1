//! What a cluster's settings mean, where no packet is needed to see it.

use super::*;
use crate::families::{BOTH, config};

/// Addresses that some host has.
const HOST: [&str; 9] = [
    "10.20.30.51",
    "100.200.201.1",
    "192.168.1.2",
    "127.0.0.1",
    "127.0.1.1",
    "1.2.3.4",
    "2001:db8::1",
    "2001:db8:1::1",
    "::1",
];

/// Networks, and which of a host's addresses of each family have ports of Nodes; `all` are those that it has of the family.
/// Source: `TestGetNodeIPs` of upstream's `pkg/proxy/util`.
#[test]
fn ports_of_nodes_are_at_the_addresses_in_the_networks_of_their_family() {
    for (name, networks, v4, v6) in [
        ("IPv4 single", &["10.20.30.0/24"][..], "10.20.30.51", "all"),
        ("IPv4 zero", &["0.0.0.0/0"], "all", "all"),
        ("IPv6 multiple", &["2001:db8::/64", "::1/128"], "all", "2001:db8::1 ::1"),
        ("IPv6 zero", &["::/0"], "all", "all"),
        ("IPv4 localhost exact", &["127.0.0.1/32"], "127.0.0.1", "all"),
        ("IPv4 localhost subnet", &["127.0.0.0/8"], "127.0.0.1 127.0.1.1", "all"),
        ("IPv4 multiple", &["10.20.30.0/24", "100.200.201.0/24"], "10.20.30.51 100.200.201.1", "all"),
        ("IPv4 multiple, no match", &["10.21.30.0/24", "100.201.201.0/24"], "", "all"),
        ("no networks", &[], "all", "all"),
        ("IPv4 redundant", &["1.2.3.0/24", "0.0.0.0/0"], "all", "all"),
        ("both, redundant IPv4", &["0.0.0.0/0", "1.2.3.0/24", "2001:db8::1/128"], "all", "2001:db8::1"),
        ("both, redundant IPv6", &["::/0", "1.2.3.0/24", "2001:db8::1/128"], "1.2.3.4", "all"),
        // Bits behind the prefix say nothing.
        ("bits of a host", &["10.20.30.99/24", "2001:db8::99/48"], "10.20.30.51", "2001:db8::1"),
    ] {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        let config = Config { node_port_addresses: NodePortAddresses::Networks(networks), ..config(&BOTH) };
        for (family, expected) in [(Family::V4, v4), (Family::V6, v6)] {
            let own = HOST.map(|ip| ip.parse::<IpAddr>().unwrap());
            let own = own.into_iter().filter(|ip| Family::of(*ip) == family);
            let found = config.node_ports(family);
            assert!(found.iter().all(|network| network.family() == family), "{name}: {found:?}");
            let is_all = expected == "all";
            let matching = own.filter(|ip| found.iter().any(|network| network.contains(*ip)));
            let expected: Vec<IpAddr> = HOST
                .iter()
                .filter(|ip| is_all || expected.split(' ').any(|text| text == **ip))
                .map(|ip| ip.parse().unwrap())
                .filter(|ip| Family::of(*ip) == family)
                .collect();
            assert_eq!(matching.collect::<Vec<_>>(), expected, "{name}, {family:?}");
        }
    }
}

#[test]
fn without_networks_ports_are_at_the_nodes_own_address_of_each_family() {
    let both = config(&BOTH);
    for family in BOTH {
        let own = both.node_ip(family).unwrap();
        assert_eq!(both.node_ports(family), [Cidr::new(own, bits(family)).unwrap()]);
        let one = config(&[family]);
        assert_eq!(one.node_ports(family), [Cidr::new(own, bits(family)).unwrap()]);
        assert_eq!(one.node_ports(family.other()), [], "it has none of the other");
        assert_eq!(one.families(), [family]);
        assert_eq!(one.check_addresses(), [(family, own)].into());
        let networks = NodePortAddresses::Networks(Vec::new());
        let everywhere = Config { node_port_addresses: networks, ..one };
        assert_eq!(everywhere.check_addresses(), [(family, unspecified(family))].into());
    }
    // A Node without an address of a family, as before its first is known, answers at none.
    let unknown = Config { node_ips: Vec::new(), ..both };
    for family in BOTH {
        assert_eq!(unknown.node_ports(family), []);
    }
    assert_eq!(unknown.check_addresses(), BTreeMap::new());
}

#[test]
fn names_of_links_fit_into_the_kernel() {
    for (id, link, table) in [
        ("1a2b", "ks-1a2b", "knarr-1a2b-services"),
        ("", "ks-", "knarr--services"),
        ("123456789012", "ks-123456789012", "knarr-123456789012-services"),
        ("1234567890123", "ks-123456789012", "knarr-1234567890123-services"),
    ] {
        let config = Config { cluster_id: id.into(), ..config(&BOTH) };
        assert_eq!((config.link_name().as_str(), config.table_name().as_str()), (link, table));
    }
}
