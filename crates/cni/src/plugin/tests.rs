use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::LazyLock;

use sys::netlink::Route;
use sys::netns::{NetNs, delete};
use sys::nftables;

use super::*;

/// Burst chosen by nobody.
static LIMITS: LazyLock<Value> =
    LazyLock::new(|| json!({ "ingressRate": 1_000_000, "egressRate": 2_000_000, "egressBurst": u32::MAX }));

type Env<'a> = BTreeMap<&'a str, String>;

fn call(kind: Kind, env: &Env<'_>, conf: &Value) -> Result<Option<Value>, Value> {
    answer(kind, |name| env.get(name).cloned(), conf.to_string().as_bytes())
}

fn env<'a>(command: &str, id: &str, netns: &Path) -> Env<'a> {
    BTreeMap::from([
        ("CNI_COMMAND", command.to_owned()),
        ("CNI_CONTAINERID", id.to_owned()),
        ("CNI_NETNS", netns.display().to_string()),
        ("CNI_IFNAME", "eth0".to_owned()),
        ("CNI_PATH", "/nowhere".to_owned()),
    ])
}

#[test]
fn what_is_wrong_with_a_call_has_the_specifications_code() {
    let check = |env: &[(&str, &str)], conf: Value, code: u32, says: &str| {
        let env: Env<'_> = env.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let error = call(Kind::Bridge, &env, &conf).unwrap_err();
        let text = format!("{} {}", error["msg"].as_str().unwrap(), error["details"].as_str().unwrap_or(""));
        assert_eq!((&error["code"], text.trim()), (&json!(code), says), "{conf}");
    };
    let conf = |version: &str| json!({ "cniVersion": version, "name": "n", "type": "bridge" });
    let add = [("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c"), ("CNI_NETNS", "/n"), ("CNI_IFNAME", "eth0")];
    check(&[], conf("1.0.0"), 4, "required env variables [CNI_COMMAND] missing");
    check(&[("CNI_COMMAND", "RUN")], conf("1.0.0"), 4, "unknown CNI_COMMAND: RUN");
    check(&add[..2], conf("1.0.0"), 4, "required env variables [CNI_NETNS,CNI_IFNAME] missing");
    let mut odd = add;
    odd[1].1 = "../c";
    check(&odd, conf("1.0.0"), 4, "invalid characters in containerID ../c");
    let mut odd = add;
    odd[3].1 = "much-too-long-name";
    check(
        &odd,
        conf("1.0.0"),
        4,
        "interface name must be a name of at most 15 bytes without / : and spaces much-too-long-name",
    );
    let mut own = add;
    own[2].1 = "/proc/thread-self/ns/net";
    check(&own, conf("1.0.0"), 8, "plugin's netns and netns from CNI_NETNS should not be the same");
    let supported = r#"plugin supports ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]"#;
    check(&add, conf("9.0.0"), 1, &format!("incompatible CNI versions config is \"9.0.0\", {supported}"));
    check(
        &[("CNI_COMMAND", "STATUS")],
        conf("1.0.0"),
        1,
        "config version does not allow STATUS config is \"1.0.0\"",
    );
    check(&add, json!({ "cniVersion": "1.0.0" }), 7, "missing network name");
    let ports = json!({ "cniVersion": "1.0.0", "name": "n", "runtimeConfig": { "portMappings": [{}] } });
    check(&add, ports, 7, "invalid runtimeConfig.portMappings missing field `hostPort`");
    check(
        &[("CNI_COMMAND", "GC")],
        conf("1.1.0"),
        7,
        "cni.dev/valid-attachments must be a list of attachments",
    );
    let ipam = json!({ "type": "dhcp" });
    let dhcp = json!({ "cniVersion": "1.0.0", "name": "n", "ipam": ipam });
    check(
        &add,
        dhcp,
        7,
        "invalid network configuration n: the built-in bridge plugin has no other ipam type than host-local",
    );
    let vlan = json!({ "cniVersion": "1.0.0", "name": "n", "vlan": 5, "ipam": ipam });
    check(&add, vlan, 2, "unsupported field in network configuration n: vlan");
}

