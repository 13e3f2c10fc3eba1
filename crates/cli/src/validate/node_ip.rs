//! Whether a Node's addresses fit its cluster.
//!
//! Source: upstream's kubelet (`--node-ip`: one address, or one of each family), its API server (whose own address must be of
//! the first family of Services), and k3s (a Node of a cluster of both families has both).

use std::net::IpAddr;

use machinery::net::{Cidrs, Family};

use super::UsageError;

/// Checks the addresses that were given; none is fine, for then they are found.
///
/// # Errors
/// The first thing that cannot be.
pub fn check(ips: &[IpAddr], pods: Cidrs, services: Cidrs) -> Result<(), UsageError> {
    alone(ips)?;
    let list = list(ips);
    let wrong = |must: String| Err(UsageError(format!("--node-ip {list} must {must}")));
    for ip in ips {
        for (flag, cidrs) in [("--cluster-cidr", pods), ("--service-cidr", services)] {
            if cidrs.contains(*ip) {
                return Err(UsageError(format!("--node-ip {ip} must lie outside {flag} {cidrs}")));
            }
        }
    }
    let Some(first) = ips.first() else { return Ok(()) };
    let has = |family: Family| ips.iter().any(|ip| Family::of(*ip) == family);
    if let Some(missing) = pods.iter().map(|cidr| cidr.family()).find(|family| !has(*family)) {
        let missing = missing.as_str();
        return wrong(format!("have an {missing} address, as Pods of --cluster-cidr {pods} have"));
    }
    let main = services.main().family();
    if Family::of(*first) != main {
        return wrong(format!(
            "begin with the {} address, as --service-cidr {services} begins with that family",
            main.as_str()
        ));
    }
    Ok(())
}

/// The checks that need no knowledge of the cluster.
///
/// # Errors
/// They are no addresses of one Node.
pub fn alone(ips: &[IpAddr]) -> Result<(), UsageError> {
    if let Some(ip) = ips.iter().find(|ip| !is_reachable(**ip)) {
        return Err(UsageError(format!("--node-ip {ip} must be an address that other machines could reach")));
    }
    let is_one_of_each = match ips {
        [] | [_] => true,
        [first, second] => Family::of(*first) != Family::of(*second),
        _ => false,
    };
    if is_one_of_each {
        return Ok(());
    }
    Err(UsageError(format!("--node-ip {} must be one address, or one of each family", list(ips))))
}

fn is_reachable(ip: IpAddr) -> bool {
    let is_special = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_special)
}

fn list(ips: &[IpAddr]) -> String {
    ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: (&str, &str) = ("10.42.0.0/16", "10.43.0.0/16");
    const V6: (&str, &str) = ("fd42::/56", "fd43::/112");
    const BOTH: (&str, &str) = ("10.42.0.0/16,fd42::/56", "10.43.0.0/16,fd43::/112");
    const MAINLY_V6: (&str, &str) = ("fd42::/56,10.42.0.0/16", "fd43::/112,10.43.0.0/16");

    #[test]
    fn a_node_has_an_address_of_each_family_of_its_cluster() {
        for ((pods, services), ips, expect) in [
            (V4, "", ""),
            (V4, "192.0.2.1", ""),
            (V4, "192.0.2.1,2001:db8::1", ""),
            (V4, "2001:db8::1", "have an IPv4 address, as Pods of --cluster-cidr 10.42.0.0/16 have"),
            (
                V4,
                "2001:db8::1,192.0.2.1",
                "begin with the IPv4 address, as --service-cidr 10.43.0.0/16 begins with that family",
            ),
            (V6, "2001:db8::1", ""),
            (V6, "192.0.2.1", "have an IPv6 address, as Pods of --cluster-cidr fd42::/56 have"),
            (BOTH, "192.0.2.1,2001:db8::1", ""),
            (
                BOTH,
                "192.0.2.1",
                "have an IPv6 address, as Pods of --cluster-cidr 10.42.0.0/16,fd42::/56 have",
            ),
            (
                BOTH,
                "2001:db8::1,192.0.2.1",
                "begin with the IPv4 address, as --service-cidr 10.43.0.0/16,fd43::/112 begins with that family",
            ),
            (MAINLY_V6, "2001:db8::1,192.0.2.1", ""),
            (BOTH, "192.0.2.1,192.0.2.2", "be one address, or one of each family"),
            (BOTH, "2001:db8::1,2001:db8::2", "be one address, or one of each family"),
            (BOTH, "192.0.2.1,2001:db8::1,192.0.2.2", "be one address, or one of each family"),
            (V4, "127.0.0.1", "be an address that other machines could reach"),
            (V4, "0.0.0.0", "be an address that other machines could reach"),
            (V4, "255.255.255.255", "be an address that other machines could reach"),
            (V4, "224.0.0.1", "be an address that other machines could reach"),
            (V6, "::1", "be an address that other machines could reach"),
            (V6, "::", "be an address that other machines could reach"),
            (V6, "fe80::1", "be an address that other machines could reach"),
            (V6, "ff02::1", "be an address that other machines could reach"),
            (V6, "::ffff:192.0.2.1", "be an address that other machines could reach"),
            (V4, "10.42.3.4", "lie outside --cluster-cidr 10.42.0.0/16"),
            (V4, "10.43.3.4", "lie outside --service-cidr 10.43.0.0/16"),
            (V6, "fd42::7", "lie outside --cluster-cidr fd42::/56"),
            (V6, "fd43::7", "lie outside --service-cidr fd43::/112"),
        ] {
            let parsed: Vec<IpAddr> =
                ips.split(',').filter(|ip| !ip.is_empty()).map(|ip| ip.parse().unwrap()).collect();
            let found = check(&parsed, pods.parse().unwrap(), services.parse().unwrap());
            let expect =
                if expect.is_empty() { Ok(()) } else { Err(format!("--node-ip {ips} must {expect}")) };
            assert_eq!(found.map_err(|error| error.to_string()), expect, "{pods}");
        }
    }
}
