//! The addresses to which a Node lets its servers connect through its tunnel: its own kubelet and its own Pods, and
//! nowhere else.
//!
//! The host's other ports, its loopback and its network are none of the servers' business, whatever they ask for.

use std::net::{IpAddr, SocketAddr};

use machinery::net::Cidr;

/// The addresses that belong to a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destinations {
    /// The Node's name.
    pub name: String,
    /// The Node's addresses.
    pub addresses: Vec<IpAddr>,
    /// The address on which its kubelet listens, on this host.
    pub kubelet: SocketAddr,
    /// The ranges of its Pods' addresses.
    pub pod_ranges: Vec<Cidr>,
}

/// The reason why a server does not get a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is a port of the host that is not the kubelet's.
    #[error("the port is not the kubelet's")]
    Port,
    /// It is a name, or an address of nobody here.
    #[error("it is neither the node nor a pod of it")]
    Elsewhere,
    /// It is in a range of Pods, and the host's own.
    #[error("the address is the host's own")]
    Host,
}

impl Destinations {
    /// The address to which a connection to `host` and `port` goes. `is_of_host` says which addresses the host has.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(
        &self,
        host: &str,
        port: u16,
        is_of_host: impl FnOnce(IpAddr) -> bool,
    ) -> Result<SocketAddr, Refusal> {
        let address: Option<IpAddr> =
            host.trim_matches(['[', ']']).parse().ok().map(|address: IpAddr| address.to_canonical());
        let is_node = match address {
            Some(address) => self.addresses.iter().any(|own| own.to_canonical() == address),
            None => host.eq_ignore_ascii_case(&self.name),
        };
        if is_node {
            return if port == self.kubelet.port() { Ok(self.kubelet) } else { Err(Refusal::Port) };
        }
        let Some(address) = address.filter(|address| self.is_of_pod(*address)) else {
            return Err(Refusal::Elsewhere);
        };
        // The ends of Pods' links that are the host's have addresses of the same range.
        if is_of_host(address) { Err(Refusal::Host) } else { Ok(SocketAddr::new(address, port)) }
    }

    /// Whether a Pod of the Node can have an address. A range that also has what means this host or this link gives none of
    /// these to Pods.
    fn is_of_pod(&self, address: IpAddr) -> bool {
        let is_special = match address {
            IpAddr::V4(ip) => {
                let is_this = ip.octets()[0] == 0;
                is_this || ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()
            }
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast()
            }
        };
        !is_special && self.pod_ranges.iter().any(|range| range.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, port: u16, expect: Result<&str, Refusal>) {
        let own = Destinations {
            name: "host-1".into(),
            addresses: vec!["192.0.2.7".parse().unwrap(), "fd00::7".parse().unwrap()],
            kubelet: "192.0.2.7:10250".parse().unwrap(),
            pod_ranges: ["10.42.1.0/24", "fd42:1::/64", "0.0.0.0/5", "169.254.0.0/16", "fe80::/10"]
                .map(|range| range.parse().unwrap())
                .into(),
        };
        let is_of_host = |ip: IpAddr| ip == "10.42.1.1".parse::<IpAddr>().unwrap();
        let expect = expect.map(|address| address.parse().unwrap());
        assert_eq!(own.find(host, port, is_of_host), expect, "{host} {port}");
    }

    #[test]
    fn a_server_gets_to_the_kubelet_and_to_pods() {
        for host in ["192.0.2.7", "::ffff:192.0.2.7", "fd00::7", "[fd00::7]", "host-1", "HOST-1"] {
            check(host, 10250, Ok("192.0.2.7:10250"));
        }
        check("10.42.1.9", 80, Ok("10.42.1.9:80"));
        check("::ffff:10.42.1.9", 80, Ok("10.42.1.9:80"));
        check("10.42.1.9", 10250, Ok("10.42.1.9:10250"));
        check("[fd42:1::9]", 443, Ok("[fd42:1::9]:443"));
    }

    #[test]
    fn a_server_gets_nowhere_else() {
        for (host, port) in [("192.0.2.7", 22), ("host-1", 6443), ("fd00::7", 0)] {
            check(host, port, Err(Refusal::Port));
        }
        check("10.42.1.1", 22, Err(Refusal::Host));
        check("10.42.1.1", 10250, Err(Refusal::Host));
        for host in [
            "127.0.0.1",
            "localhost",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "192.0.2.1",
            "192.0.2.8",
            "10.42.2.9",
            "10.43.0.1",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "ff02::1",
            "fd42:2::9",
            "64:ff9b::10.42.1.9",
            "host-2",
            "host-1.example.com",
            "10.42.1",
            "",
        ] {
            check(host, 10250, Err(Refusal::Elsewhere));
        }
    }
}
