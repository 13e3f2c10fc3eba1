use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sys::netns::NetNs;

use super::*;
use crate::Kernel;
use crate::services::{Changed, News};

const PODS: usize = 2;

fn config() -> Config {
    Config {
        cluster_id: "test".into(),
        node_name: "node-a".into(),
        node_ip: Ipv4Addr::new(192, 0, 2, 1),
        service_cidrs: "10.43.0.0/16".parse().unwrap(),
        cluster_cidrs: "10.42.0.0/16".parse().unwrap(),
        local_addresses: vec![Ipv4Addr::new(10, 43, 0, 10)],
        node_port_addresses: NodePortAddresses::Primary,
        healthz_address: None,
        metrics_address: None,
    }
}

/// Objects of the namespace `default`; those with endpoints are slices of the Service of their name.
fn changed(yaml: &str) -> Changed {
    let objects: Vec<Value> = serde_saphyr::from_str(yaml).unwrap();
    let mut changed = Changed::default();
    for mut object in objects {
        object["metadata"]["namespace"] = json!("default");
        let name = object["metadata"]["name"].clone();
        let key = format!("default/{}", name.as_str().unwrap());
        if object.get("endpoints").is_some() {
            object["metadata"]["labels"] = json!({ "kubernetes.io/service-name": name });
            object["addressType"] = json!("IPv4");
            changed.slices.push((key, None, Some(Arc::new(serde_json::from_value(object).unwrap()))));
        } else {
            changed.services.push((key, None, Some(Arc::new(serde_json::from_value(object).unwrap()))));
        }
    }
    changed
}

/// What leads from one state of the world to another.
fn news(before: &str, after: &str) -> Changed {
    let (old, mut new) = (changed(before), changed(after));
    fn join<K: Clone>(old: Vec<News<K>>, new: &mut Vec<News<K>>) {
        for (key, _, was) in old {
            match new.iter_mut().find(|(other, ..)| *other == key) {
                Some(one) => one.1 = was,
                None => new.push((key, was, None)),
            }
        }
    }
    join(old.services, &mut new.services);
    join(old.slices, &mut new.slices);
    new
}

fn table(yaml: &str) -> Table {
    crate::table(config(), changed(yaml))
}

/// Names of the chains, without those that are always there.
fn chains(yaml: &str) -> Vec<String> {
    let always: BTreeSet<String> = table("[]").chains.into_keys().collect();
    table(yaml).chains.into_keys().filter(|name| !always.contains(name)).collect()
}

const WEB: &str = "
- {metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}
- {metadata: {name: web}, ports: [{port: 8080}], endpoints: [{addresses: [10.42.0.2]}, {addresses: [10.42.0.3]}]}
";

#[test]
fn a_service_is_an_element_and_a_chain_that_chooses() {
    assert_eq!(chains(WEB), ["endpoints/default/web//6", "service/default/web//6"]);
    let table = table(WEB);
    assert_eq!(table.sets["service-ips"].elements.len(), 1);
    assert_eq!(table.sets["endpoints"].elements.len(), 2);
}

