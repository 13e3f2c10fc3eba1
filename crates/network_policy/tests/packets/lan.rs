//! A Node with nine Pods, three in each of three namespaces, and somebody outside; servers in all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cni::{Attachment, BuiltinConfig, Network};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use machinery::net::Family;
use network_policy::{Endpoint, NamedPort, Place, Policy, Rules, Snapshot, State};
use sys::netlink::{Address, NewRoute, Route, VethPeer};
use sys::netns::NetNs;
use sys::nftables::{
    self, ChainKind, Compare, Expr, Hook, Key, Reg, Table, destination_in, l4_protocol, when,
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
    host: NetNs,
    pods: Vec<Pod>,
    known: Snapshot,
    rules: Rules,
    outside: PathBuf,
    _folder: tempfile::TempDir,
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
    pub(crate) fn new() -> Self {
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
            serve(&NetNs::open(&netns).unwrap());
            pods.push(Pod { namespace, name, ip, label: name.to_owned(), netns });
        }
        let outside = named(folder.path(), "outside");
        connect_outside(&host, &outside);
        serve(&host);
        serve(&NetNs::open(&outside).unwrap());
        let rules = Rules::new(TABLE, Family::V4);
        let mut lan = Self { host, pods, known: Snapshot::default(), rules, outside, _folder: folder };
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
            place: Place::Here,
            state: State::Running,
        };
        let id = format!("{}/{}", pod.namespace, pod.name);
        self.rules.endpoint(&id, Some(endpoint.clone()));
        self.known.endpoints.insert(id, endpoint);
    }

    /// Returns their keys.
    pub(crate) fn put(&mut self, yaml: &str) -> Vec<String> {
        let objects: Vec<NetworkPolicy> =
            serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
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
        self.rules = Rules::new(TABLE, Family::V4);
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
    pub(crate) fn try_all(&self, probes: &[Probe], patience: Duration) -> Vec<bool> {
        std::thread::scope(|scope| {
            let probing = probes.iter().map(|probe| {
                let (from, to) =
                    (&self.pods[probe.from.2], SocketAddr::new(self.pods[probe.to.2].ip, probe.port));
                scope.spawn(move || {
                    self.inside(from, || match probe.protocol {
                        Protocol::Tcp => TcpStream::connect_timeout(&to, patience).is_ok(),
                        Protocol::Udp => is_echoed(to, patience),
                    })
                })
            });
            let probing: Vec<_> = probing.collect();
            probing.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    pub(crate) fn try_tcp(&self, (namespace, name): (&str, &str), ip: IpAddr, port: u16) -> bool {
        self.inside(self.pod(namespace, name), || reaches(ip, port))
    }

    pub(crate) fn node_reaches(&self, namespace: &str, name: &str) -> bool {
        let ip = self.pod(namespace, name).ip;
        run(&self.host, || reaches(ip, 80))
    }

    pub(crate) fn reaches_node(&self, namespace: &str, name: &str) -> bool {
        self.try_tcp((namespace, name), NODE.into(), 80)
    }

    pub(crate) fn reaches_outside(&self, namespace: &str, name: &str) -> bool {
        self.try_tcp((namespace, name), OUTSIDE.into(), 80)
    }

    pub(crate) fn outside_reaches(&self, namespace: &str, name: &str) -> bool {
        let ip = self.pod(namespace, name).ip;
        run(&NetNs::open(&self.outside).unwrap(), || reaches(ip, 80))
    }

    /// Leads an address to a Pod, as the Service proxy does.
    pub(crate) fn add_service(&self, ip: Ipv4Addr, port: u16, (namespace, name): (&str, &str)) {
        let IpAddr::V4(pod) = self.pod(namespace, name).ip else { panic!("no IPv4 address") };
        let mut table = Table::new("services");
        table.base_chain("prerouting", ChainKind::Nat, Hook::Prerouting, -100);
        let mut rule = destination_in(ip, 32, Compare::Equal);
        rule.extend(l4_protocol(6));
        rule.extend([
            nftables::load(Reg::R1, &Key::new().ip(pod).port(port)),
            Expr::Dnat(Reg::R1, Some(Reg::R2)),
        ]);
        table.rule("prerouting", rule);
        table.base_chain("postrouting", ChainKind::Nat, Hook::Postrouting, 100);
        let mut hairpin = when(Expr::ConnectionStatus(Reg::R0), Expr::DNATED, Compare::NotEqual, 0);
        hairpin.extend(nftables::source_in(pod, 32, Compare::Equal));
        hairpin.extend(destination_in(pod, 32, Compare::Equal));
        hairpin.push(Expr::Masquerade);
        table.rule("postrouting", hairpin);
        run(&self.host, || nftables::apply(None, &table).unwrap());
    }
}

/// A way to the host for somebody outside, and to Pods through it.
fn connect_outside(host: &NetNs, outside: &Path) {
    let netns = NetNs::open(outside).unwrap();
    let up = |name: &str, ip: Ipv4Addr| {
        let mut route = Route::open().unwrap();
        let link = route.index(name).unwrap();
        route.add_address(Address { link, ip: ip.into(), prefix: 24 }).unwrap();
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
        let (destination, gateway) = (Some((Ipv4Addr::new(10, 42, 0, 0).into(), 16)), Some(NODE.into()));
        let route = NewRoute { destination, gateway, link, ..NewRoute::default() };
        Route::open().unwrap().add_route(&route).unwrap();
    });
}

/// Answers at all ports as long as the test lives.
fn serve(netns: &NetNs) {
    for port in PORTS {
        let listener = run(netns, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let socket = run(netns, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        std::thread::spawn(move || {
            let mut text = [0; 8];
            while let Ok((length, from)) = socket.recv_from(&mut text) {
                // A client may be gone.
                let _answered = socket.send_to(&text[..length], from);
            }
        });
    }
    let listener = run(netns, || TcpListener::bind((Ipv4Addr::UNSPECIFIED, ECHO)).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut byte = [0; 1];
            while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
        }
    });
}

fn is_echoed(to: SocketAddr, patience: Duration) -> bool {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send_to(b"?", to).is_ok() && socket.recv_from(&mut [0; 8]).is_ok()
}

/// What is let through is there long before; only what is not is waited for.
fn reaches(ip: IpAddr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::new(ip, port), Duration::from_secs(1)).is_ok()
}
