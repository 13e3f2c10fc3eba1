//! A wire of its own: a bridge in a network namespace, and hosts plugged into it, each in a namespace of its own.
//!
//! Addresses are of 192.0.2.0/24 (RFC 5737) and, where that is asked for, of 2001:db8::/64 (RFC 3849); there is no default
//! route: no packet can leave.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sys::netlink::{Address, NewRoute, Route, RouteEntry, VethPeer};
use sys::netns::NetNs;

const BRIDGE: &str = "lan0";
/// The name of a host's link to the wire on the host: its own, which nothing of a cluster is.
pub const HOST_LINK: &str = "host0";
const FIRST_HOST: u8 = 11;
/// How long the prefixes of the wire's networks are.
const BITS: (u8, u8) = (24, 64);
/// All networks of [`Lan::move_away`], and how large each is.
const FAR: (Ipv4Addr, u8) = (Ipv4Addr::new(198, 51, 100, 0), 24);
const FAR_BITS: u8 = 28;

/// The families of hosts' addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// Of IPv4 alone.
    V4,
    /// Of IPv6 alone.
    V6,
    /// Of both.
    Both,
}

impl Families {
    fn addresses(self, last: u8) -> impl Iterator<Item = (IpAddr, u8)> {
        let four = (self != Self::V6).then(|| (Ipv4Addr::new(192, 0, 2, last).into(), BITS.0));
        let six = (self != Self::V4).then(|| (six(last).into(), BITS.1));
        four.into_iter().chain(six)
    }
}

/// The wire and its hosts; gone when dropped and nothing runs on them any more.
#[derive(Debug)]
pub struct Lan {
    home: NetNs,
    hosts: Vec<NetNs>,
}

impl Lan {
    /// A wire with so many hosts. Its own end, where tests may run clients, is 192.0.2.1.
    ///
    /// # Errors
    /// If not root, or a namespace cannot be made.
    pub fn new(hosts: u8) -> Result<Self> {
        Self::of(hosts, Families::V4)
    }