#[test]
fn services_without_address_or_of_another_proxy_are_left_alone() {
    let endpoints = "{metadata: {name: web}, ports: [{port: 80}], endpoints: [{addresses: [10.42.0.2]}]}";
    for (name, service) in [
        ("headless", "{metadata: {name: web}, spec: {clusterIP: None, ports: [{port: 80}]}}"),
        (
            "external name",
            "{metadata: {name: web}, spec: {type: ExternalName, externalName: x, ports: [{port: 80}]}}",
        ),
        (
            "other proxy",
            "{metadata: {name: web, labels: {service.kubernetes.io/service-proxy-name: x}},
              spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}",
        ),
        ("no endpoints", "{metadata: {name: other}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}"),
        (
            "other port name",
            "{metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{name: a, port: 80}]}}",
        ),
    ] {
        assert_eq!(chains(&format!("[{service}, {endpoints}]")), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn endpoints_that_end_are_used_only_when_no_other_is_left() {
    let service = "{metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80}]}}";
    let ending = "{addresses: [10.42.0.2], conditions: {ready: false, serving: true, terminating: true}}";
    let unready = "{addresses: [10.42.0.3], conditions: {ready: false, serving: false}}";
    let ready = "{addresses: [10.42.0.4], conditions: {ready: true}}";
    for (name, endpoints, used) in [
        ("ready wins", format!("{ending}, {unready}, {ready}"), "10.42.0.4"),
        ("ending as last resort", format!("{ending}, {unready}"), "10.42.0.2"),
    ] {
        let yaml = format!(
            "[{service}, {{metadata: {{name: web}}, ports: [{{port: 80}}], endpoints: [{endpoints}]}}]"
        );
        let ip: Ipv4Addr = used.parse().unwrap();
        let elements = &table(&yaml).sets["hairpin"].elements;
        assert_eq!(elements.keys().collect::<Vec<_>>(), [&Key::new().ip(ip).ip(ip)], "{name}");
    }
}

#[test]
fn local_policy_keeps_outside_traffic_on_the_node_but_not_pods() {
    let yaml = "
- {metadata: {name: web}, spec: {type: NodePort, externalTrafficPolicy: Local, clusterIP: 10.43.0.5,
   ports: [{port: 80, nodePort: 30080}]}}
- {metadata: {name: web}, ports: [{port: 80}],
   endpoints: [{addresses: [10.42.0.2], nodeName: node-a}, {addresses: [10.42.1.2], nodeName: node-b}]}
";
    let expected = [
        "endpoints/default/web//6",
        "endpoints/default/web//6/local",
        "external/default/web//6",
        "service/default/web//6",
    ];
    assert_eq!(chains(yaml), expected);
    let elsewhere = yaml.replace("node-a", "node-c");
    let table = table(&elsewhere);
    assert_eq!(table.chains["external/default/web//6"].rules[2], [Expr::Verdict(Verdict::Drop)]);
}

#[test]
fn ports_without_endpoints_are_refused() {
    let yaml =
        "[{metadata: {name: web}, spec: {type: NodePort, clusterIP: 10.43.0.5, externalIPs: [192.0.2.9],
        ports: [{port: 80, nodePort: 30080}]}}]";
    let table = table(yaml);
    assert_eq!(table.sets["refused-ports"].elements.len(), 1);
    assert_eq!(table.sets["refused-ips"].elements.len(), 1);
    assert!(table.sets["service-ips"].elements.is_empty());
}

/// A host with Pods, each of which serves its own name on port 8080 (TCP, and UDP with the client's address).
struct Cluster {
    host: NetNs,
    pods: Vec<NetNs>,
    kernel: std::cell::RefCell<(Kernel, String)>,
    _dir: tempfile::TempDir,
}