#[test]
fn what_is_not_done_as_it_is_meant_is_refused() {
    let host = Host::new();
    let check = |kind: Kind, field: &str, value: Value, says: Option<&str>| {
        let mut conf = host.conf("1.1.0");
        conf["prevResult"] = json!({ "cniVersion": "1.1.0" });
        match field.strip_prefix("ipam.") {
            Some(field) => conf["ipam"][field] = value,
            None => conf[field] = value,
        }
        let status = host.call(kind, &BTreeMap::from([("CNI_COMMAND", "STATUS".to_owned())]), &conf);
        let said = status.err().map(|error| error["msg"].as_str().unwrap().to_owned());
        let says = says.map(|says| says.to_owned());
        let says = says.map(|says| match says.starts_with("unsupported") {
            true => says.replace("unsupported", "unsupported field in network configuration n:"),
            false => format!("invalid network configuration n: {says}"),
        });
        assert_eq!(said, says, "{kind:?} {field}");
    };
    check(
        Kind::Portmap,
        "conditionsV4",
        json!(["!", "-d", "192.0.2.0/24"]),
        Some("unsupported conditionsV4"),
    );
    check(Kind::Portmap, "backend", json!("iptables"), Some("backend must be nftables, not iptables"));
    check(Kind::Portmap, "snat", json!("no"), Some("snat must be true or false"));
    check(Kind::Portmap, "snat", json!(false), None);
    check(
        Kind::Bridge,
        "ipMasqBackend",
        json!("iptables"),
        Some("ipMasqBackend must be nftables, not iptables"),
    );
    check(Kind::Bridge, "promiscMode", json!(true), Some("unsupported promiscMode"));
    check(Kind::Bridge, "promiscMode", json!(false), None);
    let route = |more: Value| {
        let mut route = json!({ "dst": "10.0.0.0/8" });
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([route])
    };
    check(Kind::Bridge, "ipam.routes", route(json!({ "gw": "10.7.0.5" })), None);
    check(Kind::Bridge, "ipam.routes", route(json!({ "table": 100 })), Some("unsupported table"));
    let v6 = Some("route to fd00::/8: no range has IPv6 addresses");
    check(Kind::Bridge, "ipam.routes", route(json!({ "dst": "fd00::/8" })), v6);
    let other = Some("route to 10.0.0.0/8: its gateway is of the other family");
    check(Kind::Bridge, "ipam.routes", route(json!({ "gw": "fd00::1" })), other);
    check(
        Kind::Bridge,
        "ipam.routes",
        route(json!({ "dst": "10" })),
        Some("route to 10: it must be a network"),
    );
    let both = json!([[{ "subnet": "10.7.0.0/24" }], [{ "subnet": "fd00::/64" }]]);
    check(Kind::HostLocal, "ipam.ranges", both, None);
    let mixed = json!([[{ "subnet": "10.7.0.0/24" }, { "subnet": "fd00::/64" }]]);
    check(Kind::HostLocal, "ipam.ranges", mixed, Some("mixed address families"));
    let twice = json!([[{ "subnet": "10.7.0.0/24" }], [{ "subnet": "10.7.0.0/25" }]]);
    check(Kind::HostLocal, "ipam.ranges", twice, Some("range set 0 overlaps with 1"));
}

#[test]
fn dns_of_the_configuration_or_of_a_file_is_in_the_result() {
    let host = Host::new();
    let (pod, file) = (host.pod("pod"), host.dir.path().join("resolv.conf"));
    let text =
        "# ours\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nsearch a.example b.example\noptions ndots:2\n";
    let mut conf = host.conf("1.1.0");
    conf["ipam"]["resolvConf"] = json!(file);
    let dns = |conf: &Value| {
        std::fs::write(&file, text).unwrap();
        let result = host.call(Kind::Bridge, &env("ADD", "c1", &pod), conf).unwrap().unwrap();
        std::fs::remove_file(&file).unwrap();
        host.call(Kind::Bridge, &env("DEL", "c1", &pod), conf).unwrap();
        result["dns"].clone()
    };
    let of_file = json!({
        "nameservers": ["10.0.0.1", "10.0.0.2"], "search": ["a.example", "b.example"], "options": ["ndots:2"],
    });
    assert_eq!(dns(&conf), of_file);
    let own = json!({ "nameservers": ["10.0.0.3"] });
    conf["dns"] = own.clone();
    assert_eq!(dns(&conf), own);
    delete(&pod).unwrap();
}

