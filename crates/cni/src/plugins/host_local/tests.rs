use super::*;

fn open_with(dir: &tempfile::TempDir, ipam: Value) -> HostLocal {
    HostLocal::open(range::parse(&ipam).unwrap(), dir.path().join("net")).unwrap()
}

fn open(dir: &tempfile::TempDir) -> HostLocal {
    open_with(dir, json!({ "subnet": "10.42.0.0/29" }))
}

fn both(dir: &tempfile::TempDir) -> HostLocal {
    open_with(dir, json!({ "ranges": [[{ "subnet": "10.42.0.0/29" }], [{ "subnet": "fd42::/64" }]] }))
}

/// The addresses with spaces between them, or the error.
fn reserve(ipam: &HostLocal, id: &str, wanted: &[&str]) -> String {
    let wanted = wanted.iter().map(|ip| ip.parse().unwrap()).collect();
    match ipam.reserve(id, "eth0", wanted) {
        Ok(ips) => ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    }
}

/// The names of the files in the folder.
fn files(dir: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path().join("net")).unwrap();
    let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn addresses_are_unique_survive_a_restart_and_are_used_again_last() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = open(&dir);
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2");
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3");
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2", "the same Pod keeps its address");
    ipam.release("a", "eth0").unwrap();
    ipam.release("a", "eth0").unwrap();
    let ipam = open(&dir);
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3");
    let more: Vec<String> = (0..4).map(|n| reserve(&ipam, &format!("c{n}"), &[])).collect();
    assert_eq!(more, ["10.42.0.4", "10.42.0.5", "10.42.0.6", "10.42.0.2"]);
    assert_eq!(
        reserve(&ipam, "d", &[]),
        "failed to allocate for range 0: no IP addresses available in range set: 10.42.0.1-10.42.0.6"
    );
    let keep = Attached { containers: ["b".to_owned()].into(), ..Attached::default() };
    assert_eq!(ipam.owners_beside(&keep).len(), 4);
    ipam.retain(&keep).unwrap();
    assert_eq!(reserve(&ipam, "d", &[]), "10.42.0.4");
}

#[test]
fn an_address_that_is_wished_for_is_given_unless_it_is_taken_or_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = open(&dir);
    assert_eq!(reserve(&ipam, "a", &["10.42.0.5"]), "10.42.0.5");
    let of_set = "failed to allocate for range 0: requested";
    for (ip, says) in [
        (
            "10.42.0.5",
            format!("{of_set} IP address 10.42.0.5 is not available in range set 10.42.0.1-10.42.0.6"),
        ),
        ("10.42.0.1", format!("{of_set} ip 10.42.0.1 is subnet's gateway")),
        ("10.42.0.7", "failed to allocate all requested IPs: 10.42.0.7".to_owned()),
        ("fd42::7", "failed to allocate all requested IPs: fd42::7".to_owned()),
    ] {
        assert_eq!(reserve(&ipam, "b", &[ip]), says);
    }
    assert!(
        !files(&dir).contains(&"10.42.0.2".to_owned()),
        "what was given with a wish that failed is free again"
    );
    assert_eq!(reserve(&ipam, "c", &[]), "10.42.0.4");
}

#[test]
fn each_set_gives_an_address_and_has_files_as_upstream_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = both(&dir);
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2 fd42::2");
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2 fd42::2", "twice");
    assert_eq!(reserve(&ipam, "b", &["fd42::b"]), "10.42.0.3 fd42::b");
    let last = ["last_reserved_ip.0", "last_reserved_ip.1"];
    let ips = ["10.42.0.2", "10.42.0.3"];
    assert_eq!(files(&dir), [&ips[..], &["fd42::2", "fd42::b"], &last].concat());
    let read = |name: &str| fs::read_to_string(dir.path().join("net").join(name)).unwrap();
    assert_eq!(["fd42::b", last[0], last[1]].map(read), ["b\r\neth0", "10.42.0.3", "fd42::2"]);
    let ipam = both(&dir);
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3 fd42::b", "after a restart");
    ipam.release("a", "eth0").unwrap();
    assert_eq!(reserve(&ipam, "c", &[]), "10.42.0.4 fd42::3");
    assert_eq!(ipam.release("c", "eth0").unwrap().len(), 2);
}

