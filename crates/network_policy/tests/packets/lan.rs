//! A Node with nine Pods, three in each of three namespaces, and somebody outside; servers in all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cni::{Attachment, BuiltinConfig, Network};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use machinery::net::Family;
use network_policy::{Endpoint, Locality, NamedPort, Policy, Rules, Snapshot, State};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use sys::netlink::{Address, NewRoute, Route, VethPeer};
use sys::netns::NetNs;
use sys::nftables::{
    self, ChainKind, Compare, Expr, Field, Hook, Key, Reg, Table, TableFamily, destination_in, l4_protocol,
    when,
};

const TABLE: &str = "knarr-test-policies";
const NODE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PORTS: [u16; 2] = [80, 81];
/// Echoes what it is told.
const ECHO: u16 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// What hides a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datagram {
    /// It is longer than the link's packets.
    InPieces,
    /// Options stand before it.
    BehindOptions,
}

pub(crate) struct Pod {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) ip: IpAddr,
    label: String,
    netns: PathBuf,
}

/// A try to reach a Pod from another.
#[derive(Clone)]
pub(crate) struct Probe {
    from: (&'static str, &'static str, usize),
    to: (&'static str, &'static str, usize),
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((a, b, _), (c, d, _)) = (self.from, self.to);
        write!(f, "{a}/{b} to {c}/{d} {:?}/{}", self.protocol, self.port)
    }
}

impl Probe {
    pub(crate) fn is_from(&self, namespace: &str, name: &str) -> bool {
        (self.from.0, self.from.1) == (namespace, name)
    }

    pub(crate) fn is_to(&self, namespace: &str, name: &str) -> bool {
        (self.to.0, self.to.1) == (namespace, name)
    }

    pub(crate) fn client_namespace(&self) -> &'static str {
        self.from.0
    }

    pub(crate) fn server_namespace(&self) -> &'static str {
        self.to.0
    }

    pub(crate) fn client_name(&self) -> &'static str {
        self.from.1
    }

    pub(crate) fn is_to_itself(&self) -> bool {
        self.from == self.to
    }
}

pub(crate) struct Lan {
    family: Family,
    host: NetNs,
    pods: Vec<Pod>,
    known: Snapshot,
    rules: Rules,
    outside: PathBuf,
    _folder: tempfile::TempDir,
}

/// All is written in IPv4.
pub(crate) fn address(family: Family, ip: Ipv4Addr) -> IpAddr {
    match family {
        Family::V4 => ip.into(),
        Family::V6 => testkit::ipv6::address(ip).into(),
    }
}

fn bits(family: Family) -> u8 {
    if family == Family::V4 { 32 } else { 128 }
}

fn run<T: Send>(netns: &NetNs, f: impl FnOnce() -> T + Send) -> T {
    netns.run(|| Ok(f())).unwrap()
}

fn named(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    drop(NetNs::create(&path).unwrap());
    path
}