#[test]
fn host_ports_change_sources_as_far_as_they_are_told() {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    let ask = |to: &str, expect: &str| {
        let to: SocketAddr = to.parse().unwrap();
        let mut answer = String::new();
        let timeout = Duration::from_secs(if expect == "timed out" { 2 } else { 60 });
        match TcpStream::connect_timeout(&to, timeout) {
            Ok(mut stream) => stream.read_to_string(&mut answer).map(|_| answer).unwrap(),
            Err(error) => error.kind().to_string(),
        }
    };
    // From the Pod itself, from another one, from the host's loopback.
    for (told, expect) in [
        (json!({}), ["10.7.0.1", "10.7.0.3", "10.7.0.1"]),
        (json!({ "masqAll": true }), ["10.7.0.1"; 3]),
        (json!({ "snat": false, "masqAll": true }), ["timed out", "10.7.0.3", "timed out"]),
    ] {
        let host = Host::new();
        let pods = ["c1", "c2"].map(|id| (id, host.pod(id)));
        let mut conf = host.conf("1.1.0");
        conf["hairpinMode"] = json!(true);
        for (id, netns) in &pods {
            let result = host.call(Kind::Bridge, &env("ADD", id, netns), &conf).unwrap().unwrap();
            if *id == "c1" {
                let mut ports = conf.clone();
                ports.as_object_mut().unwrap().extend(told.as_object().unwrap().clone());
                ports["prevResult"] = result;
                ports["runtimeConfig"] =
                    json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80 }] });
                host.call(Kind::Portmap, &env("ADD", id, netns), &ports).unwrap();
            }
        }
        let inside = |at: usize| NetNs::open(&pods[at].1).unwrap();
        let listener = inside(0).run(|| Ok(TcpListener::bind("0.0.0.0:80").unwrap())).unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, peer)) = listener.accept() {
                write!(stream, "{}", peer.ip()).unwrap();
            }
        });
        let found = [
            inside(0).run(|| Ok(ask("10.7.0.1:8080", expect[0]))).unwrap(),
            inside(1).run(|| Ok(ask("10.7.0.1:8080", expect[1]))).unwrap(),
            host.ns.run(|| Ok(ask("127.0.0.1:8080", expect[2]))).unwrap(),
        ];
        assert_eq!(found, expect, "{told}");
        for (_, netns) in &pods {
            delete(netns).unwrap();
        }
    }
}

#[test]
fn input_that_is_no_json_is_told_in_json() {
    let error = answer(Kind::Portmap, |_| Some("ADD".into()), b"{").unwrap_err();
    assert_eq!(error["code"], 6);
    assert_eq!(error["cniVersion"], "1.1.0");
}

#[test]
fn versions_are_told_with_and_without_a_configuration() {
    let version = |input: &str| {
        let env = |name: &str| (name == "CNI_COMMAND").then(|| "VERSION".to_owned());
        answer(Kind::Loopback, env, input.as_bytes()).unwrap().unwrap()
    };
    let told = version(r#"{"cniVersion": "0.4.0"}"#);
    assert_eq!(told["cniVersion"], "0.4.0");
    assert_eq!(told["supportedVersions"], json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    assert_eq!(version("")["cniVersion"], "1.1.0");
}

/// A host's network and a place for what plugins keep.
struct Host {
    ns: NetNs,
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        Self { ns: NetNs::anonymous().unwrap(), dir: tempfile::tempdir().unwrap() }
    }

    fn call(&self, kind: Kind, env: &Env<'_>, conf: &Value) -> Result<Option<Value>, Value> {
        self.ns.run(|| Ok(call(kind, env, conf))).unwrap()
    }

    fn conf(&self, version: &str) -> Value {
        json!({
            "cniVersion": version, "name": "n", "type": "knarr-bridge", "bridge": "b0", "isGateway": true,
            "isDefaultGateway": true, "ipMasq": true, "stateDir": self.dir.path(),
            "ipam": {
                "type": "knarr-host-local", "ranges": [[{ "subnet": "10.7.0.0/24" }]],
                "dataDir": self.dir.path().join("leases"),
            },
        })
    }

    fn pod(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        NetNs::create(&path).unwrap();
        path
    }

    fn leases(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path().join("leases/n")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.parse::<IpAddr>().is_ok()).collect()
    }

    fn tables(&self) -> Vec<String> {
        self.ns.run(nftables::table_names).unwrap()
    }

    fn veths(&self) -> usize {
        self.links("veth").len()
    }

    /// Their names.
    fn links(&self, kind: &str) -> Vec<String> {
        let links = self.ns.run(|| Route::open()?.links()).unwrap();
        links.into_iter().filter(|link| link.kind == kind).map(|link| link.name).collect()
    }

    /// In the host's namespace, or another.
    fn run(namespace: &NetNs, command: &str) {
        let mut words = command.split(' ');
        let mut program = std::process::Command::new(words.next().unwrap());
        let done = namespace.run(|| Ok(program.args(words).status().unwrap())).unwrap();
        assert!(done.success(), "{command}");
    }
}