impl Cluster {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = NetNs::anonymous().expect("network namespaces: run this test as root");
        let network = cni::BuiltinConfig {
            cluster_id: "test".into(),
            pod_cidrs: "10.42.0.0/24".parse().unwrap(),
            cluster_cidrs: config().cluster_cidrs,
            mtu: None,
            state_dir: dir.path().join("cni"),
            bin_dirs: Vec::new(),
            own_bin_dir: None,
            is_fallback: true,
        };
        let mut pods = Vec::new();
        host.run(|| {
            let mut route = sys::netlink::Route::open()?;
            let link = route.index("lo")?;
            route.add_address(sys::netlink::Address { link, ip: config().node_ip.into(), prefix: 32 })?;
            let network = cni::Network::load(&dir.path().join("none"), network).unwrap();
            for n in 0..PODS {
                let netns_path = dir.path().join(format!("pod{n}"));
                pods.push(NetNs::create(&netns_path)?);
                let (container_id, ifname) = (format!("pod{n}"), "eth0".to_owned());
                let attachment = cni::Attachment {
                    container_id,
                    netns_path: netns_path.clone(),
                    ifname,
                    ..Default::default()
                };
                network.add(&attachment).unwrap();
                sys::netns::delete(&netns_path)?;
            }
            crate::prepare(&config())?;
            crate::prepare(&config())
        })
        .unwrap();
        for (n, pod) in pods.iter().enumerate() {
            let listener = pod.run(|| Ok(TcpListener::bind("0.0.0.0:8080").unwrap())).unwrap();
            std::thread::spawn(move || {
                while let Ok((mut stream, peer)) = listener.accept() {
                    write!(stream, "pod{n} to {}", peer.ip()).unwrap();
                }
            });
            let socket = pod.run(|| Ok(UdpSocket::bind("0.0.0.0:8080").unwrap())).unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 16];
                while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    socket.send_to(format!("pod{n}").as_bytes(), peer).unwrap();
                }
            });
        }
        let kernel = Kernel::new(config(), &base::metrics::Metrics::new());
        Self { host, pods, kernel: (kernel, "[]".to_owned()).into(), _dir: dir }
    }

    fn apply(&self, yaml: &str) {
        let (kernel, known) = &mut *self.kernel.borrow_mut();
        let news = news(&std::mem::replace(known, yaml.to_owned()), yaml);
        self.host.run(|| kernel.program(news)).unwrap();
    }

    fn asked_by_pod(&self, n: usize, to: &str) -> String {
        self.pods[n].run(|| Ok(ask(to))).unwrap()
    }

    fn asked_by_host(&self, to: &str) -> String {
        self.host.run(|| Ok(ask(to))).unwrap()
    }

    fn listing(&self) -> String {
        let list = || Ok(Command::new("nft").args(["list", "ruleset"]).output().unwrap().stdout);
        String::from_utf8(self.host.run(list).unwrap()).unwrap()
    }
}

fn ask(to: &str) -> String {
    let to: SocketAddr = to.parse().unwrap();
    let mut answer = String::new();
    match TcpStream::connect_timeout(&to, Duration::from_secs(60)) {
        Ok(mut stream) => stream.read_to_string(&mut answer).unwrap(),
        Err(error) => return error.kind().to_string(),
    };
    answer
}

#[test]
fn pods_and_the_host_reach_a_service_and_are_refused_without_endpoints() {
    let cluster = Cluster::new();
    cluster.apply(WEB);
    for from in 0..PODS {
        let answers: BTreeSet<String> = (0..30).map(|_| cluster.asked_by_pod(from, "10.43.0.5:80")).collect();
        let own = format!("pod{from} to 10.42.0.1");
        let other = format!("pod{} to 10.42.0.{}", 1 - from, from + 2);
        assert_eq!(answers, BTreeSet::from([own, other]), "{}", cluster.listing());
    }
    let answers: BTreeSet<String> = (0..30).map(|_| cluster.asked_by_host("10.43.0.5:80")).collect();
    assert_eq!(answers, BTreeSet::from(["pod0 to 10.42.0.1".to_owned(), "pod1 to 10.42.0.1".to_owned()]));

    cluster.apply(&WEB[..WEB.find("- {metadata: {name: web}, ports").unwrap()]);
    for refused in ["10.43.0.5:80", "10.43.0.6:80"] {
        assert_eq!(cluster.asked_by_pod(0, refused), "connection refused", "{refused}");
        assert_eq!(cluster.asked_by_host(refused), "connection refused", "{refused}");
    }
}

#[test]
fn the_cluster_dns_address_is_answered_by_the_host_itself() {
    let cluster = Cluster::new();
    cluster.apply("[{metadata: {name: kube-dns}, spec: {clusterIP: 10.43.0.10, ports: [{port: 53}]}}]");
    let listener = cluster.host.run(|| Ok(TcpListener::bind("10.43.0.10:53").unwrap())).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, peer)) = listener.accept() {
            write!(stream, "dns to {}", peer.ip()).unwrap();
        }
    });
    assert_eq!(cluster.asked_by_pod(1, "10.43.0.10:53"), "dns to 10.42.0.3");
    assert_eq!(cluster.asked_by_host("10.43.0.10:53"), "dns to 10.43.0.10");
}

