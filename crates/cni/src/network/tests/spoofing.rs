//! A Pod that says it is another: nothing of it arrives, and the other keeps what is its own.

use std::net::Ipv4Addr;

use super::*;

const HOST: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const HOSTILE: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);
const WITNESS: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 4);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// Two Pods, of which the second is hostile.
fn two_pods() -> (Host, Network, Attachment, Attachment) {
    let host = Host::new();
    let network = host.load();
    let (victim, hostile) = (host.pod("a"), host.pod("b"));
    host.on(|| {
        assert_eq!(network.add(&victim).unwrap().pod_ips("eth0"), [IpAddr::from(VICTIM)]);
        assert_eq!(network.add(&hostile).unwrap().pod_ips("eth0"), [IpAddr::from(HOSTILE)]);
    });
    serve(&victim, 80);
    (host, network, victim, hostile)
}

/// Who the host has heard from when the hostile Pod has said something in another's name, and then in its own.
fn heard(host: &Host, hostile: &Attachment, pretended: Ipv4Addr) -> Vec<IpAddr> {
    let listener = host.on(|| UdpSocket::bind((HOST, 9999)).unwrap());
    listener.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let say = |from: Ipv4Addr| {
        inside(hostile, || UdpSocket::bind((from, 0)).unwrap().send_to(b"?", (HOST, 9999)).unwrap());
    };
    let listen = || listener.recv_from(&mut [0; 8]).unwrap().1.ip();
    // The host's hardware address is known from then on.
    say(HOSTILE);
    assert_eq!(listen(), IpAddr::from(HOSTILE));
    inside(hostile, || {
        let mut route = Route::open().unwrap();
        let link = route.index("eth0").unwrap();
        route.add_address(sys::netlink::Address { link, ip: pretended.into(), prefix: 32 }).unwrap();
    });
    say(pretended);
    say(HOSTILE);
    let mut all = vec![listen()];
    if all != [IpAddr::from(HOSTILE)] {
        all.push(listen());
    }
    all
}

#[test]
fn packets_of_a_foreign_source_go_nowhere() {
    for pretended in [VICTIM, ELSEWHERE] {
        let (host, network, victim, hostile) = two_pods();
        assert_eq!(heard(&host, &hostile, pretended), [IpAddr::from(HOSTILE)], "{pretended}");
        assert_eq!(host.on(|| ask("10.42.0.2:80")), "10.42.0.1", "the other has what is its own");
        host.on(|| [&victim, &hostile].map(|pod| network.del(pod).unwrap()));
    }
}

/// The hardware address that an address has in the view of this thread's namespace, if any.
fn believed(ip: Ipv4Addr) -> Option<String> {
    let table = fs::read_to_string("/proc/thread-self/net/arp").unwrap();
    // IP address, HW type, Flags, HW address, Mask, Device.
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.first() == Some(&ip.to_string().as_str())).map(|row| row[3].to_owned())
}