#[test]
fn bridge_portmap_and_bandwidth_attach_check_and_detach_in_each_version() {
    let host = Host::new();
    let pod = host.pod("pod");
    for (number, version) in VERSIONS.iter().enumerate() {
        let mut conf = host.conf(version);
        let result = host.call(Kind::Bridge, &env("ADD", "c1", &pod), &conf).unwrap().unwrap();
        assert_eq!(result["cniVersion"], **version);
        let address = format!("10.7.0.{}/24", number + 2);
        let says_kind = if is_at_least(version, (1, 0)) { Value::Null } else { json!("4") };
        assert_eq!(result["ips"][0]["address"], address);
        assert_eq!(result["ips"][0].get("version").cloned().unwrap_or_default(), says_kind);
        assert_eq!(result["interfaces"][2]["sandbox"], pod.display().to_string());
        let links = host.ns.run(|| Route::open()?.links()).unwrap();
        for made in &result["interfaces"].as_array().unwrap()[..2] {
            let link = links.iter().find(|link| link.name == made["name"]).unwrap();
            assert_eq!(made["mac"], crate::plugins::mac_text(&link.mac));
        }
        conf["prevResult"] = result.clone();
        let mut ports = conf.clone();
        ports["runtimeConfig"] = json!({
            "portMappings": [{ "HostPort": 8080, "ContainerPort": 80, "Protocol": "tcp", "HostIP": "" }],
            "bandwidth": LIMITS.clone(),
        });
        let passed = host.call(Kind::Portmap, &env("ADD", "c1", &pod), &ports).unwrap().unwrap();
        assert_eq!(passed, result, "what came before is handed on");
        let limited = host.call(Kind::Bandwidth, &env("ADD", "c1", &pod), &ports).unwrap().unwrap();
        assert_eq!(limited["ips"], result["ips"], "what came before is handed on");
        assert_eq!(host.links("ifb"), [limited["interfaces"][3]["name"].as_str().unwrap()]);
        assert_eq!(host.tables(), ["knarr-cni-n"]);
        if is_at_least(version, (0, 4)) {
            for (kind, conf) in [(Kind::Bridge, &conf), (Kind::Portmap, &ports), (Kind::Bandwidth, &ports)] {
                host.call(kind, &env("CHECK", "c1", &pod), conf).unwrap();
            }
        }
        for _ in 0..2 {
            for (kind, conf) in [(Kind::Bandwidth, &ports), (Kind::Portmap, &ports), (Kind::Bridge, &conf)] {
                assert_eq!(host.call(kind, &env("DEL", "c1", &pod), conf), Ok(None));
            }
        }
        assert!(host.leases().is_empty() && host.tables().is_empty() && host.veths() == 0);
        assert!(host.links("ifb").is_empty());
    }
    let check = host.call(Kind::Bridge, &env("CHECK", "c1", &pod), &host.conf("1.1.0")).unwrap_err();
    assert_eq!(check["msg"], "invalid network configuration n: prevResult must be set");
    delete(&pod).unwrap();
}

