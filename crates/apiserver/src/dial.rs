//! The addresses that the API server connects to on behalf of somebody: kubelets, Pods, Services, whatever objects
//! name.
//!
//! Only [`Destination::find`] makes a [`Destination`], and a connection goes to the very addresses that it has looked at: a
//! name is not resolved again in between. Whoever may write a Node's or a Pod's status does not lead the server to its own
//! host, to the network's own addresses, to an API server (which would believe the client certificate for kubelets,
//! CVE-2022-3294), nor into a range of Services, behind whose addresses anything may be.
//!
//! A connection takes the tunnel of the Node that it leads to, where there is one: whether it may be made does not depend on
//! the way. The Node's end looks again, at what is its own.
//!
//! Source: `isProxyableHostname` of `pkg/registry/core/node`, `ResourceLocation` of `pkg/registry/core/pod`.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use machinery::net::Cidr;
use tokio::net::TcpStream;
use tunnel::{Connection, Tunnel};

use crate::addresses;
use crate::cluster::Cluster;
use crate::status::{Error, Result};
use crate::tunnels::Tunnels;

/// How long a connection may take. Source: `net.Dialer.Timeout` of upstream's transports.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// How many addresses of one name are looked at.
const ADDRESSES_MAX: usize = 16;

/// Somewhere that may be connected to.
#[derive(Clone, Debug)]
pub struct Destination {
    host: String,
    port: u16,
    addresses: Vec<SocketAddr>,
    tunnels: Arc<Tunnels>,
    /// The Node whose kubelet it is, and the way to it, if that is a tunnel.
    kubelet: Option<(String, Tunnel)>,
}

impl Destination {
    /// Resolves a host's name, and looks at every address it has.
    ///
    /// # Errors
    /// 400 if one of them may not be connected to, or there is none.
    pub async fn find(cluster: &Cluster, host: &str, port: u16) -> Result<Self> {
        let own = Own::of(cluster);
        Self::checked(&cluster.tunnels, host, port, |address| own.allows(address)).await
    }

    /// The same for the kubelet of a Node: through the Node's tunnel, if that is the way. A name is then the Node's to
    /// resolve.
    ///
    /// # Errors
    /// As [`Destination::find`].
    pub async fn of_kubelet(cluster: &Cluster, node: &str, host: &str, port: u16) -> Result<Self> {
        let Some(tunnel) = cluster.tunnels.to_kubelet(node) else {
            return Self::find(cluster, host, port).await;
        };
        let kubelet = Some((node.to_owned(), tunnel));
        if host.parse::<IpAddr>().is_ok() {
            return Ok(Self { kubelet, ..Self::find(cluster, host, port).await? });
        }
        let (host, tunnels) = (host.to_owned(), Arc::clone(&cluster.tunnels));
        Ok(Self { host, port, addresses: Vec::new(), tunnels, kubelet })
    }

    /// The same for what only administrators name: they may lead the server anywhere but to an API server.
    ///
    /// # Errors
    /// As [`Destination::find`].
    pub async fn of_administrator(cluster: &Cluster, host: &str, port: u16) -> Result<Self> {
        let own = Own::of(cluster);
        Self::checked(&cluster.tunnels, host, port, |address| !own.has(address)).await
    }