/// A third Pod, which believes whatever it is told unasked, is told nothing: neither that the hostile one is another, nor
/// that it is the gateway. Without the rules it believes both, so that the kernel does send what the rules hold back.
#[test]
fn a_pod_that_tells_everybody_that_it_is_another_or_the_gateway_is_not_heard() {
    let (host, network, victim, hostile) = two_pods();
    let witness = host.pod("c");
    host.on(|| assert_eq!(network.add(&witness).unwrap().pod_ips("eth0"), [IpAddr::from(WITNESS)]));
    inside(&witness, || sys::netns::set_sysctl("net/ipv4/conf/eth0/arp_accept", "1").unwrap());
    let listener = inside(&witness, || UdpSocket::bind((WITNESS, 9999)).unwrap());
    listener.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // What it says in its own name arrives, after all that it has said before.
    let say = || {
        inside(&hostile, || UdpSocket::bind((HOSTILE, 0)).unwrap().send_to(b"?", (WITNESS, 9999)).unwrap());
        assert_eq!(listener.recv_from(&mut [0; 8]).unwrap().1.ip(), IpAddr::from(HOSTILE));
    };
    say();
    let mac: [u8; 6] = inside(&hostile, || {
        let mut route = Route::open().unwrap();
        let link = route.link("eth0").unwrap().unwrap();
        for ip in [VICTIM.into(), HOST.into()] {
            route.add_address(sys::netlink::Address { link: link.index, ip, prefix: 32 }).unwrap();
        }
        sys::netns::set_sysctl("net/ipv4/conf/eth0/arp_notify", "1").unwrap();
        link.mac.try_into().unwrap()
    });
    // A link that is given its hardware address tells everybody of all its addresses.
    let announce = || inside(&hostile, || Route::open().unwrap().set_mac("eth0", mac).unwrap());
    let false_mac = Some(mac.map(|byte| format!("{byte:02x}")).join(":"));
    announce();
    say();
    for pretended in [VICTIM, HOST] {
        assert_ne!(inside(&witness, || believed(pretended)), false_mac, "{pretended}");
    }
    assert_eq!(host.on(|| ask("10.42.0.2:80")), "10.42.0.1");
    assert_eq!(inside(&witness, || ask("10.42.0.2:80")), WITNESS.to_string(), "through the gateway");
    assert_eq!(inside(&victim, || ask("10.42.0.1:1")), "connection refused", "the gateway is the host");

    host.on(|| sys::nftables::port::delete(&crate::table_name("test")).unwrap());
    announce();
    say();
    for pretended in [VICTIM, HOST] {
        assert_eq!(inside(&witness, || believed(pretended)), false_mac, "{pretended}, without the rules");
    }
    let told = host.on(|| believed(VICTIM));
    assert!(told.is_some() && told != false_mac, "the host's entries are permanent: {told:?}");
    host.on(|| [&victim, &hostile, &witness].map(|pod| network.del(pod).unwrap()));
}

#[test]
fn a_pod_with_the_hardware_address_of_another_says_nothing() {
    let (host, network, victim, hostile) = two_pods();
    let mac_of_victim = inside(&victim, || Route::open().unwrap().link("eth0").unwrap().unwrap().mac);
    let mac: [u8; 6] = mac_of_victim.try_into().unwrap();
    let listener = host.on(|| UdpSocket::bind((HOST, 9999)).unwrap());
    listener.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let own = inside(&hostile, || {
        let mut route = Route::open().unwrap();
        let link = route.link("eth0").unwrap().unwrap();
        let bridge = host.on(|| Route::open().unwrap().link("kn-test").unwrap().unwrap().mac);
        route.set_neighbour(link.index, HOST.into(), bridge.try_into().unwrap()).unwrap();
        route.set_mac("eth0", mac).unwrap();
        UdpSocket::bind((HOSTILE, 0)).unwrap().send_to(b"foreign", (HOST, 9999)).unwrap();
        link.mac
    });
    assert_eq!(host.on(|| ask("10.42.0.2:80")), "10.42.0.1");
    inside(&hostile, || {
        Route::open().unwrap().set_mac("eth0", own.try_into().unwrap()).unwrap();
        UdpSocket::bind((HOSTILE, 0)).unwrap().send_to(b"own", (HOST, 9999)).unwrap();
    });
    let mut text = [0; 16];
    let length = listener.recv(&mut text).unwrap();
    assert_eq!(&text[..length], b"own");
    host.on(|| [&victim, &hostile].map(|pod| network.del(pod).unwrap()));
}

#[test]
fn the_rules_of_a_port_come_again_and_go_with_it() {
    let (host, network, victim, hostile) = two_pods();
    let table = crate::table_name("test");
    let guarded = || {
        let chains = sys::nftables::base_chains().unwrap();
        chains.into_iter().filter(|chain| chain.table == table && chain.name.starts_with("kv")).count()
    };
    host.on(|| {
        assert_eq!(guarded(), 2);
        sys::nftables::port::delete(&table).unwrap();
        network.check(&victim).unwrap();
        network.check(&hostile).unwrap();
        assert_eq!(guarded(), 2);
        network.add(&victim).unwrap();
        assert_eq!(guarded(), 2);
        network.del(&victim).unwrap();
        assert_eq!(guarded(), 1);
        network.retain(&BTreeSet::new()).unwrap();
        assert_eq!(guarded(), 0);
        crate::cleanup("test", &host.config.state_dir).unwrap();
        assert_eq!(sys::nftables::port::tables().unwrap(), Vec::<String>::new());
    });
}