#[test]
fn node_ports_and_external_addresses_lead_in() {
    let cluster = Cluster::new();
    let leads_somewhere = || {
        let mut route = sys::netlink::Route::open()?;
        let (destination, link) = (Some(("192.0.2.77".parse().unwrap(), 32)), Some(route.index("lo")?));
        let source = Some(config().node_ip.into());
        route.add_route(&sys::netlink::NewRoute { destination, source, link, ..Default::default() })
    };
    cluster.host.run(leads_somewhere).unwrap();
    cluster.apply(
        "
- {metadata: {name: web}, spec: {type: NodePort, clusterIP: 10.43.0.5, externalIPs: [192.0.2.77],
   ports: [{port: 80, nodePort: 30080}]}}
- {metadata: {name: web}, ports: [{port: 8080}], endpoints: [{addresses: [10.42.0.3]}]}
",
    );
    for to in ["192.0.2.1:30080", "192.0.2.77:80"] {
        assert_eq!(cluster.asked_by_pod(0, to), "pod1 to 10.42.0.1", "{to}");
        assert_eq!(cluster.asked_by_pod(1, to), "pod1 to 10.42.0.1", "{to}: itself");
        assert_eq!(cluster.asked_by_host(to), "pod1 to 10.42.0.1", "{to}");
    }
    cluster.apply(
        "[{metadata: {name: web}, spec: {clusterIP: 10.43.0.5, ports: [{port: 80, nodePort: 30080}]}}]",
    );
    assert_eq!(cluster.asked_by_pod(0, "192.0.2.1:30080"), "connection refused");
}

#[test]
fn clients_stay_with_their_endpoint_until_it_is_gone() {
    let cluster = Cluster::new();
    let sticky = WEB.replace("spec: {", "spec: {sessionAffinity: ClientIP, ");
    cluster.apply(&sticky);
    let first = cluster.asked_by_host("10.43.0.5:80");
    for _ in 0..20 {
        assert_eq!(cluster.asked_by_host("10.43.0.5:80"), first, "{}", cluster.listing());
    }
    let (gone, left) = if first.starts_with("pod0") { ("2", "pod1") } else { ("3", "pod0") };
    let without = sticky.replace(&format!("{{addresses: [10.42.0.{gone}]}}"), "{addresses: [fe80::1]}");
    cluster.apply(&without);
    assert!(cluster.asked_by_host("10.43.0.5:80").starts_with(left));
    cluster.apply(&sticky);
    for _ in 0..20 {
        assert!(cluster.asked_by_host("10.43.0.5:80").starts_with(left), "a change keeps who belongs where");
    }
}

#[test]
fn a_udp_client_with_one_socket_moves_on_when_its_endpoint_is_gone() {
    let cluster = Cluster::new();
    let leads_to = |ip: &str| {
        format!(
            "[{{metadata: {{name: web}}, spec: {{clusterIP: 10.43.0.5, ports: [{{port: 80, protocol: UDP}}]}}}},
              {{metadata: {{name: web}}, ports: [{{port: 8080}}], endpoints: [{{addresses: [{ip}]}}]}}]"
        )
    };
    let states = [leads_to("10.42.0.2"), leads_to("10.42.0.3")];
    let socket = cluster.host.run(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // Nobody but who asks sees that a datagram is lost, as those to a link that has just come up are.
    let ask = || {
        let mut buffer = [0; 16];
        let answer = (0..60).find_map(|_| {
            socket.send_to(b"?", "10.43.0.5:80").unwrap();
            socket.recv(&mut buffer).ok()
        });
        String::from_utf8(buffer[..answer.expect("an answer")].to_vec()).unwrap()
    };
    cluster.apply(&states[0]);
    assert_eq!(ask(), "pod0");
    // The flow is tracked: without forgetting it, it would stay.
    cluster.apply(&states[1]);
    assert_eq!(ask(), "pod1");
}