    /// A wire whose hosts have addresses of these families; its own end is 2001:db8::1 then, too.
    ///
    /// # Errors
    /// As [`Lan::new`].
    pub fn of(hosts: u8, families: Families) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("these tests make network namespaces: run them as root");
        }
        let home = NetNs::anonymous()?;
        let bridge = home.run(|| {
            let mut route = Route::open()?;
            route.create_bridge(BRIDGE)?;
            let link = route.index(BRIDGE)?;
            for (ip, prefix) in families.addresses(1) {
                route.add_address(Address { link, ip, prefix })?;
            }
            route.set_up(BRIDGE)?;
            Ok(link)
        })?;
        let mut lan = Self { home, hosts: Vec::new() };
        for number in 0..hosts {
            let host = NetNs::anonymous()?;
            lan.home.run(|| {
                let peer = VethPeer { name: HOST_LINK, namespace: host.as_fd(), mac: None };
                let mut route = Route::open()?;
                route.create_veth(&port(number), None, Some(bridge), &peer)?;
                route.set_up(&port(number))
            })?;
            host.run(|| {
                let mut route = Route::open()?;
                let link = route.index(HOST_LINK)?;
                for (ip, prefix) in families.addresses(FIRST_HOST + number) {
                    route.add_address(Address { link, ip, prefix })?;
                }
                route.set_up(HOST_LINK)
            })?;
            lan.hosts.push(host);
        }
        Ok(lan)
    }

    /// Host `number`'s namespace.
    #[must_use]
    pub fn host(&self, number: u8) -> &NetNs {
        &self.hosts[usize::from(number)]
    }

    /// Cuts host `number` off from all others, in both directions.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn unplug(&self, number: u8) -> Result<()> {
        self.home.run(|| Route::open()?.set_down(&port(number))).context("unplug a host")
    }

    /// Undoes [`Lan::unplug`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn plug(&self, number: u8) -> Result<()> {
        self.home.run(|| Route::open()?.set_up(&port(number))).context("plug a host in")
    }

    /// Moves host `number`, from 1 on, to a network of its own, behind a router, which is the wire's own end.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn move_away(&self, number: u8) -> Result<()> {
        let everywhere = |route: &mut Route, destination, gateway: Ipv4Addr| {
            let route_to = NewRoute { destination, gateway: Some(gateway.into()), ..NewRoute::default() };
            route.add_route(&route_to)
        };
        self.home.run(|| {
            let mut route = Route::open()?;
            let link = route.index(BRIDGE)?;
            route.add_address(Address { link, ip: far_router(number).into(), prefix: FAR_BITS })?;
            sys::netns::set_sysctl("net/ipv4/ip_forward", "1")
        })?;
        self.host(number).run(|| {
            let mut route = Route::open()?;
            let link = route.index(HOST_LINK)?;
            route.delete_address(Address { link, ip: ip(number).into(), prefix: 24 })?;
            route.add_address(Address { link, ip: far_ip(number).into(), prefix: FAR_BITS })?;
            for (network, bits) in [(Ipv4Addr::new(192, 0, 2, 0), 24), FAR] {
                everywhere(&mut route, Some((network.into(), bits)), far_router(number))?;
            }
            Ok(())
        })?;
        for (other, host) in (0..).zip(&self.hosts).filter(|(other, _)| *other != number) {
            host.run(|| {
                let mut route = Route::open()?;
                let is_near = route.addresses()?.iter().any(|address| address.ip == ip(other));
                let far = Some((FAR.0.into(), FAR.1));
                if is_near { everywhere(&mut route, far, Ipv4Addr::new(192, 0, 2, 1)) } else { Ok(()) }
            })?;
        }
        Ok(())
    }

    /// Has the router of host `number`, which [`Lan::move_away`] has put there, hide it: what the host begins goes out under
    /// the router's own address, and what others begin does not come in.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn hide(&self, number: u8) -> Result<()> {
        let far = format!("{}/{FAR_BITS}", far_router(number));
        let rules = format!(
            "table ip nat{number} {{
               chain out {{ type nat hook postrouting priority srcnat; ip saddr {far} ip daddr != {far} masquerade; }}
               chain in {{ type filter hook forward priority filter; ip daddr {far} ct state new drop; }}
             }}"
        );
        let output = self.command(None, "nft").arg(rules).output().context("run nft")?;
        if !output.status.success() {
            bail!("nft: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Gives host `number` an address more.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_address(&self, number: u8, ip: Ipv4Addr) -> Result<()> {
        self.host(number).run(|| {
            let mut route = Route::open()?;
            let link = route.index(HOST_LINK)?;
            route.add_address(Address { link, ip: ip.into(), prefix: 24 })
        })?;
        Ok(())
    }

    /// A command on host `number`, or at the wire's own end; its process is the program's own.
    #[must_use]
    pub fn command(&self, number: Option<u8>, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let namespace = number.map_or(&self.home, |number| self.host(number));
        let path = format!("--net=/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd());
        let mut command = Command::new("nsenter");
        command.arg(path).arg(program).stdin(Stdio::null());
        command
    }

    /// Moves the calling thread to the wire's own end, for good; threads that it starts are there too.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn enter(&self) -> Result<()> {
        nix::sched::setns(&self.home, nix::sched::CloneFlags::CLONE_NEWNET).context("enter the test's wire")
    }

    /// The routes of host `number`.
    ///
    /// # Errors
    /// If the kernel cannot say.
    pub fn routes(&self, number: u8) -> Result<Vec<RouteEntry>> {
        Ok(self.host(number).run(|| Route::open()?.routes())?)
    }
}

/// Host `number`'s address.
#[must_use]
pub fn ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, FIRST_HOST + number)
}

/// Host `number`'s address of IPv6, if it has one.
#[must_use]
pub fn ip6(number: u8) -> Ipv6Addr {
    six(FIRST_HOST + number)
}

fn six(last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into())
}

/// The address of host `number` after [`Lan::move_away`] (198.51.100.0/24, RFC 5737).
#[must_use]
pub fn far_ip(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, far_base(number) + FIRST_HOST + number.min(1))
}

fn far_router(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, far_base(number) + 1)
}

/// Where the network of a host begins: hosts 0 and 1 share the first, for tests that bring them together again.
fn far_base(number: u8) -> u8 {
    number.saturating_sub(1) << (32 - FAR_BITS)
}

fn port(number: u8) -> String {
    format!("port{number}")
}