impl Lan {
    pub(crate) fn new(family: Family) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let folder = tempfile::tempdir().unwrap();
        let host = NetNs::anonymous().unwrap();
        let config = BuiltinConfig {
            cluster_id: "test".into(),
            pod_cidrs: "10.42.0.0/24".parse().unwrap(),
            cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
            mtu: None,
            state_dir: folder.path().join("cni"),
            bin_dirs: Vec::new(),
            own_bin_dir: None,
            is_fallback: true,
        };
        let network = run(&host, || Network::load(&folder.path().join("net.d"), config).unwrap());
        let mut pods = Vec::new();
        for (namespace, name) in
            ["x", "y", "z"].into_iter().flat_map(|it| ["a", "b", "c"].map(|name| (it, name)))
        {
            let netns = named(folder.path(), &format!("{namespace}-{name}"));
            let attachment = Attachment {
                container_id: format!("{namespace}{name}"),
                netns_path: netns.clone(),
                ifname: "eth0".into(),
                ..Attachment::default()
            };
            let ip = run(&host, || network.add(&attachment).unwrap()).pod_ips("eth0")[0];
            let IpAddr::V4(v4) = ip else { panic!("the network gave {ip}") };
            let ip = address(family, v4);
            if family == Family::V6 {
                add_ipv6(&host, &NetNs::open(&netns).unwrap(), ip);
            }
            serve(&NetNs::open(&netns).unwrap());
            pods.push(Pod { namespace, name, ip, label: name.to_owned(), netns });
        }
        let outside = named(folder.path(), "outside");
        connect_outside(family, &host, &outside);
        serve(&host);
        serve(&NetNs::open(&outside).unwrap());
        let rules = Rules::new(TABLE, family);
        let mut lan =
            Self { family, host, pods, known: Snapshot::default(), rules, outside, _folder: folder };
        for namespace in ["x", "y", "z"] {
            lan.label_namespace(namespace, &[]);
        }
        (0..lan.pods.len()).for_each(|at| lan.tell(at));
        lan.commit();
        lan
    }

    fn commit(&mut self) {
        let Self { host, rules, .. } = self;
        run(host, || rules.draft().commit().unwrap());
    }

    fn tell(&mut self, at: usize) {
        let pod = &self.pods[at];
        let named = |name: &str, protocol, port| NamedPort { name: name.into(), protocol, port };
        let endpoint = Endpoint {
            namespace: pod.namespace.into(),
            labels: BTreeMap::from([("pod".to_owned(), pod.label.clone())]),
            addresses: vec![pod.ip],
            ports: vec![
                named("serve-80-tcp", 6, 80),
                named("serve-81-tcp", 6, 81),
                named("serve-80-udp", 17, 80),
            ],
            locality: Locality::Here,
            state: State::Running,
        };
        let id = format!("{}/{}", pod.namespace, pod.name);
        self.rules.endpoint(&id, Some(endpoint.clone()));
        self.known.endpoints.insert(id, endpoint);
    }

    /// What is written in IPv4, in the family of the Pods. Returns their keys.
    pub(crate) fn put(&mut self, yaml: &str) -> Vec<String> {
        let told = if self.family == Family::V4 { yaml.to_owned() } else { testkit::ipv6::text(yaml) };
        let objects: Vec<NetworkPolicy> =
            serde_saphyr::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
        let mut keys = Vec::new();
        for object in &objects {
            let policy = Arc::new(Policy::of(object));
            assert_eq!(policy.problems, Vec::<String>::new());
            self.rules.policy(&policy.key, Some(policy.clone()));
            keys.push(policy.key.clone());
            self.known.policies.insert(policy.key.clone(), policy);
        }
        self.commit();
        keys
    }

    pub(crate) fn remove(&mut self, keys: &[String]) {
        for key in keys {
            self.rules.policy(key, None);
            self.known.policies.remove(key);
        }
        self.commit();
    }

    pub(crate) fn label_namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let always = [("ns", name), ("kubernetes.io/metadata.name", name)];
        let all = always.iter().chain(labels).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let all: BTreeMap<String, String> = all.collect();
        self.rules.namespace(name, Some(all.clone()));
        self.known.namespaces.insert(name.to_owned(), all);
        self.commit();
    }

    pub(crate) fn label_pod(&mut self, namespace: &str, name: &str, label: &str) {
        let at = self.pods.iter().position(|pod| (pod.namespace, pod.name) == (namespace, name)).unwrap();
        self.pods[at].label = label.to_owned();
        self.tell(at);
        self.commit();
    }

    /// As another process that knows nothing of what the kernel has.
    pub(crate) fn restart(&mut self) {
        self.rules = Rules::new(TABLE, self.family);
        let known = self.known.clone();
        known.namespaces.into_iter().for_each(|(name, labels)| self.rules.namespace(&name, Some(labels)));
        known.endpoints.into_iter().for_each(|(id, endpoint)| self.rules.endpoint(&id, Some(endpoint)));
        known.policies.into_iter().for_each(|(key, policy)| self.rules.policy(&key, Some(policy)));
        self.commit();
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> &Pod {
        self.pods.iter().find(|pod| (pod.namespace, pod.name) == (namespace, name)).unwrap()
    }

    pub(crate) fn inside<T: Send>(&self, pod: &Pod, f: impl FnOnce() -> T + Send) -> T {
        run(&NetNs::open(&pod.netns).unwrap(), f)
    }

    /// Every Pod to every Pod, port and protocol.
    pub(crate) fn probes(&self) -> Vec<Probe> {
        let all: Vec<_> =
            self.pods.iter().enumerate().map(|(at, pod)| (pod.namespace, pod.name, at)).collect();
        let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (*from, *to)));
        let ways = [Protocol::Tcp, Protocol::Udp].into_iter().flat_map(|it| PORTS.map(|port| (it, port)));
        pairs
            .flat_map(|(from, to)| {
                ways.clone().map(move |(protocol, port)| Probe { from, to, protocol, port })
            })
            .collect()
    }

    /// All at once; whether each got an answer.
    pub(crate) fn try_all(&self, probes: &[Probe], timeout: Duration) -> Vec<bool> {
        std::thread::scope(|scope| {
            let probing = probes.iter().map(|probe| {
                let (from, to) =
                    (&self.pods[probe.from.2], SocketAddr::new(self.pods[probe.to.2].ip, probe.port));
                scope.spawn(move || {
                    self.inside(from, || match probe.protocol {
                        Protocol::Tcp => TcpStream::connect_timeout(&to, timeout).is_ok(),
                        Protocol::Udp => is_echoed(to, timeout),
                    })
                })
            });
            let probing: Vec<_> = probing.collect();
            probing.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    pub(crate) fn try_tcp(&self, (namespace, name): (&str, &str), ip: Ipv4Addr, port: u16) -> bool {
        let ip = address(self.family, ip);
        self.inside(self.pod(namespace, name), || reaches(ip, port))
    }

    /// Waits until packets come through: those to links that have just come up may be lost.
    pub(crate) fn settle(&self, (namespace, name): (&str, &str), to: (&str, &str)) {
        let to = SocketAddr::new(self.pod(to.0, to.1).ip, PORTS[0]);
        let connect = || drop(TcpStream::connect_timeout(&to, Duration::from_secs(60)).unwrap());
        self.inside(self.pod(namespace, name), connect);
    }

    /// Whether a Pod answers another's echo request.
    pub(crate) fn pings(&self, (namespace, name): (&str, &str), to: (&str, &str)) -> bool {
        let to = SocketAddr::new(self.pod(to.0, to.1).ip, 0);
        self.inside(self.pod(namespace, name), || {
            const REQUEST: u8 = 128;
            const REPLY: u8 = 129;
            let socket = raw(SockProtocol::IcmpV6);
            let own = [7, 7, 7, 7];
            let request = [&[REQUEST, 0, 0, 0][..], &own].concat();
            let end = Instant::now() + Duration::from_secs(1);
            socket.send_to(&request, to).unwrap();
            while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                socket.set_read_timeout(Some(left)).unwrap();
                let mut answer = [0; 64];
                if let Ok((length, from)) = socket.recv_from(&mut answer)
                    && (answer[0], &answer[4..length.max(4)], from.ip()) == (REPLY, &own[..], to.ip())
                {
                    return true;
                }
            }
            false
        })
    }

    /// Whether a Pod's datagram is echoed by another.
    pub(crate) fn sends(
        &self,
        (namespace, name): (&str, &str),
        to: (&str, &str),
        port: u16,
        how: Datagram,
    ) -> bool {
        let from = self.pod(namespace, name);
        let (to, to_raw) = (self.pod(to.0, to.1).ip, SocketAddr::new(self.pod(to.0, to.1).ip, 0));
        let (IpAddr::V6(source), IpAddr::V6(destination)) = (from.ip, to) else { panic!("of IPv6 only") };
        self.inside(from, || {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            let own_port = socket.local_addr().unwrap().port();
            let sent = match how {
                Datagram::InPieces => socket.send_to(&[b'?'; 4000], (to, port)),
                Datagram::BehindOptions => {
                    let packet = behind_options((source, own_port), (destination, port));
                    raw(SockProtocol::Raw).send_to(&packet, to_raw)
                }
            };
            sent.is_ok() && socket.recv_from(&mut [0; 8]).is_ok()
        })
    }

    /// So that they have to be found again.
    pub(crate) fn forget_neighbours(&self) {
        let gateway = address(self.family, Ipv4Addr::new(10, 42, 0, 1));
        for pod in &self.pods {
            self.inside(pod, || {
                let mut route = Route::open().unwrap();
                let link = route.index("eth0").unwrap();
                route.delete_neighbour(link, gateway).unwrap();
            });
            run(&self.host, || {
                let mut route = Route::open().unwrap();
                let bridge = bridge(&mut route);
                route.delete_neighbour(bridge, pod.ip).unwrap();
            });
        }
    }

    /// Two Pods of the same bridge take each other for neighbours, and the kernel shows the rules what the bridge forwards.
    pub(crate) fn lead_over_the_bridge(&self, one: (&str, &str), other: (&str, &str)) {
        let pods = [self.pod(one.0, one.1), self.pod(other.0, other.1)];
        for (pod, other) in [(pods[0], pods[1]), (pods[1], pods[0])] {
            self.inside(pod, || {
                let mut route = Route::open().unwrap();
                let link = Some(route.index("eth0").unwrap());
                let destination = Some((other.ip, bits(self.family)));
                route.add_route(&NewRoute { destination, link, ..NewRoute::default() }).unwrap();
            });
        }
        let all = || sys::netns::set_sysctl("net/bridge/bridge-nf-call-ip6tables", "1");
        self.host.run(all).expect("bridged packets can be shown (br_netfilter)");
    }

    pub(crate) fn node_reaches(&self, namespace: &str, name: &str) -> bool {
        let ip = self.pod(namespace, name).ip;
        run(&self.host, || reaches(ip, 80))
    }

    pub(crate) fn reaches_node(&self, namespace: &str, name: &str) -> bool {
        self.try_tcp((namespace, name), NODE, 80)
    }

    pub(crate) fn reaches_outside(&self, namespace: &str, name: &str) -> bool {
        self.try_tcp((namespace, name), OUTSIDE, 80)
    }

    pub(crate) fn outside_reaches(&self, namespace: &str, name: &str) -> bool {
        let ip = self.pod(namespace, name).ip;
        run(&NetNs::open(&self.outside).unwrap(), || reaches(ip, 80))
    }

    /// Leads an address to a Pod, as the Service proxy does.
    pub(crate) fn add_service(&self, ip: Ipv4Addr, port: u16, (namespace, name): (&str, &str)) {
        let (pod, bits) = (self.pod(namespace, name).ip, bits(self.family));
        let (field, family) = match self.family {
            Family::V4 => (Field::Ipv4, TableFamily::Ipv4),
            Family::V6 => (Field::Ipv6, TableFamily::Ipv6),
        };
        let mut table = Table { family, ..Table::new("services") };
        table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -100);
        let mut rule = destination_in(address(self.family, ip), bits, Compare::Equal);
        rule.extend(l4_protocol(6));
        let at = Reg::R1.after(field);
        rule.extend([
            nftables::load(Reg::R1, &Key::new().address(pod)),
            nftables::load(at, &Key::new().port(port)),
            Expr::Dnat(Reg::R1, Some(at)),
        ]);
        table.rule("prerouting", rule);
        table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 100);
        let mut hairpin = when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0);
        hairpin.extend(nftables::source_in(pod, bits, Compare::Equal));
        hairpin.extend(destination_in(pod, bits, Compare::Equal));
        hairpin.push(Expr::Masquerade);
        table.rule("postrouting", hairpin);
        run(&self.host, || nftables::apply(None, &table).unwrap());
    }
}

