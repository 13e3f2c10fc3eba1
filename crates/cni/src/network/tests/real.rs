//! Debian's plugins (`containernetworking-plugins`), each in a chain, in a network namespace of the test's own.

use super::*;
use crate::types::is_at_least;

fn path_is_there(name: &str) -> bool {
    assert!(Path::new("/usr/lib/cni/bridge").exists(), "install containernetworking-plugins");
    Path::new("/usr/lib/cni").join(name).exists()
}

fn ipam(dir: &Path) -> Value {
    json!({
        "type": "host-local",
        "ranges": [[{ "subnet": "10.9.0.0/24" }]],
        "routes": [{ "dst": "0.0.0.0/0" }],
        "dataDir": dir.join("leases"),
    })
}

/// A host with this chain.
fn host_with(version: &str, plugins: &Value) -> (Host, Network) {
    let mut host = Host::new();
    host.config.bin_dirs = vec!["/usr/lib/cni".into()];
    let folder = host.dir.path().join("net.d");
    fs::create_dir(&folder).unwrap();
    let conflist = json!({ "cniVersion": version, "name": "real", "plugins": plugins });
    fs::write(folder.join("10-real.conflist"), conflist.to_string()).unwrap();
    let network = host.load();
    (host, network)
}

/// ADD, CHECK and DEL twice; nothing is left.
fn check(version: &str, plugins: impl Fn(&Path) -> Value, inspect: impl Fn(&Host, &Attachment) + Sync) {
    assert!(path_is_there("host-local"));
    let dir = tempfile::tempdir().unwrap();
    let (host, network) = host_with(version, &plugins(dir.path()));
    let mut pod = host.pod("one");
    pod.port_mappings = vec![PortMapping {
        host_port: 8081,
        container_port: 80,
        protocol: "tcp".into(),
        host_ip: String::new(),
    }];
    pod.capabilities = json!({ "bandwidth": {
        "ingressRate": 1_000_000, "ingressBurst": 1_000_000, "egressRate": 2_000_000, "egressBurst": 2_000_000,
    } }).as_object().unwrap().clone();
    host.on(|| {
        // What macvlan stands on.
        let mut route = sys::netlink::Route::open().unwrap();
        route.create_bridge("parent0").unwrap();
        route.set_up("parent0").unwrap();
        network.status().unwrap();
        let result = network.add(&pod).unwrap_or_else(|error| panic!("{version}: {error}"));
        assert_eq!(
            (result.cni_version.as_str(), result.pod_ips("eth0")),
            (version, vec![IpAddr::from([10, 9, 0, 2])])
        );
        let says_kind = result.ips[0].version.as_deref();
        assert_eq!(says_kind, (!is_at_least(version, (1, 0))).then_some("4"));
        match network.check(&pod) {
            // portmap 1.1.1 looks for IPv6 rules that nobody asked for.
            Err(error) if error.to_string().contains("could not check ipv6 dnat") => {}
            checked => checked.unwrap_or_else(|error| panic!("{version}: {error}")),
        }
    });
    inspect(&host, &pod);
    // As after a crash: another process, which knows only what is on disk.
    drop(network);
    let network = host.load();
    host.on(|| {
        network.del(&pod).unwrap_or_else(|error| panic!("{version}: {error}"));
        network.del(&pod).unwrap_or_else(|error| panic!("{version}, again: {error}"));
        let leases = dir.path().join("leases/real");
        let left: Vec<_> = fs::read_dir(leases).unwrap().flatten().map(|it| it.file_name()).collect();
        assert!(!left.contains(&"10.9.0.2".into()), "{left:?}");
        assert_eq!(network.results.all().unwrap().len(), 0);
    });
    delete(&pod.netns_path).unwrap();
}

#[test]
fn bridge_with_everything_behind_it_is_chained() {
    let plugins = |dir: &Path| {
        json!([
            { "type": "bridge", "bridge": "real0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
              "ipam": ipam(dir) },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true },
            { "type": "bandwidth", "capabilities": { "bandwidth": true } },
            { "type": "firewall", "backend": "iptables" },
            { "type": "tuning", "sysctl": { "net.core.somaxconn": "500" } },
        ])
    };
    check("1.0.0", plugins, |host, pod| {
        serve(pod, 80);
        assert_eq!(host.on(|| ask("10.9.0.2:80")), "10.9.0.1");
        assert_eq!(host.on(|| ask("10.9.0.1:8081")), "10.9.0.1", "a host port");
        let somaxconn = inside(pod, || sys::netns::sysctl("net/core/somaxconn").unwrap());
        assert_eq!(somaxconn, "500");
        let links = host.on(|| sys::netlink::Route::open().unwrap().links().unwrap());
        assert!(links.iter().any(|link| link.name.starts_with("bwp")), "the bandwidth plugin's link");
    });
}