#[test]
fn cleanup_finds_and_removes_everything() {
    let cluster = Cluster::new();
    cluster.apply(WEB);
    let clean = || {
        let found = crate::cleanup("test")?;
        assert_eq!(found, ["link ks-test", "nftables table knarr-test-services"]);
        crate::leftovers("test")
    };
    assert_eq!(cluster.host.run(clean).unwrap(), Vec::<String>::new());
}

/// Sends packets for an address to loopback, where a Service catches them.
fn lead_here(cluster: &Cluster, ip: &str) {
    let leads_here = || {
        let mut route = sys::netlink::Route::open()?;
        let link = route.index("lo")?;
        let address = sys::netlink::Address { link, ip: ip.parse().unwrap(), prefix: 32 };
        route.add_address(address)
    };
    cluster.host.run(leads_here).unwrap();
}

/// What one who waits a moment hears.
fn ask_briefly(to: &str) -> String {
    match TcpStream::connect_timeout(&to.parse().unwrap(), Duration::from_millis(300)) {
        Ok(mut stream) => {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        }
        Err(error) => error.kind().to_string(),
    }
}

const BALANCED: &str = "
- {metadata: {name: web}, spec: {type: LoadBalancer, clusterIP: 10.43.0.5, ports: [{port: 80, nodePort: 30080}], MORE},
   status: {loadBalancer: {ingress: [{ip: 192.0.2.77}, {ip: 192.0.2.78, ipMode: Proxy}]}}}
- {metadata: {name: web}, ports: [{port: 8080}], endpoints: [{addresses: [10.42.0.3], nodeName: node-a}]}
";

#[test]
fn a_load_balancers_address_is_open_to_its_source_ranges_and_nobody_else() {
    let cluster = Cluster::new();
    lead_here(&cluster, "192.0.2.77");
    let balancer = "192.0.2.77:80";
    let (drops, answers) = ("timed out", "pod1 to 10.42.0.1");
    for (ranges, by_pod, by_host) in [
        ("10.42.0.2/32", answers, drops),
        ("' 010.42.0.2/32 '", answers, drops),
        ("10.42.0.3/32", drops, drops),
        // The host's own packets have the address as their source, where its own is among them.
        ("192.0.2.0/24", drops, answers),
        ("203.0.113.0/24, 10.42.0.0/24", answers, drops),
        ("0.0.0.0/0", answers, answers),
        ("203.0.113.0/24, 0.0.0.0/0", answers, answers),
        ("'2001:db8::/32'", drops, drops),
    ] {
        cluster.apply(&BALANCED.replace("MORE", &format!("loadBalancerSourceRanges: [{ranges}]")));
        let asked = |net: &NetNs, to: &str| net.run(|| Ok(ask_briefly(to))).unwrap();
        assert_eq!(asked(&cluster.pods[0], balancer), by_pod, "a Pod with {ranges}: {}", cluster.listing());
        assert_eq!(asked(&cluster.host, balancer), by_host, "the host with {ranges}: {}", cluster.listing());
        // Other ways to the Service have no such ranges.
        for to in ["192.0.2.1:30080", "10.43.0.5:80"] {
            assert!(asked(&cluster.pods[0], to).starts_with("pod1 to"), "{to} with {ranges}");
        }
    }
    let without = |yaml: &str| yaml[..yaml.find("- {metadata: {name: web}, ports").unwrap()].to_owned();
    cluster.apply(&without(&BALANCED.replace("MORE", "loadBalancerSourceRanges: [10.42.0.2/32]")));
    let asked = |net: &NetNs| net.run(|| Ok(ask_briefly(balancer))).unwrap();
    assert_eq!(
        asked(&cluster.pods[0]),
        "connection refused",
        "there is no endpoint, and who may ask is told"
    );
    assert_eq!(asked(&cluster.pods[1]), "timed out", "who may not ask is told nothing");
}

