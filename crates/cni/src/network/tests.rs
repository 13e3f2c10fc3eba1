use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use sys::netlink::{Route, VethPeer};
use sys::netns::{NetNs, delete};

use super::*;
use crate::types::PortMapping;

mod families;
mod real;
mod spoofing;

/// How a script says what it speaks.
const SPEAKS: &str = "if [ $CNI_COMMAND = VERSION ]; then cat > /dev/null; \
     echo '{\"cniVersion\": \"1.1.0\", \"supportedVersions\": [\"1.0.0\", \"1.1.0\"]}'; exit 0; fi";

/// A host and its network, each in a namespace and directory of its own.
struct Host {
    ns: NetNs,
    dir: tempfile::TempDir,
    config: BuiltinConfig,
}

impl Host {
    fn new() -> Self {
        Self::with("10.42.0.0/24", "10.42.0.0/16")
    }

    /// With these networks of its Pods and of all.
    fn with(pod_cidrs: &str, cluster_cidrs: &str) -> Self {
        assert!(nix_is_root(), "this test makes network namespaces: run it as root");
        let dir = tempfile::tempdir().unwrap();
        let config = BuiltinConfig {
            cluster_id: "test".into(),
            pod_cidrs: pod_cidrs.parse().unwrap(),
            cluster_cidrs: cluster_cidrs.parse().unwrap(),
            mtu: None,
            state_dir: dir.path().join("cni"),
            bin_dirs: vec![dir.path().join("bin")],
            own_bin_dir: None,
            is_fallback: true,
        };
        Self { ns: NetNs::anonymous().unwrap(), dir, config }
    }

    fn on<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.ns.run(|| Ok(f())).unwrap()
    }

    fn load(&self) -> Network {
        self.on(|| Network::load(&self.dir.path().join("net.d"), self.config.clone()).unwrap())
    }

    fn pod(&self, id: &str) -> Attachment {
        let netns_path = self.dir.path().join(id);
        NetNs::create(&netns_path).unwrap();
        Attachment { container_id: id.into(), netns_path, ifname: "eth0".into(), ..Attachment::default() }
    }
}

impl Drop for Host {
    /// The Pods' namespaces go with their host, also when a test fails.
    fn drop(&mut self) {
        sys::mount::detach_below(self.dir.path()).unwrap();
    }
}

fn nix_is_root() -> bool {
    std::fs::metadata("/proc/self")
        .map(|meta| std::os::unix::fs::MetadataExt::uid(&meta))
        .is_ok_and(|uid| uid == 0)
}

fn inside<T: Send>(attachment: &Attachment, f: impl FnOnce() -> T + Send) -> T {
    NetNs::open(&attachment.netns_path).unwrap().run(|| Ok(f())).unwrap()
}

/// Serves one connection after the other with the peer's address.
fn serve(attachment: &Attachment, port: u16) {
    let listener = inside(attachment, || {
        // Of both families where the kernel has both.
        TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port))).unwrap()
    });
    std::thread::spawn(move || {
        while let Ok((mut stream, peer)) = listener.accept() {
            write!(stream, "{}", peer.ip().to_canonical()).unwrap();
        }
    });
}

fn ask(to: &str) -> String {
    ask_within(Duration::from_secs(60), to)
}

/// The same, of what may well not answer.
fn ask_within(time: Duration, to: &str) -> String {
    let to: SocketAddr = to.parse().unwrap();
    let mut answer = String::new();
    match TcpStream::connect_timeout(&to, time) {
        Ok(mut stream) => stream.read_to_string(&mut answer).unwrap(),
        Err(error) => return error.kind().to_string(),
    };
    answer
}