#[test]
fn older_versions_of_the_specification_are_spoken() {
    for version in ["0.3.1", "0.4.0"] {
        let plugins = |dir: &Path| {
            json!([
                { "type": "ptp", "ipMasq": true, "ipam": ipam(dir) },
                { "type": "portmap", "capabilities": { "portMappings": true } },
                { "type": "loopback" },
            ])
        };
        check(version, plugins, |host, pod| {
            serve(pod, 80);
            assert_eq!(host.on(|| ask("10.9.0.2:80")), "10.9.0.1");
        });
    }
}

#[test]
fn the_newest_version_that_installed_plugins_speak_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let plugins = json!([{ "type": "ptp", "ipam": ipam(dir.path()) }]);
    let (host, network) = host_with("1.1.0", &plugins);
    let list = host.dir.path().join("net.d/10-real.conflist");
    let error = host.on(|| network.status()).unwrap_err().to_string();
    // Debian's are of before 1.1.
    assert!(
        error.starts_with("plugin ptp does not support config version \"1.1.0\" (it speaks 0.1.0, "),
        "{error}"
    );
    let mut conflist: Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
    conflist["cniVersions"] = json!(["0.3.1", "1.0.0", "1.1.0"]);
    fs::write(&list, conflist.to_string()).unwrap();
    let pod = host.pod("one");
    host.on(|| {
        network.status().unwrap();
        assert_eq!(network.add(&pod).unwrap().cni_version, "1.0.0");
        network.check(&pod).unwrap();
        network.del(&pod).unwrap();
    });
    delete(&pod.netns_path).unwrap();
}

#[test]
fn macvlan_stands_on_another_link() {
    let plugins =
        |dir: &Path| json!([{ "type": "macvlan", "master": "parent0", "mode": "bridge", "ipam": ipam(dir) }]);
    check("1.0.0", plugins, |_, pod| {
        let links = inside(pod, || sys::netlink::Route::open().unwrap().links().unwrap());
        assert!(links.iter().any(|link| link.name == "eth0"), "{links:?}");
    });
}

#[test]
fn a_network_that_comes_while_running_is_used_and_the_old_one_takes_its_pods_back() {
    let mut host = Host::new();
    host.config.bin_dirs = vec!["/usr/lib/cni".into()];
    let network = host.load();
    let (old, new) = (host.pod("old"), host.pod("new"));
    let leases = tempfile::tempdir().unwrap();
    host.on(|| {
        assert_eq!(network.name().unwrap(), "knarr");
        assert_eq!(network.add(&old).unwrap().pod_ips("eth0"), [IpAddr::from([10, 42, 0, 2])]);
        let folder = host.dir.path().join("net.d");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("10-broken.conflist"), "{").unwrap();
        let error = network.add(&new).unwrap_err().to_string();
        assert!(error.starts_with("invalid network configuration"), "{error}");
        assert!(network.status().is_err());
        let plugins = json!([{ "type": "ptp", "ipam": ipam(leases.path()) }]);
        let conflist = json!({ "cniVersion": "1.0.0", "name": "real", "plugins": plugins });
        fs::write(folder.join("10-broken.conflist"), conflist.to_string()).unwrap();
        assert_eq!(network.add(&new).unwrap().pod_ips("eth0"), [IpAddr::from([10, 9, 0, 2])]);
        network.check(&old).unwrap();
        network.check(&new).unwrap();
        let detached = network.retain(&BTreeSet::from(["new".to_owned()])).unwrap();
        assert_eq!(detached, ["old"]);
        assert!(network.check(&old).is_err());
        network.check(&new).unwrap();
        network.del(&new).unwrap();
        crate::cleanup(&host.config.cluster_id, &host.config.state_dir).unwrap();
    });
    for pod in [old, new] {
        delete(&pod.netns_path).unwrap();
    }
}

#[test]
fn a_plugins_error_is_told_as_it_is() {
    let plugins = json!([{ "type": "macvlan", "master": "nothing0", "ipam": { "type": "host-local" } }]);
    let (host, network) = host_with("1.0.0", &plugins);
    let pod = host.pod("one");
    let error = host.on(|| network.add(&pod)).unwrap_err().to_string();
    assert!(error.starts_with("plugin type=\"macvlan\" name=\"real\" failed (add): "), "{error}");
    delete(&pod.netns_path).unwrap();
}

#[test]
fn a_reset_detaches_pods_whose_namespace_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let plugins = json!([{ "type": "ptp", "ipam": ipam(dir.path()) }]);
    let (host, network) = host_with("1.0.0", &plugins);
    let pod = host.pod("one");
    host.on(|| {
        network.add(&pod).unwrap();
        delete(&pod.netns_path).unwrap();
        assert!(dir.path().join("leases/real/10.9.0.2").exists());
        assert_eq!(crate::detach_foreign(&host.config).unwrap(), 1);
        assert_eq!(crate::detach_foreign(&host.config).unwrap(), 0);
        assert!(!dir.path().join("leases/real/10.9.0.2").exists());
    });
}