#[test]
fn traffic_that_must_stay_here_is_dropped_where_nothing_is_here_but_for_pods_and_the_host() {
    let cluster = Cluster::new();
    lead_here(&cluster, "192.0.2.77");
    let elsewhere = BALANCED.replace("node-a", "node-b");
    let asked = |net: &NetNs, to: &str| net.run(|| Ok(ask_briefly(to))).unwrap();
    // Who comes from outside is neither a Pod nor the host: one with an address of its own behind a link.
    let outside = outside(&cluster);
    let node = "192.0.2.1:30080";
    cluster.apply(&BALANCED.replace("MORE", "externalTrafficPolicy: Local"));
    assert_eq!(
        asked(&outside, node),
        "pod1 to 198.18.0.2",
        "the client's address is seen: {}",
        cluster.listing()
    );
    cluster.apply(&elsewhere.replace("MORE", "externalTrafficPolicy: Local"));
    assert_eq!(asked(&outside, node), "timed out");
    for to in [node, "192.0.2.77:80"] {
        assert_eq!(asked(&cluster.host, to), "pod1 to 10.42.0.1", "{to}");
        assert_eq!(asked(&cluster.pods[0], to), "pod1 to 10.42.0.2", "{to}");
    }
    cluster.apply(&elsewhere.replace("MORE", "internalTrafficPolicy: Local"));
    assert_eq!(asked(&cluster.pods[0], "10.43.0.5:80"), "timed out", "{}", cluster.listing());
    assert_eq!(asked(&cluster.host, "10.43.0.5:80"), "timed out");
    assert_eq!(asked(&outside, node), "pod1 to 10.42.0.1");
    cluster.apply(&BALANCED.replace("MORE", "internalTrafficPolicy: Local"));
    assert_eq!(asked(&cluster.pods[0], "10.43.0.5:80"), "pod1 to 10.42.0.2");
}

/// A machine beside the host, with the address 198.18.0.2.
fn outside(cluster: &Cluster) -> NetNs {
    use std::os::fd::AsFd;

    use sys::netlink::{Address, NewRoute, Route, VethPeer};
    let outside = NetNs::anonymous().unwrap();
    let ip = |text: &str| text.parse().unwrap();
    cluster
        .host
        .run(|| {
            let mut route = Route::open()?;
            let peer = VethPeer { name: "eth0", namespace: outside.as_fd(), mac: None };
            route.create_veth("uplink", None, None, &peer)?;
            route.set_up("uplink")?;
            let link = route.index("uplink")?;
            route.add_address(Address { link, ip: ip("198.18.0.1"), prefix: 24 })
        })
        .unwrap();
    outside
        .run(|| {
            let mut route = Route::open()?;
            route.set_up("eth0")?;
            let link = route.index("eth0")?;
            route.add_address(Address { link, ip: ip("198.18.0.2"), prefix: 24 })?;
            route.add_route(&NewRoute {
                destination: Some((ip("192.0.2.0"), 24)),
                gateway: Some(ip("198.18.0.1")),
                link: Some(link),
                ..NewRoute::default()
            })
        })
        .unwrap();
    outside
}