    async fn checked(
        tunnels: &Arc<Tunnels>,
        host: &str,
        port: u16,
        allows: impl Fn(SocketAddr) -> bool,
    ) -> Result<Self> {
        let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => tokio::time::timeout(CONNECT_MAX, tokio::net::lookup_host((host, port)))
                .await
                .map_err(|_| Error::bad_request(format!("lookup {host}: i/o timeout")))?
                .map_err(|_| Error::bad_request(format!("lookup {host}: no such host")))?
                .take(ADDRESSES_MAX)
                .collect(),
        };
        if addresses.is_empty() {
            return Err(Error::bad_request("no addresses for hostname"));
        }
        if addresses.iter().any(|address| !allows(*address)) {
            return Err(Error::bad_request("address not allowed"));
        }
        Ok(Self { host: host.to_owned(), port, addresses, tunnels: Arc::clone(tunnels), kubelet: None })
    }

    /// The same, for objects that have no names but addresses.
    ///
    /// # Errors
    /// 400 also for a name.
    pub async fn of_address(cluster: &Cluster, address: &str, port: u16) -> Result<Self> {
        match address.parse::<IpAddr>() {
            Ok(_) => Self::find(cluster, address, port).await,
            Err(_) => Err(Error::bad_request("address not allowed")),
        }
    }

    /// The name or address that was asked for.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The name that a certificate there must have: behind a tunnel that is the Node, whose addresses may be others'
    /// here.
    pub fn server_name(&self) -> &str {
        self.kubelet.as_ref().map_or(&self.host, |(node, _)| node)
    }

    /// `host:port`.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// That of the last one.
    pub async fn connect(&self) -> io::Result<Connection> {
        if let Some((_, tunnel)) = &self.kubelet {
            return self.tunnels.connect(tunnel, &self.host, self.port).await;
        }
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in &self.addresses {
            let connected = match self.tunnels.to_pod(address.ip()) {
                Some(tunnel) => {
                    self.tunnels.connect(&tunnel, &address.ip().to_string(), address.port()).await
                }
                None => direct(*address).await,
            };
            match connected {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

async fn direct(address: SocketAddr) -> io::Result<Connection> {
    match tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await {
        Ok(stream) => Connection::direct(stream?),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "i/o timeout")),
    }
}

/// What belongs to the API servers.
#[derive(Debug)]
struct Own {
    /// Where they answer.
    ports: [u16; 2],
    /// The addresses that lead to them.
    addresses: BTreeSet<IpAddr>,
    /// What Services get their addresses from.
    ranges: Vec<Cidr>,
    /// See [`crate::Options::dials_also`].
    allowed: Vec<IpAddr>,
}

impl Own {
    fn of(cluster: &Cluster) -> Self {
        let config = &cluster.config;
        let bound = cluster.bound.or(config.bind);
        let mut addresses = addresses::alive(cluster);
        addresses.extend(bound.map(|address| address.ip()));
        let advertised = config.advertise_address.port();
        Self {
            ports: [advertised, bound.map_or(advertised, |address| address.port())],
            addresses,
            ranges: config.service_cidrs.iter().chain(addresses::service_networks(cluster)).collect(),
            allowed: config.options.dials_also.clone(),
        }
    }

    /// Whether an address may be connected to, in whichever form it is written.
    fn allows(&self, address: SocketAddr) -> bool {
        forms(address.ip()).into_iter().all(|ip| self.allows_form(ip, address.port()))
    }

    /// Whether an address leads to an API server, in whichever form it is written.
    fn has(&self, address: SocketAddr) -> bool {
        forms(address.ip()).into_iter().any(|ip| self.has_form(ip, address.port()))
    }

    fn has_form(&self, ip: IpAddr, port: u16) -> bool {
        self.ports.contains(&port) && (self.addresses.contains(&ip) || is_of_this_host(ip))
    }

    fn allows_form(&self, ip: IpAddr, port: u16) -> bool {
        if self.has_form(ip, port) {
            return false;
        }
        self.allowed.contains(&ip)
            || (is_global_unicast(ip) && !self.ranges.iter().any(|range| range.contains(ip)))
    }
}

/// Neither this host nor this link nor everybody. Source: Go's `net.IP.IsGlobalUnicast`.
fn is_global_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // The whole of 0.0.0.0/8 is "this host on this network" (RFC 1122), and Linux connects to itself there.
            let is_this = ip.octets()[0] == 0;
            !(is_this || ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast())
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified() || ip.is_multicast())
        }
    }
}

/// An address, and the IPv4 address that it stands for where some gateway or the kernel translates it.
fn forms(ip: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(six) = ip.to_canonical() else { return vec![ip.to_canonical()] };
    let [a, b, c, d, e, f, g, h] = six.segments();
    let four = |high: u16, low: u16| IpAddr::V4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    let inner = match [a, b, c, d, e, f] {
        // Compatible addresses (RFC 4291), which are no more, but for the two that are not of them.
        [0, 0, 0, 0, 0, 0] if six != Ipv6Addr::LOCALHOST && !six.is_unspecified() => Some(four(g, h)),
        // Translated ones (RFC 2765).
        [0, 0, 0, 0, 0xffff, 0] => Some(four(g, h)),
        // NAT64, well-known and local (RFC 6052, RFC 8215).
        [0x64, 0xff9b, 0, 0, 0, 0] | [0x64, 0xff9b, 1, ..] => Some(four(g, h)),
        // 6to4 (RFC 3056).
        [0x2002, ..] => Some(four(b, c)),
        // Teredo (RFC 4380).
        [0x2001, 0, ..] => Some(four(!g, !h)),
        // ISATAP (RFC 5214).
        [_, _, _, _, 0 | 0x200, 0x5efe] => Some(four(g, h)),
        _ => None,
    };
    [Some(IpAddr::V6(six)), inner].into_iter().flatten().collect()
}