/// As Debian's own plugins do it: for each address a gateway and a default route, and a port in both families.
#[test]
fn networks_of_both_families_are_attached_checked_and_detached_in_each_version() {
    let host = Host::new();
    let pod = host.pod("pod");
    let sets = [json!([{ "subnet": "10.7.0.0/24" }]), json!([{ "subnet": "fd07::/64" }])];
    for (version, sets) in VERSIONS.iter().flat_map(|version| [(version, &sets[..]), (version, &sets[1..])]) {
        let mut conf = host.conf(version);
        conf["ipam"]["ranges"] = json!(sets);
        let result = host.call(Kind::Bridge, &env("ADD", "c1", &pod), &conf).unwrap().unwrap();
        let list = |field: &str, of: &str| -> Vec<String> {
            let all = result[field].as_array().unwrap().iter();
            all.map(|it| it[of].as_str().unwrap_or_default().to_owned()).collect()
        };
        let skipped = 2 - sets.len();
        assert_eq!(list("ips", "gateway"), ["10.7.0.1", "fd07::1"][skipped..], "{version}");
        assert_eq!(list("routes", "dst"), ["0.0.0.0/0", "::/0"][skipped..], "{version}");
        let kinds = if is_at_least(version, (1, 0)) { ["", ""] } else { ["4", "6"] };
        assert_eq!(list("ips", "version"), kinds[skipped..], "{version}");
        assert_eq!(host.leases().len(), sets.len());
        conf["prevResult"] = result.clone();
        let mut ports = conf.clone();
        ports["runtimeConfig"] = json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80 }] });
        host.call(Kind::Portmap, &env("ADD", "c1", &pod), &ports).unwrap();
        let tables = || host.ns.run(|| nftables::table_names_of(nftables::TableFamily::Ipv6)).unwrap();
        assert_eq!((tables().len(), host.tables().len()), (1, sets.len() - 1), "{version}");
        for kind in [Kind::Bridge, Kind::Portmap].into_iter().filter(|_| is_at_least(version, (0, 4))) {
            host.call(kind, &env("CHECK", "c1", &pod), &ports).unwrap();
        }
        for kind in [Kind::Portmap, Kind::Bridge] {
            host.call(kind, &env("DEL", "c1", &pod), &ports).unwrap();
        }
        assert!(host.leases().is_empty() && host.tables().is_empty() && tables().is_empty(), "{version}");
    }
    delete(&pod).unwrap();
}

#[test]
fn what_is_there_already_is_refused_and_stays() {
    let host = Host::new();
    let (pod, conf) = (host.pod("pod"), host.conf("1.0.0"));
    let result = host.call(Kind::Bridge, &env("ADD", "c1", &pod), &conf).unwrap().unwrap();
    let again = host.call(Kind::Bridge, &env("ADD", "c1", &pod), &conf).unwrap_err();
    let other = host.call(Kind::Bridge, &env("ADD", "c2", &pod), &conf).unwrap_err();
    for refused in [again, other] {
        assert_eq!((&refused["code"], &refused["cniVersion"]), (&json!(999), &json!("1.0.0")));
        let msg = format!("container veth name \"eth0\" already exists in {}", pod.display());
        assert_eq!(refused["msg"], msg);
    }
    let mut check = conf.clone();
    check["prevResult"] = result;
    host.call(Kind::Bridge, &env("CHECK", "c1", &pod), &check).unwrap();
    assert_eq!((host.leases(), host.veths()), (vec!["10.7.0.2".to_owned()], 1));
    host.call(Kind::Bridge, &env("DEL", "c1", &pod), &conf).unwrap();
    delete(&pod).unwrap();
}

