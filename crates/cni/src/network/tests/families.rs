//! Pods with IPv6 addresses, alone and beside those of IPv4: how they reach each other and the host, and what they cannot
//! make others believe.

use std::net::Ipv6Addr;
use std::process::Command;

use sys::netlink::{Address, NewRoute};

use super::*;

const V6: (&str, &str) = ("fd42::/64", "fd42::/56");
const V4: (&str, &str) = ("10.42.0.0/24", "10.42.0.0/16");

/// Whose Pods have addresses of both families, or of the second alone.
fn hosts() -> Vec<(&'static str, Host)> {
    let both = |one: (&str, &str), other: (&str, &str)| {
        Host::with(&format!("{},{}", one.0, other.0), &format!("{},{}", one.1, other.1))
    };
    vec![("IPv6", Host::with(V6.0, V6.1)), ("IPv4 and IPv6", both(V4, V6)), ("IPv6 and IPv4", both(V6, V4))]
}

fn says(namespace: &NetNs, command: &str) -> String {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap());
    let output = namespace.run(|| Ok(program.args(words).output().unwrap())).unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn port(host_port: u16, host_ip: &str) -> PortMapping {
    PortMapping { host_port, container_port: 80, protocol: "TCP".into(), host_ip: host_ip.into() }
}

#[test]
fn pods_of_each_kind_of_cluster_reach_each_other_the_host_and_host_ports_and_leave_nothing() {
    for (case, host) in hosts() {
        let cidrs = host.config.pod_cidrs;
        let at = |last: u64| cidrs.iter().map(|cidr| cidr.nth(last).unwrap()).collect::<Vec<_>>();
        let text = |ip: IpAddr, port: u16| SocketAddr::new(ip, port).to_string();
        let network = host.load();
        let (a, mut b) = (host.pod("a"), host.pod("b"));
        b.port_mappings = vec![port(8080, "")];
        let (first, second) = host.on(|| (network.add(&a).unwrap(), network.add(&b).unwrap()));
        assert_eq!((first.pod_ips("eth0"), second.pod_ips("eth0")), (at(2), at(3)), "{case}");
        serve(&b, 80);
        // Nothing waits until an address is known to be nobody else's.
        let tentative =
            inside(&a, || says(&NetNs::current().unwrap(), "ip -6 address show dev eth0 tentative"));
        assert_eq!(tentative, "", "{case}");
        for ((own, pod), gateway) in at(2).into_iter().zip(at(3)).zip(at(1)) {
            let (own, gateway_text) = (own.to_string(), gateway.to_string());
            assert_eq!(inside(&a, || ask(&text(pod, 80))), own, "{case}");
            assert_eq!(host.on(|| ask(&text(pod, 80))), gateway_text, "{case}");
            let host_port = text(gateway, 8080);
            assert_eq!(inside(&a, || ask(&host_port)), own, "{case}, a host port, from another Pod");
            assert_eq!(inside(&b, || ask(&host_port)), gateway_text, "{case}, from the Pod itself");
            assert_eq!(host.on(|| ask(&host_port)), gateway_text, "{case}, from the host");
        }
        // The kernel leads nothing from the loopback address of IPv6 elsewhere: there is no port.
        let loopback: SocketAddr = (Ipv6Addr::LOCALHOST, 8080).into();
        assert_eq!(host.on(|| ask(&loopback.to_string())), "connection refused", "{case}");
        host.on(|| [&a, &b].map(|pod| network.check(pod).unwrap()));
        inside(&a, || says(&NetNs::current().unwrap(), "ip -6 route del default"));
        let missing = host.on(|| network.check(&a)).unwrap_err().to_string();
        assert!(missing.starts_with("default route is missing"), "{case}: {missing}");

        // After a restart the host port is still there, and goes with DEL.
        drop(network);
        let network = host.load();
        let host_ports: Vec<String> = at(1).into_iter().map(|ip| text(ip, 8080)).collect();
        assert!(host.on(|| host_ports.iter().all(|port| ask(port) != "connection refused")), "{case}");
        host.on(|| {
            network.del(&b).unwrap();
            network.del(&b).unwrap();
            assert!(host_ports.iter().all(|port| ask(port) == "connection refused"), "{case}");
            assert_eq!(network.retain(&BTreeSet::new()).unwrap(), ["a"]);
            let id = &host.config.cluster_id;
            let tables = ["nftables table knarr-test-cni", "nftables table ip6 knarr-test-cni"];
            let tables = &tables[if cidrs.of(Family::V4).is_some() { 0 } else { 1 }..];
            let left = [&["link kn-test"], tables, &["nftables table netdev knarr-test-cni"]].concat();
            assert_eq!(crate::leftovers(id).unwrap(), left, "{case}");
            crate::cleanup(id, &host.config.state_dir).unwrap();
            assert_eq!(crate::leftovers(id).unwrap(), Vec::<String>::new());
            for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
                assert_eq!(sys::netns::sysctl(key).unwrap(), "0", "{case}");
            }
        });
        [&a, &b].iter().for_each(|pod| delete(&pod.netns_path).unwrap());
    }
}