/// A socket of IPv6 for packets of a protocol. What it can do beside is the same as that of any protocol.
fn raw(protocol: SockProtocol) -> UdpSocket {
    socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap().into()
}

/// A packet with a datagram behind a header of options that say nothing.
fn behind_options(from: (Ipv6Addr, u16), to: (Ipv6Addr, u16)) -> Vec<u8> {
    const UDP: u8 = 17;
    const OPTIONS: u8 = 60;
    let datagram = |sum: u16| -> Vec<u8> {
        [from.1, to.1, 16, sum].into_iter().flat_map(u16::to_be_bytes).chain(*b"????????").collect()
    };
    let ends = [from.0.octets(), to.0.octets()].concat();
    let summed = [&ends[..], &[0, 0, 0, 16, 0, 0, 0, UDP], &datagram(0)].concat();
    let sum: u32 = summed.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !(((folded & 0xffff) + (folded >> 16)) as u16);
    // Version 6, 24 bytes behind this header; the next one, of eight bytes, is padding.
    let header = [&[0x60, 0, 0, 0, 0, 24, OPTIONS, 64][..], &ends, &[UDP, 0, 1, 4, 0, 0, 0, 0]].concat();
    [header, datagram(sum)].concat()
}

fn bridge(route: &mut Route) -> u32 {
    route.links().unwrap().iter().find(|link| link.kind == "bridge").unwrap().index
}