/// In the Pod or on the host, what is changed, whose CHECK finds it, and what it says.
const CHANGES: [(bool, &str, Kind, &str); 17] = [
    (true, "ip link set eth0 down name eth7", Kind::Bridge, "link eth0 is missing in POD"),
    (
        true,
        "ip link set eth0 address 02:00:00:00:00:01",
        Kind::Bridge,
        "hardware address of eth0 is 02:00:00:00:00:01, not 0a:58:0a:07:00:02 in POD",
    ),
    (true, "ip address del 10.7.0.2/24 dev eth0", Kind::Bridge, "address 10.7.0.2 is missing in POD"),
    (true, "ip route del default", Kind::Bridge, "default route is missing in POD"),
    (true, "ip route del 192.0.2.0/24", Kind::Bridge, "route to 192.0.2.0/24 is missing in POD"),
    (false, "rm LEASES/10.7.0.2", Kind::Bridge, "host-local: Failed to find address added by container c1"),
    (false, "ip link set VETH nomaster", Kind::Bridge, "link VETH is not an up port of b0"),
    (false, "ip link del VETH", Kind::Bridge, "link VETH is missing"),
    (
        false,
        "nft flush map ip knarr-cni-n ports",
        Kind::Portmap,
        "the host ports of the Pod are missing in nftables",
    ),
    (
        false,
        "nft delete table ip knarr-cni-n",
        Kind::Portmap,
        "the host ports of the Pod are missing in nftables",
    ),
    (false, "tc qdisc del dev VETH root", Kind::Bandwidth, "the rate of link VETH is missing"),
    (
        false,
        "tc qdisc change dev VETH root handle 1: tbf rate 9mbit burst 10000 limit 20000",
        Kind::Bandwidth,
        "the rate of link VETH is not as it was set",
    ),
    (false, "tc qdisc del dev VETH ingress", Kind::Bandwidth, "VETH is not redirected to IFB"),
    (false, "tc qdisc del dev IFB root", Kind::Bandwidth, "the rate of link IFB is missing"),
    (false, "ip link set IFB down", Kind::Bandwidth, "link IFB is down"),
    (false, "ip link del IFB", Kind::Bandwidth, "link IFB is missing"),
    (
        false,
        "ip link del VETH",
        Kind::Bandwidth,
        "cannot limit the bandwidth: eth0 is no end of a veth pair whose other end is on the host",
    ),
];

#[test]
fn check_says_what_is_not_as_it_was_left() {
    for (is_inside, command, kind, expect) in CHANGES {
        let host = Host::new();
        let (pod, mut conf) = (host.pod("pod"), host.conf("1.0.0"));
        conf["ipam"]["routes"] = json!([{ "dst": "192.0.2.0/24" }]);
        let result = host.call(Kind::Bridge, &env("ADD", "c1", &pod), &conf).unwrap().unwrap();
        let veth = result["interfaces"][1]["name"].as_str().unwrap().to_owned();
        conf["prevResult"] = result;
        conf["runtimeConfig"] = json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80 }], "bandwidth": LIMITS.clone() });
        for kind in [Kind::Portmap, Kind::Bandwidth] {
            host.call(kind, &env("ADD", "c1", &pod), &conf).unwrap();
        }
        let ifb = host.links("ifb").remove(0);
        let named = |text: &str| {
            let leases = host.dir.path().join("leases/n").display().to_string();
            let text = text.replace("VETH", &veth).replace("IFB", &ifb).replace("LEASES", &leases);
            text.replace("POD", &pod.display().to_string())
        };
        for kind in [Kind::Bridge, Kind::Portmap, Kind::Bandwidth] {
            host.call(kind, &env("CHECK", "c1", &pod), &conf).unwrap();
        }
        let inside = NetNs::open(&pod).unwrap();
        let namespace = if is_inside { &inside } else { &host.ns };
        let command = named(command);
        Host::run(namespace, &command);
        let found = host.call(kind, &env("CHECK", "c1", &pod), &conf).unwrap_err();
        assert_eq!(found["msg"], named(expect), "{command}");
        for kind in [Kind::Bandwidth, Kind::Portmap, Kind::Bridge] {
            host.call(kind, &env("DEL", "c1", &pod), &conf).unwrap();
        }
        delete(&pod).unwrap();
    }
}