#[test]
fn node_ports_are_at_the_nodes_address_or_in_networks_and_never_on_loopback() {
    let cluster = Cluster::new();
    lead_here(&cluster, "192.0.2.77");
    let yaml = BALANCED.replace("MORE", "");
    let networks = |text: &[&str]| {
        let all = text.iter().map(|text| text.parse::<machinery::net::Cidr>().unwrap().v4().unwrap());
        NodePortAddresses::Networks(all.collect())
    };
    for (what, addresses, at_primary, at_other) in [
        ("primary", NodePortAddresses::Primary, true, false),
        ("all", networks(&["0.0.0.0/0"]), true, true),
        ("one network", networks(&["192.0.2.64/26"]), false, true),
        ("two networks", networks(&["192.0.2.64/26", "192.0.2.0/30"]), true, true),
        ("loopback", networks(&["127.0.0.0/8"]), false, false),
    ] {
        let config = Config { node_port_addresses: addresses, ..config() };
        let mut kernel = Kernel::new(config, &base::metrics::Metrics::new());
        cluster.host.run(|| kernel.program(changed(&yaml))).unwrap();
        for (to, answers) in
            [("192.0.2.1:30080", at_primary), ("192.0.2.77:30080", at_other), ("127.0.0.1:30080", false)]
        {
            let expect = if answers { "pod1 to 10.42.0.1" } else { "connection refused" };
            assert_eq!(cluster.asked_by_host(to), expect, "{what}: {to}");
        }
    }
}

#[test]
fn a_services_ways_in_are_these() {
    let endpoints = "{metadata: {name: web}, ports: [{name: a, port: 1}, {name: b, port: 2, protocol: SCTP}], endpoints: [{addresses: [10.42.0.2], nodeName: node-a}, {addresses: [10.42.1.2], nodeName: node-b}]}";
    let check = |what: &str, spec: &str, status: &str, expect: &[&str]| {
        let service = format!(
            "{{metadata: {{name: web}}, spec: {{clusterIP: 10.43.0.5, {spec}}}, status: {{{status}}}}}"
        );
        let table = table(&format!("[{service}, {endpoints}]"));
        let mut found: Vec<String> = Vec::new();
        for set in ["service-ips", "node-ports"] {
            for (key, data) in &table.sets[set].elements {
                let bytes = key.bytes();
                let (ip, rest) = if set == "node-ports" {
                    (String::new(), bytes)
                } else {
                    (format!("{} ", Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[..4]).unwrap())), &bytes[4..])
                };
                let to = match data {
                    Data::Verdict(Verdict::Goto(chain)) => {
                        chain.split("/default/web").collect::<Vec<_>>().join(" ")
                    }
                    other => format!("{other:?}"),
                };
                found.push(format!("{ip}{}/{} {to}", u16::from_be_bytes([rest[4], rest[5]]), rest[0]));
            }
        }
        assert_eq!(found, expect, "{what}");
    };
    check("one port", "ports: [{name: a, port: 80}]", "", &["10.43.0.5 80/6 service /a/6"]);
    check(
        "several ports and protocols",
        "ports: [{name: a, port: 80}, {name: b, port: 80, protocol: SCTP}, {name: c, port: 81}]",
        "",
        &["10.43.0.5 80/6 service /a/6", "10.43.0.5 80/132 service /b/132"],
    );
    check(
        "a balancer without ports of Nodes",
        "type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{name: a, port: 80}]",
        "loadBalancer: {ingress: [{ip: 192.0.2.77}, {ip: 192.0.2.78, ipMode: VIP}, {hostname: x.example}]}",
        &["10.43.0.5 80/6 service /a/6", "192.0.2.77 80/6 external /a/6", "192.0.2.78 80/6 external /a/6"],
    );
    check(
        "a balancer that is a proxy itself",
        "type: LoadBalancer, ports: [{name: a, port: 80, nodePort: 30080}]",
        "loadBalancer: {ingress: [{ip: 192.0.2.77, ipMode: Proxy}]}",
        &["10.43.0.5 80/6 service /a/6", "30080/6 external /a/6"],
    );
    check(
        "source ranges",
        "type: LoadBalancer, externalIPs: [192.0.2.9], loadBalancerSourceRanges: [10.0.0.0/8], ports: [{name: a, port: 80, nodePort: 30080}]",
        "loadBalancer: {ingress: [{ip: 192.0.2.77}]}",
        &[
            "10.43.0.5 80/6 service /a/6",
            "192.0.2.9 80/6 external /a/6",
            "192.0.2.77 80/6 firewall /a/6",
            "30080/6 external /a/6",
        ],
    );
}