#[test]
fn host_ports_of_one_address_are_of_its_family() {
    let (_, host) = hosts().remove(1);
    let network = host.load();
    let mut pod = host.pod("a");
    pod.port_mappings =
        vec![port(8081, "0.0.0.0"), port(8082, "::"), port(8083, "fd42::1"), port(8084, "10.42.0.1")];
    host.on(|| network.add(&pod).unwrap());
    serve(&pod, 80);
    for (port, v4, v6) in [(8081, true, false), (8082, false, true), (8083, false, true), (8084, true, false)]
    {
        for (ip, is_open) in [("10.42.0.1", v4), ("fd42::1", v6)] {
            let to = SocketAddr::new(ip.parse().unwrap(), port).to_string();
            let expect = if is_open { ip } else { "connection refused" };
            assert_eq!(host.on(|| ask(&to)), expect, "{to}");
        }
    }
    host.on(|| network.check(&pod).unwrap());
    says(&host.ns, "nft delete table ip6 knarr-test-cni");
    let missing = host.on(|| network.check(&pod)).unwrap_err().to_string();
    assert_eq!(missing, "the host ports of the Pod are missing in nftables");
    host.on(|| network.del(&pod).unwrap());
}

#[test]
fn a_cluster_that_gives_up_a_family_keeps_no_rules_of_it() {
    let (_, host) = hosts().remove(1);
    drop(host.load());
    let table = || host.on(|| sys::nftables::table_names_of(sys::nftables::TableFamily::Ipv6).unwrap());
    host.on(|| host.load().status().unwrap());
    assert_eq!(table(), ["knarr-test-cni"]);
    let parse = |text: &str| text.parse().unwrap();
    let config = BuiltinConfig { pod_cidrs: parse(V4.0), cluster_cidrs: parse(V4.1), ..host.config.clone() };
    host.on(|| Network::load(&host.dir.path().join("net.d"), config).unwrap().status().unwrap());
    assert_eq!(table(), Vec::<String>::new());
}

#[test]
fn a_pod_whose_runtime_has_turned_ipv6_off_has_it() {
    let (_, host) = hosts().remove(1);
    let network = host.load();
    let pod = host.pod("a");
    inside(&pod, || {
        for link in ["all", "default"] {
            sys::netns::set_sysctl(&format!("net/ipv6/conf/{link}/disable_ipv6"), "1").unwrap();
        }
    });
    host.on(|| network.add(&pod).unwrap());
    serve(&pod, 80);
    assert_eq!(host.on(|| ask("[fd42::2]:80")), "fd42::1");
    assert_eq!(inside(&pod, || ask("[::1]:80")), "::1", "its loopback address too");
    host.on(|| network.del(&pod).unwrap());
}

/// Two Pods of both families, of which the second is hostile, and a third that believes what it is told.
fn pods() -> (Host, Network, [Attachment; 3]) {
    let (_, host) = hosts().remove(1);
    let network = host.load();
    let pods = ["a", "b", "c"].map(|id| host.pod(id));
    host.on(|| pods.each_ref().map(|pod| network.add(pod).unwrap()));
    serve(&pods[0], 80);
    (host, network, pods)
}

const VICTIM: &str = "fd42::2";
const HOSTILE: &str = "fd42::3";
const WITNESS: &str = "fd42::4";

/// Gives the hostile Pod an address that it then sends from.
fn pretend(pod: &Attachment, ip: &str) {
    inside(pod, || {
        let mut route = Route::open().unwrap();
        let link = route.index("eth0").unwrap();
        route.add_address(Address { link, ip: ip.parse().unwrap(), prefix: 128 }).unwrap();
    });
}

fn say(pod: &Attachment, from: &str, to: &str) {
    let from: IpAddr = from.parse().unwrap();
    inside(pod, || UdpSocket::bind((from, 0)).unwrap().send_to(b"?", (to, 9999)).unwrap());
}

fn listener(ip: &str) -> UdpSocket {
    let listener = UdpSocket::bind((ip, 9999)).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    listener
}

fn heard(listener: &UdpSocket) -> String {
    listener.recv_from(&mut [0; 8]).unwrap().1.ip().to_string()
}

#[test]
fn ipv6_packets_of_a_foreign_source_go_nowhere() {
    let (host, network, [victim, hostile, witness]) = pods();
    let at_host = host.on(|| listener("fd42::1"));
    let at_witness = inside(&witness, || listener(WITNESS));
    // The way is known from then on: what is said later is said once.
    for to in ["[fd42::1]:1", "[fd42::4]:1"] {
        assert_eq!(inside(&hostile, || ask(to)), "connection refused");
    }
    for pretended in [VICTIM, "2001:db8::1", "fd42::99"] {
        for (to, listener) in [("fd42::1", &at_host), (WITNESS, &at_witness)] {
            say(&hostile, HOSTILE, to);
            assert_eq!(heard(listener), HOSTILE);
            pretend(&hostile, pretended);
            say(&hostile, pretended, to);
            say(&hostile, HOSTILE, to);
            assert_eq!(heard(listener), HOSTILE, "{pretended} to {to}");
        }
    }
    assert_eq!(host.on(|| ask("[fd42::2]:80")), "fd42::1", "the other has what is its own");
    host.on(|| [&victim, &hostile, &witness].map(|pod| network.del(pod).unwrap()));
}

