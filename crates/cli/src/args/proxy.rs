//! What follows from the flags of `proxy`: addresses of which family, where they are not given.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::node::ProxyArgs;

const HEALTHZ_PORT: u16 = 10_256;
const METRICS_PORT: u16 = 10_249;

impl ProxyArgs {
    /// The Node's addresses, of which `found` are those that were given otherwise or found. Source: `detectNodeIPs` of
    /// kube-proxy.
    pub fn node_ips(&self, found: Vec<IpAddr>) -> Vec<IpAddr> {
        let main = Some(self.bind_address).filter(|ip| !ip.is_unspecified());
        let others = found.into_iter().filter(|ip| main.is_none_or(|main| main.is_ipv4() != ip.is_ipv4()));
        main.into_iter().chain(others).collect()
    }

    /// The address of its health check, if it has one.
    pub fn healthz_address(&self) -> Option<SocketAddr> {
        let all = (Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED);
        self.address(self.healthz_bind_address, all, HEALTHZ_PORT)
    }

    /// The address of its metrics, if it has one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let own = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        self.address(self.metrics_bind_address, own, METRICS_PORT)
    }

    /// Source: `getDefaultAddresses` of kube-proxy.
    fn address(
        &self,
        given: Option<SocketAddr>,
        (v4, v6): (Ipv4Addr, Ipv6Addr),
        port: u16,
    ) -> Option<SocketAddr> {
        let ip: IpAddr = if self.bind_address.is_ipv4() { v4.into() } else { v6.into() };
        Some(given.unwrap_or(SocketAddr::new(ip, port))).filter(|address| address.port() != 0)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_bind_address_is_the_nodes_and_says_of_which_family_ports_are() {
        let found = ["192.0.2.1", "2001:db8::1"];
        for (flags, ips, healthz, metrics) in [
            ("", "192.0.2.1 2001:db8::1", "0.0.0.0:10256", "127.0.0.1:10249"),
            ("--bind-address ::", "192.0.2.1 2001:db8::1", "[::]:10256", "[::1]:10249"),
            ("--bind-address 192.0.2.9", "192.0.2.9 2001:db8::1", "0.0.0.0:10256", "127.0.0.1:10249"),
            ("--bind-address 2001:db8::9", "2001:db8::9 192.0.2.1", "[::]:10256", "[::1]:10249"),
            (
                "--bind-address :: --healthz-bind-address 0.0.0.0:1 --metrics-bind-address 127.0.0.1:0",
                "192.0.2.1 2001:db8::1",
                "0.0.0.0:1",
                "",
            ),
            ("--healthz-bind-address [::1]:0", "192.0.2.1 2001:db8::1", "", "127.0.0.1:10249"),
        ] {
            let words = ["knarr", "proxy", "--kubeconfig=f"].into_iter().chain(flags.split_whitespace());
            let Command::Proxy(args) = Cli::try_parse_from(words).expect(flags).command else { panic!() };
            let found = found.iter().map(|ip| ip.parse().expect("an address")).collect();
            let told: Vec<String> = args.node_ips(found).iter().map(IpAddr::to_string).collect();
            let text = |address: Option<SocketAddr>| address.map(|it| it.to_string()).unwrap_or_default();
            assert_eq!(told.join(" "), ips, "{flags}");
            assert_eq!(
                (text(args.healthz_address()), text(args.metrics_address())),
                (healthz.into(), metrics.into())
            );
        }
        for bad in ["--bind-address eth0", "--bind-address 192.0.2.1:80", "--healthz-bind-address ::"] {
            let words = ["knarr", "proxy", "--kubeconfig=f"].into_iter().chain(bad.split_whitespace());
            assert!(Cli::try_parse_from(words).is_err(), "{bad}");
        }
    }
}