/// Gives a Pod an IPv6 address beside its own, through the host.
fn add_ipv6(host: &NetNs, pod: &NetNs, ip: IpAddr) {
    let gateway = address(Family::V6, Ipv4Addr::new(10, 42, 0, 1));
    let to = |destination, link, gateway| NewRoute {
        destination,
        link: Some(link),
        gateway,
        ..NewRoute::default()
    };
    run(host, || {
        sys::netns::set_sysctl("net/ipv6/conf/all/forwarding", "1").unwrap();
        for table in nftables::port::tables().unwrap() {
            nftables::port::delete(&table).unwrap();
        }
        let mut route = Route::open().unwrap();
        let bridge = bridge(&mut route);
        route.add_address(Address { link: bridge, ip: gateway, prefix: 128 }).unwrap();
        route.add_route(&to(Some((ip, 128)), bridge, None)).unwrap();
    });
    run(pod, || {
        let mut route = Route::open().unwrap();
        let link = route.index("eth0").unwrap();
        route.add_address(Address { link, ip, prefix: 128 }).unwrap();
        route.add_route(&to(Some((gateway, 128)), link, None)).unwrap();
        route.add_route(&to(None, link, Some(gateway))).unwrap();
    });
}

/// A way to the host for somebody outside, and to Pods through it.
fn connect_outside(family: Family, host: &NetNs, outside: &Path) {
    let netns = NetNs::open(outside).unwrap();
    let up = |name: &str, ip: Ipv4Addr| {
        let mut route = Route::open().unwrap();
        let link = route.index(name).unwrap();
        route.add_address(Address { link, ip: address(family, ip), prefix: bits(family) - 8 }).unwrap();
        route.set_up(name).unwrap();
        link
    };
    run(host, || {
        let peer = VethPeer { name: "wan", namespace: std::os::fd::AsFd::as_fd(&netns), mac: None };
        Route::open().unwrap().create_veth("wan", None, None, &peer).unwrap();
        up("wan", NODE);
    });
    run(&netns, || {
        let link = Some(up("wan", OUTSIDE));
        let pods = (address(family, Ipv4Addr::new(10, 42, 0, 0)), bits(family) - 16);
        let (destination, gateway) = (Some(pods), Some(address(family, NODE)));
        let route = NewRoute { destination, gateway, link, ..NewRoute::default() };
        Route::open().unwrap().add_route(&route).unwrap();
    });
}

/// Answers at all ports as long as the test lives.
fn serve(netns: &NetNs) {
    for port in PORTS {
        let listener = run(netns, || TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap());
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let socket = run(netns, || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap());
        std::thread::spawn(move || {
            let mut text = [0; 8];
            while let Ok((length, from)) = socket.recv_from(&mut text) {
                // A client may be gone.
                let _answered = socket.send_to(&text[..length], from);
            }
        });
    }
    let listener = run(netns, || TcpListener::bind((Ipv6Addr::UNSPECIFIED, ECHO)).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut byte = [0; 1];
            while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
        }
    });
}

fn is_echoed(to: SocketAddr, timeout: Duration) -> bool {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(timeout)).unwrap();
    socket.send_to(b"?", to).is_ok() && socket.recv_from(&mut [0; 8]).is_ok()
}

/// What is let through is there long before; only what is not is waited for.
fn reaches(ip: IpAddr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(ip, port), Duration::from_secs(1)).is_ok()
}