#[test]
fn limits_are_told_by_the_runtime_or_the_configuration_and_can_be_set_again() {
    let host = Host::new();
    let (pod, mut conf) = (host.pod("pod"), host.conf("1.0.0"));
    let result = host.call(Kind::Bridge, &env("ADD", "c1", &pod), &conf).unwrap().unwrap();
    let veth = result["interfaces"][1]["name"].as_str().unwrap().to_owned();
    conf["prevResult"] = result.clone();
    let rates = |ifb: Option<&str>| {
        let rate = |name: &str| {
            let bucket = host.ns.run(|| {
                let mut route = Route::open()?;
                let link = route.index(name)?;
                route.token_bucket(link)
            });
            bucket.unwrap().map(|bucket| bucket.rate)
        };
        (rate(&veth), ifb.and_then(rate))
    };
    let passed = host.call(Kind::Bandwidth, &env("ADD", "c1", &pod), &conf).unwrap().unwrap();
    assert_eq!((passed, rates(None)), (result, (None, None)), "nobody limits it");
    conf["runtimeConfig"] = json!({ "bandwidth": LIMITS.clone() });
    for _ in 0..2 {
        host.call(Kind::Bandwidth, &env("ADD", "c1", &pod), &conf).unwrap();
        let ifbs = host.links("ifb");
        assert_eq!((ifbs.len(), rates(Some(&ifbs[0]))), (1, (Some(125_000), Some(250_000))));
    }
    // As containerd writes it.
    conf["runtimeConfig"] =
        json!({ "bandwidth": { "IngressRate": 800_000, "EgressRate": 0, "EgressBurst": 0 } });
    host.call(Kind::Bandwidth, &env("ADD", "c1", &pod), &conf).unwrap();
    assert_eq!(rates(None).0, Some(100_000));
    conf["egressRate"] = json!(4_000_000);
    host.call(Kind::Bandwidth, &env("ADD", "c1", &pod), &conf).unwrap();
    assert_eq!(rates(Some(&host.links("ifb")[0])).1, Some(500_000), "its own come first, as upstream's");
    conf["egressRate"] = json!(null);
    conf["runtimeConfig"]["bandwidth"] = json!({ "egressBurst": 8 });
    let refused = host.call(Kind::Bandwidth, &env("ADD", "c1", &pod), &conf).unwrap_err();
    let says = "invalid network configuration n: bandwidth: if burst is set, rate must also be set";
    assert_eq!((&refused["code"], &refused["msg"]), (&json!(7), &json!(says)));
    delete(&pod).unwrap();
    for kind in [Kind::Bandwidth, Kind::Bridge] {
        host.call(kind, &env("DEL", "c1", &pod), &conf).unwrap();
    }
    assert!(host.links("ifb").is_empty() && host.leases().is_empty());
}

#[test]
fn gc_frees_what_is_not_attached() {
    let host = Host::new();
    let pods = ["c1", "c2"].map(|id| (id, host.pod(id)));
    let conf = host.conf("1.1.0");
    for (id, netns) in &pods {
        let mut ports = conf.clone();
        ports["prevResult"] = host.call(Kind::Bridge, &env("ADD", id, netns), &conf).unwrap().unwrap();
        let number = if *id == "c1" { 1 } else { 2 };
        let port = json!({ "hostPort": number, "containerPort": 80, "protocol": "udp" });
        ports["runtimeConfig"] = json!({ "portMappings": [port], "bandwidth": LIMITS.clone() });
        for kind in [Kind::Portmap, Kind::Bandwidth] {
            host.call(kind, &env("ADD", id, netns), &ports).unwrap();
        }
    }
    let ifbs = host.links("ifb");
    // Of nobody: an ADD was cut off before it said whose. And others'.
    let half = format!("{}00000000", &ifbs[0][..7]);
    for name in [&half, "kb0000000000000", "ifb7"] {
        Host::run(&host.ns, &format!("ip link add {name} type ifb"));
    }
    let gc = BTreeMap::from([("CNI_COMMAND", "GC".to_owned())]);
    let mut valid = conf.clone();
    valid["cni.dev/valid-attachments"] = json!([{ "containerID": "c2", "ifname": "eth0" }]);
    for kind in [Kind::Portmap, Kind::Bridge, Kind::HostLocal, Kind::Bandwidth] {
        host.call(kind, &gc, &valid).unwrap();
    }
    assert_eq!(host.links("ifb"), [&ifbs[1], "kb0000000000000", "ifb7"]);
    assert_eq!((host.leases(), host.veths()), (vec!["10.7.0.3".to_owned()], 1));
    assert_eq!(host.tables(), ["knarr-cni-n"]);
    valid["cni.dev/valid-attachments"] = json!([]);
    for kind in [Kind::Bridge, Kind::Portmap, Kind::Bandwidth] {
        host.call(kind, &gc, &valid).unwrap();
    }
    assert_eq!(host.links("ifb"), ["kb0000000000000", "ifb7"]);
    assert!(host.leases().is_empty() && host.tables().is_empty() && host.veths() == 0);
    for (_, netns) in &pods {
        delete(netns).unwrap();
    }
}