#[test]
fn pods_reach_each_other_the_host_and_a_host_port_and_leave_nothing() {
    let host = Host::new();
    let network = host.load();
    let a = host.pod("a");
    let mut b = host.pod("b");
    b.port_mappings = vec![PortMapping {
        host_port: 8080,
        container_port: 80,
        protocol: "TCP".into(),
        host_ip: String::new(),
    }];
    let (first, second) = host.on(|| (network.add(&a).unwrap(), network.add(&b).unwrap()));
    assert_eq!(first.pod_ips("eth0"), [IpAddr::from([10, 42, 0, 2])]);
    assert_eq!(second.pod_ips("eth0"), [IpAddr::from([10, 42, 0, 3])]);
    serve(&b, 80);
    assert_eq!(inside(&a, || ask("10.42.0.3:80")), "10.42.0.2");
    assert_eq!(host.on(|| ask("10.42.0.3:80")), "10.42.0.1");
    assert_eq!(inside(&a, || ask("10.42.0.1:8080")), "10.42.0.2", "a host port, from another Pod");
    assert_eq!(inside(&b, || ask("10.42.0.1:8080")), "10.42.0.1", "a host port, from the Pod itself");
    assert_eq!(host.on(|| ask("10.42.0.1:8080")), "10.42.0.1");
    assert_eq!(host.on(|| ask("127.0.0.1:8080")), "10.42.0.1", "a host port, from the host's loopback");

    host.on(|| network.check(&a).unwrap());
    inside(&a, || {
        let mut route = sys::netlink::Route::open().unwrap();
        route.set_down("eth0").unwrap();
    });
    assert!(host.on(|| network.check(&a)).unwrap_err().to_string().starts_with("default route is missing"));

    // After a restart the host port is still there, and goes with DEL.
    drop(network);
    let network = host.load();
    assert_eq!(inside(&a, || ask("10.42.0.1:8080")), "network unreachable", "its interface is down");
    assert_eq!(host.on(|| ask("10.42.0.1:8080")), "10.42.0.1");
    delete(&b.netns_path).unwrap();
    let nameless = Attachment { port_mappings: Vec::new(), ..b.clone() };
    host.on(|| {
        network.del(&nameless).unwrap();
        network.del(&nameless).unwrap();
        assert_eq!(ask("10.42.0.1:8080"), "connection refused");
        let detached = network.retain(&BTreeSet::new()).unwrap();
        assert_eq!(detached, ["a"]);
        let id = &host.config.cluster_id;
        let left = ["link kn-test", "nftables table knarr-test-cni", "nftables table netdev knarr-test-cni"];
        assert_eq!(crate::leftovers(id).unwrap(), left);
        crate::cleanup(id, &host.config.state_dir).unwrap();
        assert_eq!(crate::leftovers(id).unwrap(), Vec::<String>::new());
        assert_eq!(sys::netns::sysctl("net/ipv4/ip_forward").unwrap(), "0");
    });
    delete(&a.netns_path).unwrap();
}

#[test]
fn a_result_that_a_power_cut_left_empty_holds_up_nobody() {
    let host = Host::new();
    let (lost, other) = (host.pod("lost"), host.pod("other"));
    let network = host.load();
    host.on(|| network.add(&lost)).unwrap();
    let results = host.config.state_dir.join("results");
    let file = fs::read_dir(&results).unwrap().next().unwrap().unwrap().path();
    fs::write(&file, "").unwrap();
    let network = host.load();
    host.on(|| network.status()).unwrap();
    host.on(|| network.add(&other)).unwrap();
    assert!(network.result("lost", "eth0").unwrap().is_none());
    let keep: BTreeSet<String> = ["lost".to_owned(), "other".to_owned()].into();
    host.on(|| network.retain(&keep)).unwrap();
    assert!(file.exists(), "it is of a Pod that is there");
    host.on(|| network.del(&lost)).unwrap();
    assert!(!file.exists());
    fs::write(&file, "{").unwrap();
    let keep: BTreeSet<String> = ["other".to_owned()].into();
    assert_eq!(host.on(|| network.retain(&keep)).unwrap(), Vec::<String>::new());
    assert!(!file.exists(), "whose Pod is gone");
    host.on(|| network.check(&other)).unwrap();
}

#[test]
fn a_bridge_that_was_left_half_made_is_finished_and_what_is_no_bridge_is_refused() {
    let host = Host::new();
    let name = host.config.conflist().plugins[0]["bridge"].as_str().unwrap().to_owned();
    host.on(|| {
        let mut route = Route::open().unwrap();
        route.create_bridge(&name).unwrap();
        route.set_up(&name).unwrap();
    });
    let network = host.load();
    let pod = host.pod("pod");
    host.on(|| network.add(&pod)).unwrap();
    let gateway = IpAddr::from([10, 42, 0, 1]);
    host.on(|| assert!(Route::open().unwrap().addresses().unwrap().iter().any(|it| it.ip == gateway)));
    assert_eq!(host.on(|| sys::netns::sysctl("net/ipv4/ip_forward")).unwrap(), "1");

    let host = Host::new();
    let elsewhere = NetNs::anonymous().unwrap();
    let peer = VethPeer { name: "x", namespace: elsewhere.as_fd(), mac: None };
    host.on(|| Route::open().unwrap().create_veth(&name, None, None, &peer)).unwrap();
    let network = host.load();
    let refused = host.on(|| network.status()).unwrap_err().to_string();
    assert!(refused.contains("is no bridge"), "{refused}");
}