/// Whether an address is this host's: nothing else can be bound to. (Where the kernel allows that, every address counts as
/// its own; only the API servers' ports depend on it.)
fn is_of_this_host(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use base::Metrics;

    use super::*;
    use crate::tunnels::EgressSelectorMode;

    fn own() -> Own {
        Own {
            ports: [6443, 16443],
            addresses: ["192.0.2.10", "192.0.2.11"].map(|ip| ip.parse().unwrap()).into(),
            ranges: vec!["10.43.0.0/16".parse().unwrap(), "fd43::/112".parse().unwrap()],
            allowed: Vec::new(),
        }
    }

    fn check(own: &Own, address: &str, port: u16, expect: bool) {
        let ip: IpAddr = address.parse().unwrap();
        assert_eq!(own.allows(SocketAddr::new(ip, port)), expect, "{address} {port}");
    }

    #[test]
    fn nobody_is_led_to_the_servers_host_or_network() {
        for address in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0.0.0.0",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::127.0.0.1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "2001:0:1:2:3:4:80ff:fffe",
            "fd00::5efe:127.0.0.1",
            "fd00::200:5efe:127.0.0.1",
            "10.43.0.1",
            "10.43.255.9",
            "::ffff:10.43.0.1",
            "64:ff9b::10.43.0.1",
            "fd43::1",
        ] {
            check(&own(), address, 10250, false);
        }
    }

    #[test]
    fn nobody_is_led_to_an_api_server() {
        for (address, port, expect) in [
            ("192.0.2.10", 6443, false),
            ("192.0.2.10", 16443, false),
            ("192.0.2.11", 6443, false),
            ("::ffff:192.0.2.10", 6443, false),
            ("64:ff9b::192.0.2.10", 6443, false),
            ("2002:c000:20a::1", 6443, false),
            // A kubelet lives on the same host, and others may have that port.
            ("192.0.2.10", 10250, true),
            ("192.0.2.11", 10250, true),
            ("192.0.2.12", 6443, true),
            ("10.42.0.3", 6443, true),
            ("fd42::3", 80, true),
            ("64:ff9b::192.0.2.12", 6443, true),
        ] {
            check(&own(), address, port, expect);
        }
    }

    #[tokio::test]
    async fn an_address_of_ipv6_is_judged_in_whatever_form_it_is_named() {
        let own = Own { addresses: ["2001:db8::10".parse().unwrap()].into(), ..own() };
        let tunnels = Tunnels::new(EgressSelectorMode::Disabled, &Metrics::new());
        for (host, port, expect) in [
            ("2001:db8::11", 10250, Some("[2001:db8::11]:10250")),
            ("2001:DB8:0:0::11", 80, Some("[2001:DB8:0:0::11]:80")),
            ("2001:db8::10", 10250, Some("[2001:db8::10]:10250")),
            ("2001:db8::10", 6443, None),
            ("2001:db8:0:0:0:0:0:10", 16443, None),
            ("::1", 10250, None),
            // Of a link, by number and by name; the second is looked up as a name is.
            ("fe80::1%1", 10250, None),
            ("fe80::1%lo", 10250, None),
            ("::1%lo", 10250, None),
            ("::ffff:7f00:1", 10250, None),
            ("[2001:db8::11]", 10250, None),
            ("fd43::1", 443, None),
        ] {
            let found = Destination::checked(&tunnels, host, port, |address| own.allows(address)).await;
            let told = found.ok().map(|destination| destination.authority());
            assert_eq!(told.as_deref(), expect, "{host} {port}");
        }
    }

    #[test]
    fn what_is_allowed_besides_leads_to_no_api_server_either() {
        let own = Own { allowed: vec!["127.0.0.1".parse().unwrap()], ..own() };
        check(&own, "127.0.0.1", 10250, true);
        check(&own, "127.0.0.1", 6443, false);
        check(&own, "127.0.0.1", 16443, false);
        check(&own, "127.0.0.2", 10250, false);
    }

    #[test]
    fn a_host_knows_its_own_addresses() {
        for (address, expect) in [("127.0.0.1", true), ("127.8.8.8", true), ("192.0.2.77", false)] {
            assert_eq!(is_of_this_host(address.parse().unwrap()), expect, "{address}");
        }
    }
}
