//! The networks of the Nodes, as who sits at their host sees them.

use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use sys::netlink::{NewRoute, Route, RouteEntry};
use sys::netns::NetNs;
use testkit::inventory::Kind;
use testkit::{Cluster, Inventory, leaks};

use crate::must;

/// The first is the host's own, beside the control plane.
pub(super) const NODES: usize = 3;
/// How long what went may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(60);
/// Between two looks at the machine, which tells nobody when something of it goes.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A Node's end of its pair, in its namespace.
const LINK: &str = "eth0";
/// How addresses of Pods begin.
const PODS: &str = "10.42.";
/// Files are not counted: those of Pods are in the end others. What networks have is counted Node by Node.
pub(super) const IGNORED: [&str; 3] = ["session-", "data/", "busybox"];
const KINDS: [Kind; 4] = [Kind::Process, Kind::Mount, Kind::NetworkNamespace, Kind::Cgroup];

/// Their namespaces.
pub(super) struct Nodes(Vec<NetNs>);

/// Links that are down.
#[must_use]
pub(super) struct Cut(Vec<String>);

impl Nodes {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let own = std::thread::scope(|scope| {
            let entered = scope.spawn(|| {
                must(cluster.enter());
                NetNs::current().unwrap()
            });
            entered.join().unwrap()
        });
        let kept = |number: usize| cluster.data_dir().join(format!("nodes/{number}.netns"));
        let others = (2..=NODES).map(|number| NetNs::open(&kept(number)).unwrap());
        Self(std::iter::once(own).chain(others).collect())
    }

    fn nft(&self, node: usize, arguments: &[&str]) -> String {
        let path = format!("--net=/proc/{}/fd/{}", std::process::id(), self.0[node].as_fd().as_raw_fd());
        let output = Command::new("nsenter").arg(path).arg("nft").args(arguments).output().unwrap();
        assert!(output.status.success(), "nft {arguments:?}: {}", testkit::cluster::text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn on<T: Send>(&self, node: usize, work: impl FnOnce(&mut Route) -> sys::Result<T> + Send) -> T {
        self.0[node].run(|| work(&mut Route::open()?)).unwrap()
    }

    /// What a firewall does that begins anew.
    pub(super) fn flush_rules(&self, node: usize) {
        self.nft(node, &["flush", "ruleset"]);
    }

    /// What somebody does who manages a host's network and begins anew: routes that he does not know go.
    pub(super) fn flush_routes(&self, node: usize) {
        self.on(node, |route| {
            let is_pods = |it: &RouteEntry| {
                it.destination.is_some_and(|(ip, _)| ip.is_ipv4() && ip.to_string().starts_with(PODS))
            };
            let is_foreign = |it: &RouteEntry| it.gateway.is_some() && is_pods(it);
            let foreign: Vec<RouteEntry> = route.routes()?.into_iter().filter(is_foreign).collect();
            foreign.into_iter().try_for_each(|it| {
                let (destination, gateway) = (it.destination, it.gateway);
                route.delete_route(&NewRoute { destination, gateway, ..NewRoute::default() })
            })
        });
    }

    /// The host's end of the pair of a Node; of the first one, which has none, those of all others.
    fn ports(&self, node: usize) -> Vec<String> {
        let of = |other: usize| {
            let peer = self.on(other, |route| Ok(route.link(LINK)?.unwrap().peer));
            let links = self.on(0, Route::links);
            links.into_iter().find(|link| Some(link.index) == peer).unwrap().name
        };
        if node == 0 { (1..NODES).map(of).collect() } else { vec![of(node)] }
    }

    /// Cuts a Node off from all others; from the first one, from the servers.
    pub(super) fn cut(&self, node: usize) -> Cut {
        let links = self.ports(node);
        self.on(0, |route| links.iter().try_for_each(|name| route.set_down(name)));
        Cut(links)
    }

    pub(super) fn rejoin(&self, Cut(links): Cut) {
        self.on(0, |route| links.iter().try_for_each(|name| route.set_up(name)));
    }

    /// Has a Node's own link go down, with which its routes go, and come up again; of the first one the bridge.
    pub(super) fn flap(&self, node: usize) {
        let port = self.ports(1).remove(0);
        self.on(node, |route| {
            let links = route.links()?;
            let named = |name: &str| links.iter().find(|link| link.name == name);
            let bridge =
                named(&port).and_then(|port| links.iter().find(|link| Some(link.index) == port.master));
            let name = bridge.or_else(|| named(LINK)).unwrap().name.clone();
            // Who manages a host's network gives it its own routes again, and knows of none to Pods. Those that come with
            // addresses the kernel makes.
            let is_own = |it: &RouteEntry| {
                let is_pods =
                    it.destination.is_some_and(|(ip, _)| ip.is_ipv4() && ip.to_string().starts_with(PODS));
                let is_v4 = it.gateway.or(it.destination.map(|(ip, _)| ip)).is_some_and(|ip| ip.is_ipv4());
                is_v4 && !is_pods && it.source.is_none()
            };
            let own: Vec<RouteEntry> = route.routes()?.into_iter().filter(is_own).collect();
            route.set_down(&name)?;
            route.set_up(&name)?;
            own.into_iter().try_for_each(|it| {
                let (destination, gateway, link) = (it.destination, it.gateway, it.link);
                route.add_route(&NewRoute { destination, gateway, link, ..NewRoute::default() })
            })
        });
    }

    /// How many of each kind of thing each Node's network has. The names of Pods' links are new with each Pod.
    pub(super) fn inventory(&self) -> Vec<Vec<(String, usize)>> {
        (0..self.0.len()).map(|node| self.counts(node)).collect()
    }

    fn counts(&self, node: usize) -> Vec<(String, usize)> {
        let [links, addresses, routes] = self
            .on(node, |route| Ok([route.links()?.len(), route.addresses()?.len(), route.routes()?.len()]));
        let rules = self.nft(node, &["list", "ruleset"]);
        let of = |word: &str| rules.lines().filter(|line| line.trim_start().starts_with(word)).count();
        // A Node without Pods has no table of what they may send.
        let rules = ["chain ", "set ", "map "].map(|word| (word.trim().to_owned(), of(word)));
        let others = [("link", links), ("address", addresses), ("route", routes)];
        others.map(|(kind, count)| (kind.to_owned(), count)).into_iter().chain(rules).collect()
    }

    /// Waits until the Nodes together have what they had: Pods may be elsewhere now.
    pub(super) fn have_no_more_than(&self, before: &[Vec<(String, usize)>]) {
        let total = |all: &[Vec<(String, usize)>]| -> Vec<usize> {
            (0..all[0].len()).map(|kind| all.iter().map(|node| node[kind].1).sum()).collect()
        };
        let begun = Instant::now();
        loop {
            let now = self.inventory();
            if total(&now) == total(before) {
                return;
            }
            assert!(begun.elapsed() < GONE_MAX, "before: {before:?}, now: {now:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Waits until the cluster has no more of each kind of thing than it had.
pub(super) fn has_no_more_than(cluster: &mut Cluster, before: &Inventory) {
    let count = |all: &Inventory| KINDS.map(|kind| (kind, all.count(kind)));
    let begun = Instant::now();
    loop {
        let now = must(cluster.inventory(&IGNORED));
        if count(&now).iter().zip(count(before)).all(|((_, now), (_, before))| *now <= before) {
            return;
        }
        assert!(
            begun.elapsed() < GONE_MAX,
            "before: {:?}, now: {:?}: {:#?}",
            count(before),
            count(&now),
            leaks(before, &now)
        );
        std::thread::sleep(LOOK_EVERY);
    }
}