#[test]
fn a_set_that_is_exhausted_takes_nothing_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let ipam =
        open_with(&dir, json!({ "ranges": [[{ "subnet": "10.42.0.0/24" }], [{ "subnet": "fd42::/126" }]] }));
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2 fd42::2");
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.3 fd42::3");
    let none = "failed to allocate for range 1: no IP addresses available in range set: fd42::1-fd42::3";
    assert_eq!(reserve(&ipam, "c", &[]), none);
    assert!(!files(&dir).contains(&"10.42.0.4".to_owned()));
    let more = open_with(
        &dir,
        json!({ "ranges": [[{ "subnet": "10.42.0.0/24" }], [
        { "subnet": "fd42::/126" }, { "subnet": "fd43::/126" },
    ]] }),
    );
    assert_eq!(reserve(&more, "c", &[]), "10.42.0.5 fd43::2", "the next range of the set");
}

#[test]
fn a_pod_of_before_gets_an_address_of_the_family_that_its_node_has_now() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(reserve(&open(&dir), "a", &[]), "10.42.0.2");
    assert_eq!(reserve(&both(&dir), "a", &[]), "10.42.0.2 fd42::2");
}

#[test]
fn what_a_crash_left_of_a_reservation_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = open(&dir);
    let files = ["gone-eth0.new", "here-eth0.new"].map(|name| dir.path().join("net").join(name));
    files.iter().for_each(|file| fs::write(file, "half").unwrap());
    ipam.retain(&Attached { containers: ["here".to_owned()].into(), ..Attached::default() }).unwrap();
    assert_eq!(files.map(|file| file.exists()), [false, true], "a Pod that is there may be at it");
}