#[test]
fn a_reset_takes_the_built_in_network_for_its_own_whatever_range_its_pods_had() {
    let host = Host::new();
    let (network, pod) = (host.load(), host.pod("a"));
    host.on(|| network.add(&pod).unwrap());
    let of_all = BuiltinConfig { pod_cidrs: host.config.cluster_cidrs, ..host.config.clone() };
    assert_eq!(host.on(|| detach_foreign(&of_all).unwrap()), 0);
    let others = BuiltinConfig { cluster_id: "other".into(), ..host.config.clone() };
    assert!(!is_same(&host.config.conflist(), &others.conflist()));
    host.on(|| network.del(&pod).unwrap());
    delete(&pod.netns_path).unwrap();
}

#[test]
fn host_ports_let_no_pod_at_what_listens_on_the_hosts_loopback() {
    let host = Host::new();
    let network = host.load();
    let mut pod = host.pod("a");
    pod.port_mappings = vec![PortMapping {
        host_port: 8080,
        container_port: 80,
        protocol: "TCP".into(),
        host_ip: "127.0.0.1".into(),
    }];
    host.on(|| network.add(&pod).unwrap());
    serve(&pod, 80);
    assert_eq!(host.on(|| ask("127.0.0.1:8080")), "10.42.0.1");
    assert_eq!(host.on(|| ask("10.42.0.1:8080")), "connection refused", "another address");
    let loopback = host.on(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let to = loopback.local_addr().unwrap().to_string();
    let offered = std::thread::spawn(move || loopback.accept().map(|(_, peer)| peer.ip()));
    let asked = inside(&pod, || {
        // What is meant for its own loopback address goes to the host.
        for command in ["ip link set lo down", "ip route add 127.0.0.1 via 10.42.0.1 dev eth0 onlink"] {
            let mut words = command.split(' ');
            let done = std::process::Command::new(words.next().unwrap()).args(words).status().unwrap();
            assert!(done.success(), "{command}");
        }
        sys::netns::set_sysctl("net/ipv4/conf/eth0/route_localnet", "1").unwrap();
        // Long enough for what is lost to be sent once more.
        ask_within(Duration::from_secs(2), &to)
    });
    assert_eq!(asked, "timed out");
    assert_eq!(host.on(|| ask(&to)), "", "it listens all the time");
    assert_eq!(offered.join().unwrap().unwrap(), IpAddr::from([127, 0, 0, 1]), "nobody was there before");
    host.on(|| network.del(&pod).unwrap());
    delete(&pod.netns_path).unwrap();
}

#[test]
fn attaching_takes_about_a_millisecond_and_can_be_repeated() {
    let host = Host::new();
    let network = host.load();
    let pods: Vec<Attachment> = (0..20).map(|n| host.pod(&format!("p{n}"))).collect();
    host.on(|| {
        let start = std::time::Instant::now();
        for pod in &pods {
            network.add(pod).unwrap();
        }
        println!("{:?} per ADD", start.elapsed() / 20);
        let again = network.add(&pods[0]).unwrap();
        assert_eq!(again, network.result("p0", "eth0").unwrap().unwrap());
        for pod in &pods {
            network.del(pod).unwrap();
        }
    });
    pods.iter().for_each(|pod| delete(&pod.netns_path).unwrap());
}

#[test]
fn a_conflist_in_the_configuration_directory_wins_and_its_binaries_are_run() {
    let host = Host::new();
    let path = |name: &str| host.dir.path().join(name);
    fs::create_dir(path("net.d")).unwrap();
    fs::create_dir(path("bin")).unwrap();
    let conflist = json!({ "cniVersion": "1.0.0", "name": "other", "plugins": [
        { "type": "fake", "capabilities": { "portMappings": true } },
    ]});
    fs::write(path("net.d/10-other.conflist"), conflist.to_string()).unwrap();
    let network = Network::load(&path("net.d"), host.config.clone()).unwrap();
    let missing = network.status().unwrap_err();
    assert!(missing.to_string().starts_with("failed to find plugin \"fake\" in path"), "{missing}");

    let log = path("log");
    let script = format!(
        "#!/bin/sh\n{SPEAKS}\nconf=$(cat)\necho \"$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS $conf\" >> {}\n\
         case $CNI_CONTAINERID in bad) echo '{{\"code\": 7, \"msg\": \"no way\"}}'; exit 1;; esac\n\
         echo '{{\"cniVersion\": \"1.0.0\", \"ips\": [{{\"address\": \"10.9.0.5/24\"}}]}}'\n",
        log.display()
    );
    fs::write(path("bin/fake"), script).unwrap();
    fs::set_permissions(path("bin/fake"), fs::Permissions::from_mode(0o755)).unwrap();
    // The binary is found without a restart.
    network.status().unwrap();
    assert_eq!(network.name().unwrap(), "other");
    let mut pod = Attachment { container_id: "c1".into(), ifname: "eth0".into(), ..Attachment::default() };
    pod.pod_name = "web".into();
    assert_eq!(network.add(&pod).unwrap().pod_ips("eth0"), [IpAddr::from([10, 9, 0, 5])]);
    network.del(&pod).unwrap();
    let bad = Attachment { container_id: "bad".into(), ..pod };
    assert_eq!(
        network.add(&bad).unwrap_err().to_string(),
        "plugin type=\"fake\" name=\"other\" failed (add): no way"
    );
    let log = fs::read_to_string(log).unwrap();
    assert!(log.starts_with("ADD c1 eth0 IgnoreUnknown=1;"), "{log}");
    assert!(
        log.contains("DEL c1") && log.contains("\"prevResult\"") && log.contains("K8S_POD_NAME=web"),
        "{log}"
    );
}

#[test]
fn plugins_are_told_at_start_what_is_attached_unless_the_configuration_says_otherwise() {
    for (disabled, expect) in
        [(json!(false), "ADD c1;ADD c2;DEL c2;GC c1c1;"), (json!("true"), "ADD c1;ADD c2;DEL c2;")]
    {
        let host = Host::new();
        let path = |name: &str| host.dir.path().join(name);
        for folder in ["net.d", "bin"] {
            fs::create_dir(path(folder)).unwrap();
        }
        let script = format!(
            "#!/bin/sh\n{SPEAKS}\nconf=$(cat)\ncase $CNI_COMMAND in STATUS) exit 0;; \
             GC) CNI_CONTAINERID=$(echo \"$conf\" | grep -o '\"containerID\":\"[^\"]*' | cut -d '\"' -f 4 | tr -d '\\n');; esac\n\
             printf '%s' \"$CNI_COMMAND $CNI_CONTAINERID;\" >> {}\necho '{{\"cniVersion\": \"1.1.0\"}}'\n",
            path("log").display()
        );
        fs::write(path("bin/fake"), script).unwrap();
        fs::set_permissions(path("bin/fake"), fs::Permissions::from_mode(0o755)).unwrap();
        let conflist = json!({ "cniVersion": "1.1.0", "name": "n", "disableGC": disabled, "plugins": [{ "type": "fake" }] });
        fs::write(path("net.d/1.conflist"), conflist.to_string()).unwrap();
        let network = host.load();
        for id in ["c1", "c2"] {
            let pod = Attachment { container_id: id.into(), ifname: "eth0".into(), ..Attachment::default() };
            network.add(&pod).unwrap();
        }
        drop(network);
        assert_eq!(host.load().retain(&BTreeSet::from(["c1".to_owned()])).unwrap(), ["c2"]);
        assert_eq!(fs::read_to_string(path("log")).unwrap(), expect);
    }
}

#[test]
fn limits_of_bandwidth_are_found_again_after_a_restart_and_leave_nothing() {
    let host = Host::new();
    let network = host.load();
    let [mut a, mut b] = ["a", "b"].map(|id| host.pod(id));
    for pod in [&mut a, &mut b] {
        let annotations =
            ["ingress", "egress"].map(|way| (format!("kubernetes.io/{way}-bandwidth"), "8M".to_owned()));
        let limits = crate::bandwidth(&annotations.into_iter().collect()).unwrap().unwrap();
        pod.capabilities.insert("bandwidth".into(), limits);
    }
    let ifbs = || {
        let links = host.on(|| Route::open().unwrap().links().unwrap());
        let ifbs = links.into_iter().filter(|link| link.kind == "ifb");
        ifbs.map(|link| link.name).collect::<Vec<_>>()
    };
    // Twice, as after an attempt that was cut off.
    for _ in 0..2 {
        host.on(|| network.add(&a)).unwrap();
    }
    assert_eq!(ifbs().len(), 1);
    let lost = || {
        let mut route = Route::open().unwrap();
        route.delete_link(&ifbs()[0]).unwrap();
    };
    host.on(lost);
    let error = host.on(|| network.check(&a)).unwrap_err().to_string();
    assert!(error.starts_with("link kb") && error.ends_with(" is missing"), "{error}");
    drop(network);
    let network = host.load();
    host.on(|| network.check(&a)).unwrap();

    // Killed before ADD was noted, and the Pod's namespace is gone.
    host.on(|| network.add(&b)).unwrap();
    host.on(|| network.results.forget("b", "eth0")).unwrap();
    delete(&b.netns_path).unwrap();
    drop(network);
    let network = host.load();
    assert_eq!(ifbs().len(), 2);
    let keep: BTreeSet<String> = ["a".to_owned()].into();
    host.on(|| network.retain(&keep)).unwrap();
    assert_eq!(ifbs().len(), 1);
    host.on(|| network.check(&a)).unwrap();
    delete(&a.netns_path).unwrap();
    let id = &host.config.cluster_id;
    let links = ["link kn-test".to_owned(), format!("link {}", ifbs()[0])];
    let left = host.on(|| crate::leftovers(id).unwrap());
    assert!(links.iter().all(|link| left.contains(link)), "{left:?}");
    host.on(|| crate::cleanup(id, &host.config.state_dir)).unwrap();
    assert_eq!(ifbs(), Vec::<String>::new());
}

#[test]
fn who_has_sent_to_a_udp_port_of_the_host_before_reaches_the_pod_that_has_it_now() {
    let host = Host::new();
    let network = host.load();
    let client = host.pod("client");
    host.on(|| network.add(&client)).unwrap();
    let timeout = Duration::from_secs(60);
    let socket = inside(&client, || {
        let socket = UdpSocket::bind("0.0.0.0:5000").unwrap();
        socket.set_read_timeout(Some(timeout)).unwrap();
        socket.connect("10.42.0.1:9053").unwrap();
        socket
    });
    let ask = || {
        let mut answer = [0; 16];
        let asked = socket.send(b"?").and_then(|_| socket.recv(&mut answer));
        asked.map_or_else(
            |error| error.kind().to_string(),
            |length| String::from_utf8_lossy(&answer[..length]).into_owned(),
        )
    };
    assert_eq!(ask(), "connection refused");
    for name in ["first", "second"] {
        let mut pod = host.pod(name);
        pod.port_mappings = vec![PortMapping {
            host_port: 9053,
            container_port: 53,
            protocol: "udp".into(),
            host_ip: String::new(),
        }];
        host.on(|| network.add(&pod)).unwrap();
        let server = inside(&pod, || UdpSocket::bind("0.0.0.0:53").unwrap());
        std::thread::spawn(move || {
            let mut asked = [0; 16];
            while let Ok((_, from)) = server.recv_from(&mut asked) {
                server.send_to(name.as_bytes(), from).unwrap();
            }
        });
        assert_eq!(ask(), name);
        host.on(|| network.del(&pod)).unwrap();
    }
}

#[test]
fn a_hundred_pods_attached_at_once_wait_for_few_commits() {
    let host = Host::new();
    let network = host.load();
    let pods: Vec<Attachment> = (0..100)
        .map(|n| {
            let mut pod = host.pod(&format!("p{n}"));
            pod.port_mappings = vec![PortMapping {
                host_port: 9000 + n,
                container_port: 80,
                protocol: "tcp".into(),
                host_ip: String::new(),
            }];
            pod
        })
        .collect();
    let start = std::time::Instant::now();
    let each = |f: &(dyn Fn(&Network, &Attachment) + Sync)| {
        std::thread::scope(|scope| {
            for pod in &pods {
                let (network, host) = (&network, &host);
                scope.spawn(move || host.on(|| f(network, pod)));
            }
        });
    };
    each(&|network, pod| drop(network.add(pod).unwrap()));
    println!("{:?} for 100 at once", start.elapsed());
    let mut ips: Vec<IpAddr> = pods
        .iter()
        .flat_map(|pod| network.result(&pod.container_id, "eth0").unwrap().unwrap().pod_ips("eth0"))
        .collect();
    ips.sort();
    ips.dedup();
    assert_eq!(ips.len(), 100, "each has an address of its own");
    for pod in [&pods[0], &pods[99]] {
        serve(pod, 80);
        let port = pod.port_mappings[0].host_port;
        assert_eq!(host.on(|| ask(&format!("10.42.0.1:{port}"))), "10.42.0.1");
    }
    each(&|network, pod| network.del(pod).unwrap());
    host.on(|| {
        assert_eq!(ask("10.42.0.1:9099"), "connection refused");
        assert_eq!(network.results.all().unwrap().len(), 0);
        let links = sys::netlink::Route::open().unwrap().links().unwrap();
        assert_eq!(links.iter().filter(|link| link.kind == "veth").count(), 0);
    });
    pods.iter().for_each(|pod| delete(&pod.netns_path).unwrap());
}