fn nft(command: &str) -> String {
    let output = std::process::Command::new("nft").args(command.split(' ')).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All of the network's rules are taken, as a firewall does that begins anew; one Pod's link has gone meanwhile.
#[test]
fn rules_that_somebody_flushes_are_made_again() {
    let (host, network, victim, hostile) = two_pods();
    let mapped = Attachment {
        port_mappings: vec![PortMapping {
            host_port: 8080,
            container_port: 80,
            protocol: "tcp".into(),
            host_ip: String::new(),
        }],
        ..host.pod("c")
    };
    host.on(|| network.add(&mapped).unwrap());
    let rules = || {
        let listed = nft("list ruleset");
        let mut lines: Vec<String> = listed.lines().map(|line| line.trim().to_owned()).collect();
        lines.sort();
        lines
    };
    host.on(|| {
        let before = rules();
        assert!(before.iter().any(|line| line.contains("masquerade")), "{before:#?}");
        nft("flush ruleset");
        assert_eq!(rules(), Vec::<String>::new());
        network.rules_again().unwrap();
        assert_eq!(rules(), before);
        // Nobody has taken anything.
        network.rules_again().unwrap();
        assert_eq!(rules(), before);
        // Some of a chain.
        nft(&format!("flush chain ip {} postrouting", crate::table_name("test")));
        network.rules_again().unwrap();
        assert_eq!(rules(), before);
    });
    inside(&victim, || Route::open().unwrap().delete_link("eth0").unwrap());
    host.on(|| {
        nft("flush ruleset");
        network.rules_again().unwrap();
        let chains = sys::nftables::base_chains().unwrap();
        assert_eq!(chains.iter().filter(|chain| chain.name.starts_with("kv")).count(), 2);
        [&victim, &hostile, &mapped].into_iter().for_each(|pod| network.del(pod).unwrap());
    });
}

/// A Pod that may send whatever it likes gives its packets straight to its neighbour on the bridge, or to all of them: what
/// the host decides about forwarded packets would not see them.
#[test]
fn a_pod_reaches_another_through_the_host_and_no_other_way() {
    let (host, network, victim, hostile) = two_pods();
    let mac = |pod: &Attachment| -> [u8; 6] {
        inside(pod, || Route::open().unwrap().link("eth0").unwrap().unwrap().mac).try_into().unwrap()
    };
    let (of_victim, of_bridge) = (
        mac(&victim),
        host.on(|| Route::open().unwrap().link("kn-test").unwrap().unwrap().mac).try_into().unwrap(),
    );
    let listener = inside(&victim, || UdpSocket::bind((VICTIM, 9999)).unwrap());
    listener.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let say = |to: [u8; 6], text: &[u8]| {
        inside(&hostile, || {
            let mut route = Route::open().unwrap();
            let link = route.index("eth0").unwrap();
            let destination = Some((IpAddr::from(VICTIM), 32));
            let direct = sys::netlink::NewRoute { destination, link: Some(link), ..Default::default() };
            route.add_route(&direct).unwrap();
            route.set_neighbour(link, VICTIM.into(), to).unwrap();
            UdpSocket::bind((HOSTILE, 0)).unwrap().send_to(text, (VICTIM, 9999)).unwrap();
        });
    };
    let heard = || {
        let mut text = [0; 16];
        let length = listener.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    say(of_victim, b"neighbour");
    say([0xff; 6], b"all");
    say(of_bridge, b"host");
    assert_eq!(heard(), "host");
    host.on(|| sys::nftables::port::delete(&crate::table_name("test")).unwrap());
    say(of_victim, b"neighbour");
    assert_eq!(heard(), "neighbour", "without the rules");
    host.on(|| [&victim, &hostile].map(|pod| network.del(pod).unwrap()));
}