#[test]
fn wishes_for_addresses_come_from_the_runtime_the_configuration_or_the_arguments() {
    let host = Host::new();
    let pod = host.pod("pod");
    let ask = |conf: Value, arguments: &str| {
        let mut env = env("ADD", "c1", &pod);
        env.insert("CNI_ARGS", arguments.to_owned());
        let result = host.call(Kind::Bridge, &env, &conf).map(|result| {
            let result = result.unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&result["ips"][0]["address"]), text(&result["interfaces"][2]["mac"]))
        });
        host.call(Kind::Bridge, &self::env("DEL", "c1", &pod), &conf).unwrap();
        result.map_err(|error| error["msg"].as_str().unwrap().to_owned())
    };
    let expect = |ip: &str, mac: &str| Ok((format!("{ip}/24"), mac.to_owned()));
    let mut conf = host.conf("1.0.0");
    let arguments = "IgnoreUnknown=1;IP=10.7.0.9;MAC=02:00:00:00:00:09";
    assert_eq!(ask(conf.clone(), arguments), expect("10.7.0.9", "02:00:00:00:00:09"));
    conf["args"] = json!({ "cni": { "ips": ["10.7.0.8/24"] } });
    assert_eq!(ask(conf.clone(), arguments), expect("10.7.0.8", "02:00:00:00:00:09"));
    conf["runtimeConfig"] = json!({ "ips": ["10.7.0.7"], "mac": "02-00-00-00-00-07" });
    assert_eq!(ask(conf.clone(), arguments), expect("10.7.0.7", "02:00:00:00:00:07"));
    conf["runtimeConfig"] = json!({ "mac": "02:00" });
    assert_eq!(ask(conf.clone(), ""), Err("invalid hardware address: 02:00".to_owned()));
    conf["runtimeConfig"] = json!({ "ips": ["10.8.0.7"] });
    let says = "failed to allocate all requested IPs: 10.8.0.7";
    assert_eq!(ask(conf.clone(), ""), Err(says.to_owned()));
    delete(&pod).unwrap();
}

#[test]
fn addresses_alone_are_given_to_whoever_makes_the_interface() {
    let host = Host::new();
    let conf = host.conf("1.1.0");
    let env = |command| env(command, "c1", Path::new("/nowhere"));
    let result = host.call(Kind::HostLocal, &env("ADD"), &conf).unwrap().unwrap();
    assert_eq!(result["ips"], json!([{ "address": "10.7.0.2/24", "gateway": Ipv4Addr::new(10, 7, 0, 1) }]));
    let mut check = conf.clone();
    check["prevResult"] = result;
    host.call(Kind::HostLocal, &env("CHECK"), &check).unwrap();
    host.call(Kind::HostLocal, &env("DEL"), &conf).unwrap();
    let error = host.call(Kind::HostLocal, &env("CHECK"), &check).unwrap_err();
    let says = "host-local: Failed to find address added by container c1";
    assert_eq!((&error["code"], &error["msg"]), (&json!(999), &json!(says)));
}

#[test]
fn lo_is_set_up() {
    let host = Host::new();
    let pod = host.pod("pod");
    let lo = |f: fn(&mut Route) -> sys::Result<()>| {
        NetNs::open(&pod).unwrap().run(|| f(&mut Route::open()?)).unwrap();
    };
    lo(|route| route.set_down("lo"));
    let conf = json!({ "cniVersion": "1.0.0", "name": "loopback", "type": "loopback" });
    let result = host.call(Kind::Loopback, &env("ADD", "c1", &pod), &conf).unwrap().unwrap();
    assert_eq!(result["ips"][0]["address"], "127.0.0.1/8");
    let mut check = conf.clone();
    check["prevResult"] = result;
    host.call(Kind::Loopback, &env("CHECK", "c1", &pod), &check).unwrap();
    lo(|route| route.set_down("lo"));
    assert_eq!(host.call(Kind::Loopback, &env("CHECK", "c1", &pod), &check).unwrap_err()["code"], 999);
    delete(&pod).unwrap();
}