/// Source: `TestAllocator` cases of upstream's `host-local/backend/allocator`: what is taken and what was given last, and what
/// is given next.
#[test]
fn the_next_address_is_upstreams() {
    const ONE: &str = "10.0.0.0/29";
    const THREE: &str = "10.0.0.0/30 10.0.1.0/30 10.0.2.0/30";
    let none = |ranges: &str| {
        format!("failed to allocate for range 0: no IP addresses available in range set: {ranges}")
    };
    for (name, subnets, taken, last, expect) in [
        ("nothing taken", ONE, "", "", "10.0.0.2".to_owned()),
        ("nothing taken of IPv6", "2001:db8:1::0/64", "", "", "2001:db8:1::2".to_owned()),
        ("the first is taken", ONE, "10.0.0.2", "", "10.0.0.3".to_owned()),
        ("behind the last", ONE, "", "10.0.0.5", "10.0.0.6".to_owned()),
        ("behind the last, past those taken", ONE, "10.0.0.4 10.0.0.5", "10.0.0.3", "10.0.0.6".to_owned()),
        ("around the end", ONE, "10.0.0.6", "10.0.0.5", "10.0.0.2".to_owned()),
        ("the last is elsewhere", ONE, "10.0.0.2", "10.0.0.128", "10.0.0.3".to_owned()),
        (
            "all but the last are taken",
            ONE,
            "10.0.0.2 10.0.0.4 10.0.0.5 10.0.0.6",
            "10.0.0.3",
            "10.0.0.3".to_owned(),
        ),
        ("the first of several", THREE, "", "", "10.0.0.2".to_owned()),
        ("the next of several", THREE, "10.0.0.2", "10.0.0.2", "10.0.1.2".to_owned()),
        ("the last of several", THREE, "10.0.0.2 10.0.1.2", "10.0.1.2", "10.0.2.2".to_owned()),
        ("around the last of several", THREE, "10.0.2.2", "10.0.2.2", "10.0.0.2".to_owned()),
        ("all of one are taken", "10.0.0.0/30", "10.0.0.2", "", none("10.0.0.1-10.0.0.2")),
        (
            "all of several are taken",
            THREE,
            "10.0.0.2 10.0.1.2 10.0.2.2",
            "10.0.1.2",
            none("10.0.0.1-10.0.0.2,10.0.1.1-10.0.1.2,10.0.2.1-10.0.2.2"),
        ),
        ("no number", ONE, "", "10.0.0", "10.0.0.2".to_owned()),
        ("a line end behind the last", ONE, "", "10.0.0.4\n", "10.0.0.5".to_owned()),
        ("of the other family", ONE, "", "fd42::5", "10.0.0.2".to_owned()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let net = dir.path().join("net");
        fs::create_dir(&net).unwrap();
        for ip in taken.split_whitespace() {
            fs::write(net.join(ip), "other\r\neth0").unwrap();
        }
        if !last.is_empty() {
            fs::write(net.join("last_reserved_ip.0"), last).unwrap();
        }
        let set: Vec<Value> = subnets.split(' ').map(|subnet| json!({ "subnet": subnet })).collect();
        let ipam = open_with(&dir, json!({ "ranges": [set] }));
        assert_eq!(reserve(&ipam, "a", &[]), expect, "{name}");
    }
}

/// Source: `store.go` of upstream's `host-local/backend/disk`, whose files may lie there before ours do.
#[test]
fn files_of_others_are_no_addresses_and_those_of_upstream_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let net = dir.path().join("net");
    fs::create_dir(&net).unwrap();
    for (name, text) in [
        ("10.42.0.2", "a\r\neth0"),
        ("10.42.0.3", ""),
        ("10.42.0.4", "old-id-without-an-interface"),
        ("10.42.0.300", "a\r\neth0"),
        ("lock", ""),
        ("notes.txt", "mine"),
    ] {
        fs::write(net.join(name), text).unwrap();
    }
    let ipam = open(&dir);
    assert_eq!(reserve(&ipam, "a", &[]), "10.42.0.2", "whose it was");
    assert_eq!(reserve(&ipam, "b", &[]), "10.42.0.5", "one that nobody wrote into is taken");
    let keep = Attached {
        containers: ["b", "old-id-without-an-interface"].map(str::to_owned).into(),
        ..Attached::default()
    };
    let mut stale = ipam.owners_beside(&keep);
    stale.sort();
    assert_eq!(stale, [(String::new(), String::new()), ("a".into(), "eth0".into())]);
    // Somebody beside us has taken one since.
    fs::write(net.join("10.42.0.6"), "c\r\neth0").unwrap();
    let full = "failed to allocate for range 0: no IP addresses available in range set: 10.42.0.1-10.42.0.6";
    assert_eq!(reserve(&ipam, "d", &[]), full);
    ipam.retain(&keep).unwrap();
    let kept = ["10.42.0.300", "10.42.0.4", "10.42.0.5", "last_reserved_ip.0", "lock", "notes.txt"];
    assert_eq!(files(&dir), kept, "that of a power cut, too, goes with what is not attached");
    assert_eq!(ipam.release("old-id-without-an-interface", "eth0").unwrap().len(), 1);
}

/// Source: resolv.conf(5), and `parseResolvConf` of upstream's `host-local`.
#[test]
fn a_resolver_file_is_the_dns_of_a_result() {
    for (text, expect) in [
        ("", json!({})),
        ("# nameserver 1.1.1.1\n; search a\n", json!({})),
        ("nameserver 1.1.1.1\nnameserver  ::1 # mine\n", json!({ "nameservers": ["1.1.1.1", "::1"] })),
        ("domain a.example\nsearch b c\nsearch d\n", json!({ "domain": "a.example", "search": ["d"] })),
        ("options ndots:5 edns0\noptions\n", json!({ "options": ["ndots:5", "edns0"] })),
        ("nameserver\ndomain\nsearch \nunknown x\n", json!({})),
        ("\tnameserver\t1.1.1.1", json!({ "nameservers": ["1.1.1.1"] })),
    ] {
        assert_eq!(dns_of(text), expect, "{text:?}");
    }
}