/// The hardware address that an address has in the view of a namespace, and what is known of it.
fn believed(namespace: &NetNs, ip: &str) -> String {
    says(namespace, &format!("ip -6 neighbour show to {ip}"))
}

/// A link that is given its hardware address tells everybody of all its addresses, in words that override what was known
/// (RFC 4861, section 7.2.6). Without the rules the third Pod believes it, so that the kernel does send what they hold back.
#[test]
fn a_pod_that_tells_all_nodes_that_it_is_another_or_the_gateway_is_not_heard() {
    let (host, network, [victim, hostile, witness]) = pods();
    let at_witness = inside(&witness, || listener(WITNESS));
    let inside_witness = NetNs::open(&witness.netns_path).unwrap();
    // What it says in its own name arrives, after all that it has said before.
    let synchronize = || {
        say(&hostile, HOSTILE, WITNESS);
        assert_eq!(heard(&at_witness), HOSTILE);
    };
    assert_eq!(inside(&witness, || ask("[fd42::2]:80")), WITNESS, "through the gateway, which it knows now");
    let mac: [u8; 6] = inside(&hostile, || {
        sys::netns::set_sysctl("net/ipv6/conf/eth0/ndisc_notify", "1").unwrap();
        Route::open().unwrap().link("eth0").unwrap().unwrap().mac.try_into().unwrap()
    });
    ["fd42::1", VICTIM].iter().for_each(|ip| pretend(&hostile, ip));
    let announce = || inside(&hostile, || Route::open().unwrap().set_mac("eth0", mac).unwrap());
    let false_mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    announce();
    inside(&hostile, || {
        let mut route = Route::open().unwrap();
        let link = route.index("eth0").unwrap();
        route.delete_address(Address { link, ip: "fd42::1".parse().unwrap(), prefix: 128 }).unwrap();
    });
    synchronize();
    let known = believed(&inside_witness, "fd42::1");
    assert!(known.contains("lladdr") && !known.contains(&false_mac), "{known}");
    assert!(host.on(|| believed(&NetNs::current().unwrap(), VICTIM)).contains("PERMANENT"));
    assert_eq!(inside(&victim, || ask("[fd42::1]:1")), "connection refused", "the gateway is the host");

    host.on(|| sys::nftables::port::delete(&crate::table_name("test")).unwrap());
    pretend(&hostile, "fd42::1");
    announce();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !believed(&inside_witness, "fd42::1").contains(&false_mac) {
        assert!(std::time::Instant::now() < deadline, "without the rules it is believed");
        std::thread::yield_now();
    }
    host.on(|| [&victim, &hostile, &witness].map(|pod| network.del(pod).unwrap()));
}

/// As with IPv4: what a Pod gives straight to its neighbour on the bridge the host would not see.
#[test]
fn a_pod_reaches_another_by_ipv6_through_the_host_and_no_other_way() {
    let (host, network, [victim, hostile, witness]) = pods();
    let mac = |pod: &Attachment| -> [u8; 6] {
        inside(pod, || Route::open().unwrap().link("eth0").unwrap().unwrap().mac).try_into().unwrap()
    };
    let of_victim = mac(&victim);
    let of_bridge: [u8; 6] =
        host.on(|| Route::open().unwrap().link("kn-test").unwrap().unwrap().mac).try_into().unwrap();
    let at_victim = inside(&victim, || listener(VICTIM));
    let say = |to: [u8; 6], text: &[u8]| {
        inside(&hostile, || {
            let mut route = Route::open().unwrap();
            let link = route.index("eth0").unwrap();
            let ip: IpAddr = VICTIM.parse().unwrap();
            let direct = NewRoute { destination: Some((ip, 128)), link: Some(link), ..Default::default() };
            route.add_route(&direct).unwrap();
            route.set_neighbour(link, ip, to).unwrap();
            UdpSocket::bind((HOSTILE, 0)).unwrap().send_to(text, (VICTIM, 9999)).unwrap();
        });
    };
    let told = || {
        let mut text = [0; 16];
        let length = at_victim.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    say(of_victim, b"neighbour");
    say([0x33, 0x33, 0, 0, 0, 1], b"all");
    say([0x33, 0x33, 0xff, 0, 0, 1], b"who asks for the host");
    say(of_bridge, b"host");
    assert_eq!(told(), "host");
    host.on(|| sys::nftables::port::delete(&crate::table_name("test")).unwrap());
    say(of_victim, b"neighbour");
    assert_eq!(told(), "neighbour", "without the rules");
    host.on(|| [&victim, &hostile, &witness].map(|pod| network.del(pod).unwrap()));
}
